/* SPDX-License-Identifier: BSD-3-Clause */
/* language.c - the user's language, printing, and the clock: what all the educational programs
 * share. Nothing here knows RDMA. 用户的语言、输出和时钟：所有教学程序共用。这里与 RDMA 无关。
 */
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
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

void language_start(const char *name)
{
	program = name;
	/* Line by line, also into a pipe, so that a waiting reader sees each step when it happens.
	 * / 即使写入管道也逐行输出。 */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!setlocale(LC_ALL, "")) {
		/* A fresh machine often has no zh_CN locale generated. gettext needs only the name
		 * of the language, so any UTF-8 locale will carry it. / 新装的机器往往没有生成
		 * zh_CN locale；gettext 只需要语言名，借用任一 UTF-8 locale 即可。 */
		const char *wanted = locale_wanted();
		if (setlocale(LC_ALL, "C.UTF-8") || setlocale(LC_ALL, "en_US.UTF-8"))
			setenv("LANGUAGE", wanted, 0);
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
