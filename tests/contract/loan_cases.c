/* SPDX-License-Identifier: BSD-3-Clause */
/* loan_cases.c - the contract of loans and views: who has which memory until when, also when a
 * process forks, executes another program, or is killed. */
#include "contract.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAN_CALLS "rpw_loan rpw_send_loan rpw_loan_return rpw_recv_view rpw_view_release"

static const rpw_loaned no_loan = RPW_LOANED_INIT;
static const rpw_view no_view = RPW_VIEW_INIT;

static rpw_loaned filled(rpw_endpoint *ep, size_t len, uint64_t seed)
{
	rpw_loaned l = no_loan;
	IS(rpw_loan(ep, len, 0, -1, &l), RPW_OK);
	CHECK(l.length >= len && !((uintptr_t)l.data % 64));
	pattern_fill(l.data, len, seed);
	return l;
}

/* A long one may be complete only when it has its receive. */
static rpw_request *pass_begin(struct pair *p, size_t len, uint64_t tag)
{
	rpw_request *s = NULL;
	rpw_loaned l = filled(p->ea, len, tag);
	CHECK(rpw_send_loan(p->ea, &l, len, tag, &s) >= 0);
	CHECK(!l.data);
	return s;
}
static void pass(struct pair *p, size_t len, uint64_t tag)
{
	rpw_request_destroy(pass_begin(p, len, tag));
}

static rpw_view taken(struct pair *p, size_t len, uint64_t tag)
{
	rpw_view v = no_view;
	rpw_request *r = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	IS(rpw_recv_view(p->b, NULL, tag, ALL, &v, &r), RPW_IN_PROGRESS);
	IS(pair_finish(p, r, &done), RPW_OK);
	IS(done.length, len);
	IS(v.length, len);
	CHECK(done.from == p->eb && done.tag == tag);
	CHECK(pattern_right(v.data, len, tag));
	return v;
}

static void a_loan_is_passed_on_and_comes_back(void)
{
	struct pair p;
	pair_open(&p);
	static const size_t sizes[] = {0, 8, 4096, 1 << 20};
	for (uint64_t k = 0; k < 4; k++) {
		pass(&p, sizes[k], k);
		rpw_view v = taken(&p, sizes[k], k);
		CHECK(v.writable != v.loaned);
		IS(information_of(p.eb).view_bytes > 0, v.loaned);
		IS(rpw_view_release(&v), RPW_OK);
		IS(information_of(p.eb).view_bytes, 0);
		UNTIL(&p, !information_of(p.ea).loan_bytes);
	}
	rpw_loaned l = filled(p.ea, 100, 9);
	IS(information_of(p.ea).loan_bytes, l.length);
	CHECK(information_of(p.ea).loan_bytes_max == (size_t)1 << 30);
	IS(rpw_loan_return(&l), RPW_OK);
	CHECK(!l.data);
	IS(information_of(p.ea).loan_bytes, 0);
	pair_close(&p);
}

static void what_is_no_loan_is_refused(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	rpw_loaned l = no_loan;
	rpw_view v = no_view;
	REFUSED(rpw_loan(NULL, 1, 0, 0, &l), RPW_ERR_INVALID, "rpw_loan: the endpoint is NULL");
	REFUSED(rpw_loan(p.ea, 1, 0, 0, NULL), RPW_ERR_INVALID, "rpw_loan: the loan is NULL");
	REFUSED(rpw_loan(p.ea, 1, 2, 0, &l), RPW_ERR_INVALID, "flags 0x2");
	REFUSED(rpw_loan(p.ea, ((size_t)1 << 30) + 1, 0, -1, &l), RPW_ERR_LIMIT, "loan_bytes_max");
	REFUSED(rpw_send_loan(p.ea, &l, 0, 0, &r), RPW_ERR_INVALID, "never filled");
	REFUSED(rpw_send_loan(NULL, &l, 0, 0, &r), RPW_ERR_INVALID, "the endpoint is NULL");
	REFUSED(rpw_loan_return(&l), RPW_ERR_INVALID, "never filled");
	REFUSED(rpw_view_release(&v), RPW_ERR_INVALID, "never filled");
	REFUSED(rpw_view_release(NULL), RPW_ERR_INVALID, "the view is NULL");
	REFUSED(rpw_recv_view(NULL, NULL, 0, 0, &v, &r), RPW_ERR_INVALID, "the context is NULL");
	REFUSED(rpw_recv_view(p.a, p.eb, 0, 0, &v, &r), RPW_ERR_INVALID, "another context");
	REFUSED(rpw_recv_view(p.a, p.ea, 0, 0, NULL, &r), RPW_ERR_INVALID, "the view is NULL");
	v.size = 3;
	REFUSED(rpw_recv_view(p.a, p.ea, 0, 0, &v, &r), RPW_ERR_INVALID, "RPW_VIEW_INIT");
	l = filled(p.ea, 50, 1);
	REFUSED(rpw_send_loan(p.eb, &l, 50, 0, &r), RPW_ERR_INVALID, "of another endpoint");
	REFUSED(rpw_send_loan(p.ea, &l, l.length + 1, 0, &r), RPW_ERR_INVALID,
		"of a loan that has");
	rpw_loaned copy = l;
	IS(rpw_loan_return(&l), RPW_OK);
	REFUSED(rpw_loan_return(&copy), RPW_ERR_INVALID, "sent or returned before");
	REFUSED(rpw_send_loan(p.ea, &copy, 1, 0, &r), RPW_ERR_INVALID, "sent or returned before");
	CHECK(!r);
	pair_close(&p);
}

