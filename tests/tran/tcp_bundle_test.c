/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_bundle_test.c - what is special to tran_tcp: endpoints that share their streams, resets,
 * sockets that take little at a time, memory that goes away. */
#include "tcp_half.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- endpoints that share their streams ---- */

enum { SHARERS = 50 };

static unsigned count(struct rpwi_list *list)
{
	unsigned n = 0;
	for (struct rpwi_list *l = list->next; l != list; l = l->next)
		n++;
	return n;
}

/* A further pair between the two; its halves are at h[0] and h[1]. */
static void connect_more(struct half *h)
{
	struct half were[2] = {side[0], side[1]};
	connect_both();
	for (int i = 0; i < 2; i++) {
		h[i] = side[i];
		((struct tcp_ep *)h[i].ep)->base.user = &h[i];
		side[i] = were[i];
	}
}

static void send_from(struct half *h, int from)
{
	static uint8_t body[70000];
	uint8_t head[24];
	unsigned n = h[!from].frames;
	pattern_fill(head, sizeof head, h[!from].seed + 2 * (uint64_t)n);
	head[0] = 1;
	pattern_fill(body, nth_len(n), h[!from].seed + 2 * (uint64_t)n + 1);
	struct iovec iov = {body, nth_len(n)};
	assert_int_equal(tran_tcp.send(h[from].ep, head, sizeof head, &iov, 1, nth_len(n)), 0);
	UNTIL(h[!from].frames == n + 1);
}

/* One socket for all of them; each has its frames; one that is closed leaves the others theirs, and
 * its slot to another one. */
static void endpoints_between_two_contexts_share_a_stream(void **state)
{
	static struct half h[SHARERS][2];
	connect_both();
	for (int i = 0; i < SHARERS; i++)
		connect_more(h[i]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(count(&tcp(i)->bundles), 1);
	assert_int_equal(count(&ep(0)->bundle->members), SHARERS + 1);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < SHARERS; i++)
			send_from(h[i], (i + round) % 2);
	for (int i = 0; i < SHARERS; i += 2) {
		int closer = i / 2 % 2;
		tran_tcp.ep_close(h[i][closer].ep);
		UNTIL(h[i][!closer].failures == 1);
		assert_int_equal(h[i][!closer].status, RPW_ERR_UNREACHABLE);
		assert_non_null(strstr(h[i][!closer].why, "closed"));
		tran_tcp.ep_close(h[i][!closer].ep);
		connect_more(h[i]);
	}
	for (int i = 0; i < SHARERS; i++) {
		send_from(h[i], i % 2);
		assert_int_equal(h[i][0].failures + h[i][1].failures, 0);
	}
	assert_int_equal(count(&tcp(0)->bundles), 1);
	close_both();
	for (int i = 0; i < SHARERS; i++)
		for (int k = 0; k < 2; k++)
			tran_tcp.ep_close(h[i][k].ep);
	for (int i = 0; i < 2; i++)
		assert_int_equal(count(&tcp(i)->bundles), 0);
}

/* Bulk data overtakes the frame that tells of it: its stream waits. When its endpoint is closed
 * meanwhile, the others that share the stream get theirs. */
