/* SPDX-License-Identifier: BSD-3-Clause */
/* marshal.c - the versioned library's conversions of rdma_cm's structs beside the distribution's,
 * on bytes that do not repeat. Usage: marshal OURS THEIRS, both by path.
 */
#include "check.h"

#include <dlfcn.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	size_t to, from;
} calls[] = {
	{"ibv_copy_ah_attr_from_kern", sizeof(struct ibv_ah_attr),
		sizeof(struct ib_uverbs_ah_attr)},
	{"ibv_copy_qp_attr_from_kern", sizeof(struct ibv_qp_attr),
		sizeof(struct ib_uverbs_qp_attr)},
	{"ibv_copy_path_rec_from_kern", sizeof(struct ibv_sa_path_rec),
		sizeof(struct ib_user_path_rec)},
	{"ibv_copy_path_rec_to_kern", sizeof(struct ib_user_path_rec),
		sizeof(struct ibv_sa_path_rec)},
};

int main(int argc, char **argv)
{
	void *ours = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	void *theirs = argc == 3 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
	uint32_t seed = 1;
	if (!ours || !theirs || ours == theirs) {
		fprintf(stderr, "marshal: needs two libraries: %s\n", dlerror());
		return 99;
	}
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void (*a)(void *, void *) = (void (*)(void *, void *))dlsym(ours, calls[i].name);
		void (*b)(void *, void *) = (void (*)(void *, void *))dlsym(theirs, calls[i].name);
		CHECK(a && b && a != b, "%s", calls[i].name);
		if (!a || !b)
			continue;
		for (unsigned round = 0; round < 100; round++) {
			/* what is behind a struct and between its fields stays as it was */
			_Alignas(16) uint8_t from[512], got[512], want[512];
			for (unsigned k = 0; k < sizeof(from); k++)
				from[k] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
			memset(got, (int)round, sizeof(got));
			memset(want, (int)round, sizeof(want));
			a(got, from);
			b(want, from);
			CHECK(!memcmp(got, want, sizeof(got)), "%s, round %u", calls[i].name,
				round);
			CHECK(memcmp(got + calls[i].to, got + calls[i].to + 1,
				      sizeof(got) - calls[i].to - 1) == 0,
				"%s writes behind its struct", calls[i].name);
		}
	}
	CHECK_DONE();
}
