/* SPDX-License-Identifier: BSD-3-Clause */
/* real.c - the real libibverbs, reached by a handle of our own. RTLD_NEXT would not do: it is NULL
 * where the program loaded libibverbs locally, as UCX does. */
#include "preload/missing.h"
#include "preload/preload.h"

#include "base/lock.h"

#include <dlfcn.h>
#include <pthread.h>

static struct rpwi_real real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* For a call without an object, and for any in a child that has to refuse (base/lock.h). */
RPWI_STAND_INS(invalid, EINVAL)
RPWI_STAND_INS(refused, rpwi_fork_refuse("a call of libibverbs"))

static const struct rpwi_real invalid = {.found = true,
#define X(n, m) .n = (void *)invalid_##m,
	RPWI_CALLS(X)
#undef X
};
static const struct rpwi_real refused = {.found = true,
#define X(n, m) .n = (void *)refused_##m,
	RPWI_CALLS(X)
#undef X
};
const struct rpwi_real *rpwi_invalid(void) { return &invalid; }
const struct rpwi_real *rpwi_refused(void) { return &refused; }

struct call {
	const char *name;
	void *ours;
	void (*missing)(void);
	size_t slot;
};
static const struct call calls[] = {
#define X(n, m) {#n, (void *)n, (void (*)(void))missing_##m, offsetof(struct rpwi_real, n)},
	RPWI_CALLS(X)
#undef X
};

/* The structs that we know are those of IBVERBS_1.1; IBVERBS_1.0 has calls of the same name for
 * older ones. Later calls have one version only. */
static void *real_symbol(void *library, const char *name)
{
	void *p = dlvsym(library, name, "IBVERBS_1.1");
	return p ? p : dlsym(library, name);
}

static void open_real(void)
{
	rpwi_inside_real++;
	void *library = rpwi_handed_on() ? NULL : rpwi_distribution();
	real.found = rpwi_handed_on() || library;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(calls); i++) {
		void *p = library ? real_symbol(library, calls[i].name)
				  : rpwi_first_symbol(calls[i].name);
		if (!p)
			p = (void *)calls[i].missing;
		memcpy((char *)&real + calls[i].slot, &p, sizeof(p));
	}
	dlerror(); /* one that lacks newer calls: not the program's business */
	rpwi_inside_real--;
}

const struct rpwi_real *rpwi_real(void)
{
	pthread_once(&once, open_real);
	return &real;
}

RPWI_BARE static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

RPWI_BARE int rpwi_call_find(const char *name)
{
	/* ibv_, _ibv_, verbs_, mult_to_, mbps_to_: programs look up thousands of other names at
	 * start. */
	if (!name || (name[0] != 'i' && name[0] != '_' && name[0] != 'v' && name[0] != 'm'))
		return -1;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(calls); i++)
		if (same(calls[i].name, name))
			return (int)i;
	return -1;
}

void *rpwi_call_ours(int call) { return calls[call].ours; }

void *rpwi_call_real(int call)
{
	void *p;
	memcpy(&p, (const char *)rpwi_real() + calls[call].slot, sizeof(p));
	return p;
}
