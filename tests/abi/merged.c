/* SPDX-License-Identifier: BSD-3-Clause */
/* merged.c - real and software devices in one list. Run with the drop-in preloaded and the fake
 * libibverbs in the real one's place; or with the versioned library in that place, and the fake one
 * where only that finds it, which is FAKE.
 *
 *   merged real-first|software-first|disabled|hidden [FAKE]
 */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

static int (*fake_references)(int device);
static int (*fake_calls)(void);

static int find_fakes(const char *path)
{
	void *fake = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* NULL: what the program has */
	if (!fake)
		return 0;
	fake_references = (int (*)(int))dlsym(fake, "fake_references");
	fake_calls = (int (*)(void))dlsym(fake, "fake_calls");
	return fake_references && fake_calls;
}

static int is_fake(const struct ibv_device *d) { return !strncmp(d->name, "fake_", 5); }
static int is_soft(const struct ibv_device *d) { return !strncmp(d->name, "rpw_", 4); }

static void check_order(const char *want)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list);
	if (!list)
		return;
	int soft = 0, fake = 0;
	for (int i = 0; i < n; i++) {
		soft += is_soft(list[i]);
		fake += is_fake(list[i]);
	}
	CHECK(fake == 2 && fake + soft == n, "%d fake, %d software, %d", fake, soft, n);
	CHECK(!list[n]);
	if (!strcmp(want, "disabled")) {
		CHECK(soft == 0);
	} else {
		int at = !strcmp(want, "software-first") ? soft : 0;
		CHECK(soft > 0);
		CHECK(is_fake(list[at]) && !strcmp(ibv_get_device_name(list[at]), "fake_0"),
			"%s at %d", list[at]->name, at);
		CHECK(is_fake(list[at + 1]) && ibv_get_device_guid(list[at + 1]) == 0xfa4e01);
		CHECK(is_soft(list[at ? 0 : 2]));
		CHECK(ibv_get_device_guid(list[at ? 0 : 2]) != 0);
	}
	CHECK(fake_references(0) == 1 && fake_references(1) == 1, "%d %d", fake_references(0),
		fake_references(1));
	ibv_free_device_list(list);
	CHECK(fake_references(0) == 0 && fake_references(1) == 0, "%d %d", fake_references(0),
		fake_references(1));
}

/* What ROPEWAY_DEVICES says of real devices, word by word. */
static void check_words(void)
{
	static const struct {
		const char *list;
		int fake_0, fake_1; /* where they are; -1: nowhere */
	} row[] = {
		{"lo", 0, 1},
		{"lo,first", 1, 2},
		{"^fake_0 lo", -1, 0},
		{"first,lo,^fake_0", -1, 1},
		{"lo,^fake_1,^nothing_0", 0, -1},
		{"lo,^fake_0,^fake_1", -1, -1},
		{"lo,^fake_", 0, 1},
		{"lo,auto", 0, 1}, /* nothing is tried here */
		{"software,lo", -1, -1},
		{"lo,software,first,^fake_0", -1, -1},
	};
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		int n = 0, want = 1 + (row[i].fake_0 >= 0) + (row[i].fake_1 >= 0);
		setenv("ROPEWAY_DEVICES", row[i].list, 1);
		struct ibv_device **list = ibv_get_device_list(&n);
		CHECK(list && n == want && !list[n], "%s: %d devices", row[i].list, n);
		for (int k = 0; k < n; k++) {
			const char *name = "rpw_lo";
			if (k == row[i].fake_0)
				name = "fake_0";
			else if (k == row[i].fake_1)
				name = "fake_1";
			CHECK(!strcmp(list[k]->name, name), "%s: %s at %d", row[i].list,
				list[k]->name, k);
		}
		/* with `software` the library is not even asked */
		int held = !strstr(row[i].list, "software");
		CHECK(fake_references(0) == held && fake_references(1) == held, "%s", row[i].list);
		ibv_free_device_list(list);
		CHECK(!fake_references(0) && !fake_references(1), "%s", row[i].list);
	}
}

/* Two lists at once, freed in the order they were made; a software device stays good after its list
 * is gone, as one that is open does. */
static void check_two_lists(void)
{
	struct ibv_device **a = ibv_get_device_list(NULL), **b = ibv_get_device_list(NULL);
	CHECK(a && b && a != b);
	CHECK(fake_references(0) == 2);
	ibv_free_device_list(a);
	CHECK(fake_references(0) == 1);
	ibv_free_device_list(b);
	CHECK(fake_references(0) == 0);
}

static struct ibv_device *find(struct ibv_device **list, const char *prefix)
{
	for (int i = 0; list[i]; i++)
		if (!strncmp(list[i]->name, prefix, strlen(prefix)))
			return list[i];
	return NULL;
}

/* Calls on a real object arrive at the real library, and only those. */
static void check_forwarding(int with_software)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(find(list, "fake_1"));
	CHECK(c && fake_references(1) == 2);
	int before = fake_calls();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && pd->context == c && fake_calls() == before + 1);
	CHECK(!ibv_dealloc_pd(pd) && fake_calls() == before + 2);
	struct ibv_port_attr attr;
	CHECK(ibv_query_port(c, 2, &attr) == EINVAL && fake_calls() == before + 3);
	/* Calls that this library is too old to have fail as the newest one's do on a device
	 * without them. */
	errno = 0;
	CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0) && errno == EOPNOTSUPP);
	CHECK(ibv_get_device_index(c->device) == -1);
	CHECK(ibv_close_device(c) == 0 && fake_references(1) == 1);
	before = fake_calls();
	if (with_software) {
		c = ibv_open_device(find(list, "rpw_lo"));
		CHECK(c, "%s", strerror(errno));
		pd = c ? ibv_alloc_pd(c) : NULL;
		CHECK(pd);
		if (pd)
			CHECK(!ibv_dealloc_pd(pd));
		if (c)
			CHECK(!ibv_close_device(c));
		CHECK(fake_calls() == before);
		/* without a private part the newest calls would crash in it */
		setenv("FAKE_OLD", "1", 1);
		errno = 0;
		CHECK(!ibv_open_device(find(list, "rpw_lo")) && errno == EOPNOTSUPP);
		unsetenv("FAKE_OLD");
	}
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "fake status"));
	ibv_free_device_list(list);
	CHECK(fake_references(0) == 0 && fake_references(1) == 0);
}

int main(int argc, char **argv)
{
	const char *want = argc > 1 ? argv[1] : "real-first";
	setenv("ROPEWAY_DEVICES", "all", 1); /* rpw_lo is on every machine */
	if (!find_fakes(argc > 2 ? argv[2] : NULL)) {
		fprintf(stderr, "merged: the fake libraries are not in LD_LIBRARY_PATH\n");
		return 99;
	}
	if (!strcmp(want, "hidden")) {
		check_words();
		CHECK_DONE();
	}
	check_order(want);
	check_two_lists();
	check_forwarding(strcmp(want, "disabled"));
	CHECK(fake_references(0) == 0 && fake_references(1) == 0);
	check_order(want); /* and the guard is off again */
	CHECK_DONE();
}
