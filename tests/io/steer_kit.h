/* SPDX-License-Identifier: BSD-3-Clause */
/* steer_kit.h - processes on one port, for the tests of who gets which packet: this process and its
 * children, on port 4791 of one address of a namespace. */
#ifndef ROPEWAY_TESTS_STEER_KIT_H
#define ROPEWAY_TESTS_STEER_KIT_H

#include "ns.h"

#include <poll.h>
#include <signal.h>

enum { KIDS = 6, SEEN = 1 << 16 };

/* One process's side, in memory that all share. Index 0 is the test itself. */
struct member {
	volatile int state; /* 1 ready, -1 failed */
	volatile int quit, nap_us, rcvbuf;
	volatile bool shares; /* the port is held by another user */
	uint16_t slot;
	pid_t pid;
	volatile uint64_t arrived, bad, handed, taken, resteered, overflow;
	uint8_t seen[SEEN]; /* by PSN */
};
static struct member *members;
static struct rpwi_steer *steer;
static struct rpwi_port *port;
static struct rpwi_txb *txb;

static uint32_t qpn_of(const struct member *m) { return (uint32_t)m->slot << RPWI_SLOT_SHIFT | 3; }

static void take_segment(struct member *m, struct rpwi_port *p, struct rpwi_rx *rx, uint8_t *seg,
	size_t len, unsigned index)
{
	struct rpwi_pkt pkt;
	int32_t qpn = rpwi_pkt_peek_qpn(seg, len);
	if (qpn < 0) {
		m->bad++;
		return;
	}
	if (!rpwi_steer_owns(steer, (uint32_t)qpn)) {
		if (p)
			rpwi_port_hand_over(p, rx, seg, len, (uint32_t)qpn);
		else
			m->bad++;
		return;
	}
	uint16_t id = (uint16_t)((rx->ip_id >= 0 ? rx->ip_id : 0) + (int)index);
	bool good = rpwi_icrc_check(&rx->flow, seg, len, &id) == RPWI_ICRC_OK &&
		    !rpwi_pkt_decode(seg, len, &pkt) && pkt.dqpn == qpn_of(m) && pkt.psn < SEEN;
	for (uint32_t i = 0; good && i < pkt.payload_len; i++)
		good = pkt.payload[i] == pattern(m->slot, pkt.psn, i);
	if (good)
		m->seen[pkt.psn]++;
	else
		m->bad++;
	m->arrived++;
}

static void take(struct member *m, struct rpwi_port *p, struct rpwi_rx *rx)
{
	unsigned index = 0;
	for (size_t at = 0; at < rx->len; at += rx->seg_len)
		take_segment(m, p, rx, rx->data + at, RPWI_MIN(rx->seg_len, rx->len - at), index++);
}

/* What a device's service thread does, once. */
static void serve(struct member *m)
{
	struct rpwi_rx rx;
	struct rpwi_port_stats st;
	while (port && rpwi_port_recv(port, &rx) > 0) {
		take(m, port, &rx);
		if (m->nap_us)
			usleep((useconds_t)m->nap_us);
	}
	while (rpwi_steer_recv(steer, &rx) > 0)
		take(m, NULL, &rx);
	if (!port)
		return;
	rpwi_port_timer(port, rpwi_now_ns());
	rpwi_port_stats(port, &st);
	m->handed = st.handed_over;
	m->taken = st.taken_over;
	m->resteered = st.resteered;
	m->overflow = st.rx_overflow;
	m->shares = rpwi_port_fd(port) < 0;
}

static bool open_all(struct member *m, const struct rpwi_addr *a)
{
	char why[RPWI_WHY_LEN];
	int rc = rpwi_steer_open(&steer);
	if (!rc)
		rc = rpwi_port_open(steer, a, false, &port, why, sizeof(why));
	if (rc) {
		fprintf(stderr, "member: %s: %s\n", strerror(-rc), why);
		return false;
	}
	rpwi_steer_slots(steer, &m->slot, 1);
	m->shares = rpwi_port_fd(port) < 0;
	return true;
}

static void close_all(void)
{
	rpwi_port_close(port);
	rpwi_steer_close(steer);
	port = NULL;
	steer = NULL;
}

