/* SPDX-License-Identifier: BSD-3-Clause */
/* port_test.c - one port of one process: what is sent arrives whole, with right ICRCs, whatever the
 * sizes; memory that is gone; injected faults. */
#include "ns.h"

#include "base/guard.h"
#include "io/port_priv.h"

static struct rpwi_steer *steer;
static struct rpwi_txb *txb;
static uint32_t qpn;
static struct sigaction guard_segv; /* cmocka sets its own for each test */

static int setup(void **state)
{
	uint16_t slot;
	txb = calloc(1, sizeof(*txb));
	assert_int_equal(rpwi_guard_install(), 0);
	sigaction(SIGSEGV, NULL, &guard_segv);
	assert_int_equal(rpwi_steer_open(&steer), 0);
	assert_int_equal(rpwi_steer_slots(steer, &slot, 1), 1);
	qpn = (uint32_t)slot << RPWI_SLOT_SHIFT | 5;
	return 0;
}

static int teardown(void **state)
{
	rpwi_steer_close(steer);
	free(txb);
	return 0;
}

static struct rpwi_port *open_port(const struct rpwi_addr *a)
{
	char why[RPWI_WHY_LEN];
	struct rpwi_port *p;
	int rc = rpwi_port_open(steer, a, false, &p, why, sizeof(why));
	if (rc)
		fail_msg("port: %d %s", rc, why);
	return p;
}

/* A batch of packets with these payload lengths. */
static void make_batch(const struct rpwi_av *av, uint8_t *mem, const uint32_t *len, unsigned n)
{
	rpwi_txb_reset(txb);
	txb->av = av;
	for (unsigned k = 0; k < n; k++) {
		for (uint32_t i = 0; i < len[k]; i++)
			mem[i] = pattern(n, k, i);
		add_packet(txb, qpn, k, mem, len[k]);
		mem += len[k];
	}
}

/* One segment: right ICRC with `id` expected, and the payload of the packet its PSN names. */
static unsigned check_segment(const struct rpwi_flow *flow, const uint8_t *seg, size_t len,
	uint16_t id, const uint32_t *lens, unsigned n)
{
	struct rpwi_pkt pkt;
	uint16_t got_id = id;
	assert_int_equal(rpwi_icrc_check(flow, seg, len, &got_id), RPWI_ICRC_OK);
	assert_int_equal(rpwi_pkt_decode(seg, len, &pkt), 0);
	assert_int_equal(pkt.dqpn, qpn);
	assert_in_range(pkt.psn, 0, n - 1);
	assert_int_equal(pkt.payload_len, lens[pkt.psn]);
	for (uint32_t i = 0; i < pkt.payload_len; i++)
		assert_int_equal(pkt.payload[i], pattern(n, pkt.psn, i));
	return pkt.psn;
}

/* Send the batch and see each packet once, in order. Returns how many receives it took. */
static unsigned round_trip(
	struct rpwi_port *p, const struct rpwi_addr *a, const uint32_t *lens, unsigned n)
{
	static uint8_t mem[RPWI_TXB_PKTS * 4096];
	struct rpwi_av av = av_to(a, 3);
	struct rpwi_rx rx;
	unsigned sent, next = 0, receives = 0;
	make_batch(&av, mem, lens, n);
	assert_int_equal(rpwi_port_send(p, txb, &sent), 0);
	assert_int_equal(sent, n);
	while (next < n) {
		assert_int_equal(recv_wait(p, &rx), 1);
		receives++;
		assert_true(rpwi_addr_eq(&rx.flow.src, a) && rpwi_addr_eq(&rx.flow.dst, a));
		assert_in_range(rx.flow.sport, 0xc000, 0xffff);
		unsigned index = 0;
		for (size_t at = 0; at < rx.len; at += rx.seg_len)
			assert_int_equal(check_segment(&rx.flow, rx.data + at,
						 RPWI_MIN(rx.seg_len, rx.len - at),
						 (uint16_t)index++, lens, n),
				next++);
	}
	assert_int_equal(rpwi_port_recv(p, &rx), 0);
	return receives;
}

