/* SPDX-License-Identifier: BSD-3-Clause */
/* quirk.c - plugins that do what some do in the wild (src/ncclnet/host/quirks.c): onestream, and
 * around it what the environment's QUIRK says, a list: "fifo,consumed". Strict about what such a
 * plugin needs: who does not do it gets an error, or never gets there. Any version's table has it,
 * where that version can.
 *
 *   fifo       test of another request than the oldest of its comm is an error
 *   sixteen    a 17th request of a comm is an error
 *   nosizes    test says no sizes
 *   mhandle    isend and irecv check that their memory is registered with that comm, and closing
 *              that nothing is left registered
 *   stale      what is not ready is not written: *comm and *request stay as they are
 *   consumed   a receive's request is free when irecvConsumed was called; before that, one more
 *              irecv is an error (v7 on)
 *   unpack     the device is of type UNPACK (v7 on)
 *   device     connect and accept need a zeroed device handle, and write into it, also later (v7
 *              on)
 *   notnow     isend and irecv say NULL three times out of four
 *   nohost     no NCCL_PTR_HOST
 *   hca        the device's name is no network interface's, and it says port 1
 *   flush      forceFlush: a receive without an iflush behind it, waited for, is an error (v9 on)
 *   blocks     accept blocks until somebody comes
 *   stuck      accept never comes back
 *   once       a second init is an error
 *   anybody    accept takes whoever connects, whatever he says
 *   nodevice   there are no devices
 *   noinit     init fails
 *   late       the table has name and init only, until init
 *   sendzero   test says 0 of a send
 *   novprops   vProps are left as they are (v9 on)
 *   dead       as fifo, and the comm is of no more use then
 */
#define PLUGIN_NAME "Quirk"
#define WITHOUT_TABLES
#include "onestream.c"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>

/* In place of the environment's, for a program that has threads of earlier connections. */
static const char *used;
void quirk_use(const char *list);
__attribute__((visibility("default"))) void quirk_use(const char *list)
{
	__atomic_store_n(&used, list, __ATOMIC_RELEASE);
}

static bool has(const char *quirk)
{
	const char *list = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
	if (!list)
		list = getenv("QUIRK");
	size_t len = strlen(quirk);
	for (const char *p = list ? list : ""; *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == len && !memcmp(p, quirk, len))
			return true;
	return false;
}

/* Tables that init fills in. */
static struct late {
	void **table, *whole[32];
	size_t n;
} late[NCCL_NET_V_LAST + 1];
static unsigned lates;

static void late_table(void *table, size_t bytes)
{
	struct late *l = &late[lates++];
	*l = (struct late){.table = table, .n = bytes / sizeof(void *)};
	memcpy(l->whole, table, bytes);
	for (size_t i = 2; i < l->n && has("late"); i++)
		l->table[i] = NULL;
}

static void late_fill(void)
{
	for (unsigned i = 0; i < lates; i++)
		memcpy(late[i].table, late[i].whole, late[i].n * sizeof(void *));
}

static int wrong(const char *what)
{
	WARN("%s", what);
	return NCCL_INTERNAL_ERROR;
}

/* Flushes are requests of their own, beside onestream's, one at a time: done at the third look. */
struct flush {
	uint64_t magic;
	struct note *note;
	unsigned looks;
};
/* a struct request begins with a pointer, which this is not */
static const uint64_t FLUSH = 0x6873756c66;

