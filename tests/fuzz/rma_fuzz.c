/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_fuzz.c - what peers, and whoever carries handles, can say to NCCL's one-sided plugin:
 * handles, hellos, and messages to a coll comm with memory registered, over a messaging library
 * that is faked here. Checked: nothing outside of what is registered is written, what is refused
 * has a reason, and a number that names no memory finds none. */
#include "fuzz.h"

#include <stdlib.h>

#include "nccl/rma.h"

enum { RANKS = 2, MEMORIES = 4, ROOM = 64, HEADER_MAX = 96, DATA_MAX = 255 };

/* ---- the messaging library, and what else the files under test call ---- */

static struct rma_comm *comm;
static unsigned said;

static void quiet(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	said += level == NCCL_LOG_WARN;
}

static rpw_endpoint *endpoint_of(struct rma_peer *p) { return (rpw_endpoint *)(void *)p; }
void *rpw_endpoint_user(const rpw_endpoint *ep) { return (void *)(uintptr_t)ep; }
int rpw_context_progress(rpw_context *c) { return 0; }
void rpw_request_on_done(rpw_request *r, rpw_done_fn fn, void *arg) {}
void rpw_request_destroy(rpw_request *r) {}
const char *rpw_last_error(void) { return "a reason"; }
const char *rpw_status_name(int status) { return "a status"; }
int rpw_memory_register(rpw_context *c, void *addr, size_t len, enum rpw_memory_kind kind,
	unsigned access, rpw_memory **out)
{
	*out = addr;
	return RPW_OK;
}
void rpw_memory_destroy(rpw_memory *m) {}
int rpw_rkey_pack(const rpw_memory *m, void *out, size_t room)
{
	memset(out, 7, 8);
	return 8;
}
int rpw_rkey_unpack(rpw_endpoint *ep, const void *packed, size_t len, rpw_rkey **out)
{
	fuzz_readable(packed, len, 1);
	*out = NULL;
	return len == 8 ? RPW_OK : RPW_ERR_PROTOCOL;
}
void rpw_rkey_destroy(rpw_rkey *k) {}
/* Both ranks say what we say. */
int rpw_am_send(rpw_endpoint *ep, unsigned id, const void *header, size_t header_len,
	const void *buf, size_t len, rpw_request **req)
{
	struct rma_peer *p = rpw_endpoint_user(ep);
	if (header_len > RPW_AM_HEADER_MAX)
		fuzz_broken("a header beyond its limit");
	if (id == RMA_REG && p->rank == comm->rank)
		p = &comm->peer[RANKS];
	if (id == RMA_REG)
		rma_reg_arrived(endpoint_of(p), header, header_len, buf, len, comm);
	return RPW_OK;
}
void comm_context_enter(struct comm_context *l) { pthread_mutex_lock(&l->lock); }
unsigned plugin_timeout_ms(unsigned otherwise) { return 0; }
int rma_ptr_support(void) { return NCCL_PTR_HOST; }

/* ---- handles and hellos ---- */

static void handle(struct fuzz_input *in)
{
	struct plugin_handle h = {0};
	char why[320] = "";
	const uint8_t nonce[PLUGIN_NONCE_BYTES] = {1};
	if (fuzz_u8(in) & 1)
		plugin_handle_make(&h, PLUGIN_API_RMA + 16, nonce, "192.0.2.1:4711");
	for (size_t at = 0; in->left; at++)
		((uint8_t *)&h)[at % sizeof(h)] ^= fuzz_u8(in);
	if (plugin_handle_check(&h, PLUGIN_API_RMA + 16, why, sizeof(why)) && !*why)
		fuzz_broken("a handle refused without a reason");
}

static void hello(struct fuzz_input *in)
{
	const uint8_t nonce[PLUGIN_NONCE_BYTES] = {1};
	struct plugin_hello h;
	char why[RPW_AM_HEADER_MAX];
	size_t len = fuzz_u8(in) % (sizeof(h) + 2);
	uint8_t *exact = malloc(len + 1);
	plugin_hello_make(&h, PLUGIN_API_RMA + 16, nonce);
	memcpy(exact, &h, RPWI_MIN(len, sizeof(h)));
	for (size_t at = 0; in->left && len; at++)
		exact[at % len] ^= fuzz_u8(in);
	plugin_hello_check(exact, len, PLUGIN_API_RMA + 16, nonce, why, sizeof(why));
	if (!*why && memcmp(exact, &h, sizeof(h.magic)))
		fuzz_broken("a hello of something else");
	free(exact);
}

/* ---- messages ---- */

