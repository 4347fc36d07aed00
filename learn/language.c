/* SPDX-License-Identifier: BSD-3-Clause */
/* language.c - the user's language, printing, and the clock: what all the educational programs
 * share. Nothing here knows RDMA. 用户的语言、输出和时钟：所有教学程序共用。这里与 RDMA 无关。
 */
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "language.h"

#ifndef LEARN_LOCALEDIR
#define LEARN_LOCALEDIR "/usr/share/locale"
#endif
#define DOMAIN "ropeway"

/* for the name at the beginning of an error line / 用于错误行开头的程序名 */
static const char *program = "?";

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- language / 语言 ---- */

/* Where the translations are: $ROPEWAY_LOCALEDIR, else beside the program in a build tree, else
 * where they are installed. 译文所在目录：$ROPEWAY_LOCALEDIR；否则是构建目录中程序旁边的 po；
 * 否则是安装目录。 */
static const char *locale_dir(void)
{
	static char beside[4096 + 8];
	const char *env = getenv("ROPEWAY_LOCALEDIR");
	ssize_t n;
	char *slash;

	if (env && *env)
		return env;
	n = readlink("/proc/self/exe", beside, 4096);
	if (n <= 0)
		return LEARN_LOCALEDIR;
	beside[n] = '\0';
	slash = strrchr(beside, '/');
	if (!slash)
		return LEARN_LOCALEDIR;
	memcpy(slash, "/po", sizeof("/po"));
	return access(beside, X_OK) ? LEARN_LOCALEDIR : beside;
}

/* The locale that the environment asks for messages in, by the precedence of POSIX. / 按 POSIX
 * 的优先次序取得所要求的 locale。 */
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
 * machine has no other. glibc looks for a name below $LOCPATH: a link does.
 * 以未生成语言的名字使用 C.UTF-8 的规则。glibc 2.39 起，locale 名以 C 开头时 gettext 不再翻译，
 * 而新装的机器上没有别的 locale。glibc 在 $LOCPATH 下按名字查找，一个符号链接就够了。 */
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

/* Is it a locale by whose name gettext translates nothing? / gettext 是否不会为该 locale 翻译？ */
static bool is_plain(const char *locale)
{
	return locale[0] == 'C' && (!locale[1] || locale[1] == '.');
}

void language_start(const char *name)
{
	const char *language = getenv("LANGUAGE");

	program = name;
	/* Line by line, also into a pipe, so that a waiting reader sees each step when it happens.
	 * / 即使写入管道也逐行输出。 */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!setlocale(LC_ALL, "")) {
		/* A fresh machine often has no zh_CN locale generated. gettext needs only the name
		 * of the language, so any UTF-8 locale will carry it. / 新装的机器往往没有生成
		 * zh_CN locale；gettext 只需要语言名，借用任一 UTF-8 locale 即可。 */
		const char *wanted = locale_wanted();
		if (borrow_locale(wanted) || setlocale(LC_ALL, "C.UTF-8") ||
			setlocale(LC_ALL, "en_US.UTF-8"))
			setenv("LANGUAGE", wanted, 0);
	} else if (is_plain(setlocale(LC_MESSAGES, NULL)) && strcmp(locale_wanted(), "C") != 0 &&
		   language) {
		borrow_locale(language);
	}
	bindtextdomain(DOMAIN, locale_dir());
	textdomain(DOMAIN);
}

/* ---- printing / 输出 ---- */

void say_step(const char *fmt, ...)
{
	static unsigned number;
	va_list args;

	printf(_("Step %u: "), ++number);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

void say(const char *fmt, ...)
{
	va_list args;

	printf("    ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

int fail(const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "%s: ", program);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return -1;
}
