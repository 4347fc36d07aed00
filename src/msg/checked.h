/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.h - the messaging library under ROPEWAY_CHECK: buffers and loans that are changed too
 * early, requests and loans that are never given back, threads (rules 601 to 605). Called only
 * while rpwi_check_on. */
#ifndef ROPEWAY_MSG_CHECKED_H
#define ROPEWAY_MSG_CHECKED_H

#include "check/check.h"
#include "msg/objects.h"

void checked_init(void); /* reads the environment; again and again */
/* It begins now, before its buffers are read; it is complete; it is free again. */
void checked_begins(const rpw_request *r);
void checked_ends(const rpw_request *r);
void checked_gone(const rpw_request *r);
/* Thread `self` calls it while `other` is inside rpw_context_progress. */
void checked_thread(const rpw_context *c, pid_t other, pid_t self);
/* A loan went to the peer, which may not write to it; its memory is taken for the next loan, and
 * should be as it was then; a pool of loans is unmapped. */
void checked_loan_sent(const void *data, size_t len);
void checked_loan_taken(const void *data);
void checked_loans_gone(const void *pool, size_t len);
/* An endpoint is destroyed whose program holds so many loans. */
void checked_loans_left(unsigned n, size_t bytes);
void checked_context_ends(const rpw_context *c);

#endif
