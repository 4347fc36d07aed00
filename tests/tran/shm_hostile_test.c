/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_hostile_test.c - a peer that is up to no good.
 *
 * It has a link like any other peer, and then writes what it likes into the shared memory, or sends
 * what it likes to the door. The victim may lose that link, and nothing else: it does not crash,
 * waits for nobody, writes no byte outside of what it registered for writing, leaks no descriptor,
 * and its link to a well-behaved context goes on.
 */
#include "emulated_frames.h"
#include "lib/say.h"
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tran/shm/shm.h"
#include "lib/descriptors.h"

#define REQUIRE(x, ...) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "# %s:%d: %s.", __FILE__, __LINE__, #x); \
			fprintf(stderr, " " __VA_ARGS__); \
			fprintf(stderr, "\n"); \
			say_cases(); \
			_exit(1); \
		} \
	} while (0)

static uint64_t the_seed;
static struct rng rng;

static uint64_t roll(void) { return rng_next(&rng); }

/* Numbers that programs trip over. */
static uint64_t odd_number(void)
{
	static const uint64_t odd[] = {0, 1, 2, 7, 8, 63, 64, 255, 4095, 4096, 8192, 65535, 65536,
		1 << 20, INT32_MAX, UINT32_MAX, 1ull << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
	return roll() % 4 ? odd[roll() % RPWI_ARRAY_LEN(odd)] : roll();
}

/* ---- the victim ---- */

enum { REGION = 64 * 1024 };
struct victim {
	struct side *s, good_side;
	struct end bad[3], here, there;
	uint8_t *memory; /* REGION bytes to write, between as many that are not */
	struct tran_mem *writable, *readable;
};

static void good_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	REQUIRE(head_len == 8 && body_len == 500 && pattern_holds(body, 500, e->frames),
		"a frame of the good link is not what was sent");
}

/* What a peer writes is read to its last byte, as a program would. */
static void any_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	volatile uint8_t sum = 0;
	REQUIRE(head_len <= TRAN_HEAD_MAX && body_len <= RING_BODY_MAX);
	for (size_t i = 0; i < head_len; i++)
		sum = (uint8_t)(sum + head[i]);
	for (size_t i = 0; i < body_len; i++)
		sum = (uint8_t)(sum + body[i]);
}

static void any_done(struct end *e, void *cookie, int status) {}

/* A second context in this process, with an endpoint to the first. */
static void good_link(struct victim *v)
{
	struct tran_ops const *ops = v->s->ops;
	uint8_t a[TRAN_HANDLE_MAX], b[TRAN_HANDLE_MAX];
	size_t a_len, b_len;
	v->good_side = *v->s;
	REQUIRE(!ops->open(v->s->t->up, &v->s->facts, &v->good_side.t));
	v->here = (struct end){.side = v->s, .frame = good_frame};
	v->there = (struct end){.side = &v->good_side, .frame = good_frame};
	REQUIRE(!ops->ep_make(v->s->t, &(struct tran_control){.peer = &v->s->facts, .active = true},
		&v->here, &v->here.ep, a, &a_len));
	REQUIRE(!ops->ep_make(v->good_side.t,
		&(struct tran_control){.peer = &v->s->facts, .active = false}, &v->there,
		&v->there.ep, b, &b_len));
	REQUIRE(!ops->ep_start(v->here.ep, b, b_len, 5000) &&
		!ops->ep_start(v->there.ep, a, a_len, 5000));
	for (int i = 0; i < 1000000 && !(v->here.is_ready && v->there.is_ready); i++) {
		ops->progress(v->s->t);
		ops->progress(v->good_side.t);
	}
	REQUIRE(v->here.is_ready && v->there.is_ready && !v->here.status && !v->there.status, "%s",
		v->here.why);
}

static void good_round(struct victim *v)
{
	uint8_t body[500];
	uint64_t n = v->there.frames;
	pattern_fill(body, sizeof body, n + 1);
	REQUIRE(pair_send(&v->here, "goodgood", 8, body, sizeof body));
	for (int i = 0; i < 100000 && v->there.frames == n; i++) {
		v->s->ops->progress(v->s->t);
		v->s->ops->progress(v->good_side.t);
	}
	REQUIRE(v->there.frames == n + 1 && !v->there.is_failed && !v->here.is_failed,
		"the good link suffers: %s", v->here.why);
}