static void equal_sizes(const struct rpwi_addr *a)
{
	uint32_t lens[RPWI_TXB_PKTS];
	struct rpwi_port *p = open_port(a);
	for (unsigned k = 0; k < RPWI_TXB_PKTS; k++)
		lens[k] = 4096;
	lens[14] = 777; /* the last of a batch may be shorter */
	assert_int_equal(round_trip(p, a, lens, 15), 1);
	/* 64 x 4 KiB do not fit in one datagram: 15 in each */
	lens[14] = 4096;
	assert_int_equal(round_trip(p, a, lens, RPWI_TXB_PKTS), 5);
	for (unsigned k = 0; k < RPWI_TXB_PKTS; k++)
		lens[k] = 256;
	assert_int_equal(round_trip(p, a, lens, RPWI_TXB_PKTS), 1);
	for (unsigned k = 0; k < RPWI_TXB_PKTS; k++)
		lens[k] = 0;
	assert_int_equal(round_trip(p, a, lens, RPWI_TXB_PKTS), 1);
	rpwi_port_close(p);
}
static void equal_sizes_ipv4(void **state) { equal_sizes(&lo4); }
static void equal_sizes_ipv6(void **state) { equal_sizes(&lo6); }

static void odd_sizes(const struct rpwi_addr *a)
{
	uint32_t lens[RPWI_TXB_PKTS];
	struct rpwi_port *p = open_port(a);
	for (unsigned k = 0; k < RPWI_TXB_PKTS; k++)
		lens[k] = k * 61 % 4097;
	round_trip(p, a, lens, RPWI_TXB_PKTS);
	for (unsigned n = 1; n < 40; n++) {
		/* alone: copied ones and those sent from where they are */
		lens[0] = n * 17;
		assert_int_equal(round_trip(p, a, lens, 1), 1);
	}
	rpwi_port_close(p);
}
static void odd_sizes_ipv4(void **state) { odd_sizes(&lo4); }
static void odd_sizes_ipv6(void **state) { odd_sizes(&lo6); }

/* Where the kernel refuses GSO, each packet is a datagram with ID 0. */
static void without_gso(void **state)
{
	uint32_t lens[8] = {1000, 1000, 1000, 1000, 10, 1000, 1000, 3};
	struct rpwi_port *p = open_port(&lo4);
	p->gso_off = true;
	assert_int_equal(round_trip(p, &lo4, lens, 8), 8);
	rpwi_port_close(p);
}

/* Packet 0 is the ACK that may travel behind: which packets come, and in how many receives. */
static unsigned order_of(
	struct rpwi_port *p, const uint32_t *lens, unsigned n, unsigned ack, unsigned *order)
{
	static uint8_t mem[RPWI_TXB_PKTS * 4096];
	struct rpwi_av av = av_to(&lo4, 1);
	struct rpwi_rx rx;
	unsigned sent, got = 0, receives = 0;
	make_batch(&av, mem, lens, n);
	txb->ack = ack;
	assert_int_equal(rpwi_port_send(p, txb, &sent), 0);
	assert_int_equal(sent, n);
	for (; got < n; receives++) {
		unsigned index = 0;
		assert_int_equal(recv_wait(p, &rx), 1);
		for (size_t at = 0; at < rx.len; at += rx.seg_len)
			order[got++] = check_segment(&rx.flow, rx.data + at,
				RPWI_MIN(rx.seg_len, rx.len - at), (uint16_t)index++, lens, n);
	}
	assert_int_equal(got, n);
	assert_int_equal(rpwi_port_recv(p, &rx), 0);
	return receives;
}

/* An ACK costs no datagram of its own where it may end the first run behind it, and is never behind
 * the last packet of a longer reply. */
