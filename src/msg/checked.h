/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.h - the messaging library under ROPEWAY_CHECK: buffers that are changed too early,
 * and requests that it never gives back (rules 601 and 602). Called only while rpwi_check_on. */
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
/* A loan goes to the peer: the sum of its bytes, which is to be the same when it is back. */
uint32_t checked_loan_sent(const void *data, size_t len);
void checked_loan_back(uint32_t sum, const void *data, size_t len);
/* An endpoint is destroyed whose program holds so many loans. */
void checked_loans_left(unsigned n, size_t bytes);
void checked_context_ends(const rpw_context *c);

#endif
