/* SPDX-License-Identifier: BSD-3-Clause */
/* diagnose.c - what follows from the facts of one QP. The sentences are in words.json. */
#include "cli/explain/explain.h"

#define F(fact) (1u << RPWI_FACT_##fact)

enum {
	GONE = F(DISCONNECTED) | F(PEER_GONE),
	OVER = F(DISCONNECT) | GONE,
	FLUSHED = F(RECV_FLUSHED) | F(SEND_FLUSHED),
	PATH = F(TOO_BIG) | F(HOPS) | F(NO_PORT) | F(NO_HOST) | F(FORBIDDEN) | F(NAT) |
	       F(SIZE_LOST),
};
enum { NO_STATUS = 1000 }; /* of no enum ibv_wc_status */
_Static_assert(RPWI_FACT_COUNT < 31 && EX_DIAGNOSES <= 32, "a bit for each");

/* It holds if all of `all`, and one of `any` and `either` where they are given, and none of `none`
 * were seen, and the first failure was `failed`. */
static const struct rule {
	uint32_t all, any, either, none;
	unsigned failed; /* enum ibv_wc_status; 0: whichever, or none */
	unsigned reason; /* of REJ; 0: whichever */
	uint32_t unless; /* bits of earlier diagnoses */
} rules[EX_DIAGNOSES] = {
	[EX_DIAG_NEVER_ANSWERED] = {.all = F(RECV_FLUSHED),
		.any = GONE,
		.none = F(RECV_DONE) | F(DISCONNECT)},
	[EX_DIAG_WAITS_IN_VAIN] = {.all = F(RECV_POSTED),
		.any = GONE,
		.none = F(RECV_DONE) | F(RECV_FLUSHED) | F(DISCONNECT)},
	[EX_DIAG_STOPPED_WAITING] = {.all = F(RECV_FLUSHED) | F(ESTABLISHED) | F(DISCONNECT),
		.none = F(RECV_DONE) | F(FAILED)},
	[EX_DIAG_SENT_NOTHING] = {.all = F(ACCEPTING) | F(ESTABLISHED),
		.any = OVER,
		.none = F(SEND_POSTED)},
	[EX_DIAG_PEER_DIED] = {.all = F(PEER_GONE)},
	[EX_DIAG_FLUSHED_ON_PURPOSE] = {.any = FLUSHED,
		.either = F(DISCONNECT) | F(TO_ERROR),
		.none = F(FAILED),
		.unless = 1u << EX_DIAG_STOPPED_WAITING},
	[EX_DIAG_FLUSHED_AT_THE_END] = {.all = F(RECV_FLUSHED) | F(RECV_DONE) | F(DISCONNECTED),
		.none = F(DISCONNECT) | F(FAILED)},
	[EX_DIAG_SENDS_CUT_OFF] = {.all = F(SEND_FLUSHED) | F(DISCONNECTED),
		.none = F(DISCONNECT) | F(FAILED)},
	[EX_DIAG_TOO_BIG] = {.all = F(TOO_BIG)},
	[EX_DIAG_SIZE_LOST] = {.all = F(SIZE_LOST)},
	[EX_DIAG_HOPS] = {.all = F(HOPS)},
	[EX_DIAG_BEHIND_NAT] = {.all = F(NAT)},
	[EX_DIAG_FORBIDDEN] = {.all = F(FORBIDDEN)},
	[EX_DIAG_NO_HOST] = {.all = F(NO_HOST)},
	[EX_DIAG_NO_PORT] = {.all = F(NO_PORT), .failed = IBV_WC_RETRY_EXC_ERR},
	[EX_DIAG_RETRY_EXC] = {.none = PATH, .failed = IBV_WC_RETRY_EXC_ERR},
	[EX_DIAG_RNR_EXC] = {.failed = IBV_WC_RNR_RETRY_EXC_ERR},
	[EX_DIAG_REM_ACCESS] = {.failed = IBV_WC_REM_ACCESS_ERR},
	[EX_DIAG_REM_INV] = {.failed = IBV_WC_REM_INV_REQ_ERR},
	[EX_DIAG_REM_OP] = {.failed = IBV_WC_REM_OP_ERR},
	[EX_DIAG_LOC_PROT] = {.failed = IBV_WC_LOC_PROT_ERR},
	[EX_DIAG_LOC_LEN] = {.failed = IBV_WC_LOC_LEN_ERR},
	[EX_DIAG_NO_LISTENER] = {.reason = RPWI_REJ_INVALID_SERVICE_ID},
	[EX_DIAG_REJECTED] = {.all = F(REJECTED)},
	[EX_DIAG_UNREACHABLE] = {.all = F(UNREACHABLE)},
	[EX_DIAG_RNR] = {.all = F(RNR_SEEN)},
	[EX_DIAG_RESENT] = {.all = F(RETRANSMITTED)},
	[EX_DIAG_STILL_WAITING] = {.all = F(RECV_POSTED),
		.none = OVER | F(FAILED) | F(RECV_DONE) | F(RECV_FLUSHED) | F(SEND_DONE)},
	/* Only a capture shows these. */
	[EX_DIAG_GAVE_UP] = {.failed = NO_STATUS},
	[EX_DIAG_SERVER_SILENT] = {.failed = NO_STATUS},
	[EX_DIAG_ONE_SIDED] = {.failed = NO_STATUS},
};

static bool holds(
	const struct rule *r, const struct rpwi_explain_facts *f, uint32_t seen, uint32_t found)
{
	return (seen & r->all) == r->all && (!r->any || seen & r->any) &&
	       (!r->either || seen & r->either) && !(seen & r->none) &&
	       (!r->failed || r->failed == f->failed) &&
	       (!r->reason || r->reason == f->n[RPWI_FACT_REJECTED]) && !(found & r->unless);
}

uint32_t rpwi_explain_diagnose(const struct rpwi_explain_facts *f)
{
	uint32_t seen = 0, found = 0;
	for (unsigned i = 0; i < RPWI_FACT_COUNT; i++)
		seen |= (uint32_t)(f->n[i] != 0) << i;
	for (unsigned i = 0; i < EX_DIAGNOSES; i++)
		if (holds(&rules[i], f, seen, found))
			found |= 1u << i;
	return found;
}
