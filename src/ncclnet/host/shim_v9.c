/* SPDX-License-Identifier: BSD-3-Clause */
/* shim_v9.c - the plugin API's version 9: shim.h, for it. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/net_v9.h"
#define V 9
#include "ncclnet/host/shim.h"
