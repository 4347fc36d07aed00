/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_fuzz.c - QP 1 of the device in the hands of any host of the network, of the other processes
 * of this one (their packets come from its own addresses, also handed over), of its program, and of
 * time: the whole of src/device and src/cm over a network that the target plays (gsi_fake.c).
 * Packets have a right ICRC as a rule, else they reach nothing.
 *
 * Checked all along: what is sent is a MAD that we would accept ourselves, from an address of ours,
 * and never speaks for a process that lives; a packet has no more answers than the program makes it
 * have; the program is asked about its own services only; what is passed on is well-formed and goes
 * to a process that lives; no deadline is left behind; in the end nothing is left.
 */
#include "fuzz.h"

#include <stdlib.h>

#include "device/devices.h"
#include "device/gsi.h"
#include "device/gsi_priv.h"
#include "device/progress.h"
#include "fuzz_cm.h"
#include "gsi_fake.h"
#include "wire/ask.h"

enum { CONNS = 8, COMMANDS_MAX = 1000, BATCH_MAX = 4, ANSWERS_MAX = 2 };

static struct fuzz_run {
	struct fuzz_input in;
	struct rpwi_cm *cm;
	struct rpwi_cm_conn *conn[CONNS]; /* malloc'ed: ASan sees who looks at one later */
	uint8_t last[RPWI_MAD_LEN];       /* what was sent last */
	uint64_t tid;                     /* of the last question */
	unsigned sent, acts;
} run;
static const struct rpwi_addr addresses[] = {
	{.family = 4, .bytes = {127, 0, 0, 1}},
	{.family = 4, .bytes = {10, 0, 0, 1}},
	{.family = 6, .bytes = {[15] = 1}},
	{.family = 6, .bytes = {0xfe, 0x80, [15] = 1}, .scope = 2},
	/* not ours: */
	{.family = 4, .bytes = {10, 0, 0, 2}},
	{.family = 4, .bytes = {10, 0, 0, 3}},
	{.family = 6, .bytes = {0xfe, 0x80, [15] = 2}, .scope = 2},
};
enum { OURS = 4 };
static const struct rpwi_addr all = {0};
static const uint8_t guid[8] = {0x52, 1, 2, 3, 4, 5, 6, 7};

/* ---- what goes out ---- */

/* A question or an answer about processes (alive.c). */
static bool is_ask(const struct rpwi_pkt *p)
{
	struct rpwi_ask a;
	return p->opcode == (RPWI_SVC_UD | RPWI_OP_SEND_ONLY) && p->qkey == RPWI_GSI_QKEY &&
	       p->pkey == RPWI_PKEY_DEFAULT && !rpwi_ask_decode(p->payload, p->payload_len, &a) &&
	       (a.answer ? !(p->dqpn & 0xfff) : p->dqpn == RPWI_GSI_QPN || !(p->dqpn & 0xfff)) &&
	       a.from_slot == FAKE_SLOT;
}

static bool is_mad(const struct rpwi_pkt *p)
{
	return p->opcode == (RPWI_SVC_UD | RPWI_OP_SEND_ONLY) && p->dqpn == RPWI_GSI_QPN &&
	       p->qkey == RPWI_GSI_QKEY && (p->pkey | 0x8000) == RPWI_PKEY_DEFAULT &&
	       p->payload_len == RPWI_MAD_LEN;
}

void fake_sent(
	const struct rpwi_av *av, const struct rpwi_addr *from, const uint8_t *bytes, size_t len)
{
	struct rpwi_pkt p;
	struct rpwi_cm_msg m;
	uint8_t whole[RPWI_HDR_MAX + RPWI_MTU_MAX + 8] = {0};
	memcpy(whole, bytes, len);
	if (!rpwi_pkt_decode(whole, len + RPWI_ICRC_LEN, &p) && is_ask(&p)) {
		run.tid = rpwi_get_be64(p.payload + 8);
		run.sent++;
		return;
	}
	if (rpwi_pkt_decode(whole, len + RPWI_ICRC_LEN, &p) || !is_mad(&p) ||
		p.sqpn != RPWI_GSI_QPN || rpwi_cm_decode(p.payload, p.payload_len, &m))
		fuzz_broken("a MAD that we would not accept ourselves");
	if (!rpwi_addr_eq(from, &av->flow.src) || av->flow.dport != RPWI_UDP_PORT ||
		av->flow.src.family != av->flow.dst.family)
		fuzz_broken("a MAD from another address than its port's");
	unsigned slot = m.local_comm_id >> 20;
	if (m.attr != RPWI_CM_SIDR_REP && slot != FAKE_SLOT &&
		rpwi_steer_slot_reachable(NULL, (uint16_t)slot))
		fuzz_broken("a MAD in the name of another process, which lives");
	memcpy(run.last, p.payload, sizeof(run.last));
	run.sent++;
}