static void an_ack_ends_the_first_run_behind_it(void **state)
{
	static const struct {
		uint32_t lens[20];
		unsigned n, ack, receives, at, at_gso_off;
	} cases[] = {
		{{0, 100}, 2, 1, 1, 1, 0}, {{0, 100}, 2, 0, 2, 0, 0}, {{0, 0}, 2, 1, 1, 1, 0},
		{{0, 4096, 4096, 4096}, 4, 1, 1, 3, 0}, {{0, 4096, 4096, 100}, 4, 1, 2, 2, 0},
		{{0, 4096, 1000, 1000}, 4, 1, 2, 1, 0}, {{0, 1000, 4096}, 3, 1, 2, 1, 0},
		{{0, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096,
			 4096, 4096, 4096},
			17, 1, 2, 15, 0},
		{{1000, 0, 100}, 3, 2, 2, 1, 1}, /* behind answers it ends their run */
	};
	unsigned order[20];
	struct rpwi_port *p = open_port(&lo4);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		unsigned ack = cases[i].ack ? cases[i].ack - 1 : 0;
		p->gso_off = false;
		assert_int_equal(order_of(p, cases[i].lens, cases[i].n, cases[i].ack, order),
			cases[i].receives);
		assert_int_equal(order[cases[i].at], ack);
		p->gso_off = true;
		assert_int_equal(
			order_of(p, cases[i].lens, cases[i].n, cases[i].ack, order), cases[i].n);
		assert_int_equal(order[cases[i].at_gso_off], ack);
	}
	rpwi_port_close(p);
}

static void several_pieces(void **state)
{
	uint8_t mem[3000];
	struct rpwi_port *p = open_port(&lo4);
	struct rpwi_av av = av_to(&lo4, 1);
	struct rpwi_rx rx;
	unsigned sent;
	const uint32_t lens[2] = {3000, 200};
	for (unsigned k = 0; k < 2; k++) {
		rpwi_txb_reset(txb);
		txb->av = &av;
		add_packet(txb, qpn, k, mem, lens[k]);
		/* the same bytes in three pieces, one of them empty */
		txb->niov = 3;
		txb->pkt[0].iov_count = 3;
		txb->iov[0] = (struct rpwi_iov){mem, 13};
		txb->iov[1] = (struct rpwi_iov){mem + 13, 0};
		txb->iov[2] = (struct rpwi_iov){mem + 13, lens[k] - 13};
		for (uint32_t i = 0; i < lens[k]; i++)
			mem[i] = pattern(2, k, i);
		assert_int_equal(rpwi_port_send(p, txb, &sent), 0);
		assert_int_equal(recv_wait(p, &rx), 1);
		assert_int_equal(check_segment(&rx.flow, rx.data, rx.len, 0, lens, 2), k);
	}
	rpwi_port_close(p);
}

static void unmapped_payload(void **state)
{
	const uint32_t lens[4] = {1024, 1024, 1024, 1024};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	sigaction(SIGSEGV, &guard_segv, NULL);
	for (unsigned first_gone = 0; first_gone < 4; first_gone++) {
		uint8_t *mem = mmap(
			NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct rpwi_port *p = open_port(&lo4);
		struct rpwi_av av = av_to(&lo4, 1);
		struct rpwi_rx rx;
		unsigned sent, seen = 0;
		make_batch(&av, mem + page - first_gone * 1024, lens, 4);
		assert_int_equal(munmap(mem + page, page), 0);
		assert_int_equal(rpwi_port_send(p, txb, &sent), -EFAULT);
		assert_int_equal(sent, first_gone);
		while (seen < first_gone) {
			assert_int_equal(recv_wait(p, &rx), 1);
			for (size_t at = 0; at < rx.len; at += rx.seg_len, seen++)
				assert_int_equal(check_segment(&rx.flow, rx.data + at,
							 RPWI_MIN(rx.seg_len, rx.len - at),
							 (uint16_t)seen, lens, 4),
					seen);
		}
		assert_int_equal(rpwi_port_recv(p, &rx), 0);
		rpwi_port_close(p);
		munmap(mem, page);
	}
}

static void hop_limit_and_class(const struct rpwi_addr *a)
{
	uint8_t mem[64];
	const uint32_t len = 40;
	static const struct {
		uint8_t hop, tclass, seen;
	} cases[] = {{1, 0, 1}, {255, 0x20, 255}, {0, 0, 64}, {7, 0x2c, 7}};
	struct rpwi_port *p = open_port(a);
	rpwi_port_want_ttl(p, true);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		struct rpwi_av av = av_to(a, cases[i].hop);
		struct rpwi_rx rx;
		unsigned sent;
		av.tclass = cases[i].tclass;
		make_batch(&av, mem, &len, 1);
		assert_int_equal(rpwi_port_send(p, txb, &sent), 0);
		assert_int_equal(recv_wait(p, &rx), 1);
		assert_int_equal(rx.ttl, cases[i].seen);
		assert_int_equal(rx.tos, cases[i].tclass);
	}
	rpwi_port_close(p);
}
static void hop_limit_ipv4(void **state) { hop_limit_and_class(&lo4); }
static void hop_limit_ipv6(void **state) { hop_limit_and_class(&lo6); }

