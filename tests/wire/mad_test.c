/* SPDX-License-Identifier: BSD-3-Clause */
/* CM messages: against those that kernel rxe 6.1 sent (captured between two guests: rping, udaddy),
 * against bytes that tshark 4.0 dissects as they were meant (but flow label and packet rate, which
 * it takes from the wrong bytes of the kernel's REQ too), and against themselves. */
#include "lib/test.h"

#include <errno.h>

#include "wire/mad.h"

/* Without the zeros at their end. */
static const char rxe_req[] = "0107020300000000000000027d54e7f10010000000000000f1e7547d000000000000"
			      "000001061c06505400fffe770003000000000000000000001101"
			      "00000001000000a0262ca4a7ffff37f0ffffffff00000000000000000000ffff0a4d"
			      "000300000000000000000000ffff0a4d00021c1ca00000400098"
			      "00000000000000000000000000000000000000000000000000000000000000000000"
			      "00000000000000000000004091bc000000000000000000000000"
			      "0a4d00030000000000000000000000000a4d0002";
static const char rxe_req_ipv6[] = "0107020300000000000000027d54e7f00010000000000000f0e7547d0000000"
				   "00000000001061c06505400fffe770003000000000000000000001201"
				   "00000001000000a041e27ea7ffff37f0fffffffffd770000000000000000000"
				   "000000003fd770000000000000000000000000002982c200000400098"
				   "000000000000000000000000000000000000000000000000000000000000000"
				   "00000000000000000000000000060d1c4fd7700000000000000000000"
				   "00000003fd770000000000000000000000000002";
static const char rxe_rep[] = "0107020300000000000000027d54e7f10013000000000000376d6c34f1e7547d0000"
			      "000000001100000000007a691200010178e0505400fffe770002";
static const char rxe_rtu[] = "0107020300000000000000027d54e7f10014000000000000f1e7547d376d6c34";
static const char rxe_dreq[] =
	"0107020300000000000000027d54e7f10015000000000000f1e7547d376d6c34000011";
static const char rxe_drep[] = "0107020300000000000000027d54e7f10016000000000000376d6c34f1e7547d";
static const char rxe_rej[] =
	"0107020300000000000000027d54e7f3001200000000000000000000f3e7547d00000008";
static const char rxe_sidr_req[] = "0107020300000000000000027d54e7f20017000000000000f2e7547dffff000"
				   "00000000001111c060040d9b30000000000000000000000000a4d0003"
				   "0000000000000000000000000a4d0002";
static const char rxe_sidr_rep[] = "0107020300000000000000027d54e7f20018000000000000f2e7547d0000000"
				   "0000013000000000001111c0601234567";
static const char *const rxe_all[] = {rxe_req, rxe_req_ipv6, rxe_rep, rxe_rtu, rxe_dreq, rxe_drep,
	rxe_rej, rxe_sidr_req, rxe_sidr_rep};

static const uint16_t attrs[] = {RPWI_CM_REQ, RPWI_CM_MRA, RPWI_CM_REJ, RPWI_CM_REP, RPWI_CM_RTU,
	RPWI_CM_DREQ, RPWI_CM_DREP, RPWI_CM_SIDR_REQ, RPWI_CM_SIDR_REP};
static const unsigned rooms[] = {92, 222, 148, 196, 224, 220, 224, 216, 136};

static void unhex(const char *hex, uint8_t mad[RPWI_MAD_LEN])
{
	memset(mad, 0, RPWI_MAD_LEN);
	for (size_t i = 0; hex[2 * i]; i++) {
		unsigned v;
		assert_true(i < RPWI_MAD_LEN);
		assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
		mad[i] = (uint8_t)v;
	}
}

static struct rpwi_cm_msg decoded(const char *hex)
{
	uint8_t mad[RPWI_MAD_LEN];
	struct rpwi_cm_msg m;
	unhex(hex, mad);
	assert_int_equal(rpwi_cm_decode(mad, sizeof(mad), &m), 0);
	return m;
}

static struct rng rng = {1};
static uint8_t rnd(void) { return (uint8_t)rng_next(&rng); }