static void check_passed(const uint8_t *seg, size_t len, struct rpwi_pkt *p)
{
	fuzz_readable(seg, len, 1);
	if (rpwi_pkt_decode(seg, len, p) || !is_mad(p))
		fuzz_broken("something is passed on that is no MAD");
}

void fake_handed_over(const uint8_t *seg, size_t len, uint32_t qpn)
{
	struct rpwi_pkt p;
	/* for a QP: whoever has its slot looks at it */
	if (rpwi_pkt_peek_qpn(seg, len) > RPWI_GSI_QPN)
		return;
	check_passed(seg, len, &p);
	if (qpn >> RPWI_SLOT_SHIFT == FAKE_SLOT ||
		!rpwi_steer_slot_reachable(NULL, (uint16_t)(qpn >> RPWI_SLOT_SHIFT)))
		fuzz_broken("a MAD is passed on to ourselves, or to nobody");
}

void fake_handed_over_service(const uint8_t *seg, size_t len, uint64_t service_id)
{
	struct rpwi_pkt p;
	uint16_t attr;
	uint32_t id;
	uint64_t asked;
	check_passed(seg, len, &p);
	if (!rpwi_cm_peek(p.payload, p.payload_len, &attr, &id, &asked) ||
		!(attr == RPWI_CM_REJ ||
			((attr == RPWI_CM_REQ || attr == RPWI_CM_SIDR_REQ) && asked == service_id)))
		fuzz_broken(
			"a MAD is passed on to the claimant of a service that it does not name");
}

/* ---- the program ---- */

static struct rpwi_cm_conn **place_of(const struct rpwi_cm_conn *c)
{
	for (unsigned i = 0; i < CONNS; i++)
		if (run.conn[i] == c)
			return &run.conn[i];
	fuzz_broken("a connection that is not there");
}

static void destroy(struct rpwi_cm_conn **at)
{
	struct rpwi_cm_conn *c = *at;
	if (!c)
		return;
	rpwi_cm_destroy(c, rpwi_gsi_now());
	*at = NULL;
	free(c);
}

static void act(struct rpwi_cm_conn **at, uint8_t what)
{
	struct rpwi_cm_param p = {
		.qpn = FAKE_SLOT << RPWI_SLOT_SHIFT | (uint32_t)(at - run.conn), .ack_timeout = 14};
	struct rpwi_cm_conn *c = *at;
	run.acts++;
	if (!c)
		return;
	switch (what % 12) {
	case 0 ... 1:
		rpwi_cm_accept(c, guid, &p, "rep", 3, rpwi_gsi_now());
		break;
	case 2 ... 3:
		rpwi_cm_establish(c, "rtu", 3, rpwi_gsi_now());
		break;
	case 4:
		rpwi_cm_reject(c, what, NULL, 0, "rej", 3, rpwi_gsi_now());
		break;
	case 5:
		rpwi_cm_disconnect(c, rpwi_gsi_now());
		break;
	case 6:
		rpwi_cm_sidr_reply(c, what & 3, 5, 6, "sidr", 4, rpwi_gsi_now());
		break;
	case 7:
		destroy(at);
		break;
	default:
		break;
	}
}

static struct rpwi_cm_conn *on_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	uint8_t b = fuzz_u8(&run.in);
	if (!rpwi_steer_owns_service(
		    NULL, sidr ? m->sidr_req.service_id : m->req.service_id, &path->local))
		fuzz_broken("the program is asked about a service that it has not claimed");
	if (b & 0x80 || run.conn[b % CONNS]) {
		*reason = b & 0x40 ? b : 0;
		return NULL;
	}
	return run.conn[b % CONNS] = calloc(1, sizeof(struct rpwi_cm_conn));
}

