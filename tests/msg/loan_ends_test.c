/* SPDX-License-Identifier: BSD-3-Clause */
/* loan_ends_test.c - ends of a process that loans, receives and keeps views, again and again, at a
 * random moment; ordinary messages, too, are received as views. loan_ends_test [TRANSPORT].
 *
 * The peer is killed, executes another program, forks a child that outlives it, or exits with all
 * that it has. This side forks in between, and its children give back their copies. Each side reads
 * every view from end to end before it releases it, some of them many ends later. Afterwards
 * nothing is left, in memory or descriptors. TEST_ROUNDS: how many ends. */
#include "lib/test.h"
#define PAIR_MUST(condition) assert_true(condition)
#include "base/base.h"
#include "lib/pair.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL UINT64_MAX
enum {
	VIEWS = 8,
	KEPT = 16, /* views that outlive their endpoints */
	LEN = 70000,
	LEFT_IN_ALL = 1 << 20,
	TURNS = 300,
	READS_WRONG = 9, /* the status of a process whose view changed under it */
};

static const char *transport = "shm";

static rpw_context *context_open(void)
{
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	rpw_context *c = NULL;
	o.transports = transport;
	o.loan_bytes_max = LEFT_IN_ALL;
	return rpw_context_create(&o, &c) ? NULL : c;
}

/* ---- what a side holds ---- */

struct slot {
	enum { EMPTY, POSTED, HELD } is;
	rpw_view view;
	rpw_request *r;
};
struct held {
	struct slot slot[VIEWS];
	rpw_loaned loan;      /* filled, and not sent yet */
	rpw_request *sending; /* an ordinary message, from `out` */
	char out[LEN];
	size_t len;
	unsigned came;
};

static bool reads_right(const rpw_view *v)
{
	return pattern_wrong(v->data, v->length, v->length) == v->length;
}

/* The last one is sent, the next one is filled. */
static void loan_turn(rpw_endpoint *ep, struct held *h, struct rng *rng)
{
	if (h->loan.data && rpw_send_loan(ep, &h->loan, h->len, 1, NULL) < 0)
		rpw_loan_return(&h->loan);
	h->len = rng_below(rng, LEN - 8) + 8;
	h->loan = (rpw_loaned)RPW_LOANED_INIT;
	if (!rpw_loan(ep, h->len, 0, 0, &h->loan))
		pattern_fill(h->loan.data, h->len, h->len);
}

/* An ordinary message, when the one before is done. */
static void send_turn(rpw_endpoint *ep, struct held *h, struct rng *rng)
{
	size_t len = rng_below(rng, LEN - 8) + 8;
	if (h->sending && rpw_request_test(h->sending, NULL) == RPW_IN_PROGRESS)
		return;
	rpw_request_destroy(h->sending);
	h->sending = NULL;
	pattern_fill(h->out, len, len);
	rpw_send(ep, h->out, len, 1, &h->sending);
}

/* One step of one view; false: it has changed. */
static bool view_turn(rpw_context *c, rpw_endpoint *ep, struct held *h, struct rng *rng)
{
	struct slot *s = &h->slot[rng_below(rng, VIEWS)];
	switch (s->is) {
	case EMPTY:
		s->view = (rpw_view)RPW_VIEW_INIT;
		if (rpw_recv_view(c, ep, 1, ALL, &s->view, &s->r) == RPW_IN_PROGRESS)
			s->is = POSTED;
		return true;
	case POSTED:
		if (rpw_request_test(s->r, NULL) == RPW_IN_PROGRESS)
			return true;
		s->is = rpw_request_test(s->r, NULL) == RPW_OK ? HELD : EMPTY;
		h->came += s->is == HELD;
		rpw_request_destroy(s->r);
		return true;
	default:
		if (!rng_one_in(rng, 4))
			return true;
		s->is = EMPTY;
		return reads_right(&s->view) && !rpw_view_release(&s->view);
	}
}

/* ---- forks ---- */

