/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.c - rdma_resolve_addr: the host is looked for until it is found, or the program's time is
 * over, as the kernel's ib_core does (drivers/infiniband/core/addr.c: process_one_req). */
#include "ucma/ucma_priv.h"

enum { FIRST_STEP_NS = 500 * 1000, MOST_STEP_NS = 50 * 1000 * 1000 };

static struct rpwi_list asking = {&asking, &asking};

static void (*done)(struct id *id, int status);

void resolve_begin(struct id *id, void (*then)(struct id *id, int status))
{
	uint64_t now_ns = rpwi_gsi_now();
	done = then;
	struct rpwi_route r = rpwi_netdev_route(&id->dst.addr);
	if (!rpwi_neighbor_begin(&id->neighbor, &id->src.addr, &id->dst.addr, &r, now_ns)) {
		done(id, 0);
		return;
	}
	id->state = ID_ADDR_QUERY;
	id->ask_until_ns = now_ns + id->resolve_ms * RPWI_NS_PER_MS;
	id->ask_step_ns = FIRST_STEP_NS;
	id->ask_again_ns = now_ns + id->ask_step_ns;
	rpwi_list_add_tail(&asking, &id->asking);
	rpwi_gsi_kick();
}

uint64_t resolve_deadline(void *user)
{
	uint64_t at = RPWI_NEVER;
	for (struct rpwi_list *l = asking.next; l != &asking; l = l->next)
		at = RPWI_MIN(at, RPWI_CONTAINER_OF(l, struct id, asking)->ask_again_ns);
	return at;
}

static void look(struct id *id, uint64_t now_ns)
{
	char text[64];
	bool missing = rpwi_neighbor_missing(&id->neighbor, now_ns);
	if (missing && now_ns < id->ask_until_ns) {
		id->ask_step_ns = RPWI_MIN(2 * id->ask_step_ns, (uint64_t)MOST_STEP_NS);
		id->ask_again_ns = RPWI_MIN(now_ns + id->ask_step_ns, id->ask_until_ns);
		return;
	}
	rpwi_list_del(&id->asking);
	if (missing)
		rpwi_warn("rdma_resolve_addr: no host of this subnet answers at %s",
			endpoint_text(&id->dst, text));
	done(id, missing ? -ETIMEDOUT : 0);
}

void resolve_timer(void *user, uint64_t now_ns)
{
	for (struct rpwi_list *l = asking.next, *next; l != &asking; l = next) {
		struct id *id = RPWI_CONTAINER_OF(l, struct id, asking);
		next = l->next;
		if (id->ask_again_ns <= now_ns)
			look(id, now_ns);
	}
}
