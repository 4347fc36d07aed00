/* SPDX-License-Identifier: BSD-3-Clause */
/* cm_fuzz.c - the communication manager in the hands of its peers, its program and its clock, all
 * played by the input.
 *
 * Messages are raw bytes, or well-formed ones for a connection of the engine with some bytes
 * changed: only those reach far. Checked all along: nothing is told to a destroyed connection, or
 * out of order; the deadline is never left behind; and in the end, when all have been destroyed and
 * time has passed, nothing is left.
 */
#include "fuzz.h"

#include <stdlib.h>

#include "fuzz_cm.h"

enum { CONNS = 8, COMMANDS_MAX = 2000, PEERS = 3 };

static struct fuzz_run {
	struct fuzz_input in;
	struct rpwi_cm *cm;
	uint64_t now_ns;
	struct conn {
		struct rpwi_cm_conn *c; /* malloc'ed: ASan sees who looks at it later */
		unsigned established, ended;
	} conn[CONNS];
	uint8_t last[RPWI_MAD_LEN]; /* what the engine sent last: to be sent back to it, or again */
	uint32_t random;
} run;

static uint32_t u32(struct fuzz_input *in)
{
	uint32_t hi = fuzz_u16(in);
	return hi << 16 | fuzz_u16(in);
}

static struct rpwi_addr addr(unsigned i)
{
	return (struct rpwi_addr){.family = 4, .bytes = {10, 0, 0, (uint8_t)(1 + i % PEERS)}};
}
static struct rpwi_cm_path path_to(unsigned peer)
{
	return (struct rpwi_cm_path){
		.local = {.family = 4, .bytes = {10, 0, 1, 1}}, .remote = addr(peer), .mtu = 3};
}
static const uint8_t guid[8] = {0x52, 1, 2, 3, 4, 5, 6, 7};

static struct conn *slot_of(const struct rpwi_cm_conn *c)
{
	for (unsigned i = 0; i < CONNS; i++)
		if (run.conn[i].c == c)
			return &run.conn[i];
	fuzz_broken("a connection that is not there");
}

static void destroy(struct conn *s)
{
	struct rpwi_cm_conn *c = s->c;
	if (!c)
		return;
	s->c = NULL;
	rpwi_cm_destroy(c, run.now_ns);
	free(c);
}

/* ---- Surroundings ---- */

static void op_send(void *user, const struct rpwi_cm_path *path, const uint8_t *mad)
{
	struct rpwi_cm_msg m;
	if (rpwi_cm_decode(mad, RPWI_MAD_LEN, &m))
		fuzz_broken("a MAD that we would not accept ourselves");
	memcpy(run.last, mad, sizeof(run.last));
}

static struct rpwi_cm_conn *op_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	uint8_t b = fuzz_u8(&run.in);
	struct conn *s = &run.conn[b % CONNS];
	if (b & 0x80 || s->c) {
		*reason = b & 0x40 ? b : 0;
		return NULL;
	}
	*s = (struct conn){.c = calloc(1, sizeof(*s->c))};
	return s->c;
}

static void act(struct conn *s, uint8_t what);
static void op_incoming(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	if (c->state != (c->sidr ? RPWI_CM_SIDR_REQ_RCVD : RPWI_CM_REQ_RCVD) || !c->passive)
		fuzz_broken("a request in another state");
	act(slot_of(c), fuzz_u8(&run.in));
}

static void op_event(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	struct conn *s = slot_of(c);
	uint8_t pdata[256];
	if (ev->pdata_len)
		memcpy(pdata, ev->pdata, ev->pdata_len); /* it can be read */
	switch (ev->type) {
	case RPWI_CM_EV_REP:
		if (c->passive || s->established || s->ended)
			fuzz_broken("a REP out of order");
		break;
	case RPWI_CM_EV_ESTABLISHED:
		if (!c->passive || s->established++ || s->ended)
			fuzz_broken("established twice, or too late");
		break;
	case RPWI_CM_EV_TIMEWAIT_EXIT:
		if (c->state != RPWI_CM_IDLE)
			fuzz_broken("out of TIMEWAIT, but not idle");
		break;
	default:
		if (s->ended++)
			fuzz_broken("a second end");
		break;
	}
	act(s, fuzz_u8(&run.in));
}

static uint32_t op_random(void *user) { return run.random = run.random * 1664525 + 1013904223; }
static void op_moved(
	void *user, struct rpwi_cm_conn *c, enum rpwi_cm_state from, enum rpwi_cm_state to)
{
	if (from == to || c->state != to || (unsigned)to >= RPWI_CM_STATE_COUNT)
		fuzz_broken("a move to nowhere");
}
static const struct rpwi_cm_ops ops = {
	op_send, op_request, op_incoming, op_event, op_random, op_moved};

/* ---- The program ---- */

static void begin(struct conn *s, bool sidr)
{
	struct rpwi_cm_param p = {.qpn = 0x100 + (uint32_t)(s - run.conn),
		.starting_psn = 7,
		.ack_timeout = fuzz_u8(&run.in) & 31};
	struct rpwi_cm_path path = path_to(fuzz_u8(&run.in));
	if (s->c && s->c->state != RPWI_CM_IDLE)
		return;
	if (!s->c) {
		s->c = malloc(sizeof(*s->c));
		rpwi_cm_conn_init(run.cm, s->c, NULL);
	}
	s->established = s->ended = 0;
	int rc = sidr ? rpwi_cm_sidr_request(s->c, &path, 0x111, "x", 1, fuzz_u16(&run.in),
				fuzz_u8(&run.in), run.now_ns)
		      : rpwi_cm_connect(s->c, &path, 0x1064000, guid, &p, "x", 1, run.now_ns);
	if (rc)
		fuzz_broken("it cannot begin");
}

