/* SPDX-License-Identifier: BSD-3-Clause */
/* refresh.c - an address or a link changed: the list of devices is read anew, and contexts get
 * events. */
#include "device/devices.h"
#include "device/gsi_priv.h"

static bool gids_differ(const struct rpwi_netdev *a, const struct rpwi_netdev *b)
{
	if (a->gid_count != b->gid_count)
		return true;
	for (unsigned i = 0; i < a->gid_count; i++)
		if (memcmp(a->gid[i].raw, b->gid[i].raw, sizeof(a->gid[i].raw)) ||
			a->gid[i].usable != b->gid[i].usable)
			return true;
	return false;
}

/* An address or a link changed: the list is read anew, and programs that have a changed device open
 * are told (IB 11.6.3). Called by the service thread, without locks. */
void dev_refresh(void)
{
	enum { MAX = 64 };
	struct {
		struct dev *d;
		struct rpwi_netdev was;
		bool present;
	} before[MAX];
	int n = 0;
	rpwi_lock(RPWI_LOCK_DEVICES);
	for (struct dev *d = dev_first(); d && n < MAX; d = d->next, n++) {
		before[n].d = d;
		before[n].was = d->net;
		before[n].present = d->present;
	}
	hca_lock();
	dev_list_read(NULL);
	hca_unlock();
	for (int i = 0; i < n; i++) {
		struct dev *d = before[i].d;
		bool was_up = before[i].present && before[i].was.up,
		     is_up = d->present && d->net.up;
		bool gids = gids_differ(&before[i].was, &d->net);
		for (struct rpwi_list *l = hca_here.contexts.next; l != &hca_here.contexts;
			l = l->next) {
			struct dctx *c = RPWI_CONTAINER_OF(l, struct dctx, link);
			struct ibv_async_event ev = {.element.port_num = 1};
			if (c->dev != d)
				continue;
			if (was_up != is_up) {
				ev.event_type = is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
				dev_event(c, &ev);
			}
			if (gids) {
				ev.event_type = IBV_EVENT_GID_CHANGE;
				dev_event(c, &ev);
			}
		}
	}
	rpwi_unlock(RPWI_LOCK_DEVICES);
	hca_lock();
	gsi_addresses_changed();
	hca_unlock();
}
