/* SPDX-License-Identifier: BSD-3-Clause */
/* library.c - a random model of the library: two processes put, get, add, swap and send to each
 * other at once, over one transport, and know each byte that follows.
 *
 *     model_library --seeds N [--from N] [--ops N] [--transport W] [--seconds S]
 *
 * A seed says what each side does in each round. What may take effect in any order touches bytes of
 * its own; behind a fence the same bytes may be written again. After a round both compare their
 * whole memory. */
#include "model.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ropeway.h"

enum {
	TARGET = 1 << 20,
	BYTES = 4 << 20, /* of all steps of a round */
	STEPS = 96,
	PIECES = 5,
	WINDOW = 24,
	GAP = 64, /* behind a receive, which nobody may touch */
	TAGS = 3,
	AM_ID = 7,
	WAIT_MS = 20000
};
enum what { PUT, NOTIFY, GET, ADD, SWAP, BATCH, FENCE, SEND, OBJECT, ACTIVE, BEYOND };
static const char *const transports[] = {"shm", "tcp", "verbs"};

struct step {
	enum what what;
	unsigned pieces, receive; /* of a batch; which receive gets it, and */
	uint32_t at, len, from;   /* target; src or sink */
	uint32_t room, to;        /* the receive's */
	bool get[PIECES];
	uint64_t tag, operand, compare;
};
struct plan {
	struct step step[STEPS];
	unsigned n, sends, objects, actives, notifies;
	uint32_t from, to; /* where the steps' bytes and the receives end */
	bool beyond, fenced;
};

struct shared {
	_Atomic unsigned meetings[2], port;
	uint8_t key[2][RPW_RKEY_BYTES_MAX];
	int key_len[2];
	uint64_t ops[2], bytes[2], completions[2];
	char why[400];
};

struct side {
	struct shared *sh;
	unsigned me, meetings, round;
	uint64_t seed;
	struct rng rng;
	rpw_context *c;
	rpw_endpoint *ep;
	rpw_memory *target, *src_mr;
	rpw_rkey *key;
	uint8_t *mem, *src, *sink, *rx;
	uint8_t *image, *their_src, *remote; /* what mem must be; the peer's src and mem */
	uint8_t *sink_image, *rx_image;
	struct plan mine, theirs;
	unsigned actives, notifies;
	bool notified[STEPS], refused; /* the step beyond the peer's memory */
};
static struct side self;

_Noreturn static void fail(const char *form, ...) __attribute__((format(printf, 1, 2)));
_Noreturn static void fail(const char *form, ...)
{
	va_list va;
	int n = snprintf(
		self.sh->why, sizeof(self.sh->why), "side %u, round %u: ", self.me, self.round);
	va_start(va, form);
	vsnprintf(self.sh->why + n, sizeof(self.sh->why) - (size_t)n, form, va);
	va_end(va);
	_exit(1);
}

static void need(int status, const char *what)
{
	if (status < 0)
		fail("%s: %s: %s", what, rpw_status_name(status), rpw_last_error());
}

static void same(const char *what, const uint8_t *is, const uint8_t *should, size_t n)
{
	self.sh->bytes[self.me] += n;
	if (!memcmp(is, should, n))
		return;
	size_t first = 0, last = n - 1, differ = 0;
	while (is[first] == should[first])
		first++;
	while (is[last] == should[last])
		last--;
	for (size_t i = first; i <= last; i++)
		differ += is[i] != should[i];
	fail("%s: %zu of %zu bytes are wrong, from %zu to %zu: %02x where %02x must be", what,
		differ, n, first, last, is[first], should[first]);
}

/* ---- the plan ---- */

static uint32_t length(struct rng *r)
{
	static const uint32_t most[] = {9, 64, 300, 1100, 5000, 20000, 70000, 130000};
	return rng_below(
		r, rng_one_in(r, 200) ? 900000 : most[rng_below(r, sizeof(most) / sizeof(*most))]);
}

