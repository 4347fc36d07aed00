/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h - what went wrong: one value, from where it is decided to the program's completion.
 *
 * In boot, tran and msg a call that can fail returns 0, or the status (enum rpw_status, negative)
 * of the error that it has made the thread's last: the function that decides it says the sentence,
 * with both sides' facts and what to do, and the caller that gets the status finds it in
 * rpwi_last_error. Only what wraps a system call inside one file may give -errno; rpwi_fail_errno
 * makes an error of it. "Not now" is no error: RPWI_LATER. Up-calls carry the value itself; NULL:
 * nothing went wrong. */
#ifndef ROPEWAY_BASE_ERROR_H
#define ROPEWAY_BASE_ERROR_H

struct rpwi_error {
	int status;       /* enum rpw_status; 0: none */
	int sys;          /* the errno behind it; 0: none */
	const char *text; /* a sentence; "": none was said. Never NULL where status is set */
};

/* An up-call says it again when there is room; a progress sends it. */
enum { RPWI_LATER = 1 };

/* The last error of this thread is this one; gives `status` back: return rpwi_fail(RPW_ERR_REFUSED,
 * "...", ...). The sentence has at most 511 bytes. */
int rpwi_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The status is what `sys`, an errno, stands for; the sentence ends with its text. */
int rpwi_fail_errno(int sys, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* it does not look into other files */
#define rpwi_fail(status, ...) ((void)(rpwi_fail)(status, __VA_ARGS__), (status))
#endif
/* Its text is of the thread, and valid until its next error. At first: status 0, "no error". */
const struct rpwi_error *rpwi_last_error(void);
/* It is the last error again; logged already. */
void rpwi_fail_again(const struct rpwi_error *e);

int rpwi_status_of_errno(int sys);

/* A copy with a text of its own, in place of the one kept there; `e` may be that, or the last
 * error. Without memory for the text it has none. */
void rpwi_error_keep(struct rpwi_error *kept, const struct rpwi_error *e);
void rpwi_error_say(struct rpwi_error *kept, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void rpwi_error_drop(struct rpwi_error *kept);

#endif
