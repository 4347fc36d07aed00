/* SPDX-License-Identifier: BSD-3-Clause */
/* forged_test.c - packets that do not come from the peer, or not as they should: none changes a
 * byte of memory, and the connection lives on. They are made here with the wire layer and sent by a
 * plain UDP socket, as anybody on the network could. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"
#include "wire/icrc.h"
#include "wire/packet.h"

enum { TARGET = 4096 };

static void forge_as(const char *from, uint16_t port, const struct rpwi_pkt *head,
	const void *payload, uint32_t len, uint32_t icrc_xor, size_t cut)
{
	uint8_t out[RPWI_PACKET_MAX];
	struct rpwi_pkt p = *head;
	p.payload_len = len;
	p.pad = (uint8_t)((4 - len % 4) % 4);
	struct sockaddr_in src = {.sin_family = AF_INET, .sin_port = htons(port)},
			   dst = {.sin_family = AF_INET, .sin_port = htons(RPWI_UDP_PORT)};
	inet_pton(AF_INET, from, &src.sin_addr);
	inet_pton(AF_INET, "127.0.0.1", &dst.sin_addr);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), one = IP_PMTUDISC_DO;
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&src, sizeof(src)), 0);
	socklen_t sl = sizeof(src);
	getsockname(fd, (struct sockaddr *)&src, &sl);
	struct rpwi_flow flow = {.src.family = 4,
		.dst.family = 4,
		.sport = ntohs(src.sin_port),
		.dport = RPWI_UDP_PORT};
	memcpy(flow.src.bytes, &src.sin_addr, 4);
	memcpy(flow.dst.bytes, &dst.sin_addr, 4);
	size_t n = rpwi_pkt_encode(&p, out);
	struct rpwi_iov part = {payload, len};
	uint32_t icrc = rpwi_icrc(&flow, 0, out, n, &part, 1, p.pad) ^ icrc_xor;
	memcpy(out + n, payload, len);
	memset(out + n + len, 0, p.pad);
	rpwi_put_le32(out + n + len + p.pad, icrc);
	n += len + p.pad + 4;
	assert_true(sendto(fd, out, n - cut, 0, (struct sockaddr *)&dst, sizeof(dst)) > 0);
	close(fd);
}

static void forge(const char *from, const struct rpwi_pkt *head, const void *payload, uint32_t len,
	uint32_t icrc_xor, size_t cut)
{
	forge_as(from, 0, head, payload, len, icrc_xor, cut);
}
static void forge_from_port(const char *from, uint16_t port, const struct rpwi_pkt *head,
	const void *payload, uint32_t len, uint32_t icrc_xor)
{
	forge_as(from, port, head, payload, len, icrc_xor, 0);
}

/* The packet that the peer would send next, but for what each test changes. */
static struct rpwi_pkt next_write(const struct pair *p, uint32_t len)
{
	return (struct rpwi_pkt){.opcode = RPWI_OP_WRITE_ONLY,
		.migreq = true,
		.ackreq = true,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = p->b.qp->qp_num,
		.psn = p->a.psn,
		.va = (uintptr_t)p->b.buf + TARGET,
		.rkey = p->b.mr->rkey,
		.dma_len = len};
}

static void settle(struct pair *p)
{
	struct ibv_wc wc;
	assert_false(pair_poll(p->b.cq, &wc, 30));
}