static void bulk_data_that_comes_too_early_waits(void **state)
{
	static struct half h[1][2];
	uint8_t *region = mapped(2 * LARGE), *local = mapped(2 * LARGE);
	struct tran_mem *m;
	connect_both();
	connect_more(h[0]);
	assert_int_equal(tran_tcp.mem->add(side[1].t, region, 2 * LARGE, TRAN_WRITE, &m), 0);
	pattern_fill(local, 2 * LARGE, 21);
	struct op first = {0};
	assert_int_equal(
		tran_tcp.rma->transfer(side[0].ep, true, &m->desc, 0, local, LARGE, NULL, &first),
		0);
	UNTIL(first.done && ep(0)->bundle->stream[1] && ep(0)->bundle->stream[1]->state == TCP_UP &&
		ep(1)->bundle->stream[1]);
	for (int closes = 0; closes < 2; closes++) {
		struct op op[2] = {{0}};
		struct tcp_stream *frames = ep(0)->bundle->stream[0],
				  *bulk = ep(1)->bundle->stream[1];
		memset(region, 0, 2 * LARGE);
		frames->state = TCP_GREETED; /* it sends nothing */
		assert_int_equal(tran_tcp.rma->transfer(
					 side[0].ep, true, &m->desc, 0, local, LARGE, NULL, &op[0]),
			0);
		assert_int_equal(tran_tcp.rma->transfer(h[0][0].ep, true, &m->desc, LARGE,
					 local + LARGE, LARGE, NULL, &op[1]),
			0);
		UNTIL(bulk->stalled);
		for (int i = 0; i < 100; i++)
			progress();
		assert_true(bulk->stalled && !op[0].done && !op[1].done);
		if (closes) {
			tran_tcp.ep_close(side[1].ep);
			side[1].ep = NULL;
		}
		frames->state = TCP_UP;
		tcp_stream_kick(frames);
		UNTIL((closes || op[0].done) && op[1].done);
		assert_int_equal(op[0].status | op[1].status, 0);
		assert_int_equal(h[0][0].failures + h[0][1].failures, 0);
		assert_true(pattern_holds_from(region + LARGE, LARGE, 21, LARGE));
		if (!closes)
			assert_true(pattern_holds(region, LARGE, 21));
	}
	for (int i = 0; i < 2; i++)
		tran_tcp.ep_close(h[0][i].ep);
	close_both();
	tran_tcp.mem->del(side[1].t, m);
	munmap(region, 2 * LARGE);
	munmap(local, 2 * LARGE);
}

/* Half of a put is in the socket when its endpoint is closed: the rest is what it was then, and
 * what shares the stream follows. */
static void what_is_half_sent_when_its_endpoint_closes_is_completed(void **state)
{
	static struct half h[1][2];
	uint8_t *region = mapped(2 * LARGE), *local = mapped(2 * LARGE);
	struct tran_mem *m;
	for (int round = 0; round < 10; round++) {
		IN_CASE("round", round);
		connect_both();
		connect_more(h[0]);
		assert_int_equal(
			tran_tcp.mem->add(side[1].t, region, 2 * LARGE, TRAN_WRITE, &m), 0);
		memset(region, 0xee, 2 * LARGE);
		pattern_fill(local, 2 * LARGE, 23);
		struct op op[2] = {{0}};
		setsockopt(ep(0)->bundle->stream[0]->fd, SOL_SOCKET, SO_SNDBUF, &(int){4608},
			sizeof(int));
		assert_int_equal(tran_tcp.rma->transfer(
					 side[0].ep, true, &m->desc, 0, local, 65536, NULL, &op[0]),
			0);
		assert_int_equal(tran_tcp.rma->transfer(h[0][0].ep, true, &m->desc, LARGE,
					 local + LARGE, 65536, NULL, &op[1]),
			0);
		const struct tcp_stream *s = ep(0)->bundle->stream[0];
		assert_true(s->out_count &&
			    RPWI_CONTAINER_OF(s->out.next, struct tran_bulk, link)->sent);
		tran_tcp.ep_close(side[0].ep);
		side[0].ep = NULL;
		memset(local, 0xdd, LARGE); /* it is ours again */
		UNTIL(op[1].done && side[1].failures);
		assert_int_equal(op[1].status, 0);
		assert_false(op[0].done);
		assert_true(pattern_holds(region, 65536, 23));
		assert_true(pattern_holds_from(region + LARGE, 65536, 23, LARGE));
		for (int i = 0; i < 2; i++)
			tran_tcp.ep_close(h[0][i].ep);
		close_both();
		tran_tcp.mem->del(side[1].t, m);
	}
	munmap(region, 2 * LARGE);
	munmap(local, 2 * LARGE);
}

