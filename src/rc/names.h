/* SPDX-License-Identifier: BSD-3-Clause */
/* names.h - states, operations and statuses in words, for people. "?" where there is none. */
#ifndef ROPEWAY_RC_NAMES_H
#define ROPEWAY_RC_NAMES_H

#include <infiniband/verbs.h>

const char *rpwi_state_name(enum ibv_qp_state s);   /* "RTS" */
const char *rpwi_type_name(enum ibv_qp_type t);     /* "RC" */
const char *rpwi_wr_name(enum ibv_wr_opcode op);    /* "RDMA_WRITE with immediate" */
const char *rpwi_status_name(enum ibv_wc_status s); /* "retries exceeded" */

#endif
