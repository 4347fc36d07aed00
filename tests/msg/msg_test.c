/* msg_test.c - every public call's contract, both sides in one thread. Linked twice: with the fakes (transports in memory, which can be made to misbehave) and with the real ones;
 * MSG_TRANSPORTS names what to go over. */
#include <poll.h>
#include <sys/resource.h>

#include "pair.h"

#ifdef MSG_FAKE
#include "fake.h"
static const char *const default_transports[] = {"fake_a", "fake_b", NULL};
#else
static const char *const default_transports[] = {"shm", "tcp", NULL};
#endif

#define ALL UINT64_MAX

static const char *transport; /* of the group under test */

static int quiet(void **state)
{
#ifdef MSG_FAKE
	fake = (struct fake_knobs){.seed = 0x5eed, .eager_max = 2048, .frame_max = 8192};
#endif
	return 0;
}

static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 1000, 1024, 1025, 2048, 2049, 4096, 5000, 8192, 8193, 65536, 100001, 1 << 20, (3 << 20) + 5};

static void sizes_both_ways_posted_and_early(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char *out = malloc(4 << 20), *in = malloc(4 << 20);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int early = 0; early < 2; early++)
			for (int back = 0; back < 2; back++) {
				size_t n = sizes[i];
				uint64_t tag = i * 4 + (uint64_t)early * 2 + (uint64_t)back;
				rpw_context *to = back ? p.a : p.b;
				rpw_endpoint *from = back ? p.eb : p.ea;
				rpw_request *s = NULL, *r = NULL;
				rpw_completion done = RPW_COMPLETION_INIT;
				pattern_fill(out, n, tag);
				memset(in, 0x5a, n + 16);
				if (!early)
					assert_int_equal(rpw_recv(to, NULL, in, n, tag, ALL, &r), RPW_IN_PROGRESS);
				int rc = rpw_send(from, out, n, tag, &s);
				assert_true(rc == RPW_OK || rc == RPW_IN_PROGRESS);
				if (early) {
					while (rpw_probe(to, NULL, tag, ALL, &done) == RPW_IN_PROGRESS)
						both(&p);
					assert_int_equal(done.length, n);
					assert_int_equal(done.tag, tag);
					assert_int_equal(rpw_recv(to, back ? p.ea : p.eb, in, n, tag, ALL, &r), RPW_IN_PROGRESS);
				}
				assert_int_equal(finish(&p, r, &done), RPW_OK);
				assert_int_equal(done.length, n);
				assert_int_equal(done.tag, tag);
				assert_ptr_equal(done.from, back ? p.ea : p.eb);
				assert_int_equal(finish(&p, s, NULL), RPW_OK);
				assert_int_equal(pattern_wrong(in, n, tag), n);
				assert_int_equal((uint8_t)in[n], 0x5a);
			}
	free(out);
	free(in);
	pair_close(&p);
}

static void order_of_one_tag(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 300 };
	static uint64_t in[N][700];
	static rpw_request *r[N], *s[N];
	static uint64_t out[N][700];
	/* Short and long ones alternate: an RTS must not be overtaken. */
	for (int i = 0; i < N; i++) {
		size_t n = i % 3 == 1 ? sizeof(out[i]) : 8;
		pattern_fill(out[i], n, (uint64_t)i);
		int rc = rpw_send(p.ea, out[i], n, 5, &s[i]);
		assert_true(rc >= 0);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(rpw_recv(p.b, i & 1 ? p.eb : NULL, in[i], sizeof(in[i]), 5, i % 5 ? ALL : 0xff, &r[i]), RPW_IN_PROGRESS);
	for (int i = 0; i < N; i++) {
		rpw_completion done = RPW_COMPLETION_INIT;
		assert_int_equal(finish(&p, r[i], &done), RPW_OK);
		assert_int_equal(done.length, i % 3 == 1 ? sizeof(out[i]) : 8);
		assert_int_equal(pattern_wrong(in[i], done.length, (uint64_t)i), done.length);
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
	}
	pair_close(&p);
}

static void earliest_receive_that_matches(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	/* Twenty masks: more than there are classes. The receives that match tag 0x5: numbers 3 (mask), 4 (any), 7. */
	uint64_t in[24] = {0}, v = 0;
	rpw_request *r[24];
	for (int i = 0; i < 24; i++) {
		uint64_t tag = (uint64_t)1 << (i + 8), mask = ~(uint64_t)0 << (i + 1);
		if (i == 3)
			tag = 0x5, mask = 0xf;
		if (i == 4 || i == 23)
			tag = 0, mask = 0;
		if (i == 7)
			tag = 0x5, mask = ALL;
		rpw_recv(p.b, i & 1 ? p.eb : NULL, &in[i], 8, tag, mask, &r[i]);
	}
	static const int expect[] = {3, 4, 7, 23};
	for (int k = 0; k < 4; k++) {
		v = 1000 + (uint64_t)k;
		rpw_request *s;
		rpw_send(p.ea, &v, 8, 5, &s);
		finish(&p, s, NULL);
		assert_int_equal(finish(&p, r[expect[k]], NULL), RPW_OK);
		assert_int_equal(in[expect[k]], v);
		r[expect[k]] = NULL;
	}
	for (int i = 0; i < 24; i++)
		if (r[i]) {
			assert_int_equal(rpw_request_test(r[i], NULL), RPW_IN_PROGRESS);
			rpw_request_cancel(r[i]);
			assert_int_equal(rpw_request_test(r[i], NULL), RPW_ERR_CANCELED);
			rpw_request_destroy(r[i]);
		}
	pair_close(&p);
}

static void truncation(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	static const size_t lengths[] = {100, 100000};
	for (int k = 0; k < 2; k++) {
		char *out = malloc(lengths[k]), in[64];
		pattern_fill(out, lengths[k], 9);
		memset(in, 1, sizeof(in));
		rpw_request *r, *s;
		rpw_completion done = RPW_COMPLETION_INIT;
		rpw_recv(p.b, NULL, in, 40, 1, ALL, &r);
		rpw_send(p.ea, out, lengths[k], 1, &s);
		assert_int_equal(finish(&p, r, &done), RPW_ERR_TRUNCATED);
		assert_int_equal(done.length, lengths[k]);
		assert_int_equal(pattern_wrong(in, 40, 9), 40);
		assert_int_equal(in[40], 1);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		free(out);
	}
	pair_close(&p);
}

