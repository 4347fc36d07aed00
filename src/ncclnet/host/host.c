/* SPDX-License-Identifier: BSD-3-Clause */
/* host.c - loading a plugin, and every call to it, with a line for each where somebody wants to see
 * them. What differs between versions is in shim.c. */
#include "base/hash.h"
#include "ncclnet/host/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

extern const struct ncclnet_calls ncclnet_calls_v4, ncclnet_calls_v5, ncclnet_calls_v6,
	ncclnet_calls_v7, ncclnet_calls_v8, ncclnet_calls_v9, ncclnet_calls_v10, ncclnet_calls_v11,
	ncclnet_calls_v12;

static const struct ncclnet_calls *const calls_of[] = {
	[4] = &ncclnet_calls_v4,
	[5] = &ncclnet_calls_v5,
	[6] = &ncclnet_calls_v6,
	[7] = &ncclnet_calls_v7,
	[8] = &ncclnet_calls_v8,
	[9] = &ncclnet_calls_v9,
	[10] = &ncclnet_calls_v10,
	[11] = &ncclnet_calls_v11,
	[12] = &ncclnet_calls_v12,
};

/* What each release looks up with dlsym, the highest first; from the tags of NCCL's repository
 * (src/net.cc, later src/plugin/net.cc). */
const struct ncclnet_release ncclnet_release[] = {
	{"2.8 to 2.11", 4, 4},
	{"2.12", 4, 5},
	{"2.13 to 2.18", 4, 6},
	{"2.19", 5, 7},
	{"2.20 to 2.23", 5, 8},
	{"2.24 and 2.25", 5, 9},
	{"2.26 and 2.27", 6, 10},
	{"2.28 and 2.29", 6, 11},
	{"2.30", 6, 12},
	{NULL, 0, 0},
};

const char *ncclnet_releases(int abi)
{
	const struct ncclnet_release *r = ncclnet_release;
	while (r->name && r->last != abi)
		r++;
	return r->name;
}

const char *ncclnet_versions(unsigned exported, char *out, size_t room)
{
	size_t n = 0;
	*out = '\0';
	for (int v = NCCL_NET_V_FIRST; v <= NCCL_NET_V_LAST && n < room; v++) {
		int last = v;
		if (!(exported >> v & 1))
			continue;
		while (exported >> (last + 1) & 1)
			last++;
		const char *comma = n ? ", " : "";
		n += (size_t)snprintf(
			out + n, room - n, last > v ? "%sv%d to v%d" : "%sv%d", comma, v, last);
		v = last;
	}
	return out;
}

const char *ncclnet_result_name(int result)
{
	static const char *const names[] = {"success", "unhandled CUDA error", "system error",
		"internal error", "invalid argument", "invalid usage", "remote error"};
	if (result == NCCLNET_ABSENT)
		return "the plugin has no such call";
	return result >= 0 && result < (int)RPWI_ARRAY_LEN(names)
		       ? names[result]
		       : "a result that NCCL does not know";
}

/* ---- loading ---- */

int ncclnet_parse(
	const char *spec, char *path, size_t path_len, int *abi, char *why, size_t why_len)
{
	const char *at = strrchr(spec, '@');
	size_t len = at ? (size_t)(at - spec) : strlen(spec);
	*abi = 0;
	if (at) {
		char *end;
		const char *digits = at[1] == 'v' ? at + 2 : at + 1;
		long v = strtol(digits, &end, 10);
		if (end == digits || *end ||
			!ncclnet_releases((int)RPWI_MAX(RPWI_MIN(v, 1000L), 0L))) {
			snprintf(why, why_len,
				"\"%.100s\": expected a version of the plugin API after the @, v%d "
				"to v%d",
				spec, NCCL_NET_V_FIRST, NCCL_NET_V_LAST);
			return -EINVAL;
		}
		*abi = (int)v;
	}
	if (!len || len >= path_len) {
		snprintf(why, why_len,
			"\"%.100s\": expected the path of a plugin, as in "
			"/usr/lib/libnccl-net-ropeway.so@v8",
			spec);
		return -EINVAL;
	}
	memcpy(path, spec, len);
	path[len] = 0;
	return 0;
}

static void *open_library(const char *path, char *why, size_t why_len)
{
	char file[512];
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library)
		return library;
	const char *first = dlerror();
	snprintf(why, why_len, "%s", first ? first : "dlopen failed");
	if (!strchr(path, '/') &&
		snprintf(file, sizeof(file), "libnccl-net-%s.so", path) < (int)sizeof(file))
		library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	return library;
}

