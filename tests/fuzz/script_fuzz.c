/* SPDX-License-Identifier: BSD-3-Clause */
/* script_fuzz.c - the text of a fault script. Checked: nothing is read beside it (the input is
 * copied to its exact size), what is refused has a place and a reason, and what is accepted is
 * within its bounds.
 */
#include "fuzz.h"

#include <stdlib.h>

#include "fault/fault.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct rpwi_script_who me = {.name = "me", .rank = 0};
	char why[RPWI_WHY_LEN] = "", *text = malloc(size ? size : 1);
	struct rpwi_script *s = NULL;
	unsigned line = 0, column = 0;
	if (!text)
		return 0;
	memcpy(text, data, size);
	int rc = rpwi_script_parse(text, size, &me, &s, why, sizeof(why));
	if (rc && (s || sscanf(why, "%u:%u: ", &line, &column) != 2 || !line || !column))
		fuzz_broken("refused without a place");
	if (rc && line > size + 1)
		fuzz_broken("a line that there is not");
	for (unsigned i = 0; s && i < s->nrules; i++) {
		const struct rpwi_rule *r = &s->rule[i];
		if (r->subject >= RPWI_SUBJECTS || r->act == RPWI_ACT_NONE || r->act >= RPWI_ACTS)
			fuzz_broken("a fault without a sense");
		if ((r->which == RPWI_WHICH_EVERY || r->which == RPWI_WHICH_RANGE) && !r->first)
			fuzz_broken("counted from 0");
		if (!(r->chance >= 0 && r->chance <= 1) ||
			(r->ns > 86400 * RPWI_NS_PER_S && r->ns != RPWI_NEVER))
			fuzz_broken("beyond its bounds");
	}
	free(s);
	free(text);
	return 0;
}
