/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.c - the services that this process has claimed: each a name at which we listen (line.c), to
 * whose listener others of our user hand over the requests that land at them. Two users may have
 * the same service each: what lands at one user's port is that user's.
 *
 * A claim on all addresses and one on a single address exclude each other. Each has a name of its
 * own, so the kernel cannot see to it: whoever claims listens first, then looks for the other kind,
 * and gives way. Two who do so at the same moment may both give way; never do both stay. All who
 * look are of one user and run this code; what strangers bind is not looked at.
 *
 * A process that shares its port with strangers (ROPEWAY_SHARE_PORT) claims a second name, which is
 * one for all users who do.
 */
#include "io/io_priv.h"

#include "base/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLAIMS_MAX = 65536, LOOKED_AT_MAX = 1024 };

struct claim {
	struct io_dest name;
	struct io_line *own, *shared;
};

struct rpwi_claims {
	struct rpwi_lines *lines;
	struct claim *at;
	unsigned n, room;
};

struct rpwi_claims *rpwi_claims_new(struct rpwi_lines *ls)
{
	struct rpwi_claims *c = calloc(1, sizeof(*c));
	if (c)
		c->lines = ls;
	return c;
}

void rpwi_claims_free(struct rpwi_claims *c)
{
	if (!c)
		return;
	free(c->at);
	free(c);
}

static bool is_held(const char *name, bool by_us)
{
	rpwi_shield();
	struct rpwi_who who;
	int fd = rpwi_name_connect(name, &who);
	if (fd < 0 && fd != -EAGAIN)
		return false;
	if (fd >= 0)
		close(fd);
	return who.us || !by_us;
}

/* Is the service claimed on some single address? Nobody keeps a list of names but the kernel: "...
 * flags type state inode @name", flags 10000 for a listener. Of all these, the owner is asked for;
 * no more of them than a user of this host can need. */
static bool claimed_on_one(const struct io_dest *all)
{
	char line[512], name[RPWI_NAME_MAX];
	bool found = false;
	unsigned looked_at = 0;
	size_t n = strlen(rpwi_dest_name(all, name)) - strlen("*");
	FILE *f = fopen("/proc/net/unix", "re");
	while (f && !found && looked_at < LOOKED_AT_MAX && fgets(line, sizeof(line), f)) {
		char *at = strstr(line, " @");
		if (!at || !strstr(line, " 00010000 ") || strncmp(at + 2, name, n) ||
			at[2 + n] == '*')
			continue;
		at[strcspn(at, "\n")] = 0;
		looked_at++;
		found = is_held(at + 2, !all->shared);
	}
	if (f)
		fclose(f);
	return found;
}

static bool other_kind_claimed(const struct io_dest *d)
{
	char name[RPWI_NAME_MAX];
	struct io_dest all = *d;
	all.addr = (struct rpwi_addr){0};
	return d->addr.family ? is_held(rpwi_dest_name(&all, name), !d->shared) : claimed_on_one(d);
}

static int room_for_one(struct rpwi_claims *c)
{
	if (c->n < c->room)
		return 0;
	if (c->n == CLAIMS_MAX)
		return -ENOSPC;
	unsigned room = c->room ? c->room * 2 : 8;
	struct claim *at = realloc(c->at, room * sizeof(*at));
	if (!at)
		return -ENOMEM;
	c->at = at;
	c->room = room;
	return 0;
}

/* One name of a claim, or -EADDRINUSE, -EADDRNOTAVAIL (as the kernel calls it when the other kind
 * is claimed), or another -errno. */
static int take_name(struct rpwi_claims *c, const struct io_dest *name, struct io_line **out)
{
	rpwi_shield();
	struct rpwi_who who;
	char text[RPWI_NAME_MAX], whose[RPWI_WHO_TEXT];
	int rc = rpwi_lines_listen(c->lines, name, out);
	if (rc == -EADDRINUSE) {
		int fd = rpwi_name_connect(rpwi_dest_name(name, text), &who);
		if ((fd >= 0 || fd == -EAGAIN) && !who.us && !name->shared)
			rpwi_warn(
				"@%s, the name of one of our services, is held by %s: that process "
				"gets nothing through it, but this service ID cannot be used",
				text, rpwi_who_text(&who, whose));
		if (fd >= 0)
			close(fd);
	}
	if (!rc && other_kind_claimed(name)) {
		rpwi_lines_unlisten(c->lines, *out);
		rc = -EADDRNOTAVAIL;
	}
	return rc;
}

int rpwi_claims_add(struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr)
{
	struct claim k = {.name = {.service_id = service_id, .addr = *addr}};
	struct io_dest shared = k.name;
	int rc = room_for_one(c);
	if (!rc)
		rc = take_name(c, &k.name, &k.own);
	if (!rc && rpwi_who_shares()) {
		shared.shared = true;
		rc = take_name(c, &shared, &k.shared);
		if (rc)
			rpwi_lines_unlisten(c->lines, k.own);
	}
	if (!rc)
		c->at[c->n++] = k;
	return rc;
}

static struct claim *find(const struct rpwi_claims *c, const struct io_dest *name)
{
	for (unsigned i = 0; i < c->n; i++)
		if (rpwi_dest_eq(&c->at[i].name, name))
			return &c->at[i];
	return NULL;
}

void rpwi_claims_del(struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr)
{
	struct claim *k = find(c, &(struct io_dest){.service_id = service_id, .addr = *addr});
	if (!k)
		return;
	rpwi_lines_unlisten(c->lines, k->own);
	if (k->shared)
		rpwi_lines_unlisten(c->lines, k->shared);
	*k = c->at[--c->n];
}

bool rpwi_claims_cover(
	const struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr)
{
	return find(c, &(struct io_dest){.service_id = service_id, .addr = *addr}) ||
	       find(c, &(struct io_dest){.service_id = service_id});
}
