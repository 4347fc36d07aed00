/* SPDX-License-Identifier: BSD-3-Clause */
/* say.c - see say.h. */
#include "lib/say.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum { CASES_MAX = 16 };

/* Each thread has cases of its own; the seed is the program's. */
static _Thread_local struct {
	struct {
		const char *what;
		uint64_t value;
	} open[CASES_MAX];
	unsigned count;
} said;
static struct {
	_Atomic bool seeded, listens;
	_Atomic uint64_t seed;
	uint64_t any;
	pid_t pid;
} all;

void say_cases(void)
{
	char line[800] = "#";
	int n = 1;
	for (unsigned i = 0; i < said.count && i < CASES_MAX; i++)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "%s %.20s %llu",
			i ? "," : " case:", said.open[i].what,
			(unsigned long long)said.open[i].value);
	if (all.seeded)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "%s again with TEST_SEED=%llu",
			n > 1 ? ";" : "", (unsigned long long)atomic_load(&all.seed));
	if (n > 1)
		dprintf(STDERR_FILENO, "%s\n", line);
}

static void ends(int sig)
{
	if (sig == SIGABRT || getpid() == all.pid)
		say_cases();
	raise(sig); /* once more, with what it does by default */
}

/* What cmocka caught a signal of is still open. */
__attribute__((destructor)) static void leaves(void)
{
	if (said.count && getpid() == all.pid)
		say_cases();
}

static void listen_once(void)
{
	static const int signals[] = {SIGABRT, SIGTERM};
	const struct sigaction ours = {.sa_handler = ends, .sa_flags = SA_RESETHAND | SA_NODEFER};
	struct sigaction was;
	if (atomic_exchange(&all.listens, true))
		return;
	all.pid = getpid();
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (!sigaction(signals[i], NULL, &was) && was.sa_handler == SIG_DFL)
			sigaction(signals[i], &ours, NULL);
}

/* cmocka's, by which each of its asserts fails: it does not come back. */
__attribute__((visibility("default"), noreturn)) void _fail(const char *const file, const int line);
void _fail(const char *const file, const int line)
{
	void (*next)(const char *, int) = (void (*)(const char *, int))dlsym(RTLD_NEXT, "_fail");
	say_cases();
	said.count = 0;
	if (next)
		next(file, line);
	abort();
}

static const char *number_of(const char *name)
{
	const char *text = getenv(name);
	return text && *text ? text : NULL;
}

static uint64_t seed_is(uint64_t seed)
{
	listen_once();
	all.seed = seed;
	all.seeded = true;
	return seed;
}

uint64_t test_seed(uint64_t otherwise)
{
	const char *text = number_of("TEST_SEED");
	return seed_is(text ? strtoull(text, NULL, 0) : otherwise);
}

uint64_t test_seed_any(void)
{
	while (!all.any && getrandom(&all.any, 4, 0) == 4) /* short, to be typed */
		;
	return test_seed(all.any);
}

unsigned long test_rounds(unsigned long otherwise)
{
	const char *text = number_of("TEST_ROUNDS");
	return text ? strtoul(text, NULL, 0) : otherwise;
}

struct test_case case_begin(const char *what, uint64_t value)
{
	struct test_case c = {said.count};
	listen_once();
	if (said.count < CASES_MAX) {
		said.open[said.count].what = what;
		said.open[said.count].value = value;
	}
	said.count++;
	return c;
}

void case_end(struct test_case *c) { said.count = c->outer; }

struct seeds seeds_of(uint64_t first, unsigned long n)
{
	bool one = number_of("TEST_SEED");
	first = test_seed(first);
	return (struct seeds){.seed = first - 1,
		.end = first - 1 + (one ? 1 : test_rounds(n)),
		.c = case_begin("seed", first)};
}

bool seeds_next(struct seeds *s)
{
	if (s->seed == s->end)
		return false;
	s->rng.state = ++s->seed;
	if (s->c.outer < CASES_MAX)
		said.open[s->c.outer].value = s->seed;
	said.count = s->c.outer + 1;
	seed_is(s->seed);
	return true;
}

void seeds_end(struct seeds *s)
{
	case_end(&s->c);
	all.seeded = false;
}
