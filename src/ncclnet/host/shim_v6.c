/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v6.c - the plugin API's version 6: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v6.h"
#define V 6
#include "ncclnet/host/shim.h"
