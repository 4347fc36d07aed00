/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_cases.c - the contract of registered memory, of remote keys, and of what is done with
 * them. */
#include <signal.h>
#include <unistd.h>

#include "contract.h"

static void what_can_be_registered(void)
{
	rpw_context *c = context_open();
	rpw_memory *none = (rpw_memory *)&none, *m = none;
	static unsigned char own[1000];
	unsigned char packed[RPW_RKEY_BYTES_MAX];
	REFUSED(rpw_memory_register(c, NULL, 10, RPW_MEMORY_HOST, 0, &m), RPW_ERR_INVALID,
		"address");
	REFUSED(rpw_memory_register(c, own, 0, RPW_MEMORY_HOST, 0, &m), RPW_ERR_INVALID,
		"the length is 0");
	REFUSED(rpw_memory_register(c, own, 10, RPW_MEMORY_HOST, 8, &m), RPW_ERR_INVALID,
		"access 0x8");
	REFUSED(rpw_memory_register(c, own, 10, RPW_MEMORY_HOST, 0, NULL), RPW_ERR_INVALID, "out");
	REFUSED(rpw_memory_register(c, (void *)(UINTPTR_MAX - 100), 1000, RPW_MEMORY_HOST, 0, &m),
		RPW_ERR_INVALID, "address space");
	REFUSED(rpw_memory_allocate(c, 0, 0, &m), RPW_ERR_INVALID, "the length is 0");
	REFUSED(rpw_memory_allocate(c, 10, 8, &m), RPW_ERR_INVALID, "access 0x8");
	REFUSED(rpw_memory_allocate(c, 10, 0, NULL), RPW_ERR_INVALID, "out");
	REFUSED(rpw_memory_allocate(c, (size_t)1 << 50, 0, &m), RPW_ERR_NO_MEMORY,
		"1125899906842624 bytes");
	CHECK(rpw_memory_register(c, own, 10, RPW_MEMORY_CUDA, 0, &m) < 0); /* it is the host's */
	CHECK(m == none);
	CHECK(!rpw_memory_address(NULL));
	IS(rpw_memory_length(NULL), 0);
	rpw_memory_destroy(NULL);
	rpw_rkey_destroy(NULL);
	/* The program's own, and ropeway's. */
	IS(rpw_memory_register(c, own + 3, sizeof(own) - 3, RPW_MEMORY_HOST, 0, &m), RPW_OK);
	CHECK(rpw_memory_address(m) == own + 3);
	IS(rpw_memory_length(m), sizeof(own) - 3);
	REFUSED(rpw_rkey_pack(m, NULL, 100), RPW_ERR_INVALID, "rpw_rkey_pack");
	REFUSED(rpw_rkey_pack(NULL, packed, sizeof(packed)), RPW_ERR_INVALID, "rpw_rkey_pack");
	int n = rpw_rkey_pack(m, packed, sizeof(packed));
	CHECK(n > 0 && n <= RPW_RKEY_BYTES_MAX);
	REFUSED(rpw_rkey_pack(m, packed, (size_t)n - 1), RPW_ERR_LIMIT, "RPW_RKEY_BYTES_MAX");
	IS(rpw_rkey_pack(m, packed, (size_t)n), n); /* it just fits; as often as one likes */
	rpw_memory_destroy(m);
	IS(rpw_memory_allocate(c, 100001, RPW_REMOTE_READ, &m), RPW_OK);
	IS(rpw_memory_length(m), 100001);
	unsigned char *at = (unsigned char *)rpw_memory_address(m);
	pattern_fill(at, 100001, 5);
	CHECK(pattern_right(at, 100001, 5));
	CHECK(rpw_rkey_pack(m, packed, sizeof(packed)) > 0);
	rpw_memory_destroy(m);
	rpw_context_destroy(c);
}