/* When the stream breaks, all are told, once; and whoever connects next has a new one. */
static void a_shared_stream_that_breaks_fails_all(void **state)
{
	static struct half h[SHARERS][2];
	connect_both();
	for (int i = 0; i < SHARERS; i++)
		connect_more(h[i]);
	connect(ep(0)->bundle->stream[0]->fd, &(struct sockaddr){.sa_family = AF_UNSPEC},
		sizeof(struct sockaddr));
	for (int i = 0; i < SHARERS; i++)
		UNTIL(h[i][0].failures && h[i][1].failures);
	UNTIL(side[0].failures && side[1].failures);
	close_both();
	connect_both();
	assert_true(send_nth(0, 0));
	UNTIL(side[1].frames == 1);
	for (int i = 0; i < SHARERS; i++)
		for (int k = 0; k < 2; k++) {
			assert_int_equal(h[i][k].failures, 1);
			tran_tcp.ep_close(h[i][k].ep);
		}
}

/* A stream for bulk data has broken, and that a moment later all will: nobody who comes in between
 * puts that off, or the transfers on that stream would never end. */
static void who_comes_to_a_bundle_that_is_about_to_end_ends_with_it(void **state)
{
	struct op op = {0};
	struct tran_mem *m;
	struct half late[2];
	uint8_t *local = malloc(LARGE);
	connect_both();
	assert_int_equal(tran_tcp.mem->add(side[0].t, mapped(LARGE), LARGE, TRAN_READ, &m), 0);
	assert_int_equal(
		tran_tcp.rma->transfer(side[1].ep, false, &m->desc, 0, local, LARGE, NULL, &op), 0);
	UNTIL(op.done && ep(1)->bundle->stream[1] && ep(1)->bundle->stream[1]->state == TCP_UP);
	struct tcp_bundle *b = ep(1)->bundle;
	tcp_bundle_lost(b->stream[1], RPW_ERR_UNREACHABLE, "cut by the test");
	assert_true(b->error.status && b->state == TCP_BUNDLE_UP);
	struct half were[2] = {side[0], side[1]};
	make(0);
	make(1);
	start(0, 5000);
	start(1, 5000);
	for (int i = 0; i < 2; i++) {
		late[i] = side[i];
		((struct tcp_ep *)late[i].ep)->base.user = &late[i];
		side[i] = were[i];
		((struct tcp_ep *)side[i].ep)->base.user = &side[i];
	}
	/* The other side does not look meanwhile: it would see the end of the stream, and end
	 * everything by itself. */
	for (uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S;
		!late[1].ready && rpwi_now_ns() < end_ns;)
		tran_tcp.progress(side[1].t);
	assert_true(late[1].ready && !late[1].status && ((struct tcp_ep *)late[1].ep)->bundle == b);
	for (uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S;
		(!side[1].failures || !late[1].failures) && rpwi_now_ns() < end_ns;)
		tran_tcp.progress(side[1].t);
	assert_int_equal(side[1].failures, 1);
	assert_int_equal(late[1].failures, 1);
	for (int i = 0; i < 2; i++)
		tran_tcp.ep_close(late[i].ep);
	close_both();
	tran_tcp.mem->del(side[0].t, m);
	free(local);
}

/* A forked child has its parent's sockets, too. They end all the same when the parent closes them,
 * and are heard of no more. */
static void a_socket_that_somebody_else_has_too_is_closed_for_all(void **state)
{
	connect_both();
	int copy = dup(ep(1)->bundle->stream[0]->fd);
	assert_true(copy >= 0);
	tran_tcp.ep_close(side[1].ep);
	side[1].ep = NULL;
	UNTIL(side[0].failures);
	tran_tcp.ep_close(side[0].ep);
	side[0].ep = NULL;
	UNTIL(rpwi_list_empty(&tcp(1)->lingering));
	struct epoll_event e;
	while (epoll_wait(tcp(1)->epoll, &e, 1, 0) > 0)
		assert_ptr_equal(e.data.ptr, tcp(1)); /* the listener */
	connect_both();
	int copy_of_broken = dup(ep(1)->bundle->stream[0]->fd);
	tcp_bundle_fail(ep(1)->bundle, RPW_ERR_UNREACHABLE, "cut by the test");
	UNTIL(side[1].failures && side[0].failures);
	assert_int_equal(epoll_wait(tcp(1)->epoll, &e, 1, 0), 0);
	close(copy);
	close(copy_of_broken);
}

