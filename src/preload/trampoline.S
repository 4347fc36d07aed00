/* trampoline.S - the entry points of dlsym and dlvsym: see resolve.c. A tail jump, so that glibc sees the caller's return address. */
#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__)

/* Three pushes leave the stack aligned to 16, as the call needs. */
.macro entry name
	.globl \name
	.type \name, @function
	.p2align 4
\name:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	call rpwi_hook_\name
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rax, %rax
	jz 1f
	ret
1:	jmpq *rpwi_next_\name(%rip)
	.cfi_endproc
	.size \name, . - \name
.endm

	.text
	.hidden rpwi_hook_dlsym
	.hidden rpwi_hook_dlvsym
	.hidden rpwi_next_dlsym
	.hidden rpwi_next_dlvsym
	entry dlsym
	entry dlvsym

#elif defined(__GLIBC__) && defined(__aarch64__)

.macro entry name
	.globl \name
	.type \name, %function
	.p2align 4
\name:
	.cfi_startproc
	hint #34 /* bti c */
	stp x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x29, -48
	.cfi_offset x30, -40
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	bl rpwi_hook_\name
	mov x16, x0
	ldp x0, x1, [sp, #16]
	ldr x2, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	cbz x16, 1f
	mov x0, x16
	ret
1:	adrp x16, rpwi_next_\name
	ldr x16, [x16, #:lo12:rpwi_next_\name]
	br x16
	.cfi_endproc
	.size \name, . - \name
.endm

	.text
	.hidden rpwi_hook_dlsym
	.hidden rpwi_hook_dlvsym
	.hidden rpwi_next_dlsym
	.hidden rpwi_next_dlvsym
	entry dlsym
	entry dlvsym

#endif

#if defined(__linux__)
	.section .note.GNU-stack, "", %progbits
#endif
