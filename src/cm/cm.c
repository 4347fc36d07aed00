/* SPDX-License-Identifier: BSD-3-Clause */
/* cm.c - the engine: its life, communication IDs, deadlines. Allocates here and nowhere else. */
#include "cm/internal.h"

#include <errno.h>
#include <stdlib.h>

const char *const rpwi_cm_state_name[RPWI_CM_STATE_COUNT] = {
	[RPWI_CM_IDLE] = "IDLE",
	[RPWI_CM_REQ_SENT] = "REQ_SENT",
	[RPWI_CM_REP_WAIT] = "REP_WAIT",
	[RPWI_CM_REQ_RCVD] = "REQ_RCVD",
	[RPWI_CM_REP_SENT] = "REP_SENT",
	[RPWI_CM_RTU_WAIT] = "RTU_WAIT",
	[RPWI_CM_REP_RCVD] = "REP_RCVD",
	[RPWI_CM_ESTABLISHED] = "ESTABLISHED",
	[RPWI_CM_DREQ_SENT] = "DREQ_SENT",
	[RPWI_CM_DREQ_RCVD] = "DREQ_RCVD",
	[RPWI_CM_TIMEWAIT] = "TIMEWAIT",
	[RPWI_CM_SIDR_REQ_SENT] = "SIDR_REQ_SENT",
	[RPWI_CM_SIDR_REQ_RCVD] = "SIDR_REQ_RCVD",
};

/* ---- Communication IDs ---- */

/* A peer takes a known ID from a known address for a repetition, so an ID must not come back soon:
 * freed indices wait in a ring, behind those never used. Of the latter any comes next, by chance,
 * with a generation by chance: no ID tells the next one. A 0 in the ring is what it was at first,
 * its place plus 1, so that memory of it is touched as IDs are used. */
static uint32_t index_of(uint32_t id) { return id >> CM_ID_GEN_BITS & (CM_IDS - 1); }

static uint16_t ring_at(const struct rpwi_cm *cm, uint32_t at)
{
	at %= CM_IDS;
	return cm->free_ring[at] ? cm->free_ring[at] : (uint16_t)(at + 1);
}

static uint32_t index_take(struct rpwi_cm *cm)
{
	uint32_t head = cm->free_head++ % CM_IDS;
	uint16_t i = ring_at(cm, head);
	cm->free_count--;
	if (cm->never_used) {
		uint32_t r = cm->ops->random(cm->user),
			 at = (head + (r >> 8) % cm->never_used--) % CM_IDS;
		uint16_t first = i;
		i = ring_at(cm, at);
		cm->free_ring[at] = first;
		cm->gen[i] = (uint8_t)r;
	}
	return i;
}

bool rpwi_cm_id_left(struct rpwi_cm *cm)
{
	return cm->free_count || rpwi_cm_linger_drop_oldest(cm);
}

bool rpwi_cm_id_new(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	if (!rpwi_cm_id_left(cm))
		return false;
	uint32_t i = index_take(cm), gen = ++cm->gen[i] & ((1u << CM_ID_GEN_BITS) - 1);
	cm->node[i] = n;
	n->local_id = (uint32_t)cm->prefix << CM_ID_LOCAL_BITS | i << CM_ID_GEN_BITS | gen;
	return true;
}

void rpwi_cm_id_free(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	uint32_t i = index_of(n->local_id);
	assert(cm->node[i] == n);
	cm->node[i] = NULL;
	n->local_id = 0;
	cm->free_ring[(cm->free_head + cm->free_count) % CM_IDS] = (uint16_t)i;
	cm->free_count++;
}

void rpwi_cm_id_move(struct rpwi_cm *cm, struct rpwi_cm_node *from, struct rpwi_cm_node *to)
{
	to->local_id = from->local_id;
	cm->node[index_of(to->local_id)] = to;
	from->local_id = 0;
}

struct rpwi_cm_node *rpwi_cm_id_find(const struct rpwi_cm *cm, uint32_t id)
{
	struct rpwi_cm_node *n = cm->node[index_of(id)];
	return n && n->local_id == id ? n : NULL;
}

/* ---- Life ---- */

