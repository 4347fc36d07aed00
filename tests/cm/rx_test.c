/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose a message is, and what is none: strangers, garbage, duplicates, QPs that are connected
 * already, requests that the engine refuses by itself. */
#include "peer.h"

static void the_engine_refuses_by_itself(void **state)
{
	static const uint16_t reasons[] = {
		RPWI_REJ_INVALID_SERVICE_ID, RPWI_REJ_NO_RESOURCES, RPWI_REJ_CONSUMER_DEFINED};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(reasons); i++) {
		IN_CASE("row", i);
		refuse = reasons[i];
		nsent = 0;
		rx_attr(&mine, RPWI_CM_REQ);
		assert_int_equal(nsent, 1);
		assert_int_equal(sent[0].attr, RPWI_CM_REJ);
		assert_int_equal(sent[0].rej.reason, reasons[i]);
		assert_int_equal(sent[0].rej.msg_rejected, 0);
		assert_int_equal(sent[0].local_comm_id, 0);
		assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
		assert_true(sent[0].tid == THEIR_TID + THEIR_ID);
		assert_true(rpwi_addr_eq(&sent_path[0].remote, &their_addr));
	}
	assert_int_equal(rpwi_cm_stats(cm)->no_service, 1);
	refuse = 1;
	nsent = 0;
	rx_sidr_req(55);
	assert_int_equal(sent[0].attr, RPWI_CM_SIDR_REP);
	assert_int_equal(sent[0].sidr_rep.status, 1);
	assert_int_equal(sent[0].local_comm_id, 55);
	assert_true(sent[0].sidr_rep.service_id == service);
	assert_int_equal(rpwi_cm_stats(cm)->no_service, 2);

	refuse = 0;
	nsent = 0;
	struct rpwi_cm_msg m = a_req(1, 2);
	m.req.transport = 2;
	rx(&m);
	m.req.transport = 0;
	m.req.path_mtu = 0;
	rx(&m);
	m.req.path_mtu = 6;
	rx(&m);
	assert_int_equal(nsent, 3);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_INVALID_TRANSPORT_TYPE);
	assert_int_equal(sent[1].rej.reason, RPWI_REJ_INVALID_MTU);
	assert_int_equal(sent[2].rej.reason, RPWI_REJ_INVALID_MTU);
	assert_int_equal(nincoming, 0);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
}

static void a_dreq_for_nobody_is_answered(void **state)
{
	struct rpwi_cm_msg dreq = {.attr = RPWI_CM_DREQ,
		.tid = 5,
		.local_comm_id = THEIR_ID,
		.remote_comm_id = (uint32_t)PREFIX << 20 | 0x33333};
	rx(&dreq);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].attr, RPWI_CM_DREP);
	assert_int_equal(sent[0].local_comm_id, dreq.remote_comm_id);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
	assert_true(sent[0].tid == 5);
	dreq.remote_comm_id = 0x00133333; /* another process's */
	rx(&dreq);
	assert_int_equal(nsent, 1);
	assert_int_equal(rpwi_cm_stats(cm)->stray, 2);
}

static void a_rep_for_nobody_is_rejected(void **state)
{
	struct rpwi_cm_msg rep = {.attr = RPWI_CM_REP,
		.tid = 5,
		.local_comm_id = THEIR_ID,
		.remote_comm_id = (uint32_t)PREFIX << 20 | 0x33333};
	rx(&rep);
	assert_int_equal(sent[0].attr, RPWI_CM_REJ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_INVALID_COMM_ID);
	assert_int_equal(sent[0].rej.msg_rejected, 1);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
}

