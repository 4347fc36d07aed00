/* SPDX-License-Identifier: BSD-3-Clause */
/* suppress.c - see check.h: a file of lines RULE:GLOB. The rule is a name, a number or *; the glob
 * is compared with the function, the source file and the module of each frame, files with and
 * without their folder, and with the program's name. */
#include "cli/check/check.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "base/number.h"

enum { LINE_ROOM = 1024 };

struct suppression {
	enum rpwi_check_rule rule; /* RPWI_RULES: each */
	char *glob;
};
struct ck_suppressions {
	struct suppression *one;
	size_t n;
};

/* ---- reading ---- */

/* Without blanks at both ends, up to a '#'. */
static char *trim(char *line)
{
	line[strcspn(line, "#\n")] = '\0';
	line += strspn(line, " \t\r");
	size_t len = strlen(line);
	while (len && strchr(" \t\r", line[len - 1]))
		line[--len] = '\0';
	return line;
}

static int no_rule(const char *word, char *why, size_t why_len)
{
	const char *names[RPWI_RULES + 1] = {NULL};
	for (unsigned r = 0; r < RPWI_RULES; r++)
		names[r] = rpwi_rules[r].name;
	const char *near = rpwi_word_near(word, names);
	if (near)
		snprintf(why, why_len, "unknown rule '%s': did you mean '%s'?", word, near);
	else
		snprintf(why, why_len, "unknown rule '%s'", word);
	return -EINVAL;
}

static int take(struct ck_suppressions *s, char *line, char *why, size_t why_len)
{
	char *colon = strchr(line, ':');
	if (!*line)
		return 0;
	if (!colon || !colon[1]) {
		snprintf(why, why_len, "expected RULE:GLOB, not '%s'", line);
		return -EINVAL;
	}
	*colon = '\0';
	enum rpwi_check_rule rule = rpwi_rule_named(line, strlen(line));
	if (rule == RPWI_RULES && strcmp(line, "*") != 0)
		return no_rule(line, why, why_len);
	struct suppression *more = realloc(s->one, (s->n + 1) * sizeof(*more));
	char *glob = strdup(colon + 1);
	if (more)
		s->one = more;
	if (!more || !glob) {
		free(glob);
		snprintf(why, why_len, "out of memory");
		return -ENOMEM;
	}
	s->one[s->n++] = (struct suppression){rule, glob};
	return 0;
}

int rpwi_ck_suppressions_read(
	const char *file, struct ck_suppressions **out, char *why, size_t why_len)
{
	char line[LINE_ROOM], what[RPWI_WHY_LEN];
	FILE *f = fopen(file, "re");
	struct ck_suppressions *s = f ? calloc(1, sizeof(*s)) : NULL;
	int rc = s ? 0 : -errno;
	*out = NULL;
	snprintf(why, why_len, "%s: %s", file, strerror(errno));
	for (unsigned n = 1; s && !rc && fgets(line, sizeof(line), f); n++) {
		rc = take(s, trim(line), what, sizeof(what));
		if (rc)
			snprintf(why, why_len, "%s:%u: %s", file, n, what);
	}
	if (!rc && ferror(f)) { /* a folder */
		rc = -EIO;
		snprintf(why, why_len, "%s cannot be read", file);
	}
	if (f)
		fclose(f);
	if (rc)
		rpwi_ck_suppressions_free(s);
	else
		*out = s;
	return rc;
}

void rpwi_ck_suppressions_free(struct ck_suppressions *s)
{
	for (size_t i = 0; s && i < s->n; i++)
		free(s->one[i].glob);
	if (s)
		free(s->one);
	free(s);
}

/* ---- matching ---- */

static bool matches(const char *glob, const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;
	return name && *name &&
	       (!fnmatch(glob, name, 0) || (slash && !fnmatch(glob, slash + 1, 0)));
}

static bool matches_frame(const char *glob, const struct ck_frame *f)
{
	for (unsigned p = 0; p < f->places; p++)
		if (matches(glob, f->place[p].function) || matches(glob, f->place[p].file))
			return true;
	return matches(glob, f->module);
}

static bool matches_kind(const char *glob, const struct ck_kind *k)
{
	for (unsigned i = 0; i < k->sites; i++)
		for (unsigned f = 0; f < k->site[i].frames; f++)
			if (matches_frame(glob, &k->site[i].frame[f]))
				return true;
	return matches(glob, k->program);
}

bool rpwi_ck_suppressed(const struct ck_suppressions *s, const struct ck_kind *k)
{
	for (size_t i = 0; s && i < s->n; i++)
		if ((s->one[i].rule == k->rule || s->one[i].rule == RPWI_RULES) &&
			matches_kind(s->one[i].glob, k))
			return true;
	return false;
}
