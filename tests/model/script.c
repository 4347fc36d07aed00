/* SPDX-License-Identifier: BSD-3-Clause */
/* script.c - a script as text, so that people can read, cut and keep it: one operation a line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

const char *const kind_names[K_KINDS] = {"send", "send_imm", "send_inv", "write", "write_imm",
	"read", "cas", "add", "awrite", "window"};
const char *const bad_names[BAD_KINDS] = {
	"good", "rkey", "bounds", "right", "lkey", "short", "recv_lkey", "stale"};
const char *const event_names[EV_KINDS] = {"none", "destroy", "reset", "err", "kill", "stop"};
const char *const wire_names[WIRES] = {"auto", "copy", "fetch", "udp", "mixed", "veth", "fault"};
static const char flag_letters[] = "sfilKW"; /* in the order of enum flag */

struct script *script_new(uint32_t room)
{
	struct script *s = calloc(1, sizeof(*s) + room * sizeof(s->op[0]));
	if (!s)
		abort();
	s->room = room;
	return s;
}

static const char *type_name(uint8_t type)
{
	return type == IBV_QPT_RC ? "rc" : type == IBV_QPT_UC ? "uc" : "ud";
}

void script_write(const struct script *s, FILE *to)
{
	fprintf(to, "model seed %llu wire %s procs %u threads %u cqs %u rounds %u\n",
		(unsigned long long)s->seed, wire_names[s->wire], s->procs, s->threads, s->cqs,
		s->rounds);
	for (unsigned i = 0; i < s->conns; i++) {
		const struct conn *c = &s->conn[i];
		fprintf(to, "conn %u %s %u %u srq %u%u ex %u%u window %u%u mtu %u gid %u late %u\n",
			i, type_name(c->type), c->proc[0], c->proc[1], c->srq[0], c->srq[1],
			c->ex[0], c->ex[1], c->window[0], c->window[1], c->mtu, c->gid, c->late);
	}
	for (unsigned i = 0; i < s->nhappenings; i++) {
		const struct happening *h = &s->happening[i];
		fprintf(to, "event %u %u.%u %s at %u waits %u together %u\n", h->round, h->conn,
			h->side, event_names[h->event], h->at, h->waits, h->together);
	}
	for (uint32_t i = 0; i < s->nops; i++) {
		const struct op *o = &s->op[i];
		char flags[8], *f = flags;
		for (unsigned k = 0; k < sizeof(flag_letters) - 1; k++)
			if (o->flags & 1u << k)
				*f++ = flag_letters[k];
		if (f == flags)
			*f++ = '-';
		*f = 0;
		fprintf(to, "op %u %u.%u %s %u sges %u cut %u to %u room %u %s %s\n", o->round,
			o->conn, o->dir, kind_names[o->kind], o->len, o->nsge, o->cut, o->to,
			o->room, flags, bad_names[o->bad]);
	}
}

/* The place of a word in a table; -1: not there. */
static int place_of(const char *const *names, int n, const char *word)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], word))
			return i;
	return -1;
}

static bool read_conn(struct script *s, const char *line)
{
	unsigned at, a, b, srq, ex, window, mtu, gid, late;
	char type[8], srqs[4], exs[4], windows[4];
	if (sscanf(line, "conn %u %7s %u %u srq %3s ex %3s window %3s mtu %u gid %u late %u", &at,
		    type, &a, &b, srqs, exs, windows, &mtu, &gid, &late) != 10)
		return false;
	srq = (unsigned)strtoul(srqs, NULL, 10), ex = (unsigned)strtoul(exs, NULL, 10);
	window = (unsigned)strtoul(windows, NULL, 10);
	if (at >= CONNS_MAX || a >= PROCS_MAX || b >= PROCS_MAX || mtu < 1 || mtu > 5)
		return false;
	s->conn[at] = (struct conn){.type = !strcmp(type, "rc")   ? IBV_QPT_RC
					    : !strcmp(type, "uc") ? IBV_QPT_UC
								  : IBV_QPT_UD,
		.proc = {(uint8_t)a, (uint8_t)b},
		.srq = {srq / 10 % 10, srq % 10},
		.ex = {ex / 10 % 10, ex % 10},
		.window = {window / 10 % 10, window % 10},
		.mtu = (uint8_t)mtu,
		.gid = (uint8_t)gid,
		.late = (uint8_t)late};
	if (at >= s->conns)
		s->conns = (uint16_t)(at + 1);
	return true;
}

