/* SPDX-License-Identifier: BSD-3-Clause */
/* choice.c - see choice.h. */
#include "base/choice.h"

#include <stdio.h>
#include <stdlib.h>

static const char separators[] = ", ";

const char *rpwi_choice(void)
{
	const char *list = getenv("ROPEWAY_DEVICES");
	return list && list[strspn(list, separators)] ? list : NULL;
}

bool rpwi_choice_is(const struct rpwi_choice_word *w, const char *name)
{
	return strlen(name) == w->len && !memcmp(w->name, name, w->len);
}

static const enum rpwi_choice_kind kinds[] = {
	RPWI_CHOICE_ALL, RPWI_CHOICE_SOFTWARE, RPWI_CHOICE_FIRST, RPWI_CHOICE_AUTO};
const char *const rpwi_choice_words[] = {"all", "software", "first", "auto", NULL};

static enum rpwi_choice_kind kind_of(const struct rpwi_choice_word *w)
{
	for (size_t i = 0; rpwi_choice_words[i]; i++)
		if (rpwi_choice_is(w, rpwi_choice_words[i]))
			return kinds[i];
	return RPWI_CHOICE_NAME;
}

bool rpwi_choice_next(const char **list, struct rpwi_choice_word *w)
{
	w->name = w->text = *list + strspn(*list, separators);
	w->len = w->text_len = strcspn(w->text, separators);
	*list = w->text + w->text_len;
	if (w->text[0] == '^') {
		w->kind = RPWI_CHOICE_EXCEPT;
		w->name++;
		w->len--;
	} else {
		w->kind = kind_of(w);
	}
	return w->text_len;
}

bool rpwi_choice_has(const char *list, enum rpwi_choice_kind kind)
{
	struct rpwi_choice_word w;
	while (list && rpwi_choice_next(&list, &w))
		if (w.kind == kind)
			return true;
	return false;
}

bool rpwi_choice_is_real(const struct rpwi_choice_word *w)
{
	return w->kind != RPWI_CHOICE_NAME && w->kind != RPWI_CHOICE_ALL;
}

bool rpwi_choice_names(void)
{
	return rpwi_choice_has(rpwi_choice(), RPWI_CHOICE_ALL) ||
	       rpwi_choice_has(rpwi_choice(), RPWI_CHOICE_NAME);
}

int rpwi_choice_add(const char *word)
{
	const char *have = rpwi_choice();
	size_t len = strlen(word), room = len + (have ? strlen(have) : 0) + 2;
	char *list = malloc(room);
	if (!list)
		return -ENOMEM;
	snprintf(list, room, "%s", word);
	if (have)
		snprintf(list + len, room - len, ",%s", have);
	int rc = setenv("ROPEWAY_DEVICES", list, 1) ? -ENOMEM : 0;
	free(list);
	return rc;
}

bool rpwi_choice_software(void) { return rpwi_choice_has(rpwi_choice(), RPWI_CHOICE_SOFTWARE); }

bool rpwi_choice_first(void)
{
	const char *older = getenv("ROPEWAY_FIRST");
	return (older && !strcmp(older, "software")) ||
	       rpwi_choice_has(rpwi_choice(), RPWI_CHOICE_FIRST);
}

bool rpwi_choice_hides_any(void)
{
	const char *list = rpwi_choice();
	return list && (strchr(list, '^') || rpwi_choice_has(list, RPWI_CHOICE_SOFTWARE));
}

bool rpwi_choice_hides(const char *device)
{
	const char *list = rpwi_choice();
	bool ours = rpwi_choice_is_ours(device);
	struct rpwi_choice_word w;
	while (list && rpwi_choice_next(&list, &w))
		if ((w.kind == RPWI_CHOICE_SOFTWARE && !ours) ||
			(w.kind == RPWI_CHOICE_EXCEPT && rpwi_choice_is(&w, device)))
			return true;
	return false;
}
