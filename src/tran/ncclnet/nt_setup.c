/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_setup.c - connecting. A plugin's connect and accept may block as long as they like
 * (NCCLNET_BLOCKS), so each endpoint has two threads while it is being connected, one that connects
 * twice and one that accepts twice: neither needs the other, in whatever order the plugin waits.
 * The first message on each comm is a hello with the nonces of both handles: who cannot say that is
 * a stranger, or somebody from an earlier attempt, and is closed.
 *
 * The struct belongs to its users: the endpoint, and its threads. An endpoint that is closed, or
 * whose time is up, just leaves; what the threads still hold is closed by the last one out. A
 * thread that is stuck in accept is called out by a connection to its own listen comm; where that
 * does not help either, it stays behind, and harms nobody.
 */
#include "tran/ncclnet/nt_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/thread.h"

enum {
	FRAMES = 0,
	BULK = 1,
	HANDLE_ROOM = 512,   /* a copy of a plugin's handle, and zeros behind it */
	PAUSE_LEAST_US = 20, /* between two looks at something that is not ready */
	PAUSE_MOST_US = 1000,
	STRANGER_MS = 1000, /* so long at least a comm may take to say its hello */
	CALL_OUT_MS = 50,
};

struct nt_setup {
	const struct nt_load *load;
	/* of the endpoint and its threads, who is still here; atomic, as all that follows up to the
	 * blank line */
	int inside;
	bool given_up, connected, accepted;
	/* the plugin's call that each thread is in, or NULL */
	const char *connecting_in, *accepting_in;

	uint64_t deadline_ns;
	uint8_t nonce[NT_NONCE_LEN], peer_nonce[NT_NONCE_LEN];
	_Alignas(64) uint8_t own[2][HANDLE_ROOM];
	_Alignas(64) uint8_t peer[2][HANDLE_ROOM];
	_Alignas(64) uint8_t called_out[HANDLE_ROOM];
	void *listen[2];
	struct nt_comm send[2], receive[2];
	bool failed_connecting, failed_accepting;
	int status_connecting, status_accepting;
	char why_connecting[200], why_accepting[200];
	_Alignas(64) uint8_t said[NT_HELLO_LEN + 16], heard[NT_HELLO_LEN + 16];
};

#define GET(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define SET(x, v) __atomic_store_n(&(x), v, __ATOMIC_RELEASE)

static const char *const which_text[] = {"frames", "bulk data"};

static void comm_close(const struct nt_load *load, struct nt_comm *c, bool sends)
{
	if (c->comm)
		sends ? ncclnet_close_send(load->n, c->comm) : ncclnet_close_recv(load->n, c->comm);
	free(c->device);
	*c = (struct nt_comm){0};
}

static void leave(struct nt_setup *s)
{
	if (__atomic_sub_fetch(&s->inside, 1, __ATOMIC_ACQ_REL))
		return;
	for (int i = 0; i < 2; i++) {
		comm_close(s->load, &s->send[i], true);
		comm_close(s->load, &s->receive[i], false);
		if (s->listen[i])
			ncclnet_close_listen(s->load->n, s->listen[i]);
	}
	free(s);
}

/* False: it is over. The pause grows. */
static bool pause_us(struct nt_setup *s, uint64_t until_ns, unsigned *us)
{
	if (GET(s->given_up) || rpwi_now_ns() >= until_ns)
		return false;
	usleep(*us);
	*us = RPWI_MIN(*us * 2, (unsigned)PAUSE_MOST_US);
	return true;
}

static bool device_new(struct nt_comm *c)
{
	if (!c->device)
		c->device = calloc(1, sizeof *c->device);
	return c->device;
}

/* One message of a new comm, waited for. 1: done; 0: not within its time; else what the plugin
 * said. */
