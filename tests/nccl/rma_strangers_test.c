/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_strangers_test.c - our one-sided plugin among those who mean ill: strangers at the door of a
 * coll comm, a rank that says what no rank says, and ranks without the key, or with another one.
 * They speak the wire of nccl/rma.h with the messaging library. PLUGIN TRANSPORT [TEST]... */
#include "rma_group.h"

#include <unistd.h>

#include "nccl/rma.h"

enum { ROOM = 4096, FLOOD = 2000, DONE = 0 };

/* ---- one who speaks the wire ---- */

struct stranger {
	rpw_context *c;
	rpw_endpoint *ep;
	struct rma_reg_head reg; /* what rank 0 registered, once it said so */
	bool joined, told;
};

static void joined(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	((struct stranger *)arg)->joined = true;
}

static void told(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct stranger *s = arg;
	s->told = header_len == sizeof(s->reg);
	if (s->told)
		memcpy(&s->reg, header, header_len);
}

static void stranger_open(struct rank *r, struct stranger *s)
{
	rpw_context_options o = {.size = sizeof(o), .transports = group_main.transport};
	*s = (struct stranger){0};
	RANK_OK(r, rpw_context_create(&o, &s->c));
	rpw_context_on_am(s->c, RMA_JOINED, joined, s);
	rpw_context_on_am(s->c, RMA_REG, told, s);
}

static void stranger_dial(struct rank *r, struct stranger *s)
{
	struct plugin_handle h;
	rpw_request *q = NULL;
	memcpy(&h, rank_handle(r, 0), sizeof(h));
	RANK_OK(r, rpw_finish(rpw_endpoint_create(s->c, h.address, NULL, &s->ep, &q), &q,
			   GROUP_WAIT_S * 1000, NULL));
}

static void words(struct rank *r, struct stranger *s, unsigned id, const void *header, size_t len,
	const void *data, size_t data_len)
{
	int rc = rpw_am_send(s->ep, id, header, len, data, data_len, NULL);
	if (rc < 0)
		rank_fail(r, "message %u of the stranger: %s", id, rpw_last_error());
	rpw_context_progress(s->c);
}

/* Until all that was said has been taken. */
static void stranger_rest(struct rank *r, struct stranger *s)
{
	rpw_request *q = NULL;
	RANK_OK(r, rpw_finish(rpw_endpoint_shutdown(s->ep, &q), &q, GROUP_WAIT_S * 1000, NULL));
	for (int i = 0; i < 50; i++, usleep(1000))
		rpw_context_progress(s->c);
	rpw_context_destroy(s->c);
}

/* Rank 0 goes on calling until the stranger has done its worst. */
static void until_done(struct rank *r)
{
	uint64_t until_ns = rpwi_now_ns() + GROUP_WAIT_S * RPWI_NS_PER_S;
	while (!atomic_load(rank_shared(r, DONE)) && rpwi_now_ns() < until_ns) {
		r->n.calls->progress(r->n.table, r->coll, r->ctx);
		usleep(20);
	}
	RANK_TRUE(r, atomic_load(rank_shared(r, DONE)));
}

static struct window *window_marked(void)
{
	struct window *w = window_new(ROOM);
	pattern_fill(w, sizeof(*w) + ROOM, 3);
	return w;
}

static void assert_untouched(struct rank *r, const struct window *w)
{
	size_t len = sizeof(*w) + ROOM, wrong = pattern_wrong(w, len, 3);
	if (wrong < len)
		rank_fail(r, "byte %zu of the window was written", wrong);
}

/* ---- strangers at the door ---- */