/* What is kept beside onestream's comms and requests: by address, in lists under one lock. */
struct note {
	struct note *next;
	const void *comm;
	void *data;
	size_t size;
	struct nccl_net_device_handle *device;
	struct flush flush;
	unsigned unconsumed, unflushed, calls;
	bool dead;
};
static struct note *comms, *registered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct note *note_of(const void *comm)
{
	pthread_mutex_lock(&lock);
	struct note *n = comms;
	while (n && n->comm != comm)
		n = n->next;
	if (!n && (n = calloc(1, sizeof(*n)))) {
		n->comm = comm;
		n->next = comms;
		comms = n;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static void note_drop(struct note **list, const struct note *n)
{
	pthread_mutex_lock(&lock);
	while (*list && *list != n)
		list = &(*list)->next;
	if (*list)
		*list = n->next;
	pthread_mutex_unlock(&lock);
	free((void *)n);
}

/* ---- around onestream ---- */

static int quirk_init(nccl_logger log)
{
	static unsigned inits;
	logger = log;
	if (has("noinit") || (inits++ && has("once")))
		return wrong("init fails");
	late_fill();
	return plugin_init(log);
}

static int quirk_devices(int *ndev)
{
	*ndev = 0;
	return has("nodevice") ? NCCL_SUCCESS : plugin_devices(ndev);
}

static int device_write(struct nccl_net_device_handle **device, const void *comm)
{
	static const struct nccl_net_device_handle zero;
	if (!has("device"))
		return NCCL_SUCCESS;
	if (!device || !*device)
		return wrong("a device handle is expected");
	if (comm) {
		if (memcmp(*device, &zero, sizeof(zero)) != 0)
			return wrong("a zeroed device handle is expected");
		(*device)->type = NCCL_NET_DEVICE_UNPACK;
		note_of(comm)->device = *device;
	}
	return NCCL_SUCCESS;
}

/* A comm, or nothing: written as the quirks say. */
static int comm_out(int rc, void *made, void **comm)
{
	if (made || !has("stale"))
		*comm = made;
	return rc;
}

static int quirk_connect_device(
	int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	void *made = NULL;
	int rc = device_write(device, NULL);
	if (!rc)
		rc = plugin_connect(dev, handle, &made);
	if (!rc && made)
		rc = device_write(device, made);
	return comm_out(rc, made, comm);
}

static int accept_anybody(struct listener *l, void **made)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct comm *c = fd < 0 ? NULL : comm_make(fd, true);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	if (c && (poll(&p, 1, 200) < 1 ||
			 recv(fd, &c->hello, sizeof(c->hello), MSG_DONTWAIT) <= 0)) {
		plugin_close(c);
		c = NULL;
	}
	*made = c;
	return NCCL_SUCCESS;
}

static int quirk_accept_device(
	void *listen_comm, void **comm, struct nccl_net_device_handle **device)
{
	struct listener *l = listen_comm;
	void *made = NULL;
	int rc = device_write(device, NULL);
	while (has("stuck"))
		pause();
	do {
		struct pollfd p = {.fd = l->accepting ? l->accepting->fd : l->fd, .events = POLLIN};
		if (has("blocks"))
			poll(&p, 1, -1);
		if (!rc)
			rc = has("anybody") ? accept_anybody(l, &made)
					    : plugin_accept(listen_comm, &made);
	} while (!rc && !made && has("blocks"));
	if (!rc && made)
		rc = device_write(device, made);
	return comm_out(rc, made, comm);
}

static int quirk_connect(int dev, void *handle, void **comm)
{
	static struct nccl_net_device_handle none;
	struct nccl_net_device_handle *device = &none;
	return has("device") ? NCCL_INTERNAL_ERROR
			     : quirk_connect_device(dev, handle, comm, &device);
}

static int quirk_accept(void *listen_comm, void **comm)
{
	static struct nccl_net_device_handle none;
	struct nccl_net_device_handle *device = &none;
	return has("device") ? NCCL_INTERNAL_ERROR
			     : quirk_accept_device(listen_comm, comm, &device);
}

static int quirk_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	int rc = plugin_reg(comm, data, size, type, mhandle);
	if (rc || !has("mhandle"))
		return rc;
	struct note *n = calloc(1, sizeof(*n));
	if (!n)
		return NCCL_SYSTEM_ERROR;
	*n = (struct note){.comm = comm, .data = data, .size = size};
	pthread_mutex_lock(&lock);
	n->next = registered;
	registered = n;
	pthread_mutex_unlock(&lock);
	*mhandle = n;
	return NCCL_SUCCESS;
}

static int quirk_dereg(void *comm, void *mhandle)
{
	const struct note *n = mhandle;
	if (!has("mhandle"))
		return plugin_dereg(comm, mhandle);
	if (!n || n->comm != comm)
		return wrong("deregMr of what is not registered with this comm");
	note_drop(&registered, n);
	return NCCL_SUCCESS;
}

static bool is_registered(const void *comm, const char *data, size_t size, const void *mhandle)
{
	pthread_mutex_lock(&lock);
	const struct note *n = registered;
	while (n && n != mhandle)
		n = n->next;
	bool fine = n && n->comm == comm && data >= (char *)n->data &&
		    data + size <= (char *)n->data + n->size;
	pthread_mutex_unlock(&lock);
	return fine;
}

/* What is checked, and said, before a request is made. True: go on. */
static bool may_post(
	struct comm *c, struct note *n, void *data, size_t size, void *mhandle, int *rc)
{
	*rc = NCCL_SUCCESS;
	if (has("notnow") && ++n->calls % 4)
		return false;
	if (has("sixteen") && c->requests[(c->posted - 16) % NCCL_NET_MAX_REQUESTS].used &&
		c->posted >= 16)
		*rc = wrong("a 17th request: unable to allocate requests");
	if (has("mhandle") && !is_registered(c, data, size, mhandle))
		*rc = wrong("this memory is not registered with this comm");
	if (n->device && n->device->type != NCCL_NET_DEVICE_UNPACK)
		*rc = wrong("the device handle has gone");
	if (c->receives && has("consumed") && c->requests[c->posted % NCCL_NET_MAX_REQUESTS].used)
		*rc = wrong("irecvConsumed was not called");
	if (c->receives && has("consumed") && n->unconsumed > 1)
		*rc = wrong("irecvConsumed was not called for two receives that are done");
	if (c->receives && has("flush") && n->unflushed > 1)
		*rc = wrong("iflush was not called");
	return !*rc;
}

