/* SPDX-License-Identifier: BSD-3-Clause */
/* forward.c - where the calls of forwards.h lead: to the distribution's library, whose drivers make
 * most of them, as soon as one is called; where there is none, to a function that says no.
 *
 * A driver (libmlx5.so.1 and its like) needs libibverbs.so.1, and the loader gives it this one. The
 * real devices are still the distribution's: what the driver registers and asks for arrives
 * there.
 */
#include "library/forwards.h"
#include "base/choice.h"
#include "preload/missing.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Read by drivers and set by the distribution's library; here as it sets it. */
extern bool verbs_allow_disassociate_destroy;
RPWI_EXPORT bool verbs_allow_disassociate_destroy;

static long missing_NOTHING(void) { return 0; }

#define NEW(n, v, m) \
	extern void *rpwi_slot_##n; \
	void *rpwi_slot_##n;
#define OLD(n, v, m) \
	extern void *rpwi_old_slot_##n; \
	void *rpwi_old_slot_##n;
RPWI_FORWARDS(NEW)
RPWI_OLD_FORWARDS(OLD)
#undef NEW
#undef OLD

static const struct forward {
	void **slot;
	const char *name, *version;
	void *missing;
	bool old;
} forwards[] = {
#define NEW(n, v, m) {&rpwi_slot_##n, #n, v, (void *)missing_##m, false},
#define OLD(n, v, m) {&rpwi_old_slot_##n, #n, v, (void *)missing_##m, true},
	/* clang-format off */
	RPWI_FORWARDS(NEW)
	RPWI_OLD_FORWARDS(OLD)
/* clang-format on */
#undef NEW
#undef OLD
};

/* From forward.S, at the first call through `slot`: the function to go on to. */
void *rpwi_forward_resolve(void **slot);
void *rpwi_forward_resolve(void **slot)
{
	const struct forward *f = forwards;
	while (f->slot != slot)
		f++;
	/* what was called so can list real devices alone */
	bool none = f->old && rpwi_choice_software();
	void *library = none ? NULL : rpwi_distribution(), *to = NULL;
	if (library) {
		rpwi_inside_real++;
		to = dlvsym(library, f->name, f->version);
		dlerror();
		rpwi_inside_real--;
	}
	if (!to) {
		to = f->missing;
		if (f->old)
			rpwi_warn(
				"%s: the program calls %s as libibverbs had it before 1.1 (2007), "
				"which software devices do not have; it has to be linked again",
				f->version, f->name);
	}
	__atomic_store_n(slot, to, __ATOMIC_RELEASE);
	return to;
}

__attribute__((constructor)) static void begin(void)
{
	verbs_allow_disassociate_destroy = getenv("RDMAV_ALLOW_DISASSOC_DESTROY") != NULL;
	rpwi_reach();
}
