/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.c - see forked.h. */
#include "check/forked.h"

#include "check/hooks.h"
#include "check/keys.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

bool rpwi_check_is_child;
static bool ready, old_kernel;

/* ---- in the parent ---- */

/* Since Linux 5.12 fork copies pages that are pinned for a device at once. */
static bool copies_on_fork(void)
{
	struct utsname u;
	if (uname(&u))
		return true;
	char *end;
	unsigned long major = strtoul(u.release, &end, 10),
		      minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
	return major > 5 || (major == 5 && minor >= 12);
}

void check_fork_ready(void) { ready = true; }

static void forks(const void *pc, const void *frame)
{
	if (ready || !old_kernel)
		return;
	rpwi_check_site_note(pc, frame);
	if (!rpwi_check_lock())
		return;
	struct check_key k;
	uint32_t n = check_keys_count(&k);
	struct rpwi_finding f = {.rule = RPWI_RULE_FORK_REGISTERED};
	rpwi_finding_site(&f, "fork called here", &rpwi_check_site);
	rpwi_finding_site(&f, "one of the regions, registered here", &(struct rpwi_site){{k.made}});
	snprintf(f.text, sizeof(f.text),
		"fork with %u memory regions, on a kernel that does not copy pinned pages, and "
		"without ibv_fork_init",
		n);
	if (n)
		rpwi_check_report(&f);
	rpwi_check_unlock();
}

/* ---- in the child ---- */

/* The lock is held by fork. */
static void in_child(void)
{
	rpwi_check_is_child = true;
	check_objects_inherit();
}

void check_child_uses(const struct check_qp *q, const struct rpwi_site *made, const char *what)
{
	struct rpwi_finding f = check_finding(RPWI_RULE_CHILD_USES, q, NULL);
	rpwi_finding_site(&f, "called here", &rpwi_check_site);
	rpwi_finding_site(&f, "the parent made it here", made);
	rpwi_check_say(&f,
		"process %d, a child of %d, calls %s for an object that its parent has made",
		(int)getpid(), (int)getppid(), what);
}

void check_child_polls(const struct ibv_cq *ibv)
{
	if (!rpwi_check_lock())
		return;
	const struct check_cq *cq = check_cq_find(ibv);
	if (cq && cq->inherited)
		check_child_uses(NULL, &cq->made, "ibv_poll_cq");
	rpwi_check_unlock();
}

void check_forked_init(void)
{
	struct rpwi_check_hooks *h = dlsym(RTLD_DEFAULT, "ropeway_check_hooks");
	ready = getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE");
	old_kernel = !copies_on_fork();
	if (h)
		h->forks = forks;
	if (rpwi_fork_watch(in_child))
		rpwi_check_unwatched("there was no memory to watch children");
}
