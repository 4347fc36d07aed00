/* SPDX-License-Identifier: BSD-3-Clause */
/* steer.c - the slots of this process, and what ropeway processes of one network namespace say to
 * each other over their connections (line.c; their names: dest.c). What they say is handed on:
 * packets to handover.c (which says whom it trusts), answers to group.c and pace.c. Never touches a
 * UDP socket.
 *
 * What steers (places in the port group) is believed of our own user alone, because port groups are
 * of one user; of strangers only who shares the port with them hears anything at all.
 */
#include "io/steer_priv.h"

#include "base/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MSGS_A_CALL = 64 /* messages dealt with in one rpwi_steer_recv */ };

static struct rpwi_steer *open_steers; /* one; for fork */

/* ---- slots ---- */

/* Those who share the port with strangers have slots of their own: packets for any other slot are
 * never handed to a stranger, even after its owner has ended and another has its name. */
static unsigned first_slot(void) { return rpwi_who_shares() ? IO_SHARED_SLOT_MIN : 1; }
static unsigned slots_of_our_kind(void)
{
	return rpwi_who_shares() ? RPWI_SLOT_MAX - IO_SHARED_SLOT_MIN + 1 : IO_SHARED_SLOT_MIN - 1;
}

/* Begin anywhere: a QPN of a process that has ended should not come back soon (its peers may still
 * send to it). */
static int claim_some(struct rpwi_lines *ls, struct io_line **l)
{
	unsigned n = slots_of_our_kind(), start = (unsigned)(rpwi_random64() % n);
	for (unsigned i = 0; i < n; i++) {
		unsigned no = first_slot() + (start + i) % n;
		int rc = rpwi_lines_listen(ls, &(struct io_dest){.slot = (uint16_t)no}, l);
		if (!rc)
			return (int)no;
		if (rc != -EADDRINUSE)
			return rc;
	}
	return -ENOSPC;
}

int rpwi_steer_claim(struct rpwi_steer *s, uint16_t *slot)
{
	if (!s->lines)
		return -ENETDOWN;
	if (s->nslots == IO_SLOTS_MAX)
		return -ENOSPC;
	struct io_line *l;
	struct stat st;
	int no = claim_some(s->lines, &l);
	if (no < 0)
		return no;
	if (!s->nslots && !fstat(l->fd, &st))
		s->inode = st.st_ino;
	s->slot[s->nslots++] = (uint16_t)no;
	s->owned[no / 64] |= 1ull << no % 64;
	rpwi_lanes_own(s->lanes, (uint16_t)no);
	*slot = (uint16_t)no;
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
		rpwi_group_renew(rpwi_port_group(p), rpwi_now_ns());
	return 0;
}

struct tally {
	struct rpwi_who who;
	unsigned slots;
};

/* Who has how many; the slots of whom we cannot tell are nobody's. Only asked when there are none
 * left: a connection for each. */
static unsigned count_owners(struct tally *t, unsigned max, unsigned *untold)
{
	rpwi_shield();
	unsigned n = 0;
	*untold = 0;
	for (unsigned i = 0; i < slots_of_our_kind(); i++) {
		char name[RPWI_NAME_MAX];
		struct rpwi_who w;
		int fd = rpwi_name_connect(
			rpwi_dest_name(
				&(struct io_dest){.slot = (uint16_t)(first_slot() + i)}, name),
			&w);
		unsigned k = 0;
		if (fd < 0) {
			++*untold;
			continue;
		}
		close(fd);
		while (k < n && (t[k].who.pid != w.pid || t[k].who.uid != w.uid))
			k++;
		if (k == max)
			continue;
		if (k == n)
			t[n++] = (struct tally){.who = w};
		t[k].slots++;
	}
	return n;
}

