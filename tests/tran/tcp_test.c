/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_test.c - what is special to tran_tcp: strangers, impostors, peers that break the rules. */
#include "tcp_half.h"

#include <netinet/in.h>
#include <unistd.h>

/* ---- strangers ---- */

static void strangers_are_dropped_and_counted(void **state)
{
	uint8_t good[TCP_GREETING_LEN], bad[TCP_GREETING_LEN];
	make(0);
	make(1);
	struct tcp_greeting g = {.number = ep(1)->number};
	memcpy(g.nonce, ep(1)->nonce, TCP_NONCE_LEN);
	tcp_put_greeting(good, &g);
	uint64_t refused = 0;
	struct {
		const char *what;
		unsigned at, len;
		uint8_t change;
	} rows[] = {{"another protocol", 0, 4, 0x20}, {"another version", 5, TCP_GREETING_LEN, 3},
		{"a number that is not there", 8, TCP_GREETING_LEN, 0x7f},
		{"an earlier endpoint of that slot", 9, TCP_GREETING_LEN, 0x10},
		{"a wrong nonce, first byte", 12, TCP_GREETING_LEN, 1},
		{"a wrong nonce, last byte", TCP_GREETING_LEN - 1, TCP_GREETING_LEN, 0x80},
		{"a stream that cannot be", 7, TCP_GREETING_LEN, TCP_STREAMS_MAX},
		{"a bulk stream too early", 7, TCP_GREETING_LEN, 1}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		memcpy(bad, good, sizeof bad);
		bad[rows[i].at] ^= rows[i].change;
		int fd = bare_connect(tcp(1)->listener[0].port);
		assert_int_equal(send(fd, bad, rows[i].len, 0), rows[i].len);
		print_message("%s\n", rows[i].what);
		UNTIL(was_closed(fd));
		assert_int_equal(tcp(1)->strangers_refused, ++refused);
		close(fd);
	}
	/* Half a greeting, then the end; and silence, more of it than there is room for. */
	int fd = bare_connect(tcp(1)->listener[0].port);
	assert_int_equal(send(fd, good, 20, 0), 20);
	close(fd);
	UNTIL(tcp(1)->strangers_refused == refused + 1);
	int silent[TCP_STRANGERS_MAX + 20];
	for (size_t i = 0; i < RPWI_ARRAY_LEN(silent); i++) {
		silent[i] = bare_connect(tcp(1)->listener[0].port);
		progress();
	}
	UNTIL(tcp(1)->strangers_refused == refused + 1 + 20);
	assert_int_equal(tcp(1)->stranger_count, TCP_STRANGERS_MAX);
	assert_true(was_closed(silent[0]) && was_closed(silent[19]) && !was_closed(silent[20]));
	/* With all of them there, who is awaited comes in. */
	start(0, 5000);
	start(1, 5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status | side[1].status, 0);
	/* The silent ones cost a bounded time. */
	UNTIL(tcp(1)->stranger_count == 0);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(silent); i++)
		close(silent[i]);
	assert_true(send_nth(0, 0));
	UNTIL(side[1].frames == 1);
}

/* What was shown once is of no use a second time. */
static void a_nonce_that_is_in_use_lets_nobody_in(void **state)
{
	uint8_t good[TCP_GREETING_LEN];
	connect_both();
	struct tcp_greeting g = {.number = ep(1)->number};
	memcpy(g.nonce, ep(1)->nonce, TCP_NONCE_LEN);
	tcp_put_greeting(good, &g);
	int fd = bare_connect(tcp(1)->listener[0].port);
	assert_int_equal(send(fd, good, sizeof good, 0), sizeof good);
	UNTIL(was_closed(fd));
	close(fd);
	assert_true(send_nth(0, 0));
	UNTIL(side[1].frames == 1);
	assert_int_equal(side[0].failures + side[1].failures, 0);
}