static void on_incoming(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	act(place_of(c), fuzz_u8(&run.in));
}
static void on_event(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	if (ev->pdata_len)
		fuzz_readable(ev->pdata, ev->pdata_len, 1);
	act(place_of(c), fuzz_u8(&run.in));
}
static void on_addresses(void *user) {}
static const struct rpwi_gsi_user program = {.request = on_request,
	.incoming = on_incoming,
	.event = on_event,
	.addresses_changed = on_addresses};

static void begin_connection(uint8_t b)
{
	struct rpwi_cm_conn **at = &run.conn[b % CONNS];
	uint8_t where = fuzz_u8(&run.in);
	struct rpwi_cm_param p = {
		.qpn = FAKE_SLOT << RPWI_SLOT_SHIFT | b % CONNS, .starting_psn = 7};
	struct rpwi_cm_path path = {.local = addresses[where % OURS],
		.remote = addresses[(where >> 3) % RPWI_ARRAY_LEN(addresses)],
		.mtu = 3};
	if (*at || path.local.family != path.remote.family)
		return;
	*at = malloc(sizeof(**at));
	rpwi_cm_conn_init(run.cm, *at, NULL);
	(*at)->patient_until_ns = where & 0x80 ? rpwi_gsi_now() + RPWI_NS_PER_S : 0;
	if (b & 0x80)
		rpwi_cm_sidr_request(*at, &path, fake_service, "x", 1, 100, 3, rpwi_gsi_now());
	else
		rpwi_cm_connect(*at, &path, fake_service, guid, &p, "x", 1, rpwi_gsi_now());
}

static void claim_or_not(uint8_t b)
{
	const struct rpwi_addr *a = b & 0x80 ? &all : &addresses[0];
	if (b & 0x40)
		rpwi_gsi_unclaim(fake_service + b % FAKE_SERVICES, a);
	else
		rpwi_gsi_claim(fake_service + b % FAKE_SERVICES, a);
}

/* ---- what comes ---- */

static uint32_t some_id(void)
{
	uint8_t b = fuzz_u8(&run.in);
	return (uint32_t)(FAKE_SLOT + b % (FAKE_OTHERS + 2)) << 20 | b >> 4;
}

/* As the peer of a connection of ours would say it, or that of another process; changed in some
 * bytes or not. */
static void message(uint8_t mad[RPWI_MAD_LEN])
{
	uint8_t how = fuzz_u8(&run.in), own = fuzz_u8(&run.in), changes = fuzz_u8(&run.in);
	struct rpwi_cm_msg m = {.attr = (uint16_t)(RPWI_CM_REQ + fuzz_u8(&run.in) % 11)};
	const struct rpwi_cm_conn *c = how & 0x40 ? NULL : run.conn[how % CONNS];
	fuzz_cm_fill(&m, c, own);
	if (m.attr == RPWI_CM_REQ)
		m.req.service_id = fake_service + own % (FAKE_SERVICES + 1);
	if (m.attr == RPWI_CM_SIDR_REQ)
		m.sidr_req.service_id = fake_service + own % (FAKE_SERVICES + 1);
	if (m.attr != RPWI_CM_REQ && how & 0x80)
		m.remote_comm_id = some_id();
	if (how & 0x20)
		m.local_comm_id = some_id();
	rpwi_cm_encode(&m, mad);
	for (unsigned i = 0; i < (changes >= 0xc0 ? changes % 4u : 0); i++)
		mad[fuzz_u8(&run.in)] ^= fuzz_u8(&run.in);
}

