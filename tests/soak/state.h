/* SPDX-License-Identifier: BSD-3-Clause */
/* state.h - what the library's endpoints are doing. Apart from soak.h, whose names the library has,
 * too. */
#ifndef TESTS_SOAK_STATE_H
#define TESTS_SOAK_STATE_H

#include "ropeway.h"

void state_dump(rpw_context *c, unsigned id); /* id: of the side */

#endif
