/* SPDX-License-Identifier: BSD-3-Clause */
/* cause_test.c - what came first, from what both ends have told: one sentence for each failure, and
 * none where a connection ends as it should. */
#include "lib/test.h"

#include "base/base.h"
#include "check/cause.h"

enum { CLIENT = 100, SERVER = 200, C = 0x11, S = 0x12 };

#define AT(t, pid, kind, qpn, peer, text) \
	{ \
		t, pid, RPWI_CAUSE_##kind, qpn, peer, text, \
			(pid) == CLIENT ? "/x/call" : "/x/serve" \
	}
#define C_(t, kind, text) AT(t, CLIENT, kind, C, S, text)
#define S_(t, kind, text) AT(t, SERVER, kind, S, C, text)
/* how librdmacm connects */
#define CONNECTED \
	AT(1, CLIENT, CONNECTING, C, 0, "called rdma_connect"), \
		S_(2, ACCEPTING, "called rdma_accept"), C_(3, ESTABLISHED, "was connected"), \
		C_(4, TOOK_ESTABLISHED, "took ESTABLISHED"), S_(5, ESTABLISHED, "was connected")
#define SERVER_TAKES S_(6, TOOK_ESTABLISHED, "took ESTABLISHED")
#define SERVER_LEAVES \
	S_(20, TO_ERROR, "moved its QP to ERR"), S_(21, DISCONNECT, "called rdma_disconnect"), \
		C_(22, DISCONNECTED, "was told that the peer disconnects")
#define CLIENT_FOLLOWS \
	C_(23, TO_ERROR, "moved its QP to ERR"), C_(24, DISCONNECT, "called rdma_disconnect")
#define CLIENT_FLUSHED C_(25, RECV_FLUSHED, "the RECV with wr_id 7 was flushed")

static struct rpwi_cause out[4];

#define CAUSES(e) rpwi_causes(e, RPWI_ARRAY_LEN(e), out, RPWI_ARRAY_LEN(out))
/* One cause, of this text. */
#define EXPECT_ONE(e, sentence) \
	do { \
		assert_int_equal(CAUSES(e), 1); \
		assert_string_equal(out[0].text, sentence); \
	} while (0)

static void a_server_that_never_handles_established(void **state)
{
	const struct rpwi_cause_event e[] = {
		CONNECTED, SERVER_LEAVES, CLIENT_FOLLOWS, CLIENT_FLUSHED};
	EXPECT_ONE(e, "the server (serve, pid 200) never handled ESTABLISHED and called "
		      "rdma_disconnect; the client (call, pid 100): the RECV with wr_id 7 was "
		      "flushed by that");
	assert_int_equal(e[out[0].first].t_ns, 20);
	assert_int_equal(e[out[0].seen].t_ns, 25);
}

static void a_server_that_is_silent(void **state)
{
	const struct rpwi_cause_event e[] = {
		CONNECTED, SERVER_TAKES, SERVER_LEAVES, CLIENT_FOLLOWS, CLIENT_FLUSHED};
	EXPECT_ONE(e, "the server (serve, pid 200) sent nothing and called rdma_disconnect; the "
		      "client (call, pid 100): the RECV with wr_id 7 was flushed by that");
}

static void a_server_whose_send_came_too_late(void **state)
{
	const struct rpwi_cause_event e[] = {CONNECTED, SERVER_TAKES,
		S_(10, SENT, "posted its first send"), SERVER_LEAVES, CLIENT_FOLLOWS,
		CLIENT_FLUSHED};
	EXPECT_ONE(e, "the server (serve, pid 200) called rdma_disconnect; the client (call, pid "
		      "100): the RECV with wr_id 7 was flushed by that");
}

static void receives_left_over_at_the_end_are_no_failure(void **state)
{
	const struct rpwi_cause_event e[] = {CONNECTED, SERVER_TAKES,
		S_(10, SENT, "posted its first send"),
		C_(11, RECEIVED, "received its first message"), SERVER_LEAVES, CLIENT_FOLLOWS,
		CLIENT_FLUSHED};
	assert_int_equal(CAUSES(e), 0);
}