static void scatter_lists(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	for (int big = 0; big < 3; big++) {
		/* 3, 7 and 40 pieces; 40 long ones are more than an RTS describes. */
		int pieces = big == 2 ? 40 : big ? 7 : 3;
		size_t each = big ? 5001 : 11, total = (size_t)pieces * each;
		struct iovec out[40], in[40];
		char *src = malloc(total), *dst = calloc(1, total + 1);
		pattern_fill(src, total, (uint64_t)big);
		for (int i = 0; i < pieces; i++)
			out[i] = (struct iovec){src + (size_t)i * each, each};
		size_t first = total / 3;
		in[0] = (struct iovec){dst, first};
		in[1] = (struct iovec){NULL, 0};
		in[2] = (struct iovec){dst + first, total - first};
		rpw_request *r, *s;
		assert_int_equal(rpw_recv_iov(p.b, p.eb, in, 3, 4, ALL, &r), RPW_IN_PROGRESS);
		assert_true(rpw_send_iov(p.ea, out, pieces, 4, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(dst, total, (uint64_t)big), total);
		free(src);
		free(dst);
	}
	struct iovec bad = {NULL, 5};
	assert_int_equal(rpw_send_iov(p.ea, &bad, 1, 4, NULL), RPW_ERR_INVALID);
	assert_int_equal(rpw_send_iov(p.ea, &bad, -1, 4, NULL), RPW_ERR_INVALID);
	pair_close(&p);
}

static void cancels(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char *big = malloc(1 << 20), small[8];
	pattern_fill(big, 1 << 20, 1);
	/* A send that nobody has taken: withdrawn, and the receiver never sees it. */
	rpw_request *s, *r;
	assert_int_equal(rpw_send(p.ea, big, 1 << 20, 1, &s), RPW_IN_PROGRESS);
	rpw_completion c = RPW_COMPLETION_INIT;
	while (rpw_probe(p.b, NULL, 1, ALL, &c))
		both(&p);
	rpw_request_cancel(s);
	assert_int_equal(finish(&p, s, NULL), RPW_ERR_CANCELED);
	assert_int_equal(rpw_probe(p.b, NULL, 1, ALL, NULL), RPW_IN_PROGRESS);
	/* A canceled receive does not take the next message. */
	rpw_recv(p.b, NULL, big, 8, 2, ALL, &r);
	rpw_request_cancel(r);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_CANCELED);
	rpw_send(p.ea, "unique!", 8, 2, &s);
	rpw_recv(p.b, NULL, small, 8, 2, ALL, &r);
	assert_int_equal(finish(&p, r, NULL), RPW_OK);
	assert_string_equal(small, "unique!");
	finish(&p, s, NULL);
	free(big);
	pair_close(&p);
}

static void *alloc_or_not(size_t len, void *arg)
{
	*(size_t *)arg = len;
	return len == 13 ? NULL : malloc(len ? len : 1);
}

static void objects(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	static const size_t lengths[] = {0, 5, 3000, 200000};
	for (int early = 0; early < 2; early++)
		for (size_t i = 0; i < 4; i++) {
			char *out = malloc(lengths[i] + 1);
			void *in;
			size_t n, asked = 99;
			rpw_request *s = NULL, *r = NULL;
			pattern_fill(out, lengths[i], i + 50);
			if (early)
				assert_int_equal(rpw_send_obj(p.ea, out, lengths[i], &s), RPW_IN_PROGRESS);
			for (int k = 0; early && k < 50; k++)
				both(&p);
			assert_int_equal(rpw_recv_obj(p.b, p.eb, i & 1 ? NULL : alloc_or_not, &asked, &in, &n, &r), RPW_IN_PROGRESS);
			if (!early)
				assert_int_equal(rpw_send_obj(p.ea, out, lengths[i], &s), RPW_IN_PROGRESS);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_int_equal(n, lengths[i]);
			if (!(i & 1))
				assert_int_equal(asked, lengths[i]);
			assert_int_equal(pattern_wrong(in, n, i + 50), n);
			free(in);
			free(out);
		}
	/* Refused by the allocator: both sides hear it. */
	void *in;
	size_t n, asked;
	rpw_request *s, *r;
	rpw_recv_obj(p.b, p.eb, alloc_or_not, &asked, &in, &n, &r);
	rpw_send_obj(p.ea, "thirteen byte", 13, &s);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_NO_MEMORY);
	assert_int_equal(finish(&p, s, NULL), RPW_ERR_NO_MEMORY);
	pair_close(&p);
}

struct am_log {
	int n;
	uint64_t seed;
	bool replies;
};
static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data, size_t len, void *arg)
{
	struct am_log *log = arg;
	uint64_t h[2];
	assert_int_equal(header_len, sizeof(h));
	memcpy(h, header, sizeof(h));
	assert_int_equal(h[0], log->n);
	assert_int_equal(h[1], len);
	assert_int_equal(pattern_wrong(data, len, h[0] + log->seed), len);
	log->n++;
	if (log->replies)
		assert_true(rpw_send(ep, &h[0], 8, 77, NULL) >= 0);
}