/* Ids are small numbers: anybody can guess them. */
static void all_words(struct rank *r, struct stranger *s)
{
	static char line[200], body[64]; /* may be read until the peer has taken it */
	memset(line, 'x', sizeof(line));
	memset(body, 'y', sizeof(body));
	for (uint32_t generation = 0; generation < 3; generation++)
		for (uint32_t place = 0; place < 20; place++) {
			uint32_t id = generation << 20 | place;
			struct rma_put_head h = {.to = id, .to_off = 8, .signal = id, .value = 1};
			words(r, s, RMA_PUT, &h, sizeof(h), body, sizeof(body));
		}
	words(r, s, RMA_PUT, line, 3, body, 1);
	words(r, s, RMA_REG, &(struct rma_reg_head){.number = 1, .type = 1},
		sizeof(struct rma_reg_head), body, sizeof(body));
	words(r, s, RMA_REFUSED, &(struct rma_refused_head){.why = RMA_BEYOND},
		sizeof(struct rma_refused_head), NULL, 0);
	words(r, s, RMA_JOINED, NULL, 0, NULL, 0);
	words(r, s, PLUGIN_REFUSED, line, sizeof(line), NULL, 0);
	words(r, s, PLUGIN_HELLO, line, sizeof(line), NULL, 0);
}

static void intrude(struct rank *r)
{
	struct stranger s;
	for (int with_hello = 0; with_hello < 2; with_hello++) {
		struct plugin_hello h = {.magic = 0x31776e72,
			.abi = PLUGIN_API_RMA + 16,
			.version = ROPEWAY_VERSION,
			.nonce = "not this one"};
		stranger_open(r, &s);
		stranger_dial(r, &s);
		if (with_hello)
			words(r, &s, PLUGIN_HELLO, &h, sizeof(h), NULL, 0);
		all_words(r, &s);
		stranger_rest(r, &s);
	}
	atomic_store(rank_shared(r, DONE), 1);
}

/* Rank 0 is a communicator of its own. */
static void at_the_door(struct rank *r)
{
	struct window *w = window_marked();
	bool failed = false;
	rank_open(r, group_main.plugin, "RMA v16");
	rank_listen(r);
	if (r->rank) {
		rank_barrier(r);
		intrude(r);
		rank_barrier(r);
		rank_close(r);
		return;
	}
	r->ranks = 1;
	RANK_OK(r, rank_connect(r, 1));
	r->ranks = 2;
	void *wh = rank_reg(r, w, sizeof(*w) + ROOM);
	rank_barrier(r);
	until_done(r);
	assert_untouched(r, w);
	RANK_OK(r, r->n.calls->query(r->n.table, r->coll, r->ctx, &failed));
	RANK_TRUE(r, !failed && !rank_warnings());
	/* and it works as before */
	w->signal[0] = 0;
	rank_do(r, 0,
		&(struct ncclnet_rma_op){
			.signals = true, .signal = wh, .signal_op = NCCL_RMA_SIGNAL_INCREMENT});
	rank_await(r, &w->signal[0], 1, true);
	rank_barrier(r);
	rank_close(r);
}
static void strangers_reach_no_memory(void **unused) { group_bare(2, at_the_door); }

/* ---- a rank that is hostile ---- */

static void beyond(struct rank *r, struct stranger *s)
{
	static const uint64_t off[] = {
		sizeof(struct window) + ROOM - 63, UINT64_MAX, UINT64_MAX - 63, 1ull << 63};
	static char body[64];
	memset(body, 'y', sizeof(body));
	for (size_t i = 0; i < RPWI_ARRAY_LEN(off); i++) {
		struct rma_put_head data = {.to = s->reg.id, .to_off = off[i]};
		struct rma_put_head signal = {
			.signal = s->reg.id, .signal_off = off[i] | 4, .value = 1};
		/* the part that would be good is not done either */
		struct rma_put_head both = {
			.to = s->reg.id, .signal = s->reg.id, .signal_off = off[i], .value = 1};
		words(r, s, RMA_PUT, &data, sizeof(data), body, sizeof(body));
		words(r, s, RMA_PUT, &signal, sizeof(signal), NULL, 0);
		words(r, s, RMA_PUT, &both, sizeof(both), body, sizeof(body));
	}
}