static void victim_setup(struct victim *v, struct side *s)
{
	memset(v, 0, sizeof *v);
	v->s = s;
	v->memory =
		mmap(NULL, 3 * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pattern_fill(v->memory, 3 * REGION, 8);
	REQUIRE(!s->ops->mem->add(s->t, v->memory + REGION, REGION,
		TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &v->writable));
	REQUIRE(!s->ops->mem->add(s->t, v->memory, 3 * REGION, TRAN_READ, &v->readable));
	good_link(v);
	struct tran_desc d[2] = {v->writable->desc, v->readable->desc};
	REQUIRE(pair_say(s, d, sizeof d));
}

static void victim_end(struct victim *v)
{
	const struct tran_ops *ops = v->s->ops;
	REQUIRE(pattern_holds(v->memory, REGION, 8) &&
			pattern_holds_from(v->memory + 2 * REGION, REGION, 8, 2 * REGION),
		"memory was written that was not registered for writing");
	for (size_t i = 0; i < RPWI_ARRAY_LEN(v->bad); i++)
		if (v->bad[i].ep)
			ops->ep_close(v->bad[i].ep);
	good_round(v);
	ops->ep_close(v->here.ep);
	ops->ep_close(v->there.ep);
	ops->mem->del(v->s->t, v->writable);
	ops->mem->del(v->s->t, v->readable);
	ops->close(v->good_side.t);
	munmap(v->memory, 3 * REGION);
}

/* Its own use of the bad link meanwhile: frames, gets and puts of the peer's memory. */
static void victim_uses(struct victim *v, const struct tran_desc *theirs, uint8_t *local)
{
	struct end *e = &v->bad[roll() % RPWI_ARRAY_LEN(v->bad)];
	struct iovec iov = {local, roll() % 2000};
	if (e->is_failed)
		return;
	v->s->ops->send(e->ep, "head", 4, &iov, 1, iov.iov_len);
	v->s->ops->rma->transfer(
		e->ep, roll() % 2, theirs, roll() % 1000, local, 1 + roll() % 40000, NULL, NULL);
	v->s->ops->rma->atomic(e->ep, TRAN_FETCH_ADD, theirs, 8 * (roll() % 100), 1, 0, NULL, NULL);
}

static void victim_main(struct side *s)
{
	struct victim v;
	struct tran_desc theirs;
	size_t len;
	static uint8_t local[65536];
	victim_setup(&v, s);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(v.bad); i++) {
		v.bad[i] = (struct end){.frame = any_frame, .done = any_done};
		REQUIRE(pair_connect(s, &v.bad[i]), "%s", v.bad[i].why);
	}
	REQUIRE(pair_hear(s, &theirs, sizeof theirs, &len) && pair_sync(s));
	char c;
	uint64_t end = rpwi_now_ns() + 20 * RPWI_NS_PER_S;
	while (recv(s->talk, &c, 1, MSG_DONTWAIT) < 0) {
		REQUIRE(rpwi_now_ns() < end);
		good_round(&v);
		if (roll() % 4 == 0)
			victim_uses(&v, &theirs, local);
		if (roll() % 32 == 0)
			pair_sleep(s, 1);
	}
	for (int i = 0; i < 100; i++)
		good_round(&v);
	if (getenv("HOSTILE_TELL"))
		printf("# seed %llu, style %llu: %llu good rounds, %llu bad frames, then %s\n",
			(unsigned long long)the_seed, (unsigned long long)the_seed % 5,
			(unsigned long long)v.there.frames,
			(unsigned long long)(v.bad[0].frames + v.bad[1].frames + v.bad[2].frames),
			v.bad[0].is_failed ? v.bad[0].why : "no end");
	victim_end(&v);
}

/* ---- the other ---- */

static struct shm_link *bad_link(struct side *s) { return shm_of(s->t)->links[0]; }

/* Anything anywhere, as bytes. */
static void scribble(struct shm_link *l)
{
	uint8_t *at = (uint8_t *)l->segment;
	for (uint64_t n = roll() % 64; n; n--) {
		size_t where =
			roll() % (roll() % 2 ? sizeof(struct ring_shared) * 2 : sizeof *l->segment);
		at[where] = (uint8_t)roll();
	}
}