static void plan_make(struct plan *p, uint64_t seed, unsigned ops)
{
	static const uint8_t kinds[] = {PUT, PUT, PUT, NOTIFY, GET, GET, ADD, SWAP, BATCH, FENCE,
		SEND, SEND, SEND, OBJECT, ACTIVE};
	struct rng r = {seed};
	uint32_t at = 0;
	memset(p, 0, sizeof(*p));
	while (p->n < ops) {
		struct step *s = &p->step[p->n];
		*s = (struct step){.what = kinds[rng_below(&r, sizeof(kinds))], .len = length(&r)};
		uint32_t skip = rng_one_in(&r, 2) ? rng_below(&r, 200) : 0;
		if (s->what == GET && p->fenced) /* a fence says nothing of gets */
			s->what = PUT;
		if (s->what == ADD || s->what == SWAP) {
			s->len = 8;
			skip += (0u - at - skip) & 7;
		}
		if (s->what <= BATCH && at + skip + s->len > TARGET)
			s->what = FENCE;
		if (p->from + s->len + 8 > BYTES || p->to + s->len + 2 * GAP > BYTES)
			break;
		if (s->what == FENCE) {
			p->fenced = true;
			at = 0;
			p->n++;
			continue;
		}
		if (s->len == 8) /* an atomic wants the value that was there aligned, too */
			p->from = (p->from + 7) & ~7u;
		s->from = p->from;
		p->from += s->len + rng_below(&r, 3);
		s->operand = rng_next(&r);
		s->compare = rng_next(&r);
		if (s->what <= BATCH) {
			s->at = at + skip;
			at = s->at + s->len;
		}
		if (s->what == BATCH) {
			s->pieces = 1 + rng_below(&r, PIECES);
			for (unsigned i = 0; i < s->pieces; i++)
				s->get[i] = !p->fenced && rng_one_in(&r, 3);
		}
		s->tag = rng_below(&r, TAGS) | rng_next(&r) << 8;
		if (s->what == SEND || s->what == OBJECT) {
			s->to = p->to;
			s->room = !rng_one_in(&r, 16) ? s->len + rng_below(&r, 2) * GAP
						      : rng_below(&r, s->len + 1);
			p->to += s->room + GAP;
		}
		p->sends += s->what == SEND;
		p->objects += s->what == OBJECT;
		p->actives += s->what == ACTIVE;
		p->notifies += s->what == NOTIFY;
		p->n++;
	}
	if (p->n < STEPS && rng_one_in(&r, 12)) {
		uint32_t len = 1 + rng_below(&r, 3000);
		p->step[p->n++] = (struct step){.what = BEYOND,
			.at = TARGET - len + 1,
			.len = len,
			.pieces = rng_below(&r, 2)};
		p->beyond = true;
	}
}

/* Piece i of a batch: [*at, *at + the result) of its bytes. */
static uint32_t piece(const struct step *s, unsigned i, uint32_t *at)
{
	*at = s->len / s->pieces * i;
	return i + 1 < s->pieces ? s->len / s->pieces : s->len - *at;
}

/* What the step does to the memory of its target, in the order of the plan; `sink` gets what is
 * read (NULL: nobody asks). */
static void apply(const struct step *s, uint8_t *target, const uint8_t *src, uint8_t *sink)
{
	uint64_t v;
	switch (s->what) {
	case PUT:
	case NOTIFY:
		memcpy(target + s->at, src + s->from, s->len);
		break;
	case GET:
		if (sink)
			memcpy(sink + s->from, target + s->at, s->len);
		break;
	case ADD:
	case SWAP:
		memcpy(&v, target + s->at, 8);
		if (sink)
			memcpy(sink + s->from, &v, 8);
		if (s->what == ADD)
			v += s->operand;
		else if (s->compare % 2) /* else it is another value that is expected */
			v = s->operand;
		memcpy(target + s->at, &v, 8);
		break;
	case BATCH:
		for (unsigned i = 0; i < s->pieces; i++) {
			uint32_t at, n = piece(s, i, &at);
			if (!s->get[i])
				memcpy(target + s->at + at, src + s->from + at, n);
			else if (sink)
				memcpy(sink + s->from + at, target + s->at + at, n);
		}
		break;
	default:
		break;
	}
}

/* ---- the round ---- */

struct under_way {
	rpw_request *r;
	const struct step *s;
	bool receives;
};

