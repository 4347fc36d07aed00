/* SPDX-License-Identifier: BSD-3-Clause */
/* responder_fuzz.c - a QP that receives whatever packets, in whatever state, with receives posted
 * or not. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_engine_run(data, len, FUZZ_RESPONDER);
	return 0;
}
