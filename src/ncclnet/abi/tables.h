/* SPDX-License-Identifier: BSD-3-Clause */
/* tables.h - the tables that a plugin exports, `ncclNetPlugin_v<V>`, and the properties that it
 * fills in, of each version of the plugin API. table.h has their members. */
#ifndef ROPEWAY_NCCLNET_ABI_TABLES_H
#define ROPEWAY_NCCLNET_ABI_TABLES_H

#include "ncclnet/abi/net.h"

/* NCCL 2.8 to 2.11. The oldest that can be hosted: one buffer a receive, no tags, handles of 64
 * bytes; connect and accept may block. */
#define NCCL_V 4
#define NCCL_NET nccl_net_v4
#define NCCL_NET_BYTES 128
#define NCCL_PROPERTIES nccl_net_properties_v4
#define NCCL_PROPERTIES_BYTES 40
#include "ncclnet/abi/table.h"

/* NCCL 2.12. Tags, receives of several buffers at once, connect and accept that do not block: NULL
 * for the comm means "call again". */
#define NCCL_V 5
#define NCCL_NET nccl_net_v5
#define NCCL_NET_BYTES 128
#define NCCL_PROPERTIES nccl_net_properties_v5
#define NCCL_PROPERTIES_BYTES 48
#include "ncclnet/abi/table.h"

/* NCCL 2.13 to 2.18. regMrDmaBuf. */
#define NCCL_V 6
#define NCCL_NET nccl_net_v6
#define NCCL_NET_BYTES 136
#define NCCL_PROPERTIES nccl_net_properties_v6
#define NCCL_PROPERTIES_BYTES 48
#include "ncclnet/abi/table.h"

/* NCCL 2.19. Device handles, getDeviceMr, irecvConsumed. */
#define NCCL_V 7
#define NCCL_NET nccl_net_v7
#define NCCL_NET_BYTES 152
#define NCCL_PROPERTIES nccl_net_properties_v7
#define NCCL_PROPERTIES_BYTES 56
#include "ncclnet/abi/table.h"

/* NCCL 2.20 to 2.23. regMr takes a size_t; regIsGlobal. */
#define NCCL_V 8
#define NCCL_NET nccl_net_v8
#define NCCL_NET_BYTES 152
#define NCCL_PROPERTIES nccl_net_properties_v8
#define NCCL_PROPERTIES_BYTES 64
#include "ncclnet/abi/table.h"

#define NCCL_VDEVICE struct nccl_net_vdevice_v9

/* NCCL 2.24 and 2.25. isend and irecv take size_t (iflush and test still int); makeVDevice,
 * forceFlush, limits of sizes. */
#define NCCL_V 9
#define NCCL_NET nccl_net_v9
#define NCCL_NET_BYTES 160
#define NCCL_PROPERTIES nccl_net_properties_v9
#define NCCL_PROPERTIES_BYTES 104
#include "ncclnet/abi/table.h"

/* NCCL 2.26 and 2.27. connect takes a config; isend and irecv carry profiler handles. */
#define NCCL_V 10
#define NCCL_NET nccl_net_v10
#define NCCL_NET_BYTES 160
#define NCCL_PROPERTIES nccl_net_properties_v10
#define NCCL_PROPERTIES_BYTES 104
#include "ncclnet/abi/table.h"

/* NCCL 2.28 and 2.29. init gives a context, which listen and connect take; finalize, setNetAttr;
 * maxMultiRequestSize. */
#define NCCL_V 11
#define NCCL_NET nccl_net_v11
#define NCCL_NET_BYTES 176
#define NCCL_PROPERTIES nccl_net_properties_v11
#define NCCL_PROPERTIES_BYTES 112
#include "ncclnet/abi/table.h"

#undef NCCL_VDEVICE
#define NCCL_VDEVICE struct nccl_net_vdevice_v12

/* NCCL 2.30. Virtual devices of up to 8; railId and planeId. */
#define NCCL_V 12
#define NCCL_NET nccl_net_v12
#define NCCL_NET_BYTES 176
#define NCCL_PROPERTIES nccl_net_properties_v12
#define NCCL_PROPERTIES_BYTES 128
#include "ncclnet/abi/table.h"

#undef NCCL_VDEVICE
#endif
