/* SPDX-License-Identifier: BSD-3-Clause */
/* mutant.c - plugins that are wrong in one way each, for the checker to find: onestream's tables,
 * with one call or another in between. MUTANT says which; 0 is right, so that what is found is the
 * mutation and not this file. Version 8, but for what is about another one. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ncclnet/abi/tables.h"

/* The preprocessor asks for these. */
#define MIXED_VERSIONS 4
#define V8_AS_V7 5
enum mutant {
	RIGHT,
	WRONG_SIZES,
	NEVER_ACCEPTS,
	ONE_BYTE_WRONG,
	REQUEST_NOT_WRITTEN = 6,
	CUTS_SILENTLY,
	WRITES_PAST_PROPERTIES,
	LONG_HANDLE,
	IGNORES_TAGS,
	LOSES_EMPTY,
	CLOSE_HANGS,
	CRASHES,
	REORDERS,
	DONE_TOO_EARLY,
	SENT_TOO_EARLY,
	TAKES_ANY_HANDLE,
	NO_ERRORS,
	TAKES_ANY_TYPE,
	NULL_CALL,
	ACCEPT_BLOCKS,
	IN_ORDER_ONLY,
	FEW_REQUESTS,
	SIZES_LEFT_ALONE,
	SPEED_MISPLACED,
	FIRST_BYTES_LAST,
};

enum { GROUP = 8, REQUESTS = 512, BOUNCE = 1 << 20, FEW = 16, FIRST = 64 };

struct request {
	bool used, send;
	int n, size[GROUP];
	void *inner[GROUP], *data[GROUP];
	/* where a message that may be cut, or is shown in a wrong order, comes first */
	void *bounce;
	unsigned number;
};
static struct request requests[REQUESTS];
static struct request *held;
static unsigned sends, receives, under_way;
static int fake_comm;
static const struct nccl_net_v8 *inner;
static struct {
	void *comm, *data, *mhandle;
	int size, tag;
} kept;

static struct request *request_make(bool send, int n)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		if (!requests[i].used) {
			requests[i] = (struct request){.used = true,
				.send = send,
				.n = n,
				.number = send ? sends++ : receives++};
			return &requests[i];
		}
	return NULL;
}

static int properties(int dev, struct nccl_net_properties_v8 *p)
{
	int rc = inner->getProperties(dev, p);
	if (MUTANT == WRITES_PAST_PROPERTIES)
		memset((char *)p + sizeof(*p), 1, 4);
	if (MUTANT == SPEED_MISPLACED)
		p->reg_is_global = p->speed;
	if (MUTANT == IGNORES_TAGS || MUTANT == RIGHT)
		p->max_recvs = MUTANT == RIGHT ? 1 : GROUP;
	return rc;
}

static int listen_on(int dev, void *handle, void **comm)
{
	int rc = inner->listen(dev, handle, comm);
	if (MUTANT == LONG_HANDLE)
		((char *)handle)[NCCL_NET_HANDLE_BYTES] = 8;
	return rc;
}

static int connect_to(int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	int rc = inner->connect(dev, handle, comm, device);
	if (MUTANT != TAKES_ANY_HANDLE || !rc)
		return rc;
	*comm = &fake_comm;
	return NCCL_SUCCESS;
}

static int accept_from(void *listen_comm, void **comm, struct nccl_net_device_handle **device)
{
	int rc = NCCL_SUCCESS;
	*comm = NULL;
	if (MUTANT == NEVER_ACCEPTS)
		return rc;
	do
		rc = inner->accept(listen_comm, comm, device);
	while (MUTANT == ACCEPT_BLOCKS && !rc && !*comm && !usleep(1000));
	return rc;
}

static int reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	if (MUTANT == TAKES_ANY_TYPE)
		type = NCCL_PTR_HOST;
	return comm == &fake_comm ? NCCL_SUCCESS : inner->regMr(comm, data, size, type, mhandle);
}

static int send_one(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	struct request *r = NULL;
	void *under = NULL;
	int rc = inner->isend(comm, data, size, MUTANT == IGNORES_TAGS ? 0 : tag, mhandle, &under);
	if (!rc && under && (r = request_make(true, 1)))
		r->inner[0] = under;
	if (r || MUTANT != REQUEST_NOT_WRITTEN)
		*request = r;
	if (r)
		r->size[0] = size;
	return rc;
}