/* How often each of 32 packets arrives under `spec`; *reordered counts those that came after a
 * later one. */
static void arrivals(const char *spec, unsigned *count, unsigned *bad, unsigned *reordered)
{
	enum { N = 32 };
	uint8_t mem[N * 300];
	uint32_t lens[N];
	unsigned sent, quiet = 0;
	int latest = -1;
	setenv("ROPEWAY_FAULT", spec, 1);
	struct rpwi_port *p = open_port(&lo4);
	unsetenv("ROPEWAY_FAULT");
	struct rpwi_av av = av_to(&lo4, 1);
	struct rpwi_rx rx;
	for (unsigned k = 0; k < N; k++)
		lens[k] = 300;
	memset(count, 0, N * sizeof(*count));
	*bad = *reordered = 0;
	make_batch(&av, mem, lens, N);
	assert_int_equal(rpwi_port_send(p, txb, &sent), 0);
	assert_int_equal(sent, N);
	while (quiet < 50) {
		struct rpwi_pkt pkt;
		uint16_t id = 0;
		rpwi_port_timer(p, rpwi_now_ns());
		if (rpwi_port_recv(p, &rx) != 1) {
			/* What is delayed or held comes within milliseconds; the look at the port
			 * group, which has a deadline too, does not count. */
			quiet = rpwi_port_deadline(p) > rpwi_now_ns() + 100 * RPWI_NS_PER_MS
					? quiet + 1
					: 0;
			usleep(200);
			continue;
		}
		if (rpwi_icrc_check(&rx.flow, rx.data, rx.len, &id) != RPWI_ICRC_OK ||
			rpwi_pkt_decode(rx.data, rx.len, &pkt)) {
			++*bad;
			continue;
		}
		assert_in_range(pkt.psn, 0, N - 1);
		count[pkt.psn]++;
		if ((int)pkt.psn < latest)
			++*reordered;
		latest = RPWI_MAX(latest, (int)pkt.psn);
	}
	rpwi_port_close(p);
}

static void faults(void **state)
{
	unsigned count[32], bad, reordered, sum = 0;
	arrivals("drop=1", count, &bad, &reordered);
	for (unsigned k = 0; k < 32; k++)
		sum += count[k];
	assert_int_equal(sum + bad, 0);
	arrivals("dup=1", count, &bad, &reordered);
	for (unsigned k = 0; k < 32; k++)
		assert_int_equal(count[k], 2);
	arrivals("corrupt=1", count, &bad, &reordered);
	for (unsigned k = 0; k < 32; k++)
		sum += count[k];
	assert_int_equal(sum, 0);
	assert_int_equal(bad, 32);
	arrivals("reorder=0.3,seed=7", count, &bad, &reordered);
	for (unsigned k = 0; k < 32; k++)
		assert_int_equal(count[k], 1);
	assert_true(reordered > 0);
	arrivals("delay=3,dup=0.5,reorder=0.3,seed=3", count, &bad, &reordered);
	for (unsigned k = 0; k < 32; k++) {
		assert_in_range(count[k], 1, 2);
		sum += count[k];
	}
	assert_in_range(sum, 33, 63);
	assert_true(reordered > 0);
}