/* Somebody else listens at the port of the handle: it cannot know our nonce. */
static void an_impostor_is_no_peer(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a) | listen(listener, 4) |
				 getsockname(listener, (struct sockaddr *)&a, &len),
		0);
	make(0);
	make(1);
	struct tcp_handle h = {.port = ntohs(a.sin_port)};
	side[1].handle_len = tcp_put_handle(side[1].handle, &h);
	start(0, 5000);
	int fd = accept(listener, NULL, NULL);
	uint8_t bytes[TCP_GREETING_LEN];
	UNTIL(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == sizeof bytes);
	/* an echo: all that it knows */
	assert_int_equal(send(fd, bytes, sizeof bytes, 0), sizeof bytes);
	UNTIL(side[0].ready);
	assert_int_equal(side[0].status, RPW_ERR_PROTOCOL);
	assert_non_null(strstr(side[0].why, "nonce"));
	close(fd);
	close(listener);
}

static void handles_are_checked(void **state)
{
	struct tcp_handle h = {.port = 7,
				  .number = 3,
				  .count = 2,
				  .address = {{.family = 4, .bytes = {10, 0, 0, 1}},
					  {.family = 6, .bytes = {0xfd, [15] = 9}}}},
			  back;
	for (unsigned i = 0; i < TCP_NONCE_LEN; i++)
		h.nonce[i] = (uint8_t)(i * 17 + 3);
	uint8_t bytes[TRAN_HANDLE_MAX];
	char why[200];
	size_t len = tcp_put_handle(bytes, &h);
	assert_int_equal(tcp_get_handle(bytes, len, &back, why, sizeof why), 0);
	assert_memory_equal(&h, &back, sizeof h);
	for (size_t n = 0; n < len; n++)
		assert_int_equal(tcp_get_handle(bytes, n, &back, why, sizeof why), -1);
	bytes[TCP_HANDLE_FIXED] = 5;
	assert_int_equal(tcp_get_handle(bytes, len, &back, why, sizeof why), -1);
	assert_non_null(strstr(why, "family 5"));
	bytes[5] = TCP_VERSION + 1;
	assert_int_equal(tcp_get_handle(bytes, len, &back, why, sizeof why), -1);
	assert_non_null(strstr(why, "version"));
}

/* ---- peers that break the rules ---- */