static void active_messages_in_order(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	struct am_log log = {.seed = 31, .replies = true};
	rpw_context_on_am(p.b, 9, on_am, &log);
	static const size_t lengths[] = {0, 8, 100000, 16, 5000, 300000, 1, 2048};
	enum { N = 64 };
	rpw_request *s[N];
	char *out[N];
	for (int i = 0; i < N; i++) {
		size_t n = lengths[i % 8];
		uint64_t h[2] = {(uint64_t)i, n};
		out[i] = malloc(n + 1);
		pattern_fill(out[i], n, (uint64_t)i + log.seed);
		assert_true(rpw_am_send(p.ea, 9, h, sizeof(h), out[i], n, &s[i]) >= 0);
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
		free(out[i]);
	}
	for (int i = 0; i < N; i++) {
		uint64_t got = 99;
		rpw_request *r;
		rpw_recv(p.a, p.ea, &got, 8, 77, ALL, &r);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(got, i);
	}
	assert_int_equal(log.n, N);
	assert_int_equal(rpw_am_send(p.ea, 256, NULL, 0, NULL, 0, NULL), RPW_ERR_INVALID);
	assert_int_equal(rpw_am_send(p.ea, 1, "x", 257, NULL, 0, NULL), RPW_ERR_INVALID);
	pair_close(&p);
}

static struct {
	int n;
	uint64_t data[64];
	size_t len[64];
} told;
static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	/* What was put is there already. */
	const char *region = arg;
	assert_int_equal(pattern_wrong(region, len, data), len);
	told.data[told.n] = data;
	told.len[told.n++] = len;
}

