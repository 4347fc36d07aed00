/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see finding.h: a finding as a block of text.
 *
 *   ropeway: error 103 buffer-reposted: server, process 4711
 *     memory of a request that has not completed was given to another request
 *     found     4096 bytes at 0x7f0000001000 belong to wr_id 6, posted 12 us before
 *     objects   QP 0x000011 (RC, RTS, peer's 0x000012), SEND with wr_id 7
 *     posted here
 *               #0 ring_put at ring.h:30 (inlined)
 *                  send_loop at main.c:120
 *               #1 main at main.c:200
 *     on a NIC  both requests own the bytes: ...
 *     remedy    post a buffer again only after the completion of its request was polled
 *     source    IB 10.8.3.1; ibv_post_send(3), ibv_post_recv(3)
 *
 * A frame may have more than one line: functions that the compiler inlined, innermost first.
 * Control characters become '?'. No memory, no lock.
 */
#include "check/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { LEFT = 2, TEXT_AT = 12 };

/* ANSI, as compilers color their messages. */
#define BOLD "\033[1m"
#define PLAIN "\033[0m"
static const char *const severity_color[] = {"\033[1;36m", "\033[1;35m", "\033[1;31m"};

struct block {
	char *out;
	size_t len, room;
	bool color;
	unsigned columns, column; /* column: of the cursor */
};

/* ---- characters ---- */

static void put(struct block *b, char c)
{
	if (b->len + 1 < b->room)
		b->out[b->len++] = c;
}

static void paint(struct block *b, const char *code)
{
	for (; b->color && *code; code++)
		put(b, *code);
}

static void end_line(struct block *b)
{
	put(b, '\n');
	b->column = 0;
}

static void indent(struct block *b, unsigned to)
{
	for (; b->column < to; b->column++)
		put(b, ' ');
}

/* The bytes behind the first of a character of UTF-8 take no column. */
static bool takes_column(char c) { return (c & 0xc0) != 0x80; }

static unsigned width(const char *text, size_t len)
{
	unsigned columns = 0;
	for (size_t i = 0; i < len; i++)
		columns += takes_column(text[i]);
	return columns;
}

static void put_text(struct block *b, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		put(b, (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i]);
	b->column += width(text, len);
}

/* ---- lines ---- */

/* From the cursor on, broken at newlines, and at blanks before the last column. Further lines begin
 * at column `at`. */
static void put_words(struct block *b, const char *text, unsigned at)
{
	bool first = true;
	while (*(text += strspn(text, " "))) {
		size_t len = strcspn(text, " \n");
		if (!len) {
			end_line(b);
			indent(b, at);
			text++;
			first = true;
			continue;
		}
		if (!first && b->columns && b->column + 1 + width(text, len) > b->columns) {
			end_line(b);
			indent(b, at);
		} else if (!first) {
			put_text(b, " ", 1);
		}
		put_text(b, text, len);
		text += len;
		first = false;
	}
}

static void put_row(struct block *b, const char *label, const char *text)
{
	if (!text || !*text)
		return;
	indent(b, LEFT);
	paint(b, BOLD);
	put_text(b, label, strlen(label));
	paint(b, PLAIN);
	indent(b, TEXT_AT);
	put_words(b, text, TEXT_AT);
	end_line(b);
}

static void put_head(struct block *b, const struct rpwi_shown *s)
{
	char text[64];
	const char *begins = "ropeway: ", *slash = strrchr(s->program, '/');
	put_text(b, begins, strlen(begins));
	paint(b, severity_color[s->rule->severity]);
	snprintf(text, sizeof(text), "%s %u %s", rpwi_severity_name(s->rule->severity),
		s->rule->number, s->rule->name);
	put_words(b, text, LEFT);
	paint(b, PLAIN);
	put_text(b, ":", 1);
	put_text(b, " ", 1);
	put_words(b, slash && slash[1] ? slash + 1 : s->program, LEFT);
	snprintf(text, sizeof(text), s->count > 1 ? ", process %d, %u times" : ", process %d",
		s->pid, (unsigned)s->count);
	put_words(b, text, LEFT);
	end_line(b);
}

/* One frame, which has a line for each function of it. */
static void put_frame(struct block *b, unsigned number, const char *frame)
{
	char left[16];
	indent(b, TEXT_AT);
	snprintf(left, sizeof(left), "#%u ", number);
	put_text(b, left, strlen(left));
	while (*frame) {
		size_t len = strcspn(frame, "\n");
		indent(b, TEXT_AT + (unsigned)strlen(left));
		put_text(b, frame, len);
		end_line(b);
		frame += len + (frame[len] == '\n');
	}
}

static void put_sites(struct block *b, const struct rpwi_shown *s)
{
	for (unsigned i = 0; i < RPWI_FINDING_SITES && s->site[i].what; i++) {
		indent(b, LEFT);
		paint(b, BOLD);
		put_words(b, s->site[i].what, LEFT);
		paint(b, PLAIN);
		end_line(b);
		for (unsigned f = 0; f < RPWI_SITE_FRAMES && s->site[i].frame[f]; f++)
			put_frame(b, f, s->site[i].frame[f]);
	}
}

/* ---- what a finding is about ---- */

struct list {
	char *out;
	size_t len, room;
};

__attribute__((format(printf, 3, 4))) static void add(
	struct list *l, const char *before, const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(l->out + l->len, l->room - l->len, "%s", l->len ? before : "");
	l->len = RPWI_MIN(l->len + (size_t)n, l->room - 1);
	va_start(ap, fmt);
	n = vsnprintf(l->out + l->len, l->room - l->len, fmt, ap);
	va_end(ap);
	l->len = RPWI_MIN(l->len + (size_t)n, l->room - 1);
}

const char *rpwi_site_when_name(enum rpwi_site_when when)
{
	static const char *const name[RPWI_SITE_UNORDERED + 1] = {
		[RPWI_SITE_BEFORE] = "before", [RPWI_SITE_AFTER] = "after"};
	return name[when];
}

static const char *or_unknown(const char *s) { return s && *s ? s : "?"; }

size_t rpwi_finding_objects(const struct rpwi_finding *f, char *out, size_t room)
{
	struct list l = {out, 0, room};
	if (!room)
		return 0;
	out[0] = '\0';
	if (f->qpn) {
		add(&l, "", "QP 0x%06x (%s, %s", f->qpn, or_unknown(f->type), or_unknown(f->state));
		if (f->peer_qpn)
			add(&l, ", ", "peer's 0x%06x", f->peer_qpn);
		add(&l, "", ")");
	}
	if (f->has_wr)
		add(&l, ", ", "%s with wr_id %llu", f->op && *f->op ? f->op : "request",
			(unsigned long long)f->wr_id);
	if (f->has_memory)
		add(&l, ", ", "%llu bytes at 0x%llx", (unsigned long long)f->len,
			(unsigned long long)f->addr);
	if (f->has_memory && f->key)
		add(&l, ", ", "key 0x%x", f->key);
	return l.len;
}

/* ---- the block ---- */

size_t rpwi_shown_text(
	const struct rpwi_shown *s, bool color, unsigned columns, char *out, size_t room)
{
	struct block b = {.out = out, .room = room, .color = color, .columns = columns};
	if (!room)
		return 0;
	put_head(&b, s);
	indent(&b, LEFT);
	put_words(&b, s->rule->what, LEFT);
	end_line(&b);
	put_row(&b, "found", s->text);
	put_row(&b, "objects", s->objects);
	put_row(&b, "peer", s->peer);
	put_sites(&b, s);
	put_row(&b, s->rule->number < 500 ? "on a NIC" : "effect", s->rule->nic);
	put_row(&b, "remedy", s->rule->remedy);
	put_row(&b, "source", s->rule->source);
	out[b.len] = '\0';
	return b.len;
}

void rpwi_finding_site_when(struct rpwi_finding *f, const char *what, const struct rpwi_site *at,
	enum rpwi_site_when when)
{
	for (unsigned i = 0; i < RPWI_FINDING_SITES && at->pc[0]; i++)
		if (!f->site[i].what) {
			f->site[i].what = what;
			f->site[i].at = *at;
			f->site[i].when = when;
			return;
		}
}

void rpwi_finding_site(struct rpwi_finding *f, const char *what, const struct rpwi_site *at)
{
	rpwi_finding_site_when(f, what, at, RPWI_SITE_BEFORE);
}
