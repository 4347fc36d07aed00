/* SPDX-License-Identifier: BSD-3-Clause */
/* host.h - loads somebody's NCCL network plugin and calls it, whatever version of the API it
 * speaks. One version is chosen when it is loaded and used for every call: struct ncclnet is
 * immutable then, and holds the only table that is ever called through. Handles are never parsed
 * here: opaque bytes, of `handle_bytes`.
 *
 * Each call gives what the plugin gave (enum nccl_result), or NCCLNET_ABSENT where its version has
 * no such call or the plugin left it NULL. Outputs are set to NULL (0) before the plugin is called.
 * What a version cannot say is refused before the call: a group of more than one receive, or a size
 * that its int does not hold, is NCCL_INVALID_ARGUMENT.
 *
 * Every call is a line on stderr where ROPEWAY_LOG=debug or UCCL_TCPX_DEBUG=1: arguments, returned
 * values, and its result.
 *
 * Threads: as the plugin's API says (regMr, connect and close may come from another thread than
 * isend, irecv and test). Whether a call blocks is the plugin's business.
 */
#ifndef ROPEWAY_NCCLNET_HOST_H
#define ROPEWAY_NCCLNET_HOST_H

#include "base/base.h"
#include "ncclnet/abi/net.h"

enum { NCCLNET_ABSENT = -1 };

/* What getProperties gives, for all versions; what a version does not have is as NCCL fills it in:
 * max_recvs 1, device type HOST, rail and plane -1. Strings are the plugin's. */
struct ncclnet_properties {
	const char *name, *pci_path;
	uint64_t guid;
	int ptr_support, reg_is_global, force_flush, speed, port;
	float latency;
	int max_comms, max_recvs, device_type, device_version;
	struct nccl_net_vdevice_v12 v_props;
	size_t max_p2p_bytes, max_coll_bytes;
	int max_multi_request_size, rail_id, plane_id;
};

struct ncclnet;
/* One shim for each version; `table` is the plugin's. */
struct ncclnet_calls {
	const char *(*name)(const void *table);
	int (*init)(const void *table, void **ctx, nccl_logger log);
	int (*devices)(const void *table, int *ndev);
	int (*properties)(const void *table, int dev, struct ncclnet_properties *p);
	int (*listen)(const void *table, void *ctx, int dev, void *handle, void **listen_comm);
	int (*connect)(const void *table, void *ctx, int dev, void *handle, void **send_comm,
		struct nccl_net_device_handle **device);
	int (*accept)(const void *table, void *listen_comm, void **recv_comm,
		struct nccl_net_device_handle **device);
	int (*reg)(
		const void *table, void *comm, void *data, size_t size, int type, void **mhandle);
	int (*reg_dmabuf)(const void *table, void *comm, void *data, size_t size, int type,
		uint64_t offset, int fd, void **mhandle);
	int (*dereg)(const void *table, void *comm, void *mhandle);
	int (*isend)(const void *table, void *comm, void *data, size_t size, int tag, void *mhandle,
		void **request);
	int (*irecv)(const void *table, void *comm, int n, void **data, const size_t *sizes,
		const int *tags, void **mhandles, void **request);
	int (*iflush)(const void *table, void *comm, int n, void **data, const int *sizes,
		void **mhandles, void **request);
	int (*test)(const void *table, void *request, int *done, int *sizes);
	int (*close_send)(const void *table, void *comm);
	int (*close_recv)(const void *table, void *comm);
	int (*close_listen)(const void *table, void *comm);
	int (*irecv_consumed)(const void *table, void *comm, int n, void *request);
	int (*make_vdevice)(const void *table, int *dev, const struct nccl_net_vdevice_v12 *v);
	int (*finalize)(const void *table, void *ctx);
	unsigned slots;          /* how many pointers its table has, the name included */
	unsigned optional_slots; /* bit i: slot i may be NULL (NCCL asks before it calls) */
};

struct ncclnet {
	char *path;
	void *library;
	int abi; /* 4 to 12 */
	const void *table;
	const struct ncclnet_calls *calls;
	unsigned exported;   /* bit N: ncclNetPlugin_vN is there */
	size_t handle_bytes; /* 128; of v4 64 */
	bool trace;
	/* shows what a plugin leaves alone: outputs of isend, irecv and iflush are as the caller
	 * left them, and test is given no sizes where the caller has none */
	bool stale;
};