static void memory_of_gpus_is_asked_for_by_name(void)
{
	rpw_context *c = context_open();
	rpw_memory *none = (rpw_memory *)&none, *m = none;
	static unsigned char own[1000];
	int ends[2];
	REFUSED(rpw_memory_direct(NULL), RPW_ERR_INVALID, "context");
	int ways = rpw_memory_direct(c);
	CHECK(ways >= 0 && ways <= (RPW_DIRECT_PEER | RPW_DIRECT_DMABUF));
	CHECK(ways || strlen(rpw_last_error()) > 20); /* what is missing */
	IS(rpw_memory_direct(c), ways);
	CHECK(!pipe(ends));
	REFUSED(rpw_memory_register_dmabuf(c, own, 10, -1, 0, 0, &m), RPW_ERR_INVALID,
		"descriptor -1");
	REFUSED(rpw_memory_register_dmabuf(c, own, 10, ends[0], UINT64_MAX, 0, &m), RPW_ERR_INVALID,
		"offset 18446744073709551615");
	REFUSED(rpw_memory_register_dmabuf(c, NULL, 10, ends[0], 0, 0, &m), RPW_ERR_INVALID,
		"address");
	REFUSED(rpw_memory_register_dmabuf(c, own, 10, ends[0], 0, 0, NULL), RPW_ERR_INVALID,
		"out");
	REFUSED(rpw_memory_register_dmabuf(NULL, own, 10, ends[0], 0, 0, &m), RPW_ERR_INVALID,
		"context");
	CHECK(rpw_memory_register_dmabuf(c, own, 10, ends[0], 0, 0, &m) < 0); /* it is the host's */
	CHECK(m == none);
	/* Nothing of the descriptor is kept. */
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK(write(ends[1], own, 1) < 0);
	close(ends[1]);
	rpw_context_destroy(c);
}

static void keys_that_are_none(void)
{
	struct pair p;
	unsigned char packed[RPW_RKEY_BYTES_MAX + 1];
	rpw_rkey *none = (rpw_rkey *)&none, *k = none;
	pair_open(&p);
	IS(rpw_memory_allocate(p.b, 100, RPW_REMOTE_READ, &p.m), RPW_OK);
	int n = rpw_rkey_pack(p.m, packed, sizeof(packed));
	CHECK(n > 0);
	REFUSED(rpw_rkey_unpack(p.ea, NULL, (size_t)n, &k), RPW_ERR_INVALID, "packed key");
	REFUSED(rpw_rkey_unpack(p.ea, packed, (size_t)n, NULL), RPW_ERR_INVALID, "out");
	REFUSED(rpw_rkey_unpack(p.ea, packed, 0, &k), RPW_ERR_PROTOCOL, "0 bytes");
	REFUSED(rpw_rkey_unpack(p.ea, packed, sizeof(packed), &k), RPW_ERR_PROTOCOL, "513 bytes");
	REFUSED(rpw_rkey_unpack(
			p.ea, "this is a text, and no remote key of anybody's at all", 53, &k),
		RPW_ERR_PROTOCOL, "no remote key");
	/* Any length but its own, any bit but its own. */
	for (int i = 1; i < n; i++)
		CHECK(rpw_rkey_unpack(p.ea, packed, (size_t)i, &k) < 0);
	int of_another_version = 0;
	for (int i = 0; i < n * 8; i++) {
		packed[i / 8] ^= (unsigned char)(1 << i % 8);
		int rc = rpw_rkey_unpack(p.ea, packed, (size_t)n, &k);
		CHECK(rc == RPW_ERR_PROTOCOL || rc == RPW_ERR_NOT_SUPPORTED);
		if (rc == RPW_ERR_NOT_SUPPORTED) {
			SAYS("version");
			of_another_version++;
		}
		packed[i / 8] ^= (unsigned char)(1 << i % 8);
	}
	CHECK(of_another_version);
	/* Of the wrong side. */
	REFUSED(rpw_rkey_unpack(p.eb, packed, (size_t)n, &k), RPW_ERR_ACCESS, "another context");
	CHECK(k == none);
	/* Before the connection stands. */
	rpw_endpoint *early = NULL;
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	IS(rpw_endpoint_create(p.a, address, NULL, &early, NULL), RPW_IN_PROGRESS);
	REFUSED(rpw_rkey_unpack(early, packed, (size_t)n, &k), RPW_ERR_INVALID,
		"not connected yet");
	SAYS("wait for"); /* what to do */
	rpw_endpoint_destroy(early);
	/* The right one, twice. */
	IS(rpw_rkey_unpack(p.ea, packed, (size_t)n, &k), RPW_OK);
	IS(rpw_rkey_unpack(p.ea, packed, (size_t)n, &p.k), RPW_OK);
	CHECK(k != p.k);
	rpw_rkey_destroy(k);
	pair_close(&p);
}