static void what_is_against_the_rules_fails_the_endpoint_with_a_sentence(void **state)
{
	static const struct {
		struct tcp_header h;
		const char *why;
	} rows[] = {
		{{.kind = 0}, "unknown kind"},
		{{.kind = TCP_LONG + 1}, "unknown kind"},
		{{.kind = TCP_FRAME, .head_len = TRAN_HEAD_MAX + 1}, "head longer"},
		{{.kind = TCP_FRAME, .len = TCP_FRAME_MAX + 1}, "length beyond"},
		{{.kind = TCP_LONG, .len = TCP_LONG_MAX + 1}, "length beyond"},
		{{.kind = TCP_LONG, .head_len = TRAN_HEAD_MAX + 1}, "head longer"},
		{{.kind = TCP_BULK, .len = TCP_BULK_MAX + 1}, "length beyond"},
		{{.kind = TCP_BULK, .head_len = 1}, "head longer"},
		{{.kind = TCP_BULK, .answer = 2}, "unknown answer"},
		{{.kind = TCP_END, .answer = 2}, "unknown answer"},
		{{.kind = TCP_END, .len = 1}, "length beyond"},
		{{.kind = TCP_END, .id = 16}, "did not begin"},
		{{.kind = TCP_OPEN, .len = 1}, "length beyond"},
		{{.kind = TCP_OPEN, .id = 1}, "an id where"},
		{{.kind = TCP_LEAVE, .id = 1, .answer = 2}, "unknown answer"},
		{{.kind = TCP_ATTACHED, .id = 1}, "does not ask"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		int fd = bare_peer();
		static const uint8_t zeros[TCP_NONCE_LEN];
		send_header(
			fd, rows[i].h, zeros, rows[i].h.kind == TCP_ATTACHED ? sizeof zeros : 0);
		UNTIL(side[1].failures);
		assert_int_equal(side[1].status, RPW_ERR_PROTOCOL);
		if (!strstr(side[1].why, rows[i].why))
			fail_msg("row %zu: %s", i, side[1].why);
		UNTIL(was_closed(fd));
		close(fd);
		close_both();
	}
}

/* What side 1 asked of the bare peer: 64 KiB, as bulk data, whose id it is. */
static uint32_t ask_for_bulk(uint8_t *local, struct op *op)
{
	struct tran_desc nowhere = {.len = 3};
	assert_int_equal(
		tran_tcp.rma->transfer(side[1].ep, false, &nowhere, 0, local, 65536, NULL, op), 0);
	assert_false(rpwi_list_empty(&ep(1)->expected));
	return RPWI_CONTAINER_OF(ep(1)->expected.next, struct tran_bulk, link)->id;
}

static void send_bulk(int fd, uint8_t answer, uint32_t to, uint32_t id, uint32_t len)
{
	uint8_t more[TCP_BULK_ID_LEN];
	rpwi_put_be32(more, id);
	send_header(fd,
		(struct tcp_header){.kind = TCP_BULK, .answer = answer, .id = to, .len = len}, more,
		sizeof more);
}

static void bulk_data_against_the_rules(void **state)
{
	static uint8_t local[65536], bytes[65536];
	static const struct {
		uint8_t answer;
		uint32_t other_id, len;
		bool body;
		const char *why;
	} rows[] = {
		{0, 0, 65535, false, "length that was not requested"},
		{0, 0, 65537, false, "length that was not requested"},
		{0, 0, 0, false, "length that was not requested"},
		{TCP_NO_ACCESS, 0, 65536, false, "length that was not requested"},
		{0, 1, 65536, false, "data that was not requested"},
		{0, 0, 65536, true, "without an end"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		struct op op = {0};
		int fd = bare_peer();
		uint32_t id = ask_for_bulk(local, &op);
		send_bulk(fd, rows[i].answer, ep(1)->number, id + rows[i].other_id, rows[i].len);
		for (size_t at = 0; rows[i].body && at < sizeof bytes;) {
			ssize_t n = send(fd, bytes + at, sizeof bytes - at, MSG_DONTWAIT);
			at += n > 0 ? (size_t)n : 0;
			progress();
		}
		if (rows[i].body)
			send_header(fd, (struct tcp_header){.kind = TCP_OPEN}, NULL, 0);
		UNTIL(side[1].failures);
		assert_int_equal(side[1].status, RPW_ERR_PROTOCOL);
		if (!strstr(side[1].why, rows[i].why))
			fail_msg("row %zu: %s", i, side[1].why);
		assert_false(op.done);
		close(fd);
		close_both();
	}
}

/* The end says whether the bytes are good; what is for nobody is read all the same, and nothing
 * behind it is lost. */
static void what_ends_badly_fails_its_operation_only(void **state)
{
	static uint8_t local[65536], bytes[65536];
	pattern_fill(bytes, sizeof bytes, 9);
	int fd = bare_peer();
	for (int round = 0; round < 4; round++) {
		IN_CASE("round", round);
		/* good, bad at the end, refused, for nobody and then good */
		struct op op = {0};
		uint32_t id = ask_for_bulk(local, &op);
		for (int nobody = round == 3; nobody >= 0; nobody--) {
			send_bulk(fd, round == 2 ? TCP_NO_ACCESS : 0,
				ep(1)->number + (uint32_t)nobody, id,
				round == 2 ? 0 : sizeof bytes);
			for (size_t at = 0; round != 2 && at < sizeof bytes;) {
				ssize_t n = send(fd, bytes + at, sizeof bytes - at, MSG_DONTWAIT);
				at += n > 0 ? (size_t)n : 0;
				progress();
			}
			if (round != 2)
				send_header(fd,
					(struct tcp_header){.kind = TCP_END,
						.answer = round == 1 ? TCP_NO_ACCESS : TCP_OK,
						.id = ep(1)->number + (uint32_t)nobody},
					NULL, 0);
		}
		UNTIL(op.done);
		assert_int_equal(op.status, round == 1 || round == 2 ? RPW_ERR_ACCESS : RPW_OK);
		assert_true(op.status || pattern_holds(local, sizeof local, 9));
	}
	assert_int_equal(side[1].failures, 0);
	close(fd);
}

static void write_all(int fd, const uint8_t *p, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, p + at, len - at, MSG_DONTWAIT);
		at += n > 0 ? (size_t)n : 0;
		progress();
	}
}

