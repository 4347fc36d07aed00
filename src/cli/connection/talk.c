/* SPDX-License-Identifier: BSD-3-Clause */
/* talk.c - the control path: boot.h's, over which the two sides say which plugin and version they
 * have, exchange handles, wait for each other after each step, and say why they give up. */
#include "cli/connection/connection.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "ropeway.h"

enum { TALK_HELLO = 1, TALK_STEP = 2, TALK_GAVE_UP = 3 };
/* Of the hello: version of this talk, API version, exported versions, largest message (8 bytes),
 * length of the name, length of the handle, length of where it listens; then the name, the handle
 * and that text. */
enum { TALK_VERSION = 2, HELLO_HEAD = 22, TRY_MIN_MS = 100, TRY_MAX_MS = 2000, FAREWELL_MS = 300 };

/* A peer's words, for a terminal. */
static void take_text(char *out, size_t out_len, const uint8_t *text, size_t len)
{
	snprintf(out, out_len, "%.*s", (int)RPWI_MIN(len, out_len), (const char *)text);
	rpwi_cli_printable(out, out, out_len);
}

/* ---- hellos ---- */

static int say_hello(struct connection *c, struct boot_conn *to)
{
	uint8_t m[HELLO_HEAD + sizeof(c->peer.plugin) + NCCL_NET_HANDLE_BYTES + sizeof(c->where)];
	const char *name = c->own.name;
	size_t name_len = strnlen(name, sizeof(c->peer.plugin) - 1), where_len = strlen(c->where);
	uint8_t *at = m + HELLO_HEAD;
	rpwi_put_be16(m, TALK_VERSION);
	rpwi_put_be16(m + 2, (uint16_t)c->own.abi);
	rpwi_put_be32(m + 4, c->own.exported);
	rpwi_put_be64(m + 8, c->o.size_max);
	rpwi_put_be16(m + 16, (uint16_t)name_len);
	rpwi_put_be16(m + 18, (uint16_t)c->own.handle_bytes);
	rpwi_put_be16(m + 20, (uint16_t)where_len);
	memcpy(at, name, name_len);
	memcpy(at += name_len, c->own.handle, c->own.handle_bytes);
	memcpy(at += c->own.handle_bytes, c->where, where_len);
	return boot_send(to, TALK_HELLO, m, (size_t)(at - m) + where_len);
}

/* False: it is no test_connection's. */
static bool take_hello(struct connection_peer *p, const uint8_t *m, size_t len)
{
	if (len < HELLO_HEAD || rpwi_get_be16(m) != TALK_VERSION)
		return false;
	size_t name_len = rpwi_get_be16(m + 16), where_len = rpwi_get_be16(m + 20);
	*p = (struct connection_peer){.abi = rpwi_get_be16(m + 2),
		.exported = rpwi_get_be32(m + 4),
		.size_max = (size_t)rpwi_get_be64(m + 8),
		.handle_len = rpwi_get_be16(m + 18)};
	if (p->handle_len > sizeof(p->handle) ||
		len != HELLO_HEAD + name_len + p->handle_len + where_len ||
		(!ncclnet_releases(p->abi) && !connection_table(p->abi)))
		return false;
	take_text(p->plugin, sizeof(p->plugin), m + HELLO_HEAD, name_len);
	memcpy(p->handle, m + HELLO_HEAD + name_len, p->handle_len);
	take_text(p->where, sizeof(p->where), m + HELLO_HEAD + name_len + p->handle_len, where_len);
	return true;
}

static const char *other(const struct connection *c)
{
	return connection_is_server(c) ? "client" : "server";
}

/* Handles of one version or plugin mean nothing to another: mixing them is what shows as
 * "recv_comm=(nil)" and "unknown mem type 0" elsewhere. */