static const struct {
	int what;
	unsigned right;
	const char *name;
} rights[] = {{PUT, RPW_REMOTE_WRITE, "RPW_REMOTE_WRITE"},
	{PUT_NOTIFY, RPW_REMOTE_WRITE, "RPW_REMOTE_WRITE"},
	{GET, RPW_REMOTE_READ, "RPW_REMOTE_READ"},
	{FETCH_ADD, RPW_REMOTE_ATOMIC, "RPW_REMOTE_ATOMIC"},
	{COMPARE_SWAP, RPW_REMOTE_ATOMIC, "RPW_REMOTE_ATOMIC"}};

static void every_access_needs_its_right(void)
{
	struct pair p;
	pair_open(&p);
	for (unsigned access = 0; access < 8; access++) {
		unsigned char packed[RPW_RKEY_BYTES_MAX];
		IS(rpw_memory_allocate(p.b, REGION, access, &p.m), RPW_OK);
		unsigned char *region = (unsigned char *)rpw_memory_address(p.m);
		memset(region, 0, REGION);
		int n = rpw_rkey_pack(p.m, packed, sizeof(packed));
		CHECK(n > 0);
		IS(rpw_rkey_unpack(p.ea, packed, (size_t)n, &p.k), RPW_OK);
		for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++) {
			rpw_request *r = NULL;
			if (!(access & rights[i].right)) {
				REFUSED(post(&p, rights[i].what, p.ea, &r), RPW_ERR_ACCESS,
					rights[i].name);
				continue;
			}
			int rc = post(&p, rights[i].what, p.ea, &r);
			IS(ended(&p, rc, r), RPW_OK);
		}
		/* A batch needs the rights of all that is in it, or does nothing. */
		rpw_request *r = NULL;
		unsigned both_rights = RPW_REMOTE_WRITE | RPW_REMOTE_READ;
		int rc = post(&p, BATCH, p.ea, &r);
		int want = RPW_ERR_ACCESS;
		if ((access & both_rights) == both_rights)
			want = RPW_OK;
		IS(rc < 0 ? rc : ended(&p, rc, r), want);
		settle(&p);
		if (!(access & (RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC)))
			for (int i = 0; i < REGION; i++)
				IS(region[i], 0);
		rpw_rkey_destroy(p.k);
		rpw_memory_destroy(p.m);
	}
	p.m = NULL;
	p.k = NULL;
	pair_close(&p);
}

static void nothing_outside_of_what_was_registered(void)
{
	struct pair p;
	uint64_t word = 0;
	rpw_request *r = NULL;
	pair_open(&p);
	pair_memory(&p);
	static const struct {
		uint64_t offset;
		size_t len;
	} out[] = {{REGION, 1}, {REGION - 1, 2}, {0, REGION + 1}, {REGION + 1, 0}, {UINT64_MAX, 1},
		{UINT64_MAX - 7, 8}, {8, SIZE_MAX - 4}};
	static unsigned char buf[REGION];
	for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++) {
		rpw_transfer t[2] = {RPW_TRANSFER_INIT, RPW_TRANSFER_INIT};
		t[0].key = t[1].key = p.k;
		t[0].buf = t[1].buf = buf;
		t[0].len = 64;
		t[1].offset = out[i].offset;
		t[1].len = out[i].len;
		REFUSED(rpw_put(p.ea, buf, out[i].len, p.k, out[i].offset, &r), RPW_ERR_ACCESS,
			"8192 bytes");
		REFUSED(rpw_get(p.ea, buf, out[i].len, p.k, out[i].offset, &r), RPW_ERR_ACCESS,
			"8192 bytes");
		REFUSED(rpw_put_notify(p.ea, buf, out[i].len, p.k, out[i].offset, 1, &r),
			RPW_ERR_ACCESS, "8192 bytes");
		REFUSED(rpw_transfer_batch(p.ea, t, 2, &r), RPW_ERR_ACCESS, "8192 bytes");
	}
	REFUSED(rpw_fetch_add(p.ea, 1, p.k, REGION - 4, &word, &r), RPW_ERR_ACCESS, "8192 bytes");
	REFUSED(rpw_fetch_add(p.ea, 1, p.k, REGION, &word, &r), RPW_ERR_ACCESS, "8192 bytes");
	REFUSED(rpw_compare_swap(p.ea, 1, 1, p.k, UINT64_MAX - 7, &word, &r), RPW_ERR_ACCESS,
		"8192 bytes");
	/* Atomics are on 8 aligned bytes. */
	for (uint64_t at = 1; at < 8; at++) {
		REFUSED(rpw_fetch_add(p.ea, 1, p.k, at, &word, &r), RPW_ERR_INVALID,
			"multiple of 8");
		REFUSED(rpw_compare_swap(p.ea, 1, 1, p.k, at, &word, &r), RPW_ERR_INVALID,
			"multiple of 8");
	}
	/* A key is of one endpoint. */
	REFUSED(rpw_put(p.eb, buf, 1, p.k, 0, &r), RPW_ERR_INVALID, "another endpoint");
	CHECK(!r);
	settle(&p);
	for (int i = 0; i < REGION; i++)
		IS(p.region[i], 0);
	/* The last byte, and the last word. */
	buf[0] = 0x99;
	int rc = rpw_put(p.ea, buf, 1, p.k, REGION - 1, &r);
	IS(ended(&p, rc, r), RPW_OK);
	r = NULL;
	rc = rpw_fetch_add(p.ea, 0, p.k, REGION - 8, &word, &r);
	IS(ended(&p, rc, r), RPW_OK);
	CHECK(word == (uint64_t)0x99 << 56);
	pair_close(&p);
}