static void on_active(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	unsigned k = 0;
	(void)ep, (void)arg;
	for (unsigned i = 0; i < self.theirs.n; i++) {
		const struct step *s = &self.theirs.step[i];
		if (s->what != ACTIVE || k++ != self.actives)
			continue;
		self.actives++;
		if (header_len != 8 || memcmp(header, &s->tag, 8) || len != s->len)
			fail("active message %u: %zu and %zu bytes, not 8 and %u, or another one",
				k - 1, header_len, len, s->len);
		same("an active message", data, self.their_src + s->from, len);
		return;
	}
	fail("an active message too many: %zu bytes after %u", len, self.actives);
}

static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	(void)ep, (void)arg;
	const struct step *s = &self.theirs.step[data % STEPS];
	if (data >= self.theirs.n || s->what != NOTIFY || s->len != len || self.notified[data])
		fail("a notification %llu of %zu bytes that nobody sent", (unsigned long long)data,
			len);
	self.notified[data] = true;
	self.notifies++;
	if (!self.theirs.fenced)
		same("bytes that a notification announced", self.mem + s->at,
			self.their_src + s->from, len);
}

static int post(struct step *s, rpw_request **r)
{
	rpw_transfer t[PIECES];
	uint64_t was, idx = (uint64_t)(s - self.mine.step);
	uint8_t *src = self.src + s->from, *sink = self.sink + s->from;
	switch (s->what) {
	case PUT:
		return rpw_put(self.ep, src, s->len, self.key, s->at, r);
	case NOTIFY:
		return rpw_put_notify(self.ep, src, s->len, self.key, s->at, idx, r);
	case GET:
		return rpw_get(self.ep, sink, s->len, self.key, s->at, r);
	case ADD:
		return rpw_fetch_add(self.ep, s->operand, self.key, s->at, (void *)sink, r);
	case SWAP: /* self.remote is as after all steps before it */
		memcpy(&was, self.remote + s->at, 8);
		return rpw_compare_swap(self.ep, s->compare % 2 ? was : ~was, s->operand, self.key,
			s->at, (void *)sink, r);
	case BATCH:
		for (unsigned i = 0; i < s->pieces; i++) {
			uint32_t at, n = piece(s, i, &at);
			t[i] = (rpw_transfer){sizeof(*t), s->get[i], (s->get[i] ? sink : src) + at,
				n, self.key, s->at + at};
		}
		return rpw_transfer_batch(self.ep, t, s->pieces, r);
	case FENCE:
		*r = NULL;
		return rpw_endpoint_fence(self.ep);
	case SEND:
		if (rng_one_in(&self.rng, 4) && s->len > 2) {
			struct iovec v[2] = {
				{src, s->len / 3}, {src + s->len / 3, s->len - s->len / 3}};
			return rpw_send_iov(self.ep, v, 2, s->tag, r);
		}
		return rpw_send(self.ep, src, s->len, s->tag, r);
	case OBJECT:
		return rpw_send_obj(self.ep, src, s->len, r);
	case ACTIVE:
		return rpw_am_send(self.ep, AM_ID, &s->tag, 8, src, s->len, r);
	case BEYOND:
		return s->pieces ? rpw_put(self.ep, self.src, s->len, self.key, s->at, r)
				 : rpw_get(self.ep, self.sink, s->len, self.key, s->at, r);
	}
	return RPW_ERR_INVALID;
}

static void *objects[STEPS];
static size_t object_lens[STEPS];

static int receive(const struct step *s, rpw_request **r)
{
	size_t k = (size_t)(s - self.theirs.step);
	if (s->what == OBJECT)
		return rpw_recv_obj(self.c, self.ep, NULL, NULL, &objects[k], &object_lens[k], r);
	return rpw_recv(self.c, rng_one_in(&self.rng, 2) ? self.ep : NULL, self.rx + s->to, s->room,
		s->tag & 0xff, 0xff, r);
}