static void remote_memory(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	for (int mapped = 0; mapped < 2; mapped++) {
		enum { LEN = 3 << 20 };
		char *own = malloc(LEN), *region;
		rpw_memory *m;
		if (mapped)
			assert_int_equal(rpw_memory_allocate(p.b, LEN, 7, &m), 0);
		else
			assert_int_equal(rpw_memory_register(p.b, calloc(1, LEN), LEN, RPW_MEMORY_HOST, 7, &m), 0);
		region = rpw_memory_address(m);
		assert_int_equal(rpw_memory_length(m), LEN);
		uint8_t packed[RPW_RKEY_BYTES_MAX];
		int n = rpw_rkey_pack(m, packed, sizeof(packed));
		assert_true(n > 0);
		assert_int_equal(rpw_rkey_pack(m, packed, 10), RPW_ERR_LIMIT);
		rpw_rkey *k;
		assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)n, &k), RPW_OK);
		rpw_request *r;
		for (int i = 0; i < 6; i++) {
			static const size_t lengths[] = {8, 1, 4096, 100000, LEN - 999, 0};
			pattern_fill(own, lengths[i], (uint64_t)i + 3);
			assert_true(rpw_put(p.ea, own, lengths[i], k, 999, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_true(rpw_endpoint_flush(p.ea, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(region + 999, lengths[i], (uint64_t)i + 3), lengths[i]);
			memset(own, 0, lengths[i]);
			assert_true(rpw_get(p.ea, own, lengths[i], k, 999, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(own, lengths[i], (uint64_t)i + 3), lengths[i]);
		}
		/* Atomics. */
		*(uint64_t *)(void *)(region + 64) = 40;
		uint64_t before = 0;
		assert_true(rpw_fetch_add(p.ea, 2, k, 64, &before, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(before, 40);
		assert_true(rpw_compare_swap(p.ea, 42, 7, k, 64, &before, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(before, 42);
		assert_true(rpw_compare_swap(p.ea, 42, 8, k, 64, &before, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(before, 7);
		assert_int_equal(*(uint64_t *)(void *)(region + 64), 7);
		/* A batch: two puts, then what they put. */
		char x[100], y[5000], back[5000];
		pattern_fill(x, sizeof(x), 70);
		pattern_fill(y, sizeof(y), 71);
		rpw_transfer batch[] = {{sizeof(rpw_transfer), false, x, sizeof(x), k, 0}, {sizeof(rpw_transfer), false, y, sizeof(y), k, 100000}};
		assert_true(rpw_transfer_batch(p.ea, batch, 2, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(rpw_endpoint_fence(p.ea), RPW_OK);
		assert_true(rpw_get(p.ea, back, sizeof(back), k, 100000, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(back, sizeof(back), 71), sizeof(back));
		assert_int_equal(pattern_wrong(region, sizeof(x), 70), sizeof(x));
		/* Notifications come after their bytes, in order. */
		told.n = 0;
		rpw_context_on_notify(p.b, on_notify, region);
		for (int i = 0; i < 20; i++) {
			pattern_fill(own, 5000, 900 + (uint64_t)i);
			assert_true(rpw_put_notify(p.ea, own, 5000, k, 0, 900 + (uint64_t)i, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			for (int w = 0; w < 2000000 && told.n <= i; w++)
				both(&p);
			assert_int_equal(told.n, i + 1);
			assert_int_equal(told.data[i], 900 + i);
			assert_int_equal(told.len[i], 5000);
		}
		rpw_context_on_notify(p.b, NULL, NULL);
		/* Outside, and without the right. */
		assert_int_equal(rpw_put(p.ea, own, 2, k, LEN - 1, NULL), RPW_ERR_ACCESS);
		assert_int_equal(rpw_get(p.ea, own, 1, k, UINT64_MAX, NULL), RPW_ERR_ACCESS);
		assert_int_equal(rpw_fetch_add(p.ea, 1, k, 4, &before, NULL), RPW_ERR_INVALID);
		rpw_rkey_destroy(k);
		/* Garbled, of another version, of somebody else. */
		for (int i = 0; i < n; i++) {
			packed[i] ^= 0x10;
			assert_true(rpw_rkey_unpack(p.ea, packed, (size_t)n, &k) < 0);
			packed[i] ^= 0x10;
			assert_true(rpw_rkey_unpack(p.ea, packed, (size_t)i, &k) < 0);
		}
		assert_int_equal(rpw_rkey_unpack(p.eb, packed, (size_t)n, &k), RPW_ERR_ACCESS);
		rpw_memory_destroy(m);
		if (!mapped)
			free(region);
		free(own);
	}
	pair_close(&p);
}

static void what_is_known_of_an_endpoint(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_endpoint_information a = {.size = sizeof(a)}, b = {.size = sizeof(b)};
	assert_int_equal(rpw_endpoint_info(p.ea, &a), 0);
	assert_int_equal(rpw_endpoint_info(p.eb, &b), 0);
	size_t name_len = strcspn(transport, ":"); /* as in ncclnet:PATH */
	assert_int_equal(strlen(a.transport), name_len);
	assert_memory_equal(a.transport, transport, name_len);
	assert_string_equal(a.transport, b.transport);
	assert_true(strlen(a.path) > 0 && strlen(a.why) > 0 && strlen(a.peer) > 0);
	assert_string_equal(a.why, b.why);
	assert_int_equal(a.message_tag, b.peer_message_tag);
	assert_int_equal(a.control_tag, b.peer_control_tag);
	assert_int_equal(b.message_tag, a.peer_message_tag);
	assert_int_equal(b.control_tag, a.peer_control_tag);
	assert_true(a.message_tag != b.message_tag && a.message_tag != a.control_tag);
	assert_true(a.connected && b.connected && a.eager_bytes_max > 0);
	rpw_endpoint_set_user(p.ea, &a);
	assert_ptr_equal(rpw_endpoint_user(p.ea), &a);
	rpw_statistics s = {.size = sizeof(s)};
	assert_int_equal(rpw_context_statistics(p.a, &s), 0);
	assert_int_equal(s.endpoints, 1);
	assert_int_equal(s.requests, 0);
	pair_close(&p);
}

static int closed_status, completions, completions_at_close;
static void on_close(rpw_endpoint *ep, int status, void *arg)
{
	closed_status = status;
	completions_at_close = completions;
	++*(int *)arg;
}
static void on_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	completions++;
	*(int *)arg = done->status;
}

static void the_end_of_an_endpoint(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	int closes = 0, status_a = 1, status_b = 1;
	char in[8], kept[8] = "";
	char *big = malloc(1 << 20);
	pattern_fill(big, 1 << 20, 4);
	rpw_endpoint_on_close(p.ea, on_close, &closes);
	rpw_request *ra, *sa, *rb, *r;
	/* Sent before the close: it arrives all the same. */
	for (int i = 0; i < 20; i++)
		assert_true(rpw_send(p.eb, "before!", 8, 100 + (uint64_t)i, &r) >= 0), finish(&p, r, NULL);
	rpw_recv(p.a, p.ea, in, 8, 1, ALL, &ra);
	rpw_recv(p.b, p.eb, in, 8, 1, ALL, &rb);
	assert_int_equal(rpw_send(p.ea, big, 1 << 20, 2, &sa), RPW_IN_PROGRESS);
	completions = 0;
	rpw_request_on_done(ra, on_done, &status_a);
	rpw_request_on_done(rb, on_done, &status_b);
	rpw_endpoint_destroy(p.eb);
	assert_int_equal(rpw_request_test(rb, NULL), RPW_ERR_CANCELED);
	assert_int_equal(finish(&p, ra, NULL), RPW_ERR_PEER_GONE);
	assert_int_equal(finish(&p, sa, NULL), RPW_ERR_PEER_GONE);
	both(&p);
	both(&p);
	assert_int_equal(closes, 1);
	assert_int_equal(closed_status, RPW_ERR_PEER_GONE);
	assert_int_equal(completions, 2);
	assert_int_equal(completions_at_close, 2); /* the last word */
	assert_int_equal(status_a, RPW_ERR_PEER_GONE);
	assert_int_equal(status_b, RPW_ERR_CANCELED);
	rpw_request_destroy(rb);
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(p.ea, &info);
	assert_false(info.connected);
	assert_int_equal(info.status, RPW_ERR_PEER_GONE);
	for (int i = 0; i < 20; i++) {
		memset(kept, 0, 8);
		assert_int_equal(rpw_recv(p.a, p.ea, kept, 8, 100 + (uint64_t)i, ALL, NULL), RPW_OK);
		assert_string_equal(kept, "before!");
	}
	assert_int_equal(rpw_recv(p.a, p.ea, kept, 8, 100, ALL, &r), RPW_ERR_PEER_GONE);
	assert_int_equal(rpw_send(p.ea, "x", 1, 1, &r), RPW_ERR_PEER_GONE);
	assert_non_null(strstr(rpw_last_error(), "closed"));
	p.eb = NULL;
	free(big);
	pair_close(&p);
}

#ifndef MSG_FAKE
/* Progress, arm, poll, as a program that sleeps does: true when at last nothing wakes it any more. */
static bool falls_asleep(rpw_context *c, rpw_context *other)
{
	for (int i = 0; i < 2000; i++) {
		struct pollfd fd = {.fd = rpw_context_fd(c), .events = POLLIN};
		rpw_context_progress(other);
		if (rpw_context_progress(c) > 0 || rpw_context_arm(c) == RPW_IN_PROGRESS)
			continue;
		if (poll(&fd, 1, 50) == 0)
			return true;
	}
	return false;
}

/* Where the last endpoint was closed nothing is left that keeps a sleeper awake. */
static void a_context_without_endpoints_sleeps(void **state)
{
	for (int first = 0; first < 2; first++) {
		struct pair p;
		pair_open(&p, transport);
		rpw_endpoint_destroy(first ? p.eb : p.ea);
		assert_true(falls_asleep(p.a, p.b) && falls_asleep(p.b, p.a));
		rpw_endpoint_destroy(first ? p.ea : p.eb);
		p.ea = p.eb = NULL;
		assert_true(falls_asleep(p.a, p.b) && falls_asleep(p.b, p.a));
		pair_close(&p);
	}
}
#endif

/* The peer has taken everything, and closes before it answers the flush, or before there is one: that is no failure. What it had not taken is one. */
static void a_flush_and_the_peers_close(void **state)
{
	for (int early = 0; early < 3; early++) {
		struct pair p;
		char in[8];
		rpw_request *r, *s, *f = NULL;
		pair_open(&p, transport);
		rpw_recv(p.b, p.eb, in, 8, 1, ALL, &r);
		assert_true(rpw_send(p.ea, "answer!", 8, 1, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		finish(&p, s, NULL);
		if (early == 2) { /* never looked at by the peer */
			assert_true(rpw_send(p.ea, "another", 8, 2, NULL) >= 0);
		}
		if (early != 1)
			assert_int_equal(rpw_endpoint_flush(p.ea, &f), RPW_IN_PROGRESS);
		rpw_endpoint_destroy(p.eb);
		rpw_endpoint_information info = {.size = sizeof(info), .connected = true};
		WHILE_IN_TIME (info.connected) {
			both(&p);
			rpw_endpoint_info(p.ea, &info);
		}
		assert_false(info.connected);
		if (early == 1)
			assert_true(rpw_endpoint_flush(p.ea, &f) >= 0);
		assert_int_equal(finish(&p, f, NULL), early == 2 ? RPW_ERR_PEER_GONE : RPW_OK);
		p.eb = NULL;
		pair_close(&p);
	}
}

/* Callbacks may post and close, and may not progress, wait or destroy. */
static void in_callback(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct pair *p = arg;
	completions++;
	assert_int_equal(rpw_context_progress(p->b), RPW_ERR_INVALID);
	assert_int_equal(rpw_request_wait(r, 10, NULL), RPW_OK);
	rpw_request *other;
	static char buf[8];
	rpw_recv(p->b, p->eb, buf, 8, 555, ALL, &other);
	assert_int_equal(rpw_request_wait(other, 10, NULL), RPW_ERR_INVALID);
	rpw_request_destroy(other);
	rpw_context_destroy(p->b);
	rpw_endpoint_destroy(p->eb);
	rpw_request_destroy(r);
}
static void calls_from_inside_callbacks(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char in[8];
	rpw_request *r, *s;
	completions = 0;
	rpw_recv(p.b, p.eb, in, 8, 1, ALL, &r);
	rpw_request_on_done(r, in_callback, &p);
	rpw_send(p.ea, "unique!", 8, 1, &s);
	finish(&p, s, NULL);
	WHILE_IN_TIME (!completions)
		both(&p);
	assert_int_equal(completions, 1);
	rpw_statistics st = {.size = sizeof(st)};
	rpw_context_statistics(p.b, &st);
	assert_int_equal(st.endpoints, 0); /* when the progress that called has returned */
	p.eb = NULL;
	pair_close(&p);
}

static void posted_before_connected(void **state)
{
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	assert_int_equal(rpw_context_create(&o, &p.a), 0);
	assert_int_equal(rpw_context_create(&o, &p.b), 0);
	assert_int_equal(rpw_listener_create(p.b, "127.0.0.1:0", pair_accept, &p, &p.l), 0);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	assert_int_equal(rpw_endpoint_create(p.a, address, NULL, &p.ea, NULL), RPW_IN_PROGRESS);
	uint64_t in = 0, out = 0x0123456789abcdef;
	char *big = malloc(300000), *got = malloc(300000);
	pattern_fill(big, 300000, 6);
	rpw_request *s1, *s2, *f, *r1, *r2;
	assert_int_equal(rpw_send(p.ea, &out, 8, 1, &s1), RPW_IN_PROGRESS);
	assert_int_equal(rpw_send(p.ea, big, 300000, 1, &s2), RPW_IN_PROGRESS);
	assert_int_equal(rpw_endpoint_flush(p.ea, &f), RPW_IN_PROGRESS);
	rpw_recv(p.b, NULL, &in, 8, 1, ALL, &r1);
	rpw_recv(p.b, NULL, got, 300000, 1, ALL, &r2);
	assert_int_equal(finish(&p, f, NULL), RPW_OK);
	assert_int_equal(rpw_request_test(s1, NULL), RPW_OK);
	assert_int_equal(rpw_request_test(s2, NULL), RPW_OK);
	assert_int_equal(finish(&p, r1, NULL), RPW_OK);
	assert_int_equal(finish(&p, r2, NULL), RPW_OK);
	assert_int_equal(in, out);
	assert_int_equal(pattern_wrong(got, 300000, 6), 300000);
	rpw_request_destroy(s1);
	rpw_request_destroy(s2);
	free(big);
	free(got);
	/* Destroyed with everything under way: nothing leaks (ASan), nothing is waited for. */
	for (int i = 0; i < 100; i++) {
		static char sink[8], bulk[100000];
		rpw_recv(p.a, i & 1 ? p.ea : NULL, sink, 8, (uint64_t)i, ALL, NULL);
		rpw_send(p.ea, bulk, i & 2 ? 8 : sizeof(bulk), 1, NULL);
		rpw_send_obj(p.ea, bulk, i & 2 ? 8 : sizeof(bulk), NULL);
	}
	both(&p);
	rpw_context_destroy(p.a);
	rpw_context_destroy(p.b);
}

#ifndef MSG_FAKE
/* Who sends faster than receives are posted fills the ring, not the receiver's memory, and each message is copied once. */
static void a_round_ends_with_what_nobody_waits_for(void **state)
{
	enum { N = 6, POSTED = 2, BYTES = 2048 };
	static uint8_t out[N][BYTES], in[N][BYTES];
	struct pair p;
	rpw_request *r[N];
	rpw_statistics st = {.size = sizeof(st)};
	if (strcmp(transport, "shm") != 0)
		skip();
	pair_open(&p, transport);
	for (unsigned i = 0; i < POSTED; i++)
		assert_int_equal(rpw_recv(p.b, p.eb, in[i], BYTES, 3, UINT64_MAX, &r[i]), RPW_IN_PROGRESS);
	for (uint64_t i = 0; i < N; i++) {
		pattern_fill(out[i], BYTES, i);
		assert_int_equal(rpw_send(p.ea, out[i], BYTES, 3, NULL), RPW_OK);
	}
	/* It ends when the last posted receive is full, too: the program can post again before anything has to be kept. */
	for (unsigned i = 0; i < 1000 && rpw_request_test(r[POSTED - 1], NULL) == RPW_IN_PROGRESS; i++)
		rpw_context_progress(p.b);
	rpw_context_statistics(p.b, &st);
	assert_int_equal(st.received, POSTED);
	assert_int_equal(st.unexpected, 0);
	for (unsigned i = 0; i < 1000 && !st.unexpected; i++) {
		rpw_context_progress(p.b);
		rpw_context_statistics(p.b, &st);
	}
	assert_int_equal(st.unexpected, 1);
	for (unsigned i = POSTED; i < N; i++)
		assert_int_equal(rpw_recv(p.b, p.eb, in[i], BYTES, 3, UINT64_MAX, &r[i]), RPW_IN_PROGRESS);
	for (uint64_t i = 0; i < N; i++) {
		assert_int_equal(finish(&p, r[i], NULL), RPW_OK);
		assert_int_equal(pattern_wrong(in[i], BYTES, i), BYTES);
	}
	rpw_context_statistics(p.b, &st);
	assert_int_equal(st.unexpected, 1);
	pair_close(&p);
}
#endif

static void unexpected_memory_is_bounded(void **state)
{
	struct pair p;
	rpw_context_options o = {.size = sizeof(o), .unexpected_bytes_max = 256 * 1024};
	pair_open_with(&p, transport, &o);
	enum { N = 20000 };
	static uint64_t out[N][16];
	rpw_request **s = calloc(N, sizeof(*s));
	for (int i = 0; i < N; i++) {
		pattern_fill(out[i], sizeof(out[i]), (uint64_t)i);
		assert_true(rpw_send(p.ea, out[i], sizeof(out[i]), (uint64_t)(i % 7), &s[i]) >= 0);
		if (i % 64 == 0)
			both(&p);
	}
	for (int i = 0; i < 3000; i++)
		both(&p);
	rpw_statistics st = {.size = sizeof(st)};
	rpw_context_statistics(p.b, &st);
	assert_true(st.unexpected_bytes <= 256 * 1024);
	assert_true(st.unexpected_bytes > 0);
	rpw_context_statistics(p.a, &st);
	assert_true(st.waited_for_room > 0);
	/* All of them arrive all the same. */
	int next[7] = {0, 1, 2, 3, 4, 5, 6};
	for (int i = 0; i < N; i++) {
		uint64_t in[16];
		rpw_request *r;
		rpw_recv(p.b, p.eb, in, sizeof(in), (uint64_t)(i % 7), ALL, &r);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(in, sizeof(in), (uint64_t)next[i % 7]), sizeof(in));
		next[i % 7] += 7;
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
	free(s);
	pair_close(&p);
}

static void many_posted_receives(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 100000 };
	uint64_t *in = calloc(N, 8);
	rpw_request **r = calloc(N, sizeof(*r)), *s;
	for (int i = 0; i < N; i++)
		rpw_recv(p.b, i & 1 ? p.eb : NULL, &in[i], 8, i % 3 ? (uint64_t)i : 1, ALL, &r[i]);
	for (int i = N - 1; i >= 0; i--) {
		if (i % 3 == 0 || i == 1)
			continue;
		uint64_t v = mix((uint64_t)i);
		rpw_send(p.ea, &v, 8, (uint64_t)i, &s);
		if (s || i % 16 == 0)
			assert_int_equal(finish(&p, s, NULL), RPW_OK), both(&p);
	}
	for (int i = 0; i < N; i++) {
		if (i % 3 == 0 || i == 1)
			rpw_request_cancel(r[i]);
		int status = finish(&p, r[i], NULL);
		assert_int_equal(status, i % 3 == 0 || i == 1 ? RPW_ERR_CANCELED : RPW_OK);
		if (!status)
			assert_int_equal(in[i], mix((uint64_t)i));
	}
	free(in);
	free(r);
	pair_close(&p);
}

static void arguments_are_checked(void **state)
{
	rpw_context *c;
	rpw_context_options o = {.size = sizeof(o), .transports = "pigeon"};
	assert_int_equal(rpw_context_create(&o, &c), RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "pigeon"));
	o.size = 0;
	assert_int_equal(rpw_context_create(&o, &c), RPW_ERR_INVALID);
	assert_int_equal(rpw_context_create(NULL, NULL), RPW_ERR_INVALID);
	assert_string_equal(rpw_status_name(RPW_ERR_TRUNCATED), "RPW_ERR_TRUNCATED");
	assert_string_equal(rpw_status_name(-99), "unknown status");
	assert_string_equal(rpw_status_name(RPW_IN_PROGRESS), "RPW_IN_PROGRESS");
	assert_int_equal(rpw_request_wait(NULL, 0, NULL), RPW_ERR_INVALID);
	rpw_request_destroy(NULL);
	rpw_endpoint_destroy(NULL);
	rpw_context_destroy(NULL);
}

static void a_wait_times_out_and_goes_on(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	uint64_t in = 0, out = 0xfeedface12345678;
	rpw_request *r, *s;
	rpw_recv(p.b, NULL, &in, 8, 1, ALL, &r);
	assert_int_equal(rpw_request_wait(r, 20, NULL), RPW_ERR_EXPIRED);
	assert_int_equal(rpw_request_test(r, NULL), RPW_IN_PROGRESS);
	rpw_send(p.ea, &out, 8, 1, &s);
	finish(&p, s, NULL);
	assert_int_equal(rpw_request_wait(r, 5000, NULL), RPW_OK);
	assert_int_equal(in, out);
	rpw_request_destroy(r);
	pair_close(&p);
}

/* The one that listens is the last made. A peer of bad will may fail its endpoint, and nothing else. */
#ifdef MSG_FAKE
#include "msg/wire.h"
static void hostile_frames(void **state)
{
	static char region[4096];
	for (int round = 0; round < 400; round++) {
		struct pair p;
		fake.seed = (uint64_t)round * 7919 + 3;
		pair_open(&p, transport);
		rpw_memory *m;
		rpw_memory_register(p.b, region, sizeof(region), RPW_MEMORY_HOST, 7, &m);
		rpw_request *r[8];
		static char in[8][64];
		void *obj = NULL;
		size_t obj_len;
		for (int i = 0; i < 8; i++)
			rpw_recv(p.b, p.eb, in[i], sizeof(in[i]), (uint64_t)i, 7, &r[i]);
		if (round & 1)
			rpw_recv_obj(p.b, p.eb, NULL, NULL, &obj, &obj_len, NULL);
		rpw_send_obj(p.eb, region, sizeof(region), NULL);
		rpw_send(p.eb, region, sizeof(region), 1, NULL);
		rpw_endpoint_flush(p.eb, NULL);
		for (int i = 0; i < 30; i++) {
			struct frame_head h = {(uint8_t)(fake_random() % (FRAME_TYPES + 2)), (uint8_t)(fake_random() % 4), (uint16_t)(fake_random() % 3),
				(uint32_t)fake_random(), fake_random() % 4 ? fake_random() % 8 : (uint64_t)1 << 32 | fake_random() % 4};
			uint8_t body[600];
			size_t len = fake_random() % 3 ? fake_random() % 64 : fake_random() % sizeof(body);
			for (size_t k = 0; k < len; k++)
				body[k] = fake_random() % 2 ? 0 : (uint8_t)fake_random();
			struct rts_body *rts = (struct rts_body *)(void *)body;
			if ((h.type == FRAME_RTS || h.type == FRAME_DESCRIBE) && fake_random() % 4) {
				uint64_t piece = fake_random() % 3 ? 5000 : fake_random();
				*rts = (struct rts_body){.number = fake_random() % 8, .len = piece, .pieces = 1, .am_header_len = fake_random() % 8 ? 0 : 4};
				memcpy(body + 24, &piece, 8);
				body[32] = 8;
				len = 24 + 9 + 8 + rts->am_header_len;
				h.tag &= 0xff;
			}
			if (h.type == FRAME_ATOMIC)
				len = sizeof(struct atomic_body);
			if (h.type == FRAME_NOTIFY)
				len = 8;
			fake_inject(fake_last_made(), &h, fake_random() % 16 ? sizeof(h) : (unsigned)(fake_random() % sizeof(h)), body, (unsigned)len);
			both(&p);
		}
		for (int i = 0; i < 20; i++)
			both(&p);
		for (int i = 0; i < 8; i++)
			rpw_request_destroy(r[i]);
		rpw_memory_destroy(m);
		pair_close(&p);
		free(obj);
	}
}
#endif

#ifdef MSG_FAKE
#include <zlib.h>
/* Well-formed words at the wrong time, with wrong counts, and garbled ones. */
static void hostile_words(void **state)
{
	for (int round = 0; round < 400; round++) {
		struct pair p;
		fake.seed = (uint64_t)round * 104729 + 11;
		pair_open(&p, transport);
		rpw_request *r;
		rpw_recv(p.b, p.eb, &(uint64_t){0}, 8, 1, ALL, &r);
		rpw_send(p.ea, "eight..", 8, 2, NULL);
		for (int i = 0; i < 10; i++) {
			uint8_t m[400] = {0};
			unsigned type = (unsigned)(fake_random() % 9);
			size_t text = fake_random() % 50, n;
			if (type <= SAY_ANSWER) {
				struct say_path w = {.version = fake_random() % 8 ? SAY_VERSION : 9,
					.attempt = (uint16_t)(fake_random() % 4),
					.status = -(int)(fake_random() % 3),
					.received = fake_random() % 3,
					.credit = (uint32_t)fake_random(),
					.text_len = (uint16_t)text,
					.handle_len = (uint16_t)(fake_random() % 3 * 8)};
				memcpy(w.transport, fake_random() % 3 ? transport : "pigeon", 6);
				memcpy(m, &w, sizeof(w));
				n = sizeof(w) + text + w.handle_len;
			} else {
				struct say_word w = {.version = SAY_VERSION,
					.attempt = (uint16_t)(fake_random() % 4),
					.text_len = (uint16_t)text,
					.sent = fake_random() % 4};
				memcpy(m, &w, sizeof(w));
				n = sizeof(w) + text;
			}
			n -= fake_random() % 10 ? 0 : 3;
			uint32_t crc = (uint32_t)crc32(0, m, (uInt)n) ^ (fake_random() % 10 ? 0 : 1);
			memcpy(m + n, &crc, 4);
			fake_say(fake_random() % 2, type, m, (unsigned)n + 4);
			both(&p);
		}
		for (int i = 0; i < 20; i++)
			both(&p);
		rpw_request_destroy(r);
		pair_close(&p);
	}
}
#endif

static void the_next_path_when_one_does_not_come_up(void **state)
{
#ifdef MSG_FAKE
	for (int how = 0; how < 2; how++) {
		struct pair p;
		fake.no_ready = how == 0;
		fake.refuse_make = how == 1;
		pair_timeout_ms = 1000; /* of which the first path gets a part */
		pair_open(&p, NULL);
		pair_timeout_ms = 0;
		rpw_endpoint_information a = {.size = sizeof(a)};
		rpw_endpoint_info(p.ea, &a);
		assert_string_equal(a.transport, "fake_b");
		assert_non_null(strstr(a.why, "fake_a"));
		pair_close(&p);
	}
	/* None left: refused by name. */
	fake.refuse_make = true;
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = "fake_a"};
	rpw_context_create(&o, &p.a);
	rpw_context_create(&o, &p.b);
	rpw_listener_create(p.b, ":0", pair_accept, &p, &p.l);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	rpw_request *r;
	rpw_endpoint_create(p.a, address, NULL, &p.ea, &r);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_UNREACHABLE);
	rpw_endpoint_information a = {.size = sizeof(a)};
	rpw_endpoint_info(p.ea, &a);
	assert_int_equal(a.status, RPW_ERR_UNREACHABLE);
	assert_non_null(strstr(a.why, "fake_a"));
	pair_close(&p);
#endif
}

/* Both ends of a path fail, and the peer's word of it comes in the round in which this side's own end says why: both are told. */
static void the_own_reason_stands_beside_the_peers(void **state)
{
#ifdef MSG_FAKE
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = "fake_b"};
	fake.break_young = 2;
	rpw_context_create(&o, &p.a);
	rpw_context_create(&o, &p.b);
	rpw_listener_create(p.b, ":0", pair_accept, &p, &p.l);
	char address[64], own[64], other[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	rpw_request *r;
	rpw_endpoint_create(p.a, address, NULL, &p.ea, &r);
	WHILE_IN_TIME (rpw_request_test(r, NULL) == RPW_IN_PROGRESS) {
		rpw_context_progress(p.b);
		rpw_context_progress(p.a);
	}
	assert_int_equal(rpw_request_test(r, NULL), RPW_ERR_UNREACHABLE);
	rpw_request_destroy(r);
	rpw_endpoint_information a = {.size = sizeof(a)};
	rpw_endpoint_info(p.ea, &a);
	snprintf(own, sizeof(own), "fake_b: end %llu broke", (unsigned long long)fake_made_by(true));
	snprintf(other, sizeof(other), "failed: end %llu broke", (unsigned long long)fake_made_by(false));
	if (!strstr(a.why, own) || !strstr(a.why, other))
		fail_msg("neither \"%s\" nor \"%s\" may be missing in: %s", own, other, a.why);
	pair_close(&p);
#endif
}

static struct {
	rpw_endpoint *ep[1000];
	int n;
} crowd;
static void crowd_accept(rpw_listener *l, rpw_endpoint *ep, void *arg) { crowd.ep[crowd.n++] = ep; }

static void a_thousand_endpoints(void **state)
{
	enum { N = 1000 };
	if (!strcmp(transport, "tcp"))
		return; /* both ends in one process: more descriptors than a test may have */
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	assert_int_equal(rpw_context_create(&o, &p.a), 0);
	assert_int_equal(rpw_context_create(&o, &p.b), 0);
	crowd.n = 0;
	assert_int_equal(rpw_listener_create(p.b, "127.0.0.1:0", crowd_accept, NULL, &p.l), 0);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	static rpw_endpoint *ep[N];
	static rpw_request *r[N];
	for (int i = 0; i < N; i++) {
		assert_int_equal(rpw_endpoint_create(p.a, address, NULL, &ep[i], &r[i]), RPW_IN_PROGRESS);
		if (i % 50 == 49)
			for (int k = i - 49; k <= i; k++)
				assert_int_equal(finish(&p, r[k], NULL), RPW_OK);
	}
	WHILE_IN_TIME (crowd.n < N)
		both(&p);
	assert_int_equal(crowd.n, N);
	static uint64_t in[N];
	for (int i = 0; i < N; i++) {
		uint64_t v = mix((uint64_t)i);
		rpw_request *s;
		assert_true(rpw_send(ep[i], &v, 8, 7, &s) >= 0);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
	}
	/* From each its own, whatever the order in which they are asked. */
	for (int i = N - 1; i >= 0; i--) {
		rpw_completion done = RPW_COMPLETION_INIT;
		assert_int_equal(rpw_recv(p.b, crowd.ep[i], &in[i], 8, 7, ALL, &r[i]), RPW_IN_PROGRESS);
		assert_int_equal(finish(&p, r[i], &done), RPW_OK);
		assert_ptr_equal(done.from, crowd.ep[i]);
	}
	uint64_t sum = 0, expect = 0;
	for (int i = 0; i < N; i++) {
		sum += in[i];
		expect += mix((uint64_t)i);
	}
	assert_int_equal(sum, expect);
	rpw_context_destroy(p.a);
	rpw_context_destroy(p.b);
}

#include "soak.h"

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(sizes_both_ways_posted_and_early, quiet),
		cmocka_unit_test_setup(order_of_one_tag, quiet),
		cmocka_unit_test_setup(earliest_receive_that_matches, quiet),
		cmocka_unit_test_setup(truncation, quiet),
		cmocka_unit_test_setup(scatter_lists, quiet),
		cmocka_unit_test_setup(cancels, quiet),
		cmocka_unit_test_setup(objects, quiet),
		cmocka_unit_test_setup(active_messages_in_order, quiet),
		cmocka_unit_test_setup(remote_memory, quiet),
		cmocka_unit_test_setup(what_is_known_of_an_endpoint, quiet),
		cmocka_unit_test_setup(the_end_of_an_endpoint, quiet),
#ifndef MSG_FAKE
		cmocka_unit_test_setup(a_context_without_endpoints_sleeps, quiet),
		cmocka_unit_test_setup(a_round_ends_with_what_nobody_waits_for, quiet),
#endif
		cmocka_unit_test_setup(a_flush_and_the_peers_close, quiet),
		cmocka_unit_test_setup(calls_from_inside_callbacks, quiet),
		cmocka_unit_test_setup(posted_before_connected, quiet),
		cmocka_unit_test_setup(unexpected_memory_is_bounded, quiet),
		cmocka_unit_test_setup(many_posted_receives, quiet),
		cmocka_unit_test_setup(arguments_are_checked, quiet),
		cmocka_unit_test_setup(a_wait_times_out_and_goes_on, quiet),
		cmocka_unit_test_setup(the_next_path_when_one_does_not_come_up, quiet),
		cmocka_unit_test_setup(the_own_reason_stands_beside_the_peers, quiet),
		cmocka_unit_test_setup(a_thousand_endpoints, quiet),
		cmocka_unit_test_setup(soak, quiet),
#ifdef MSG_FAKE
		cmocka_unit_test_setup(hostile_frames, quiet),
		cmocka_unit_test_setup(hostile_words, quiet),
		cmocka_unit_test_setup(soak_with_misbehaviour, quiet),
		cmocka_unit_test_setup(soak_with_broken_paths, quiet),
#endif
	};
	const char *filter = getenv("MSG_TEST"), *const named[] = {getenv("MSG_TRANSPORT"), NULL};
	if (filter)
		cmocka_set_test_filter(filter);
	int failed = 0;
	for (const char *const *t = named[0] ? named : default_transports; *t; t++) {
		transport = *t;
		failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
	}
	return failed ? 1 : 0;
}