/* Who is in by one endpoint's nonce gets no other endpoint without its own; nor does it see the
 * frames of one that is not its own. */
static void a_shared_stream_lets_nobody_in_twice(void **state)
{
	static struct half h[2];
	uint8_t zeros[TCP_NONCE_LEN] = {0}, more[TCP_ATTACH_LEN];
	struct tcp_header answer;
	int fd = bare_peer();
	struct half were[2] = {side[0], side[1]};
	make(0);
	make(1);
	start(1, 5000);
	rpwi_put_be32(more, 4711);
	memcpy(more + 4, ep(1)->nonce, TCP_NONCE_LEN);
	more[TCP_ATTACH_LEN - 1] ^= 1;
	send_header(fd, (struct tcp_header){.kind = TCP_ATTACH, .id = ep(1)->number}, more,
		sizeof more);
	answer = hear_header(fd);
	assert_true(
		answer.kind == TCP_LEAVE && answer.id == 4711 && answer.answer == TCP_NO_ACCESS);
	/* The right nonce, but not for the endpoint that boot's handle told of. */
	more[TCP_ATTACH_LEN - 1] ^= 1;
	send_header(fd, (struct tcp_header){.kind = TCP_ATTACH, .id = ep(1)->number}, more,
		sizeof more);
	answer = hear_header(fd);
	assert_true(answer.kind == TCP_LEAVE && answer.id == 4711);
	assert_false(side[1].ready);
	/* Frames to one that is not attached find nobody. */
	send_header(fd,
		(struct tcp_header){.kind = TCP_FRAME, .id = ep(1)->number, .len = sizeof zeros},
		zeros, sizeof zeros);
	say_attach(fd, 1, ep(0)->number);
	answer = hear_header(fd);
	assert_true(answer.kind == TCP_ATTACHED && answer.id == ep(0)->number && side[1].ready &&
		    !side[1].status);
	assert_int_equal(side[1].frames, 0);
	close_both();
	for (int i = 0; i < 2; i++) {
		h[i] = were[i];
		((struct tcp_ep *)h[i].ep)->base.user = &h[i];
		assert_int_equal(h[i].failures, 0);
		tran_tcp.ep_close(h[i].ep);
	}
	close(fd);
}

/* A peer whose address boot could not tell still has a name where something is told of it. */
static void a_peer_without_an_address_has_a_name(void **state)
{
	struct tran_facts peer = {.hostname = "quince", .transports = "tcp"};
	make(0);
	side[1] = (struct half){.t = side[1].t};
	assert_int_equal(tran_tcp.ep_make(side[1].t, &(struct tran_control){.peer = &peer},
				 &side[1], &side[1].ep, side[1].handle, &side[1].handle_len),
		0);
	start(1, 50);
	UNTIL(side[1].ready);
	assert_int_equal(side[1].status, RPW_ERR_TIMEOUT);
	assert_non_null(strstr(side[1].why, "the peer (quince) did not connect"));
}

/* ---- resets, small sockets, vanishing memory ---- */

/* In the middle of frames and transfers, one stream is reset: both sides are told once, and what
 * was reported done is right. */
