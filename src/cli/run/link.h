/* SPDX-License-Identifier: BSD-3-Clause */
/* link.h - a folder under a path that the loader does not split. */
#ifndef ROPEWAY_CLI_LINK_H
#define ROPEWAY_CLI_LINK_H

#include <stddef.h>

/* What splits LD_PRELOAD, and what splits LD_LIBRARY_PATH (ld.so(8)); neither can be quoted. */
#define RPWI_LINK_PRELOAD " :"
#define RPWI_LINK_LIBRARY_PATH ":;"

/* The path of `folder` (absolute) for a list that is split at each character of `splits`: its own,
 * if it has none of them, else that of a symbolic link to it, made in /tmp, /var/tmp or /dev/shm.
 * 0, or -errno of the last of these folders. */
int rpwi_link_folder(const char *folder, const char *splits, char *out, size_t len);

#endif
