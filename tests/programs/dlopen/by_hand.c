/* SPDX-License-Identifier: BSD-3-Clause */
/* by_hand.c - a verbs program that is not linked with libibverbs: dlopen, then dlsym as ctypes and
 * Rust do, or dlvsym as NCCL does. Under the drop-in it must get the drop-in's calls, and its own
 * look-ups must mean what they mean without it. */
#include "../../abi/check.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_get_device_list

typedef struct ibv_device **list_fn(int *);

static const char *library_of(void *p)
{
	Dl_info info;
	if (!p || !dladdr(p, &info))
		return "";
	const char *slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}
static int is_dropin(void *p) { return !strncmp(library_of(p), "libropeway-verbs.so", 19); }
static int is_real(void *p) { return !strncmp(library_of(p), "libibverbs.so", 13); }

static void check_lookups(void *verbs)
{
	CHECK(is_dropin(dlsym(verbs, "ibv_get_device_list")));
	CHECK(is_dropin(dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1")));
	CHECK(is_dropin(dlvsym(verbs, "ibv_create_comp_channel", "IBVERBS_1.0")),
		"its only version");
	CHECK(is_dropin(dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.8")));
	CHECK(is_dropin(dlvsym(verbs, "ibv_query_ece", "IBVERBS_1.10")));
	CHECK(is_dropin(dlsym(verbs, "_ibv_query_gid_ex")));
	CHECK(is_dropin(dlsym(RTLD_DEFAULT, "ibv_open_device")));
	/* The calls for the structs of before 2006 are not ours, and neither is what drivers
	 * call. */
	CHECK(is_real(dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.0")));
	CHECK(is_real(dlsym(verbs, "ibv_cmd_create_qp")));
	dlerror();
	CHECK(!dlsym(verbs, "ibv_no_such_call") && dlerror());
	CHECK(!dlvsym(verbs, "ibv_get_device_list", "IBVERBS_9.9") && dlerror());
	CHECK(dlsym(verbs, "ibv_get_device_list") && !dlerror(), "success leaves no error behind");
}

static void check_other_lookups(const char *probe)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	CHECK(libc && dlsym(libc, "getppid") && !is_dropin(dlsym(libc, "open")));
	CHECK(dlsym(RTLD_NEXT, "getpid") != NULL);
	void *lib = dlopen(probe, RTLD_NOW);
	CHECK(lib, "%s", dlerror());
	if (!lib)
		return;
	pid_t (*wrapped)(void) = (pid_t(*)(void))dlsym(lib, "getppid");
	CHECK(wrapped && wrapped() == getppid(), "RTLD_NEXT found the caller itself");
	void *(*versioned)(const char *) =
		(void *(*)(const char *))dlsym(lib, "next_probe_versioned");
	CHECK(versioned && versioned("GLIBC_2.2.5") != (void *)wrapped);
}

static void check_device(void *verbs)
{
	int n = 0;
	list_fn *get_list = (list_fn *)dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1");
	void (*free_list)(struct ibv_device **) =
		(__typeof__(free_list))dlsym(verbs, "ibv_free_device_list");
	struct ibv_context *(*open_device)(struct ibv_device *) =
		(__typeof__(open_device))dlsym(verbs, "ibv_open_device");
	int (*close_device)(struct ibv_context *) =
		(__typeof__(close_device))dlsym(verbs, "ibv_close_device");
	struct ibv_pd *(*alloc_pd)(struct ibv_context *) =
		(__typeof__(alloc_pd))dlsym(verbs, "ibv_alloc_pd");
	int (*dealloc_pd)(struct ibv_pd *) = (__typeof__(dealloc_pd))dlsym(verbs, "ibv_dealloc_pd");
	struct ibv_device **list = get_list(&n), *lo = NULL;
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i]->name, "rpw_lo"))
			lo = list[i];
	CHECK(lo, "%d devices", n);
	struct ibv_context *c = lo ? open_device(lo) : NULL;
	CHECK(c);
	struct ibv_pd *pd = c ? alloc_pd(c) : NULL;
	CHECK(pd && pd->context == c);
	if (pd)
		CHECK(!dealloc_pd(pd));
	if (c)
		CHECK(!close_device(c));
	free_list(list);
}

int main(int argc, char **argv)
{
	setenv("ROPEWAY_DEVICES", "all", 1); /* rpw_lo is on every machine */
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(verbs, "%s", dlerror());
	if (!verbs || argc < 2)
		return 99;
	check_lookups(verbs);
	check_other_lookups(argv[1]);
	check_device(verbs);
	CHECK_DONE();
}
