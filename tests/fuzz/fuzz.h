/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz.h - what the fuzz targets share: a reader of the input, and one QP in the hands of whoever
 * wrote the input. Each target is LLVMFuzzerTestOneInput; replay.c calls it on files where
 * libFuzzer is not there.
 */
#ifndef ROPEWAY_FUZZ_H
#define ROPEWAY_FUZZ_H

#include "rc/rc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Bytes of the input, one after the other; zeros behind its end. */
struct fuzz_input {
	const uint8_t *p;
	size_t left;
};
uint8_t fuzz_u8(struct fuzz_input *in);
uint16_t fuzz_u16(struct fuzz_input *in);

/* Looks at every `step`th byte, and at the last: what came can be read (ASan). */
void fuzz_readable(const void *p, size_t len, size_t step);

/* Of targets with a clock of their own (fuzz_clock.c). */
extern struct fuzz_clock {
	uint64_t now_ns; /* 0: the kernel's */
	uint64_t random;
} fuzz_clock;

/* Ends the process, so that libFuzzer keeps the input. */
void fuzz_broken(const char *what) __attribute__((noreturn));

/* The input drives a QP: its first bytes choose type, limits and state, the others are packets,
 * posts, time. */
enum fuzz_side { FUZZ_RESPONDER, FUZZ_REQUESTER };
void fuzz_engine_run(const uint8_t *data, size_t len, enum fuzz_side side);

#endif
