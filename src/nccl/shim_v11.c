/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v11.c - the plugin API's version 11: shim.h, for it. */
#include "nccl/plugin.h"

#include "ncclnet/abi/net_v11.h"
#define V 11
#include "nccl/shim.h"