static int isend_locked(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	if (comm == &fake_comm || (MUTANT == LOSES_EMPTY && !size)) {
		/* of nothing: done, or with a comm that is none never */
		*request = request_make(true, 0);
		return NCCL_SUCCESS;
	}
	if (MUTANT == CRASHES && sends == 20)
		raise(SIGSYS); /* which no sanitizer takes for itself */
	if (MUTANT == REORDERS && sends % 8 == 3 && !held) { /* it goes after the next one */
		*request = held = request_make(true, 1);
		held->size[0] = size;
		kept.comm = comm;
		kept.data = data;
		kept.size = size;
		kept.tag = tag;
		kept.mhandle = mhandle;
		return NCCL_SUCCESS;
	}
	int rc = send_one(comm, data, size, tag, mhandle, request);
	if (!rc && *request && held) {
		inner->isend(
			kept.comm, kept.data, kept.size, kept.tag, kept.mhandle, &held->inner[0]);
		held = NULL;
	}
	return rc;
}

/* A slot of a group is a receive of its own: tags are not looked at. */
static int irecv_locked(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	if (MUTANT == FEW_REQUESTS && under_way == FEW) {
		*request = NULL;
		return NCCL_SUCCESS;
	}
	struct request *r = request_make(false, n);
	*request = NULL;
	for (int i = 0; r && i < n; i++) {
		int room = sizes[i], tag = 0, rc;
		void *at = data[i];
		r->data[i] = data[i];
		r->size[i] = room;
		if (MUTANT == CUTS_SILENTLY && room < BOUNCE)
			at = r->bounce = calloc(1, (size_t)(room = BOUNCE));
		if (MUTANT == FIRST_BYTES_LAST && room > FIRST)
			at = r->bounce = calloc(1, (size_t)room);
		rc = inner->irecv(comm, 1, &at, &room, &tag, &mhandles[i], &r->inner[i]);
		if (rc || !r->inner[i]) {
			/* a group of which a part is posted does not come up where this is used */
			free(r->bounce);
			r->used = false;
			return rc;
		}
	}
	*request = r;
	under_way += r != NULL;
	return NCCL_SUCCESS;
}

static void finished(struct request *r, int *sizes)
{
	if (r->bounce) {
		int room = r->size[0];
		sizes[0] = sizes[0] < room ? sizes[0] : room;
		if (MUTANT == FIRST_BYTES_LAST && sizes[0] > FIRST) {
			/* as memcpy does it, but slower */
			memcpy((char *)r->data[0] + FIRST, (char *)r->bounce + FIRST,
				(size_t)sizes[0] - FIRST);
			usleep(500);
		}
		memcpy(r->data[0], r->bounce,
			MUTANT == FIRST_BYTES_LAST && sizes[0] > FIRST ? FIRST : (size_t)sizes[0]);
		free(r->bounce);
	}
	if (MUTANT == ONE_BYTE_WRONG && r->number == 333)
		((char *)r->data[0])[17] ^= 4;
	if (MUTANT == WRONG_SIZES)
		sizes[0] += sizes[0] > 4096;
	if (MUTANT == SIZES_LEFT_ALONE)
		sizes[0] = -77;
}

/* What is done is the caller's again, and is read only now. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *drive(void *request)
{
	int done = 0, rc = NCCL_SUCCESS;
	while (!done && !rc) {
		usleep(2000);
		pthread_mutex_lock(&lock);
		rc = inner->test(request, &done, NULL);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}
static void send_later(void *request)
{
	pthread_t thread;
	if (!pthread_create(&thread, NULL, drive, request))
		pthread_detach(thread);
}

static int test_locked(void *request, int *done, int *sizes)
{
	struct request *r = request;
	int own[GROUP] = {0}, all = 1;
	*done = 0;
	if (r->send && !r->n) {
		*done = MUTANT == LOSES_EMPTY;
		return NCCL_SUCCESS;
	}
	if (r == held)
		return NCCL_SUCCESS;
	if (MUTANT == IN_ORDER_ONLY)
		for (unsigned i = 0; i < REQUESTS; i++)
			if (requests[i].used && requests[i].send == r->send &&
				requests[i].number < r->number)
				return NCCL_SUCCESS;
	bool send_early = MUTANT == SENT_TOO_EARLY && r->send && r->size[0] > 100000;
	if ((MUTANT == DONE_TOO_EARLY && !r->send) || send_early) {
		if (send_early)
			send_later(r->inner[0]);
		*done = 1;
		if (sizes)
			sizes[0] = r->size[0];
		return NCCL_SUCCESS;
	}
	for (int i = 0; i < r->n; i++) {
		int one = r->inner[i] == NULL, size = 0;
		int rc = one ? NCCL_SUCCESS : inner->test(r->inner[i], &one, &size);
		if (rc)
			return MUTANT == NO_ERRORS ? NCCL_SUCCESS : rc;
		if (one && r->inner[i]) {
			r->inner[i] = NULL;
			own[i] = size;
			r->size[i] = r->bounce ? r->size[i] : size;
		}
		all &= one;
	}
	if (!all)
		return NCCL_SUCCESS;
	if (!r->bounce)
		memcpy(own, r->size, sizeof(own));
	*done = 1;
	under_way -= !r->send;
	if (!r->send)
		finished(r, own);
	for (int i = 0; sizes && i < r->n; i++)
		if (own[i] != -77)
			sizes[i] = own[i];
	r->used = false;
	return NCCL_SUCCESS;
}

static int unlocked(int rc)
{
	pthread_mutex_unlock(&lock);
	return rc;
}
static int isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	pthread_mutex_lock(&lock);
	return unlocked(isend_locked(comm, data, size, tag, mhandle, request));
}
static int irecv(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	pthread_mutex_lock(&lock);
	return unlocked(irecv_locked(comm, n, data, sizes, tags, mhandles, request));
}
static int test(void *request, int *done, int *sizes)
{
	pthread_mutex_lock(&lock);
	return unlocked(test_locked(request, done, sizes));
}

static int close_send(void *comm)
{
	return comm == &fake_comm ? NCCL_SUCCESS : inner->closeSend(comm);
}

static int close_recv(void *comm)
{
	while (MUTANT == CLOSE_HANGS && under_way)
		pause();
	return inner->closeRecv(comm);
}

/* ---- versions that are mixed: v7's connect does not look at what v5's listen has left there
 * ---- */