static void a_put_is_done_when_its_buffer_is_free(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	pair_memory(&p);
	static unsigned char out[REGION], in[REGION];
	for (int k = 0; k < 10; k++) {
		size_t n = k & 1 ? REGION : 8;
		pattern_fill(out, n, (uint64_t)k);
		r = NULL;
		int rc = rpw_put(p.ea, out, n, p.k, 0, &r);
		rpw_completion done = RPW_COMPLETION_INIT;
		if (rc == RPW_IN_PROGRESS) {
			IS(pair_finish(&p, r, &done), RPW_OK);
			IS(done.length, n);
		}
		memset(out, 0xee, n);
		r = NULL;
		rc = rpw_endpoint_flush(p.ea, &r);
		IS(ended(&p, rc, r), RPW_OK);
		CHECK(pattern_right(p.region, n, (uint64_t)k));
		/* And a get is done when its bytes are here. */
		r = NULL;
		rc = rpw_get(p.ea, in, n, p.k, 0, &r);
		IS(ended(&p, rc, r), RPW_OK);
		CHECK(pattern_right(in, n, (uint64_t)k));
	}
	pair_close(&p);
}

static void atomics_count_from_both_sides(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	enum { N = 500 };
	static uint64_t before[N];
	static rpw_request *r[N];
	uint64_t *at = (uint64_t *)(void *)(p.region + 64);
	*at = 1000;
	for (int i = 0; i < N; i++) {
		r[i] = NULL;
		CHECK(rpw_fetch_add(p.ea, 3, p.k, 64, &before[i], &r[i]) >= 0);
		__atomic_fetch_add(at, 1, __ATOMIC_SEQ_CST);
	}
	for (int i = 0; i < N; i++)
		if (r[i])
			IS(pair_finish(&p, r[i], NULL), RPW_OK);
	CHECK(__atomic_load_n(at, __ATOMIC_SEQ_CST) == 1000 + 4 * N);
	for (int i = 1; i < N; i++) /* none was lost, none twice: each saw the one before */
		CHECK(before[i] >= before[i - 1] + 3);
	/* Compare and swap tells what was there, and changes it only when that is what was
	 * expected. */
	static const struct {
		uint64_t compare, swap, before, after;
	} table[] = {{UINT64_MAX, 5, 1000 + 4 * N, 1000 + 4 * N},
		{1000 + 4 * N, UINT64_MAX, 1000 + 4 * N, UINT64_MAX},
		{UINT64_MAX, 0, UINT64_MAX, 0}};
	for (int i = 0; i < 3; i++) {
		rpw_request *s = NULL;
		uint64_t was = 12345;
		int rc = rpw_compare_swap(p.ea, table[i].compare, table[i].swap, p.k, 64, &was, &s);
		IS(ended(&p, rc, s), RPW_OK);
		CHECK(was == table[i].before);
		CHECK(__atomic_load_n(at, __ATOMIC_SEQ_CST) == table[i].after);
	}
	/* It wraps around. */
	rpw_request *s = NULL;
	uint64_t was = 1;
	int rc = rpw_fetch_add(p.ea, UINT64_MAX, p.k, 64, &was, &s);
	IS(ended(&p, rc, s), RPW_OK);
	CHECK(was == 0 && *at == UINT64_MAX);
	pair_close(&p);
}

