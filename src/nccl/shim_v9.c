/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v9.c - the plugin API's version 9: shim.h, for it. */
#include "nccl/plugin.h"

#include "ncclnet/abi/net_v9.h"
#define V 9
#include "nccl/shim.h"
