/* SPDX-License-Identifier: BSD-3-Clause */
/* check.h - `ropeway check REPORT` and the end of `ropeway run --check`: reports of the checker
 * (check/finding.h) read, symbolized and shown.
 *
 * report.c makes kinds of findings out of lines, symbols.c gives their frames functions and lines
 * of source, suppress.c takes out what nobody wants to see, cause.c finds what came first and
 * handles.c what changed between two processes, show.c writes for people, json.c and sarif.c for
 * programs.
 *
 * A report may be anybody's: every text in it is made printable when it is read, every number has
 * a bound, and a module is opened only if it is a regular file.
 */
#ifndef ROPEWAY_CLI_CHECK_H
#define ROPEWAY_CLI_CHECK_H

#include <stdio.h>
#include <time.h>

#include "base/base.h"
#include "check/finding.h"

enum {
	CK_IDS_MAX = 4096,        /* findings of a process */
	CK_PROCESSES_MAX = 65536, /* of all reports */
	CK_EVENTS_MAX = 16384,    /* more are not kept: the first ones count */
	CK_INLINED_MAX = 8,       /* functions of one frame */
	CK_FRAME_TEXT = 2048,
};

/* A function that a frame stands in. */
struct ck_place {
	char *function, *file; /* or NULL */
	unsigned line;         /* 0: not known */
};
struct ck_frame {
	const char *module; /* "": no file is mapped there */
	uint64_t offset;    /* in the file; without one, the address */
	/* symbols.c: */
	uint64_t address;                      /* in the module, as addr2line wants it */
	struct ck_place place[CK_INLINED_MAX]; /* innermost first; more than one: inlined */
	unsigned places;
	const char *remark; /* what is to be said of its module, or NULL */
};
struct ck_site {
	const char *what;
	enum rpwi_site_when when;
	struct ck_frame frame[RPWI_SITE_FRAMES];
	unsigned frames;
};

/* Findings of one rule at the same sites, of all processes. */
struct ck_kind {
	enum rpwi_check_rule rule;
	struct json_t *line;     /* of the first one; owns all texts */
	const char *text, *peer; /* peer: or NULL */
	char *objects;           /* or NULL */
	const char *program, *program_path;
	int pid;
	uint64_t hash, t;
	uint32_t count, processes;
	uint32_t qpn, peer_qpn;
	bool suppressed, symbolized;
	struct ck_site site[RPWI_FINDING_SITES];
	unsigned sites;
};

struct ck_process {
	int pid;
	struct json_t *line; /* "begin", or NULL: it was not seen; owns the program's name */
	const char *program, *program_path; /* without and with its folder */
	struct json_t *end;                 /* or NULL */
	uint64_t end_t;
	const char *unwatched;
	uint32_t *kind, *count; /* by id - 1 */
	uint32_t ids;
};

struct ck_event {
	uint32_t process;
	uint64_t t;
	struct json_t *line;
	const char *what, *text;
	uint32_t qpn, peer_qpn;
	struct ck_site site;
};

struct ck_report {
	struct ck_kind *kind;
	uint32_t kinds;
	struct ck_process *process;
	uint32_t processes;
	struct ck_event *event;
	uint32_t events;
	uint32_t bad_lines, unknown_rules; /* not understood, and not shown */
	uint32_t cut;                      /* were too long for the writer */
	bool out_of_memory;
	/* a line that is not whole yet */
	char partial[2 * RPWI_FINDING_LINE];
	size_t partial_len;
	bool overlong;
};

/* ---- report.c ---- */
/* More of a report's bytes. A new kind is r->kind[r->kinds - 1] when `on_kind` is called. */
void rpwi_ck_feed(struct ck_report *r, const char *bytes, size_t len,
	void (*on_kind)(void *arg, struct ck_kind *k), void *arg);
/* All of a file ("-": standard input). 0 or -errno. */
int rpwi_ck_read(struct ck_report *r, const char *file);
void rpwi_ck_free(struct ck_report *r);
/* A kind that no line of the report has, with a line and sites of its own. 0 or -ENOMEM. */
int rpwi_ck_add(struct ck_report *r, const struct ck_kind *k);
/* Gives one of these its line, with the text; the caller's. 0 or -ENOMEM. */
int rpwi_ck_line(struct ck_kind *k, const char *text);
/* One more site: the event's, if it has one. */
void rpwi_ck_site_of(
	struct ck_kind *k, const struct ck_event *e, const char *what, enum rpwi_site_when when);
struct ck_totals {
	/* kinds, without those that are suppressed, and how often they were found */
	uint32_t kinds[RPWI_SEVERITY_ERROR + 1], times;
	uint32_t suppressed;
};
struct ck_totals rpwi_ck_totals(const struct ck_report *r);

/* ---- symbols.c ---- */
struct ck_symbols;
/* written: when the report was, 0: just now. NULL: no memory. Without libdw every frame has its
 * remark. */
struct ck_symbols *rpwi_ck_symbols_new(time_t written);
void rpwi_ck_symbols_free(struct ck_symbols *s);
void rpwi_ck_symbolize(struct ck_symbols *s, struct ck_site *site);
void rpwi_ck_symbolize_kind(struct ck_symbols *s, struct ck_kind *k);

/* ---- demangle.c ---- */
/* A name of C++ or Rust as its source has it, without parameters, in memory of the caller's; NULL:
 * it is of neither. */
char *rpwi_ck_demangle(const char *symbol);

/* ---- suppress.c ---- */
struct ck_suppressions;
/* 0, or -errno and a sentence. */
int rpwi_ck_suppressions_read(
	const char *file, struct ck_suppressions **s, char *why, size_t why_len);
void rpwi_ck_suppressions_free(struct ck_suppressions *s);
/* The kind is symbolized. */
bool rpwi_ck_suppressed(const struct ck_suppressions *s, const struct ck_kind *k);

/* ---- cause.c ---- */
/* The first causes of failed and flushed work become kinds of the rule first-cause, behind the
 * others. Called once, when all lines are there. 0 or -ENOMEM. */
int rpwi_ck_add_causes(struct ck_report *r);

/* ---- handles.c ---- */
/* Likewise, handles of plugins that changed on the way from one process to another. */
int rpwi_ck_add_handles(struct ck_report *r);

/* ---- show.c ---- */
struct ck_look {
	bool color;
	unsigned columns;
};
/* How a terminal wants it. `color` as options of commands have it: auto, always, never. */
struct ck_look rpwi_ck_look(int fd, const char *color, unsigned columns);
/* "main at server.c:12", a line for each function. Returns `out`. */
const char *rpwi_ck_frame_text(const struct ck_frame *f, char out[CK_FRAME_TEXT]);
/* The innermost one with a line of source, else the innermost; NULL: there is none. */
const struct ck_frame *rpwi_ck_best_frame(const struct ck_site *s);
/* In the length of a line where it can be: below the working directory without that. */
const char *rpwi_ck_short_path(const char *path);
void rpwi_ck_show(FILE *to, const struct ck_kind *k, const struct ck_look *look);
/* A row for each kind, and the remarks. `file`: of the report, or NULL. */
void rpwi_ck_summary(FILE *to, const struct ck_report *r, const char *file);

/* ---- json.c ---- */
/* Lines as in a report, with functions and lines of source, a kind each. 0 or -ENOMEM. */
int rpwi_ck_json(FILE *to, const struct ck_report *r);

/* ---- sarif.c ---- */
/* SARIF 2.1.0 (OASIS), for code scanning. 0 or -ENOMEM. */
int rpwi_ck_sarif(FILE *to, const struct ck_report *r);

#endif