static void some_mad(uint8_t mad[RPWI_MAD_LEN])
{
	uint8_t how = fuzz_u8(&run.in);
	if (how < 0xc0) {
		message(mad);
	} else if (how < 0xe0) {
		/* what we said, back to ourselves, with the IDs exchanged or not */
		memcpy(mad, run.last, RPWI_MAD_LEN);
		if (how & 1)
			memcpy(mad + RPWI_MAD_HDR_LEN, run.last + RPWI_MAD_HDR_LEN + 4, 4);
		if (how & 1)
			memcpy(mad + RPWI_MAD_HDR_LEN + 4, run.last + RPWI_MAD_HDR_LEN, 4);
	} else if (how < 0xf8) {
		struct rpwi_ask a = {.answer = how & 1,
			.tid = how & 2 ? run.tid : how,
			.from_slot = (uint16_t)(FAKE_SLOT + (how >> 2 & 1)),
			.helper_slot = how & 8 ? FAKE_SLOT + 1 : 0,
			.by_helper = how & 4,
			.n = fuzz_u8(&run.in) % (RPWI_ASK_SLOTS + 1)};
		for (unsigned i = 0; i < a.n; i++)
			a.slot[i] = (uint16_t)(FAKE_SLOT + i % (FAKE_OTHERS + 2));
		a.there[0] = fuzz_u8(&run.in);
		rpwi_ask_encode(&a, mad);
	} else {
		for (unsigned i = 0; i < RPWI_MAD_LEN; i++)
			mad[i] = fuzz_u8(&run.in);
	}
}

/* One packet, with its ICRC. */
static size_t packet(uint8_t *to, const struct rpwi_flow *flow, bool odd)
{
	uint8_t mad[RPWI_MAD_LEN + 4] = {0}, how = odd ? fuzz_u8(&run.in) : 0;
	struct rpwi_pkt p = {.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = RPWI_GSI_QPN,
		.qkey = RPWI_GSI_QKEY,
		.sqpn = RPWI_GSI_QPN,
		.payload_len = RPWI_MAD_LEN};
	some_mad(mad);
	if (how & 1)
		p.payload_len = fuzz_u16(&run.in) % sizeof(mad);
	if (how & 2)
		p.dqpn = how & 0x80 ? (uint32_t)(FAKE_SLOT + how / 16 % 4) << RPWI_SLOT_SHIFT : 0;
	if (how & 8)
		p.qkey = how & 0x80 ? 0 : 0x80010001;
	if (how & 16)
		p.pkey = how & 0x80 ? 0x7fff : 1;
	p.sqpn = how & 32 ? 7 : p.sqpn; /* a program's UD QP */
	p.pad = (uint8_t)((4 - p.payload_len % 4) % 4);
	size_t head = rpwi_pkt_encode(&p, to), n = head + p.payload_len + p.pad;
	if (how & 4)
		to[0] = fuzz_u8(&run.in); /* opcode */
	memset(to + head, 0, p.payload_len + p.pad);
	memcpy(to + head, mad, p.payload_len);
	struct rpwi_iov part = {to + head, n - head};
	uint32_t icrc = rpwi_icrc(flow, 0, to, head, &part, 1, 0);
	memcpy(to + n, &icrc, sizeof(icrc));
	if (how & 64 && how & 1)
		return fuzz_u16(&run.in) % (n + RPWI_ICRC_LEN + 1);
	return n + RPWI_ICRC_LEN;
}

static void come(uint8_t b)
{
	uint8_t bytes[BATCH_MAX][RPWI_HDR_MAX + RPWI_MAD_LEN + 16], where = fuzz_u8(&run.in);
	unsigned n = b & 0x80 ? 1 + b % BATCH_MAX : 1;
	struct fake_batch got = {.flow = {.src = addresses[where % RPWI_ARRAY_LEN(addresses)],
					 .dst = addresses[(where >> 4) % OURS],
					 .sport = 5000,
					 .dport = RPWI_UDP_PORT}};
	if (got.flow.src.family != got.flow.dst.family)
		got.flow.dst = addresses[got.flow.src.family == 4 ? 0 : 2];
	size_t len[BATCH_MAX], total = 0;
	for (unsigned i = 0; i < n; i++) {
		len[i] = packet(bytes[i], &got.flow, b & 0x10);
		total += len[i];
		if (len[i] != len[0]) /* the last one may be shorter, but then it is the last */
			n = len[i] < len[0] ? i + 1 : i;
	}
	if (n && len[n - 1] > len[0])
		n--;
	got.data = malloc(total ? total : 1);
	for (unsigned i = 0; i < n; got.len += len[i], i++)
		memcpy(got.data + got.len, bytes[i], len[i]);
	got.seg_len = len[0];
	struct fake_batch *to = b & 0x20 ? &fake.handed : &fake.to_port;
	if (!got.len || to->data) {
		free(got.data);
		return;
	}
	*to = got;
	unsigned sent = run.sent, acts = run.acts;
	progress_run(true);
	if (run.sent - sent > n * ANSWERS_MAX + 2 * (run.acts - acts))
		fuzz_broken("a packet has more answers than it may have");
	free(fake.to_port.data); /* nobody has that port open */
	fake.to_port.data = NULL;
}