static void has_come(const struct under_way *u, int status, const rpw_completion *done)
{
	const struct step *s = u->s;
	size_t k = (size_t)(s - self.theirs.step);
	if (s->what == OBJECT) {
		if (status || object_lens[k] != s->len)
			fail("object %zu: %s, %zu bytes, not %u", k, rpw_status_name(status),
				object_lens[k], s->len);
		same("an object", objects[k], self.their_src + s->from, s->len);
		free(objects[k]);
		return;
	}
	int should = s->room < s->len ? RPW_ERR_TRUNCATED : RPW_OK;
	if (status != should || done->length != s->len || done->tag != s->tag)
		fail("a message of %u bytes into %u: %s (%s), %zu bytes, tag %llx, not %llx",
			s->len, s->room, rpw_status_name(status), rpw_last_error(), done->length,
			(unsigned long long)done->tag, (unsigned long long)s->tag);
	uint32_t n = s->room < s->len ? s->room : s->len;
	memcpy(self.rx_image + s->to, self.their_src + s->from, n);
}

static bool reap(struct under_way *u, int wait_ms)
{
	rpw_completion done = RPW_COMPLETION_INIT;
	int status = wait_ms >= 0 ? rpw_request_wait(u->r, wait_ms, &done)
				  : rpw_request_test(u->r, &done);
	if (status == RPW_IN_PROGRESS || status == RPW_ERR_EXPIRED)
		return false;
	self.sh->completions[self.me]++;
	if (u->receives)
		has_come(u, status, &done);
	else if (u->s->what == BEYOND ? status != RPW_ERR_ACCESS && (!u->s->pieces || status)
				      : status != RPW_OK)
		fail("step %u of %u bytes: %s: %s", u->s->what, u->s->len, rpw_status_name(status),
			rpw_last_error());
	self.refused |= !u->receives && status == RPW_ERR_ACCESS;
	rpw_request_destroy(u->r);
	return true;
}

static bool is_received(const struct step *s) { return s->what == SEND || s->what == OBJECT; }

static void steps_and_receives(void)
{
	struct under_way w[WINDOW + 2 * STEPS];
	unsigned n = 0, next = 0, receives = 0;
	bool early = rng_one_in(&self.rng, 2);
	time_t until = time(NULL) + WAIT_MS / 1000;
	while (next < self.mine.n || receives < self.theirs.n || n) {
		bool post_it = next < self.mine.n && n < WINDOW + self.theirs.sends &&
			       rng_one_in(&self.rng, 2);
		if (receives < self.theirs.n && (early || !post_it) &&
			(early || rng_one_in(&self.rng, 2))) {
			const struct step *s = &self.theirs.step[receives++];
			w[n] = (struct under_way){NULL, s, true};
			if (is_received(s)) {
				need(receive(s, &w[n].r), "a receive");
				n++;
			}
		} else if (post_it) {
			struct step *s = &self.mine.step[next++];
			w[n] = (struct under_way){NULL, s, false};
			int rc = post(s, &w[n].r);
			if (s->what != BEYOND || rc != RPW_ERR_ACCESS)
				need(rc, "a step");
			self.refused |= rc == RPW_ERR_ACCESS;
			if (w[n].r)
				n++;
			apply(s, self.remote, self.src, self.sink_image);
			self.sh->ops[self.me]++;
		} else if (n && rng_one_in(&self.rng, 3)) {
			unsigned k = rng_below(&self.rng, n);
			if (reap(&w[k], (int)rng_below(&self.rng, 2)))
				w[k] = w[--n];
		} else {
			need(rpw_context_progress(self.c), "progress");
		}
		for (unsigned k = 0; k < n;)
			if (reap(&w[k], -1))
				w[k] = w[--n];
			else
				k++;
		if (time(NULL) > until)
			fail("after %d s: %u under way, first of kind %u%s, %u bytes",
				WAIT_MS / 1000, n, n ? w[0].s->what : 0,
				n && w[0].receives ? " (received)" : "", n ? w[0].s->len : 0);
	}
}

static void meet(void)
{
	unsigned all = ++self.meetings;
	time_t until = time(NULL) + WAIT_MS / 1000;
	atomic_store(&self.sh->meetings[self.me], all);
	while (atomic_load(&self.sh->meetings[!self.me]) < all) {
		need(rpw_context_progress(self.c), "progress");
		if (time(NULL) > until)
			fail("the peer does not come");
	}
}