static int one_message(
	struct nt_setup *s, struct nt_comm *c, bool sends, uint8_t *text, uint64_t until_ns)
{
	const struct ncclnet *n = s->load->n;
	unsigned us = PAUSE_LEAST_US;
	struct nt_queue l;
	nt_queue_open(&l, s->load, c, sends);
	struct nt_reg *reg = nt_queue_register(&l, NULL, text, NT_HELLO_LEN);
	struct nt_request *r = NULL;
	if (!reg) {
		rpwi_debug("ncclnet: plugin %s v%d: a hello cannot be registered", s->load->name,
			n->abi);
		return -1;
	}
	while (!l.error && l.finished == 0) {
		if (!r)
			r = nt_queue_post(&l, text, NT_HELLO_LEN, reg->mhandle);
		nt_queue_poll(&l, 1);
		if (l.finished || l.error || !pause_us(s, until_ns, &us))
			break;
	}
	nt_queue_deregister(reg);
	return l.error ? -1 : l.finished == 1;
}

/* ---- the side that connects ---- */

static bool failed(char *why, size_t why_len, int *status, int as, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
static bool failed(char *why, size_t why_len, int *status, int as, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, why_len, fmt, ap);
	va_end(ap);
	*status = as;
	return false;
}
#define CANNOT_CONNECT(as, ...) \
	failed(s->why_connecting, sizeof s->why_connecting, &s->status_connecting, as, __VA_ARGS__)
#define CANNOT_ACCEPT(as, ...) \
	failed(s->why_accepting, sizeof s->why_accepting, &s->status_accepting, as, __VA_ARGS__)

static int connect_once(struct nt_setup *s, void *handle, struct nt_comm *c)
{
	if (!device_new(c))
		return NCCL_SYSTEM_ERROR;
	return ncclnet_connect(
		s->load->n, s->load->ctx, s->load->dev, handle, &c->comm, &c->device);
}

static bool connect_one(struct nt_setup *s, int which)
{
	unsigned us = PAUSE_LEAST_US;
	struct nt_comm *c = &s->send[which];
	do {
		SET(s->connecting_in, "connect");
		int rc = connect_once(s, s->peer[which], c);
		SET(s->connecting_in, NULL);
		if (rc)
			return CANNOT_CONNECT(RPW_ERR_UNREACHABLE,
				"connecting to the peer for %s: connect gave %d (%s)",
				which_text[which], rc, ncclnet_result_name(rc));
	} while (!c->comm && pause_us(s, s->deadline_ns, &us));
	if (!c->comm)
		return CANNOT_CONNECT(RPW_ERR_TIMEOUT,
			"the peer did not take our connection for %s in time", which_text[which]);
	nt_put_hello(s->said, (unsigned)s->load->n->abi, (unsigned)which, s->peer_nonce, s->nonce);
	int rc = one_message(s, c, true, s->said, s->deadline_ns);
	if (rc < 0)
		return CANNOT_CONNECT(RPW_ERR_UNREACHABLE,
			"the peer did not take our first message for %s: the plugin reports an "
			"error",
			which_text[which]);
	if (!rc)
		return CANNOT_CONNECT(RPW_ERR_TIMEOUT,
			"the peer did not take our first message for %s in time",
			which_text[which]);
	return true;
}

/* The accepting thread is in a call that does not come back by itself: somebody has to come. */
static void call_out(struct nt_setup *s)
{
	unsigned us = PAUSE_LEAST_US;
	uint64_t until_ns = rpwi_now_ns() + CALL_OUT_MS * RPWI_NS_PER_MS;
	while (!GET(s->accepted) && rpwi_now_ns() < until_ns)
		usleep(PAUSE_MOST_US);
	for (int which = 0; which < 2 && !GET(s->accepted); which++) {
		struct nt_comm c = {0};
		memcpy(s->called_out, s->own[which], HANDLE_ROOM);
		until_ns = rpwi_now_ns() + NT_LOST_MS * RPWI_NS_PER_MS;
		while (!GET(s->accepted) && !c.comm && rpwi_now_ns() < until_ns &&
			!connect_once(s, s->called_out, &c))
			usleep(us);
		until_ns = rpwi_now_ns() + CALL_OUT_MS * RPWI_NS_PER_MS;
		while (!GET(s->accepted) && rpwi_now_ns() < until_ns)
			usleep(PAUSE_MOST_US);
		comm_close(s->load, &c, true);
	}
}

