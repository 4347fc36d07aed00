/* SPDX-License-Identifier: BSD-3-Clause */
/* status.c - statuses: their names. */
#include "msg/objects.h"

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

const char *rpw_last_error(void) { return rpwi_last_error()->text; }
const char *rpw_version(void) { return ROPEWAY_VERSION; }