static void compare(struct connection *c)
{
	const struct connection_peer *p = &c->peer;
	const char *own = c->own.name;
	unsigned common = p->exported & c->own.exported;
	int lower = RPWI_MIN(p->abi, c->own.abi);
	char ours[80], theirs[80];
	const char *table = connection_table(p->abi), *here = connection_table(c->own.abi);
	if (!table != !here)
		connection_fail(c, "%s tests %s, you %s: give both --rma, or neither", other(c),
			table ? "one-sided operations" : "messages",
			here ? "one-sided operations" : "messages");
	else if (strncmp(p->plugin, own, sizeof(p->plugin) - 1) != 0)
		connection_fail(c,
			"%s uses the plugin \"%s\", you \"%s\": handles of one mean nothing to the "
			"other; start both with the same --plugin",
			other(c), p->plugin, own);
	else if (p->abi != c->own.abi && table)
		connection_fail(c, "%s uses %s, you %s: give both the same --rma=TABLE", other(c),
			table, here);
	else if (p->abi != c->own.abi && common)
		connection_fail(c, "%s uses v%d, you v%d; start both with --abi v%d", other(c),
			p->abi, c->own.abi,
			common >> lower & 1 ? lower : 31 - __builtin_clz(common));
	else if (p->abi != c->own.abi) {
		connection_fail(c,
			"%s uses v%d, you v%d, and no version is in both plugins (there: %s; here: "
			"%s): install the same plugin on both sides",
			other(c), p->abi, c->own.abi,
			ncclnet_versions(p->exported, theirs, sizeof(theirs)),
			ncclnet_versions(c->own.exported, ours, sizeof(ours)));
	} else if (p->handle_len != c->own.handle_bytes)
		connection_fail(c, "the %s's handle has %zu bytes, those of v%d have %zu", other(c),
			p->handle_len, p->abi, c->own.handle_bytes);
	c->o.size_max = RPWI_MIN(c->o.size_max, p->size_max);
}

/* ---- up-calls ---- */

static void drop(struct talk_peer *p)
{
	struct boot_conn *conn = p->c;
	p->c = NULL;
	boot_close(conn);
}

static void accepted(void *user, void *listener_user, struct boot_conn *conn)
{
	struct talk *t = user;
	struct talk_peer *p = &t->candidate[0];
	for (unsigned i = 0; i < TALK_CANDIDATES_MAX; i++)
		if (!t->candidate[i].c)
			p = &t->candidate[i];
	if (t->peer) {
		static const char busy[] = "it is busy with another client";
		boot_send(conn, TALK_GAVE_UP, busy, strlen(busy));
		boot_close(conn);
		return;
	}
	if (p->c)
		drop(p);
	*p = (struct talk_peer){.talk = t, .c = conn};
	boot_set_user(conn, p);
}

static void connected(void *user, const struct rpwi_error *e)
{
	struct talk_peer *p = user;
	struct talk *t = p->talk;
	t->dialled = true;
	t->dial_status = e ? e->status : 0;
	if (e) {
		snprintf(t->text, sizeof(t->text), "%s", e->text);
		drop(p);
	}
}

static void gave_up(struct talk_peer *p, const uint8_t *data, size_t len)
{
	struct connection *c = p->talk->owner;
	char why[700];
	take_text(why, sizeof(why), data, len);
	if (p == p->talk->peer || !connection_is_server(c))
		connection_fail(c, "the %s gave up: %s", other(c), why);
	drop(p);
}

static void message(void *user, unsigned type, const uint8_t *data, size_t len)
{
	struct talk_peer *p = user;
	struct talk *t = p->talk;
	struct connection *c = t->owner;
	if (type == TALK_GAVE_UP)
		gave_up(p, data, len);
	else if (type == TALK_STEP && p == t->peer)
		t->steps_heard++;
	else if (type == TALK_HELLO && !t->peer && take_hello(&c->peer, data, len)) {
		t->peer = p;
		snprintf(t->text, sizeof(t->text), "%s", boot_peer_text(p->c));
		/* also to one that does not fit: it says so to its people */
		if (connection_is_server(c))
			say_hello(c, p->c);
		compare(c);
	} else {
		connection_say(c,
			"%s is not a test_connection of this version: message %u of %zu bytes",
			boot_peer_text(p->c), type, len);
		if (!connection_is_server(c))
			connection_fail(c,
				"what listens there is ropeway, but no test_connection of this "
				"version. Is the port the one that the server printed?");
		drop(p);
	}
}

