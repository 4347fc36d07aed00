/* SPDX-License-Identifier: BSD-3-Clause */
/* like_fuzz.c - the text of a profile. Checked: nothing is read beside it (the input is copied to
 * its exact size), what is refused has a place and changes nothing, and what is accepted only
 * narrows.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#include "like/like.h"

static void check(const struct rpwi_like *l)
{
	char more[512];
	for (int k = 0; k < RPWI_LIKE_KEYS; k++) {
		bool set = k >= RPWI_LIKE_TRANSPORTS,
		     place = k == RPWI_LIKE_GID_FIRST || k == RPWI_LIKE_GID_STEP;
		uint64_t own = rpwi_like_whole.has[k];
		if (set ? l->has[k] & ~own : !place && l->has[k] > own)
			fuzz_broken("a profile that widens");
		if (rpwi_like_more(l, (enum rpwi_like_key)k, more, sizeof(more)) && !*more)
			fuzz_broken("more, without words");
	}
	if (l->has[RPWI_LIKE_GID_FIRST] >= 16 || !l->has[RPWI_LIKE_GID_STEP] ||
		l->has[RPWI_LIKE_MAX_MTU] < 256)
		fuzz_broken("beyond its bounds");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[RPWI_WHY_LEN] = "", *text = malloc(size ? size : 1);
	struct rpwi_like l = rpwi_like_whole;
	unsigned line = 0, column = 0;
	if (!text)
		return 0;
	memcpy(text, data, size);
	if (!rpwi_like_parse(text, size, &l, why, sizeof(why)))
		check(&l);
	else if (sscanf(why, "%u:%u: ", &line, &column) != 2 || !line || !column || line > size + 1)
		fuzz_broken("refused without a place");
	else if (memcmp(&l, &rpwi_like_whole, sizeof(l)))
		fuzz_broken("refused, and something was taken");
	free(text);
	return 0;
}