static void kid_main(struct member *m, const struct rpwi_addr *a, uid_t uid)
{
	if (uid)
		setenv("ROPEWAY_SHARE_PORT", "1", 1);
	if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		_exit(3);
	m->state = open_all(m, a) ? 1 : -1;
	while (m->state == 1 && !m->quit) {
		struct pollfd f[2] = {{.fd = rpwi_port_fd(port), .events = POLLIN},
			{.fd = rpwi_steer_fd(steer), .events = POLLIN}};
		poll(f, 2, 1);
		if (m->rcvbuf) {
			int bytes = m->rcvbuf;
			setsockopt(
				rpwi_port_fd(port), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
			/* the kernel doubles it (socket(7)) */
			rpwi_pace_set_limit(rpwi_steer_pace(steer), 2 * (size_t)bytes);
			m->rcvbuf = 0;
		}
		serve(m);
	}
	if (m->state == 1)
		close_all();
	_exit(0);
}

static void spawn_as(unsigned i, const struct rpwi_addr *a, uid_t uid)
{
	struct member *m = &members[i];
	memset(m, 0, sizeof(*m));
	pid_t pid = fork(); /* not into m at once: the child shares it */
	assert_true(pid >= 0);
	if (!pid) {
		if (steer) {
			rpwi_io_atfork_child();
			close_all();
		}
		kid_main(m, a, uid);
	}
	m->pid = pid;
	for (int k = 0; k < 5000 && !m->state; k++) {
		if (steer)
			serve(&members[0]);
		usleep(1000);
	}
	assert_int_equal(m->state, 1);
}
static void spawn(unsigned i, const struct rpwi_addr *a) { spawn_as(i, a, 0); }

static void end_kid(unsigned i, int signo)
{
	struct member *m = &members[i];
	if (signo)
		kill(m->pid, signo);
	m->quit = 1;
	assert_int_equal(waitpid(m->pid, NULL, 0), m->pid);
	m->state = 0;
}

/* Send packets psn..psn+n-1 of `len` bytes to a member, serving ourselves. */
static void send_to(
	const struct member *to, const struct rpwi_addr *a, uint32_t psn, unsigned n, uint32_t len)
{
	static uint8_t mem[RPWI_TXB_PKTS * 4096];
	struct rpwi_av av = av_to(a, 1);
	unsigned sent;
	rpwi_txb_reset(txb);
	txb->av = &av;
	for (unsigned k = 0; k < n; k++) {
		uint8_t *at = mem + (size_t)k * len;
		for (uint32_t i = 0; i < len; i++)
			at[i] = pattern(to->slot, psn + k, i);
		add_packet(txb, qpn_of(to), psn + k, at, len);
	}
	assert_int_equal(rpwi_port_send(port, txb, &sent), 0);
	serve(&members[0]);
}

/* All of psn 0..n-1 seen by each living member, once; gives them time to arrive. */
static void expect_all(unsigned first, unsigned last, uint32_t n)
{
	for (unsigned i = first; i <= last; i++) {
		struct member *m = &members[i];
		for (int k = 0; m->state == 1 && m->arrived < n && k < 3000; k++) {
			serve(&members[0]);
			usleep(1000);
		}
	}
	for (int k = 0; k < 20; k++, usleep(1000)) /* duplicates would come now */
		serve(&members[0]);
	for (unsigned i = first; i <= last; i++) {
		struct member *m = &members[i];
		if (m->state != 1)
			continue;
		if (m->arrived != n || m->bad)
			fail_msg("member %u of slot %u: %lu packets of %u, %lu bad; handed over "
				 "%lu, taken over %lu, overflows %lu, last size %u",
				i, m->slot, m->arrived, n, m->bad, m->handed, m->taken, m->overflow,
				txb->pkt[0].payload_len);
		for (uint32_t psn = 0; psn < n; psn++)
			assert_int_equal(m->seen[psn], 1);
		m->arrived = 0;
		memset(m->seen, 0, sizeof(m->seen));
	}
}

/* Single packets and batches to everyone, and all of them arrive. */
static void exchange(unsigned last, const struct rpwi_addr *a)
{
	static const struct {
		unsigned n;
		uint32_t len;
	} shape[] = {{1, 20}, {15, 4096}, {1, 1024}, {20, 300}, {3, 0}};
	uint32_t psn = 0;
	for (unsigned s = 0; s < RPWI_ARRAY_LEN(shape); s++) {
		for (unsigned i = 0; i <= last; i++)
			if (members[i].state == 1)
				send_to(&members[i], a, psn, shape[s].n, shape[s].len);
		psn += shape[s].n;
	}
	expect_all(0, last, psn);
}

static uint64_t handed_by_all(unsigned last)
{
	uint64_t n = 0;
	for (unsigned i = 0; i <= last; i++)
		if (members[i].state == 1)
			n += members[i].handed;
	return n;
}

/* Exchange until a round needs no handing over: the program steers. */
static void until_steered(unsigned last, const struct rpwi_addr *a)
{
	for (int round = 0; round < 100; round++) {
		uint64_t before = handed_by_all(last);
		exchange(last, a);
		if (handed_by_all(last) == before)
			return;
		usleep(10000);
	}
	fail_msg("packets still land at the wrong member");
}

static void open_self(const struct rpwi_addr *a)
{
	memset(&members[0], 0, sizeof(members[0]));
	assert_true(open_all(&members[0], a));
	members[0].state = 1;
}

static int reap(void **state)
{
	for (unsigned i = 1; i < KIDS; i++)
		if (members[i].state) {
			kill(members[i].pid, SIGKILL);
			waitpid(members[i].pid, NULL, 0);
			members[i].state = 0;
		}
	if (steer)
		close_all();
	return 0;
}

#endif
