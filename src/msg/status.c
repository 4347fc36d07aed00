/* SPDX-License-Identifier: BSD-3-Clause */
/* status.c - statuses: their names, and which of them an errno is. */
#include "msg/objects.h"
#include "msg/status.h"

#include <errno.h>

static const char *const status_names[] = {
	[-RPW_OK] = "RPW_OK",
	[-RPW_ERR_INVALID] = "RPW_ERR_INVALID",
	[-RPW_ERR_NO_MEMORY] = "RPW_ERR_NO_MEMORY",
	[-RPW_ERR_TIMEOUT] = "RPW_ERR_TIMEOUT",
	[-RPW_ERR_CANCELED] = "RPW_ERR_CANCELED",
	[-RPW_ERR_TRUNCATED] = "RPW_ERR_TRUNCATED",
	[-RPW_ERR_UNREACHABLE] = "RPW_ERR_UNREACHABLE",
	[-RPW_ERR_REFUSED] = "RPW_ERR_REFUSED",
	[-RPW_ERR_PEER_GONE] = "RPW_ERR_PEER_GONE",
	[-RPW_ERR_ACCESS] = "RPW_ERR_ACCESS",
	[-RPW_ERR_PROTOCOL] = "RPW_ERR_PROTOCOL",
	[-RPW_ERR_NOT_SUPPORTED] = "RPW_ERR_NOT_SUPPORTED",
	[-RPW_ERR_LIMIT] = "RPW_ERR_LIMIT",
	[-RPW_ERR_SYSTEM] = "RPW_ERR_SYSTEM",
	[-RPW_ERR_EXPIRED] = "RPW_ERR_EXPIRED",
};

const char *rpw_status_name(int status)
{
	if (status == RPW_IN_PROGRESS)
		return "RPW_IN_PROGRESS";
	return status <= 0 && status > -(int)RPWI_ARRAY_LEN(status_names) ? status_names[-status]
									  : "unknown status";
}

const char *rpw_last_error(void) { return rpwi_fail_text(); }
const char *rpw_version(void) { return ROPEWAY_VERSION; }

static const struct {
	int error, status;
} errno_table[] = {
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
int msg_status_of_errno(int rc)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(errno_table); i++)
		if (errno_table[i].error == -rc)
			return errno_table[i].status;
	return RPW_ERR_SYSTEM;
}
