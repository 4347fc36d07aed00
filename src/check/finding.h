/* SPDX-License-Identifier: BSD-3-Clause */
/* finding.h - one finding of `ropeway run --check`: as a line of the report file, and as a block of
 * text for people. The preload writes either; `ropeway check REPORT` reads lines and writes blocks,
 * with functions and lines of source in the place of module and offset.
 *
 * The report file: JSON, one object a line, appended by one write(2), by every process of a run.
 * Addresses and each wr_id are strings, since readers of JSON have no 64-bit integers. Times are
 * CLOCK_MONOTONIC in ns. Lines by "kind":
 *
 *   begin    pid, ppid, program, t
 *   finding  pid, tid, t, id (its number in the process, from 1), rule, number, severity, text;
 *            where there are any: qp {qpn, type, state, peer_qpn}, wr {id, op}, memory {addr, len,
 *            key}, peer (what the other side saw), sites [{what, when, frames [{module,
 *            offset}]}]; when: "before" or "after" the first site, absent if not known
 *   again    pid, id, count: it has been found so often by now (at 2, 4, 8 ... and at the end)
 *   event    pid, t, what, qpn, peer_qpn, text, sites: no finding, but what the first cause of a
 *            failure is found by
 *   end      pid, t, findings (errors and warnings, each once), unwatched (a sentence, or "")
 *
 * offset: in the file `module`; a frame is a return address, so the call ends before it.
 */
#ifndef ROPEWAY_CHECK_FINDING_H
#define ROPEWAY_CHECK_FINDING_H

#include "check/rules.h"

enum { RPWI_SITE_FRAMES = 4, RPWI_FINDING_SITES = 3, RPWI_FINDING_LINE = 4096 };

/* When the call of a site was, against the first site of its finding. */
enum rpwi_site_when { RPWI_SITE_BEFORE, RPWI_SITE_AFTER, RPWI_SITE_UNORDERED };

/* The return addresses of a call into the library, innermost first; 0: no more are known. */
struct rpwi_site {
	uintptr_t pc[RPWI_SITE_FRAMES];
};

struct rpwi_finding {
	enum rpwi_check_rule rule;
	uint32_t qpn, peer_qpn;   /* 0: of no QP */
	const char *type, *state; /* of the QP: "RC", "RTS" */
	bool has_wr, has_memory;
	uint64_t wr_id;
	const char *op; /* of the request: "SEND" */
	uint64_t addr, len;
	uint32_t key;   /* 0: none */
	char text[512]; /* what happened, with its numbers: a sentence or two */
	char peer[256]; /* what the other side saw, or "" */
	struct {
		const char *what; /* "posted here"; NULL: no more sites */
		struct rpwi_site at;
		int pid; /* of the process whose addresses they are; 0: this one */
		enum rpwi_site_when when;
	} site[RPWI_FINDING_SITES];
};

/* One more site, if it is known and there is room; of a call before that of the first site, or as
 * `when` says. */
void rpwi_finding_site(struct rpwi_finding *f, const char *what, const struct rpwi_site *at);
void rpwi_finding_site_when(struct rpwi_finding *f, const char *what, const struct rpwi_site *at,
	enum rpwi_site_when when);

/* The same with frames as texts: what a block of text is made of. */
struct rpwi_shown {
	const struct rpwi_rule_info *rule;
	const char *text, *peer; /* or NULL */
	const char *objects;     /* "QP 0x000011 (RC, RTS, peer's 0x000012), SEND with wr_id 7" */
	const char *program;
	int pid;
	uint32_t count;
	struct {
		const char *what; /* NULL: no more */
		const char *frame[RPWI_SITE_FRAMES];
	} site[RPWI_FINDING_SITES];
};

/* "QP 0x000011 (RC, RTS, peer's 0x000012), SEND with wr_id 7, 64 bytes at 0x7f00, key 0x101": what
 * the finding is about, as far as it has it. The length; 0: nothing. */
size_t rpwi_finding_objects(const struct rpwi_finding *f, char *out, size_t room);

/* "before" or "after"; NULL: the order is not known. */
const char *rpwi_site_when_name(enum rpwi_site_when when);

/* Text of at most `room` bytes with its end; the length, or `room` - 1 where it was cut. `columns`:
 * lines are broken at blanks before that; 0: never. */
size_t rpwi_shown_text(
	const struct rpwi_shown *s, bool color, unsigned columns, char *out, size_t room);

#endif