static int request_out(int rc, void *made, void **request)
{
	if (made || !has("stale"))
		*request = made;
	return rc;
}

static int quirk_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	void *made = NULL;
	int rc;
	if (may_post(comm, note_of(comm), data, size, mhandle, &rc))
		rc = plugin_isend(comm, data, size, tag, mhandle, &made);
	return request_out(rc, made, request);
}

static int quirk_irecv(void *comm, int n, void **data, const size_t *sizes, int *tags,
	void **mhandles, void **request)
{
	void *made = NULL;
	int rc;
	if (may_post(comm, note_of(comm), data[0], sizes[0], mhandles[0], &rc))
		rc = plugin_irecv(comm, n, data, sizes, tags, mhandles, &made);
	return request_out(rc, made, request);
}

static int quirk_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	struct note *note = note_of(comm);
	if (!has("flush"))
		return plugin_iflush(comm, n, data, sizes, mhandles, request);
	if (note->flush.magic)
		return wrong("a flush behind one that is not done");
	note->flush = (struct flush){.magic = FLUSH, .note = note};
	*request = &note->flush;
	return NCCL_SUCCESS;
}

static int flush_test(struct flush *f, int *done)
{
	*done = ++f->looks == 3;
	if (!*done)
		return NCCL_SUCCESS;
	f->note->unflushed--;
	f->magic = 0;
	return NCCL_SUCCESS;
}

static int quirk_test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	uint64_t magic;
	memcpy(&magic, request, sizeof(magic));
	if (magic == FLUSH)
		return flush_test(request, done);
	struct comm *c = r->comm;
	uint64_t mine = (uint64_t)(r - c->requests), oldest = c->posted;
	/* of those not told yet */
	for (uint64_t back = 1; back <= NCCL_NET_MAX_REQUESTS && back <= c->posted; back++)
		if (c->requests[(c->posted - back) % NCCL_NET_MAX_REQUESTS].used)
			oldest = (c->posted - back) % NCCL_NET_MAX_REQUESTS;
	struct note *order = note_of(c);
	order->dead |= has("dead") && oldest != mine;
	if (order->dead || (has("fifo") && oldest != mine))
		return wrong("test out of order");
	int size = 0, rc = plugin_test(request, done, &size);
	if (rc || !*done)
		return rc;
	if (sizes && !has("nosizes"))
		*sizes = has("sendzero") && !c->receives ? 0 : size;
	struct note *n = note_of(c);
	if (c->receives && has("consumed")) {
		r->used = true;
		n->unconsumed++;
	}
	n->unflushed += c->receives && has("flush");
	return NCCL_SUCCESS;
}

__attribute__((unused)) static int quirk_consumed(void *comm, int n, void *request)
{
	struct request *r = request;
	if (!has("consumed"))
		return NCCL_SUCCESS;
	if (r->comm != comm || !r->used || !r->done)
		return wrong("irecvConsumed of what is not received");
	r->used = false;
	note_of(comm)->unconsumed--;
	return NCCL_SUCCESS;
}

static int quirk_close(void *comm)
{
	int rc = NCCL_SUCCESS;
	pthread_mutex_lock(&lock);
	for (const struct note *n = registered; n; n = n->next)
		if (n->comm == comm)
			rc = NCCL_INVALID_USAGE;
	pthread_mutex_unlock(&lock);
	if (rc)
		abort(); /* so that no test passes by it */
	struct note *n = note_of(comm);
	if (n->device && n->device->type != NCCL_NET_DEVICE_UNPACK)
		abort();
	note_drop(&comms, n);
	return plugin_close(comm);
}

#define plugin_init quirk_init
#define plugin_devices quirk_devices
#define plugin_connect quirk_connect
#define plugin_accept quirk_accept
#define plugin_reg quirk_reg
#define plugin_dereg quirk_dereg
#define plugin_isend quirk_isend
#define plugin_irecv quirk_irecv
#define plugin_iflush quirk_iflush
#define plugin_test quirk_test
#define plugin_close quirk_close
#define QUIRKS
#define V 4
#include "export.h"
#define V 5
#include "export.h"
#define V 6
#include "export.h"
#define V 7
#include "export.h"
#define V 8
#include "export.h"
#define V 9
#include "export.h"
#define V 10
#include "export.h"
#define V 11
#include "export.h"
#define V 12
#include "export.h"
