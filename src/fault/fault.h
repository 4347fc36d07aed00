/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - fault scripts: which call fails, which packet is lost, which completion is late, and
 * when. The language (docs/faults.md is its manual), and the plan of this process, which is asked
 * at each hooked place and decides; it sends nothing, drops nothing and knows no QP itself.
 *
 * Counted from the beginning, or drawn from the script's seed, so the same program meets the same
 * harm. The numbers of the n-th draw are a function of the seed, the line and n alone.
 *
 * Threads: any; inside is one lock (RPWI_LOCK_PLAN), under which only the log and the account are
 * called. A place that asks looks at rpwi_plan_on first: without a script that is all it costs.
 */
#ifndef ROPEWAY_FAULT_FAULT_H
#define ROPEWAY_FAULT_FAULT_H

#include <stdio.h>

#include "base/base.h"

/* ---- what a line may be about ---- */
enum rpwi_subject {
	RPWI_SUBJ_TIME, /* "at 2 s": nothing but the clock */
	RPWI_SUBJ_CALL,
	RPWI_SUBJ_SEND,       /* a work request, posted to a send queue */
	RPWI_SUBJ_RECV,       /* likewise, to a receive queue or a SRQ */
	RPWI_SUBJ_COMPLETION, /* of a send or a receive, before the program can poll it */
	RPWI_SUBJ_TX,         /* a packet of a QP of the program's, sent; */
	RPWI_SUBJ_RX,         /* received */
	RPWI_SUBJ_CM_TX,      /* a CM message, sent; */
	RPWI_SUBJ_CM_RX,      /* received */
	RPWI_SUBJECTS,
};
enum rpwi_call {
	RPWI_CALL_OPEN_DEVICE,
	RPWI_CALL_ALLOC_PD,
	RPWI_CALL_REG_MR,
	RPWI_CALL_ALLOC_MW,
	RPWI_CALL_CREATE_COMP_CHANNEL,
	RPWI_CALL_CREATE_CQ,
	RPWI_CALL_RESIZE_CQ,
	RPWI_CALL_REQ_NOTIFY_CQ,
	RPWI_CALL_CREATE_SRQ,
	RPWI_CALL_MODIFY_SRQ,
	RPWI_CALL_CREATE_QP,
	RPWI_CALL_MODIFY_QP,
	RPWI_CALL_CREATE_AH,
	RPWI_CALL_POST_SEND,
	RPWI_CALL_POST_RECV,
	RPWI_CALL_POST_SRQ_RECV,
	/* commands of the rdma_cm device: what the rdma_* calls of librdmacm come down to */
	RPWI_CALL_CM_CREATE_ID,
	RPWI_CALL_CM_BIND_ADDR,
	RPWI_CALL_CM_LISTEN,
	RPWI_CALL_CM_RESOLVE_ADDR,
	RPWI_CALL_CM_RESOLVE_ROUTE,
	RPWI_CALL_CM_CONNECT,
	RPWI_CALL_CM_ACCEPT,
	RPWI_CALL_CM_REJECT,
	RPWI_CALL_CM_DISCONNECT,
	RPWI_CALLS,
};
enum { RPWI_ANY = -1 };

/* ---- what a line may do ---- */
enum rpwi_act {
	RPWI_ACT_NONE,
	/* to a call */
	RPWI_ACT_FAIL,     /* value: the errno */
	RPWI_ACT_TAKE,     /* ns: it takes so long */
	RPWI_ACT_CM_EVENT, /* value: enum rdma_cm_event_type, in the place of what it would do */
	/* to a work request; value: enum ibv_wc_status */
	RPWI_ACT_STATUS, /* by a real cause where the device has one */
	RPWI_ACT_FORGE,  /* the completion alone */
	/* to a completion */
	RPWI_ACT_LATE, /* ns */
	/* to a packet or a CM message */
	RPWI_ACT_DROP,
	RPWI_ACT_DUP,
	RPWI_ACT_DELAY, /* ns */
	RPWI_ACT_REORDER,
	RPWI_ACT_CORRUPT,
	RPWI_ACT_BAD_KEY,
	RPWI_ACT_NAK,    /* value: the syndrome of the answer (IB 9.7.5.2.1) */
	RPWI_ACT_REJECT, /* value: the reason (IB 12.6.7.2) */
	/* happenings: after any subject */
	RPWI_ACT_EVENT,       /* value: enum ibv_event_type */
	RPWI_ACT_PORT_DOWN,   /* ns */
	RPWI_ACT_PEER_SILENT, /* ns */
	RPWI_ACT_QP_ERROR,
	RPWI_ACT_DEVICE_FATAL,
	RPWI_ACTS,
};
#define RPWI_ACT_HAPPENS RPWI_ACT_EVENT /* from here on */

