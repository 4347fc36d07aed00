/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_spoil.c - preloaded into `ropeway perf` by perf_test.py: one byte of each message of
 * SPOILED_BYTES arrives wrong, as no test of a correct library would ever see. */
#include <dlfcn.h>

#include "ropeway.h"

enum { SPOILED_BYTES = 4096 };

static const void *spoil(const void *buf, size_t len)
{
	if (len == SPOILED_BYTES)
		((unsigned char *)buf)[len - 1] ^= 1;
	return buf;
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

RPW_API int rpw_send(rpw_endpoint *ep, const void *buf, size_t len, uint64_t tag, rpw_request **req)
{
	int (*next)(rpw_endpoint *, const void *, size_t, uint64_t, rpw_request **) =
		real("rpw_send");
	return next(ep, spoil(buf, len), len, tag, req);
}

RPW_API int rpw_am_send(rpw_endpoint *ep, unsigned id, const void *header, size_t header_len,
	const void *buf, size_t len, rpw_request **req)
{
	int (*next)(rpw_endpoint *, unsigned, const void *, size_t, const void *, size_t,
		rpw_request **) = real("rpw_am_send");
	return next(ep, id, header, header_len, spoil(buf, len), len, req);
}

RPW_API int rpw_put(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key,
	uint64_t offset, rpw_request **req)
{
	int (*next)(rpw_endpoint *, const void *, size_t, const rpw_rkey *, uint64_t,
		rpw_request **) = real("rpw_put");
	return next(ep, spoil(buf, len), len, key, offset, req);
}

RPW_API int rpw_get(rpw_endpoint *ep, void *buf, size_t len, const rpw_rkey *key, uint64_t offset,
	rpw_request **req)
{
	int (*next)(rpw_endpoint *, void *, size_t, const rpw_rkey *, uint64_t, rpw_request **) =
		real("rpw_get");
	return next(ep, buf, len, key, offset + (len == SPOILED_BYTES ? 8 : 0), req);
}