static void what_the_kernel_sent_is_encoded_the_same(void **state)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rxe_all); i++) {
		IN_CASE("row", i);
		uint8_t mad[RPWI_MAD_LEN], again[RPWI_MAD_LEN];
		struct rpwi_cm_msg m = decoded(rxe_all[i]);
		unhex(rxe_all[i], mad);
		memset(again, 0xee, sizeof(again));
		rpwi_cm_encode(&m, again);
		assert_memory_equal(mad, again, sizeof(mad));
	}
}

static void req_of_the_kernel(void **state)
{
	static const uint8_t guid[8] = {0x50, 0x54, 0, 0xff, 0xfe, 0x77, 0, 3},
			     gid3[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 3};
	struct rpwi_cm_msg m = decoded(rxe_req);
	assert_int_equal(m.attr, RPWI_CM_REQ);
	assert_true(m.tid == 0x000000027d54e7f1);
	assert_int_equal(m.local_comm_id, 0xf1e7547d);
	assert_int_equal(m.remote_comm_id, 0);
	/* RDMA_PS_TCP, rping's port */
	assert_true(m.req.service_id == RPWI_SERVICE_ID(0x06, 7174));
	assert_memory_equal(m.req.ca_guid, guid, 8);
	assert_int_equal(m.req.qpn, 0x11);
	assert_int_equal(m.req.starting_psn, 0x262ca4);
	assert_int_equal(m.req.responder_resources, 1);
	assert_int_equal(m.req.initiator_depth, 1);
	assert_int_equal(m.req.remote_cm_response_timeout, 20);
	assert_int_equal(m.req.local_cm_response_timeout, 20);
	assert_int_equal(m.req.transport, 0);
	assert_false(m.req.flow_control);
	assert_int_equal(m.req.retry_count, 7);
	assert_int_equal(m.req.rnr_retry_count, 7);
	assert_int_equal(m.req.max_cm_retries, 15);
	assert_int_equal(m.req.path_mtu, 3);
	assert_int_equal(m.req.pkey, 0xffff);
	assert_int_equal(m.req.primary.local_lid, 0xffff);
	assert_int_equal(m.req.primary.remote_lid, 0xffff);
	assert_memory_equal(m.req.primary.local_gid, gid3, 16);
	assert_int_equal(m.req.primary.remote_gid[15], 2);
	assert_int_equal(m.req.primary.flow_label, 0x1c1ca);
	assert_int_equal(m.req.primary.packet_rate, 0);
	assert_int_equal(m.req.primary.hop_limit, 64);
	assert_int_equal(m.req.primary.local_ack_timeout, 19);
	assert_false(m.req.primary.subnet_local);
	assert_int_equal(m.req.alternate.hop_limit, 0);
	assert_int_equal(m.pdata_len, 92);

	struct rpwi_cma_hdr h;
	assert_int_equal(rpwi_cma_hdr_decode(m.pdata, m.pdata_len, &h), 0);
	assert_int_equal(h.src_port, 0x91bc);
	assert_int_equal(h.src.family, 4);
	assert_memory_equal(h.src.bytes, "\x0a\x4d\x00\x03\0\0\0\0\0\0\0\0\0\0\0\0", 16);
	assert_memory_equal(h.dst.bytes, "\x0a\x4d\x00\x02", 4);
}

