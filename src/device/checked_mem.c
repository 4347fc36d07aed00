/* SPDX-License-Identifier: BSD-3-Clause */
/* checked_mem.c - see checked.h: accesses to memory, and why one of them is refused. */
#include "device/checked.h"

#include "check/freed.h"
#include "check/keys.h"
#include "check/overlap.h"
#include "check/queue.h"
#include "check/race.h"
#include "device/board.h"
#include "device/mem.h"

#include <stdio.h>

static struct rpwi_qp_ops device; /* its own calls */

/* ---- requests of peers ---- */

/* False: nothing is wrong with the window, or it is none. */
static bool window_is_wrong(const struct rpwi_qp *t, const struct check_access *a)
{
	const struct dkey *k = mr_find(a->key);
	const struct check_region r = {.iova = k && k->valid ? k->iova : 0,
		.len = k && k->valid ? k->length : 0,
		.access = k && k->valid ? k->access : 0};
	struct rpwi_finding f = {.rule = RPWI_RULE_KEY_STALE};
	if (!k || !k->is_mw)
		return false;
	if (!k->valid)
		snprintf(f.text, sizeof(f.text), "the memory window is not bound, or not any more");
	else if (k->qpn && k->qpn != t->qpn) {
		f.rule = RPWI_RULE_KEY_PD;
		snprintf(f.text, sizeof(f.text),
			"the memory window is bound to QP 0x%06x, and the request came to another",
			k->qpn);
	} else if (!check_region_judge(a, &r, &f)) {
		return false;
	}
	check_window_refused(t->qpn, a, f.rule, f.text);
	return true;
}

static void refuses(struct rpwi_qp *t, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
	const struct check_access a = {.pd = check_pd_root(&dqp_of(t)->pd->ibv),
		.key = rkey,
		.access = access,
		.addr = addr,
		.len = len,
		.remote = true};
	if (!window_is_wrong(t, &a))
		check_remote_refused(t->qpn, &a);
}

/* An operation of the peer that was granted. */
struct granted {
	uint32_t rkey;
	int access;
	uint64_t addr, len;
	uint64_t begins; /* of an operation that begins here, all its bytes; 0: it began before */
};

static enum race_kind kind_of(int access)
{
	if (access == IBV_ACCESS_REMOTE_READ)
		return RACE_READS;
	return access == IBV_ACCESS_REMOTE_ATOMIC ? RACE_ATOMIC : RACE_WRITES;
}

static void reached(struct rpwi_qp *t, const struct granted *g)
{
	if (!rpwi_check_lock())
		return;
	if (g->access != IBV_ACCESS_REMOTE_READ)
		check_key_written(t->qpn, g->rkey, g->addr, g->len);
	check_freed_reached(t->qpn, g->rkey, g->addr, g->len);
	const struct check_qp *q =
		g->begins && rpwi_check_wants(RPWI_RULE_RACE) ? check_qpn_find(t->qpn) : NULL;
	if (q)
		race_arrives(
			q, kind_of(g->access), g->addr, check_key_at(g->rkey, g->addr), g->begins);
	rpwi_check_unlock();
}

/* A request of the peer ends with `rc`. */
static int ends(struct rpwi_qp *t, const struct granted *g, int rc)
{
	if (rc)
		refuses(t, g->rkey, g->addr, g->len, g->access);
	else if (g->len)
		reached(t, g);
	return rc;
}

/* A READ is checked as a whole before its first byte is read, a WRITE before its first packet is
 * taken. */
static int look(
	struct rpwi_qp *t, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	int rc = device.mem_check(t, key, addr, len, access, remote);
	const struct granted g = {key, access, addr, len, len};
	return remote && (rc || access == IBV_ACCESS_REMOTE_READ) ? ends(t, &g, rc) : rc;
}

/* Of a message, into a receive; or of the answer to a READ. Of interest where sends have the same
 * memory. */
