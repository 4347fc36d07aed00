/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.c - see owner.h. */
#include "msg/owner.h"

#include "msg/checked.h"
#include "msg/objects.h"

static bool is_inside(const rpw_context *c)
{
	return c->in_progress && !pthread_equal(c->mover, pthread_self());
}

/* Between them this library lies (ld's own symbols). */
extern const char __ehdr_start[] __attribute__((visibility("hidden"))),
	_end[] __attribute__((visibility("hidden")));

bool owner_look(rpw_context *c, const void *from)
{
	struct owner *o = &c->owner;
	if (c->born != BORN_LOOKED_AT || !msg_is_ours_anywhere(c))
		return false;
	uintptr_t pc = (uintptr_t)from;
	if (pc < (uintptr_t)__ehdr_start || pc >= (uintptr_t)_end)
		rpwi_check_site = (struct rpwi_site){.pc = {pc}};
	pid_t self = gettid(),
	      before = atomic_exchange_explicit(&o->thread, self, memory_order_relaxed);
	if (!before || before == self)
		return true;
	if (is_inside(c) && RPWI_UNLIKELY(rpwi_check_on))
		checked_thread(c, before, self);
	if (is_inside(c) && !atomic_exchange(&o->said_both, true))
		rpwi_warn("context %s: thread %d calls it while thread %d is inside "
			  "rpw_context_progress: one thread at a time may use a context; "
			  "give each thread its own",
			RPWI_AT(c), (int)self, (int)before);
	else if (!is_inside(c) && !atomic_exchange(&o->said_passed_on, true))
		rpwi_debug("context %s: thread %d calls it, thread %d did before: one thread at a "
			   "time may use a context; see that the first one's calls are over",
			RPWI_AT(c), (int)self, (int)before);
	return true;
}

int owner_inside(rpw_context *c, const char *what, const char *then)
{
	if (!msg_is_ours(c))
		return msg_inherited(c);
	if (is_inside(c))
		return rpwi_fail(RPW_ERR_INVALID,
			"%s: another thread is inside rpw_context_progress of this context: one "
			"thread at a time may use it",
			what);
	return rpwi_fail(RPW_ERR_INVALID, "%s from inside a callback: %s", what, then);
}
