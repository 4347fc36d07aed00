/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - lines for people, through NCCL's logger; what errors are called (the table of what each
 * status is for NCCL, and what to look at), and what tables are. */
#include "nccl/plugin.h"

#include <stdarg.h>
#include <stdio.h>

static _Atomic(nccl_logger) logger;

void plugin_log_to(nccl_logger log) { atomic_store(&logger, log); }

void plugin_log(int level, const char *where, int line, const char *fmt, ...)
{
	char text[1200];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	nccl_logger log = atomic_load(&logger);
	if (log) /* as NCCL's own WARN and INFO give the subsystem */
		log(level,
			level <= NCCL_LOG_WARN ? (unsigned long)NCCL_SUBSYS_ALL
					       : NCCL_SUBSYS_NET | NCCL_SUBSYS_INIT,
			where, line, "NET/ropeway: %s", text);
	else if (level <= NCCL_LOG_WARN)
		rpwi_warn("NET/ropeway: %s", text);
}

const char *plugin_api(int abi, char text[PLUGIN_API_LEN])
{
	if (abi >= PLUGIN_API_GIN)
		snprintf(text, PLUGIN_API_LEN, "GIN v%d", abi - PLUGIN_API_GIN);
	else if (abi >= PLUGIN_API_RMA)
		snprintf(text, PLUGIN_API_LEN, "RMA v%d", abi - PLUGIN_API_RMA);
	else
		snprintf(text, PLUGIN_API_LEN, "v%d", abi);
	return text;
}

static const struct {
	int status, result;
	const char *advice;
} results[] = {
	{RPW_ERR_INVALID, NCCL_INVALID_ARGUMENT,
		"an argument that NCCL does not give: is something else calling the plugin?"},
	{RPW_ERR_NO_MEMORY, NCCL_SYSTEM_ERROR, "the host is out of memory"},
	{RPW_ERR_TIMEOUT, NCCL_REMOTE_ERROR,
		"the peer is not reachable at that address, or busy: choose the interface with "
		"NCCL_SOCKET_IFNAME, open the firewall, or give more time with "
		"ROPEWAY_NCCL_TIMEOUT_MS"},
	{RPW_ERR_CANCELED, NCCL_INTERNAL_ERROR,
		"it was closed by this side while work was under way"},
	{RPW_ERR_TRUNCATED, NCCL_INVALID_USAGE,
		"do both ranks run the same NCCL call with the same sizes?"},
	{RPW_ERR_UNREACHABLE, NCCL_REMOTE_ERROR,
		"the peer is not reachable: choose the interface with NCCL_SOCKET_IFNAME, the "
		"transport with ROPEWAY_NCCL_TRANSPORT; `ropeway doctor` says "
		"what prevents it"},
	{RPW_ERR_REFUSED, NCCL_REMOTE_ERROR,
		"the peer refused: do both ranks have the same NCCL, the same "
		"libnccl-net-ropeway.so and the same ROPEWAY_KEY_FILE?"},
	{RPW_ERR_PEER_GONE, NCCL_REMOTE_ERROR,
		"the peer's process ended or closed its side: look at the log of that rank first"},
	{RPW_ERR_ACCESS, NCCL_SYSTEM_ERROR, "the buffer is not what was registered"},
	{RPW_ERR_PROTOCOL, NCCL_REMOTE_ERROR,
		"do both ranks have the same libnccl-net-ropeway.so?"},
	{RPW_ERR_NOT_SUPPORTED, NCCL_INVALID_USAGE,
		"choose another transport with ROPEWAY_NCCL_TRANSPORT"},
	{RPW_ERR_LIMIT, NCCL_SYSTEM_ERROR,
		"a limit was reached: `ulimit -n` and `ulimit -l` are the usual ones"},
	{RPW_ERR_SYSTEM, NCCL_SYSTEM_ERROR,
		"a system call failed: `ulimit -n`, free memory and the kernel's log may tell why"},
};

int plugin_result(int status)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(results); i++)
		if (results[i].status == status)
			return results[i].result;
	return status < 0 ? NCCL_INTERNAL_ERROR : NCCL_SUCCESS;
}

const char *plugin_advice(int status)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(results); i++)
		if (results[i].status == status)
			return results[i].advice;
	return "no advice";
}