static struct rpwi_list *buckets_new(void)
{
	struct rpwi_list *b = malloc(CM_BUCKETS * sizeof(*b));
	for (unsigned i = 0; b && i < CM_BUCKETS; i++)
		rpwi_list_init(&b[i]);
	return b;
}

int rpwi_cm_new(struct rpwi_cm **out, const struct rpwi_cm_ops *ops, void *user, uint16_t id_prefix)
{
	struct rpwi_cm *cm = calloc(1, sizeof(*cm));
	*out = NULL;
	if (!cm)
		return -ENOMEM;
	cm->ops = ops;
	cm->user = user;
	rpwi_cm_set_prefix(cm, id_prefix);
	rpwi_list_init(&cm->conns);
	rpwi_list_init(&cm->window_waiting);
	rpwi_list_init(&cm->lingers);
	rpwi_list_init(&cm->lingers_free);
	cm->node = calloc(CM_IDS, sizeof(*cm->node));
	cm->gen = calloc(CM_IDS, 1);
	cm->free_ring = calloc(CM_IDS, sizeof(*cm->free_ring));
	bool timers = rpwi_heap_reserve(&cm->timers, CM_IDS);
	cm->linger = calloc(CM_LINGERS_MAX, sizeof(*cm->linger));
	cm->by_id = buckets_new();
	cm->by_qp = buckets_new();
	if (!cm->node || !cm->gen || !cm->free_ring || !timers || !cm->linger || !cm->by_id ||
		!cm->by_qp) {
		rpwi_cm_free(cm);
		return -ENOMEM;
	}
	cm->salt = ops->random(user);
	cm->never_used = cm->free_count = CM_IDS - 1;
	*out = cm;
	return 0;
}

void rpwi_cm_set_prefix(struct rpwi_cm *cm, uint16_t id_prefix) { cm->prefix = id_prefix & 0xfff; }

void rpwi_cm_free(struct rpwi_cm *cm)
{
	if (!cm)
		return;
	assert(rpwi_list_empty(&cm->conns));
	free(cm->node);
	free(cm->gen);
	free(cm->free_ring);
	rpwi_heap_free(&cm->timers);
	free(cm->linger);
	free(cm->by_id);
	free(cm->by_qp);
	free(cm);
}

const struct rpwi_cm_stats *rpwi_cm_stats(const struct rpwi_cm *cm) { return &cm->stats; }

void rpwi_cm_each(struct rpwi_cm *cm, void (*fn)(struct rpwi_cm_conn *c, void *arg), void *arg)
{
	for (struct rpwi_list *l = cm->conns.next, *next; l != &cm->conns; l = next) {
		next = l->next;
		fn(RPWI_CONTAINER_OF(l, struct rpwi_cm_conn, link), arg);
	}
}

/* ---- Sending ---- */

void rpwi_cm_send(struct rpwi_cm *cm, const struct rpwi_cm_path *path, const uint8_t *mad)
{
	uint16_t attr;
	uint32_t id;
	uint64_t service;
	if (rpwi_cm_peek(mad, RPWI_MAD_LEN, &attr, &id, &service))
		cm->stats.tx[attr]++;
	cm->ops->send(cm->user, path, mad);
}

void rpwi_cm_send_msg(
	struct rpwi_cm *cm, const struct rpwi_cm_path *path, const struct rpwi_cm_msg *m)
{
	uint8_t mad[RPWI_MAD_LEN];
	rpwi_cm_encode(m, mad);
	rpwi_cm_send(cm, path, mad);
}

/* ---- Time ---- */

uint64_t rpwi_cm_deadline(const struct rpwi_cm *cm) { return rpwi_heap_deadline(&cm->timers); }

void rpwi_cm_timer(struct rpwi_cm *cm, uint64_t now_ns)
{
	/* Each either ends its wait or sets a deadline after now, so this ends. */
	while (rpwi_cm_deadline(cm) <= now_ns) {
		struct rpwi_cm_node *n =
			RPWI_CONTAINER_OF(rpwi_heap_first(&cm->timers), struct rpwi_cm_node, timer);
		rpwi_cm_timer_clear(cm, n);
		if (n->lingers)
			rpwi_cm_linger_timer(cm, rpwi_cm_node_linger(n), now_ns);
		else
			rpwi_cm_conn_timer(rpwi_cm_node_conn(n), now_ns);
	}
}
