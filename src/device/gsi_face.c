/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_face.c - what rdma_cm (gsi.h) asks of QP 1 and of devices that needs the whole HCA: the
 * lock, the engine, claims. */
#include "device/devices.h"
#include "device/gsi.h"

#include "device/gsi_priv.h"
#include "device/progress.h"

static const uint64_t LIST_FRESH_NS = 200 * RPWI_NS_PER_MS;

void rpwi_gsi_lock(void)
{
	atomic_fetch_add_explicit(&hca_here.commands, 1, memory_order_relaxed);
	hca_lock();
	uint64_t now = hca_here.opens ? 0 : rpwi_now_ns();
	/* the service thread keeps the list of devices, or it was read a moment ago: it takes
	 * longer than most commands */
	if (hca_here.opens ||
		(hca_here.list_renewed_ns && now - hca_here.list_renewed_ns < LIST_FRESH_NS))
		return;
	hca_here.list_renewed_ns = now;
	hca_unlock();
	dev_list_renew();
	hca_lock();
}

void rpwi_gsi_unlock(void)
{
	hca_unlock();
	atomic_fetch_sub_explicit(&hca_here.commands, 1, memory_order_relaxed);
}

uint64_t rpwi_gsi_now(void) { return rpwi_now_ns(); }

/* What serves connections within this host where the loopback interface's device is hidden: the
 * first device that programs see, by an address of the family if it has one. */
static const struct dev *stand_in(unsigned family, unsigned *index)
{
	const struct dev *best = NULL;
	bool best_fits = false;
	for (const struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && !d->net.hidden && i < d->net.gid_count; i++) {
			const struct rpwi_gid *g = &d->net.gid[i];
			bool fits = g->addr.family == family;
			if (!d->net.up || !g->usable || g->addr.scope ||
				(best && (fits == best_fits ? d->place >= best->place : !fits)))
				continue;
			best = d;
			best_fits = fits;
			*index = i;
		}
	return best;
}

int rpwi_gsi_local(const struct rpwi_addr *local, struct rpwi_gsi_local *out)
{
	unsigned index = 0;
	const struct dev *d = gsi_dev_of(local, &index);
	bool stands_in = d && d->net.hidden;
	if (stands_in)
		d = d->net.loopback ? stand_in(local->family, &index) : NULL;
	if (!d)
		return -EADDRNOTAVAIL;
	*out = (struct rpwi_gsi_local){.device = (struct ibv_device *)(uintptr_t)&d->ibv,
		.stands_in = stands_in,
		.guid = rpwi_dev_get_guid(&d->ibv),
		.index = d->index,
		.gid_index = index,
		.mtu = (uint8_t)dev_mtu(d),
		.ifindex = d->net.ifindex};
	memcpy(out->gid, d->net.gid[index].raw, 16);
	return 0;
}

unsigned rpwi_gsi_addresses(struct rpwi_addr *out, unsigned max)
{
	unsigned n = 0;
	for (const struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && i < d->net.gid_count && n < max; i++) {
			const struct rpwi_gid *g = &d->net.gid[i];
			bool known = !g->usable || (d->net.hidden && !d->net.loopback);
			for (unsigned k = 0; k < n && !known; k++)
				known = rpwi_addr_eq(&out[k], &g->addr) &&
					out[k].scope == g->addr.scope;
			if (!known)
				out[n++] = g->addr;
		}
	return n;
}

/* A child of a fork that goes on with what it inherited: see place_leave_to_parent. */
static void serve_again(void)
{
	if (RPWI_UNLIKELY(hca_here.opens && !hca_here.service_running))
		service_start();
}

int rpwi_gsi_get(struct rpwi_cm **out)
{
	int rc = hca_get();
	if (rc)
		return rc;
	serve_again();
	rc = gsi_engine_get(out);
	if (rc)
		hca_put();
	return rc;
}

void rpwi_gsi_put(void)
{
	gsi_engine_put();
	hca_put();
}

/* ---- claims ---- */

int rpwi_gsi_claim(uint64_t service_id, const struct rpwi_addr *addr)
{
	return hca_here.steer ? rpwi_steer_claim_service(hca_here.steer, service_id, addr)
			      : -ENETDOWN;
}

void rpwi_gsi_unclaim(uint64_t service_id, const struct rpwi_addr *addr)
{
	if (hca_here.steer)
		rpwi_steer_unclaim_service(hca_here.steer, service_id, addr);
}

void rpwi_gsi_kick(void)
{
	struct hca *h = &hca_here;
	serve_again();
	if (atomic_load_explicit(&h->service_sleeps, memory_order_relaxed) &&
		RPWI_MIN(gsi_deadline(), gsi_defer_deadline()) < h->service_wake_ns)
		service_wake();
}