static void only_the_peer_is_believed(void **state)
{
	static const struct rpwi_addr stranger = {.family = 4, .bytes = {10, 0, 0, 3}},
				      stranger6 = {.family = 6, .bytes = {10, 0, 0, 2}};
	for (int side = 0; side < 2; side++)
		for (uint16_t attr = RPWI_CM_MRA; attr <= RPWI_CM_APR; attr++) {
			again();
			if (attr == RPWI_CM_SIDR_REQ)
				continue;
			struct rpwi_cm_conn *c = bring(side                  ? RPWI_CM_REP_SENT
						       : attr == RPWI_CM_REP ? RPWI_CM_REQ_SENT
									     : RPWI_CM_ESTABLISHED,
						    side),
					    was;
			struct rpwi_cm_msg m = within(c, attr);
			was = *c;
			rx_from(&stranger, &m);
			rx_from(&stranger6, &m);
			assert_int_equal(rpwi_cm_stats(cm)->stray, 2);
			if (attr != RPWI_CM_REP && attr != RPWI_CM_SIDR_REP) {
				m.local_comm_id ^= 1;
				rx(&m);
				assert_int_equal(rpwi_cm_stats(cm)->stray, 3);
			}
			m = within(c, attr);
			m.remote_comm_id ^= 1u << 19;
			m.local_comm_id ^= attr == RPWI_CM_SIDR_REP;
			rx(&m);
			assert_memory_equal(&was, c, sizeof(was));
			assert_int_equal(nevent, 0);
		}
	again();
	struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, true);
	struct rpwi_cm_msg dreq = within(c, RPWI_CM_DREQ);
	dreq.dreq.remote_qpn ^= 1;
	rx(&dreq);
	assert_int_equal(c->state, RPWI_CM_ESTABLISHED);
	assert_int_equal(rpwi_cm_stats(cm)->stray, 1);
}

static void a_timeout_names_only_its_sender(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	struct rpwi_cm_msg rej = within(c, RPWI_CM_REJ);
	rej.remote_comm_id = 0;
	rej.rej.reason = RPWI_REJ_TIMEOUT;
	rej.rej.msg_rejected = 2;
	rej.rej.ari_len = 8;
	memcpy(rej.rej.ari, our_guid, 8);
	rx(&rej); /* another CA's */
	assert_int_equal(nevent, 0);
	memcpy(rej.rej.ari, their_guid, 8);
	rej.rej.reason = RPWI_REJ_NO_QP;
	rx(&rej); /* not a time-out */
	assert_int_equal(nevent, 0);
	rej.rej.reason = RPWI_REJ_TIMEOUT;
	rx(&rej);
	assert_int_equal(nevent, 1);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REJ);
	assert_int_equal(event[0].ev.reason, RPWI_REJ_TIMEOUT);
	/* and ours does say who we are */
	again();
	c = bring(RPWI_CM_REQ_SENT, false);
	rpwi_cm_destroy(c, now);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_TIMEOUT);
	assert_int_equal(sent[0].remote_comm_id, 0);
	assert_int_equal(sent[0].rej.ari_len, 16);
	assert_memory_equal(sent[0].rej.ari, our_guid, 8);
	/* and what it was about, which is all that a host of several ropeways can steer by */
	uint8_t mad[RPWI_MAD_LEN];
	uint16_t attr;
	uint32_t id;
	uint64_t about;
	rpwi_cm_encode(&sent[0], mad);
	assert_true(rpwi_cm_peek(mad, sizeof(mad), &attr, &id, &about));
	assert_true(attr == RPWI_CM_REJ && !id && about && about == c->service_id);
	sent[0].remote_comm_id = 7;
	rpwi_cm_encode(&sent[0], mad);
	assert_true(rpwi_cm_peek(mad, sizeof(mad), &attr, &id, &about) && id == 7 && !about);
	sent[0].remote_comm_id = 0;
	sent[0].rej.ari_len = 8;
	rpwi_cm_encode(&sent[0], mad);
	assert_true(rpwi_cm_peek(mad, sizeof(mad), &attr, &id, &about) && !id && !about);
}

static void garbage_is_counted(void **state)
{
	uint8_t mad[RPWI_MAD_LEN] = {0};
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr};
	struct rpwi_cm_msg m = a_req(1, 2);
	rpwi_cm_encode(&m, mad);
	for (size_t len = 0; len < sizeof(mad); len++) {
		uint8_t *exact = malloc(len ? len : 1); /* so that ASan sees a read behind it */
		memcpy(exact, mad, len);
		rpwi_cm_rx(cm, &path, exact, len, now);
		free(exact);
	}
	mad[17] = 0x30;
	rpwi_cm_rx(cm, &path, mad, sizeof(mad), now);
	assert_int_equal(rpwi_cm_stats(cm)->bad_mads, 257);
	assert_int_equal(nincoming, 0);
	assert_int_equal(nsent, 0);
}