static void a_batch_is_done_when_all_of_it_is(void)
{
	struct pair p;
	rpw_request *r = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	enum { N = 100 };
	static unsigned char out[N][48], in[N][48];
	rpw_transfer t[N];
	pair_open(&p);
	pair_memory(&p);
	memset(t, 0, sizeof(t));
	for (int i = 0; i < N; i++) {
		t[i].size = sizeof(*t);
		pattern_fill(out[i], sizeof(out[i]), (uint64_t)i);
		t[i].buf = out[i];
		t[i].len = i % 10 ? 48 : 0;
		t[i].key = p.k;
		t[i].offset = (uint64_t)i * 48;
	}
	int rc = rpw_transfer_batch(p.ea, t, N, &r);
	for (int i = 0; i < N; i++) { /* the list is the program's again; the buffers are not */
		t[i].is_get = true;
		t[i].buf = in[i];
	}
	CHECK(rc >= 0);
	if (r) {
		IS(pair_finish(&p, r, &done), RPW_OK);
		IS(done.length, 90 * 48);
	}
	IS(rpw_endpoint_fence(p.ea), RPW_OK);
	r = NULL;
	rc = rpw_transfer_batch(p.ea, t, N, &r);
	memset(t, 0xff, sizeof(t));
	IS(ended(&p, rc, r), RPW_OK);
	for (int i = 0; i < N; i++)
		CHECK(i % 10 ? pattern_right(in[i], 48, (uint64_t)i)
			     : pattern_right(out[i], 48, (uint64_t)i));
	/* One that is not allowed: nothing of it happens. */
	memset(p.region, 0, REGION);
	memset(t, 0, sizeof(t));
	for (int i = 0; i < 3; i++) {
		t[i].size = sizeof(*t);
		t[i].buf = out[i];
		t[i].len = 48;
		t[i].key = p.k;
		t[i].offset = (uint64_t)(i == 2 ? (int)REGION : i * 48);
	}
	r = NULL;
	REFUSED(rpw_transfer_batch(p.ea, t, 3, &r), RPW_ERR_ACCESS, "8192 bytes");
	settle(&p);
	for (int i = 0; i < REGION; i++)
		IS(p.region[i], 0);
	pair_close(&p);
}

/* A later version's transfer, and its completion: they begin like ours. */
static void what_a_caller_allocates_can_grow(void)
{
	enum { N = 3 };
	struct pair p;
	rpw_request *r = NULL;
	struct {
		rpw_transfer now;
		uint64_t later[2];
	} t[N];
	struct {
		rpw_completion now;
		uint64_t later;
	} done = {{sizeof(done), 0, 0, 0, NULL}, 77};
	static unsigned char out[N][48];
	pair_open(&p);
	pair_memory(&p);
	memset(t, 0xff, sizeof(t));
	for (int i = 0; i < N; i++) {
		pattern_fill(out[i], sizeof(out[i]), (uint64_t)i + 1);
		rpw_transfer one = {
			sizeof(t[i]), false, out[i], sizeof(out[i]), p.k, (uint64_t)i * 48};
		t[i].now = one;
	}
	int rc = rpw_transfer_batch(p.ea, &t[0].now, N, &r);
	CHECK(rc >= 0);
	IS(r ? pair_finish(&p, r, &done.now) : RPW_OK, RPW_OK);
	IS(done.later, 77);
	IS(done.now.size, sizeof(done));
	settle(&p);
	for (int i = 0; i < N; i++)
		CHECK(pattern_right(p.region + i * 48, 48, (uint64_t)i + 1));
	/* Of two sizes, of none, of too little, of what no array can have: nothing is posted. */
	t[2].now.size = sizeof(rpw_transfer);
	REFUSED(rpw_transfer_batch(p.ea, &t[0].now, N, &r), RPW_ERR_INVALID,
		"transfer 2 of the batch has size");
	static const size_t wrong[] = {0, 1, sizeof(rpw_transfer) - 1, sizeof(rpw_transfer) + 1};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		t[0].now.size = wrong[i];
		REFUSED(rpw_transfer_batch(p.ea, &t[0].now, 1, &r), RPW_ERR_INVALID,
			"RPW_TRANSFER_INIT");
	}
	pair_close(&p);
}

