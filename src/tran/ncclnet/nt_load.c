/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_load.c - plugins: each "PATH[@vN]" is loaded and initialized once in a process and never let
 * go, since before v11 a plugin cannot be initialized twice nor be ended. What it is found to be is
 * immutable then. */
#include "tran/ncclnet/nt_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nt_load *loads;

__thread bool nt_closing;

/* Receives are always posted, so each close ends some: what a plugin has to say about that is no
 * warning. */
static void log_of_plugin(int level, unsigned long subsys, const char *file, int line,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void log_of_plugin(
	int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	ncclnet_log(nt_closing ? NCCL_LOG_INFO : level, subsys, file, line, "%s", text);
}

/* The fastest device of those that take host memory, the first of equals. */
static int choose_device(struct nt_load *l)
{
	struct ncclnet_properties p;
	int count = 0, without = 0, rc = ncclnet_devices(l->n, &count);
	if (rc || count < 1) {
		snprintf(l->why, sizeof l->why,
			"plugin %s v%d (%.100s) has %d devices here (%s): NCCL_DEBUG=INFO shows "
			"what it looked for",
			l->name, l->n->abi, l->n->path, count, ncclnet_result_name(rc));
		return -ENODEV;
	}
	l->dev = -1;
	for (int dev = 0; dev < count; dev++) {
		rc = ncclnet_properties(l->n, dev, &p);
		if (rc)
			continue;
		if (!(p.ptr_support & NCCL_PTR_HOST)) {
			without++;
			continue;
		}
		if (l->dev >= 0 && p.speed <= l->props.speed)
			continue;
		l->dev = dev;
		l->props = p;
	}
	if (l->dev >= 0)
		return 0;
	if (without)
		snprintf(l->why, sizeof l->why,
			"plugin %s v%d (%.100s) takes no host memory (NCCL_PTR_HOST) on any of its "
			"%d devices, and ropeway hosts plugins with host memory only",
			l->name, l->n->abi, l->n->path, count);
	else
		snprintf(l->why, sizeof l->why,
			"plugin %s v%d (%.100s) says nothing of its %d devices: getProperties gave "
			"%d (%s)",
			l->name, l->n->abi, l->n->path, count, rc, ncclnet_result_name(rc));
	return -ENODEV;
}

static int load(struct nt_load *l)
{
	char path[256];
	int abi, err = ncclnet_parse(l->spec, path, sizeof path, &abi, l->why, sizeof l->why);
	if (!err)
		err = ncclnet_load(path, abi, &l->n, l->why, sizeof l->why);
	if (err)
		return err;
	snprintf(l->name, sizeof l->name, "%.63s", ncclnet_name(l->n));
	int rc = ncclnet_init(l->n, &l->ctx, log_of_plugin);
	if (rc) {
		snprintf(l->why, sizeof l->why,
			"plugin %s v%d (%.150s) does not start: init gave %d (%s); NCCL_DEBUG=INFO "
			"may show why",
			l->name, l->n->abi, path, rc, ncclnet_result_name(rc));
		return -ENODEV;
	}
	err = ncclnet_complete(l->n, l->why, sizeof l->why);
	if (!err)
		err = choose_device(l);
	if (err)
		return err;
	snprintf(l->device, sizeof l->device, "%.63s", l->props.name ? l->props.name : "");
	l->chunk_max = l->props.max_p2p_bytes
			       ? RPWI_MIN(l->props.max_p2p_bytes, (size_t)NT_CHUNK_MAX)
			       : NT_CHUNK_MAX;
	if (l->props.device_type != NCCL_NET_DEVICE_HOST)
		rpwi_info("ncclnet: plugin %s v%d: its device is of type %d, which a kernel on a "
			  "GPU works with: host memory is used instead",
			l->name, l->n->abi, l->props.device_type);
	rpwi_info("ncclnet: plugin %s, API v%d (NCCL %s), device %d %s, from %s", l->name,
		l->n->abi, ncclnet_releases(l->n->abi), l->dev, l->device, path);
	return 0;
}

const struct nt_load *nt_load_get(const char *spec)
{
	pthread_mutex_lock(&lock);
	struct nt_load *l = loads;
	while (l && strcmp(l->spec, spec))
		l = l->next;
	if (!l && (l = calloc(1, sizeof *l))) {
		snprintf(l->spec, sizeof l->spec, "%s", spec);
		l->err = load(l);
		l->next = loads;
		loads = l;
	}
	pthread_mutex_unlock(&lock);
	return l;
}
