/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - see error.h. */
#include "base/error.h"

#include <errno.h>
#include <ropeway.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static __thread char last_text[512];
static __thread struct rpwi_error last;

static const struct {
	int sys, status;
} statuses[] = {
	{ENOMEM, RPW_ERR_NO_MEMORY},
	{EACCES, RPW_ERR_ACCESS},
	{EPERM, RPW_ERR_ACCESS},
	{EFAULT, RPW_ERR_ACCESS},
	{ERANGE, RPW_ERR_ACCESS},
	{EINVAL, RPW_ERR_INVALID},
	{EOPNOTSUPP, RPW_ERR_NOT_SUPPORTED},
	{EPIPE, RPW_ERR_PEER_GONE},
	{ENOTCONN, RPW_ERR_PEER_GONE},
	{ESHUTDOWN, RPW_ERR_PEER_GONE},
	{ECONNRESET, RPW_ERR_PEER_GONE},
	{ESRCH, RPW_ERR_PEER_GONE},
	{ETIMEDOUT, RPW_ERR_TIMEOUT},
	{EPROTO, RPW_ERR_PROTOCOL},
	{ENOSPC, RPW_ERR_LIMIT},
	{EMFILE, RPW_ERR_LIMIT},
	{EMSGSIZE, RPW_ERR_LIMIT},
};

int rpwi_status_of_errno(int sys)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(statuses); i++)
		if (statuses[i].sys == sys)
			return statuses[i].status;
	return RPW_ERR_SYSTEM;
}

/* `text` may have been made of the last one's. */
static void last_is(int status, int sys, const char *text)
{
	memcpy(last_text, text, strlen(text) + 1);
	last = (struct rpwi_error){status, sys, last_text};
	rpwi_debug("%s", last_text);
}

/* In brackets: error.h has a macro of that name for analysers. */
int(rpwi_fail)(int status, const char *fmt, ...)
{
	char text[sizeof(last_text)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	last_is(status, 0, text);
	return status;
}

int rpwi_fail_errno(int sys, const char *fmt, ...)
{
	char what[sizeof(last_text)], text[sizeof(last_text)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "%.400s: %s", what, strerror(sys));
	last_is(rpwi_status_of_errno(sys), sys, text);
	return last.status;
}

const struct rpwi_error *rpwi_last_error(void)
{
	static const struct rpwi_error none = {0, 0, "no error"};
	return last.status ? &last : &none;
}

void rpwi_fail_again(const struct rpwi_error *e)
{
	if (e->text != last_text)
		snprintf(last_text, sizeof(last_text), "%s", e->text);
	last = (struct rpwi_error){e->status, e->sys, last_text};
}

void rpwi_error_keep(struct rpwi_error *kept, const struct rpwi_error *e)
{
	struct rpwi_error copy = *e;
	copy.text = *e->text ? strdup(e->text) : NULL;
	rpwi_error_drop(kept);
	*kept = copy;
	if (!copy.text)
		kept->text = "";
}

void rpwi_error_say(struct rpwi_error *kept, int status, const char *fmt, ...)
{
	char text[sizeof(last_text)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rpwi_error_keep(kept, &(struct rpwi_error){status, 0, text});
}

void rpwi_error_drop(struct rpwi_error *kept)
{
	if (kept->text && *kept->text)
		free((char *)(uintptr_t)kept->text);
	*kept = (struct rpwi_error){0};
}