/* A cell whose lap is right, and nothing else. */
static void forge_cell(struct shm_link *l)
{
	struct ring_tx *tx = &l->tx;
	struct ring_cell *cell = &tx->cells[tx->tail % RING_CELLS];
	for (size_t i = 0; i < sizeof cell->bytes; i++)
		cell->bytes[i] = (uint8_t)roll();
	uint64_t word = (roll() & ~(0xffull << 56)) | (uint64_t)(tx->lap + 1) << 56;
	atomic_store_explicit(&cell->word, word, memory_order_release);
	ring_tx_step(tx);
}

/* A frame that is one, with numbers that are not. The descriptions are right often enough to get
 * past the first checks. */
static void forge_frame(struct shm_link *l, const struct tran_desc d[2])
{
	static const uint8_t body[RING_BODY_MAX];
	struct shm_desc desc;
	memcpy(&desc, d[roll() % 2].bytes, sizeof desc);
	struct shm_ctl ctl = {.index = roll() % 4 ? desc.index : (uint32_t)odd_number(),
		.nonce = roll() % 4 ? desc.nonce : odd_number()};
	struct ask ask = {.kind = (uint8_t)(EMULATED_GET + roll() % 4),
		.bulk = roll() % 8 == 0,
		.more = roll() % 4 == 0,
		.id = (uint32_t)(roll() % 4 ? roll() % EMULATED_SMALL : roll() % EMULATED_WINDOW),
		.slot = ctl.index,
		.key = ctl.nonce,
		.offset = odd_number(),
		.len = roll() % 2 ? roll() % REGION : odd_number()};
	struct done done = {.kind = EMULATED_DONE,
		.answer = (uint8_t)(roll() % 4),
		.id = (uint32_t)(roll() % 2 ? 1 << 7 : odd_number()),
		.value = odd_number()};
	const struct {
		const void *head;
		size_t len;
	} heads[] = {{&ctl, sizeof ctl}, {&ask, sizeof ask}, {&done, sizeof done}};
	unsigned which = (unsigned)(roll() % RPWI_ARRAY_LEN(heads));
	enum shm_kind kind = which && roll() % 8 ? SHM_MEMORY : (enum shm_kind)(roll() % 16);
	size_t len = roll() % 2 ? 0 : odd_number() % (RING_BODY_MAX + 1);
	if (which == 1 && roll() % 2)
		len = ask.kind == EMULATED_PUT ? ask.len % (RING_BODY_MAX + 1) : 16;
	ring_tx_refresh(&l->tx);
	rpwi_shm_link_put(l, kind,
		roll() % 2 ? (uint32_t)(roll() % 8) : (uint32_t)(odd_number() & 0xfffff),
		heads[which].head, heads[which].len, body, len, 0);
}

/* Many of one kind, well formed: what has a bound must have it. */
static void flood(struct shm_link *l, const struct tran_desc d[2])
{
	static const uint8_t kinds[] = {SHM_MEMORY, SHM_MEMORY, SHM_MEMORY, SHM_MAP, SHM_OPEN};
	static const uint8_t asks[] = {EMULATED_GET, EMULATED_ADD, EMULATED_PUT};
	static const uint8_t body[16];
	struct shm_desc desc;
	memcpy(&desc, d[0].bytes, sizeof desc);
	unsigned which = (unsigned)(roll() % RPWI_ARRAY_LEN(kinds));
	bool again = roll() % 2;
	for (uint32_t i = 0; i < 900; i++) {
		struct shm_ctl ctl = {.index = desc.index, .nonce = desc.nonce};
		struct ask ask = {.kind = asks[which % RPWI_ARRAY_LEN(asks)],
			.id = again ? 0 : i % EMULATED_SMALL,
			.slot = desc.index,
			.key = desc.nonce,
			.len = 32768};
		size_t len = 0;
		if (ask.kind != EMULATED_GET) {
			ask.len = ask.kind == EMULATED_ADD ? 8 : sizeof body;
			len = sizeof body;
		}
		ring_tx_refresh(&l->tx);
		int rc = kinds[which] == SHM_MEMORY
				 ? rpwi_shm_link_put(
					   l, SHM_MEMORY, i % 8, &ask, sizeof ask, body, len, 0)
				 : rpwi_shm_link_ctl(l, (enum shm_kind)kinds[which], i, &ctl);
		if (rc)
			return;
	}
}