static void gone(void *user, const struct rpwi_error *e)
{
	struct talk_peer *p = user;
	struct talk *t = p->talk;
	bool was_peer = p == t->peer || !connection_is_server(t->owner),
	     was_over = t->last && t->steps_heard >= t->steps_said;
	if (was_peer && !was_over)
		connection_fail(t->owner,
			"the other side is gone: %s. Its own last lines say why; was it killed?",
			e->text);
	drop(p);
}

static const struct boot_up up = {
	.accepted = accepted, .connected = connected, .message = message, .gone = gone};

/* ---- waiting ---- */

/* 0, or -1 where the peer is gone or has said why it gives up. */
static int talk_poll(struct connection *c)
{
	if (c->talk.b)
		boot_progress(c->talk.b);
	return c->failed ? -1 : 0;
}

/* Until something may have happened on the control path, at most 100 ms. */
static void sleep_for_talk(struct talk *t)
{
	struct pollfd fd = {.fd = boot_fd(t->b), .events = POLLIN};
	uint64_t now = rpwi_now_ns(),
		 until = RPWI_MIN(boot_deadline(t->b), now + 100 * RPWI_NS_PER_MS);
	poll(&fd, 1, until <= now ? 0 : (int)((until - now) / RPWI_NS_PER_MS) + 1);
}

static bool is_late(const struct connection *c)
{
	return rpwi_now_ns() >= atomic_load(&c->deadline_ns);
}

bool connection_wait(struct side *side, unsigned *idle)
{
	enum { SPINS = 200, NAP_US = 100 };
	struct connection *c = (struct connection *)side;
	if (++*idle <= SPINS && *idle % 64)
		return true;
	if (talk_poll(c))
		return false;
	/* the plugin may need it for what the other side does */
	if (c->comm.coll && !rma_progress(&c->rma, &c->comm))
		return !connection_fail(c, "%s", c->side.text);
	if (rpwi_now_ns() >= atomic_load(&c->deadline_ns))
		return !connection_fail(c,
			"%s: not over within %u s (--timeout); the peer %s is still there: what "
			"does it wait for?",
			atomic_load(&c->doing), c->o.timeout_ms / 1000, c->talk.text);
	if (*idle > SPINS)
		usleep(NAP_US);
	return true;
}

/* ---- finding each other ---- */

/* The server's: where it listens, or where it is to be found. */
static void address_of(const struct connection *c, char *out, size_t room)
{
	const char *host = c->o.server ? c->o.server : c->o.bind;
	bool is_bare_v6 = strchr(host, ':') && *host != '[';
	snprintf(out, room, is_bare_v6 ? "[%.300s]:%d" : "%.300s:%d", host, c->o.port);
}

int talk_open(struct connection *c)
{
	struct talk *t = &c->talk;
	struct tran_facts own;
	char address[400];
	t->owner = c;
	boot_own_facts(&own);
	snprintf(own.transports, sizeof(own.transports), "ncclnet");
	if (boot_new(&up, t, &own, NULL, &t->b))
		return connection_fail(c, "%s", rpwi_last_error()->text);
	if (!connection_is_server(c))
		return 0;
	address_of(c, address, sizeof(address));
	if (boot_listen(t->b, address, t, &t->listener))
		return connection_fail(c, "%s", rpwi_last_error()->text);
	connection_say(c, "waiting for a client on port %d of %s, for %u s at most",
		boot_listener_port(t->listener), *c->o.bind ? c->o.bind : "all addresses",
		c->o.wait_ms / 1000);
	return 0;
}

/* Until the other side has said hello: 0; 1: it is too late; -1: failed. */
static int await_hello(struct connection *c)
{
	while (!c->talk.peer) {
		sleep_for_talk(&c->talk);
		if (talk_poll(c))
			return -1;
		if (!c->talk.peer && is_late(c))
			return 1;
	}
	return 0;
}

