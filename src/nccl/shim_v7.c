/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v7.c - the plugin API's version 7: shim.h, for it. */
#include "nccl/plugin.h"

#include "ncclnet/abi/net_v7.h"
#define V 7
#include "nccl/shim.h"
