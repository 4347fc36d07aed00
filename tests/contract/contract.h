/* SPDX-License-Identifier: BSD-3-Clause */
/* contract.h - the harness of the contract tests: what include/ropeway.h says of each call, case by
 * case.
 *
 * Every file here is C11 and C++17 at once, and knows nothing but ropeway.h, POSIX and this header:
 * it is built in the tree, and again from an installed copy. A case runs in a process of its own,
 * with a limit that only ends what hangs; it names the calls that it is about, and table.py holds
 * the names against the header. */
#ifndef TESTS_CONTRACT_H
#define TESTS_CONTRACT_H

#include <ropeway.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

struct contract_case {
	const char *name;
	void (*run)(void);
	bool each; /* over each transport; else once */
	const char *calls;
};
extern const struct contract_case context_cases[], connect_cases[], request_cases[], wait_cases[],
	posting_cases[], message_cases[], object_cases[], loan_cases[], memory_cases[], end_cases[];

extern const char *contract_transport; /* what the case goes over */
/* Of a hosted plugin without its file; and whether it is one, which contexts have by name only. */
const char *transport_name(void);
bool transport_is_hosted(void);

/* ---- checks: the first that fails ends the case ---- */

void contract_failed(const char *file, int line, const char *what, long long got, long long want);
void contract_is(const char *file, int line, const char *what, long long got, long long want);
void contract_says(const char *file, int line, const char *part);
void contract_text(const char *file, int line, const char *text, const char *part);
#define CHECK(condition) \
	((condition) ? (void)0 : contract_failed(__FILE__, __LINE__, #condition, 0, 1))
#define IS(got, want) contract_is(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define SAYS(part) contract_says(__FILE__, __LINE__, part) /* rpw_last_error does */
#define HAS(text, part) contract_text(__FILE__, __LINE__, text, part)
/* Refused with this status, in words that name the matter. */
#define REFUSED(got, want, part) (forget_error(), IS(got, want), SAYS(part))
void forget_error(void); /* so that a sentence is this call's, and not an earlier one's */

#define PAIR_MUST(condition) CHECK(condition)
#include "lib/pair.h"

/* ---- patterns that tell every byte of every message apart ---- */

bool pattern_right(const void *buf, size_t len, uint64_t seed);

/* ---- two contexts in one thread, connected ---- */

enum { REGION = 8192 };

rpw_context_options options_of(const char *transports);
rpw_context *context_open(void);
void pair_open(struct pair *p);
void pair_memory(struct pair *p); /* p->m, p->k, p->region */
void settle(struct pair *p);      /* until neither has anything to do */
/* What a call gave and its request, brought to their end. */
int ended(struct pair *p, int rc, rpw_request *r);
/* Progress both until it is so. */
#define UNTIL(p, condition) \
	do \
		both(p); \
	while (!(condition))

rpw_statistics statistics_of(rpw_context *c);
rpw_endpoint_information information_of(rpw_endpoint *ep);

/* A thread that drives a context until it is stopped. */
struct driver {
	rpw_context *c;
	int stop;
	pthread_t thread;
};
void driver_start(struct driver *d, rpw_context *c);
void driver_stop(struct driver *d);

/* ---- everything that can be posted, for what holds of all of them ---- */

enum posting {
	SEND,
	SEND_IOV,
	SEND_OBJ,
	AM_SEND,
	FLUSH,
	PUT,
	GET,
	PUT_NOTIFY,
	FETCH_ADD,
	COMPARE_SWAP,
	BATCH,
	RECV,
	RECV_IOV,
	RECV_OBJ,
	POSTINGS
};
#define POSTED \
	"rpw_send rpw_send_iov rpw_send_obj rpw_am_send rpw_endpoint_flush rpw_put rpw_get " \
	"rpw_put_notify rpw_fetch_add rpw_compare_swap rpw_transfer_batch " \
	"rpw_recv " \
	"rpw_recv_iov rpw_recv_obj"
extern const char *const posting_names[POSTINGS];
bool posting_needs_key(int what);
/* From a's endpoint (or as if it were `ep`), 64 bytes of `outgoing`; receives go to `incoming`. Tag
 * and active message id are 1. */
int post(struct pair *p, int what, rpw_endpoint *ep, rpw_request **req);
extern unsigned char outgoing[64], incoming[64];
extern void *incoming_obj;
extern size_t incoming_obj_len;
extern uint64_t incoming_word;

#endif