static void flood(struct rank *r, struct stranger *s)
{
	struct rma_refused_head refused = {.why = RMA_NO_MEMORY};
	struct rma_put_head put = {.to = s->reg.id + 1, .value = 1};
	static char header[7] = "nothing";
	for (int i = 0; i < FLOOD; i++) {
		words(r, s, RMA_PUT, &put, sizeof(put), header, sizeof(header));
		words(r, s, RMA_REFUSED, &refused, sizeof(refused), NULL, 0);
		words(r, s, RMA_REG, header, sizeof(header), NULL, 0);
		refused.why++;
		refused.why %= RMA_REFUSALS;
	}
}

/* As rank 1, with a handle of its own; it says hello twice. */
static void hostile_join(struct rank *r, struct stranger *s)
{
	struct plugin_handle theirs, own;
	struct plugin_hello h = {
		.magic = 0x31776e72, .abi = PLUGIN_API_RMA + 16, .version = ROPEWAY_VERSION};
	static struct rma_join join = {.rank = 1, .ranks = 2};
	memcpy(&theirs, rank_handle(r, 0), sizeof(theirs));
	memcpy(&own, rank_handle(r, 1), sizeof(own));
	memcpy(h.nonce, theirs.nonce, sizeof(h.nonce));
	memcpy(join.from, own.nonce, sizeof(join.from));
	stranger_dial(r, s);
	words(r, s, PLUGIN_HELLO, &h, sizeof(h), &join, sizeof(join));
	for (int i = 0; i < 20000 && !s->joined; i++, usleep(500))
		rpw_context_progress(s->c);
	RANK_TRUE(r, s->joined);
	words(r, s, PLUGIN_HELLO, &h, sizeof(h), &join, sizeof(join));
	words(r, s, RMA_REG, &(struct rma_reg_head){.type = NCCL_PTR_HOST},
		sizeof(struct rma_reg_head), NULL, 0);
	for (int i = 0; i < 20000 && !s->told; i++, usleep(500))
		rpw_context_progress(s->c);
	RANK_TRUE(r, s->told);
}

static void hostile(struct rank *r)
{
	enum { CLOSE_MS = 4000 };
	struct stranger s;
	bool failed = false;
	rank_open(r, group_main.plugin, "RMA v16");
	rank_listen(r);
	if (r->rank) {
		stranger_open(r, &s);
		hostile_join(r, &s);
		beyond(r, &s);
		flood(r, &s);
		stranger_rest(r, &s);
		atomic_store(rank_shared(r, DONE), 1);
		rank_barrier(r);
		rank_close(r);
		return;
	}
	struct window *w = window_marked();
	RANK_OK(r, rank_connect(r, 1));
	rank_reg(r, w, sizeof(*w) + ROOM);
	until_done(r);
	assert_untouched(r, w);
	RANK_OK(r, r->n.calls->query(r->n.table, r->coll, r->ctx, &failed));
	RANK_TRUE(r, failed);
	/* 16 lines for its puts, 16 for what it says that it refused, one for its registrations,
	 * one for its end */
	if (rank_warnings() > 2 * RMA_REFUSALS_SAID + 2)
		rank_fail(r, "%u lines were logged", rank_warnings());
	rank_barrier(r);
	uint64_t began_ns = rpwi_now_ns();
	rank_close(r);
	RANK_TRUE(r, rpwi_now_ns() - began_ns < CLOSE_MS * RPWI_NS_PER_MS);
}
static void a_hostile_rank_writes_nothing_beyond_and_floods_no_log(void **unused)
{
	group_bare(2, hostile);
}

/* ---- keys ---- */

enum { KEY_WAIT_MS = 2000, KEY_SLACK_MS = 10000 };
static char key_files[2][32];
static int odd_rank;
static const char *odd_key; /* NULL: none */

/* All ranks but one have a key. That one has every handle, and still joins nothing; the others hear
 * of keys within their deadline, or that a rank which has heard of them has left: that one's log is
 * to be read first. */
