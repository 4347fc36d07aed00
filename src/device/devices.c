/* SPDX-License-Identifier: BSD-3-Clause */
/* devices.c - the list of devices: all that were ever seen, and which of them are there now. */
#include <stdlib.h>

#include "device/devices.h"
#include "device/hca.h"

/* all that were ever seen, in the order seen; never freed: programs keep pointers */
static struct {
	struct dev *first;
	bool names_checked;
} list;

static struct dev *dev_find(const char *name)
{
	for (struct dev *d = list.first; d; d = d->next)
		if (!strcmp(d->net.name, name))
			return d;
	return NULL;
}

static struct dev *dev_new(const struct rpwi_netdev *net)
{
	struct dev *d = calloc(1, sizeof(*d)), **end = &list.first;
	if (!d)
		return NULL;
	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	d->index = (int)rpwi_netdev_uverbs(net);
	snprintf(d->ibv.name, sizeof(d->ibv.name), "%s", net->name);
	unsigned uverbs = rpwi_netdev_uverbs(net);
	snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "uverbs%u", uverbs);
	snprintf(d->ibv.dev_path, sizeof(d->ibv.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
		uverbs);
	snprintf(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), "/sys/class/infiniband/%s",
		net->name);
	while (*end)
		end = &(*end)->next;
	*end = d;
	return d;
}

/* Said once: the list is read again and again. */
static void names_check(const struct rpwi_netdev *nets, unsigned n)
{
	char name[64];
	if (list.names_checked || !rpwi_netdev_unknown(nets, n, name, sizeof(name)))
		return;
	list.names_checked = true;
	rpwi_warn("ROPEWAY_DEVICES names '%s', but no interface and no software device is called "
		  "that; `ropeway devices` lists them",
		name);
}

/* Hidden ones are kept, too: their addresses are this host's. */
int dev_list_read(struct ibv_device ***out)
{
	struct rpwi_netdev *nets = NULL;
	unsigned all = 0;
	int n = rpwi_netdev_list(&nets, &all);
	if (n < 0)
		return n;
	names_check(nets, all);
	struct ibv_device **shown = calloc((size_t)n + 1, sizeof(*shown));
	if (!shown) {
		free(nets);
		return -ENOMEM;
	}
	for (struct dev *d = list.first; d; d = d->next)
		d->present = false;
	int have = 0;
	for (unsigned i = 0; i < all; i++) {
		struct dev *d = dev_find(nets[i].name);
		if (!d)
			d = dev_new(&nets[i]);
		if (!d)
			continue;
		d->net = nets[i];
		d->place = i;
		d->present = true;
		if (!d->net.hidden)
			shown[have++] = &d->ibv;
	}
	free(nets);
	if (out)
		*out = shown;
	else
		free(shown);
	return have;
}

void dev_list_renew(void)
{
	rpwi_lock(RPWI_LOCK_DEVICES);
	hca_lock();
	int n = dev_list_read(NULL);
	hca_unlock();
	rpwi_unlock(RPWI_LOCK_DEVICES);
	if (n < 0)
		rpwi_error("cannot read the interfaces: %s", strerror(-n));
}

struct dev *dev_first(void) { return list.first; }

struct ibv_device **rpwi_dev_get_list(int *num)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_get_device_list");
	struct ibv_device **shown = NULL;
	rpwi_lock(RPWI_LOCK_DEVICES);
	hca_lock();
	int n = dev_list_read(&shown);
	hca_unlock();
	rpwi_unlock(RPWI_LOCK_DEVICES);
	if (num)
		*num = RPWI_MAX(n, 0);
	if (n < 0)
		errno = -n;
	return shown;
}

bool rpwi_dev_owns_device(const struct ibv_device *dev)
{
	bool ours = false;
	if (rpwi_fork_broken)
		return false;
	rpwi_lock(RPWI_LOCK_DEVICES);
	for (struct dev *d = list.first; d && !ours; d = d->next)
		ours = &d->ibv == dev;
	rpwi_unlock(RPWI_LOCK_DEVICES);
	return ours;
}

/* The context's abi_compat alone would be read from memory that may not be ours: the list says. */
bool rpwi_dev_owns_context(const struct ibv_context *c)
{
	bool ours = false;
	if (rpwi_fork_broken)
		return false;
	rpwi_lock(RPWI_LOCK_DEVICES);
	for (struct rpwi_list *l = hca_here.contexts.next; l != &hca_here.contexts && !ours;
		l = l->next)
		ours = &RPWI_CONTAINER_OF(l, struct dctx, link)->v.context == c;
	rpwi_unlock(RPWI_LOCK_DEVICES);
	return ours;
}

int rpwi_dev_get_index(const struct ibv_device *d) { return to_dev(d)->index; }
