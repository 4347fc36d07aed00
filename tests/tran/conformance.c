/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance.c - what every transport must do, run on one of them between two processes:
 * conformance NAME [CASE...]. TAP; exit 77 when the transport cannot be used here.
 *
 * Each case is one function that both processes run, told apart by s->which (0: the one that
 * connects). A process that finds something wrong says so and exits 1; the other then misses it.
 */
#include "pair.h"
#include "conformance.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

int the_side;
static const struct conformance_case *const all[] = {
	frame_cases, memory_cases, end_cases, context_cases};

void conformance_run(const char *name, struct side *s)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(all); i++)
		for (const struct conformance_case *c = all[i]; c->name; c++)
			if (!strcmp(c->name, name)) {
				c->run(s);
				return;
			}
	REQUIRE(false, "no case %s", name);
}

/* One case, in two fresh processes. */
static bool run_case(const struct conformance_case *c, const struct tran_ops *ops)
{
	pid_t runner = fork();
	if (!runner) {
		struct side s;
		alarm(120);
		if (pair_fork(&s, ops))
			_exit(1);
		the_side = s.which;
		alarm(120);
		if (s.which)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		int rc = pair_open(&s);
		REQUIRE(!rc, "open: %d", rc);
		c->run(&s);
		pair_close(&s);
		fflush(NULL);
		if (s.which)
			exit(0); /* not _exit: a sanitizer looks for leaks there */
		int status;
		REQUIRE(waitpid(s.child, &status, 0) == s.child);
		exit(!(c->child_dies ? WIFSIGNALED(status) : status == 0));
	}
	int status = 1;
	waitpid(runner, &status, 0);
	if (WIFSIGNALED(status))
		fprintf(stderr, "# ended by signal %d\n", WTERMSIG(status));
	return status == 0;
}

int main(int argc, char **argv)
{
	const struct tran_ops *ops = NULL;
	struct tran_facts own;
	char why[256] = "it is not in this build";
	pair_facts(&own);
	for (size_t i = 0; argc > 1 && tran_all[i]; i++)
		if (!strcmp(tran_all[i]->name, argv[1]))
			ops = tran_all[i];
	if (!ops || ops->usable(&own, NULL, why, sizeof why) < 0 ||
		ops->usable(&own, &own, why, sizeof why) < 0) {
		printf("1..0 # SKIP %s can not be used here: %s\n",
			argc > 1 ? argv[1] : "(no name)", why);
		return 77;
	}
	int failed = 0, ran = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(all); i++)
		for (const struct conformance_case *c = all[i]; c->name; c++) {
			bool asked = argc == 2;
			for (int k = 2; k < argc; k++)
				asked |= !strcmp(argv[k], c->name);
			if (!asked)
				continue;
			uint64_t began = rpwi_now_ns();
			bool fine = run_case(c, ops);
			printf("%sok %d - %s %s # %llu ms\n", fine ? "" : "not ", ++ran, ops->name,
				c->name, (unsigned long long)((rpwi_now_ns() - began) / 1000000));
			failed += !fine;
		}
	printf("1..%d\n", ran);
	return failed || !ran;
}