static int received(struct rpwi_qp *t, uint32_t lkey, uint64_t addr, uint32_t len, int rc)
{
	if (rc || !len || !check_overlap_shares || !rpwi_check_lock())
		return rc;
	check_key_received(t->qpn, lkey, addr, len, t->sq_cur != t->sq_tail);
	rpwi_check_unlock();
	return rc;
}

static int receive(struct rpwi_qp *t, uint32_t lkey, uint64_t addr, const void *src, uint32_t len)
{
	return received(t, lkey, addr, len, device.mem_receive(t, lkey, addr, src, len));
}

static int write_to(
	struct rpwi_qp *t, uint32_t key, uint64_t addr, const void *src, uint32_t len, bool remote)
{
	/* the responder is within a message once its first packet was taken */
	uint64_t begins = t->write_left == t->write_len ? t->write_len : 0;
	int rc = device.mem_write(t, key, addr, src, len, remote);
	const struct granted g = {key, IBV_ACCESS_REMOTE_WRITE, addr, len, begins};
	return remote ? ends(t, &g, rc) : received(t, key, addr, len, rc);
}

/* Its look was before. */
static int read_from(
	struct rpwi_qp *t, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote)
{
	int rc = device.mem_read(t, key, addr, dst, len, remote);
	if (rc && remote)
		refuses(t, key, addr, len, IBV_ACCESS_REMOTE_READ);
	return rc;
}

static int atomic(struct rpwi_qp *t, uint32_t rkey, uint64_t addr, bool cmp_swap, uint64_t compare,
	uint64_t swap_add, uint64_t *orig)
{
	const struct granted g = {rkey, IBV_ACCESS_REMOTE_ATOMIC, addr, 8, 8};
	return ends(t, &g, device.mem_atomic(t, rkey, addr, cmp_swap, compare, swap_add, orig));
}

static int atomic_write(struct rpwi_qp *t, uint32_t rkey, uint64_t addr, const void *value)
{
	const struct granted g = {rkey, IBV_ACCESS_REMOTE_WRITE, addr, 8, 8};
	return ends(t, &g, device.mem_atomic_write(t, rkey, addr, value));
}

static int bind(struct rpwi_qp *t, const struct rpwi_bind *b)
{
	const struct dkey *k = mr_place(b->mw_key);
	bool left = k && k->is_mw && k->valid && k->qpn;
	uint32_t key = k ? k->key : 0;
	int rc = device.bind_mw(t, b);
	if (!rc && k && k->key != key)
		check_window_gone(key, NULL);
	const struct check_access a = {.pd = check_pd_root(&dqp_of(t)->pd->ibv),
		.key = b->mr_key,
		.access = IBV_ACCESS_MW_BIND,
		.addr = b->addr,
		.len = b->length};
	if (rc && left)
		check_window_left(t->qpn, b->mw_key, true);
	else if (rc)
		check_bind_refused(t->qpn, &a);
	return rc;
}

void checked_memory(struct rpwi_qp_ops *ops)
{
	device = *ops;
	ops->mem_check = look;
	ops->mem_write = write_to;
	ops->mem_read = read_from;
	ops->mem_receive = receive;
	ops->mem_atomic = atomic;
	ops->mem_atomic_write = atomic_write;
	ops->bind_mw = bind;
}

/* ---- a request of ours was refused ---- */

void checked_refused(struct rpwi_qp *t, const struct ibv_wc *wc)
{
	struct check_region r;
	uint32_t rkey = check_rkey_of(t->qpn, wc->wr_id);
	enum board_tells tells =
		rkey ? board_key_look(t, rkey, &r.iova, &r.len, &r.access) : BOARD_TELLS_NOTHING;
	r.pd = NULL;
	if (tells != BOARD_TELLS_NOTHING)
		check_peer_refused(t->qpn, wc->wr_id, tells == BOARD_TELLS_REGION ? &r : NULL);
}
