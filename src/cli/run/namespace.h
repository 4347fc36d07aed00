/* SPDX-License-Identifier: BSD-3-Clause */
/* namespace.h - `ropeway run --namespace`: a mount namespace in which the kernel's own /sys and
 * /dev have the files of our devices, for programs that no preload reaches. */
#ifndef ROPEWAY_CLI_NAMESPACE_H
#define ROPEWAY_CLI_NAMESPACE_H

#include <stddef.h>

/* Moves this process, which must have one thread, into the namespace of this user's other runs, or
 * into a new one. Its user, group, files and working directory stay; without CAP_SYS_ADMIN it is in
 * a user namespace as well. In such a namespace already, it stays there. 0, or -errno and in `why`
 * a sentence for people: what failed, the cause, the remedy. The process is of no use then. */
int rpwi_namespace_enter(char *why, size_t why_len);

#endif
