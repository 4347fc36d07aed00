/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_provider.c - a driver as libmlx5.so.1 is one: needs libibverbs.so.1 and registers itself
 * when it is loaded. */
#define EXPORT __attribute__((visibility("default")))

void verbs_register_driver_34(const void *ops);
long ibv_cmd_create_cq(long a, long b, long c, long d, long e, long f, long g, long h, long i);

__attribute__((constructor)) static void begin(void) { verbs_register_driver_34("fake driver"); }

/* Nine arguments: three of them on the stack. */
EXPORT long provider_calls(void);
EXPORT long provider_calls(void) { return ibv_cmd_create_cq(1, 2, 3, 4, 5, 6, 7, 8, 9); }