/* name and init: Mellanox' plugin (and HPC-X') fills in the others in init, and NCCL looks at them
 * only after it */
enum { SLOTS_BEFORE_INIT = 2 };

static int check_slots(
	const struct ncclnet *n, unsigned from, unsigned to, char *why, size_t why_len)
{
	for (unsigned i = from; i < to; i++) {
		const void *p;
		memcpy(&p, (const char *)n->table + i * sizeof(p), sizeof(p));
		if (!p && !(n->calls->optional_slots >> i & 1)) {
			snprintf(why, why_len,
				"ncclNetPlugin_v%d of %.200s: pointer %u of %u is NULL, and NCCL "
				"calls it without asking: is the table of another version?",
				n->abi, n->path, i, n->calls->slots);
			return -EINVAL;
		}
	}
	return 0;
}

int ncclnet_complete(const struct ncclnet *n, char *why, size_t why_len)
{
	return check_slots(n, 0, n->calls->slots, why, why_len);
}

static int choose(struct ncclnet *n, int abi, char *why, size_t why_len)
{
	const void *tables[NCCL_NET_V_LAST + 1] = {NULL};
	char have[80], symbol[32];
	for (int v = NCCL_NET_V_FIRST; v <= NCCL_NET_V_LAST; v++) {
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		tables[v] = dlsym(n->library, symbol);
		if (!tables[v])
			continue;
		n->exported |= 1u << v;
		if (abi ? v == abi : v > n->abi)
			n->abi = v;
	}
	if (!n->exported) {
		snprintf(why, why_len,
			"%.200s is not a usable NCCL network plugin: it exports none of "
			"ncclNetPlugin_v%d to v%d",
			n->path, NCCL_NET_V_FIRST, NCCL_NET_V_LAST);
		return -ENOTSUP;
	}
	if (!n->abi) {
		snprintf(why, why_len, "%.200s has no ncclNetPlugin_v%d: it speaks %s", n->path,
			abi, ncclnet_versions(n->exported, have, sizeof(have)));
		return -ENOTSUP;
	}
	n->table = tables[n->abi];
	n->calls = calls_of[n->abi];
	n->handle_bytes = n->abi == 4 ? NCCL_NET_HANDLE_BYTES_V4 : NCCL_NET_HANDLE_BYTES;
	return check_slots(n, 0, SLOTS_BEFORE_INIT, why, why_len);
}

int ncclnet_load(const char *path, int abi, struct ncclnet **out, char *why, size_t why_len)
{
	const char *debug = getenv("UCCL_TCPX_DEBUG");
	struct ncclnet *n = calloc(1, sizeof(*n));
	char *copy = strdup(path);
	int err = -ENOENT;
	if (!n || !copy) {
		snprintf(why, why_len, "out of memory");
		free(n);
		free(copy);
		return -ENOMEM;
	}
	n->path = copy;
	n->trace = rpwi_log_on(RPWI_LOG_DEBUG) || (debug && *debug && strcmp(debug, "0") != 0);
	n->library = open_library(path, why, why_len);
	if (n->library)
		err = choose(n, abi, why, why_len);
	if (err) {
		ncclnet_unload(n);
		return err;
	}
	*out = n;
	return 0;
}

void ncclnet_unload(struct ncclnet *n)
{
	if (!n)
		return;
	free(n->path);
	free(n);
}

/* ---- a line for each call ---- */

/* A hash, for thread memory is scarce: glibc has 1.6 KB of it for libraries that are loaded late
 * and keep some at a fixed place, as the Python package and the device in it do. */
static __thread struct {
	uint64_t hash;
	unsigned again;
} last_line;

/* Polling makes the same line a thousand times: it is written once, and then how often it came
 * again. */
