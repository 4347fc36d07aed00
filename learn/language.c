/* SPDX-License-Identifier: BSD-3-Clause */
/* language.c - the user's language. gettext finds the translations; here is what it needs on a
 * machine where nobody has generated a locale of that language. */
#include <limits.h>
#include <locale.h>
#include <unistd.h>

#include "common.h"

#ifndef LEARN_LOCALEDIR
#define LEARN_LOCALEDIR "/usr/share/locale"
#endif
#define DOMAIN "ropeway"

/* Where the translations are: $ROPEWAY_LOCALEDIR, else beside the program in a build tree, else
 * where they are installed. */
static void find_translations(void)
{
	const char *env = getenv("ROPEWAY_LOCALEDIR");
	char beside[PATH_MAX + 4] = "/";

	if (realpath("/proc/self/exe", beside))
		strcpy(strrchr(beside, '/'), "/po");
	if (env && *env)
		bindtextdomain(DOMAIN, env);
	else
		bindtextdomain(DOMAIN, access(beside, X_OK) ? LEARN_LOCALEDIR : beside);
}

/* The locale that the environment asks for messages in, by the precedence of POSIX. */
static const char *locale_wanted(void)
{
	static const char *const names[] = {"LC_ALL", "LC_MESSAGES", "LANG"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);
		if (value && *value)
			return value;
	}
	return "C";
}

/* The rules of C.UTF-8 under the name of a language that is not generated here. From glibc 2.39 on
 * gettext translates nothing where the locale's name begins with "C" (dcigettext.c), and a fresh
 * machine has no other. glibc looks for a name below $LOCPATH: a link does. */
static bool borrow_locale(const char *language)
{
	char folder[] = "/tmp/ropeway-locale-XXXXXX", link[sizeof(folder) + 64], locale[64];
	size_t n = strcspn(language, ".:@");
	bool done = false;

	if (!n || n > 32 || strchr(language, '/') || !mkdtemp(folder))
		return false;
	snprintf(locale, sizeof(locale), "%.*s.UTF-8", (int)n, language);
	snprintf(link, sizeof(link), "%s/%s", folder, locale);
	if (!symlink("/usr/lib/locale/C.utf8", link) && !setenv("LOCPATH", folder, 1)) {
		done = setlocale(LC_ALL, locale);
		unsetenv("LOCPATH");
	}
	unlink(link);
	rmdir(folder);
	return done;
}

void language_start(const char *name)
{
	const char *language = getenv("LANGUAGE"), *wanted = locale_wanted(), *locale;

	program_invocation_short_name = (char *)name; /* where err(3) looks */
	/* Line by line, also into a pipe: a waiting reader sees each step when it happens. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!setlocale(LC_ALL, "")) {
		/* A fresh machine often has no zh_CN locale generated. gettext needs only the name
		 * of the language, so any UTF-8 locale will carry it. */
		if (borrow_locale(wanted) || setlocale(LC_ALL, "C.UTF-8") ||
			setlocale(LC_ALL, "en_US.UTF-8"))
			setenv("LANGUAGE", wanted, 0);
	} else if (language && strcmp(wanted, "C") != 0) {
		locale = setlocale(LC_MESSAGES, NULL);
		if (!strcmp(locale, "C") || !strncmp(locale, "C.", 2))
			borrow_locale(language);
	}
	find_translations();
	textdomain(DOMAIN);
}