static void resets_are_told_once_and_nothing_wrong_is_done(void **state)
{
	enum { OPS = 6 };
	uint8_t *region = malloc(LARGE), *local = malloc(OPS * LARGE);
	pattern_fill(region, LARGE, 5);
	for (unsigned round = 0; round < 24; round++) {
		IN_CASE("round", round);
		struct op op[OPS] = {{0}};
		struct tran_mem *m;
		connect_both();
		assert_int_equal(tran_tcp.mem->add(side[1].t, region, LARGE, TRAN_READ, &m), 0);
		memset(local, 0xee, OPS * LARGE);
		for (int i = 0; i < OPS; i++)
			assert_int_equal(tran_tcp.rma->transfer(side[0].ep, false, &m->desc, 0,
						 local + i * LARGE, LARGE, NULL, &op[i]),
				0);
		unsigned sent[2] = {0};
		for (unsigned i = 0; i < round * 4; i++) {
			sent[0] += send_nth(0, sent[0]);
			sent[1] += send_nth(1, sent[1]);
			progress();
		}
		/* the bulk stream only once it is up: before, one can do without it */
		unsigned which = round / 2 % 2;
		if (which)
			UNTIL(ep(0)->bundle->stream[1] &&
				ep(0)->bundle->stream[1]->state == TCP_UP &&
				ep(1)->bundle->stream[1]);
		struct tcp_stream *s = ep(round % 2)->bundle->stream[which]
					       ? ep(round % 2)->bundle->stream[which]
					       : ep(round % 2)->bundle->stream[0];
		/* ip(7): dissolves it, by a reset */
		connect(s->fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
		UNTIL(side[0].failures && side[1].failures);
		for (int i = 0; i < 50; i++)
			progress();
		assert_int_equal(side[0].failures, 1);
		assert_int_equal(side[1].failures, 1);
		assert_int_equal(side[0].status, RPW_ERR_UNREACHABLE);
		assert_true(side[0].frames <= sent[1] && side[1].frames <= sent[0]);
		for (int i = 0; i < OPS; i++)
			if (op[i].done) {
				assert_int_equal(op[i].status, RPW_OK);
				assert_true(pattern_holds(local + i * LARGE, LARGE, 5));
			}
		assert_int_equal(tran_tcp.rma->transfer(
					 side[0].ep, false, &m->desc, 0, local, 8, NULL, &op[0]),
			RPW_ERR_PEER_GONE);
		close_both();
		tran_tcp.mem->del(side[1].t, m);
	}
	free(region);
	free(local);
}

/* Sockets that take a few KiB at a time: everything is cut anywhere. */
static void partial_writes_lose_nothing(void **state)
{
	enum { FRAMES = 300, OPS = 8, LEN = 700001 };
	struct op get[OPS] = {{0}}, put[OPS] = {{0}};
	struct tran_mem *m;
	uint8_t *region = malloc(2 * OPS * LEN), *local = malloc(2 * OPS * LEN);
	pattern_fill(region, OPS * LEN, 31);
	pattern_fill(local, OPS * LEN, 32);
	connect_both();
	assert_int_equal(
		tran_tcp.mem->add(side[1].t, region, 2 * OPS * LEN, TRAN_READ | TRAN_WRITE, &m), 0);
	unsigned sent[2] = {0};
	for (unsigned i = 0; sent[0] < FRAMES || sent[1] < FRAMES || side[0].frames < FRAMES ||
			     side[1].frames < FRAMES;
		i++) {
		for (int k = 0; k < 2; k++) {
			for (unsigned n = 0; n < TCP_STREAMS_MAX; n++)
				if (ep(k)->bundle->stream[n])
					setsockopt(ep(k)->bundle->stream[n]->fd, SOL_SOCKET,
						SO_SNDBUF, &(int){4608}, sizeof(int));
			if (sent[k] < FRAMES)
				sent[k] += send_nth(k, sent[k]);
		}
		if (i < OPS) {
			assert_int_equal(
				tran_tcp.rma->transfer(side[0].ep, false, &m->desc, i * LEN,
					local + (OPS + i) * LEN, LEN, NULL, &get[i]),
				0);
			assert_int_equal(
				tran_tcp.rma->transfer(side[0].ep, true, &m->desc, (OPS + i) * LEN,
					local + i * LEN, LEN, NULL, &put[i]),
				0);
		}
		progress();
		assert_int_equal(side[0].failures + side[1].failures, 0);
		assert_true(i < 50000000);
	}
	for (int i = 0; i < OPS; i++) {
		UNTIL(get[i].done && put[i].done);
		assert_int_equal(get[i].status | put[i].status, 0);
	}
	assert_true(pattern_holds(local + OPS * LEN, OPS * LEN, 31));
	assert_true(pattern_holds(region + OPS * LEN, OPS * LEN, 32));
	tran_tcp.mem->del(side[1].t, m);
	free(region);
	free(local);
}

/* Registered memory that is withdrawn, or unmapped, in the middle of being read and written: the
 * transfer fails, or is right; frames go on. */
static void memory_that_goes_away_fails_its_transfers_only(void **state)
{
	uint8_t *local = malloc(2 * LARGE);
	connect_both();
	for (unsigned round = 0; round < 30; round++) {
		IN_CASE("round", round);
		struct op op[2] = {{0}};
		struct tran_mem *m;
		uint8_t *region = mmap(
			NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pattern_fill(region, LARGE, round);
		assert_int_equal(
			tran_tcp.mem->add(side[1].t, region, LARGE, TRAN_READ | TRAN_WRITE, &m), 0);
		struct tran_desc d = m->desc;
		assert_int_equal(tran_tcp.rma->transfer(
					 side[0].ep, false, &d, 0, local, LARGE / 2, NULL, &op[0]),
			0);
		assert_int_equal(tran_tcp.rma->transfer(side[0].ep, true, &d, LARGE / 2,
					 local + LARGE, LARGE / 2, NULL, &op[1]),
			0);
		for (unsigned i = 0; i < round / 2; i++)
			progress();
		if (round % 2)
			tran_tcp.mem->del(side[1].t, m);
		munmap(region, LARGE);
		/* Whatever is there next is none of the peer's business. */
		uint8_t *next = mmap(region, LARGE, round % 3 ? PROT_NONE : PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		UNTIL(op[0].done && op[1].done);
		for (int i = 0; i < 2; i++)
			assert_true(op[i].status == RPW_OK || op[i].status == RPW_ERR_ACCESS);
		if (op[0].status == RPW_OK && round % 2)
			assert_true(pattern_holds(local, LARGE / 2, round));
		if (round % 2 == 0)
			tran_tcp.mem->del(side[1].t, m);
		munmap(next, LARGE);
		assert_int_equal(side[0].failures + side[1].failures, 0);
		unsigned frames = side[1].frames;
		UNTIL(send_nth(0, frames));
		UNTIL(side[1].frames == frames + 1);
	}
	free(local);
}

/* Large transfers by both sides bring up a stream of their own, and the path says so. */
static void bulk_has_a_stream_of_its_own(void **state)
{
	for (int asks = 0; asks < 2; asks++) {
		struct tran_mem *m;
		uint8_t *local = malloc(LARGE);
		connect_both();
		assert_string_equal(side[asks].ep->path, "1 stream to 127.0.0.1");
		assert_int_equal(
			tran_tcp.mem->add(side[!asks].t, mapped(LARGE), LARGE, TRAN_READ, &m), 0);
		pattern_fill(m->addr, LARGE, 3);
		for (int i = 0; i < 2; i++) {
			struct op op = {0};
			assert_int_equal(tran_tcp.rma->transfer(side[asks].ep, false, &m->desc, 0,
						 local, LARGE, NULL, &op),
				0);
			UNTIL(op.done && ep(0)->bundle->stream[1] &&
				ep(0)->bundle->stream[1]->state == TCP_UP);
			assert_true(op.status == RPW_OK && pattern_holds(local, LARGE, 3));
		}
		assert_string_equal(side[0].ep->path, "2 streams to 127.0.0.1");
		tran_tcp.mem->del(side[!asks].t, m);
		free(local);
		close_both();
	}
}

int main(void)
{
	unsetenv("ROPEWAY_TCP_STREAMS");
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(endpoints_between_two_contexts_share_a_stream),
		TEST(bulk_data_that_comes_too_early_waits),
		TEST(what_is_half_sent_when_its_endpoint_closes_is_completed),
		TEST(a_shared_stream_that_breaks_fails_all),
		TEST(who_comes_to_a_bundle_that_is_about_to_end_ends_with_it),
		TEST(a_socket_that_somebody_else_has_too_is_closed_for_all),
		TEST(a_shared_stream_lets_nobody_in_twice),
		TEST(a_peer_without_an_address_has_a_name),
		TEST(resets_are_told_once_and_nothing_wrong_is_done),
		TEST(partial_writes_lose_nothing),
		TEST(memory_that_goes_away_fails_its_transfers_only),
		TEST(bulk_has_a_stream_of_its_own),
	};
	return cmocka_run_group_tests_name("tcp bundles", tests, NULL, NULL);
}
