/* SPDX-License-Identifier: BSD-3-Clause */
/* resume_test.c - a path that breaks at one chosen moment: whatever waited goes on by the next one.
 * Or the peer acts at that moment. Over the fakes, both sides in one thread. */
#include "fake.h"
#include "msg/objects.h"
#include "pair.h"

enum { AM_ID = 5, LEN = 5000 /* fetched: over eager_max, below put_min */, ROUNDS = 5000 };

static int quiet(void **state)
{
	fake = (struct fake_knobs){.rng = {0x5eed}, .eager_max = 2048, .frame_max = 8192};
	return 0;
}

static struct {
	unsigned n, wrong;
} came;
static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	came.wrong += len != LEN || pattern_wrong(data, len, came.n) != len;
	came.n++;
}

static void rounds(struct pair *p)
{
	for (int i = 0; i < ROUNDS; i++)
		both(p);
}

/* An active message is held behind one that is fetched. The sender hears that the fetch is over,
 * and adds to memory, before the receiver's round ends: the message takes effect first. */
struct adder {
	struct pair *p;
	rpw_rkey *key;
	rpw_request *offered, *added;
	uint64_t word, before;
	unsigned came;
};
static void fetched_then_held(rpw_endpoint *ep, const void *header, size_t header_len,
	const void *data, size_t len, void *arg)
{
	struct adder *a = arg;
	assert_int_equal(len, a->came ? 8 : LEN);
	assert_int_equal(pattern_wrong(data, len, a->came), len);
	assert_int_equal(a->word, 0);
	if (a->came++)
		return;
	rpw_context_progress(a->p->a);
	assert_int_equal(finish(a->p, a->offered, NULL), RPW_OK);
	assert_int_equal(
		rpw_fetch_add(a->p->ea, 7, a->key, 0, &a->before, &a->added), RPW_IN_PROGRESS);
}
static void an_atomic_comes_while_active_messages_wait(void **state)
{
	struct pair p;
	struct adder a = {.p = &p};
	static char out[LEN], held[8];
	uint8_t packed[RPW_RKEY_BYTES_MAX];
	rpw_memory *m;
	pair_open(&p, "fake_b");
	rpw_context_on_am(p.b, AM_ID, fetched_then_held, &a);
	assert_int_equal(
		rpw_memory_register(p.b, &a.word, 8, RPW_MEMORY_HOST, RPW_REMOTE_ATOMIC, &m), 0);
	int n = rpw_rkey_pack(m, packed, sizeof(packed));
	assert_true(n > 0);
	assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)n, &a.key), RPW_OK);
	pattern_fill(out, LEN, 0);
	pattern_fill(held, sizeof(held), 1);
	fake.hold_dones = true;
	assert_int_equal(rpw_am_send(p.ea, AM_ID, NULL, 0, out, LEN, &a.offered), RPW_IN_PROGRESS);
	assert_int_equal(rpw_am_send(p.ea, AM_ID, NULL, 0, held, sizeof(held), NULL), RPW_OK);
	rounds(&p);
	assert_int_equal(a.came, 0);
	fake.hold_dones = false;
	rounds(&p);
	assert_int_equal(a.came, 2);
	assert_int_equal(finish(&p, a.added, NULL), RPW_OK);
	assert_int_equal(a.word, 7);
	rpw_rkey_destroy(a.key);
	rpw_memory_destroy(m);
	pair_close(&p);
}

/* Active messages are fetched one at a time. When the one that is fetched has just come and the
 * path breaks in the same round, the turn of those behind it comes with the next path. */
static void active_messages_that_wait_for_their_turn(void **state)
{
	enum { N = 4 };
	struct pair p;
	rpw_request *s[N];
	static char out[N][LEN];
	came.n = came.wrong = 0;
	pair_open(&p, "fake_b");
	rpw_context_on_am(p.b, AM_ID, on_am, NULL);
	fake.hold_dones = true;
	for (unsigned i = 0; i < N; i++) {
		pattern_fill(out[i], LEN, i);
		assert_int_equal(
			rpw_am_send(p.ea, AM_ID, NULL, 0, out[i], LEN, &s[i]), RPW_IN_PROGRESS);
	}
	rounds(&p);
	assert_int_equal(came.n, 0);
	fake.hold_dones = false;
	fake.break_behind_done = true;
	rounds(&p);
	assert_int_equal(fake.breaks, 1);
	assert_int_equal(came.n, N);
	assert_int_equal(came.wrong, 0);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
	pair_close(&p);
}

/* A flush that finds the log full is in no queue: the acknowledgements that make room have to look
 * after it. */