static void memory_that_was_released_is_not_reached(void)
{
	/* The key is still there, and good; what it is of is not. Over shared memory a mapping may
	 * outlive its release: then nothing is harmed either. */
	struct pair p;
	rpw_request *r = NULL;
	static unsigned char own[REGION], buf[64];
	unsigned char packed[RPW_RKEY_BYTES_MAX];
	pair_open(&p);
	pattern_fill(own, sizeof(own), 3);
	IS(rpw_memory_register(p.b, own, sizeof(own), RPW_MEMORY_HOST,
		   RPW_REMOTE_WRITE | RPW_REMOTE_READ | RPW_REMOTE_ATOMIC, &p.m),
		RPW_OK);
	int n = rpw_rkey_pack(p.m, packed, sizeof(packed));
	CHECK(n > 0);
	IS(rpw_rkey_unpack(p.ea, packed, (size_t)n, &p.k), RPW_OK);
	int rc = rpw_get(p.ea, buf, sizeof(buf), p.k, 0, &r);
	IS(ended(&p, rc, r), RPW_OK);
	CHECK(pattern_right(buf, sizeof(buf), 3));
	rpw_memory_destroy(p.m);
	p.m = NULL;
	r = NULL;
	memset(buf, 0, sizeof(buf));
	rc = rpw_put(p.ea, buf, sizeof(buf), p.k, 0, &r);
	int status = ended(&p, rc, r);
	r = NULL;
	rc = rpw_endpoint_flush(p.ea, &r);
	int flushed = ended(&p, rc, r);
	printf("# %s: put %s, flush %s\n", contract_transport, rpw_status_name(status),
		rpw_status_name(flushed));
	CHECK(status < 0 || flushed < 0);
	CHECK(pattern_right(own, sizeof(own), 3));
	pair_close(&p);
}

const struct contract_case memory_cases[] = {
	{"what_can_be_registered", what_can_be_registered, true,
		"rpw_memory_register rpw_memory_allocate rpw_memory_address rpw_memory_length "
		"rpw_memory_destroy rpw_rkey_pack rpw_rkey_destroy"},
	{"memory_of_gpus_is_asked_for_by_name", memory_of_gpus_is_asked_for_by_name, true,
		"rpw_memory_direct rpw_memory_register_dmabuf"},
	{"keys_that_are_none", keys_that_are_none, true,
		"rpw_rkey_unpack rpw_rkey_destroy rpw_rkey_pack"},
	{"every_access_needs_its_right", every_access_needs_its_right, true,
		"rpw_memory_allocate rpw_put rpw_put_notify rpw_get rpw_fetch_add rpw_compare_swap "
		"rpw_transfer_batch"},
	{"nothing_outside_of_what_was_registered", nothing_outside_of_what_was_registered, true,
		"rpw_put rpw_put_notify rpw_get rpw_fetch_add rpw_compare_swap rpw_transfer_batch"},
	{"a_put_is_done_when_its_buffer_is_free", a_put_is_done_when_its_buffer_is_free, true,
		"rpw_put rpw_get rpw_endpoint_flush"},
	{"atomics_count_from_both_sides", atomics_count_from_both_sides, true,
		"rpw_fetch_add rpw_compare_swap"},
	{"what_a_caller_allocates_can_grow", what_a_caller_allocates_can_grow, true,
		"rpw_transfer_batch"},
	{"a_batch_is_done_when_all_of_it_is", a_batch_is_done_when_all_of_it_is, true,
		"rpw_transfer_batch rpw_endpoint_fence"},
	{"memory_that_was_released_is_not_reached", memory_that_was_released_is_not_reached, true,
		"rpw_memory_destroy rpw_put rpw_endpoint_flush"},
	{NULL, NULL, false, NULL},
};