/* ---- script.c: the language ---- */
enum { RPWI_SCRIPT_BYTES_MAX = 1 << 16, RPWI_SCRIPT_RULES_MAX = 512 };
enum rpwi_which {
	RPWI_WHICH_ALL,
	RPWI_WHICH_RANGE, /* the first-th to the last-th */
	RPWI_WHICH_EVERY, /* the first-th, and each so many after it */
	RPWI_WHICH_CHANCE,
	RPWI_WHICH_BYTE, /* the one that has byte `first`, counted from 0 */
};
/* One line, and what it has counted (plan.c). */
struct rpwi_rule {
	unsigned line;
	char text[80]; /* as written, cut where it is longer */
	enum rpwi_subject subject;
	/* of a call: enum rpwi_call; of a packet: enum rpwi_op; of a CM message: enum rpwi_cm_attr;
	 * of a completion: 0 send, 1 receive; RPWI_ANY */
	int detail;
	int state; /* of modify_qp: enum ibv_qp_state; RPWI_ANY */
	enum rpwi_which which;
	uint64_t first, last;
	double chance;
	uint32_t qp, cq, srq;        /* the n-th that the process creates, from 1; 0: any */
	uint64_t after_ns, until_ns; /* since the script was loaded; RPWI_SUBJ_TIME: at after_ns */
	enum rpwi_act act;
	int value;
	uint64_t ns; /* RPWI_NEVER: for good */
	uint64_t seen, bytes, fired;
};
struct rpwi_script {
	uint64_t seed;
	unsigned nrules;
	struct rpwi_rule rule[]; /* of this process alone */
};
/* Who is asking: lines below "process" are for some. */
struct rpwi_script_who {
	const char *name; /* of the program, without its folder */
	int rank;         /* of a parallel job; -1: none */
};
/* The process that calls. */
struct rpwi_script_who rpwi_script_self(void);
/* `len` bytes of text; the error begins with "LINE:COLUMN: ". 0, -EINVAL, -ENOMEM. The caller frees
 * *out with free(). */
int rpwi_script_parse(const char *text, size_t len, const struct rpwi_script_who *who,
	struct rpwi_script **out, char *why, size_t why_len);
/* The file; the error begins with its name. 0 or -errno. */
int rpwi_script_load(const char *path, const struct rpwi_script_who *who, struct rpwi_script **out,
	char *why, size_t why_len);
/* Of --fault and ROPEWAY_FAULT: is that a file with a script? Else it is a SPEC, as in
 * "drop=0.01,seed=7": a list of name=value with no slash in it. */
bool rpwi_script_is_file(const char *fault);

/* ---- plan.c: this process's script at work ---- */
extern bool rpwi_plan_on;      /* there are lines for this process */
extern bool rpwi_plan_packets; /* some of them are about packets: each is to go by itself */

/* What happens somewhere. */
struct rpwi_occasion {
	enum rpwi_subject subject;
	int detail, state; /* as in a rule */
	uint32_t qp;       /* 0: none */
	uint64_t bytes;    /* that it carries */
};
/* And its fate; zeros: nothing. Several lines may speak, the last one of a kind counts. */
struct rpwi_fate {
	int err;          /* the call gives that errno, and does nothing */
	uint64_t take_ns; /* before that */
	int cm_event;     /* 1 + enum rdma_cm_event_type */
	int status;       /* enum ibv_wc_status; 0 none */
	bool forge;
	uint64_t late_ns;
	bool drop, dup, hold, corrupt, bad_key;
	uint64_t delay_ns, draw; /* draw: a number for the bit to flip */
	int nak;                 /* 1 + the syndrome */
	int reject;
};
/* Loads ROPEWAY_FAULT where it names a script; idempotent. 0 or -errno, told to the log. */
int rpwi_plan_load(void);
/* Counts it, and decides. Events apart from it are queued: rpwi_plan_next. */
struct rpwi_fate rpwi_plan_ask(const struct rpwi_occasion *o);

/* For calls: 0, or the errno to give. Sleeps where the script says that it takes long: no lock is
 * held. */
int rpwi_plan_call_asked(enum rpwi_call c);
/* Of modify_qp, which knows more: the state it leads to, or RPWI_ANY. */
int rpwi_plan_modify_qp(int state, uint32_t qp);
/* Of a command of rdma_cm: *event is 0, or 1 + the enum rdma_cm_event_type to give instead. */
int rpwi_plan_cm_call(enum rpwi_call c, int *event);
static inline int rpwi_plan_call(enum rpwi_call c)
{
	return RPWI_UNLIKELY(rpwi_plan_on) ? rpwi_plan_call_asked(c) : 0;
}
/* The same for calls that give an object: true, with errno set, where they give NULL. */
bool rpwi_plan_refuses_asked(enum rpwi_call c);
static inline bool rpwi_plan_refuses(enum rpwi_call c)
{
	return RPWI_UNLIKELY(rpwi_plan_on) && rpwi_plan_refuses_asked(c);
}

/* What is to happen to the device, and has come due. */
struct rpwi_happening {
	enum rpwi_act act;
	int value;
	uint32_t qp, cq, srq;
};
/* Called when one is added, by whatever thread, with any lock held. Set before a script is
 * loaded. */
extern void (*rpwi_plan_wake)(void);
bool rpwi_plan_next(uint64_t now_ns, struct rpwi_happening *out);
uint64_t rpwi_plan_deadline(void); /* RPWI_NEVER: nothing waits */
/* Is the port down now; is nothing heard of the peers of that QP (0: of anybody)? */
bool rpwi_plan_port_down(uint64_t now_ns);
bool rpwi_plan_silent(uint32_t qp, uint64_t now_ns);
/* From now on every call fails with EIO. */
void rpwi_plan_device_died(void);
/* Each line, and how often it was met: for `ropeway run --stats`. */
void rpwi_plan_print(FILE *to);

#endif
