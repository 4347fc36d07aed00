/* SPDX-License-Identifier: BSD-3-Clause */
/* forward.S - entry points of the calls that go on to the distribution's library as they came: a jump through a slot, which rpwi_forward_resolve fills at the first call. The
 * calls take integers and pointers; those on the stack stay where they are. */
#include "library/forwards.h"

#if defined(__x86_64__)

/* Seven pushes leave the stack aligned to 16; %rax counts vector arguments of a variadic call. */
.macro forward label slot
	.globl \label
	.type \label, @function
	.p2align 4
\label:
	.cfi_startproc
	endbr64
	movq \slot(%rip), %r11
	testq %r11, %r11
	jnz 1f
	.irp r, rdi, rsi, rdx, rcx, r8, r9, rax
	pushq %\r
	.cfi_adjust_cfa_offset 8
	.endr
	leaq \slot(%rip), %rdi
	call rpwi_forward_resolve
	movq %rax, %r11
	.irp r, rax, r9, r8, rcx, rdx, rsi, rdi
	popq %\r
	.cfi_adjust_cfa_offset -8
	.endr
1:	jmpq *%r11
	.cfi_endproc
	.size \label, . - \label
.endm

#elif defined(__aarch64__)

.macro forward label slot
	.globl \label
	.type \label, %function
	.p2align 4
\label:
	.cfi_startproc
	hint #34 /* bti c */
	adrp x16, \slot
	ldr x16, [x16, #:lo12:\slot]
	cbnz x16, 1f
	stp x29, x30, [sp, #-96]!
	.cfi_def_cfa_offset 96
	.cfi_offset x29, -96
	.cfi_offset x30, -88
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	str x8, [sp, #80]
	adrp x0, \slot
	add x0, x0, #:lo12:\slot
	bl rpwi_forward_resolve
	mov x16, x0
	ldr x8, [sp, #80]
	ldp x6, x7, [sp, #64]
	ldp x4, x5, [sp, #48]
	ldp x2, x3, [sp, #32]
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #96
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
1:	br x16
	.cfi_endproc
	.size \label, . - \label
.endm

#endif

#if defined(__x86_64__) || defined(__aarch64__)
.macro older name version
	.symver rpwi_old_\name, \name@\version
.endm
#define NEW(name, version, missing) .hidden rpwi_slot_##name; forward name, rpwi_slot_##name;
#define OLD(name, version, missing) .hidden rpwi_old_slot_##name; forward rpwi_old_##name, rpwi_old_slot_##name; older name, version;
	.text
	.hidden rpwi_forward_resolve
	RPWI_FORWARDS(NEW)
	RPWI_OLD_FORWARDS(OLD)
#endif

#if defined(__linux__)
	.section .note.GNU-stack, "", %progbits
#endif