static void one_round(unsigned ops)
{
	uint64_t seed = rng_mix(self.seed * 1000 + self.round);
	rpw_request *r = NULL;
	plan_make(&self.mine, seed + self.me, ops);
	plan_make(&self.theirs, seed + !self.me, ops);
	pattern_fill(self.src, self.mine.from, seed + 17 + self.me);
	pattern_fill(self.their_src, self.theirs.from, seed + 17 + !self.me);
	memset(self.rx, BLANK, self.theirs.to);
	memset(self.rx_image, BLANK, self.theirs.to);
	memset(self.sink, BLANK, self.mine.from);
	memset(self.sink_image, BLANK, self.mine.from);
	memset(self.notified, 0, sizeof(self.notified));
	self.actives = self.notifies = 0;
	self.refused = false;
	for (unsigned i = 0; i < self.theirs.n; i++)
		apply(&self.theirs.step[i], self.image, self.their_src, NULL);
	meet();
	steps_and_receives();
	int rc = rpw_finish(rpw_endpoint_flush(self.ep, &r), &r, WAIT_MS, NULL);
	if (rc != RPW_OK && !(self.mine.beyond && rc == RPW_ERR_ACCESS))
		fail("flush: %s: %s", rpw_status_name(rc), rpw_last_error());
	if (self.mine.beyond && !self.refused && rc == RPW_OK)
		fail("bytes beyond the end of the peer's memory were taken");
	meet();
	if (self.actives != self.theirs.actives || self.notifies != self.theirs.notifies)
		fail("%u of %u active messages, %u of %u notifications", self.actives,
			self.theirs.actives, self.notifies, self.theirs.notifies);
	same("memory that the peer writes to", self.mem, self.image, TARGET);
	same("what was got from the peer", self.sink, self.sink_image, self.mine.from);
	same("receives", self.rx, self.rx_image, self.theirs.to);
	meet();
}

/* ---- two processes ---- */

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	(void)l, (void)arg;
	self.ep = ep;
}

static void connects(const char *transport)
{
	rpw_listener *l = NULL;
	rpw_request *r = NULL;
	rpw_endpoint_information info = RPW_ENDPOINT_INFORMATION_INIT;
	char address[64];
	if (!self.me) {
		need(rpw_listener_create(self.c, "127.0.0.1:0", accepted, NULL, &l), "listen");
		atomic_store(&self.sh->port, (unsigned)rpw_listener_port(l));
		while (!self.ep)
			need(rpw_context_progress(self.c), "progress");
		rpw_listener_destroy(l);
	} else {
		while (!atomic_load(&self.sh->port))
			usleep(100);
		snprintf(address, sizeof(address), "127.0.0.1:%u", atomic_load(&self.sh->port));
		int rc = rpw_endpoint_create(self.c, address, NULL, &self.ep, &r);
		need(rpw_finish(rc, &r, WAIT_MS, NULL), "connect");
	}
	need(rpw_endpoint_info(self.ep, &info), "info");
	if (strcmp(info.transport, transport) != 0)
		fail("the path is %s, not %s: %s", info.transport, transport, info.why);
}

/* Memory that peers reach: the program's own, or the library's. */
static uint8_t *memory(size_t len, unsigned how, rpw_memory **m)
{
	unsigned all = RPW_REMOTE_WRITE | RPW_REMOTE_READ | RPW_REMOTE_ATOMIC;
	if (how == 1) {
		need(rpw_memory_allocate(self.c, len, all, m), "memory");
		return rpw_memory_address(*m);
	}
	uint8_t *at = aligned_alloc(4096, len);
	if (how == 2)
		need(rpw_memory_register(self.c, at, len, RPW_MEMORY_HOST, all, m), "memory");
	return at;
}