/* An endpoint is closed while a long frame is put into its place, or kept: the place is the
 * program's again, the rest is thrown away, and what is behind it goes to another endpoint. */
static void a_long_frame_for_who_leaves(void **state)
{
	enum { LONG = TCP_FRAME_MAX + 50000, HALF = 90000 };
	static uint8_t place[LONG], body[LONG], head[8], untouched[LONG];
	for (int kept = 0; kept < 2; kept++) {
		connect_both();
		struct tran_ep *first[2] = {side[0].ep, side[1].ep};
		connect_both();
		struct tcp_stream *from = ep(0)->bundle->stream[0], *to = ep(1)->bundle->stream[0];
		assert_ptr_equal(((struct tcp_ep *)first[1])->bundle, ep(1)->bundle);
		long_place = kept ? NULL : place;
		send_header(from->fd,
			(struct tcp_header){.kind = TCP_LONG,
				.id = ((struct tcp_ep *)first[1])->number,
				.head_len = sizeof head,
				.len = LONG},
			head, sizeof head);
		pattern_fill(body, LONG, 5);
		write_all(from->fd, body, HALF);
		UNTIL(to->frame && to->body_left == LONG - HALF);
		assert_true(kept || !memcmp(place, body, HALF));
		tran_tcp.ep_close(first[1]);
		memset(place, 0x77, LONG);
		write_all(from->fd, body + HALF, LONG - HALF);
		assert_true(send_nth(0, 0));
		UNTIL(side[1].frames == 1);
		memset(untouched, 0x77, LONG);
		assert_memory_equal(place, untouched, LONG);
		assert_null(to->frame);
		assert_int_equal(ep(1)->state, TCP_EP_UP);
		tran_tcp.ep_close(first[0]);
		close_both();
	}
	long_place = NULL;
}

/* A long frame without a receive is left where it is for a while by who polls, and is kept at last;
 * then some do not wait. Who sleeps, and what shares its stream, is not held up. */
