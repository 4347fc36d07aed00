/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.c - the calls of rdma-core 59 to 65 that have no older sibling, built with its headers:
 * each in a process of its own, which must not end by a signal. Prints one line each; the status
 * is how many did. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context *c;
static struct ibv_pd *pd;
static char *memory;
enum { LEN = 4096 };

static void said(const char *name, int made, int rc)
{
	int error = rc > 0 ? rc : errno;
	printf("%s: %s\n", name,
		made                  ? "made"
		: error == EOPNOTSUPP ? "EOPNOTSUPP"
				      : strerror(error));
}

static void reg_mr_ex(void)
{
	struct ibv_mr_init_attr a = {.length = LEN,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.addr = memory,
		.comp_mask = IBV_REG_MR_MASK_ADDR};
	said("ibv_reg_mr_ex", ibv_reg_mr_ex(pd, &a) != NULL, 0);
}
static void alloc_dmah(void)
{
	struct ibv_dmah_init_attr a = {0};
	said("ibv_alloc_dmah", ibv_alloc_dmah(c, &a) != NULL, 0);
}
static void port_speed(void)
{
	uint64_t speed;
	int rc = ibv_query_port_speed(c, 1, &speed);
	said("ibv_query_port_speed", !rc, rc);
}
static void buffers(void)
{
	struct ibv_buf *buf;
	void *at = ibv_alloc_buf(pd, LEN, &buf);
	struct ibv_mr *mr = at ? ibv_reg_buf_mr(pd, buf, at, LEN, 0) : NULL;
	said("ibv_alloc_buf", at != NULL, 0);
	said("ibv_reg_buf_mr", mr != NULL, 0);
	said("ibv_export_buf_dmabuf_fd", ibv_export_buf_dmabuf_fd(buf) >= 0, 0);
	if (mr)
		ibv_dereg_mr(mr);
	ibv_free_buf(buf);
}
static void counters(void)
{
	struct ibv_comp_cntr_caps caps = {0};
	struct ibv_comp_cntr_init_attr a = {0};
	int rc = ibv_query_comp_cntr_caps(c, &caps);
	said("ibv_query_comp_cntr_caps", !rc, rc);
	said("ibv_create_comp_cntr", ibv_create_comp_cntr(c, &a) != NULL, 0);
}
static void device_memory(void)
{
	struct ibv_alloc_dm_attr a = {.length = 64};
	said("ibv_alloc_dm", ibv_alloc_dm(c, &a) != NULL, 0);
}

int main(int argc, char **argv)
{
	static void (*const calls[])(void) = {
		reg_mr_ex, alloc_dmah, port_speed, buffers, counters, device_memory};
	int ended = 0;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		int status;
		pid_t pid = fork();
		if (!pid) {
			struct ibv_device **list = ibv_get_device_list(NULL);
			while (list && *list &&
				strcmp(ibv_get_device_name(*list), argv[argc - 1]) != 0)
				list++;
			c = list && *list ? ibv_open_device(*list) : NULL;
			pd = c ? ibv_alloc_pd(c) : NULL;
			memory = aligned_alloc(LEN, LEN);
			if (!pd)
				_exit(1);
			errno = 0;
			calls[i]();
			ibv_dealloc_pd(pd);
			ibv_close_device(c);
			fflush(stdout);
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (status)
			printf("call %u ended with %x\n", i, status);
		ended += status != 0;
		fflush(stdout);
	}
	return ended;
}