static void hostile_main(struct side *s)
{
	struct end e[3];
	struct tran_desc d[2];
	struct tran_mem *m;
	size_t len;
	REQUIRE(pair_hear(s, d, sizeof d, &len));
	for (size_t i = 0; i < RPWI_ARRAY_LEN(e); i++) {
		e[i] = (struct end){0};
		REQUIRE(pair_connect(s, &e[i]));
	}
	REQUIRE(!s->ops->mem->alloc(s->t, 65536, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m));
	REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_sync(s));
	struct shm_link *l = bad_link(s);
	unsigned style = (unsigned)(the_seed % 5);
	for (int i = 0; i < 400 && !l->dead_soon; i++) {
		if (style == 0 || (style == 4 && roll() % 8 == 0))
			scribble(l);
		if (style == 1 || (style == 4 && roll() % 8 == 0))
			forge_cell(l);
		if (style == 2 || style == 4)
			forge_frame(l, d);
		if (style == 3)
			flood(l, d);
		if (roll() % 8 == 0)
			usleep(roll() % 200);
		char c;
		/* what the victim says is not read by the transport: this side makes no progress */
		while (recv(l->socket.fd, &c, 1, MSG_DONTWAIT) > 0)
			;
		if (roll() % 64 == 0)
			rpwi_shm_link_wake(l);
	}
	REQUIRE(pair_say(s, "x", 1));
	usleep(2000);
}

/* ---- the door ---- */

static int door_connect(const uint8_t context[16])
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int at = snprintf(sa.sun_path + 1, sizeof sa.sun_path - 1, "ropeway/context/");
	for (int i = 0; i < 16; i++)
		at += snprintf(sa.sun_path + 1 + at, sizeof sa.sun_path - 1 - (size_t)at, "%02x",
			context[i]);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 &&
		connect(fd, (struct sockaddr *)&sa,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)at))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A hello as link.c has it, from its bytes: magic, version, type, context, endpoint, flag, nonce,
 * two words. */
static size_t hello_bytes(uint8_t *out, const struct shm_handle *h)
{
	uint32_t magic = 0x4d485352, endpoint = h->endpoint, zero = 0;
	uint16_t version = SHM_VERSION, type = 1;
	uint64_t words[2] = {roll(), roll()}, context[2] = {roll(), roll()};
	size_t at = 0;
	memcpy(out + at, &magic, 4), at += 4;
	memcpy(out + at, &version, 2), at += 2;
	memcpy(out + at, &type, 2), at += 2;
	memcpy(out + at, context, 16), at += 16;
	memcpy(out + at, &endpoint, 4), at += 4;
	memcpy(out + at, &zero, 4), at += 4;
	memcpy(out + at, &h->nonce, 8), at += 8;
	memcpy(out + at, words, 16), at += 16;
	return at;
}

static void door_send(int fd, const uint8_t *bytes, size_t len, const int *fds, unsigned fd_count)
{
	struct iovec iov = {(void *)bytes, len};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	memset(&control, 0, sizeof control);
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fd_count) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* Memory that would make the victim fault, if it mapped it: too short, or free to shrink. */
static int bad_memfd(size_t len, bool sealed)
{
	int fd = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	REQUIRE(fd >= 0 && !ftruncate(fd, (off_t)len));
	if (sealed)
		fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK);
	return fd;
}

static void door_victim(struct side *s)
{
	struct victim v;
	struct end e = {.side = s};
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t len;
	char c;
	victim_setup(&v, s);
	good_round(&v);
	REQUIRE(!s->ops->ep_make(s->t,
			&(struct tran_control){.peer = &s->peer_facts, .active = true}, &e, &e.ep,
			handle, &len) &&
		pair_say(s, handle, len));
	unsigned before = open_descriptors(), most = 0;
	while (recv(s->talk, &c, 1, MSG_DONTWAIT) < 0) {
		good_round(&v);
		most = RPWI_MAX(most, shm_of(s->t)->link_count);
	}
	REQUIRE(most <= 2, "one handle made %u links", most);
	uint64_t end = rpwi_now_ns() + 10 * RPWI_NS_PER_S;
	/* those who said nothing are sent away in time */
	while (open_descriptors() > before && rpwi_now_ns() < end)
		good_round(&v);
	REQUIRE(open_descriptors() == before, "%u descriptors, %u before", open_descriptors(),
		before);
	REQUIRE(shm_of(s->t)->link_count == 1, "a stranger has become a link");
	REQUIRE(shm_of(s->t)->strangers > 0);
	s->ops->ep_close(e.ep);
	victim_end(&v);
}

