/* SPDX-License-Identifier: BSD-3-Clause */
/* fail.h - the last error of a thread, in words: what rpw_last_error gives. The function that decides an error records it, with both sides' facts and what to do. */
#ifndef ROPEWAY_BASE_FAIL_H
#define ROPEWAY_BASE_FAIL_H

/* Records the sentence (at most 511 bytes) and gives `status` back: return rpwi_fail(RPW_ERR_REFUSED, "...", ...). */
int rpwi_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* it does not look into other files */
#define rpwi_fail(status, ...) ((void)(rpwi_fail)(status, __VA_ARGS__), (status))
#endif
const char *rpwi_fail_text(void); /* never NULL; "no error" at first */
unsigned rpwi_fail_count(void);   /* of this thread's: whether one was recorded since */
int rpwi_fail_status(void);       /* of the last */
void rpwi_fail_again(
	const char *sentence); /* it is the last error again; logged already, and not counted */

#endif