static void other_messages_of_the_kernel(void **state)
{
	struct rpwi_cm_msg m = decoded(rxe_rep);
	assert_int_equal(m.local_comm_id, 0x376d6c34);
	assert_int_equal(m.remote_comm_id, 0xf1e7547d);
	assert_int_equal(m.rep.qpn, 0x11);
	assert_int_equal(m.rep.starting_psn, 0x7a6912);
	assert_int_equal(m.rep.responder_resources, 1);
	assert_int_equal(m.rep.initiator_depth, 1);
	assert_int_equal(m.rep.target_ack_delay, 15);
	assert_int_equal(m.rep.rnr_retry_count, 7);
	assert_int_equal(m.rep.ca_guid[7], 2);
	m = decoded(rxe_dreq);
	assert_int_equal(m.dreq.remote_qpn, 0x11);
	m = decoded(rxe_rej);
	assert_int_equal(m.local_comm_id, 0);
	assert_int_equal(m.remote_comm_id, 0xf3e7547d);
	assert_int_equal(m.rej.reason, RPWI_REJ_INVALID_SERVICE_ID);
	assert_int_equal(m.rej.msg_rejected, 0);
	m = decoded(rxe_sidr_req);
	assert_int_equal(m.local_comm_id, 0xf2e7547d);
	assert_true(m.sidr_req.service_id == RPWI_SERVICE_ID(0x11, 7174)); /* RDMA_PS_UDP */
	assert_int_equal(m.sidr_req.pkey, 0xffff);
	m = decoded(rxe_sidr_rep);
	assert_int_equal(m.local_comm_id, 0xf2e7547d);
	assert_int_equal(m.sidr_rep.status, 0);
	assert_int_equal(m.sidr_rep.qpn, 0x13);
	assert_int_equal(m.sidr_rep.qkey, 0x01234567); /* rdma_cm's */

	struct rpwi_cma_hdr h;
	m = decoded(rxe_req_ipv6);
	assert_int_equal(rpwi_cma_hdr_decode(m.pdata, m.pdata_len, &h), 0);
	assert_int_equal(h.dst.family, 6);
	assert_int_equal(h.dst.bytes[0], 0xfd);
	assert_int_equal(h.dst.bytes[15], 2);
}

/* Every field with a value of its own; tshark shows each of these values for these bytes. */
static struct rpwi_cm_msg full_req(void)
{
	struct rpwi_cm_msg m = {
		.attr = RPWI_CM_REQ, .tid = 0x1122334455667788, .local_comm_id = 0xa1a2a3a4};
	static const struct rpwi_cm_req_path pri = {.local_lid = 0x1101,
		.remote_lid = 0x1202,
		.local_gid = {0xfe, 0x80, [15] = 0x21},
		.remote_gid = {0xfe, 0x80, [15] = 0x22},
		.flow_label = 0xabcde,
		.packet_rate = 0x2a,
		.traffic_class = 0x5c,
		.hop_limit = 0x3f,
		.sl = 9,
		.subnet_local = true,
		.local_ack_timeout = 0x15};
	m.req.service_id = 0x0102030405060708;
	memcpy(m.req.ca_guid, "\x31\x32\x33\x34\x35\x36\x37\x38", 8);
	m.req.vendor_id = 0x0c0d0e;
	m.req.qkey = 0x41424344;
	m.req.qpn = 0x515253;
	m.req.responder_resources = 0x61;
	m.req.eecn = 0x717273;
	m.req.initiator_depth = 0x62;
	m.req.remote_cm_response_timeout = 0x13;
	m.req.transport = 2;
	m.req.flow_control = true;
	m.req.starting_psn = 0x818283;
	m.req.local_cm_response_timeout = 0x12;
	m.req.retry_count = 5;
	m.req.pkey = 0x9192;
	m.req.path_mtu = 4;
	m.req.rdc_exists = true;
	m.req.rnr_retry_count = 6;
	m.req.max_cm_retries = 0xb;
	m.req.srq = true;
	m.req.extended_transport = 3;
	m.req.primary = m.req.alternate = pri;
	m.req.alternate.local_lid = 0x1303;
	m.req.alternate.remote_lid = 0x1404;
	m.req.alternate.flow_label = 0x12345;
	m.req.alternate.packet_rate = 0x15;
	m.req.alternate.hop_limit = 0x3e;
	m.req.alternate.sl = 6;
	m.req.alternate.subnet_local = false;
	m.req.alternate.local_ack_timeout = 0x0a;
	m.pdata_len = 92;
	for (unsigned i = 0; i < 92; i++)
		m.pdata[i] = (uint8_t)(200 - i);
	return m;
}

