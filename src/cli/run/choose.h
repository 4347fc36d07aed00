/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.h - which devices the program sees: --devices and the variable become one list of words
 * (base/choice.h), without `auto`. */
#ifndef ROPEWAY_CLI_CHOOSE_H
#define ROPEWAY_CLI_CHOOSE_H

#include <stddef.h>

enum { CHOOSE_LIST_MAX = 4096 };
/* `asked`: the value of --devices, or NULL. What is hidden for `auto` is said on stderr. 0, or
 * -errno and why. */
int rpwi_choose_devices(
	const char *command, const char *asked, char list[CHOOSE_LIST_MAX], char *why, size_t len);

#endif