static void keys(struct rank *r)
{
	char ms[16];
	snprintf(ms, sizeof(ms), "%d", KEY_WAIT_MS);
	setenv("ROPEWAY_NCCL_TIMEOUT_MS", ms, 1);
	const char *key = r->rank == odd_rank ? odd_key : key_files[0];
	if (key)
		setenv("ROPEWAY_KEY_FILE", key, 1);
	rank_open(r, group_main.plugin, "RMA v16");
	rank_listen(r);
	uint64_t began_ns = rpwi_now_ns();
	RANK_TRUE(r, rank_connect(r, 1) == NCCL_REMOTE_ERROR);
	bool of_keys = strstr(rank_warned(), "ROPEWAY_KEY_FILE") != NULL;
	RANK_TRUE(r, of_keys || (r->rank != odd_rank && strstr(rank_warned(), "log of that rank")));
	atomic_fetch_add(rank_shared(r, DONE), of_keys);
	RANK_TRUE(r, rpwi_now_ns() - began_ns < (KEY_WAIT_MS + KEY_SLACK_MS) * RPWI_NS_PER_MS);
	RANK_TRUE(r, !r->coll && !r->ctx);
	rank_barrier(r);
	RANK_TRUE(r, atomic_load(rank_shared(r, DONE)) >= 2);
	rank_close(r);
}

static void key_make(char path[32], char c)
{
	strcpy(path, "/tmp/rma-key-XXXXXX");
	int fd = mkstemp(path);
	for (int i = 0; i < 64; i++)
		assert_int_equal(write(fd, &c, 1), 1);
	close(fd);
}

static void a_rank_without_the_key_joins_nothing(void **unused)
{
	key_make(key_files[0], 'a');
	key_make(key_files[1], 'b');
	for (odd_rank = 0; odd_rank < 3; odd_rank++) {
		IN_CASE("rank without the key", odd_rank);
		odd_key = odd_rank == 1 ? key_files[1] : NULL;
		group_bare(3, keys);
	}
	unlink(key_files[0]);
	unlink(key_files[1]);
}

/* ---- what a listener on the wire would look for ---- */

/* Puts of both kinds and a get, of bytes that tests/hostile/users_test.py looks for. */
static void marked(struct rank *r)
{
	static const char mark[] = "only for the other rank of this communicator. ";
	enum { SHORT = 1000, LONG = 300000 };
	struct window *w = window_new(LONG);
	char *from = room_new(LONG);
	void *wh = rank_reg(r, w, sizeof(*w) + LONG), *fh = rank_reg(r, from, LONG);
	size_t wrong = 0;
	for (size_t i = 0; i < LONG; i++)
		from[i] = mark[i % (sizeof(mark) - 1)];
	rank_barrier(r);
	for (unsigned k = 0; k < 2; k++)
		rank_do(r, 0,
			&(struct ncclnet_rma_op){.from = fh,
				.size = k ? LONG : SHORT,
				.to = wh,
				.to_off = at(0),
				.rank = (uint32_t)(r->rank ^ 1),
				.signals = true,
				.signal = wh,
				.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
	rank_await(r, &w->signal[0], 2, true);
	for (size_t i = 0; i < LONG; i++)
		wrong += w->at[i] != (uint8_t)from[i];
	RANK_TRUE(r, !wrong);
	memset(from, 0, LONG);
	rank_get(r, 0,
		&(struct ncclnet_rma_op){.from = wh,
			.from_off = at(0),
			.size = LONG,
			.to = fh,
			.rank = (uint32_t)(r->rank ^ 1)});
	RANK_TRUE(r, !memcmp(from, w->at, LONG));
	rank_barrier(r);
}
static void marked_bytes_arrive(void **unused) { group_newest(2, 1, 0, marked); }

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(strangers_reach_no_memory),
		cmocka_unit_test(a_hostile_rank_writes_nothing_beyond_and_floods_no_log),
		cmocka_unit_test(a_rank_without_the_key_joins_nothing),
		cmocka_unit_test(marked_bytes_arrive),
	};
	return group_tests(argc, argv, all, RPWI_ARRAY_LEN(all));
}
