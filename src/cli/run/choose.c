/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.c - see choose.h. */
#include "cli/run/choose.h"

#include "base/choice.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>

struct list {
	char *text;
	size_t used;
	bool full;
};

static void add(struct list *l, const char *mark, const char *word, size_t len)
{
	size_t left = CHOOSE_LIST_MAX - l->used;
	int n = snprintf(
		l->text + l->used, left, "%s%s%.*s", l->used ? "," : "", mark, (int)len, word);
	if (n < 0 || (size_t)n >= left)
		l->full = true;
	else
		l->used += (size_t)n;
}

/* The words for `auto`: those that hide what cannot make a queue pair. */
static void add_broken(struct list *l, const char *command)
{
	static const char keep[] = "--devices first keeps";
	struct cli_tried tried[CLI_TRIED_MAX];
	char why[RPWI_WHY_LEN];
	int n = rpwi_cli_try(tried, why, sizeof(why));
	if (n < 0) {
		fprintf(stderr, "%s: real devices are hidden, since %s; %s them\n", command, why,
			keep);
		add(l, "", "software", strlen("software"));
	}
	for (int i = 0; i < n; i++) {
		if (tried[i].works)
			continue;
		fprintf(stderr,
			"%s: the real device %s is hidden, since it cannot make a queue pair "
			"(%s); %s it\n",
			command, tried[i].name, tried[i].why, keep);
		add(l, "^", tried[i].name, strlen(tried[i].name));
	}
}

static bool says_of_real(const char *words)
{
	struct rpwi_choice_word w;
	while (words && rpwi_choice_next(&words, &w))
		if (rpwi_choice_is_real(&w))
			return true;
	return false;
}

/* real: those alone that are about real devices. */
static void add_all(struct list *l, const char *command, const char *words, bool real)
{
	struct rpwi_choice_word w;
	while (words && rpwi_choice_next(&words, &w)) {
		if (real && !rpwi_choice_is_real(&w))
			continue;
		if (w.kind == RPWI_CHOICE_AUTO)
			add_broken(l, command);
		else
			add(l, "", w.text, w.text_len);
	}
}

/* An option takes the variable's place; of real devices only if it says something of them. So what
 * a job's first step has hidden stays hidden. */
int rpwi_choose_devices(
	const char *command, const char *asked, char list[CHOOSE_LIST_MAX], char *why, size_t len)
{
	struct list l = {.text = list};
	list[0] = '\0';
	if (asked)
		add_all(&l, command, asked, false);
	if (!asked || !says_of_real(asked))
		add_all(&l, command, rpwi_choice(), asked != NULL);
	if (!l.full)
		return 0;
	snprintf(why, len, "the list of devices has more than %d characters", CHOOSE_LIST_MAX - 1);
	return -E2BIG;
}
