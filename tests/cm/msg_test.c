/* SPDX-License-Identifier: BSD-3-Clause */
/* What the messages say, byte for byte of the program's words; SIDR. */
#include "peer.h"

static void active_side(void **state)
{
	assert_int_equal(connect_with(&mine, our_param.qpn), 0);
	assert_int_equal(nsent, 1);
	struct rpwi_cm_msg req = sent[0];
	assert_true(rpwi_addr_eq(&sent_path[0].remote, &their_addr) &&
		    rpwi_addr_eq(&sent_path[0].local, &our_addr));
	assert_int_equal(req.local_comm_id, mine.local_id);
	assert_int_equal(req.local_comm_id >> 20, PREFIX);
	assert_true(req.req.service_id == service);
	assert_memory_equal(req.req.ca_guid, our_guid, 8);
	assert_int_equal(req.req.qpn, our_param.qpn);
	assert_int_equal(req.req.starting_psn, our_param.starting_psn);
	assert_int_equal(req.req.responder_resources, 3);
	assert_int_equal(req.req.initiator_depth, 4);
	assert_int_equal(req.req.retry_count, 6);
	assert_int_equal(req.req.rnr_retry_count, 5);
	assert_int_equal(req.req.path_mtu, 3);
	assert_int_equal(req.req.pkey, 0xffff);
	assert_int_equal(req.req.max_cm_retries, 15);
	assert_int_equal(req.req.remote_cm_response_timeout, 20);
	assert_int_equal(req.req.local_cm_response_timeout, 20);
	assert_int_equal(req.req.primary.local_ack_timeout, 18);
	assert_int_equal(req.req.primary.hop_limit, 64);
	assert_memory_equal(req.req.primary.local_gid, "ourgid", 7);
	assert_memory_equal(req.req.primary.remote_gid, "theirgid", 9);
	assert_true(req.req.srq);
	assert_memory_equal(req.pdata, "req", 4);

	struct rpwi_cm_msg rep = within(&mine, RPWI_CM_REP);
	rep.tid = req.tid;
	rep.pdata_len = 6;
	memcpy(rep.pdata, "reply", 6);
	rx(&rep);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REP);
	assert_memory_equal(event[0].pdata, "reply", 6);
	assert_int_equal(event[0].ev.pdata_len, RPWI_REP_PDATA);
	assert_int_equal(mine.remote.qpn, THEIR_QPN);
	assert_int_equal(mine.remote.starting_psn, 0x333333);
	assert_int_equal(mine.remote.responder_resources, 2);
	assert_int_equal(mine.remote.initiator_depth, 1);
	assert_int_equal(mine.remote.rnr_retry_count, 3);
	assert_true(mine.remote.srq);
	assert_int_equal(mine.remote_id, THEIR_ID);
	assert_memory_equal(mine.remote_ca_guid, their_guid, 8);

	assert_int_equal(rpwi_cm_establish(&mine, "ready", 6, now), 0);
	assert_int_equal(sent[1].attr, RPWI_CM_RTU);
	assert_true(sent[1].tid == req.tid);
	assert_int_equal(sent[1].remote_comm_id, THEIR_ID);
	assert_memory_equal(sent[1].pdata, "ready", 6);
	rx(&rep); /* the RTU was lost: again, with its private data */
	assert_int_equal(sent[2].attr, RPWI_CM_RTU);
	assert_memory_equal(sent[2].pdata, "ready", 6);
	assert_int_equal(nevent, 1);

	assert_int_equal(rpwi_cm_disconnect(&mine, now), 0);
	assert_int_equal(sent[3].attr, RPWI_CM_DREQ);
	assert_int_equal(sent[3].dreq.remote_qpn, THEIR_QPN);
	assert_int_equal(sent[3].local_comm_id, mine.local_id);
	assert_int_equal(sent[3].remote_comm_id, THEIR_ID);
	assert_true(sent[3].tid != req.tid);
}

