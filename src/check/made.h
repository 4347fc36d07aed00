/* SPDX-License-Identifier: BSD-3-Clause */
/* made.h - where the objects of this process were made, and how many of each place are left. A
 * place is a kind of object ("QP") and the call that makes it; each object keeps the number of its
 * place (device/live.h), so that an object costs nothing here.
 *
 * RPWI_LOCK_CHECK is taken inside. Bound: 1,024 places; objects of more are of place 0, which is
 * not known.
 */
#ifndef ROPEWAY_CHECK_MADE_H
#define ROPEWAY_CHECK_MADE_H

#include "check/check.h"

/* An object of this kind is made by the call that is under way, which `undo` ("ibv_destroy_qp")
 * undoes; strings that stay. */
uint32_t check_made(const char *kind, const char *undo);
void check_unmade(uint32_t place);

/* `call`, of an object of `kind`, fails with EBUSY: `user` ("QP 0x000011"), which was made at
 * `place`, still uses it, and so do `more` objects. */
void check_busy(
	const char *call, const char *kind, const char *user, unsigned more, uint32_t place);

#endif
