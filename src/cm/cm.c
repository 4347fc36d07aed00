/* SPDX-License-Identifier: BSD-3-Clause */
/* cm.c - the engine: its life and deadlines. Allocates here and nowhere else. */
#include "cm/internal.h"

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