static void every_field_is_where_tshark_looks(void **state)
{
	static const char req[] = "01070203000000001122334455667788001000000000000" /* header */
				  "0a1a2a3a4000c0d0e01020304050607083132333435363738000000004142434"
				  "45152536171727362" /* up to the initiator depth */
				  "0000009d81828395"  /* time-outs, transport, PSN */
				  "91924ebb"          /* P_Key, MTU, retries */
				  "11011202fe800000000000000000000000000021fe8000000000000000000000"
				  "00000022abcde02a5c3f98a8" /* primary */
				  "13031404fe800000000000000000000000000021fe8000000000000000000000"
				  "000000221234501"
				  "55c3e6050";
	uint8_t want[RPWI_MAD_LEN], got[RPWI_MAD_LEN];
	struct rpwi_cm_msg m = full_req();
	unhex(req, want);
	memcpy(want + 24 + 140, m.pdata, 92);
	rpwi_cm_encode(&m, got);
	assert_memory_equal(got, want, sizeof(want));

	m = (struct rpwi_cm_msg){
		.attr = RPWI_CM_REP, .tid = 0x99, .local_comm_id = 1, .remote_comm_id = 2};
	m.rep.qkey = 0x11121314;
	m.rep.qpn = 0x212223;
	m.rep.eecn = 0x313233;
	m.rep.starting_psn = 0x414243;
	m.rep.responder_resources = 0x51;
	m.rep.initiator_depth = 0x52;
	m.rep.target_ack_delay = 0x15;
	m.rep.failover_accepted = 2;
	m.rep.flow_control = true;
	m.rep.rnr_retry_count = 6;
	m.rep.srq = true;
	m.rep.vendor_id = 0xd1d2d3;
	memcpy(m.rep.ca_guid, "\x61\x62\x63\x64\x65\x66\x67\x68", 8);
	unhex("0107020300000000000000000000009900130000000000000000000100000002"
	      "11121314212223d1313233d2414243d35152add06162636465666768",
		want);
	rpwi_cm_encode(&m, got);
	assert_memory_equal(got, want, sizeof(want));

	m = (struct rpwi_cm_msg){.attr = RPWI_CM_REJ,
		.local_comm_id = 1,
		.remote_comm_id = 2,
		.pdata_len = 3,
		.pdata = "rej"};
	m.rej.msg_rejected = 1;
	m.rej.ari_len = 8;
	m.rej.reason = 0x1c;
	memcpy(m.rej.ari, "\x61\x62\x63\x64\x65\x66\x67\x68", 8);
	unhex("01070203000000000000000000000000001200000000000000000001000000024010001c616263646566"
	      "6768",
		want);
	memcpy(want + 24 + 84, "rej", 3);
	rpwi_cm_encode(&m, got);
	assert_memory_equal(got, want, sizeof(want));

	m = (struct rpwi_cm_msg){.attr = RPWI_CM_MRA,
		.local_comm_id = 1,
		.remote_comm_id = 2,
		.pdata_len = 3,
		.pdata = "mra"};
	m.mra.msg_mraed = 1;
	m.mra.service_timeout = 24;
	unhex("010702030000000000000000000000000011000000000000000000010000000240c06d7261", want);
	rpwi_cm_encode(&m, got);
	assert_memory_equal(got, want, sizeof(want));

	m = (struct rpwi_cm_msg){
		.attr = RPWI_CM_SIDR_REP, .local_comm_id = 7, .pdata_len = 4, .pdata = "sidr"};
	m.sidr_rep.status = 5;
	m.sidr_rep.info_len = 9;
	m.sidr_rep.qpn = 0x212223;
	m.sidr_rep.service_id = 0x0102030405060708;
	m.sidr_rep.qkey = 0x11121314;
	unhex("010702030000000000000000000000000018000000000000000000070509000021222300010203040506"
	      "0708"
	      "11121314",
		want);
	memcpy(want + 24 + 96, "sidr", 4);
	rpwi_cm_encode(&m, got);
	assert_memory_equal(got, want, sizeof(want));
}

static void every_message_round_trips(void **state)
{
	for (unsigned round = 0; round < 2000; round++) {
		IN_CASE("round", round);
		uint8_t mad[RPWI_MAD_LEN];
		struct rpwi_cm_msg m, again;
		unsigned kind = round % RPWI_ARRAY_LEN(attrs);
		for (unsigned i = 0; i < sizeof(mad); i++)
			mad[i] = rnd();
		memcpy(mad, "\x01\x07\x02\x03", 4);
		mad[16] = 0;
		mad[17] = (uint8_t)attrs[kind];
		if (rpwi_cm_decode(mad, sizeof(mad), &m) == -EBADMSG)
			continue;
		assert_int_equal(m.attr, attrs[kind]);
		assert_int_equal(m.pdata_len, rooms[kind]);
		assert_memory_equal(m.pdata, mad + 256 - rooms[kind], rooms[kind]);
		memset(mad, 0x5a, sizeof(mad));
		rpwi_cm_encode(&m, mad);
		assert_int_equal(rpwi_cm_decode(mad, sizeof(mad), &again), 0);
		assert_memory_equal(&m, &again, sizeof(m));
	}
}

