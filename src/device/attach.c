/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.c - the calls by which a program enters and leaves multicast groups. What a group is and
 * does: mcast.c. */
#include <arpa/inet.h>

#include "device/mcast.h"
#include "device/ports.h"
#include "device/progress.h"
#include "explain/verbs.h"

static void account(const struct dqp *q, const union ibv_gid *gid, const char *call, int rc)
{
	char text[INET6_ADDRSTRLEN], failed[96] = "";
	if (RPWI_LIKELY(!rpwi_explain_on))
		return;
	gid_text(gid->raw, text);
	if (rc)
		snprintf(failed, sizeof(failed), ": failed: %s", strerror(-rc));
	rpwi_explain(RPWI_EXPLAIN_CALL, "%s: QP 0x%06x, group %s%s", call, q->t.qpn, text, failed);
}

/* The LID is of InfiniBand subnets (A17.4.5: ignored). */
int rpwi_dev_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct dqp *q = to_dqp(ibv);
	hca_lock_serving();
	rpwi_shield();
	int rc = live_is(LIVE_QP, ibv) ? mcast_attach(q, gid) : -ENOENT;
	if (rc != -ENOENT)
		account(q, gid, "ibv_attach_mcast", rc);
	hca_unlock();
	service_wake(); /* there may be a descriptor more to sleep on */
	return -rc;
}

int rpwi_dev_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct dqp *q = to_dqp(ibv);
	hca_lock();
	int rc = live_is(LIVE_QP, ibv) ? mcast_detach(q, gid) : -ENOENT;
	if (rc != -ENOENT)
		account(q, gid, "ibv_detach_mcast", rc);
	hca_unlock();
	service_wake();
	return -rc;
}