static void act(struct conn *s, uint8_t what)
{
	struct rpwi_cm_param p = {.qpn = 0x100 + (uint32_t)(s - run.conn), .ack_timeout = 14};
	if (!s->c)
		return;
	switch (what % 12) {
	case 0:
		rpwi_cm_accept(s->c, guid, &p, "rep", 3, run.now_ns);
		break;
	case 1:
		if (!rpwi_cm_establish(s->c, "rtu", 3, run.now_ns) && s->established++)
			fuzz_broken("established twice");
		break;
	case 2:
		rpwi_cm_comm_established(s->c, run.now_ns);
		break;
	case 3:
		if (!rpwi_cm_reject(s->c, what, "ari", 3, "rej", 3, run.now_ns))
			s->ended++;
		break;
	case 4:
	case 5:
		rpwi_cm_disconnect(s->c, run.now_ns);
		break;
	case 6:
		if (!rpwi_cm_sidr_reply(s->c, what & 3, 5, 6, "sidr", 4, run.now_ns))
			s->ended++;
		break;
	case 7:
		rpwi_cm_peer_gone(s->c, run.now_ns);
		break;
	case 8:
		destroy(s);
		break;
	default:
		break;
	}
}

/* ---- The peers ---- */

static void deliver(unsigned peer, const uint8_t *mad, size_t len)
{
	struct rpwi_cm_path path = path_to(peer);
	uint8_t *exact = malloc(len ? len : 1);
	memcpy(exact, mad, len);
	rpwi_cm_rx(run.cm, &path, exact, len, run.now_ns);
	free(exact);
}

static void raw(uint8_t b)
{
	uint8_t mad[RPWI_MAD_LEN + 4];
	size_t len = b & 0x80 ? fuzz_u16(&run.in) % (sizeof(mad) + 1) : RPWI_MAD_LEN;
	for (size_t i = 0; i < sizeof(mad); i++)
		mad[i] = fuzz_u8(&run.in);
	deliver(b, mad, len);
}

static void structured(uint8_t b)
{
	struct conn *s = &run.conn[b % CONNS];
	struct rpwi_cm_msg m = {.attr = (uint16_t)(RPWI_CM_REQ + fuzz_u8(&run.in) % 11)};
	uint8_t mad[RPWI_MAD_LEN], own = fuzz_u8(&run.in), changes = fuzz_u8(&run.in);
	fuzz_cm_fill(&m, s->c, own);
	rpwi_cm_encode(&m, mad);
	for (unsigned i = 0; i < (changes >= 0xc0 ? changes % 4u : 0); i++)
		mad[24 + fuzz_u8(&run.in) % (RPWI_MAD_LEN - 24)] ^= fuzz_u8(&run.in);
	unsigned peer = changes & 0x20 || !s->c ? changes : s->c->path.remote.bytes[3] - 1u;
	deliver(peer, mad, sizeof(mad));
}

/* What we said, back to ourselves, with the IDs exchanged or not. */
static void echo(uint8_t b)
{
	uint8_t mad[RPWI_MAD_LEN];
	memcpy(mad, run.last, sizeof(mad));
	if (b & 0x80) {
		memcpy(mad + 24, run.last + 28, 4);
		memcpy(mad + 28, run.last + 24, 4);
	}
	if (b & 0x40)
		mad[17] = (uint8_t)(RPWI_CM_REQ + fuzz_u8(&run.in) % 9);
	deliver(b, mad, sizeof(mad));
}

/* ---- Time ---- */

static void pass(uint64_t until_ns)
{
	run.now_ns = RPWI_MAX(run.now_ns, until_ns);
	rpwi_cm_timer(run.cm, run.now_ns);
	if (rpwi_cm_deadline(run.cm) <= run.now_ns)
		fuzz_broken("a deadline is left behind");
}

static void advance(uint8_t b)
{
	uint64_t next = rpwi_cm_deadline(run.cm);
	if (b & 1 && next != RPWI_NEVER)
		pass(next);
	else
		pass(run.now_ns + ((uint64_t)u32(&run.in) << (b >> 4)));
}

static unsigned counted;
static void count(struct rpwi_cm_conn *c, void *arg)
{
	slot_of(c);
	counted++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	run.now_ns = 1000;
	run.random = fuzz_u8(&run.in);
	if (rpwi_cm_new(&run.cm, &ops, NULL, 0x123))
		fuzz_broken("no memory");
	for (int n = 0; run.in.left && n < COMMANDS_MAX; n++) {
		uint8_t what = fuzz_u8(&run.in), b = fuzz_u8(&run.in);
		struct conn *s = &run.conn[b % CONNS];
		switch (what % 16) {
		case 0:
		case 1:
			begin(s, what & 0x10);
			break;
		case 2:
		case 3:
		case 4:
			act(s, what >> 4);
			break;
		case 5:
		case 6:
			advance(b);
			break;
		case 7:
			raw(b);
			break;
		case 8:
			echo(b);
			break;
		default:
			structured(b);
			break;
		}
	}
	counted = 0;
	rpwi_cm_each(run.cm, count, NULL);
	if (counted > CONNS)
		fuzz_broken("more connections than there are");
	for (unsigned i = 0; i < CONNS; i++)
		destroy(&run.conn[i]);
	for (int i = 0; i < 4; i++) /* what lingers speaks a few times, waits, and goes */
		for (int k = 0; k < 16; k++)
			pass(run.now_ns + 60 * RPWI_NS_PER_S);
	if (rpwi_cm_deadline(run.cm) != RPWI_NEVER)
		fuzz_broken("something is left over");
	rpwi_cm_free(run.cm);
	return 0;
}
