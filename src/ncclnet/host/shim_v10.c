/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v10.c - the plugin API's version 10: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v10.h"
#define V 10
#include "ncclnet/host/shim.h"