/* ---- time ---- */

static uint64_t next_deadline(void) { return RPWI_MIN(gsi_deadline(), gsi_defer_deadline()); }

static void pass(uint64_t until_ns)
{
	fuzz_clock.now_ns = RPWI_MAX(fuzz_clock.now_ns, until_ns);
	progress_run(true);
	if (next_deadline() <= fuzz_clock.now_ns)
		fuzz_broken("a deadline is left behind");
}

static void advance(uint8_t b)
{
	uint64_t next = next_deadline();
	pass(b & 1 && next != RPWI_NEVER
			? next
			: fuzz_clock.now_ns + ((uint64_t)fuzz_u16(&run.in) << (b & 31)));
}

static void addresses_change(void)
{
	fake.address_gone = !fake.address_gone;
	hca_unlock();
	dev_refresh();
	hca_lock();
}

static void port_turn(uint8_t b)
{
	char why[RPWI_WHY_LEN];
	fake.port_taken = b & 0x80;
	if (b & 0x40)
		rpwi_gsi_port_put(&addresses[b % OURS]);
	else
		rpwi_gsi_port_get(&addresses[b % OURS], why, sizeof(why));
	fake.port_taken = b & 0x20;
}

static void command(void)
{
	uint8_t what = fuzz_u8(&run.in), b = fuzz_u8(&run.in);
	switch (what % 16) {
	case 0:
		begin_connection(b);
		break;
	case 1:
		claim_or_not(b);
		break;
	case 2:
		fake.slots_exist = b >> 4;
		fake.slots_reachable = b & 15;
		break;
	case 3:
		fake.services_elsewhere = b & ~(fake.claimed_all | fake.claimed_here) & 15;
		break;
	case 4 ... 5:
		act(&run.conn[b % CONNS], what >> 4);
		break;
	case 6 ... 7:
		advance(b);
		break;
	case 8:
		if (b & 7)
			port_turn(b);
		else
			addresses_change();
		break;
	case 9:
		fake.send_fails = b & 1;
		break;
	default:
		come(b);
	}
}

static void begin(void)
{
	char why[RPWI_WHY_LEN];
	memset(&fake, 0, sizeof(fake));
	rpwi_gsi_lock();
	rpwi_gsi_attach(&program);
	if (rpwi_gsi_get(&run.cm))
		fuzz_broken("no device");
	fuzz_clock.now_ns = 1000 * RPWI_NS_PER_S;
	fuzz_clock.random = fuzz_u8(&run.in);
	for (unsigned i = 0; i < 3; i++)
		if (rpwi_gsi_port_get(&addresses[i], why, sizeof(why)))
			fuzz_broken("no port");
	rpwi_gsi_claim(fake_service, &all);
}

static void end(void)
{
	fake.claimed_here = fake.claimed_all = 0; /* what is held is refused now */
	for (unsigned i = 0; i < CONNS; i++)
		destroy(&run.conn[i]);
	for (int i = 0; i < 64; i++)
		pass(fuzz_clock.now_ns + 60 * RPWI_NS_PER_S);
	if (next_deadline() != RPWI_NEVER)
		fuzz_broken("something is left over");
	rpwi_gsi_put();
	rpwi_gsi_unlock();
	if (fake.ports_open)
		fuzz_broken("a port is left open");
	free(fake.handed.data);
	free(fake.read);
	fuzz_clock.now_ns = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	begin();
	for (int n = 0; run.in.left && n < COMMANDS_MAX; n++)
		command();
	end();
	return 0;
}