static void passive_side(void **state)
{
	struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
	rx(&req);
	assert_int_equal(nincoming, 1);
	assert_true(passive->passive);
	assert_int_equal(passive->local_id >> 20, PREFIX);
	assert_int_equal(passive->remote_id, THEIR_ID);
	assert_true(passive->service_id == service);
	assert_int_equal(passive->remote.qpn, THEIR_QPN);
	assert_int_equal(passive->remote.starting_psn, 0x222222);
	assert_int_equal(passive->remote.responder_resources, 7);
	assert_int_equal(passive->remote.initiator_depth, 8);
	assert_int_equal(passive->remote.retry_count, 7);
	assert_int_equal(passive->remote.rnr_retry_count, 2);
	assert_int_equal(passive->remote.ack_timeout, 17);
	assert_int_equal(passive->path.mtu, 3);
	assert_int_equal(passive->path.traffic_class, 0x20);
	assert_int_equal(passive->path.hop_limit, 33);
	assert_int_equal(passive->path.flow_label, 0x54321);
	assert_true(rpwi_addr_eq(&passive->path.remote, &their_addr) &&
		    rpwi_addr_eq(&passive->path.local, &our_addr));
	assert_int_equal(nsent, 0);

	assert_int_equal(rpwi_cm_accept(passive, our_guid, &our_param, "yes", 4, now), 0);
	assert_int_equal(sent[0].attr, RPWI_CM_REP);
	assert_true(sent[0].tid == req.tid);
	assert_int_equal(sent[0].local_comm_id, passive->local_id);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
	assert_int_equal(sent[0].rep.qpn, our_param.qpn);
	assert_int_equal(sent[0].rep.starting_psn, our_param.starting_psn);
	assert_int_equal(sent[0].rep.responder_resources, 3);
	assert_int_equal(sent[0].rep.initiator_depth, 4);
	assert_int_equal(sent[0].rep.rnr_retry_count, 5);
	assert_true(sent[0].rep.srq);
	assert_memory_equal(sent[0].rep.ca_guid, our_guid, 8);
	assert_memory_equal(sent[0].pdata, "yes", 4);

	struct rpwi_cm_msg rtu = within(passive, RPWI_CM_RTU);
	rtu.pdata_len = 3;
	memcpy(rtu.pdata, "go", 3);
	rx(&rtu);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_ESTABLISHED);
	assert_memory_equal(event[0].pdata, "go", 3);

	struct rpwi_cm_msg dreq = within(passive, RPWI_CM_DREQ);
	dreq.tid = 0x4242;
	rx(&dreq);
	assert_int_equal(event[1].ev.type, RPWI_CM_EV_DREQ);
	assert_int_equal(rpwi_cm_disconnect(passive, now), 0);
	assert_int_equal(sent[1].attr, RPWI_CM_DREP);
	assert_true(sent[1].tid == 0x4242);
	assert_int_equal(sent[1].remote_comm_id, THEIR_ID);
	assert_int_equal(nevent, 2);
}

static void every_reason_arrives(void **state)
{
	for (uint16_t reason = 1; reason <= 40; reason++) {
		again();
		bring(RPWI_CM_REQ_SENT, false);
		struct rpwi_cm_msg rej = within(&mine, RPWI_CM_REJ);
		rej.local_comm_id = 0; /* a peer that has made no connection for it */
		rej.rej.reason = reason;
		rej.pdata_len = 5;
		memcpy(rej.pdata, "no no", 5);
		rx(&rej);
		assert_int_equal(nevent, 1);
		assert_int_equal(event[0].ev.type, RPWI_CM_EV_REJ);
		assert_int_equal(event[0].ev.reason, reason);
		assert_int_equal(event[0].ev.pdata_len, RPWI_REJ_PDATA);
		assert_memory_equal(event[0].pdata, "no no", 5);
		assert_int_equal(mine.state,
			reason == RPWI_REJ_STALE_CONN ? RPWI_CM_TIMEWAIT : RPWI_CM_IDLE);
		/* and from our program to the peer's */
		again();
		struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
		assert_int_equal(rpwi_cm_reject(c, reason, "ari", 4, "sorry", 6, now), 0);
		assert_int_equal(sent[0].attr, RPWI_CM_REJ);
		assert_int_equal(sent[0].rej.reason, reason);
		assert_int_equal(sent[0].rej.msg_rejected, 0);
		assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
		assert_memory_equal(sent[0].pdata, "sorry", 6);
		assert_memory_equal(sent[0].rej.ari, "ari", 4);
	}
}

