/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v5.c - the plugin API's version 5: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v5.h"
#define V 5
#include "ncclnet/host/shim.h"
