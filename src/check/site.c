/* SPDX-License-Identifier: BSD-3-Clause */
/* site.c - where a call comes from, with the frames above it where code has frame pointers. */
#include "base/guard.h"
#include "check/check.h"

__thread bool rpwi_check_site_kept __attribute__((tls_model("initial-exec")));

/* Frame pointers lead on where the program's code has them; else what the register holds is no
 * frame, and the copies fail or the chain ends. */
void rpwi_check_site_note(const void *pc, const void *frame)
{
	struct rpwi_site s = {.pc = {(uintptr_t)pc}};
	uintptr_t at = (uintptr_t)frame, saved[2];
	if (rpwi_check_site_kept)
		return;
	for (unsigned i = 0; i < RPWI_SITE_FRAMES; i++) {
		if (at & 7 || rpwi_guard_copy(saved, (const void *)at, sizeof(saved)))
			break;
		if (i && saved[1] < 4096)
			break;
		s.pc[i] = saved[1];
		/* the caller's frame lies above, and not far */
		if (saved[0] <= at || saved[0] - at > 1 << 16)
			break;
		at = saved[0];
	}
	s.pc[0] = (uintptr_t)pc;
	rpwi_check_site = s;
}

int rpwi_check_sites_init(void) { return rpwi_check_on ? rpwi_guard_install() : 0; }
