/* SPDX-License-Identifier: BSD-3-Clause */
/* quirks.c - the table. */
#include "ncclnet/host/quirks.h"

const struct ncclnet_quirk ncclnet_quirks[NCCLNET_QUIRKS] = {
	[NCCLNET_BLOCKS] = {"blocking connect or accept", "a call that gives nothing and takes more than 20 ms; v4 may always",
		"both run in threads of their own, which have a deadline; one that is stuck is left behind and cleared away when it comes back"},
	[NCCLNET_SMALL_HANDLE] = {"handle of 64 bytes", "v4", "as many bytes are carried to the peer as the version has"},
	[NCCLNET_STATE_IN_HANDLE] = {"state kept in the handle", "connect writes into the handle, or fails with a fresh copy of it",
		"each connect has a private copy, padded with zeros, that is kept until it is done"},
	[NCCLNET_STALE_COMM] = {"comm not written", "connect, accept, isend or irecv leave their output alone when not ready",
		"outputs are NULL before each call"},
	[NCCLNET_DEVICE_HANDLE] = {"device handle expected", "connect or accept (v7 on) write through *device without asking",
		"one is allocated for each comm, zeroed, and lives as long"},
	[NCCLNET_DEVICE_TYPE] = {"device type other than HOST", "properties (v7 on): UNPACK (GPUDirect-TCPX), GIN",
		"host memory is used, with no kernel on a GPU"},
	[NCCLNET_NO_HOST_MEMORY] = {"no host memory", "properties without NCCL_PTR_HOST", "refused"},
	[NCCLNET_NULL_MHANDLE] = {"NULL mhandle", "regMr gives success and NULL", "taken as it is"},
	[NCCLNET_FEW_REQUESTS] = {"few requests", "isend or irecv of the 9th, 17th, ... say NULL, or fail",
		"8 are under way on a comm, which is what NCCL did up to 2.18"},
	[NCCLNET_NOT_NOW] = {"isend or irecv says NULL", "success and a NULL request", "asked again at the next progress, in the same order"},
	[NCCLNET_FIFO_TEST] = {"test in order only", "test of another request than the oldest fails, or never is done", "only the oldest of a comm is tested"},
	[NCCLNET_NO_SIZES] = {"no sizes", "test gives done and leaves the size alone", "what is sent says its own length"},
	[NCCLNET_CONSUMED] = {"irecvConsumed", "v7 on: the pointer is there", "called after each receive"},
	[NCCLNET_FLUSH] = {"flush of host memory", "properties (v9 on): forceFlush", "iflush after each receive, until it is done"},
	[NCCLNET_ONE_INIT] = {"init once", "v4 to v10", "called once in a process, however many contexts use it"},
	[NCCLNET_STRANGERS] = {"strangers accepted", "accept gives a comm for whoever connects",
		"the first message on each comm proves who it is; others are closed"},
};
