/* SPDX-License-Identifier: BSD-3-Clause */
/* all.c - the transports there are, in order of preference; the last only where it is asked for by
 * name. */
#include "tran/tran.h"

#include <stddef.h>

const struct tran_ops *const tran_all[] = {&tran_shm, &tran_verbs, &tran_tcp, &tran_ncclnet, NULL};
