/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.h - who keeps the counters of a namespace of `ropeway run --namespace` as they are: one
 * process for each, which ends with the last other process in it. */
#ifndef ROPEWAY_CLI_KEEPER_H
#define ROPEWAY_CLI_KEEPER_H

#include "cli/run/plan.h"

/* Starts it in this process's namespace, which has the plan's files, unless one is there. It is no
 * child of this process. 0 or -errno. */
int rpwi_keeper_start(const struct rpwi_plan *plan);

#endif