static void trace(const struct ncclnet *n, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void trace(const struct ncclnet *n, const char *fmt, ...)
{
	char line[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	uint64_t hash = 0;
	for (const char *c = line; *c; c++)
		hash = rpwi_mix(hash, (unsigned char)*c);
	if (hash == last_line.hash) {
		last_line.again++;
		return;
	}
	if (last_line.again)
		fprintf(stderr, "ropeway: plugin v%d: the same %u times more\n", n->abi,
			last_line.again);
	last_line.again = 0;
	last_line.hash = hash;
	fprintf(stderr, "ropeway: plugin v%d: %s\n", n->abi, line);
}
#define TRACE(rc, fmt, ...) \
	do { \
		if (RPWI_UNLIKELY(n->trace)) \
			trace(n, fmt " = %d (%s)", __VA_ARGS__, rc, ncclnet_result_name(rc)); \
		return rc; \
	} while (0)

/* For a plugin that is given no logger of somebody else's. */
static bool log_wanted(int level)
{
	const char *debug = getenv("NCCL_DEBUG");
	if (level <= NCCL_LOG_WARN)
		return true;
	return rpwi_log_on(RPWI_LOG_DEBUG) ||
	       (debug && (!strcasecmp(debug, "INFO") ? level <= NCCL_LOG_INFO
						     : !strcasecmp(debug, "TRACE")));
}
void ncclnet_log(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	static const char *const names[] = {"WARN", "INFO", "TRACE"};
	char text[1024];
	va_list ap;
	if (!log_wanted(level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "NCCL %s %s\n",
		names[level == NCCL_LOG_INFO ? 1 : 2 * (level > NCCL_LOG_WARN)], text);
}

/* ---- the calls ---- */

const char *ncclnet_name(const struct ncclnet *n)
{
	const char *name = n->calls->name(n->table);
	return name ? name : "";
}

int ncclnet_init(const struct ncclnet *n, void **ctx, nccl_logger log)
{
	*ctx = NULL;
	int rc = n->calls->init(n->table, ctx, log ? log : ncclnet_log);
	TRACE(rc, "init(), ctx %s", RPWI_AT(*ctx));
}

int ncclnet_devices(const struct ncclnet *n, int *ndev)
{
	*ndev = 0;
	int rc = n->calls->devices(n->table, ndev);
	TRACE(rc, "devices(), %d", *ndev);
}

int ncclnet_properties(const struct ncclnet *n, int dev, struct ncclnet_properties *p)
{
	memset(p, 0, sizeof(*p));
	int rc = n->calls->properties(n->table, dev, p);
	TRACE(rc, "getProperties(device %d), name %s, memory types 0x%x, %d Mbit/s, device type %d",
		dev, p->name ? p->name : "none", p->ptr_support, p->speed, p->device_type);
}

int ncclnet_listen(const struct ncclnet *n, void *ctx, int dev, void *handle, void **listen_comm)
{
	memset(handle, 0, n->handle_bytes);
	*listen_comm = NULL;
	int rc = n->calls->listen(n->table, ctx, dev, handle, listen_comm);
	TRACE(rc, "listen(device %d, handle %s), listen comm %s", dev, RPWI_AT(handle),
		RPWI_AT(*listen_comm));
}

int ncclnet_connect(const struct ncclnet *n, void *ctx, int dev, void *handle, void **send_comm,
	struct nccl_net_device_handle **device)
{
	struct nccl_net_device_handle *none = NULL;
	*send_comm = NULL;
	int rc = n->calls->connect(n->table, ctx, dev, handle, send_comm, device ? device : &none);
	TRACE(rc, "connect(device %d, handle %s), send comm %s, device handle %s", dev,
		RPWI_AT(handle), RPWI_AT(*send_comm), RPWI_AT(device ? *device : none));
}

int ncclnet_accept(const struct ncclnet *n, void *listen_comm, void **recv_comm,
	struct nccl_net_device_handle **device)
{
	struct nccl_net_device_handle *none = NULL;
	*recv_comm = NULL;
	int rc = n->calls->accept(n->table, listen_comm, recv_comm, device ? device : &none);
	TRACE(rc, "accept(listen comm %s), recv comm %s, device handle %s", RPWI_AT(listen_comm),
		RPWI_AT(*recv_comm), RPWI_AT(device ? *device : none));
}

int ncclnet_reg(
	const struct ncclnet *n, void *comm, void *data, size_t size, int type, void **mhandle)
{
	*mhandle = NULL;
	int rc = n->calls->reg(n->table, comm, data, size, type, mhandle);
	TRACE(rc, "regMr(comm %s, data %s, size %zu, type %d), mhandle %s", RPWI_AT(comm),
		RPWI_AT(data), size, type, RPWI_AT(*mhandle));
}

int ncclnet_reg_dmabuf(const struct ncclnet *n, void *comm, void *data, size_t size, int type,
	uint64_t offset, int fd, void **mhandle)
{
	*mhandle = NULL;
	int rc = n->calls->reg_dmabuf(n->table, comm, data, size, type, offset, fd, mhandle);
	TRACE(rc,
		"regMrDmaBuf(comm %s, data %s, size %zu, type %d, offset %llu, fd %d), mhandle %s",
		RPWI_AT(comm), RPWI_AT(data), size, type, (unsigned long long)offset, fd,
		RPWI_AT(*mhandle));
}

int ncclnet_dereg(const struct ncclnet *n, void *comm, void *mhandle)
{
	int rc = n->calls->dereg(n->table, comm, mhandle);
	TRACE(rc, "deregMr(comm %s, mhandle %s)", RPWI_AT(comm), RPWI_AT(mhandle));
}

int ncclnet_isend(const struct ncclnet *n, void *comm, void *data, size_t size, int tag,
	void *mhandle, void **request)
{
	if (!n->stale)
		*request = NULL;
	int rc = n->calls->isend(n->table, comm, data, size, tag, mhandle, request);
	TRACE(rc, "isend(send comm %s, data %s, size %zu, tag %d, mhandle %s), request %s",
		RPWI_AT(comm), RPWI_AT(data), size, tag, RPWI_AT(mhandle), RPWI_AT(*request));
}

int ncclnet_irecv(const struct ncclnet *n, void *comm, int count, void **data, const size_t *sizes,
	const int *tags, void **mhandles, void **request)
{
	if (!n->stale)
		*request = NULL;
	int rc = n->calls->irecv(n->table, comm, count, data, sizes, tags, mhandles, request);
	TRACE(rc, "irecv(recv comm %s, %d, data %s, size %zu, tag %d, mhandle %s), request %s",
		RPWI_AT(comm), count, RPWI_AT(data[0]), sizes[0], tags[0], RPWI_AT(mhandles[0]),
		RPWI_AT(*request));
}

int ncclnet_iflush(const struct ncclnet *n, void *comm, int count, void **data, const int *sizes,
	void **mhandles, void **request)
{
	if (!n->stale)
		*request = NULL;
	int rc = n->calls->iflush(n->table, comm, count, data, sizes, mhandles, request);
	TRACE(rc, "iflush(recv comm %s, %d, data %s, size %d), request %s", RPWI_AT(comm), count,
		RPWI_AT(data[0]), sizes[0], RPWI_AT(*request));
}

int ncclnet_test(const struct ncclnet *n, void *request, int *done, int *sizes)
{
	int own[NCCL_NET_GROUP_MAX] = {0}, *into = sizes ? sizes : own;
	*done = 0;
	int rc = n->calls->test(n->table, request, done, n->stale ? sizes : into);
	TRACE(rc, "test(request %s), done %d, size %d", RPWI_AT(request), *done, *done ? *into : 0);
}

int ncclnet_close_send(const struct ncclnet *n, void *comm)
{
	int rc = n->calls->close_send(n->table, comm);
	TRACE(rc, "closeSend(%s)", RPWI_AT(comm));
}

int ncclnet_close_recv(const struct ncclnet *n, void *comm)
{
	int rc = n->calls->close_recv(n->table, comm);
	TRACE(rc, "closeRecv(%s)", RPWI_AT(comm));
}

int ncclnet_close_listen(const struct ncclnet *n, void *comm)
{
	int rc = n->calls->close_listen(n->table, comm);
	TRACE(rc, "closeListen(%s)", RPWI_AT(comm));
}

int ncclnet_irecv_consumed(const struct ncclnet *n, void *comm, int count, void *request)
{
	int rc = n->calls->irecv_consumed(n->table, comm, count, request);
	TRACE(rc, "irecvConsumed(recv comm %s, %d, request %s)", RPWI_AT(comm), count,
		RPWI_AT(request));
}

int ncclnet_make_vdevice(const struct ncclnet *n, int *dev, const struct nccl_net_vdevice_v12 *v)
{
	*dev = -1;
	int rc = n->calls->make_vdevice(n->table, dev, v);
	TRACE(rc, "makeVDevice(of %d), device %d", v->ndevs, *dev);
}

int ncclnet_finalize(const struct ncclnet *n, void *ctx)
{
	int rc = n->calls->finalize(n->table, ctx);
	TRACE(rc, "finalize(ctx %s)", RPWI_AT(ctx));
}
