/* SPDX-License-Identifier: BSD-3-Clause */
/* devices.c - the list of devices, real and software, and the calls on a device before and when it
 * is opened. */
#include "preload/newer.h"
#include "preload/preload.h"

#include "check/check.h"
#include "check/forked.h"
#include "explain/trace.h"
#include "base/choice.h"
#include "base/lock.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* A list that we gave out, in front of the array that the program sees. It keeps the real library's
 * list, which holds references to its devices, until it is freed itself. */
struct merged {
	struct merged *next;
	struct ibv_device **real;
	struct ibv_device *devices[];
};
static struct merged *lists; /* under RPWI_LOCK_LISTS */

static bool env_is(const char *name, const char *value)
{
	const char *v = getenv(name);
	return v && !strcmp(v, value);
}

static struct ibv_device **real_list(int *num)
{
	rpwi_inside_real++;
	struct ibv_device **list = rpwi_real()->ibv_get_device_list(num);
	rpwi_inside_real--;
	return list;
}

/* Those of a list that programs see go into m, from `at` on; how many are in it then. */
static int put(struct merged *m, int at, struct ibv_device **from, int n, bool real)
{
	for (int i = 0; i < n; i++)
		if (!real || !rpwi_choice_hides(from[i]->name))
			m->devices[at++] = from[i];
	return at;
}

static struct merged *merge(
	struct ibv_device **real, int nreal, struct ibv_device **soft, int nsoft, int *n)
{
	struct merged *m = calloc(
		1, sizeof(*m) + sizeof(struct ibv_device *) * ((size_t)nreal + (size_t)nsoft + 1));
	if (!m)
		return NULL;
	m->real = real;
	if (rpwi_choice_first())
		*n = put(m, put(m, 0, soft, nsoft, false), real, nreal, true);
	else
		*n = put(m, put(m, 0, real, nreal, true), soft, nsoft, false);
	return m;
}

RPWI_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	int nreal = 0, nsoft = 0, n = 0;
	if (rpwi_fork_broken)
		return rpwi_refused()->ibv_get_device_list(num_devices);
	rpwi_reach();
	if (rpwi_inside_real || env_is("ROPEWAY_DISABLE", "1") || rpwi_handed_on())
		return real_list(num_devices);
	if (num_devices)
		*num_devices = 0;
	/* Without RDMA in the kernel the real call fails with ENOSYS; that is what we are here
	 * for. */
	struct ibv_device **real = rpwi_choice_software() ? NULL : real_list(&nreal);
	if (!real)
		nreal = 0;
	struct ibv_device **soft = rpwi_dev_get_list(&nsoft);
	int err = errno;
	if (!soft)
		nsoft = 0;
	struct merged *m = soft || real ? merge(real, nreal, soft, nsoft, &n) : NULL;
	if (soft || real)
		err = ENOMEM;
	free(soft);
	if (!m) {
		if (real)
			rpwi_real()->ibv_free_device_list(real);
		return rpwi_none(err);
	}
	rpwi_lock(RPWI_LOCK_LISTS);
	m->next = lists;
	lists = m;
	rpwi_unlock(RPWI_LOCK_LISTS);
	if (num_devices)
		*num_devices = n;
	return m->devices;
}

RPWI_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	struct merged **at, *m;
	if (rpwi_fork_broken)
		return;
	rpwi_lock(RPWI_LOCK_LISTS);
	for (at = &lists; (m = *at) && m->devices != list; at = &m->next)
		;
	if (m)
		*at = m->next;
	rpwi_unlock(RPWI_LOCK_LISTS);
	/* not one of ours: a real library's, made while this was inside it */
	struct ibv_device **real = m ? m->real : list;
	if (real)
		rpwi_real()->ibv_free_device_list(real);
	free(m);
}

RPWI_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device ? device->name : rpwi_invalid()->ibv_get_device_name(device);
}

RPWI_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (rpwi_dev_owns_device(device))
		return rpwi_dev_get_guid(device);
	return rpwi_others(device)->ibv_get_device_guid(device);
}

RPWI_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	if (rpwi_dev_owns_device(device))
		return rpwi_dev_get_index(device);
	return rpwi_others(device)->ibv_get_device_index(device);
}