static void the_bound_ends_the_wait(void)
{
	struct pair p;
	rpw_context_options o = options_of(contract_transport);
	rpw_endpoint_options eo = RPW_ENDPOINT_OPTIONS_INIT;
	o.loan_bytes_max = 1 << 16;
	pair_open_as(&p, &o, &eo);
	rpw_loaned l = filled(p.ea, 1 << 16, 1), more = no_loan;
	REFUSED(rpw_loan(p.ea, 1, 0, 0, &more), RPW_ERR_LIMIT, "this program holds 65536 bytes");
	REFUSED(rpw_loan(p.ea, 1, 0, 20, &more), RPW_ERR_LIMIT, "this program holds 65536 bytes");
	rpw_context_wake(p.a);
	IS(rpw_loan(p.ea, 1, 0, -1, &more), RPW_ERR_EXPIRED);
	IS(rpw_loan_return(&l), RPW_OK);
	/* another endpoint's bound is its own */
	l = filled(p.eb, 1 << 16, 2);
	more = filled(p.ea, 1 << 16, 3);
	IS(rpw_loan_return(&l), RPW_OK);
	IS(rpw_loan_return(&more), RPW_OK);
	pair_close(&p);
	o.loan_bytes_max = SIZE_MAX;
	rpw_context *c = NULL;
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, "loan_bytes_max");
	CHECK(!c);
}

static void what_is_held_outlives_all(void)
{
	struct pair p;
	pair_open(&p);
	pass(&p, 9000, 1);
	rpw_view v = taken(&p, 9000, 1);
	rpw_loaned l = filled(p.ea, 500, 2);
	pair_close(&p);
	CHECK(pattern_right(v.data, 9000, 1));
	CHECK(pattern_right(l.data, 500, 2));
	pattern_fill(l.data, 500, 3);
	IS(rpw_view_release(&v), RPW_OK);
	IS(rpw_loan_return(&l), RPW_OK);
}

/* ---- other processes ---- */

static void ends_well(pid_t pid)
{
	int how = 0;
	CHECK(waitpid(pid, &how, 0) == pid);
	CHECK(WIFEXITED(how));
	IS(WEXITSTATUS(how), 0);
}

static void a_child_gives_nothing_back(void)
{
	struct pair p;
	pair_open(&p);
	pass(&p, 9000, 1);
	rpw_view v = taken(&p, 9000, 1);
	settle(&p);
	rpw_loaned l = filled(p.ea, 500, 2);
	size_t out = information_of(p.ea).loan_bytes;
	pid_t pid = fork();
	if (!pid) {
		rpw_request *r = NULL;
		rpw_loaned more = no_loan;
		rpw_view next = no_view;
		CHECK(pattern_right(v.data, 9000, 1));
		REFUSED(rpw_loan(p.ea, 1, 0, 0, &more), RPW_ERR_INVALID, "make one after fork");
		REFUSED(rpw_send_loan(p.ea, &l, 1, 0, &r), RPW_ERR_INVALID, "make one after fork");
		REFUSED(rpw_recv_view(p.b, NULL, 1, ALL, &next, &r), RPW_ERR_INVALID,
			"make one after fork");
		IS(rpw_view_release(&v), RPW_OK);
		IS(rpw_loan_return(&l), RPW_OK);
		rpw_context_destroy(p.a);
		rpw_context_destroy(p.b);
		_exit(0);
	}
	ends_well(pid);
	IS(information_of(p.ea).loan_bytes, out);
	CHECK(pattern_right(v.data, 9000, 1));
	IS(rpw_view_release(&v), RPW_OK);
	IS(information_of(p.ea).loan_bytes, l.length);
	IS(rpw_loan_return(&l), RPW_OK);
	pair_close(&p);
}

