/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.c - communication IDs, and messages on their way out. */
#include "cm/internal.h"

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

bool rpwi_cm_id_new(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	if (!cm->free_count)
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