static void a_client_that_gives_up(void **state)
{
	const struct rpwi_cause_event e[] = {
		CONNECTED, SERVER_TAKES, CLIENT_FOLLOWS, CLIENT_FLUSHED};
	EXPECT_ONE(e, "the client (call, pid 100) called rdma_disconnect before anything had come "
		      "from the server (serve, pid 200), which had sent nothing; the RECV with "
		      "wr_id 7 was flushed by that");
}

static void sends_cut_off_by_their_own_side(void **state)
{
	const struct rpwi_cause_event e[] = {CONNECTED, SERVER_TAKES,
		C_(10, SENT, "posted its first send"), CLIENT_FOLLOWS,
		C_(25, SEND_FLUSHED, "the SEND with wr_id 3 was flushed")};
	EXPECT_ONE(e, "the client (call, pid 100) called rdma_disconnect before its sends were "
		      "complete; the SEND with wr_id 3 was flushed by that");
}

static void an_error_before_the_flushes(void **state)
{
	const struct rpwi_cause_event e[] = {CONNECTED, SERVER_TAKES,
		C_(10, SENT, "posted its first send"),
		C_(11, FAILED,
			"the RDMA_WRITE with wr_id 5 failed with status 10 (remote access error)"),
		C_(12, SEND_FLUSHED, "the SEND with wr_id 6 was flushed"), CLIENT_FLUSHED,
		S_(30, RECV_FLUSHED, "the RECV with wr_id 1 was flushed")};
	EXPECT_ONE(e, "the client (call, pid 100): the RDMA_WRITE with wr_id 5 failed with status "
		      "10 (remote access error), and nothing in the reports came before it");
}

static void a_qp_that_was_destroyed_under_its_peer(void **state)
{
	const struct rpwi_cause_event e[] = {C_(10, SENT, "posted its first send"),
		S_(11, SENT, "posted its first send"), S_(20, DESTROYED, "destroyed its QP"),
		C_(30, FAILED,
			"the SEND with wr_id 5 failed with status 12 (retry counter exceeded)")};
	EXPECT_ONE(e, "serve (pid 200) destroyed its QP; call (pid 100): the SEND with wr_id 5 "
		      "failed with status 12 (retry counter exceeded) by that");
}

static void a_process_that_ended(void **state)
{
	const struct rpwi_cause_event e[] = {CONNECTED, SERVER_TAKES,
		AT(20, SERVER, ENDED, 0, 0, "ended without disconnecting"),
		C_(21, PEER_GONE, "saw that the peer's process had ended"), CLIENT_FLUSHED};
	EXPECT_ONE(e, "the server (serve, pid 200) sent nothing and ended without disconnecting; "
		      "the client (call, pid 100): the RECV with wr_id 7 was flushed by that");
}

/* SIGKILL writes no line. */
static void a_process_that_was_killed(void **state)
{
	const struct rpwi_cause_event e[] = {CONNECTED, SERVER_TAKES,
		C_(21, PEER_GONE, "saw that the peer's process had ended"), CLIENT_FLUSHED};
	EXPECT_ONE(e, "the server (serve, pid 200) ended without disconnecting; the client (call, "
		      "pid 100): the RECV with wr_id 7 was flushed by that");
}

static void a_peer_that_was_not_checked(void **state)
{
	const struct rpwi_cause_event e[] = {C_(1, CONNECTING, "called rdma_connect"),
		C_(22, DISCONNECTED, "was told that the peer disconnects"), CLIENT_FOLLOWS,
		CLIENT_FLUSHED};
	EXPECT_ONE(e, "the server (not checked) disconnected; the client (call, pid 100): the RECV "
		      "with wr_id 7 was flushed by that");
}

static void a_rejection(void **state)
{
	const struct rpwi_cause_event e[] = {C_(1, CONNECTING, "called rdma_connect"),
		C_(2, REJECTED, "was rejected: no program listens on that port (REJ, reason 8)")};
	EXPECT_ONE(e, "the client (call, pid 100) was rejected: no program listens on that port "
		      "(REJ, reason 8)");
}

static void both_ends_in_one_process(void **state)
{
	const struct rpwi_cause_event e[] = {AT(20, CLIENT, TO_ERROR, S, C, "moved its QP to ERR"),
		AT(25, CLIENT, RECV_FLUSHED, C, S, "the RECV with wr_id 7 was flushed")};
	EXPECT_ONE(e, "QP 0x000012 of call (pid 100) sent nothing and moved its QP to ERR; QP "
		      "0x000011 of call (pid 100): the RECV with wr_id 7 was flushed by that");
}