static void bad_fault_spec(void **state)
{
	char why[RPWI_WHY_LEN] = "";
	struct rpwi_port *p;
	setenv("ROPEWAY_FAULT", "drop=often", 1);
	assert_int_equal(rpwi_port_open(steer, &lo4, false, &p, why, sizeof(why)), -EINVAL);
	unsetenv("ROPEWAY_FAULT");
	assert_true(strlen(why) > 10);
}

static void refused(void **state)
{
	uint8_t mem[8];
	const uint32_t len = 8;
	struct rpwi_addr nowhere = {.family = 4, .bytes = {203, 0, 113, 1}};
	struct rpwi_port *p = open_port(&lo4);
	struct rpwi_av av = av_to(&nowhere, 1);
	struct rpwi_port_stats st;
	unsigned sent;
	make_batch(&av, mem, &len, 1);
	assert_int_equal(rpwi_port_send(p, txb, &sent), -ENETUNREACH);
	assert_int_equal(sent, 1);
	rpwi_port_stats(p, &st);
	assert_int_equal(st.tx_refused, 1);
	assert_int_equal(st.tx_datagrams, 0);
	rpwi_port_close(p);
}

static void not_our_address(void **state)
{
	char why[RPWI_WHY_LEN] = "";
	struct rpwi_addr other = {.family = 4, .bytes = {203, 0, 113, 1}};
	struct rpwi_port *p;
	assert_int_equal(
		rpwi_port_open(steer, &other, false, &p, why, sizeof(why)), -EADDRNOTAVAIL);
	assert_non_null(strstr(why, "203.0.113.1"));
}

/* Something that is not ropeway has the port: said clearly, by name. */
static void held_by_another(void **state)
{
	char why[RPWI_WHY_LEN] = "", pid[32];
	struct rpwi_port *p;
	union io_sockaddr sa;
	struct rpwi_addr any = {.family = 4};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = rpwi_sockaddr_make(&sa, &any, RPWI_UDP_PORT);
	assert_int_equal(bind(fd, &sa.sa, len), 0);
	assert_int_equal(rpwi_port_open(steer, &lo4, false, &p, why, sizeof(why)), -EADDRINUSE);
	snprintf(pid, sizeof(pid), "pid %d", getpid());
	assert_non_null(strstr(why, "4791"));
	assert_non_null(strstr(why, pid));
	close(fd);
	p = open_port(&lo4);
	rpwi_port_close(p);
}

static void opened_twice(void **state)
{
	struct rpwi_port *a = open_port(&lo4), *b = open_port(&lo4);
	assert_ptr_equal(a, b);
	rpwi_port_close(a);
	const uint32_t len = 100;
	round_trip(b, &lo4, &len, 1);
	rpwi_port_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_sizes_ipv4),
		cmocka_unit_test(equal_sizes_ipv6),
		cmocka_unit_test(odd_sizes_ipv4),
		cmocka_unit_test(odd_sizes_ipv6),
		cmocka_unit_test(without_gso),
		cmocka_unit_test(an_ack_ends_the_first_run_behind_it),
		cmocka_unit_test(several_pieces),
		cmocka_unit_test(unmapped_payload),
		cmocka_unit_test(hop_limit_ipv4),
		cmocka_unit_test(hop_limit_ipv6),
		cmocka_unit_test(faults),
		cmocka_unit_test(bad_fault_spec),
		cmocka_unit_test(refused),
		cmocka_unit_test(not_our_address),
		cmocka_unit_test(held_by_another),
		cmocka_unit_test(opened_twice),
	};
	ns_enter();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
