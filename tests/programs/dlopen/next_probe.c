/* SPDX-License-Identifier: BSD-3-Clause */
/* next_probe.c - a library that wraps a call of the C library by dlsym(RTLD_NEXT), as many tools
 * do: only if the hook leaves its return address in place does it find the C library's getppid and
 * not its own. */
#include <dlfcn.h>
#include <unistd.h>

int next_probe_calls;

__attribute__((visibility("default"))) pid_t getppid(void)
{
	pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");
	next_probe_calls++;
	return next_probe_calls == 1 ? next() : -1; /* a second time: it found itself */
}

__attribute__((visibility("default"))) void *next_probe_versioned(const char *version);
__attribute__((visibility("default"))) void *next_probe_versioned(const char *version)
{
	return dlvsym(RTLD_NEXT, "getppid", version);
}