/* The number of a QP that has gone is another's: its end is not this one's cause. */
static void a_number_that_is_used_again(void **state)
{
	const struct rpwi_cause_event e[] = {S_(1, TO_ERROR, "moved its QP to ERR"),
		S_(2, DESTROYED, "destroyed its QP"), C_(3, SENT, "posted its first send"),
		C_(4, DESTROYED, "destroyed its QP"), C_(10, SENT, "posted its first send"),
		S_(11, SENT, "posted its first send"),
		C_(12, FAILED, "the SEND with wr_id 5 failed with status 13 (RNR)")};
	EXPECT_ONE(e, "call (pid 100): the SEND with wr_id 5 failed with status 13 (RNR), and "
		      "nothing in the reports came before it");
}

static void the_same_of_many_pairs_is_counted(void **state)
{
	struct rpwi_cause_event e[12];
	for (uint32_t i = 0; i < 6; i++) {
		e[i] = (struct rpwi_cause_event)AT(
			10 + i, SERVER, TO_ERROR, 0x200 + i, 0x100 + i, "moved its QP to ERR");
		e[6 + i] = (struct rpwi_cause_event)AT(20 + i, CLIENT, RECV_FLUSHED, 0x100 + i,
			0x200 + i,
			i % 2 ? "the RECV with wr_id 71 was flushed"
			      : "the RECV with wr_id 7 was flushed");
	}
	assert_int_equal(CAUSES(e), 1);
	assert_int_equal(out[0].pairs, 6);
}

static void more_causes_than_there_is_room_for(void **state)
{
	static const char *const op[] = {"SEND", "RECV", "READ", "WRITE", "BIND", "CAS"};
	struct rpwi_cause_event e[6];
	char text[6][80];
	for (uint32_t i = 0; i < 6; i++) {
		snprintf(text[i], sizeof(text[i]), "the %s with wr_id 1 failed with status 4",
			op[i]);
		e[i] = (struct rpwi_cause_event)AT(i, CLIENT, FAILED, 0x100 + i, 0, text[i]);
	}
	assert_int_equal(CAUSES(e), RPWI_ARRAY_LEN(out));
}

static void a_text_that_is_too_long_is_cut(void **state)
{
	static char text[2000];
	memset(text, 'x', sizeof(text) - 1);
	const struct rpwi_cause_event e[] = {C_(1, REJECTED, text)};
	assert_int_equal(CAUSES(e), 1);
	assert_int_equal(strlen(out[0].text), sizeof(out[0].text) - 1);
}

static void every_kind_has_a_name_of_its_own(void **state)
{
	for (enum rpwi_cause_kind k = 0; k < RPWI_CAUSES; k++)
		assert_int_equal(rpwi_cause_named(rpwi_cause_name(k)), k);
	assert_int_equal(rpwi_cause_named("nothing"), RPWI_CAUSES);
	assert_int_equal(rpwi_causes(NULL, 0, out, 4), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_never_handles_established),
		cmocka_unit_test(a_server_that_is_silent),
		cmocka_unit_test(a_server_whose_send_came_too_late),
		cmocka_unit_test(receives_left_over_at_the_end_are_no_failure),
		cmocka_unit_test(a_client_that_gives_up),
		cmocka_unit_test(sends_cut_off_by_their_own_side),
		cmocka_unit_test(an_error_before_the_flushes),
		cmocka_unit_test(a_qp_that_was_destroyed_under_its_peer),
		cmocka_unit_test(a_process_that_ended),
		cmocka_unit_test(a_process_that_was_killed),
		cmocka_unit_test(a_peer_that_was_not_checked),
		cmocka_unit_test(a_rejection),
		cmocka_unit_test(both_ends_in_one_process),
		cmocka_unit_test(a_number_that_is_used_again),
		cmocka_unit_test(the_same_of_many_pairs_is_counted),
		cmocka_unit_test(more_causes_than_there_is_room_for),
		cmocka_unit_test(a_text_that_is_too_long_is_cut),
		cmocka_unit_test(every_kind_has_a_name_of_its_own),
	};
	return cmocka_run_group_tests_name("cause", tests, NULL, NULL);
}