static void a_flush_that_finds_the_log_full(void **state)
{
	struct pair p;
	uint64_t in, out = 7;
	rpw_request *r, *f;
	pair_open(&p, "fake_b");
	/* A window for so many grows by messages that nobody receives yet. */
	unsigned sent = 0;
	for (; p.eb->link.window < 3 * LOG_FRAMES_MAX; sent++) {
		assert_true(sent < 4 * LOG_FRAMES_MAX);
		assert_true(rpw_send(p.ea, &out, 8, 1, NULL) >= 0);
		both(&p);
	}
	for (; sent; sent--) {
		assert_int_equal(rpw_recv(p.b, p.eb, &in, 8, 1, UINT64_MAX, &r), RPW_IN_PROGRESS);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
	}
	assert_int_equal(rpw_endpoint_flush(p.ea, &f), RPW_IN_PROGRESS);
	assert_int_equal(finish(&p, f, NULL), RPW_OK);
	assert_int_equal(p.ea->link.log_frames, 0);
	for (unsigned n = 0; n < LOG_FRAMES_MAX; n++)
		assert_int_equal(rpw_send(p.ea, &out, 8, 1, NULL), RPW_OK);
	assert_int_equal(p.ea->link.log_frames, LOG_FRAMES_MAX);
	assert_int_equal(rpw_endpoint_flush(p.ea, &f), RPW_IN_PROGRESS);
	rounds(&p);
	assert_int_equal(rpw_request_test(f, NULL), RPW_OK);
	rpw_request_destroy(f);
	pair_close(&p);
}

/* What breaks a path may break those that are to replace it, before they are up: they are tried
 * until the time that the peer waits for one is over. */
static void the_next_paths_break_before_they_are_up(void **state)
{
	struct pair p;
	rpw_request *r;
	uint64_t in = 0, out = 4711;
	rpw_endpoint_information a = {.size = sizeof(a)};
	pair_open(&p, "fake_b");
	fake.break_now = true;
	fake.break_young = 15;
	assert_true(rpw_send(p.ea, &out, 8, 1, NULL) >= 0);
	assert_int_equal(rpw_recv(p.b, p.eb, &in, 8, 1, UINT64_MAX, &r), RPW_IN_PROGRESS);
	assert_int_equal(finish(&p, r, NULL), RPW_OK);
	assert_int_equal(in, 4711);
	assert_int_equal(fake.break_young, 0);
	rpw_endpoint_info(p.ea, &a);
	assert_true(a.connected);
	pair_close(&p);
}

static void break_once(struct pair *p, unsigned before)
{
	fake.break_now = true;
	WHILE_IN_TIME (
		fake.breaks == before || (p->ea->state != EP_UP && p->ea->state != EP_FAILED))
		both(p);
}

/* A path that carries greetings and nothing else comes up again and again: after a few of them the
 * endpoint ends, and says so. */
static void paths_that_carry_nothing(void **state)
{
	struct pair p;
	pair_open(&p, "fake_b");
	for (unsigned n = 0; n < 3 * FRUITLESS_MAX && p.ea->state != EP_FAILED; n++)
		break_once(&p, n);
	assert_int_equal(fake.breaks, FRUITLESS_MAX);
	assert_int_equal(p.ea->error.status, RPW_ERR_UNREACHABLE);
	assert_non_null(strstr(p.ea->error.text, "broke before anything moved"));
	WHILE_IN_TIME (p.eb->state != EP_FAILED)
		both(&p);
	assert_non_null(strstr(p.eb->error.text, "broke before anything moved"));
	pair_close(&p);
}

/* One message between two breaks is enough for it to go on. */
static void paths_that_carry_something(void **state)
{
	struct pair p;
	pair_open(&p, "fake_b");
	for (uint64_t n = 0, in; n < 3 * FRUITLESS_MAX; n++) {
		rpw_request *r;
		break_once(&p, (unsigned)n);
		assert_int_equal(p.ea->state, EP_UP);
		assert_true(rpw_send(p.ea, &n, 8, 1, NULL) >= 0);
		assert_int_equal(rpw_recv(p.b, p.eb, &in, 8, 1, UINT64_MAX, &r), RPW_IN_PROGRESS);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(in, n);
	}
	pair_close(&p);
}

/* ---- a long message, of which half has been put into its receive ---- */

enum { LONG = 20000 };
static char sent[LONG], filled[LONG];

static rpw_request *receive_long(struct pair *p, rpw_view *view)
{
	rpw_request *r = NULL;
	memset(filled, 0, LONG);
	assert_int_equal(view ? rpw_recv_view(p->b, p->eb, 7, UINT64_MAX, view, &r)
			      : rpw_recv(p->b, p->eb, filled, LONG, 7, UINT64_MAX, &r),
		RPW_IN_PROGRESS);
	return r;
}
static void is_whole(rpw_view *view)
{
	assert_memory_equal(view ? view->data : filled, sent, LONG);
	if (view)
		assert_int_equal(rpw_view_release(view), RPW_OK);
}

