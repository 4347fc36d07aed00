/* SPDX-License-Identifier: BSD-3-Clause */
/* requester_fuzz.c - a QP with work posted, and a peer that answers whatever it likes. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_engine_run(data, len, FUZZ_REQUESTER);
	return 0;
}