static void private_data_is_padded_and_cut(void **state)
{
	for (unsigned kind = 0; kind < RPWI_ARRAY_LEN(attrs); kind++) {
		IN_CASE("row", kind);
		uint8_t mad[RPWI_MAD_LEN];
		struct rpwi_cm_msg m = {.attr = attrs[kind], .pdata_len = 5, .pdata = "abcde"}, out;
		rpwi_cm_encode(&m, mad);
		assert_int_equal(rpwi_cm_decode(mad, sizeof(mad), &out), 0);
		assert_int_equal(out.pdata_len, rooms[kind]);
		assert_memory_equal(out.pdata, "abcde\0\0\0", 8);
		m.pdata_len = sizeof(m.pdata);
		memset(m.pdata, 0, sizeof(m.pdata));
		for (unsigned i = 0; i < sizeof(m.pdata); i++)
			m.pdata[i] = (uint8_t)(i + kind);
		rpwi_cm_encode(&m, mad);
		assert_int_equal(rpwi_cm_decode(mad, sizeof(mad), &out), 0);
		assert_memory_equal(out.pdata, m.pdata, rooms[kind]);
	}
}

static void what_is_no_cm_mad_is_refused(void **state)
{
	uint8_t mad[RPWI_MAD_LEN + 1] = {0}, bad[RPWI_MAD_LEN];
	struct rpwi_cm_msg m;
	uint16_t attr;
	uint32_t id;
	uint64_t service;
	unhex(rxe_rej, mad);
	for (size_t len = 0; len <= sizeof(mad); len++)
		if (len != RPWI_MAD_LEN) {
			assert_int_equal(rpwi_cm_decode(mad, len, &m), -EMSGSIZE);
			assert_false(rpwi_cm_peek(mad, len, &attr, &id, &service));
		}
	for (unsigned byte = 0; byte < 4; byte++) {
		memcpy(bad, mad, sizeof(bad));
		bad[byte] ^= 0x80;
		assert_int_equal(rpwi_cm_decode(bad, sizeof(bad), &m), -EPROTONOSUPPORT);
		assert_false(rpwi_cm_peek(bad, sizeof(bad), &attr, &id, &service));
	}
	memset(mad + 24, 0, RPWI_MAD_LEN - 24);
	for (unsigned a = 0; a < 0x10000; a++) {
		memcpy(bad, mad, sizeof(bad));
		rpwi_put_be16(bad + 16, (uint16_t)a);
		assert_int_equal(
			rpwi_cm_decode(bad, sizeof(bad), &m), a >= 0x10 && a <= 0x1a ? 0 : -ENOMSG);
	}
}

static void fields_out_of_their_range_are_refused(void **state)
{
	static const struct {
		uint8_t attr, byte, value;
		int err;
	} cases[] = {
		{RPWI_CM_REJ, 9, 72 << 1, 0},
		{RPWI_CM_REJ, 9, 73 << 1, -EBADMSG},
		{RPWI_CM_REJ, 8, 2 << 6, 0},
		{RPWI_CM_REJ, 8, 3 << 6, -EBADMSG},
		{RPWI_CM_MRA, 8, 2 << 6, 0},
		{RPWI_CM_MRA, 8, 3 << 6, -EBADMSG},
		{RPWI_CM_SIDR_REP, 5, 72, 0},
		{RPWI_CM_SIDR_REP, 5, 73, -EBADMSG},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		uint8_t mad[RPWI_MAD_LEN];
		struct rpwi_cm_msg m = {.attr = cases[i].attr};
		rpwi_cm_encode(&m, mad);
		mad[24 + cases[i].byte] = cases[i].value;
		assert_int_equal(rpwi_cm_decode(mad, sizeof(mad), &m), cases[i].err);
	}
}