/* Loads PATH (as dlopen finds it; "libnccl-net-NAME.so", too, for a bare NAME, as NCCL does) and
 * chooses `abi`, or the highest version that both know where it is 0. 0, or -ENOENT (not loadable),
 * -ENOTSUP (no plugin, or not of that version: `why` says which there are), -EINVAL (name or init
 * is NULL). Nothing of the plugin is called. */
int ncclnet_load(const char *path, int abi, struct ncclnet **out, char *why, size_t why_len);
/* Also for one that some call failed on. The library stays mapped: plugins leave threads and exit
 * handlers behind. */
void ncclnet_unload(struct ncclnet *n);
/* "PATH[@vN]" taken apart. 0, or -EINVAL and `why`. */
int ncclnet_parse(
	const char *spec, char *path, size_t path_len, int *abi, char *why, size_t why_len);
/* "success", "system error", ...: what people find in NCCL's documents. */
const char *ncclnet_result_name(int result);
/* "2.19": the releases of NCCL that would use this version; NULL outside of 4 to 12. */
const char *ncclnet_releases(int abi);
/* Releases of NCCL, the oldest first, and which versions of the API each takes: the highest that a
 * plugin has of first..last. NULL after the last. */
struct ncclnet_release {
	const char *name; /* "2.20 to 2.23" */
	int first, last;
};
extern const struct ncclnet_release ncclnet_release[];
/* "v5 to v9, v11". Returns `out`. */
const char *ncclnet_versions(unsigned exported, char *out, size_t room);

const char *ncclnet_name(const struct ncclnet *n);
/* Where a plugin's messages go by default: to stderr, warnings always, the rest as NCCL_DEBUG and
 * ROPEWAY_LOG say. */
void ncclnet_log(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The plugin's messages go to `log`; NULL: to ncclnet_log. *ctx: v11 and later have one; NULL
 * before. May be called more than once, from v11 on. */
int ncclnet_init(const struct ncclnet *n, void **ctx, nccl_logger log);
/* Once init has succeeded, and before anything else is called: every pointer is there that NCCL
 * calls without asking. 0, or -EINVAL and `why`. */
int ncclnet_complete(const struct ncclnet *n, char *why, size_t why_len);
int ncclnet_devices(const struct ncclnet *n, int *ndev);
int ncclnet_properties(const struct ncclnet *n, int dev, struct ncclnet_properties *p);
/* handle: n->handle_bytes, zeroed here before the call. */
int ncclnet_listen(const struct ncclnet *n, void *ctx, int dev, void *handle, void **listen_comm);
/* handle: the same memory in each call for one connection: plugins keep their state in it. *device
 * (v7 on): allocated and zeroed by the caller, or NULL. */
int ncclnet_connect(const struct ncclnet *n, void *ctx, int dev, void *handle, void **send_comm,
	struct nccl_net_device_handle **device);
int ncclnet_accept(const struct ncclnet *n, void *listen_comm, void **recv_comm,
	struct nccl_net_device_handle **device);
int ncclnet_reg(
	const struct ncclnet *n, void *comm, void *data, size_t size, int type, void **mhandle);
int ncclnet_reg_dmabuf(const struct ncclnet *n, void *comm, void *data, size_t size, int type,
	uint64_t offset, int fd, void **mhandle);
int ncclnet_dereg(const struct ncclnet *n, void *comm, void *mhandle);
/* NULL in *request with success: not now, call again. */
int ncclnet_isend(const struct ncclnet *n, void *comm, void *data, size_t size, int tag,
	void *mhandle, void **request);
int ncclnet_irecv(const struct ncclnet *n, void *comm, int count, void **data, const size_t *sizes,
	const int *tags, void **mhandles, void **request);
int ncclnet_iflush(const struct ncclnet *n, void *comm, int count, void **data, const int *sizes,
	void **mhandles, void **request);
/* sizes: of each receive of the group (NCCL_NET_GROUP_MAX ints are always enough), or NULL. */
int ncclnet_test(const struct ncclnet *n, void *request, int *done, int *sizes);
int ncclnet_close_send(const struct ncclnet *n, void *comm);
int ncclnet_close_recv(const struct ncclnet *n, void *comm);
int ncclnet_close_listen(const struct ncclnet *n, void *comm);
int ncclnet_irecv_consumed(const struct ncclnet *n, void *comm, int count, void *request);
int ncclnet_make_vdevice(const struct ncclnet *n, int *dev, const struct nccl_net_vdevice_v12 *v);
int ncclnet_finalize(const struct ncclnet *n, void *ctx);

#endif
