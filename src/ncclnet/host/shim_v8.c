/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v8.c - the plugin API's version 8: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v8.h"
#define V 8
#include "ncclnet/host/shim.h"
