/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c - ROPEWAY_LOG=debug: a line for each message, made to be read by people and compared
 * between the two sides; in the form of UCX-Py's log, with seconds since 1970. */
#include "msg/objects.h"
#include "msg/trace.h"

#include <stdio.h>
#include <unistd.h>

void trace_line(rpw_endpoint *ep, const char *what, uint64_t number, uint64_t tag, size_t len)
{
	struct timespec now;
	char text[320];
	clock_gettime(CLOCK_REALTIME, &now);
	int n = snprintf(text, sizeof(text),
		"[%lld.%06ld] [%s:%d] ROPEWAY  DEBUG [%s #%03llu] ep: 0x%llx, tag: 0x%016llx, "
		"nbytes: %zu, via: %s\n",
		(long long)now.tv_sec, now.tv_nsec / 1000, ep->c->host, getpid(), what,
		(unsigned long long)number, (unsigned long long)(uintptr_t)ep,
		(unsigned long long)tag, len, ep->link.ops ? ep->link.ops->name : "(no path yet)");
	ssize_t ignored = write(STDERR_FILENO, text, (size_t)RPWI_MIN(n, (int)sizeof(text) - 1));
	(void)ignored;
}