/* ROPEWAY_STATS=1: of the process that opened a device, not of a child that only inherited it. */
static pid_t stats_pid;
static pthread_once_t stats_once = PTHREAD_ONCE_INIT;
static void print_stats(void)
{
	if (stats_pid == getpid())
		rpwi_dev_stats_print(stderr);
}
static void arm_print_stats(void)
{
	if (env_is("ROPEWAY_STATS", "1"))
		atexit(print_stats);
}

/* A new context of ours, or NULL. */
static struct ibv_context *of_ours(struct ibv_context *c)
{
	if (!c || !rpwi_newer_begin(c))
		return c;
	int error = errno;
	rpwi_dev_close_device(c);
	return rpwi_none(error);
}

_Atomic bool rpwi_real_opened;

/* A new context of the real library's, or NULL. */
static struct ibv_context *of_others(struct ibv_context *c)
{
	if (c)
		rpwi_real_opened = true;
	return c;
}

RPWI_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	RPWI_CHECK_HERE();
	struct ibv_context *c;
	if (!rpwi_dev_owns_device(device)) {
		rpwi_inside_real++;
		c = of_others(rpwi_others(device)->ibv_open_device(device));
		rpwi_inside_real--;
		return c;
	}
	rpwi_signals_arm();
	stats_pid = getpid();
	pthread_once(&stats_once, arm_print_stats);
	c = of_ours(rpwi_dev_open_device(device));
	if (c)
		rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_open_device %s", device->name);
	return c;
}

/* What mlx5dv_open_device and its like call after they have found the device to be theirs. */
RPWI_EXPORT struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data)
{
	if (rpwi_dev_owns_device(device))
		return ibv_open_device(device);
	return of_others(rpwi_others(device)->verbs_open_device(device, private_data));
}

RPWI_EXPORT int ibv_close_device(struct ibv_context *context)
{
	if (context && rpwi_dev_owns_context(context)) {
		rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_close_device");
		rpwi_newer_end(context);
		return rpwi_dev_close_device(context);
	}
	return rpwi_others(context)->ibv_close_device(context);
}

RPWI_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	RPWI_CHECK_HERE();
	if (rpwi_dev_owns_cmd_fd(cmd_fd))
		return of_ours(rpwi_dev_import_device(cmd_fd));
	rpwi_inside_real++;
	struct ibv_context *c = of_others(rpwi_real()->ibv_import_device(cmd_fd));
	rpwi_inside_real--;
	return c;
}

/* The kernel's, not ours: access(2) has a hook. */
static bool has_real_class(void)
{
	struct stat st;
	return !rpwi_raw_stat("/sys/class/infiniband_verbs", &st, 0);
}

/* Nothing is pinned here, so a fork needs no preparation. The real library's is made when it can
 * be, and its failure counts only where there are real devices. */
RPWI_EXPORT int ibv_fork_init(void)
{
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_fork_ready();
	if (rpwi_choice_software() || !rpwi_real()->found)
		return 0;
	int err = rpwi_real()->ibv_fork_init();
	return err && has_real_class() ? err : 0;
}

RPWI_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (rpwi_choice_software() || !rpwi_real()->found)
		return IBV_FORK_UNNEEDED;
	return rpwi_real()->ibv_is_fork_initialized();
}

RPWI_EXPORT const char *ibv_get_sysfs_path(void)
{
	rpwi_reach(); /* librdmacm asks for it before all else */
	const char *path = rpwi_real()->ibv_get_sysfs_path();
	return path ? path : "/sys";
}

/* A text file's contents without the last newline; the length, or -1 where there is no room for the
 * terminating 0. */
static int without_newline(char *buf, ssize_t len, size_t size)
{
	if (len > 0 && buf[len - 1] == '\n')
		buf[--len] = '\0';
	else if (len > 0 && (size_t)len < size)
		buf[len] = '\0';
	else if (len > 0)
		return -1;
	return (int)len;
}

RPWI_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, file);
	if (n < 0 || (size_t)n >= sizeof(path))
		return rpwi_minus(ENAMETOOLONG);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t got = pread(fd, buf, size, 0);
	close(fd);
	return without_newline(buf, got, size);
}
