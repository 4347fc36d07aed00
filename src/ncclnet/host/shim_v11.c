/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v11.c - the plugin API's version 11: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v11.h"
#define V 11
#include "ncclnet/host/shim.h"
