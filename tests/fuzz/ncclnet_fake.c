/* SPDX-License-Identifier: BSD-3-Clause */
/* ncclnet_fake.c - see ncclnet_fake.h. */
#include "ncclnet_fake.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, len) ((void)(p), (void)(len))
#define ASAN_UNPOISON_MEMORY_REGION(p, len) ((void)(p), (void)(len))
#endif

struct fake fake;

static bool spend(uint8_t *calls)
{
	bool now = *calls & 1;
	*calls >>= 1;
	return now;
}

static void touch(const uint8_t *p, size_t len)
{
	const volatile uint8_t *v = p;
	for (size_t i = 0; i<len; i += len> 4096 ? 61 : 1)
		(void)v[i];
	if (len)
		(void)v[len - 1];
}

static uint32_t sum_of(const uint8_t *p, size_t len)
{
	uint32_t h = 2166136261u;
	for (size_t i = 0; i<len; i += len> 4096 ? 61 : 1)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

/* ---- comms ---- */

static const char *f_name(const void *table) { return "fuzz"; }

static int f_listen(const void *table, void *ctx, int dev, void *handle, void **listen_comm)
{
	if (fake.listens == FAKE_LISTENS || spend(&fake.bad_listens))
		return NCCL_SYSTEM_ERROR;
	struct fake_listen *l = &fake.listen[fake.listens++];
	*l = (struct fake_listen){.live = true, .which = fake.next_which++ & 1, .handle = handle};
	memset(handle, (int)fake.listens, NCCL_NET_HANDLE_BYTES);
	fake.listens_live++;
	*listen_comm = l;
	return 0;
}

static int comm_new(
	struct fake_listen *l, bool sends, void **comm, struct nccl_net_device_handle **device)
{
	uint8_t how = fuzz_u8(fake.in);
	if (how >= 250 || fake.comms == FAKE_COMMS)
		return NCCL_REMOTE_ERROR;
	if (how >= 240)
		return 0; /* call again */
	(*device)->needs_proxy_progress = 1;
	struct fake_comm *c = &fake.comm[fake.comms++];
	*c = (struct fake_comm){.live = true, .sends = sends, .listen = l, .bulk = l && l->which};
	fake.comms_live++;
	*comm = c;
	return 0;
}

static int f_connect(const void *table, void *ctx, int dev, void *handle, void **send_comm,
	struct nccl_net_device_handle **device)
{
	++*(uint8_t *)handle; /* state of ours */
	return comm_new(NULL, true, send_comm, device);
}

static int f_accept(const void *table, void *listen_comm, void **recv_comm,
	struct nccl_net_device_handle **device)
{
	struct fake_listen *l = listen_comm;
	if (!l->live)
		fuzz_broken("accept on a listen comm that is closed");
	return comm_new(l, false, recv_comm, device);
}

static int comm_close(struct fake_comm *c, bool sends)
{
	if (!c->live || c->sends != sends)
		fuzz_broken("a comm was closed twice, or as the other kind");
	if (c->regs)
		fuzz_broken("a comm was closed, and memory is registered with it");
	for (unsigned i = 0; i < FAKE_RING; i++)
		if (c->ring[i] && c->ring[i]->poisoned)
			ASAN_UNPOISON_MEMORY_REGION(c->ring[i]->data, c->ring[i]->len);
	c->live = false;
	fake.comms_live--;
	return c->broken;
}
static int f_close_send(const void *table, void *comm) { return comm_close(comm, true); }
static int f_close_recv(const void *table, void *comm) { return comm_close(comm, false); }

static int f_close_listen(const void *table, void *listen_comm)
{
	struct fake_listen *l = listen_comm;
	if (!l->live)
		fuzz_broken("a listen comm was closed twice");
	l->live = false;
	fake.listens_live--;
	return 0;
}

/* ---- registrations ---- */

static int f_reg(const void *table, void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct fake_comm *c = comm;
	if (!c->live || c->told_broken)
		fuzz_broken("memory is registered with a comm that is closed or broken");
	if (fake.regs == FAKE_REGS || spend(&fake.bad_regs))
		return NCCL_SYSTEM_ERROR;
	struct fake_reg *r = &fake.reg[fake.regs++];
	*r = (struct fake_reg){.live = true, .comm = c, .data = data, .len = size};
	c->regs++;
	fake.regs_live++;
	*mhandle = r;
	return 0;
}

static int f_dereg(const void *table, void *comm, void *mhandle)
{
	struct fake_reg *r = mhandle;
	if (!r->live || r->comm != comm || !r->comm->live)
		fuzz_broken("a registration was given back twice, or to another comm");
	r->live = false;
	r->comm->regs--;
	fake.regs_live--;
	return 0;
}

static bool overlap(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	return a < b + b_len && b < a + a_len;
}

bool fake_uses(const void *data, size_t len)
{
	for (unsigned i = 0; i < fake.regs; i++)
		if (fake.reg[i].live && overlap(fake.reg[i].data, fake.reg[i].len, data, len))
			return true;
	for (unsigned i = 0; i < fake.comms; i++) {
		const struct fake_comm *c = &fake.comm[i];
		if (!c->live)
			continue;
		for (unsigned n = c->head; n != c->tail; n++)
			if (overlap(c->ring[n % FAKE_RING]->data, c->ring[n % FAKE_RING]->len, data,
				    len))
				return true;
		if (c->flush && overlap(c->flush->data, c->flush->len, data, len))
			return true;
	}
	return false;
}

/* ---- messages ---- */

static struct fake_request *request_new(
	struct fake_comm *c, bool sends, void *data, size_t len, const struct fake_reg *r)
{
	if (!c->live || c->sends != sends || c->told_broken)
		fuzz_broken(
			"a request on a comm that is closed, broken, or of the other direction");
	if (!r->live || r->comm != c || (uint8_t *)data < r->data ||
		(size_t)((uint8_t *)data - r->data) > r->len ||
		len > r->len - (size_t)((uint8_t *)data - r->data))
		fuzz_broken("a request outside of what is registered with its comm");
	if (fake.requests == FAKE_REQUESTS)
		return NULL;
	struct fake_request *q = &fake.request[fake.requests++];
	*q = (struct fake_request){.comm = c, .data = data, .len = len};
	return q;
}

/* What a new isend or irecv gives, if it is not a request. */
static bool turned_away(struct fake_comm *c, int *rc)
{
	*rc = c->broken ? c->broken : spend(&fake.bad_posts) ? NCCL_SYSTEM_ERROR : 0;
	if (*rc)
		c->broken = *rc;
	c->told_broken = *rc;
	return *rc || spend(&fake.not_now);
}

static void post(struct fake_comm *c, struct fake_request *q)
{
	if (c->tail - c->head >= NT_REQUESTS)
		fuzz_broken("more requests under way than is safe");
	c->ring[c->tail++ % FAKE_RING] = q;
}

static int f_isend(const void *table, void *comm, void *data, size_t size, int tag, void *mhandle,
	void **request)
{
	struct fake_comm *c = comm;
	int rc;
	struct fake_request *q = request_new(c, true, data, size, mhandle);
	if (!q || turned_away(c, &rc))
		return q ? rc : 0;
	touch(data, size);
	if (!c->moved)
		c->bulk = ((uint8_t *)data)[9];
	else if (c->bulk) {
		fake_may(data, size, true);
		if (c->lens < FAKE_LENS)
			c->len[c->lens++] = size;
	} else
		fake_batch(c, data, size);
	c->moved++;
	q->sum = sum_of(data, size);
	q->size = (int)size;
	post(c, q);
	*request = q;
	return 0;
}

static int f_irecv(const void *table, void *comm, int n, void **data, const size_t *sizes,
	const int *tags, void **mhandles, void **request)
{
	struct fake_comm *c = comm;
	int rc;
	struct fake_request *q = request_new(c, false, data[0], sizes[0], mhandles[0]);
	if (!q || turned_away(c, &rc))
		return q ? rc : 0;
	post(c, q);
	*request = q;
	if (!c->moved)
		fake_hello(c);
	else if (c->bulk) {
		fake_may(data[0], sizes[0], false);
		if (!fake.bulk_waits)
			fake_bring_bulk(c, (int)sizes[0]);
	} else {
		q->poisoned = true; /* what lies in it is nobody's business until it is there */
		ASAN_POISON_MEMORY_REGION(q->data, q->len);
	}
	return 0;
}

static int f_iflush(const void *table, void *comm, int n, void **data, const int *sizes,
	void **mhandles, void **request)
{
	struct fake_comm *c = comm;
	struct fake_request *q = request_new(c, false, data[0], (size_t)sizes[0], mhandles[0]);
	if (c->flush || !q)
		fuzz_broken("two flushes at a time, or more requests than there are");
	if (!fake.flush_tests)
		return 0;
	if (fake.flush_tests == 255) {
		c->broken = NCCL_INTERNAL_ERROR;
		c->told_broken = true;
		return c->broken;
	}
	q->flushes = true;
	q->size = fake.flush_tests;
	c->flush = q;
	*request = q;
	return 0;
}

static void told(struct fake_comm *c, struct fake_request *q, int *sizes)
{
	q->told = true;
	c->head++;
	if (!fake.no_sizes)
		*sizes = q->size;
	if (c->sends) {
		touch(q->data, q->len);
		if (!c->bulk && sum_of(q->data, q->len) != q->sum)
			fuzz_broken("a batch was changed while it was under way");
	}
	if (q->poisoned) /* no further than the host knows that there is something */
		ASAN_UNPOISON_MEMORY_REGION(q->data,
			*sizes > 0 ? RPWI_MIN(q->len, (size_t)RPWI_MAX(*sizes, NT_BATCH_LEN))
				   : q->len);
}

static int f_test(const void *table, void *request, int *done, int *sizes)
{
	struct fake_request *q = request;
	struct fake_comm *c = q->comm;
	if (!c->live || c->told_broken || q->told)
		fuzz_broken("a request was tested that is over");
	if (c->flush ? c->flush != q : c->head == c->tail || c->ring[c->head % FAKE_RING] != q)
		fuzz_broken("another request than the oldest was tested");
	if (c->broken) {
		c->told_broken = true;
		return c->broken;
	}
	if (q->flushes) {
		*done = --q->size <= 0;
		q->told = *done;
		if (q->told)
			c->flush = NULL;
		return 0;
	}
	if (c->sends && !fake.sends_wait && !q->filled)
		fake_sent(c, 1);
	*done = q->filled;
	if (q->filled)
		told(c, q, sizes);
	return 0;
}

static int f_irecv_consumed(const void *table, void *comm, int n, void *request)
{
	struct fake_request *q = request;
	if (q->comm != comm || !q->told || q->consumed || q->comm->sends)
		fuzz_broken("consumed what did not come, or twice");
	q->consumed = true;
	if (!spend(&fake.bad_consumed))
		return 0;
	q->comm->broken = NCCL_REMOTE_ERROR;
	q->comm->told_broken = true;
	return NCCL_REMOTE_ERROR;
}

bool fake_bring(struct fake_comm *c, const uint8_t *bytes, size_t len, int size)
{
	if (!c->live || c->sends || c->broken || c->fill == c->tail)
		return false;
	struct fake_request *q = c->ring[c->fill++ % FAKE_RING];
	if (q->poisoned)
		ASAN_UNPOISON_MEMORY_REGION(q->data, q->len);
	memcpy(q->data, bytes, RPWI_MIN(len, q->len));
	if (q->poisoned)
		ASAN_POISON_MEMORY_REGION(q->data, q->len);
	q->size = size;
	q->filled = true;
	c->moved++;
	return true;
}

void fake_bring_bulk(struct fake_comm *c, int size)
{
	if (!c->live || c->sends || c->broken || c->fill == c->tail)
		return;
	struct fake_request *q = c->ring[c->fill++ % FAKE_RING];
	size_t len = size < 0 ? 0 : RPWI_MIN((size_t)size, q->len);
	for (size_t i = 0; i<len; i += len> 4096 ? 61 : 1)
		q->data[i] = (uint8_t)(c->moved + i);
	if (len)
		q->data[len - 1] = (uint8_t)len;
	q->size = size;
	q->filled = true;
	c->moved++;
}

void fake_sent(struct fake_comm *c, unsigned n)
{
	for (; n && c->live && c->sends && c->fill != c->tail; n--)
		c->ring[c->fill++ % FAKE_RING]->filled = true;
}

/* ---- what nt_load.c would find ---- */

static const struct ncclnet_calls calls = {.name = f_name,
	.listen = f_listen,
	.connect = f_connect,
	.accept = f_accept,
	.reg = f_reg,
	.dereg = f_dereg,
	.isend = f_isend,
	.irecv = f_irecv,
	.iflush = f_iflush,
	.test = f_test,
	.close_send = f_close_send,
	.close_recv = f_close_recv,
	.close_listen = f_close_listen,
	.irecv_consumed = f_irecv_consumed};
static struct ncclnet plugin = {
	.path = (char *)"fuzz", .abi = 9, .calls = &calls, .handle_bytes = NCCL_NET_HANDLE_BYTES};
struct nt_load fake_load = {.spec = "fuzz", .name = "fuzz", .device = "fuzz0", .n = &plugin};

/* In the place of nt_load.c. */
__thread bool nt_closing;
const struct nt_load *nt_load_get(const char *spec) { return &fake_load; }

void fake_reset(struct fuzz_input *in, size_t chunk_max, bool force_flush)
{
	/* the places of the rest are filled when they are taken */
	memset(&fake, 0, offsetof(struct fake, comm));
	fake.in = in;
	fake_load.chunk_max = chunk_max;
	fake_load.props.force_flush = force_flush;
}
