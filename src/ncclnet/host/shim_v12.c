/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v12.c - the plugin API's version 12: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v12.h"
#define V 12
#include "ncclnet/host/shim.h"