static void a_long_frame_waits_for_its_receive(void **state)
{
	enum { LONG = TCP_FRAME_MAX + 70000, LOOKS = 64 };
	static uint8_t place[LONG], body[LONG], head[8];
	uint8_t *const later = TRAN_PLACE_LATER;
	side[0].t->polled = side[1].t->polled = true; /* for others nothing waits */
	connect_both();
	const struct tcp_stream *to = ep(1)->bundle->stream[0];
	pattern_fill(body, LONG, 5);
	assert_true(send_nth(0, 0)); /* from now on it is looked at each time */
	UNTIL(side[1].frames == 1 && to->hot);
	const struct {
		const char *what;
		uint8_t *first, *then;
		unsigned asks_least, asks_most;
		bool sleeps;
	} rows[] = {{"there at once", place, place, 1, 1, false},
		{"there after a while", later, place, 11, 11, false},
		{"never", later, later, LOOKS, UINT32_MAX, false},
		{"the next one does not wait", later, later, 1, 1, false},
		{"but the one after it", later, place, 11, 11, false},
		{"one that cannot be put there", later, NULL, 11, 11, false},
		{"nobody polls any more", later, later, 11, 12, true},
		{"nor waits for the next", later, later, 1, 1, false},
		{"it waits again", later, place, 11, 11, false}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		print_message("%s\n", rows[i].what);
		memset(place, 0x77, LONG);
		long_place = rows[i].first;
		long_asked = 0;
		struct iovec iov = {body, LONG};
		assert_int_equal(tran_tcp.send(side[0].ep, head, sizeof head, &iov, 1, LONG), 0);
		UNTIL(long_asked == 10 || long_came == i + 1);
		assert_true(long_came == i + 1 || (to->stalled && !to->frame));
		if (rows[i].sleeps) {
			int fd;
			uint64_t deadline = RPWI_NEVER;
			assert_int_equal(tran_tcp.arm(side[1].t, &fd, &deadline), 1);
		} else if (rows[i].asks_most > 1)
			long_place = rows[i].then;
		UNTIL(long_came == i + 1);
		assert_in_range(long_asked, rows[i].asks_least, rows[i].asks_most);
		assert_int_equal(long_body == place, rows[i].then == place);
	}
	struct tran_ep *first[2] = {side[0].ep, side[1].ep};
	connect_both();
	assert_ptr_equal(((struct tcp_ep *)first[1])->bundle, ep(1)->bundle);
	long_place = later;
	long_asked = 0;
	unsigned before = long_came;
	struct iovec iov = {body, LONG};
	assert_int_equal(tran_tcp.send(side[0].ep, head, sizeof head, &iov, 1, LONG), 0);
	UNTIL(long_came == before + 1);
	assert_int_equal(long_asked, 1);
	tran_tcp.ep_close(first[0]);
	tran_tcp.ep_close(first[1]);
	long_place = NULL;
	side[0].t->polled = side[1].t->polled = false;
}

/* As one whose body stays, right behind many. */
static bool send_as_one_of_many(struct tcp_stream *s, unsigned n)
{
	fill_nth(0, n);
	side[0].ep->stays = true;
	s->run = 100;
	s->large_ns = rpwi_now_ns();
	bool sent = send_filled(0, n);
	side[0].ep->stays = false;
	return sent;
}

/* One that follows others waits for more of them, whatever else is written meanwhile; and it does
 * so once. */
static void a_large_frame_waits_shortly_for_others(void **state)
{
	unsigned n = 0;
	connect_both();
	struct tcp_stream *s = ep(0)->bundle->stream[0];
	while (!s->deferred_ns && n < 10000) {
		side[0].room = false;
		if (send_as_one_of_many(s, n))
			n++;
		else if (!s->deferred_ns)
			UNTIL(side[0].room); /* the socket is full */
		else
			break;
		if (n % 16 == 0)
			UNTIL(side[1].frames == n);
	}
	assert_true(s->deferred_ns);
	side[0].room = false;
	s->sent_ns = s->large_ns = rpwi_now_ns() + RPWI_NS_PER_S;
	UNTIL(side[0].room);
	assert_true(send_as_one_of_many(s, n));
	UNTIL(side[1].frames == n + 1);
	close_both();
}

int main(void)
{
	unsetenv("ROPEWAY_TCP_STREAMS");
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(strangers_are_dropped_and_counted),
		TEST(a_nonce_that_is_in_use_lets_nobody_in),
		TEST(an_impostor_is_no_peer),
		TEST(handles_are_checked),
		TEST(what_is_against_the_rules_fails_the_endpoint_with_a_sentence),
		TEST(bulk_data_against_the_rules),
		TEST(what_ends_badly_fails_its_operation_only),
		TEST(a_long_frame_for_who_leaves),
		TEST(a_long_frame_waits_for_its_receive),
		TEST(a_large_frame_waits_shortly_for_others),
	};
	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
