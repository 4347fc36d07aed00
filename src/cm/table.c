/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - who is known, and when something is due: two hash tables and a heap of timers over
 * struct rpwi_cm_node. Knows no state and no message. */
#include "base/hash.h"
#include "cm/internal.h"

/* ---- Hashes; salted, since peers choose the keys. ---- */

static uint64_t hash_addr(const struct rpwi_cm *cm, const struct rpwi_addr *a)
{
	uint64_t half[2];
	memcpy(half, a->bytes, sizeof(half));
	return rpwi_mix(rpwi_mix(cm->salt, half[0]), half[1]);
}

static struct rpwi_list *bucket_id(
	const struct rpwi_cm *cm, uint32_t remote_id, const struct rpwi_addr *remote)
{
	return &cm->by_id[rpwi_mix(hash_addr(cm, remote), remote_id) >> 16 & (CM_BUCKETS - 1)];
}

static struct rpwi_list *bucket_qp(const struct rpwi_cm *cm, uint32_t qpn, const uint8_t guid[8],
	const struct rpwi_addr *remote)
{
	return &cm->by_qp[rpwi_mix(rpwi_mix(hash_addr(cm, remote), rpwi_get_be64(guid)), qpn) >>
				  16 &
			  (CM_BUCKETS - 1)];
}

void rpwi_cm_node_init(struct rpwi_cm_node *n)
{
	memset(n, 0, sizeof(*n));
	rpwi_list_init(&n->by_id);
	rpwi_list_init(&n->by_qp);
}

void rpwi_cm_know_id(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	rpwi_list_add_tail(bucket_id(cm, n->remote_id, &n->remote), &n->by_id);
}

/* QPN 0 is nobody's: a request that names none (the program's mistake, or XRC) is no reason to
 * refuse the next. */
void rpwi_cm_know_qp(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	if (n->remote_qpn)
		rpwi_list_add_tail(
			bucket_qp(cm, n->remote_qpn, n->remote_ca_guid, &n->remote), &n->by_qp);
}

void rpwi_cm_forget(struct rpwi_cm_node *n)
{
	rpwi_list_del(&n->by_id);
	rpwi_list_del(&n->by_qp);
}

struct rpwi_cm_node *rpwi_cm_find_id(
	const struct rpwi_cm *cm, uint32_t remote_id, const struct rpwi_addr *remote, bool sidr)
{
	struct rpwi_list *b = bucket_id(cm, remote_id, remote);
	for (struct rpwi_list *l = b->next; l != b; l = l->next) {
		struct rpwi_cm_node *n = RPWI_CONTAINER_OF(l, struct rpwi_cm_node, by_id);
		if (n->remote_id == remote_id && n->sidr == sidr &&
			rpwi_addr_eq(&n->remote, remote))
			return n;
	}
	return NULL;
}

struct rpwi_cm_node *rpwi_cm_find_qp(const struct rpwi_cm *cm, uint32_t remote_qpn,
	const uint8_t guid[8], const struct rpwi_addr *remote)
{
	struct rpwi_list *b = bucket_qp(cm, remote_qpn, guid, remote);
	for (struct rpwi_list *l = b->next; l != b; l = l->next) {
		struct rpwi_cm_node *n = RPWI_CONTAINER_OF(l, struct rpwi_cm_node, by_qp);
		if (n->remote_qpn == remote_qpn && !memcmp(n->remote_ca_guid, guid, 8) &&
			rpwi_addr_eq(&n->remote, remote))
			return n;
	}
	return NULL;
}

/* ---- Timers ---- */

void rpwi_cm_timer_set(struct rpwi_cm *cm, struct rpwi_cm_node *n, uint64_t deadline_ns)
{
	rpwi_heap_set(&cm->timers, &n->timer, deadline_ns);
}
void rpwi_cm_timer_clear(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	rpwi_heap_del(&cm->timers, &n->timer);
}
