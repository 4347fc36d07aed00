/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v4.c - the plugin API's version 4: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v4.h"
#define V 4
#include "ncclnet/host/shim.h"
