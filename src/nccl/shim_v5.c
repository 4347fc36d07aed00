/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v5.c - the plugin API's version 5: shim.h, for it. */
#include "nccl/plugin.h"

#include "ncclnet/abi/net_v5.h"
#define V 5
#include "nccl/shim.h"
