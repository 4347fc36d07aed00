/* SPDX-License-Identifier: BSD-3-Clause */
/* language.h - the user's language, printing, and the clock. / 用户的语言、输出和时钟。 */
#ifndef LEARN_LANGUAGE_H
#define LEARN_LANGUAGE_H

#include <libintl.h>
#include <stdint.h>

/* _() looks a sentence up in the user's language. / _() 按用户的语言查找对应的句子。 */
#define _(text) gettext(text)
#define N_(text) text

/* Choose the language by the locale, before anything is printed; `name` begins every error line.
 * 在输出任何内容之前，按 locale 选择语言；name 用于错误行的开头。 */
void language_start(const char *name);

/* The next numbered step, and a detail of it; to stdout. / 打印下一个步骤，以及步骤的细节。 */
void say_step(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What went wrong and what to do, in one line to stderr. Always returns -1, so that callers can
 * write `return fail(...)`. 用一行说明出了什么错、该怎么办；总是返回 -1，调用者可以直接写 return
 * fail(...)。 */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Monotonic: a clock that nobody sets back. / 单调时钟，不会被调回。 */
uint64_t now_ms(void);

#endif