enum fate { KILLED, EXECUTES, FATES };

/* Loans five messages and takes three, keeps a loan, and then meets its fate. */
static void other(int port_pipe, enum fate fate)
{
	struct pair p;
	char address[64];
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* it waits for the test without an end */
	memset(&p, 0, sizeof(p));
	p.a = p.b = context_open();
	pair_listen(p.a, &p.ea, address);
	CHECK(write(port_pipe, address, sizeof(address)) == sizeof(address));
	while (!p.ea)
		rpw_context_progress(p.a);
	p.eb = p.ea;
	rpw_request *s[5];
	for (uint64_t k = 0; k < 5; k++)
		s[k] = pass_begin(&p, 70000, k);
	for (uint64_t k = 0; k < 3; k++) {
		taken(&p, 70000, k);
		if (s[k]) /* not done at once */
			IS(ended(&p, RPW_IN_PROGRESS, s[k]), RPW_OK);
	}
	filled(p.ea, 100, 1);
	if (fate == KILLED)
		raise(SIGKILL);
	execl("/bin/true", "true", (char *)NULL);
	_exit(127);
}

static void the_survivor_reads_on(void)
{
	for (int fate = 0; fate < FATES; fate++) {
		struct pair p;
		int pipes[2];
		char address[64];
		rpw_view v[5];
		memset(&p, 0, sizeof(p));
		IS(pipe(pipes), 0);
		pid_t pid = fork();
		if (!pid)
			other(pipes[1], (enum fate)fate);
		CHECK(read(pipes[0], address, sizeof(address)) == sizeof(address));
		p.a = p.b = context_open();
		IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, NULL), RPW_IN_PROGRESS);
		p.eb = p.ea;
		for (uint64_t k = 0; k < 3; k++) {
			pass(&p, 70000, k);
			v[k] = taken(&p, 70000, k);
		}
		UNTIL(&p, information_of(p.ea).status == RPW_ERR_PEER_GONE);
		CHECK(waitpid(pid, NULL, 0) == pid);
		/* what came whole is still there */
		unsigned got = 3;
		for (uint64_t k = 3; k < 5; k++) {
			rpw_request *r = NULL;
			v[k] = no_view;
			int rc = rpw_recv_view(p.b, p.eb, k, ALL, &v[k], &r);
			CHECK(rc == RPW_IN_PROGRESS || rc == RPW_ERR_PEER_GONE);
			if (rc != RPW_IN_PROGRESS)
				continue;
			IS(pair_finish(&p, r, NULL), RPW_OK);
			v[got++] = v[k];
		}
		rpw_loaned none = no_loan;
		IS(rpw_loan(p.ea, 1, 0, 0, &none), RPW_ERR_PEER_GONE);
		p.b = NULL;
		p.eb = NULL;
		pair_close(&p);
		for (unsigned k = 0; k < got; k++) {
			CHECK(pattern_right(v[k].data, 70000, k));
			IS(rpw_view_release(&v[k]), RPW_OK);
		}
		close(pipes[0]);
		close(pipes[1]);
	}
}

const struct contract_case loan_cases[] = {
	{"a_loan_is_passed_on_and_comes_back", a_loan_is_passed_on_and_comes_back, true,
		LOAN_CALLS " rpw_endpoint_info"},
	{"what_is_no_loan_is_refused", what_is_no_loan_is_refused, true, LOAN_CALLS},
	{"the_bound_ends_the_wait", the_bound_ends_the_wait, true,
		"rpw_loan rpw_loan_return rpw_context_create rpw_context_wake"},
	{"what_is_held_outlives_all", what_is_held_outlives_all, true,
		LOAN_CALLS " rpw_context_destroy"},
	{"a_child_gives_nothing_back", a_child_gives_nothing_back, true, LOAN_CALLS},
	{"the_survivor_reads_on", the_survivor_reads_on, true, LOAN_CALLS},
	{NULL, NULL, false, NULL},
};
