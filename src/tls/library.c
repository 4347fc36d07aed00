/* SPDX-License-Identifier: BSD-3-Clause */
/* library.c - see library.h. */
#include "tls/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "tls/tls.h"

/* The name that the library has had since GnuTLS 3.4 (2015). */
#define SONAME "libgnutls.so.30"

static const struct {
	const char *name;
	size_t slot;
} calls[] = {
#define X(name) {#name, offsetof(struct tls_library, name)},
	TLS_CALLS(X)
#undef X
};

struct tls_library tls_gnutls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;

static int fill(void *library, char *why, size_t why_len)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(calls); i++) {
		void *p = dlsym(library, calls[i].name);
		if (!p) {
			snprintf(why, why_len, SONAME " has no %s: 3.6.3 or newer is needed",
				calls[i].name);
			return -ENOENT;
		}
		memcpy((char *)&tls_gnutls + calls[i].slot, &p, sizeof(p));
	}
	return 0;
}

/* It stays open: sessions may live until the process ends. */
int tls_open(char *why, size_t why_len)
{
	int rc = 0;
	pthread_mutex_lock(&lock);
	if (!is_open) {
		void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
		rc = library ? fill(library, why, why_len) : -ENOENT;
		if (!library)
			snprintf(why, why_len, "%s", dlerror() ?: SONAME " cannot be opened");
		is_open = !rc;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}
