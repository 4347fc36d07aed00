/* plugin.h - the two halves of `ropeway plugin`. What they know of plugins is ncclnet's. */
#ifndef ROPEWAY_CLI_PLUGIN_H
#define ROPEWAY_CLI_PLUGIN_H

#include <stddef.h>

int rpwi_plugin_check(int argc, char **argv);
int rpwi_plugin_bench(int argc, char **argv);
int rpwi_plugin_check_usage(void);
int rpwi_plugin_bench_usage(void);

/* A number of an option; false: it is none, or not from least to most. */
int rpwi_plugin_number(const char *text, double least, double most, double *out);
/* "v8", "8": 0 or -EINVAL. */
int rpwi_plugin_abi(const char *text, int *abi);

#endif