static void a_known_request_is_never_a_second_connection(void **state)
{
	for (enum rpwi_cm_state s = RPWI_CM_REQ_RCVD; s <= RPWI_CM_TIMEWAIT; s++) {
		if (s == RPWI_CM_REP_RCVD)
			continue;
		again();
		struct rpwi_cm_conn *c = bring(s, true);
		struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
		for (int i = 0; i < 3; i++)
			rx(&req);
		assert_int_equal(nincoming, 1);
		assert_int_equal(rpwi_cm_stats(cm)->duplicates, 3);
		assert_int_equal(c->state, s);
		/* The same ID in another transaction, and for another QP: the peer has begun a new
		 * life. What is over here is not in its way. */
		nsent = 0;
		req.tid ^= 0x100;
		req.req.qpn ^= 0x10;
		rx(&req);
		if (s == RPWI_CM_TIMEWAIT) {
			assert_int_equal(nincoming, 2);
			assert_int_equal(nsent, 0);
			continue;
		}
		assert_int_equal(nincoming, 1);
		assert_int_equal(sent[0].attr, RPWI_CM_REJ);
		assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
		assert_int_equal(nsent, s == RPWI_CM_ESTABLISHED ? 2 : 1);
		if (s == RPWI_CM_ESTABLISHED)
			assert_int_equal(sent[1].attr, RPWI_CM_DREQ);
	}
}

static void a_reused_qp_is_a_stale_connection(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, true);
	struct rpwi_cm_msg req = a_req(THEIR_ID + 1, THEIR_QPN);
	rx(&req);
	assert_int_equal(nincoming, 1);
	assert_int_equal(nsent, 2);
	assert_int_equal(sent[0].attr, RPWI_CM_REJ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID + 1);
	assert_int_equal(sent[1].attr, RPWI_CM_DREQ);
	assert_int_equal(sent[1].remote_comm_id, THEIR_ID);
	assert_int_equal(c->state, RPWI_CM_DREQ_SENT);
	rx_attr(c, RPWI_CM_DREP); /* the peer knows nothing of it, and says so */
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_DREP);
	assert_ptr_equal(event[0].conn, c);

	/* not in TIMEWAIT: the peer's QP is its own to use again */
	nsent = 0;
	req = a_req(THEIR_ID + 2, THEIR_QPN);
	rx(&req);
	assert_int_equal(nsent, 0);
	assert_int_equal(nincoming, 2);

	/* another CA, or another address, may well have a QP of that number */
	req = a_req(THEIR_ID + 3, THEIR_QPN);
	memcpy(req.req.ca_guid, our_guid, 8);
	rx(&req);
	assert_int_equal(nincoming, 3);
	static const struct rpwi_addr other = {.family = 4, .bytes = {10, 0, 0, 9}};
	req = a_req(THEIR_ID + 2, THEIR_QPN);
	rx_from(&other, &req);
	assert_int_equal(nincoming, 4);
}

static void a_rep_with_anothers_qp_is_refused(void **state)
{
	static struct rpwi_cm_conn second;
	bring(RPWI_CM_ESTABLISHED, false);
	rpwi_cm_conn_init(cm, &second, NULL);
	assert_int_equal(connect_with(&second, 0x999), 0);
	struct rpwi_cm_msg rep = within(&second, RPWI_CM_REP);
	rep.local_comm_id = 0x123;
	nsent = 0;
	rx(&rep);
	assert_int_equal(sent[0].attr, RPWI_CM_REJ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	assert_int_equal(sent[0].rej.msg_rejected, 1);
	assert_int_equal(sent[0].remote_comm_id, 0x123);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REJ);
	assert_int_equal(event[0].ev.reason, RPWI_REJ_STALE_CONN);
	assert_int_equal(second.state, RPWI_CM_IDLE);
	assert_int_equal(mine.state, RPWI_CM_ESTABLISHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_engine_refuses_by_itself),
		TEST(a_dreq_for_nobody_is_answered),
		TEST(a_rep_for_nobody_is_rejected),
		TEST(only_the_peer_is_believed),
		TEST(a_timeout_names_only_its_sender),
		TEST(garbage_is_counted),
		TEST(a_known_request_is_never_a_second_connection),
		TEST(a_reused_qp_is_a_stale_connection),
		TEST(a_rep_with_anothers_qp_is_refused),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