static const struct nccl_net_v5 *inner_v5;
static const struct nccl_net_v7 *inner_v7;
static int listen_v5(int dev, void *handle, void **comm)
{
	int rc = inner_v5->listen(dev, handle, comm);
	((char *)handle)[NCCL_NET_HANDLE_BYTES - 1] = 5;
	return rc;
}
static int connect_v7(int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	if (((char *)handle)[NCCL_NET_HANDLE_BYTES - 1] != 5)
		return inner_v7->connect(dev, handle, comm, device);
	*comm = &fake_comm;
	return NCCL_SUCCESS;
}
static int close_send_v7(void *comm)
{
	return comm == &fake_comm ? NCCL_SUCCESS : inner_v7->closeSend(comm);
}

#define EXPORT __attribute__((visibility("default")))
#if MUTANT == V8_AS_V7
extern struct nccl_net_v8 ncclNetPlugin_v7;
EXPORT struct nccl_net_v8 ncclNetPlugin_v7;
#define TABLE ncclNetPlugin_v7
#elif MUTANT == MIXED_VERSIONS
extern struct nccl_net_v5 ncclNetPlugin_v5;
EXPORT struct nccl_net_v5 ncclNetPlugin_v5;
extern struct nccl_net_v7 ncclNetPlugin_v7;
EXPORT struct nccl_net_v7 ncclNetPlugin_v7;
static struct nccl_net_v8 unused;
#define TABLE unused
#else
extern struct nccl_net_v8 ncclNetPlugin_v8;
EXPORT struct nccl_net_v8 ncclNetPlugin_v8;
#define TABLE ncclNetPlugin_v8
#endif

static void mix_versions(void)
{
#if MUTANT == MIXED_VERSIONS
	ncclNetPlugin_v5 = *inner_v5;
	ncclNetPlugin_v5.listen = listen_v5;
	ncclNetPlugin_v7 = *inner_v7;
	ncclNetPlugin_v7.connect = connect_v7;
	ncclNetPlugin_v7.closeSend = close_send_v7;
#else
	(void)listen_v5;
	(void)connect_v7;
	(void)close_send_v7;
#endif
}

__attribute__((constructor)) static void make_tables(void)
{
	void *library = dlopen(INNER, RTLD_NOW | RTLD_LOCAL);
	inner = library ? dlsym(library, "ncclNetPlugin_v8") : NULL;
	inner_v5 = library ? dlsym(library, "ncclNetPlugin_v5") : NULL;
	inner_v7 = library ? dlsym(library, "ncclNetPlugin_v7") : NULL;
	if (!inner || !inner_v5 || !inner_v7)
		abort();
	TABLE = *inner;
	mix_versions();
	TABLE.name = "mutant";
	TABLE.getProperties = properties;
	TABLE.listen = listen_on;
	TABLE.connect = connect_to;
	TABLE.accept = accept_from;
	TABLE.regMr = reg;
	TABLE.isend = MUTANT == NULL_CALL ? NULL : isend;
	TABLE.irecv = irecv;
	TABLE.test = test;
	TABLE.closeSend = close_send;
	TABLE.closeRecv = close_recv;
}
