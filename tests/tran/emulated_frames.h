/* SPDX-License-Identifier: BSD-3-Clause */
/* emulated_frames.h - a request and an answer of the emulation of remote memory, for tests that
 * forge them: declared here once more, so that a change of src/tran/emulate_priv.h's is seen. */
#ifndef TESTS_TRAN_EMULATED_FRAMES_H
#define TESTS_TRAN_EMULATED_FRAMES_H

#include <stdint.h>

struct ask {
	uint8_t kind, bulk, more, zero;
	uint32_t id, slot, zero2;
	uint64_t key, offset, len;
};
struct done {
	uint8_t kind, answer, zero[2];
	uint32_t id;
	uint64_t value;
};

#endif