static void *connecting(void *arg)
{
	struct nt_setup *s = arg;
	s->failed_connecting = !connect_one(s, FRAMES) || !connect_one(s, BULK);
	SET(s->connected, true);
	while (!GET(s->accepted) && !GET(s->given_up))
		usleep(PAUSE_MOST_US);
	if (!GET(s->accepted))
		call_out(s);
	leave(s);
	return NULL;
}

/* ---- the side that accepts ---- */

static bool is_ours(struct nt_setup *s, int which)
{
	uint8_t good[NT_HELLO_LEN];
	unsigned wrong = 0;
	nt_put_hello(good, (unsigned)s->load->n->abi, (unsigned)which, s->nonce, s->peer_nonce);
	for (unsigned i = 0; i < NT_HELLO_LEN; i++) /* in constant time */
		wrong |= good[i] ^ s->heard[i];
	return !wrong;
}

static bool accept_one(struct nt_setup *s, int which)
{
	struct nt_comm *c = &s->receive[which];
	for (;;) {
		unsigned us = PAUSE_LEAST_US;
		do {
			if (!device_new(c))
				return CANNOT_ACCEPT(
					RPW_ERR_NO_MEMORY, "no memory for a device handle");
			SET(s->accepting_in, "accept");
			int rc = ncclnet_accept(s->load->n, s->listen[which], &c->comm, &c->device);
			SET(s->accepting_in, NULL);
			if (rc)
				return CANNOT_ACCEPT(RPW_ERR_UNREACHABLE,
					"accepting the peer for %s: accept gave %d (%s)",
					which_text[which], rc, ncclnet_result_name(rc));
		} while (!c->comm && pause_us(s, s->deadline_ns, &us));
		if (!c->comm || GET(s->given_up))
			return CANNOT_ACCEPT(RPW_ERR_TIMEOUT,
				"the peer did not connect for %s in time", which_text[which]);
		uint64_t now = rpwi_now_ns(),
			 left = s->deadline_ns > now ? s->deadline_ns - now : 0;
		memset(s->heard, 0, sizeof s->heard);
		if (one_message(s, c, false, s->heard,
			    now + RPWI_MAX(left / 4, STRANGER_MS * RPWI_NS_PER_MS)) == 1 &&
			is_ours(s, which))
			return true;
		rpwi_debug("ncclnet: plugin %s v%d accepted a stranger for %s: it did not say who "
			   "it is, and is closed",
			s->load->name, s->load->n->abi, which_text[which]);
		comm_close(s->load, c, false);
	}
}

static void *accepting(void *arg)
{
	struct nt_setup *s = arg;
	s->failed_accepting = !accept_one(s, FRAMES) || !accept_one(s, BULK);
	SET(s->accepted, true);
	leave(s);
	return NULL;
}

/* ---- the endpoint's side ---- */

int nt_setup_new(const struct nt_load *load, struct nt_handle *h, struct nt_setup **out, char *why,
	size_t why_len)
{
	struct nt_setup *s = rpwi_alloc_lines(sizeof *s);
	if (!s) {
		snprintf(why, why_len, "no memory");
		return -ENOMEM;
	}
	s->load = load;
	s->inside = 1;
	while (getrandom(s->nonce, NT_NONCE_LEN, 0) != NT_NONCE_LEN) {
	}
	memcpy(h->nonce, s->nonce, NT_NONCE_LEN);
	for (int i = 0; i < 2; i++) {
		int rc = ncclnet_listen(load->n, load->ctx, load->dev, s->own[i], &s->listen[i]);
		if (rc || !s->listen[i]) {
			snprintf(why, why_len,
				"plugin %s v%d does not listen on its device %d (%s): %d (%s)",
				load->name, load->n->abi, load->dev, load->device, rc,
				rc ? ncclnet_result_name(rc) : "success, and no listen comm");
			leave(s);
			return -EIO;
		}
		memcpy(h->plugin[i], s->own[i], load->n->handle_bytes);
	}
	*out = s;
	return 0;
}