static int await_client(struct connection *c)
{
	int rc = await_hello(c);
	if (rc <= 0)
		return rc;
	return connection_fail(c,
		"no client has come within %u s (%llu strangers have). On the other machine, start "
		"`test_connection client ADDRESS --port %d` with an address of this one that it "
		"can reach",
		c->o.wait_ms / 1000, (unsigned long long)boot_strangers(c->talk.b),
		boot_listener_port(c->talk.listener));
}

/* One try of boot's, which is several of TCP's. 1: not yet, try again. */
static int try_server(struct connection *c, const char *address, unsigned timeout_ms)
{
	struct talk *t = &c->talk;
	struct talk_peer *p = &t->candidate[0];
	uint64_t until = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	*p = (struct talk_peer){.talk = t};
	t->dialled = false;
	if (boot_connect(t->b, address, timeout_ms, p, &p->c))
		return connection_fail(c, "%s", rpwi_last_error()->text);
	while (!t->dialled) {
		sleep_for_talk(t);
		if (talk_poll(c))
			return -1;
	}
	if (!t->dial_status)
		return 0;
	/* Before its time: what another try cannot change. */
	return rpwi_now_ns() < until || t->dial_status == RPW_ERR_REFUSED
		       ? connection_fail(c, "%s", t->text)
		       : 1;
}

static int dial_server(struct connection *c)
{
	char address[400];
	unsigned timeout_ms = TRY_MIN_MS;
	address_of(c, address, sizeof(address));
	for (unsigned n = 1;; n++) {
		uint64_t now = rpwi_now_ns(), end = atomic_load(&c->deadline_ns);
		uint64_t left_ms = end > now ? (end - now) / RPWI_NS_PER_MS : 0;
		int rc = try_server(c, address,
			(unsigned)RPWI_MIN((uint64_t)timeout_ms, RPWI_MAX(left_ms, 1ull)));
		if (rc <= 0)
			return rc;
		if (is_late(c))
			return connection_fail(
				c, "no server within %u s: %s", c->o.wait_ms / 1000, c->talk.text);
		connection_say(c, "retry %u: %s", n, c->talk.text);
		timeout_ms = RPWI_MIN(2 * timeout_ms, (unsigned)TRY_MAX_MS);
	}
}

static int await_server(struct connection *c)
{
	if (dial_server(c))
		return -1;
	if (say_hello(c, c->talk.candidate[0].c))
		return connection_fail(c, "the server disconnected before any exchange");
	int rc = await_hello(c);
	if (rc <= 0)
		return rc;
	return connection_fail(c,
		"the server took the connection and says nothing within %u s: is it stopped, or "
		"busy in a call of its plugin?",
		c->o.wait_ms / 1000);
}

int talk_exchange(struct connection *c)
{
	return connection_is_server(c) ? await_client(c) : await_server(c);
}

int talk_step(struct connection *c)
{
	struct talk *t = &c->talk;
	uint8_t step[4];
	rpwi_put_be32(step, ++t->steps_said);
	if (talk_poll(c))
		return -1;
	if (boot_send(t->peer->c, TALK_STEP, step, sizeof(step)))
		return connection_fail(c, "the other side is gone");
	for (unsigned idle = 0; t->steps_heard < t->steps_said;)
		if (!connection_wait(&c->side, &idle))
			return -1;
	return 0;
}

/* ---- the end ---- */

void talk_close(struct connection *c)
{
	struct talk *t = &c->talk;
	uint64_t until = rpwi_now_ns() + FAREWELL_MS * RPWI_NS_PER_MS;
	if (!t->b)
		return;
	for (unsigned i = 0; i < TALK_CANDIDATES_MAX; i++) {
		struct talk_peer *p = &t->candidate[i];
		if (p->c && p == t->peer && c->failed)
			boot_send(p->c, TALK_GAVE_UP, c->why, strlen(c->why));
		if (p->c)
			drop(p);
	}
	while (c->failed && t->peer && rpwi_now_ns() < until) {
		boot_progress(t->b);
		usleep(10 * 1000);
	}
	boot_free(t->b);
	t->b = NULL;
}
