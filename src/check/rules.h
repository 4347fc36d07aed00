/* SPDX-License-Identifier: BSD-3-Clause */
/* rules.h - the rules of `ropeway run --check`: what each is called, how bad it is, what a NIC
 * would do and what to do about it. Data only; the preload and the command have the same table.
 *
 * A number never changes its meaning, and is not used again: programs suppress by it.
 */
#ifndef ROPEWAY_CHECK_RULES_H
#define ROPEWAY_CHECK_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ERROR: the specification or the API forbids it. WARNING: works here, breaks or hangs on hardware
 * or under load. NOTE: no finding; told, and not counted for the exit status. */
enum rpwi_severity { RPWI_SEVERITY_NOTE, RPWI_SEVERITY_WARNING, RPWI_SEVERITY_ERROR };

enum rpwi_check_rule {
	/* posts and completions */
	RPWI_RULE_ERROR_IGNORED,
	RPWI_RULE_ERROR_UNREAD,
	RPWI_RULE_BUFFER_REPOSTED,
	RPWI_RULE_MR_IN_USE,
	RPWI_RULE_NEVER_SIGNALED,
	RPWI_RULE_SQ_OVERFLOW,
	RPWI_RULE_RQ_OVERFLOW,
	RPWI_RULE_CQ_SMALL,
	RPWI_RULE_CQ_OVERRUN,
	RPWI_RULE_INLINE_LUCK,
	RPWI_RULE_SGE_LUCK,
	RPWI_RULE_WR_ID_TWICE,
	RPWI_RULE_EVENTS_UNACKED,
	RPWI_RULE_ARMED_LATE,
	RPWI_RULE_ARMED_TWICE,
	RPWI_RULE_SOLICITED_NEVER,
	RPWI_RULE_BUFFER_SHARED,
	RPWI_RULE_RECV_SHORT,
	RPWI_RULE_POLLED_IN_PART,
	/* order and lifetime */
	RPWI_RULE_RECV_LATE,
	RPWI_RULE_PSN_MISMATCH,
	RPWI_RULE_QPN_MISMATCH,
	RPWI_RULE_MTU_MISMATCH,
	RPWI_RULE_TIMEOUT_0,
	RPWI_RULE_RETRY_0,
	RPWI_RULE_RNR_FOREVER,
	RPWI_RULE_MIN_RNR_0,
	RPWI_RULE_RD_ATOMIC,
	RPWI_RULE_QKEY,
	RPWI_RULE_GID_TYPE,
	RPWI_RULE_READS_BEYOND,
	RPWI_RULE_BUFFER_CHANGED,
	RPWI_RULE_BUFFER_CHANGED_LATE,
	RPWI_RULE_MEMORY_FREED,
	RPWI_RULE_KEY_STALE,
	RPWI_RULE_KEY_UNKNOWN,
	RPWI_RULE_KEY_ACCESS,
	RPWI_RULE_KEY_BOUNDS,
	RPWI_RULE_KEY_PD,
	RPWI_RULE_MW_LEFT,
	RPWI_RULE_FORK_REGISTERED,
	RPWI_RULE_CHILD_USES,
	RPWI_RULE_DESTROY_ORDER,
	RPWI_RULE_LEAK,
	RPWI_RULE_CM_UNACKED,
	RPWI_RULE_CM_DESTROYED,
	RPWI_RULE_CM_UNDRAINED,
	RPWI_RULE_RECV_RAN_OUT,
	RPWI_RULE_RESET_DROPS,
	RPWI_RULE_QP_ACCESS,
	RPWI_RULE_READS_NONE,
	RPWI_RULE_FIRST_CAUSE,
	/* one-sided races */
	RPWI_RULE_RACE,
	/* network plugins of NCCL, and who calls them */
	RPWI_RULE_PLUGIN_VERSION,
	RPWI_RULE_PLUGIN_HANDLE,
	RPWI_RULE_PLUGIN_MHANDLE,
	RPWI_RULE_PLUGIN_REQUEST,
	RPWI_RULE_PLUGIN_MEMORY,
	RPWI_RULE_PLUGIN_SIZE,
	RPWI_RULE_PLUGIN_THREAD,
	RPWI_RULE_PLUGIN_CLOSE,
	RPWI_RULE_PLUGIN_RESULT,
	RPWI_RULE_PLUGIN_REQUESTS,
	/* the messaging library */
	RPWI_RULE_MSG_BUFFER,
	RPWI_RULE_MSG_LEAK,
	RPWI_RULE_MSG_THREAD,
	RPWI_RULE_MSG_LOAN,
	RPWI_RULE_MSG_LOANS_LEFT,
	RPWI_RULES
};

struct rpwi_rule_info {
	uint16_t number;
	const char *name;
	enum rpwi_severity severity;
	bool off;           /* unless it is asked for */
	const char *what;   /* the mistake, as a short sentence */
	const char *nic;    /* what a NIC would do */
	const char *remedy; /* one sentence */
	const char *source; /* clause of the IB specification, or man page */
};
extern const struct rpwi_rule_info rpwi_rules[RPWI_RULES];

/* By name or number ("recv-late", "201"), `len` characters; RPWI_RULES: there is none. */
enum rpwi_check_rule rpwi_rule_named(const char *name, size_t len);
const char *rpwi_severity_name(enum rpwi_severity s);

#endif
