/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v7.c - the plugin API's version 7: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v7.h"
#define V 7
#include "ncclnet/host/shim.h"