static void private_data_has_bounds(void **state)
{
	static const uint8_t big[256];
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr, .mtu = 3};
	assert_int_equal(rpwi_cm_connect(&mine, &path, service, our_guid, &our_param, big,
				 RPWI_REQ_PDATA + 1, now),
		-EINVAL);
	assert_int_equal(mine.state, RPWI_CM_IDLE);
	assert_int_equal(rpwi_cm_connect(&mine, &path, service, our_guid, &our_param, big,
				 RPWI_REQ_PDATA, now),
		0);
	rx_attr(&mine, RPWI_CM_REP);
	assert_int_equal(rpwi_cm_establish(&mine, big, RPWI_RTU_PDATA + 1, now), -EINVAL);
	assert_int_equal(rpwi_cm_reject(&mine, 28, big, 0, big, RPWI_REJ_PDATA + 1, now), -EINVAL);
	assert_int_equal(rpwi_cm_reject(&mine, 28, big, 73, big, 0, now), -EINVAL);
	assert_int_equal(mine.state, RPWI_CM_REP_RCVD);
	assert_int_equal(rpwi_cm_establish(&mine, big, RPWI_RTU_PDATA, now), 0);
	again();
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	assert_int_equal(
		rpwi_cm_accept(c, our_guid, &our_param, big, RPWI_REP_PDATA + 1, now), -EINVAL);
	assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, big, RPWI_REP_PDATA, now), 0);
	again();
	c = bring(RPWI_CM_SIDR_REQ_RCVD, true);
	assert_int_equal(
		rpwi_cm_sidr_reply(c, 0, 1, 2, big, RPWI_SIDR_REP_PDATA + 1, now), -EINVAL);
	assert_int_equal(rpwi_cm_sidr_request(
				 &mine, &path, service, big, RPWI_SIDR_REQ_PDATA + 1, 10, 1, now),
		-EINVAL);
	assert_int_equal(
		rpwi_cm_sidr_request(&mine, &path, service, big, RPWI_SIDR_REQ_PDATA, 10, 1, now),
		0);
}

static void sidr(void **state)
{
	assert_int_equal(sidr_ask(&mine, 1000, 3), 0);
	assert_int_equal(sent[0].attr, RPWI_CM_SIDR_REQ);
	assert_true(sent[0].sidr_req.service_id == service);
	assert_int_equal(sent[0].sidr_req.pkey, 0xffff);
	assert_memory_equal(sent[0].pdata, "ask", 4);
	struct rpwi_cm_msg rep = within(&mine, RPWI_CM_SIDR_REP);
	rep.sidr_rep.status = 2;
	rep.pdata_len = 5;
	memcpy(rep.pdata, "shy..", 5);
	rx(&rep);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_SIDR_REP);
	assert_int_equal(event[0].ev.sidr.status, 2);
	assert_int_equal(event[0].ev.sidr.qpn, 0x99);
	assert_int_equal(event[0].ev.sidr.qkey, 0x1234567);
	assert_int_equal(event[0].ev.pdata_len, RPWI_SIDR_REP_PDATA);
	assert_memory_equal(event[0].pdata, "shy..", 5);
	rx(&rep);
	assert_int_equal(nevent, 1);

	/* unanswered: (retries + 1) time-outs */
	uint64_t start = now;
	nsent = 0;
	assert_int_equal(sidr_ask(&mine, 1000, 3), 0);
	run_until(start + 4 * SECOND - 1);
	assert_int_equal(nevent, 1);
	assert_true(nsent >= 4);
	run_until(start + 4 * SECOND);
	assert_int_equal(event[1].ev.type, RPWI_CM_EV_SIDR_REQ_ERROR);

	/* the other side: a lost answer is said again, and the listener is asked once */
	nsent = 0;
	rx_sidr_req(0x321);
	assert_int_equal(nincoming, 1);
	assert_true(passive->sidr && passive->service_id == service);
	assert_int_equal(rpwi_cm_sidr_reply(passive, 0, 0x77, 0x11223344, "here", 5, now), 0);
	rx_sidr_req(0x321);
	assert_int_equal(nincoming, 1);
	assert_int_equal(nsent, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sent[i].attr, RPWI_CM_SIDR_REP);
		assert_int_equal(sent[i].local_comm_id, 0x321);
		assert_int_equal(sent[i].sidr_rep.qpn, 0x77);
		assert_int_equal(sent[i].sidr_rep.qkey, 0x11223344);
		assert_true(sent[i].tid == THEIR_TID + 0x321);
		assert_memory_equal(sent[i].pdata, "here", 5);
	}
	/* A request ID is no communication ID: a REQ of the same number is another thing. */
	struct rpwi_cm_msg req = a_req(0x321, 5);
	rx(&req);
	assert_int_equal(nincoming, 2);
	rx_sidr_req(0x322);
	rpwi_cm_destroy(passive, now);
	assert_int_equal(sent[nsent - 1].attr, RPWI_CM_SIDR_REP);
	assert_int_equal(sent[nsent - 1].sidr_rep.status, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(active_side),
		TEST(passive_side),
		TEST(every_reason_arrives),
		TEST(private_data_has_bounds),
		TEST(sidr),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
