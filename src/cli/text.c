/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - sizes as people write them, and what others wrote as a terminal may have it. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <wchar.h>

/* Twice it, and a little more, is still a number of bytes. */
#define SIZE_MAX_BYTES (1ull << 60)

/* Each is 1024 times the one before. */
static const char units[] = "KMGT";

int rpwi_cli_parse_size(const char *text, uint64_t *bytes)
{
	char *end;

	if (text[0] < '0' || text[0] > '9') /* strtoull would take blanks and a minus sign */
		return -EINVAL;
	errno = 0;
	uint64_t n = strtoull(text, &end, 10);
	if (errno || !n)
		return -EINVAL;
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	ptrdiff_t shift = unit ? (unit - units + 1) * 10 : 0;
	end += unit ? 1 : 0;
	if ((*end && strcasecmp(end, unit ? "iB" : "B") != 0) || n > SIZE_MAX_BYTES >> shift)
		return -EINVAL;
	*bytes = n << shift;
	return 0;
}

const char *rpwi_cli_size(uint64_t bytes, char out[CLI_SIZE_LEN])
{
	unsigned k = 4; /* units, from the largest down to bytes */

	while (k && bytes < 1ull << 10 * k)
		k--;
	uint64_t unit = 1ull << 10 * k;
	if (!k)
		snprintf(out, CLI_SIZE_LEN, "%" PRIu64 " byte%s", bytes, rpwi_cli_plural(bytes));
	else if (bytes % unit == 0)
		snprintf(out, CLI_SIZE_LEN, "%" PRIu64 " %ciB", bytes / unit, units[k - 1]);
	else
		snprintf(
			out, CLI_SIZE_LEN, "%.2f %ciB", (double)bytes / (double)unit, units[k - 1]);
	return out;
}

const char *rpwi_cli_plural(uint64_t n) { return n == 1 ? "" : "s"; }

int rpwi_cli_address(
	const char *text, const char *port, char host[CLI_HOST_LEN], char address[CLI_ADDRESS_LEN])
{
	const char *begin = text + (*text == '['), *end = text + strlen(text);
	const char *colon = strchr(text, ':');

	if (*text == '[')
		end = strchr(text, ']');
	else if (colon && !strchr(colon + 1, ':'))
		end = colon;
	if (!end || end == begin || end - begin >= CLI_HOST_LEN)
		return -EINVAL;
	snprintf(host, CLI_HOST_LEN, "%.*s", (int)(end - begin), begin);
	end += *end == ']';
	if (*end && *end != ':')
		return -EINVAL;
	port = *end ? end + 1 : port;
	snprintf(address, CLI_ADDRESS_LEN, strchr(host, ':') ? "[%s]:%.15s" : "%s:%.15s", host,
		port);
	return 0;
}

int rpwi_cli_peer_address(const char *peer, char address[64])
{
	const char *at = strrchr(peer, ' '), *end = at ? strrchr(at, ':') : NULL;

	*address = '\0';
	if (!end)
		return -EINVAL;
	at += at[1] == '[' ? 2 : 1;
	end -= end[-1] == ']';
	return snprintf(address, 64, "%.*s", (int)(end - at), at) < 64 ? 0 : -EINVAL;
}

/* How many bytes a character of UTF-8 has, and which one it is; 0: there is none at s (RFC 3629, 3:
 * neither overlong forms nor surrogates). s ends with a zero byte. */
static size_t character(const uint8_t *s, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = 0;

	if (*s < 0x80)
		len = 1;
	else if (*s >> 5 == 6)
		len = 2;
	else if (*s >> 4 == 14)
		len = 3;
	else if (*s >> 3 == 30)
		len = 4;

	*code = len == 1 ? *s : *s & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		*code = *code << 6 | (s[i] & 0x3f);
	}
	return *code < least[len] || *code > 0x10ffff || *code >> 11 == 0xd800 >> 11 ? 0 : len;
}

static bool is_harmless(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} harmful[] = {
		{0, 0x1f}, {0x7f, 0x9f}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};

	for (size_t i = 0; i < RPWI_ARRAY_LEN(harmful); i++)
		if (code >= harmful[i].first && code <= harmful[i].last)
			return false;
	return true;
}

const char *rpwi_cli_printable(const char *text, char *out, size_t out_len)
{
	const uint8_t *p = (const uint8_t *)text;
	uint32_t code;
	size_t n = 0;

	while (*p) {
		size_t len = character(p, &code);
		bool shown = len && is_harmless(code);
		size_t added = shown ? len : 1;
		if (n + added >= out_len)
			break;
		if (shown)
			memmove(out + n, p, len);
		else
			out[n] = '?';
		n += added;
		p += len ? len : 1;
	}
	out[n] = '\0';
	return out;
}

const char *rpwi_cli_shell_word(const char *word, char *out, size_t out_len)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_@%+=:,./-";
	size_t n = 0;

	if (*word && !word[strspn(word, plain)]) {
		snprintf(out, out_len, "%s", strlen(word) < out_len ? word : "...");
		return out;
	}
	for (const char *c = word; n + 7 < out_len; c++) {
		if (c == word)
			out[n++] = '\'';
		if (!*c) {
			out[n++] = '\'';
			out[n] = '\0';
			return out;
		}
		/* a quote ends the quotes, stands by itself, and begins new ones */
		n += (size_t)sprintf(out + n, *c == '\'' ? "'\\%c'" : "%c", *c);
	}
	snprintf(out, out_len, "...");
	return out;
}

/* 0, 1 or 2; in any locale of the user, since names are UTF-8 here. */
static unsigned width_of(locale_t utf8, uint32_t code)
{
	if (!utf8)
		return code < 0x300 ? 1 : 2; /* too many rather than too few */
	locale_t before = uselocale(utf8);
	int width = wcwidth((wchar_t)code);
	uselocale(before);
	return width < 0 ? 1 : (unsigned)width;
}

unsigned rpwi_cli_columns(const char *text, char *out, size_t out_len, unsigned columns)
{
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	unsigned used = 0, fits = 0; /* fits: the columns of what stands before "..." */
	size_t cut = 0, n = 0;
	uint32_t code;

	rpwi_cli_printable(text, out, out_len);
	while (out[n]) {
		size_t len = character((const uint8_t *)out + n, &code);
		unsigned width = width_of(utf8, code);
		if (used + width > columns)
			break;
		n += len;
		used += width;
		if (used + 3 <= columns) {
			cut = n;
			fits = used;
		}
	}
	if (utf8)
		freelocale(utf8);
	if (!out[n])
		return used;
	if (columns < 3 || cut + 4 > out_len) {
		out[n] = '\0';
		return used;
	}
	strcpy(out + cut, "...");
	return fits + 3;
}
