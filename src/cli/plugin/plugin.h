/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.h - the parts of `ropeway plugin`. What they know of plugins is ncclnet's. */
#ifndef ROPEWAY_CLI_PLUGIN_H
#define ROPEWAY_CLI_PLUGIN_H

enum { PLUGIN_DEVICE_MOST = 1023 };

int rpwi_plugin_check(int argc, char **argv);
int rpwi_plugin_bench(int argc, char **argv);
int rpwi_plugin_trace(int argc, char **argv);
int rpwi_plugin_path(int argc, char **argv);

#endif