/* In a child: all that it has copies of reads right, and goes, and none of it goes back to the
 * peer. */
static void give_copies_back(rpw_context *c, struct held *h)
{
	for (unsigned k = 0; k < VIEWS; k++)
		if (h->slot[k].is == HELD &&
			(!reads_right(&h->slot[k].view) || rpw_view_release(&h->slot[k].view)))
			_exit(READS_WRONG);
	if (h->loan.data && (pattern_wrong(h->loan.data, h->len, h->len) != h->len ||
				    rpw_loan_return(&h->loan)))
		_exit(READS_WRONG);
	rpw_context_destroy(c);
}

static void fork_turn(rpw_context *c, struct held *h, bool executes)
{
	int how;
	pid_t pid = fork();
	if (!pid) {
		give_copies_back(c, h);
		if (executes)
			execl("/bin/true", "true", (char *)NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &how, 0), pid);
	assert_int_equal(how, 0);
}

/* ---- the peer ---- */

enum fate { KILLED, EXECUTES, LEAVES_A_CHILD, EXITS, CLOSES, FATES };
static const char *const fate_names[FATES] = {
	"killed", "executes", "leaves a child", "exits", "closes"};

/* `alive` has an end when the test wants the child gone. */
static void meets(enum fate fate, rpw_context *c, struct held *h, const int alive[2])
{
	char byte;
	switch (fate) {
	case EXECUTES:
		execl("/bin/sleep", "sleep", "100", (char *)NULL);
		_exit(1);
	case LEAVES_A_CHILD:
		if (fork())
			return;
		close(alive[1]);
		give_copies_back(c, h);
		if (read(alive[0], &byte, 1))
			_exit(1);
		_exit(0);
	case EXITS:
		_exit(0);
	case CLOSES:
		rpw_context_destroy(c);
		_exit(0);
	default:
		return; /* it is killed when the test likes */
	}
}

static void peer(const char *address, uint64_t seed, enum fate fate, const int alive[2])
{
	struct rng rng = {seed};
	struct held h = {0};
	rpw_endpoint *ep = NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rpw_context *c = context_open();
	if (!c || rpw_endpoint_create(c, address, NULL, &ep, NULL) < 0)
		_exit(1);
	h.loan = (rpw_loaned)RPW_LOANED_INIT;
	/* counted from the first view on: then the other side has the endpoint, too */
	for (uint64_t turns = rng_below(&rng, TURNS);;) {
		rpw_context_progress(c);
		if (h.came && !turns--)
			meets(fate, c, &h, alive);
		if (rng_one_in(&rng, 3))
			loan_turn(ep, &h, &rng);
		else if (rng_one_in(&rng, 3))
			send_turn(ep, &h, &rng);
		else if (!view_turn(c, ep, &h, &rng))
			_exit(READS_WRONG);
	}
}

/* ---- this side ---- */

static rpw_view kept[KEPT];

static void kept_release(rpw_view *v)
{
	if (!v->data)
		return;
	assert_true(reads_right(v));
	assert_int_equal(rpw_view_release(v), RPW_OK);
}

/* The endpoint has gone; some of the views stay. */
static void hold_on(struct held *h, struct rng *rng)
{
	for (unsigned k = 0; k < VIEWS; k++) {
		struct slot *s = &h->slot[k];
		if (s->is == POSTED) {
			s->is = rpw_request_test(s->r, NULL) == RPW_OK ? HELD : EMPTY;
			rpw_request_destroy(s->r);
		}
		if (s->is != HELD)
			continue;
		rpw_view *place = &kept[rng_below(rng, KEPT)];
		if (rng_one_in(rng, 2)) {
			kept_release(place);
			*place = s->view;
		} else
			kept_release(&s->view);
	}
	rpw_request_destroy(h->sending);
	if (h->loan.data) {
		assert_int_equal(pattern_wrong(h->loan.data, h->len, h->len), h->len);
		assert_int_equal(rpw_loan_return(&h->loan), RPW_OK);
	}
}

