/* SPDX-License-Identifier: BSD-3-Clause */
/* every.c - programs that take no device by name: one that opens every device of the list, one that
 * sorts /sys/class/infiniband and takes the first, one that asks rdma_cm. Each makes a queue pair.
 *
 *   every list|sysfs|cm    prints the devices that it took; ends with 1 where one has no queue pair
 */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

static int use(struct ibv_context *c)
{
	struct ibv_pd *pd = c ? ibv_alloc_pd(c) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(c, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr a = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &a) : NULL;
	CHECK(qp, "%s: %s", c ? c->device->name : "no context", strerror(errno));
	if (c)
		printf("%s\n", c->device->name);
	return qp && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd);
}

/* only: NULL, or its name */
static int use_list(const char *only)
{
	int n = 0, used = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n; i++) {
		if (only && strcmp(ibv_get_device_name(list[i]), only) != 0)
			continue;
		struct ibv_context *c = ibv_open_device(list[i]);
		used += use(c);
		if (c)
			ibv_close_device(c);
	}
	ibv_free_device_list(list);
	return used;
}

static int use_first_of_sysfs(void)
{
	struct dirent **e;
	const char *first = NULL;
	int n = scandir("/sys/class/infiniband", &e, NULL, alphasort);
	for (int i = n - 1; i >= 0; i--)
		if (e[i]->d_name[0] != '.')
			first = e[i]->d_name;
	return first ? use_list(first) : 0;
}

static int use_cm(void)
{
	int n = 0, used = 0;
	struct ibv_context **list = rdma_get_devices(&n);
	for (int i = 0; list && i < n; i++)
		used += use(list[i]);
	if (list)
		rdma_free_devices(list);
	return used;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "list";
	int used;
	if (!strcmp(way, "sysfs"))
		used = use_first_of_sysfs();
	else if (!strcmp(way, "cm"))
		used = use_cm();
	else
		used = use_list(NULL);
	CHECK(used > 0, "%s: none could be used", way);
	CHECK_DONE();
}
