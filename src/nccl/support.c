/* SPDX-License-Identifier: BSD-3-Clause */
/* support.c - what a device takes: the transports of its contexts, and the kinds of memory. */
#include "nccl/plugin.h"

#include <stdio.h>
#include <stdlib.h>

/* Other people's plugins are no transport of our own: the one that ROPEWAY_TRANSPORT names may be
 * this one, and there would be no end. */
const char *plugin_transports(
	const struct plugin_device *d, const char *automatic, char *list, size_t len)
{
	const char *own = secure_getenv("ROPEWAY_NCCL_TRANSPORT"),
		   *all = secure_getenv("ROPEWAY_TRANSPORT");
	bool chosen = own && *own;
	const char *from = d->no_rdma ? "shm,tcp" : automatic;
	if (all && *all)
		from = all;
	if (chosen)
		from = own;
	size_t n = 0;
	*list = 0;
	for (const char *p = from; *p; p += *p ? 1 : 0) {
		size_t k = strcspn(p, ",");
		bool hosted = !chosen && !strncmp(p, "ncclnet", 7),
		     verbs = k == 5 && !memcmp(p, "verbs", 5);
		if (!hosted && !(verbs && d->no_rdma) && n + k + 2 < len)
			n += (size_t)snprintf(list + n, len - n, "%s%.*s", n ? "," : "", (int)k, p);
		p += k;
	}
	return n || !d->no_rdma ? list : "shm,tcp";
}

/* Asked of its RDMA devices once. */
static struct {
	pthread_mutex_t lock;
	struct {
		bool asked;
		int types;
		char missing[400]; /* why no more than host memory */
	} of[PLUGIN_DEVICES_MAX];
} support = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* By its address means: by a dma-buf that the messaging library gets from the driver, or by peer
 * memory. */
static int ask(const struct plugin_device *d, char *missing, size_t missing_len)
{
	char list[512];
	rpw_context_options o = {.size = sizeof(o),
		.transports = plugin_transports(d, "verbs", list, sizeof(list)),
		.rdma_devices = d->rdma};
	rpw_context *c;
	snprintf(missing, missing_len, "NCCL_IB_DISABLE or NCCL_IB_HCA leave it no RDMA device");
	if (d->no_rdma)
		return NCCL_PTR_HOST;
	int ways = rpw_context_create(&o, &c);
	bool made = !ways;
	if (made)
		ways = rpw_memory_direct(c);
	snprintf(missing, missing_len, "%s",
		ways > 0 ? "its RDMA devices take no dma-buf" : rpw_last_error());
	if (made)
		rpw_context_destroy(c);
	if (ways <= 0)
		return NCCL_PTR_HOST;
	return NCCL_PTR_HOST | NCCL_PTR_CUDA | (ways & RPW_DIRECT_DMABUF ? NCCL_PTR_DMABUF : 0);
}

static void types_say(const struct plugin_device *d, int types, const char *missing)
{
	if (types & NCCL_PTR_DMABUF)
		plugin_info("%s: GPU memory by its address and by dma-buf", d->name);
	else if (types & NCCL_PTR_CUDA)
		plugin_info("%s: GPU memory by its address", d->name);
	else
		plugin_info("%s: GPU memory has to be copied to the host by NCCL: %s", d->name,
			missing);
}

int plugin_ptr_support(const struct plugin_device *d)
{
	size_t i = (size_t)(d - plugin_device(0));
	pthread_mutex_lock(&support.lock);
	if (!support.of[i].asked) {
		support.of[i].types = ask(d, support.of[i].missing, sizeof(support.of[i].missing));
		support.of[i].asked = true;
		types_say(d, support.of[i].types, support.of[i].missing);
	}
	int types = support.of[i].types;
	pthread_mutex_unlock(&support.lock);
	return types;
}

const char *plugin_gpu_missing(const struct plugin_device *d)
{
	return support.of[d - plugin_device(0)].missing;
}
