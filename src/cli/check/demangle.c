/* SPDX-License-Identifier: BSD-3-Clause */
/* demangle.c - see check.h. C++ by libstdc++'s __cxa_demangle, which is on nearly every machine and
 * certainly where a program in C++ runs. Rust's older names are C++ names with a hash at their end;
 * its newer ones (_R...) have no decoder here: with debug information their plain name is known.
 */
#include "cli/check/check.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>

typedef char *demangle_fn(const char *name, char *out, size_t *len, int *status);

static demangle_fn *find_demangle(void)
{
	void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL); /* stays open */
	demangle_fn *fn = NULL;
	void *p = library ? dlsym(library, "__cxa_demangle") : NULL;
	memcpy(&fn, &p, sizeof(fn));
	return fn;
}

/* Parameters are many words, and the line says which function it is. "a::b(int) const" becomes
 * "a::b", "a::operator()(int)" becomes "a::operator()". */
static void cut_parameters(char *name)
{
	char *end = strrchr(name, ')');
	unsigned depth = 0;
	for (; end && end > name; end--) {
		depth += *end == ')';
		depth -= *end == '(';
		if (!depth)
			break;
	}
	if (end && end > name && !strstr(end, "::")) /* not "f(int)::{lambda()#1}" */
		*end = '\0';
}

/* What Rust's names have in the place of characters that C++'s cannot have: "$LT$" and "$u20$";
 * ".." stands for "::". In place, since no text is longer than its escape. */
static void unescape(char *name)
{
	static const struct {
		const char *escape;
		char is;
	} plain[] = {{"$SP$", '@'}, {"$BP$", '*'}, {"$RF$", '&'}, {"$LT$", '<'}, {"$GT$", '>'},
		{"$LP$", '('}, {"$RP$", ')'}, {"$C$", ','}};
	char *to = name;
	for (const char *from = name; *from;) {
		char *end = NULL;
		long code = !strncmp(from, "$u", 2) ? strtol(from + 2, &end, 16) : 0;
		size_t i = 0, len = 0;
		for (; i < RPWI_ARRAY_LEN(plain) && !len; i++)
			if (!strncmp(from, plain[i].escape, strlen(plain[i].escape)))
				len = strlen(plain[i].escape);
		if (len) {
			*to++ = plain[i - 1].is;
			from += len;
		} else if (end && *end == '$' && code >= ' ' && code < 0x7f) {
			*to++ = (char)code;
			from = end + 1;
		} else if (!strncmp(from, "..", 2)) {
			*to++ = ':';
			*to++ = ':';
			from += 2;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

/* Rust's "a::b::h0123456789abcdef". False: it is no such name. */
static bool cut_hash(char *name)
{
	enum { DIGITS = 16, LEN = 3 + DIGITS };
	size_t len = strlen(name), at = len > LEN ? len - LEN : 0;
	if (!at || memcmp(name + at, "::h", 3) != 0)
		return false;
	for (size_t i = at + 3; i < len; i++)
		if (!isxdigit((unsigned char)name[i]))
			return false;
	name[at] = '\0';
	return true;
}

char *rpwi_ck_demangle(const char *symbol)
{
	int status = -1;
	if (strncmp(symbol, "_Z", 2) != 0)
		return NULL;
	demangle_fn *demangle = find_demangle();
	char *name = demangle ? demangle(symbol, NULL, NULL, &status) : NULL;
	if (!name || status)
		return NULL;
	if (cut_hash(name))
		unescape(name);
	else
		cut_parameters(name);
	return name;
}