static int thread_new(struct nt_setup *s, void *(*run)(void *))
{
	pthread_attr_t detached;
	pthread_t thread;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	__atomic_add_fetch(&s->inside, 1, __ATOMIC_ACQ_REL);
	int err = rpwi_thread_start(&thread, &detached, run, s);
	pthread_attr_destroy(&detached);
	if (err)
		__atomic_sub_fetch(&s->inside, 1, __ATOMIC_ACQ_REL);
	return -err;
}

int nt_setup_start(struct nt_setup *s, const struct nt_handle *peer, uint64_t deadline_ns)
{
	s->deadline_ns = deadline_ns;
	memcpy(s->peer_nonce, peer->nonce, NT_NONCE_LEN);
	for (int i = 0; i < 2; i++)
		memcpy(s->peer[i], peer->plugin[i], peer->bytes);
	int err = thread_new(s, accepting);
	if (err) {
		s->accepted = true;
		return err;
	}
	err = thread_new(s, connecting);
	if (err)
		SET(s->connected, true);
	return err;
}

/* The calls of the plugin that have not come back, or NULL. */
static const char *still_in(const struct nt_setup *s)
{
	const char *accepting = GET(s->accepting_in), *connecting = GET(s->connecting_in);
	if (accepting && connecting)
		return "accept and in connect";
	return accepting ? accepting : connecting;
}

static bool time_is_up(struct nt_setup *s, char *why, size_t why_len)
{
	if (rpwi_now_ns() < s->deadline_ns + STRANGER_MS * RPWI_NS_PER_MS / 5)
		return false;
	const char *in = still_in(s);
	if (in)
		snprintf(why, why_len,
			"time is up, and plugin %s v%d is still in %s: it blocks until the peer "
			"comes",
			s->load->name, s->load->n->abi, in);
	else
		snprintf(why, why_len, "the peer did not connect over plugin %s v%d in time",
			s->load->name, s->load->n->abi);
	return true;
}

int nt_setup_look(struct nt_setup *s, struct nt_comm out[4], char *why, size_t why_len)
{
	bool connected = GET(s->connected), accepted = GET(s->accepted);
	bool bad = (connected && s->failed_connecting) || (accepted && s->failed_accepting);
	if (bad) {
		bool first = connected && s->failed_connecting;
		/* The more telling one, if both are known: that time was up says little. */
		if (first && accepted && s->failed_accepting &&
			s->status_connecting == RPW_ERR_TIMEOUT)
			first = false;
		snprintf(why, why_len, "plugin %s v%d: %s", s->load->name, s->load->n->abi,
			first ? s->why_connecting : s->why_accepting);
		return first ? s->status_connecting : s->status_accepting;
	}
	if (!connected || !accepted)
		return time_is_up(s, why, why_len) ? RPW_ERR_TIMEOUT : 0;
	for (int i = 0; i < 2; i++) {
		out[i] = s->send[i];
		out[2 + i] = s->receive[i];
		s->send[i] = s->receive[i] = (struct nt_comm){0};
		ncclnet_close_listen(s->load->n, s->listen[i]);
		s->listen[i] = NULL;
	}
	return 1;
}

void nt_setup_drop(struct nt_setup *s)
{
	if (!s)
		return;
	const char *in = still_in(s);
	if (in)
		rpwi_info("ncclnet: plugin %s v%d is still in %s: that is left behind, and cleared "
			  "away when it comes back",
			s->load->name, s->load->n->abi, in);
	SET(s->given_up, true);
	leave(s);
}