static void door_hostile(struct side *s)
{
	struct tran_desc d[2];
	struct shm_handle h;
	uint8_t handle[TRAN_HANDLE_MAX], bytes[256];
	size_t len;
	int silent[100], named[50];
	unsigned names = 0;
	REQUIRE(pair_hear(s, d, sizeof d, &len) && pair_hear(s, handle, sizeof handle, &len) &&
		len == sizeof h);
	memcpy(&h, handle, sizeof h);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(silent); i++)
		silent[i] = door_connect(h.context);
	for (int i = 0; i < 300; i++) {
		int fd = door_connect(h.context), fds[8];
		if (fd < 0) {
			usleep(100);
			continue;
		}
		size_t n = hello_bytes(bytes, &h);
		unsigned fd_count = 0;
		switch (i % 8) {
		case 0: /* noise */
			n = roll() % sizeof bytes;
			for (size_t k = 0; k < n; k++)
				bytes[k] = (uint8_t)roll();
			break;
		case 1: /* nothing to map */
			break;
		case 2: /* a wrong nonce */
			bytes[32 + roll() % 8] ^= 1;
			fds[fd_count++] = bad_memfd(sizeof(struct shm_segment), true);
			fds[fd_count++] = bad_memfd(sizeof(struct shm_board), true);
			break;
		case 3: /* memory that can shrink */
			fds[fd_count++] = bad_memfd(sizeof(struct shm_segment), false);
			fds[fd_count++] = bad_memfd(sizeof(struct shm_board), true);
			break;
		case 4: /* too short */
			fds[fd_count++] = bad_memfd(sizeof(struct shm_segment), true);
			fds[fd_count++] = bad_memfd(4096, true);
			break;
		case 5: /* not memory at all, and more of it than is asked for */
			for (; fd_count < 8; fd_count++)
				fds[fd_count] = dup(s->talk);
			break;
		/* any bit turned, but those of the context and of the probe, which may be
		 * anything */
		case 6:
			n = 24 + 1 + roll() % (n - 26);
			break;
		/* a good one: but each has another name, and one handle opens the door once */
		case 7:
			fds[fd_count++] = bad_memfd(sizeof(struct shm_segment), true);
			fds[fd_count++] = bad_memfd(sizeof(struct shm_board), true);
			break;
		}
		door_send(fd, bytes, n, fds, fd_count);
		for (unsigned k = 0; k < fd_count; k++)
			close(fds[k]);
		if (i % 3)
			usleep(50);
		if (i % 8 == 7 && names < RPWI_ARRAY_LEN(named))
			named[names++] = fd;
		else
			close(fd);
	}
	REQUIRE(pair_say(s, "x", 1));
	usleep(2500000); /* the silent ones stay */
	for (size_t i = 0; i < RPWI_ARRAY_LEN(silent); i++)
		if (silent[i] >= 0)
			close(silent[i]);
	for (unsigned i = 0; i < names; i++)
		close(named[i]);
}

static bool run(uint64_t seed, void (*victim)(struct side *), void (*hostile)(struct side *))
{
	fflush(NULL);
	pid_t runner = fork();
	if (!runner) {
		struct side s;
		the_seed = seed;
		if (pair_fork(&s, &tran_shm))
			_exit(1);
		alarm(60);
		if (s.which)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		rng.state = seed * 2 + (uint64_t)s.which;
		if (pair_open(&s))
			_exit(1);
		(s.which ? hostile : victim)(&s);
		if (s.which)
			_exit(0); /* it does not clean up, either */
		pair_close(&s);
		kill(s.child, SIGKILL); /* what became of it does not matter */
		waitpid(s.child, NULL, 0);
		exit(0);
	}
	int status = 1;
	waitpid(runner, &status, 0);
	if (WIFSIGNALED(status))
		fprintf(stderr, "# the victim of seed %llu ended by signal %d\n",
			(unsigned long long)seed, WTERMSIG(status));
	return status == 0;
}

int main(void)
{
	int failed = 0;
	FOR_SEEDS_FROM (s, test_seed_any(), 600)
		failed += !run(s.seed, victim_main, hostile_main);
	printf("%sok 1 - a peer that writes nonsense loses its own link and nothing else\n",
		failed ? "not " : "");
	bool door = run(test_seed_any(), door_victim, door_hostile);
	printf("%sok 2 - strangers at the door\n1..2\n", door ? "" : "not ");
	return failed || !door;
}