static void still_works(struct pair *p)
{
	struct ibv_wc wc;
	pattern_fill(p->a.buf, 3000, 77);
	assert_int_equal(
		pair_send(&p->a, IBV_WR_RDMA_WRITE, 0, 3000, (uintptr_t)p->b.buf, p->b.mr->rkey),
		0);
	assert_true(pair_poll(p->a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(pattern_holds(p->b.buf, 3000, 77));
}

static void untouched(void (*attack)(struct pair *p, const uint8_t *evil))
{
	struct pair p;
	uint8_t evil[512];
	pair_make(&p, 14, 7, 7);
	pattern_fill(p.b.buf, PAIR_BUF, 5);
	pattern_fill(evil, sizeof(evil), 666);
	attack(&p, evil);
	settle(&p);
	assert_true(pattern_holds(p.b.buf, PAIR_BUF, 5));
	still_works(&p);
	pair_free(&p);
}

static void from_stranger(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	forge("127.0.0.2", &w, evil, 512, 0, 0);
}
static void psn_ahead(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	w.psn = rpwi_psn_add(w.psn, 1000);
	forge("127.0.0.1", &w, evil, 512, 0, 0);
}
static void psn_behind(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	w.psn = rpwi_psn_add(w.psn, RPWI_PSN_MASK); /* one before: a duplicate */
	forge("127.0.0.1", &w, evil, 512, 0, 0);
}
static void bad_icrc(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	static const uint32_t flips[] = {1, 0x80000000, 0xdeadbeef, 0x00010000};
	for (size_t i = 0; i < 4; i++)
		forge("127.0.0.1", &w, evil, 512, flips[i], 0);
}
static void truncated(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	for (size_t cut = 1; cut < 512 + 28; cut += 13)
		forge("127.0.0.1", &w, evil, 512, 0, cut);
}
static void unknown_opcode(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	w.opcode = RPWI_SVC_UC | RPWI_OP_WRITE_ONLY;
	forge("127.0.0.1", &w, evil, 512, 0, 0);
	w.opcode = RPWI_SVC_UC | RPWI_OP_SEND_ONLY;
	forge("127.0.0.1", &w, evil, 512, 0, 0);
}
static void unknown_qp(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt w = next_write(p, 512);
	w.dqpn ^= 0x3f;
	forge("127.0.0.1", &w, evil, 512, 0, 0);
	w.dqpn = 0;
	forge("127.0.0.1", &w, evil, 512, 0, 0);
	w.dqpn = RPWI_QPN_MASK;
	forge("127.0.0.1", &w, evil, 512, 0, 0);
}
static void stray_response(struct pair *p, const uint8_t *evil)
{
	struct rpwi_pkt r = {.opcode = RPWI_OP_READ_RESP_ONLY,
		.migreq = true,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = p->b.qp->qp_num,
		.psn = p->b.psn,
		.syndrome = 0x1f};
	forge("127.0.0.1", &r, evil, 512, 0, 0);
	r.opcode = RPWI_OP_ACK;
	r.psn = rpwi_psn_add(p->b.psn, 5000);
	forge("127.0.0.1", &r, evil, 0, 0, 0);
	r.opcode = RPWI_OP_ATOMIC_ACK;
	forge("127.0.0.1", &r, evil, 0, 0, 0);
}

#define ATTACK(name, fn) \
	static void name(void **state) { untouched(fn); }
ATTACK(a_stranger_changes_nothing, from_stranger)
ATTACK(a_psn_ahead_changes_nothing, psn_ahead)
ATTACK(a_psn_behind_changes_nothing, psn_behind)
ATTACK(a_bad_icrc_changes_nothing, bad_icrc)
ATTACK(a_truncated_packet_changes_nothing, truncated)
ATTACK(a_packet_of_another_service_changes_nothing, unknown_opcode)
ATTACK(a_packet_for_an_unknown_qp_changes_nothing, unknown_qp)
ATTACK(a_stray_response_changes_nothing, stray_response)

/* The test's own proof: the same packet, right in everything, does arrive. */
/* ---- what a bad ICRC is taken for ---- */

static uint32_t icrc_as_from(const char *from, const uint8_t *data, size_t len)
{
	struct rpwi_flow f = {.src.family = 4, .dst.family = 4, .dport = RPWI_UDP_PORT};
	struct rpwi_iov body = {data + RPWI_BTH_LEN, len - RPWI_BTH_LEN};
	inet_pton(AF_INET, from, f.src.bytes);
	return rpwi_icrc(&f, 0, data, RPWI_BTH_LEN, &body, 1, 0);
}

/* How often the log has a NAT, of what `run` does. */
static bool tells_of_a_nat(struct pair *p, void (*run)(struct pair *p, const uint8_t *payload))
{
	static char text[1 << 16];
	uint8_t payload[32] = {0};
	int log = memfd_create("log", MFD_CLOEXEC), was = dup(STDERR_FILENO);
	assert_true(log >= 0 && was >= 0);
	dup2(log, STDERR_FILENO);
	run(p, payload);
	settle(p);
	dup2(was, STDERR_FILENO);
	ssize_t n = pread(log, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close(log);
	close(was);
	return strstr(text, "NAT");
}

/* A WRITE ONLY of 32 bytes: BTH, RETH, those, ICRC. */
enum { WRITE_LEN = RPWI_BTH_LEN + 16 + 32 };

static void each_bit_twice(struct pair *p, const uint8_t *payload)
{
	uint8_t data[WRITE_LEN] = {0};
	uint32_t well = icrc_as_from("127.0.0.1", data, sizeof(data));
	for (size_t bit = 8 * RPWI_BTH_LEN; bit < 8 * sizeof(data) + 32; bit += 29) {
		bool of_icrc = bit >= 8 * sizeof(data);
		uint32_t harm = 1u << bit % 32;
		if (!of_icrc) {
			data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			harm = icrc_as_from("127.0.0.1", data, sizeof(data)) ^ well;
			data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		for (uint32_t i = 0; i < 2; i++) {
			struct rpwi_pkt w = next_write(p, 32);
			w.psn = rpwi_psn_add(w.psn, i);
			forge_from_port("127.0.0.1", 50001, &w, payload, 32, harm);
		}
	}
}
static void the_same_damage_twice(struct pair *p, const uint8_t *payload)
{
	still_works(p); /* its packets come */
	for (uint32_t i = 0; i < 2; i++) {
		struct rpwi_pkt w = next_write(p, 32);
		w.psn = rpwi_psn_add(w.psn, 100 + i);
		forge_from_port("127.0.0.1", 50001, &w, payload, 32, 0xdeadbeef);
	}
}
static void as_by_a_nat(struct pair *p, const uint8_t *payload)
{
	uint8_t data[WRITE_LEN] = {0};
	uint32_t changed = icrc_as_from("127.0.0.1", data, sizeof(data)) ^
			   icrc_as_from("127.0.0.9", data, sizeof(data));
	for (uint32_t i = 0; i < 3; i++) {
		struct rpwi_pkt w = next_write(p, 32);
		w.psn = rpwi_psn_add(w.psn, i);
		forge_from_port("127.0.0.9", 50001, &w, payload, 32, changed);
	}
}

static void damage_is_no_nat(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	assert_false(tells_of_a_nat(&p, each_bit_twice));
	usleep(1100000); /* so many a second are looked at */
	assert_false(tells_of_a_nat(&p, the_same_damage_twice));
	pair_free(&p);
	usleep(1100000);
	pair_make(&p, 14, 7, 7);
	assert_true(tells_of_a_nat(&p, as_by_a_nat));
	pair_free(&p);
}

static void the_right_packet_arrives(void **state)
{
	struct pair p;
	uint8_t good[512];
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	pattern_fill(good, sizeof(good), 8);
	struct rpwi_pkt w = next_write(&p, 512);
	forge("127.0.0.1", &w, good, 512, 0, 0);
	assert_false(pair_poll(p.b.cq, &wc, 300));
	assert_true(pattern_holds(p.b.buf + TARGET, 512, 8));
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_right_packet_arrives),
		cmocka_unit_test(a_stranger_changes_nothing),
		cmocka_unit_test(a_psn_ahead_changes_nothing),
		cmocka_unit_test(a_psn_behind_changes_nothing),
		cmocka_unit_test(a_bad_icrc_changes_nothing),
		cmocka_unit_test(a_truncated_packet_changes_nothing),
		cmocka_unit_test(a_packet_of_another_service_changes_nothing),
		cmocka_unit_test(a_packet_for_an_unknown_qp_changes_nothing),
		cmocka_unit_test(a_stray_response_changes_nothing),
		cmocka_unit_test(damage_is_no_nat),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
