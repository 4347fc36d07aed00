/* table.c - who is known, and when something is due: two hash tables and a binary heap over struct rpwi_cm_node. Knows no state and no message. */
#include "cm/internal.h"

/* ---- Hashes: multiply and fold; salted, since peers choose the keys. ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static uint64_t hash_addr(const struct rpwi_cm *cm, const struct rpwi_addr *a)
{
	uint64_t half[2];
	memcpy(half, a->bytes, sizeof(half));
	return mix(mix(cm->salt, half[0]), half[1]);
}

static struct rpwi_list *bucket_id(const struct rpwi_cm *cm, uint32_t remote_id, const struct rpwi_addr *remote)
{
	return &cm->by_id[mix(hash_addr(cm, remote), remote_id) >> 16 & (CM_BUCKETS - 1)];
}

static struct rpwi_list *bucket_qp(const struct rpwi_cm *cm, uint32_t qpn, const uint8_t guid[8], const struct rpwi_addr *remote)
{
	return &cm->by_qp[mix(mix(hash_addr(cm, remote), rpwi_get_be64(guid)), qpn) >> 16 & (CM_BUCKETS - 1)];
}

void rpwi_cm_node_init(struct rpwi_cm_node *n)
{
	memset(n, 0, sizeof(*n));
	rpwi_list_init(&n->by_id);
	rpwi_list_init(&n->by_qp);
}

void rpwi_cm_know_id(struct rpwi_cm *cm, struct rpwi_cm_node *n) { rpwi_list_add_tail(bucket_id(cm, n->remote_id, &n->remote), &n->by_id); }

/* QPN 0 is nobody's: a request that names none (the program's mistake, or XRC) is no reason to refuse the next. */
void rpwi_cm_know_qp(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	if (n->remote_qpn)
		rpwi_list_add_tail(bucket_qp(cm, n->remote_qpn, n->remote_ca_guid, &n->remote), &n->by_qp);
}

void rpwi_cm_forget(struct rpwi_cm_node *n)
{
	rpwi_list_del(&n->by_id);
	rpwi_list_del(&n->by_qp);
}

struct rpwi_cm_node *rpwi_cm_find_id(const struct rpwi_cm *cm, uint32_t remote_id, const struct rpwi_addr *remote, bool sidr)
{
	struct rpwi_list *b = bucket_id(cm, remote_id, remote);
	for (struct rpwi_list *l = b->next; l != b; l = l->next) {
		struct rpwi_cm_node *n = RPWI_CONTAINER_OF(l, struct rpwi_cm_node, by_id);
		if (n->remote_id == remote_id && n->sidr == sidr && rpwi_addr_eq(&n->remote, remote))
			return n;
	}
	return NULL;
}

struct rpwi_cm_node *rpwi_cm_find_qp(const struct rpwi_cm *cm, uint32_t remote_qpn, const uint8_t guid[8], const struct rpwi_addr *remote)
{
	struct rpwi_list *b = bucket_qp(cm, remote_qpn, guid, remote);
	for (struct rpwi_list *l = b->next; l != b; l = l->next) {
		struct rpwi_cm_node *n = RPWI_CONTAINER_OF(l, struct rpwi_cm_node, by_qp);
		if (n->remote_qpn == remote_qpn && !memcmp(n->remote_ca_guid, guid, 8) && rpwi_addr_eq(&n->remote, remote))
			return n;
	}
	return NULL;
}

/* ---- The heap: earliest first. Each node has one timer at most, so it never outgrows the number of IDs. ---- */

static void heap_place(struct rpwi_cm *cm, uint32_t pos, struct rpwi_cm_node *n)
{
	cm->heap[pos] = n;
	n->heap_pos = pos;
}

static void heap_up(struct rpwi_cm *cm, uint32_t pos, struct rpwi_cm_node *n)
{
	for (; pos > 1 && cm->heap[pos / 2]->deadline_ns > n->deadline_ns; pos /= 2)
		heap_place(cm, pos, cm->heap[pos / 2]);
	heap_place(cm, pos, n);
}

static void heap_down(struct rpwi_cm *cm, uint32_t pos, struct rpwi_cm_node *n)
{
	for (uint32_t child; (child = 2 * pos) <= cm->heap_count; pos = child) {
		if (child < cm->heap_count && cm->heap[child + 1]->deadline_ns < cm->heap[child]->deadline_ns)
			child++;
		if (cm->heap[child]->deadline_ns >= n->deadline_ns)
			break;
		heap_place(cm, pos, cm->heap[child]);
	}
	heap_place(cm, pos, n);
}

void rpwi_cm_timer_set(struct rpwi_cm *cm, struct rpwi_cm_node *n, uint64_t deadline_ns)
{
	rpwi_cm_timer_clear(cm, n);
	n->deadline_ns = deadline_ns;
	assert(cm->heap_count < CM_IDS);
	heap_up(cm, ++cm->heap_count, n);
}

void rpwi_cm_timer_clear(struct rpwi_cm *cm, struct rpwi_cm_node *n)
{
	uint32_t pos = n->heap_pos;
	if (!pos)
		return;
	struct rpwi_cm_node *last = cm->heap[cm->heap_count--];
	n->heap_pos = 0;
	if (last == n)
		return;
	if (pos > 1 && cm->heap[pos / 2]->deadline_ns > last->deadline_ns)
		heap_up(cm, pos, last);
	else
		heap_down(cm, pos, last);
}