/* Until one goes as a frame whose place was asked for: at first there is no credit for it. Into
 * `filled`, or a view. */
static rpw_request *half_filled(struct pair *p, rpw_request **s, rpw_view *view)
{
	fake.placed_max = 60000;
	pair_open(p, "fake_b");
	for (unsigned n = 0; n < 200; n++) {
		pattern_fill(sent, LONG, n);
		rpw_request *r = receive_long(p, view);
		assert_int_equal(rpw_send(p->ea, sent, LONG, 7, s), RPW_IN_PROGRESS);
		rpw_context_progress(p->b);
		if (p->eb->placing) {
			assert_ptr_equal(p->eb->placing, r);
			assert_memory_equal(r->buf, sent, LONG / 2);
			assert_int_equal(filled[LONG - 1], 0);
			return r;
		}
		assert_int_equal(finish(p, r, NULL), RPW_OK);
		assert_int_equal(finish(p, *s, NULL), RPW_OK);
		is_whole(view);
	}
	fail_msg("no long message went as a frame");
	return NULL;
}

static void the_path_breaks_while(rpw_view *view)
{
	struct pair p;
	rpw_request *s, *r = half_filled(&p, &s, view);
	rpw_completion done = {.size = sizeof(done)};
	fake.break_now = true;
	assert_int_equal(finish(&p, r, &done), RPW_OK);
	assert_true(done.length == LONG && done.tag == 7 && done.from == p.eb);
	assert_int_equal(finish(&p, s, NULL), RPW_OK);
	is_whole(view);
	assert_int_equal(fake.breaks, 1);
	pair_close(&p);
}
static void the_path_breaks_while_a_receive_is_filled(void **state) { the_path_breaks_while(NULL); }
static void the_path_breaks_while_a_view_is_filled(void **state)
{
	rpw_view view = RPW_VIEW_INIT;
	the_path_breaks_while(&view);
}

/* Bytes move: it ends as it would have. */
static void a_receive_that_is_filled_is_canceled(void **state)
{
	struct pair p;
	rpw_request *s, *r = half_filled(&p, &s, NULL);
	assert_int_equal(rpw_request_cancel(r), RPW_OK);
	assert_int_equal(finish(&p, r, NULL), RPW_OK);
	assert_int_equal(finish(&p, s, NULL), RPW_OK);
	assert_memory_equal(filled, sent, LONG);
	pair_close(&p);
}

static void the_endpoint_ends_while_a_receive_is_filled(void **state)
{
	struct pair p;
	static char untouched[LONG];
	rpw_request *s, *r = half_filled(&p, &s, NULL);
	rpw_endpoint_destroy(p.eb);
	memset(untouched, 0x77, LONG);
	memset(filled, 0x77, LONG);
	assert_true(finish(&p, r, NULL) < 0);
	assert_true(finish(&p, s, NULL) < 0);
	rounds(&p);
	assert_memory_equal(filled, untouched, LONG);
	p.eb = NULL;
	pair_close(&p);
}

static void the_endpoint_ends_while_a_view_is_filled(void **state)
{
	struct pair p;
	rpw_view view = RPW_VIEW_INIT;
	rpw_request *s, *r = half_filled(&p, &s, &view);
	rpw_endpoint_destroy(p.eb);
	assert_true(finish(&p, r, NULL) < 0);
	assert_null(view.data);
	assert_true(finish(&p, s, NULL) < 0);
	rounds(&p);
	p.eb = NULL;
	pair_close(&p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(active_messages_that_wait_for_their_turn, quiet),
		cmocka_unit_test_setup(an_atomic_comes_while_active_messages_wait, quiet),
		cmocka_unit_test_setup(a_flush_that_finds_the_log_full, quiet),
		cmocka_unit_test_setup(the_next_paths_break_before_they_are_up, quiet),
		cmocka_unit_test_setup(paths_that_carry_nothing, quiet),
		cmocka_unit_test_setup(paths_that_carry_something, quiet),
		cmocka_unit_test_setup(the_path_breaks_while_a_receive_is_filled, quiet),
		cmocka_unit_test_setup(the_path_breaks_while_a_view_is_filled, quiet),
		cmocka_unit_test_setup(a_receive_that_is_filled_is_canceled, quiet),
		cmocka_unit_test_setup(the_endpoint_ends_while_a_receive_is_filled, quiet),
		cmocka_unit_test_setup(the_endpoint_ends_while_a_view_is_filled, quiet),
	};
	return cmocka_run_group_tests_name("paths that break just then", tests, NULL, NULL);
}