_Noreturn static void side_main(
	struct shared *sh, unsigned me, uint64_t seed, unsigned ops, const char *transport)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	self = (struct side){.sh = sh, .me = me, .seed = seed, .rng = {rng_mix(seed * 2 + me)}};
	static const size_t eager[] = {0, 256, 4096};
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	struct rng both = {rng_mix(seed)};
	o.transports = transport;
	o.eager_bytes_max = eager[rng_below(&both, 3)];
	o.polled = rng_one_in(&both, 4);
	need(rpw_context_create(&o, &self.c), "context");
	rpw_context_on_notify(self.c, on_notify, NULL);
	need(rpw_context_on_am(self.c, AM_ID, on_active, NULL), "active messages");
	connects(transport);
	self.mem = memory(TARGET, 1 + rng_below(&self.rng, 2), &self.target);
	self.src = memory(BYTES, rng_below(&self.rng, 3), &self.src_mr);
	uint8_t **own[] = {&self.sink, &self.rx, &self.their_src, &self.sink_image, &self.rx_image,
		&self.image, &self.remote};
	for (unsigned i = 0; i < sizeof(own) / sizeof(*own); i++)
		*own[i] = malloc(BYTES);
	pattern_fill(self.mem, TARGET, seed + 3 + self.me);
	pattern_fill(self.image, TARGET, seed + 3 + self.me);
	pattern_fill(self.remote, TARGET, seed + 3 + !self.me);
	sh->key_len[me] = rpw_rkey_pack(self.target, sh->key[me], RPW_RKEY_BYTES_MAX);
	need(sh->key_len[me], "a key");
	meet();
	need(rpw_rkey_unpack(self.ep, sh->key[!me], (size_t)sh->key_len[!me], &self.key), "a key");
	for (unsigned done = 0; done < ops; done += self.mine.n + self.theirs.n, self.round++)
		one_round(self.round % 2 ? STEPS - 1 : 1 + rng_below(&both, STEPS - 1));
	_exit(0);
}

/* True: as it should be. */
static bool drive(struct shared *sh, uint64_t seed, unsigned ops, const char *transport, char *why,
	size_t room)
{
	pid_t pid[2];
	bool ok = true;
	memset(sh, 0, sizeof(*sh));
	for (unsigned i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i])
			side_main(sh, i, seed, ops, transport);
	}
	for (unsigned i = 0; i < 2; i++) {
		int st = 0;
		pid_t first = waitpid(-1, &st, 0);
		if (!st || !ok)
			continue;
		ok = false;
		snprintf(why, room, "%s (status %x)", *sh->why ? sh->why : "a process ended", st);
		kill(first == pid[0] ? pid[1] : pid[0], SIGKILL);
	}
	return ok;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	unsigned long long seeds = 0, from = 1, ran[3] = {0}, ops = 0, bytes = 0, completions = 0;
	unsigned each = 3000, only = 3;
	double seconds = 1e9, began = now();
	bool ok = true;
	for (int i = 1; i + 1 < argc; i += 2) {
		const char *a = argv[i], *v = argv[i + 1];
		if (!strcmp(a, "--seeds"))
			seeds = strtoull(v, NULL, 10);
		else if (!strcmp(a, "--from"))
			from = strtoull(v, NULL, 10);
		else if (!strcmp(a, "--ops"))
			each = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(a, "--seconds"))
			seconds = strtod(v, NULL);
		else if (!strcmp(a, "--transport"))
			for (only = 0; only < 3 && strcmp(transports[only], v) != 0;)
				only++;
	}
	if (!seeds) {
		fprintf(stderr, "usage: model_library --seeds N [--from N] [--ops N] "
				"[--transport shm|tcp|verbs] [--seconds S]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	unsetenv("ROPEWAY_TRANSPORT");
	unsetenv("ROPEWAY_KEY_FILE");
	struct shared *sh =
		mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (unsigned long long s = from; s < from + seeds && ok && now() - began < seconds; s++) {
		unsigned w = only < 3 ? only : (unsigned)(s % 3);
		char why[500];
		ok = drive(sh, s, each, transports[w], why, sizeof(why));
		if (!ok)
			printf("FAILED: script seed %llu wire %s after %.1f s: %s\n", s,
				transports[w], now() - began, why);
		ran[w]++;
		for (unsigned k = 0; k < 2; k++) {
			ops += sh->ops[k];
			bytes += sh->bytes[k];
			completions += sh->completions[k];
		}
	}
	double took = now() - began;
	printf("%llu runs of the library (shm %llu, tcp %llu, verbs %llu) in %.1f s: %llu "
	       "operations, "
	       "%llu completions and %llu bytes compared, %.0f operations/s\n",
		ran[0] + ran[1] + ran[2], ran[0], ran[1], ran[2], took, ops, completions, bytes,
		(double)ops / took);
	return ok ? 0 : 1;
}