static bool read_event(struct script *s, const char *line)
{
	unsigned round, conn, side, at, waits, together;
	char name[16];
	if (sscanf(line, "event %u %u.%u %15s at %u waits %u together %u", &round, &conn, &side,
		    name, &at, &waits, &together) != 7)
		return false;
	int event = place_of(event_names, EV_KINDS, name);
	if (event < 0 || conn >= CONNS_MAX || side > 1 ||
		s->nhappenings == sizeof(s->happening) / sizeof(s->happening[0]))
		return false;
	s->happening[s->nhappenings++] = (struct happening){.round = (uint16_t)round,
		.at = (uint16_t)at,
		.conn = (uint8_t)conn,
		.side = (uint8_t)side,
		.event = (uint8_t)event,
		.waits = (uint8_t)waits,
		.together = (uint8_t)together};
	return true;
}

static bool read_op(struct op *o, const char *line)
{
	unsigned round, conn, dir, len, nsge, cut, to, room;
	char kind[16], flags[16], bad[16];
	if (sscanf(line, "op %u %u.%u %15s %u sges %u cut %u to %u room %u %15s %15s", &round,
		    &conn, &dir, kind, &len, &nsge, &cut, &to, &room, flags, bad) != 11)
		return false;
	int k = place_of(kind_names, K_KINDS, kind), b = place_of(bad_names, BAD_KINDS, bad);
	if (k < 0 || b < 0 || conn >= CONNS_MAX || dir > 1 || nsge > SGE_MAX || len > MSG_MAX)
		return false;
	*o = (struct op){.round = (uint16_t)round,
		.conn = (uint8_t)conn,
		.dir = (uint8_t)dir,
		.kind = (uint8_t)k,
		.nsge = (uint8_t)nsge,
		.bad = (uint8_t)b,
		.len = len,
		.cut = cut,
		.to = to,
		.room = room};
	for (unsigned i = 0; i < sizeof(flag_letters) - 1; i++)
		if (strchr(flags, flag_letters[i]))
			o->flags |= (uint8_t)(1u << i);
	return true;
}

static bool read_head(struct script *s, const char *line)
{
	unsigned long long seed;
	unsigned procs, threads, cqs, rounds;
	char wire[16];
	if (sscanf(line, "model seed %llu wire %15s procs %u threads %u cqs %u rounds %u", &seed,
		    wire, &procs, &threads, &cqs, &rounds) != 6)
		return false;
	int w = place_of(wire_names, WIRES, wire);
	if (w < 0 || procs < 1 || procs > PROCS_MAX)
		return false;
	s->seed = seed, s->wire = (uint8_t)w, s->procs = (uint8_t)procs;
	s->threads = (uint8_t)threads, s->cqs = (uint8_t)cqs, s->rounds = (uint16_t)rounds;
	return true;
}

struct script *script_read(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[256];
	unsigned n = 0;
	uint32_t lines = 0;
	if (!f) {
		fprintf(stderr, "model: cannot read %s: %s\n", path, strerror(errno));
		exit(2);
	}
	while (fgets(line, sizeof(line), f))
		lines++;
	rewind(f);
	struct script *s = script_new(lines);
	while (fgets(line, sizeof(line), f)) {
		n++;
		bool ok = *line == '#' || *line == '\n' || read_head(s, line) ||
			  read_conn(s, line) || read_event(s, line) ||
			  (read_op(&s->op[s->nops], line) && ++s->nops);
		if (!ok) {
			fprintf(stderr, "model: %s:%u is no line of a script: %s", path, n, line);
			exit(2);
		}
	}
	fclose(f);
	return s;
}
