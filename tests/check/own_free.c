/* SPDX-License-Identifier: BSD-3-Clause */
/* own_free.c - an allocator that is not the C library's, as far as a hook of free can tell. */
#include <stddef.h>

extern void __libc_free(void *p);
void free(void *p);

__attribute__((visibility("default"))) void free(void *p) { __libc_free(p); }
