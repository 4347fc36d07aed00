/* SPDX-License-Identifier: BSD-3-Clause */
/* resource.c - the ids of this process, as the kernel's resource tracking lists them. */
#include <unistd.h>

#include "base/lock.h"
#include "ucma/ucma_priv.h"

/* The kernel's enum rdma_cm_state, which no header of its user ABI has. */
static const uint8_t kernel_states[ID_STATE_COUNT] = {
	[ID_IDLE] = 0,
	[ID_BOUND] = 7,
	[ID_ADDR_QUERY] = 1,
	[ID_ADDR_RESOLVED] = 2,
	[ID_ROUTE_RESOLVED] = 4,
	[ID_CONNECT] = 5,
	[ID_DISCONNECT] = 6,
	[ID_LISTEN] = 8,
};

/* A listener on all addresses is on each device. */
static bool is_on(const struct id *id, const char *device)
{
	if (id->real == REAL_ONLY)
		return false;
	return id->dev.device ? !strcmp(id->dev.device->name, device)
			      : id->state == ID_LISTEN && addr_is_any(&id->src.addr);
}

static void address(const struct endpoint *e, struct sockaddr_storage *out)
{
	struct sockaddr_in6 a;
	endpoint_write(e, &a);
	memcpy(out, &a, sizeof(a));
}

static bool look(const struct id *id, pid_t pid, rpwi_resource_visit *visit, void *arg)
{
	struct rpwi_resource r = {.kind = RPWI_RES_CM_ID,
		.id = id->handle,
		.pid = (uint32_t)pid,
		.type = id->qp_type,
		.state = kernel_states[id->state],
		.qpn = id->has_conn ? id->conn.local.qpn : 0,
		.port_space = id->ps};
	address(&id->src, &r.src);
	address(&id->dst, &r.dst);
	return visit(arg, &r);
}

int rpwi_ucma_resources(const char *device, rpwi_resource_visit *visit, void *arg)
{
	bool more = true;
	pid_t pid = getpid();
	if (rpwi_locks_mine.wanted || rpwi_fork_broken)
		return -EBUSY;
	rpwi_gsi_lock();
	for (int fd = 0; fd < RPWI_UCMA_FDS && more; fd++) {
		const struct channel *ch = channel_of(fd);
		for (struct rpwi_list *at = ch && !ch->closed ? ch->ids.next : NULL;
			at && at != &ch->ids && more; at = at->next) {
			const struct id *id = RPWI_CONTAINER_OF(at, struct id, link);
			if (is_on(id, device))
				more = look(id, pid, visit, arg);
		}
	}
	rpwi_gsi_unlock();
	return 0;
}