struct memory {
	uint8_t *at; /* exactly as large: ASan sees what is beyond */
	size_t size;
	void *mhandle;
};

static void memory_new(struct memory *m, size_t size)
{
	m->size = size;
	m->at = malloc(size);
	memset(m->at, 0, size);
	if (rma_reg(comm->abi, comm, m->at, size, NCCL_PTR_HOST, 0, &m->mhandle))
		fuzz_broken("memory that cannot be registered");
}

static void memory_free(struct memory *m)
{
	if (!m->at)
		return;
	if (rma_dereg(comm->abi, comm, m->mhandle) ||
		rma_dereg(comm->abi, comm, m->mhandle) != NCCL_INVALID_ARGUMENT)
		fuzz_broken("memory that cannot be deregistered once");
	free(m->at);
	m->at = NULL;
}

static size_t take(struct fuzz_input *in, uint8_t *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = fuzz_u8(in);
	return len;
}

/* The id of one of ours, at times. */
static void message(struct fuzz_input *in, const struct memory *m)
{
	unsigned kind = fuzz_u8(in);
	uint8_t header[HEADER_MAX] = {0}, data[DATA_MAX];
	size_t header_len, len = fuzz_u8(in);
	struct rma_peer *p = &comm->peer[kind >> 6];
	static const size_t whole[] = {sizeof(struct rma_put_head), sizeof(struct rma_reg_head),
		sizeof(struct rma_refused_head)};
	header_len = kind & 32 ? fuzz_u8(in) % HEADER_MAX : whole[kind % 3];
	take(in, header, RPWI_MIN(header_len, sizeof(header)));
	take(in, data, len);
	for (int k = 0; k < 2; k++) {
		uint32_t own = (uint32_t)((uintptr_t)m[header[k * 4] % MEMORIES].mhandle >> 4);
		if (kind >> 3 & (1u << k))
			memcpy(header + k * 4, &own, sizeof(own));
	}
	uint8_t *h = malloc(header_len + 1), *d = malloc(len + 1);
	memcpy(h, header, header_len);
	memcpy(d, data, len);
	rpw_endpoint *ep = kind >> 6 > RANKS ? NULL : endpoint_of(p);
	if (kind % 3 == 0)
		rma_put_arrived(ep, h, header_len, d, len, comm);
	else if (kind % 3 == 1)
		rma_reg_arrived(ep, h, header_len, d, len, comm);
	else
		rma_refused_arrived(ep, h, header_len, d, len, comm);
	free(h);
	free(d);
}

static void messages(struct fuzz_input *in)
{
	struct comm_context cc;
	struct memory m[MEMORIES] = {{0}};
	memset(&cc, 0, sizeof(cc));
	pthread_mutex_init(&cc.lock, NULL);
	comm = calloc(1, sizeof(*comm) + (RANKS + 1) * sizeof(comm->peer[0]));
	comm->magic = rma_coll_magic;
	comm->abi = PLUGIN_API_RMA + 16;
	comm->ranks = RANKS;
	comm->cc = &cc;
	for (int i = 0; i <= RANKS; i++) {
		comm->peer[i].comm = comm;
		comm->peer[i].rank = i % RANKS;
		comm->peer[i].ep = endpoint_of(&comm->peer[i]);
		rpwi_list_init(&comm->peer[i].regs);
	}
	for (int i = 0; i < MEMORIES; i++)
		memory_new(&m[i], (size_t)ROOM << i);
	while (in->left) {
		unsigned which = fuzz_u8(in);
		uintptr_t stale = (uintptr_t)fuzz_u16(in) << 20 | which << 4;
		struct rma_memory *found = rma_memory_of(comm, (void *)stale);
		if (found && found->id != stale >> 4)
			fuzz_broken("a number that finds another memory");
		if (which < 8) { /* peers may say things before that are meant for later */
			memory_free(&m[which % MEMORIES]);
			for (int i = 0; i <= RANKS; i++)
				rma_regs_free(&comm->peer[i]);
			memory_new(&m[which % MEMORIES], (size_t)ROOM << which % MEMORIES);
		} else
			message(in, m);
	}
	for (int i = 0; i < MEMORIES; i++)
		memory_free(&m[i]);
	for (int i = 0; i <= RANKS; i++)
		rma_regs_free(&comm->peer[i]);
	rma_memories_free(comm);
	pthread_mutex_destroy(&cc.lock);
	free(comm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = {data, len};
	plugin_log_to(quiet);
	switch (fuzz_u8(&in) % 3) {
	case 0:
		handle(&in);
		break;
	case 1:
		hello(&in);
		break;
	default:
		messages(&in);
	}
	return 0;
}