void rpwi_steer_explain_full(char *why, size_t why_len)
{
	enum { TALLIES = 512 };
	struct tally *t = calloc(TALLIES, sizeof(*t));
	unsigned untold = 0, n = t ? count_owners(t, TALLIES, &untold) : 0, most = 0;
	char who[RPWI_WHO_TEXT], rest[80] = "";
	for (unsigned i = 1; i < n; i++)
		if (t[i].slots > t[most].slots)
			most = i;
	if (untold)
		snprintf(rest, sizeof(rest),
			"; %u by sockets that no process listens on (`ss -xlp | grep ropeway`)",
			untold);
	if (n)
		snprintf(why, why_len,
			"all %u slots of QP numbers of this network namespace are taken, %u of "
			"them by %s%s: end it, or use a network namespace of your own",
			slots_of_our_kind(), t[most].slots, rpwi_who_text(&t[most].who, who), rest);
	else
		snprintf(why, why_len,
			"all %u slots of QP numbers of this network namespace are taken%s: use a "
			"network namespace of your own",
			slots_of_our_kind(), rest);
	free(t);
}

int rpwi_steer_open(struct rpwi_steer **out)
{
	uint16_t slot;
	struct rpwi_steer *s = calloc(1, sizeof(*s));
	*out = NULL;
	if (!s)
		return -ENOMEM;
	rpwi_who_begin();
	s->over = rpwi_handover_new();
	s->lines = rpwi_lines_new();
	s->claims = s->lines ? rpwi_claims_new(s->lines) : NULL;
	s->lanes = s->lines ? rpwi_lanes_new(s->lines) : NULL;
	int rc = s->over && s->claims && s->lanes ? 0 : -ENOMEM;
	if (!rc)
		rc = rpwi_pace_new(&s->pace);
	if (!rc)
		rc = rpwi_steer_claim(s, &slot);
	if (rc) {
		rpwi_steer_close(s);
		return rc;
	}
	open_steers = s;
	*out = s;
	return 0;
}

static void close_lines(struct rpwi_steer *s)
{
	rpwi_claims_free(s->claims);
	rpwi_lines_free(s->lines);
	rpwi_lanes_free(s->lanes);
	s->lanes = NULL;
	s->claims = NULL;
	s->lines = NULL;
	s->nslots = 0;
	memset(s->owned, 0, sizeof(s->owned));
	if (s->over)
		rpwi_handover_forget(s->over);
}

void rpwi_steer_close(struct rpwi_steer *s)
{
	if (!s)
		return;
	if (open_steers == s)
		open_steers = NULL;
	close_lines(s);
	rpwi_pace_free(s->pace);
	rpwi_handover_free(s->over);
	free(s);
}

void rpwi_steer_forget(void)
{
	if (open_steers)
		close_lines(open_steers);
	open_steers = NULL;
}

void rpwi_steer_inherit(struct rpwi_steer *s)
{
	if (s->lines)
		rpwi_lines_heir(s->lines);
}

static enum io_owner owner_of(struct rpwi_steer *s, uint16_t slot)
{
	bool is_one = slot >= 1 && slot <= RPWI_SLOT_MAX;
	return is_one && s->lines ? rpwi_lines_owner(s->lines, &(struct io_dest){.slot = slot})
				  : IO_OWNER_NOBODY;
}
bool rpwi_steer_slot_exists(struct rpwi_steer *s, uint16_t slot)
{
	return owner_of(s, slot) != IO_OWNER_NOBODY;
}
bool rpwi_steer_slot_reachable(struct rpwi_steer *s, uint16_t slot)
{
	enum io_owner o = owner_of(s, slot);
	return o == IO_OWNER_US || (o == IO_OWNER_STRANGER && rpwi_slot_is_shared(slot));
}

/* ---- services ---- */

int rpwi_steer_claim_service(
	struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *addr)
{
	return s->claims ? rpwi_claims_add(s->claims, service_id, addr) : -ENETDOWN;
}

void rpwi_steer_unclaim_service(
	struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *addr)
{
	if (s->claims)
		rpwi_claims_del(s->claims, service_id, addr);
}

bool rpwi_steer_owns_service(
	const struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *local)
{
	return s->claims && rpwi_claims_cover(s->claims, service_id, local);
}

