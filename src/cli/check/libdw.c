/* SPDX-License-Identifier: BSD-3-Clause */
/* libdw.c - see libdw.h. */
#include "cli/check/libdw.h"

#include <dlfcn.h>
#include <stdio.h>

#define SONAME "libdw.so.1"

static const struct {
	const char *name;
	size_t slot;
} calls[] = {
#define X(name) {#name, offsetof(struct libdw, name)},
	LIBDW_CALLS(X)
#undef X
		{"elf_getphdrnum", offsetof(struct libdw, elf_getphdrnum)},
	{"gelf_getphdr", offsetof(struct libdw, gelf_getphdr)},
};

static struct libdw dw;

const struct libdw *rpwi_libdw(char *why, size_t why_len)
{
	void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, why_len,
			"functions and lines of source are not shown: %s (Debian and Ubuntu: "
			"apt install libdw1)",
			dlerror());
		return NULL;
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(calls); i++) {
		/* libelf's are found through libdw, which depends on it */
		void *p = dlsym(library, calls[i].name);
		if (!p) {
			snprintf(why, why_len, SONAME " is too old: it has no %s", calls[i].name);
			return NULL;
		}
		memcpy((char *)&dw + calls[i].slot, &p, sizeof(p));
	}
	return &dw;
}