static void peek_tells_whose_it_is(void **state)
{
	static const struct {
		const char *hex;
		uint16_t attr;
		uint32_t id;
		uint64_t service;
	} cases[] = {
		{rxe_req, RPWI_CM_REQ, 0, 0x0000000001061c06},
		{rxe_sidr_req, RPWI_CM_SIDR_REQ, 0, 0x0000000001111c06},
		{rxe_rep, RPWI_CM_REP, 0xf1e7547d, 0},
		{rxe_rej, RPWI_CM_REJ, 0xf3e7547d, 0},
		{rxe_rtu, RPWI_CM_RTU, 0x376d6c34, 0},
		{rxe_dreq, RPWI_CM_DREQ, 0x376d6c34, 0},
		{rxe_drep, RPWI_CM_DREP, 0xf1e7547d, 0},
		{rxe_sidr_rep, RPWI_CM_SIDR_REP, 0xf2e7547d, 0},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		uint8_t mad[RPWI_MAD_LEN];
		uint16_t attr;
		uint32_t id;
		uint64_t service;
		unhex(cases[i].hex, mad);
		assert_true(rpwi_cm_peek(mad, sizeof(mad), &attr, &id, &service));
		assert_int_equal(attr, cases[i].attr);
		assert_int_equal(id, cases[i].id);
		assert_true(service == cases[i].service);
	}
}

static void cma_headers(void **state)
{
	uint8_t raw[RPWI_CMA_HDR_LEN];
	struct rpwi_cma_hdr h = {.src = {.family = 6, .bytes = {0xfd, [15] = 9}},
				    .dst = {.family = 6, .bytes = {0xfe, [15] = 8}},
				    .src_port = 0xbeef},
			    out;
	struct rpwi_cm_msg m = decoded(rxe_req);
	assert_int_equal(rpwi_cma_hdr_decode(m.pdata, 36, &out), 0);
	rpwi_cma_hdr_encode(&out, raw);
	assert_memory_equal(raw, m.pdata, sizeof(raw));
	rpwi_cma_hdr_encode(&h, raw);
	assert_int_equal(rpwi_cma_hdr_decode(raw, sizeof(raw), &out), 0);
	assert_true(rpwi_addr_eq(&h.src, &out.src) && rpwi_addr_eq(&h.dst, &out.dst) &&
		    out.src_port == 0xbeef);
	assert_int_equal(rpwi_cma_hdr_decode(raw, sizeof(raw) - 1, &out), -EBADMSG);
	raw[0] = 1;
	assert_int_equal(rpwi_cma_hdr_decode(raw, sizeof(raw), &out), -EBADMSG);
	raw[0] = 0;
	raw[1] = 5 << 4;
	assert_int_equal(rpwi_cma_hdr_decode(raw, sizeof(raw), &out), -EBADMSG);
}

static void names(void **state)
{
	assert_string_equal(rpwi_cm_attr_name(RPWI_CM_REQ), "REQ");
	assert_string_equal(rpwi_cm_attr_name(RPWI_CM_APR), "APR");
	assert_string_equal(rpwi_cm_attr_name(0), "?");
	assert_string_equal(rpwi_cm_attr_name(0x20), "?");
	assert_string_equal(rpwi_cm_attr_name(0xffff), "?");
	assert_string_equal(rpwi_cm_rej_name(RPWI_REJ_STALE_CONN), "stale connection");
	assert_string_equal(rpwi_cm_rej_name(0), "?");
	assert_string_equal(rpwi_cm_rej_name(36), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_kernel_sent_is_encoded_the_same),
		cmocka_unit_test(req_of_the_kernel),
		cmocka_unit_test(other_messages_of_the_kernel),
		cmocka_unit_test(every_field_is_where_tshark_looks),
		cmocka_unit_test(every_message_round_trips),
		cmocka_unit_test(private_data_is_padded_and_cut),
		cmocka_unit_test(what_is_no_cm_mad_is_refused),
		cmocka_unit_test(fields_out_of_their_range_are_refused),
		cmocka_unit_test(peek_tells_whose_it_is),
		cmocka_unit_test(cma_headers),
		cmocka_unit_test(names),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
