/* SPDX-License-Identifier: BSD-3-Clause */
/* next.c - see next.h. */
#include "preload/next.h"

struct rpwi_next_calls rpwi_next_calls;