/* ---- telling, and listening ---- */

static void handle(struct rpwi_steer *s, struct io_line *l, struct io_heard *got)
{
	struct io_msg *m = &got->msg;
	struct io_msg answer = {.type = IO_MSG_PAGE_ANSWER, .cookie = m->cookie, .index = m->index};
	if (m->type == IO_MSG_PROBE_ANSWER && l->kind == IO_LINE_IN && l->who.us) {
		for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
			rpwi_group_answer(rpwi_port_group(p), m);
	} else if (m->type == IO_MSG_PAGE_ASK && l->kind == IO_LINE_IN) {
		int page = rpwi_pace_fd(s->pace);
		if (owns_slot(s, m->index % 4096))
			rpwi_message_answer(l, &answer, &page, 1);
	} else if (m->type == IO_MSG_PAGE_ANSWER && l->kind == IO_LINE_OUT) {
		if (got->fd[0] >= 0 && m->index <= RPWI_SLOT_MAX) {
			rpwi_pace_answer(s->pace, (uint16_t)m->index, m->cookie, got->fd[0]);
			got->fd[0] = -1;
		}
	} else if (m->type == IO_MSG_LANE_OFFER && l->kind == IO_LINE_IN && l->who.us) {
		if (owns_slot(s, m->index % 4096))
			rpwi_lanes_offered(s->lanes, l, m, got->fd);
	} else if (m->type == IO_MSG_LANE_ANSWER && l->kind == IO_LINE_OUT && l->who.us) {
		rpwi_lanes_answered(s->lanes, l, m, got->fd);
	} else {
		rpwi_debug("message of type %u from user %u: unknown, or not trusted", m->type,
			l->who.uid);
	}
	rpwi_rights_close(got->fd, RPWI_RIGHTS_MAX);
}

static bool next_taken(struct rpwi_steer *s, struct rpwi_rx *rx)
{
	if (!rpwi_handover_next(s->over, rx))
		return false;
	if (!rpwi_ports_receive())
		rpwi_pace_arrived(
			s->pace, (unsigned)((rx->len + rx->seg_len - 1) / rx->seg_len), rx->len);
	return true;
}

/* Deal with what others ask, until a message brings packets (true: they wait in s->over) or nothing
 * is there. The lines have their turns, a message each. */
static bool serve(struct rpwi_steer *s)
{
	struct io_heard got;
	struct io_line *l;
	size_t room;
	uint8_t *buf = rpwi_handover_buf(s->over, &room);
	for (unsigned i = 0; i < MSGS_A_CALL && s->lines && (l = rpwi_lines_ready(s->lines)); i++) {
		int rc = rpwi_message_hear(l->fd, &got, buf, room);
		if (rc < 0 && rc != -EBADMSG)
			rpwi_lines_drop(s->lines, l);
		if (rc <= 0)
			continue;
		if (got.msg.type != IO_MSG_PACKETS || l->kind != IO_LINE_IN) {
			handle(s, l, &got);
			continue;
		}
		rpwi_rights_close(got.fd, RPWI_RIGHTS_MAX);
		rpwi_handover_arrived(s->over, &l->who, got.len);
		return true;
	}
	return false;
}

void rpwi_steer_serve(struct rpwi_steer *s)
{
	if (!rpwi_handover_pending(s->over))
		serve(s);
}

int rpwi_steer_recv(struct rpwi_steer *s, struct rpwi_rx *rx)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return 0;
	do {
		if (next_taken(s, rx))
			return 1;
	} while (serve(s));
	return 0;
}

/* ---- pacing ---- */

unsigned rpwi_steer_room(struct rpwi_steer *s, uint32_t qpn, unsigned pkts, size_t bytes)
{
	uint16_t slot = rpwi_slot_of(qpn);
	return rpwi_pace_room(s->pace, s, slot, owns_slot(s, slot), pkts, bytes);
}

void rpwi_steer_unused(struct rpwi_steer *s, unsigned pkts) { rpwi_pace_unused(s->pace, pkts); }