static void until_the_endpoint_ends(
	rpw_context *c, rpw_endpoint *ep, pid_t pid, enum fate fate, struct rng *rng)
{
	struct held h = {0};
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	uint64_t turns = 0, lives = rng_below(rng, TURNS), forks = rng_below(rng, 4 * TURNS);
	bool dies_by_signal = fate == KILLED || fate == LEAVES_A_CHILD;
	h.loan = (rpw_loaned)RPW_LOANED_INIT;
	WHILE_IN_TIME (!i.status) {
		rpw_context_progress(c);
		if (turns == lives && dies_by_signal)
			kill(pid, SIGKILL);
		if (turns++ == forks)
			fork_turn(c, &h, rng_one_in(rng, 2));
		if (rng_one_in(rng, 3))
			loan_turn(ep, &h, rng);
		if (rng_one_in(rng, 3))
			send_turn(ep, &h, rng);
		assert_true(view_turn(c, ep, &h, rng));
		assert_int_equal(rpw_endpoint_info(ep, &i), RPW_OK);
		assert_true(i.loan_bytes <= i.loan_bytes_max);
	}
	assert_int_equal(i.status, RPW_ERR_PEER_GONE);
	if (rng_one_in(rng, 4))
		fork_turn(c, &h, false);
	rpw_endpoint_destroy(ep);
	hold_on(&h, rng);
}

static void one_end(rpw_context *c, rpw_listener *l, rpw_endpoint **ep, struct rng *rng)
{
	char address[64];
	int how, alive[2];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(l));
	uint64_t seed = rng_next(rng);
	enum fate fate = (enum fate)rng_below(rng, FATES);
	IN_CASE(fate_names[fate], fate);
	assert_int_equal(pipe(alive), 0);
	*ep = NULL;
	pid_t pid = fork();
	if (!pid)
		peer(address, seed, fate, alive);
	WHILE_IN_TIME (!*ep)
		rpw_context_progress(c);
	assert_non_null(*ep);
	until_the_endpoint_ends(c, *ep, pid, fate, rng);
	if (fate == EXECUTES)
		kill(pid, SIGKILL);
	close(alive[0]);
	close(alive[1]);
	assert_int_equal(waitpid(pid, &how, 0), pid);
	if (fate == EXITS || fate == CLOSES)
		assert_int_equal(how, 0);
	else
		assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

/* ---- what is left ---- */

static unsigned count_of(const char *path, const char *text)
{
	unsigned n = 0;
	char line[512];
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += !text || strstr(line, text);
	if (f)
		fclose(f);
	return n;
}

static unsigned descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void nothing_is_left_however_often_the_peer_ends(void **state)
{
	unsigned long ends = test_rounds(strcmp(transport, "shm") ? 60 : 200);
	unsigned before = 0;
	struct rng rng = {test_seed(0xe11d5)};
	rpw_endpoint *ep = NULL;
	rpw_statistics s = RPW_STATISTICS_INIT;
	char address[64];
	rpw_context *c = context_open();
	assert_non_null(c);
	rpw_listener *l = pair_listen(c, &ep, address);
	for (unsigned long i = 0; i < ends; i++) {
		IN_CASE("end", i);
		one_end(c, l, &ep, &rng);
		for (int k = 0; k < 100; k++)
			rpw_context_progress(c);
		if (i == 2)
			before = descriptors();
	}
	for (unsigned k = 0; k < KEPT; k++)
		kept_release(&kept[k]);
	assert_int_equal(rpw_context_statistics(c, &s), RPW_OK);
	assert_int_equal(s.endpoints, 0);
	assert_int_equal(s.requests, 0);
	assert_int_equal(count_of("/proc/self/maps", "ropeway-loans"), 0);
	assert_int_equal(count_of("/proc/self/maps", "ropeway-returns"), 0);
	assert_true(descriptors() <= before + 4);
	rpw_listener_destroy(l);
	rpw_context_destroy(c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left_however_often_the_peer_ends)};
	if (argc > 1)
		transport = argv[1];
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
