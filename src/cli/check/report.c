/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - see check.h: lines of a report become kinds of findings, each with its count. */
#include "cli/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "cli/cli.h"

/* ---- values of a line ---- */

static const char *string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static uint64_t number(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));
	return n > 0 ? (uint64_t)n : 0;
}

/* Of 64 bits: "0x7f00" or "7". */
static uint64_t wide(const json_t *o, const char *key) { return strtoull(string(o, key), NULL, 0); }

/* What a \u escape may have brought past the first look at the line. */
static void make_printable(json_t *v)
{
	const char *key;
	json_t *of;
	size_t i;
	void *safe;
	json_object_foreach_safe(v, safe, key, of) make_printable(of);
	json_array_foreach(v, i, of) make_printable(of);
	if (!json_is_string(v))
		return;
	size_t len = json_string_length(v);
	char *text = malloc(len + 1);
	if (text && json_string_value(v)) {
		rpwi_cli_printable(json_string_value(v), text, len + 1);
		json_string_set(v, text);
	}
	free(text);
}

/* ---- tables that grow ---- */

static bool grow(struct ck_report *r, void **list, uint32_t have, size_t size)
{
	if (have & (have - 1)) /* room for the next power of two */
		return true;
	void *more = realloc(*list, (have ? 2 * (size_t)have : 1) * size);
	if (!more)
		r->out_of_memory = true;
	else
		*list = more;
	return more;
}

/* The newest with that pid: a process that executes another program begins anew. */
static struct ck_process *process_of(struct ck_report *r, int pid, bool begins)
{
	for (uint32_t i = r->processes; i-- && !begins;)
		if (r->process[i].pid == pid)
			return &r->process[i];
	if (r->processes == CK_PROCESSES_MAX ||
		!grow(r, (void **)&r->process, r->processes, sizeof(*r->process)))
		return NULL;
	struct ck_process *p = &r->process[r->processes++];
	*p = (struct ck_process){.pid = pid, .program = "?", .program_path = "", .unwatched = ""};
	return p;
}

/* Room for a finding's number. */
static bool reach_id(struct ck_report *r, struct ck_process *p, uint32_t id)
{
	if (!id || id > CK_IDS_MAX)
		return false;
	while (p->ids < id) {
		if (!grow(r, (void **)&p->kind, p->ids, sizeof(*p->kind)) ||
			!grow(r, (void **)&p->count, p->ids, sizeof(*p->count)))
			return false;
		p->kind[p->ids] = UINT32_MAX;
		p->count[p->ids++] = 0;
	}
	return true;
}

/* ---- findings ---- */

static enum rpwi_site_when when_of(const char *word)
{
	for (int w = RPWI_SITE_BEFORE; w < RPWI_SITE_UNORDERED; w++)
		if (!strcmp(word, rpwi_site_when_name((enum rpwi_site_when)w)))
			return (enum rpwi_site_when)w;
	return RPWI_SITE_UNORDERED;
}

static void take_site(struct ck_site *s, const json_t *o)
{
	const json_t *frames = json_object_get(o, "frames"), *f;
	size_t i;
	s->what = string(o, "what");
	s->when = when_of(string(o, "when"));
	json_array_foreach(frames, i, f)
	{
		if (s->frames == RPWI_SITE_FRAMES)
			break;
		s->frame[s->frames++] = (struct ck_frame){
			.module = string(f, "module"), .offset = wide(f, "offset")};
	}
}

/* "QP 0x000011 (RC, RTS, peer's 0x000012), SEND with wr_id 7", or NULL. */
static char *objects_of(const json_t *line)
{
	const json_t *qp = json_object_get(line, "qp"), *wr = json_object_get(line, "wr"),
		     *memory = json_object_get(line, "memory");
	struct rpwi_finding f = {.qpn = (uint32_t)number(qp, "qpn"),
		.peer_qpn = (uint32_t)number(qp, "peer_qpn"),
		.type = string(qp, "type"),
		.state = string(qp, "state"),
		.has_wr = wr,
		.wr_id = wide(wr, "id"),
		.op = string(wr, "op"),
		.has_memory = memory,
		.addr = wide(memory, "addr"),
		.len = number(memory, "len"),
		.key = (uint32_t)wide(memory, "key")};
	char text[512];
	return rpwi_finding_objects(&f, text, sizeof(text)) ? strdup(text) : NULL;
}

static void hash_kind(struct ck_kind *k)
{
	uint64_t h = rpwi_mix(RPWI_HASH, k->rule + 1);
	for (unsigned i = 0; i < k->sites; i++) {
		const struct ck_frame *f = &k->site[i].frame[0];
		if (!k->site[i].frames)
			continue;
		h = rpwi_hash(h, f->module, strlen(f->module));
		h = rpwi_mix(h, f->offset);
	}
	k->hash = h;
}

static struct ck_kind kind_of(enum rpwi_check_rule rule, const struct ck_process *p, json_t *line)
{
	const json_t *sites = json_object_get(line, "sites"), *site, *qp;
	struct ck_kind k = {.rule = rule,
		.line = line,
		.text = string(line, "text"),
		.peer = json_string_value(json_object_get(line, "peer")),
		.program = p->program,
		.program_path = p->program_path,
		.pid = p->pid,
		.t = number(line, "t")};
	size_t i;
	qp = json_object_get(line, "qp");
	k.qpn = (uint32_t)number(qp, "qpn");
	k.peer_qpn = (uint32_t)number(qp, "peer_qpn");
	json_array_foreach(sites, i, site) if (k.sites < RPWI_FINDING_SITES)
		take_site(&k.site[k.sites++], site);
	hash_kind(&k);
	return k;
}

int rpwi_ck_add(struct ck_report *r, const struct ck_kind *k)
{
	if (!grow(r, (void **)&r->kind, r->kinds, sizeof(*r->kind)))
		return -ENOMEM;
	r->kind[r->kinds++] = *k;
	json_incref(k->line);
	return 0;
}

int rpwi_ck_line(struct ck_kind *k, const char *text)
{
	const struct rpwi_rule_info *rule = &rpwi_rules[k->rule];
	k->line = json_pack("{s:s, s:i, s:I, s:s, s:i, s:s, s:s}", "kind", "finding", "pid", k->pid,
		"t", (json_int_t)k->t, "rule", rule->name, "number", rule->number, "severity",
		rpwi_severity_name(rule->severity), "text", text);
	k->text = k->line ? json_string_value(json_object_get(k->line, "text")) : NULL;
	return k->text ? 0 : -ENOMEM;
}

void rpwi_ck_site_of(
	struct ck_kind *k, const struct ck_event *e, const char *what, enum rpwi_site_when when)
{
	if (!e || !e->site.frames)
		return;
	struct ck_site *s = &k->site[k->sites++];
	*s = e->site;
	s->what = what;
	s->when = when;
}

/* Where its kind is, a new one or not; UINT32_MAX: nowhere. */
static uint32_t add_kind(struct ck_report *r, const struct ck_kind *k)
{
	for (uint32_t i = 0; i < r->kinds; i++)
		if (r->kind[i].hash == k->hash)
			return i;
	if (rpwi_ck_add(r, k))
		return UINT32_MAX;
	r->kind[r->kinds - 1].objects = objects_of(k->line);
	return r->kinds - 1;
}

struct feeding {
	struct ck_report *r;
	void (*on_kind)(void *arg, struct ck_kind *k);
	void *arg;
};

static void take_finding(struct feeding *f, json_t *line)
{
	struct ck_report *r = f->r;
	const char *name = string(line, "rule");
	enum rpwi_check_rule rule = rpwi_rule_named(name, strlen(name));
	struct ck_process *p = process_of(r, (int)number(line, "pid"), false);
	uint32_t id = (uint32_t)RPWI_MIN(number(line, "id"), UINT32_MAX), before = r->kinds;
	if (!p || !reach_id(r, p, id) || p->kind[id - 1] != UINT32_MAX) {
		r->bad_lines++;
		return;
	}
	if (rule == RPWI_RULES) {
		r->unknown_rules++;
		return;
	}
	struct ck_kind k = kind_of(rule, p, line);
	uint32_t at = add_kind(r, &k);
	if (at == UINT32_MAX)
		return;
	p->kind[id - 1] = at;
	p->count[id - 1] = 1;
	r->kind[at].count++;
	r->kind[at].processes++;
	if (r->kinds > before && f->on_kind)
		f->on_kind(f->arg, &r->kind[at]);
}

/* The count so far, of which the report has some already. */
static void take_again(struct ck_report *r, const json_t *line)
{
	struct ck_process *p = process_of(r, (int)number(line, "pid"), false);
	uint64_t id = number(line, "id"), count = number(line, "count");
	if (!p || !id || id > p->ids || count > UINT32_MAX) {
		r->bad_lines++;
		return;
	}
	if (p->kind[id - 1] == UINT32_MAX || count <= p->count[id - 1])
		return; /* of a rule that is not known; or it was counted before */
	r->kind[p->kind[id - 1]].count += (uint32_t)count - p->count[id - 1];
	p->count[id - 1] = (uint32_t)count;
}

/* ---- the other lines ---- */

static void take_begin(struct ck_report *r, json_t *line)
{
	struct ck_process *p = process_of(r, (int)number(line, "pid"), true);
	if (!p)
		return;
	const char *program = string(line, "program"), *slash = strrchr(program, '/');
	p->line = json_incref(line);
	p->program = slash && slash[1] ? slash + 1 : program;
	p->program_path = program;
}

static void take_end(struct ck_report *r, json_t *line)
{
	struct ck_process *p = process_of(r, (int)number(line, "pid"), false);
	if (!p || p->end)
		return;
	p->end = json_incref(line);
	p->end_t = number(line, "t");
	p->unwatched = string(line, "unwatched");
}

static void take_event(struct ck_report *r, json_t *line)
{
	struct ck_process *p = process_of(r, (int)number(line, "pid"), false);
	const json_t *site = json_array_get(json_object_get(line, "sites"), 0);
	if (!p || r->events == CK_EVENTS_MAX ||
		!grow(r, (void **)&r->event, r->events, sizeof(*r->event)))
		return;
	struct ck_event *e = &r->event[r->events++];
	*e = (struct ck_event){.process = (uint32_t)(p - r->process),
		.t = number(line, "t"),
		.line = json_incref(line),
		.what = string(line, "what"),
		.text = string(line, "text"),
		.qpn = (uint32_t)number(line, "qpn"),
		.peer_qpn = (uint32_t)number(line, "peer_qpn")};
	if (site)
		take_site(&e->site, site);
}

static void take_line(struct feeding *f, char *text, size_t len)
{
	text[len] = '\0';
	rpwi_cli_printable(text, text, len + 1); /* JSON is UTF-8, and file names may be none */
	json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (line)
		make_printable(line);
	const char *kind = string(line, "kind");
	if (!strcmp(kind, "finding"))
		take_finding(f, line);
	else if (!strcmp(kind, "again"))
		take_again(f->r, line);
	else if (!strcmp(kind, "begin"))
		take_begin(f->r, line);
	else if (!strcmp(kind, "end"))
		take_end(f->r, line);
	else if (!strcmp(kind, "event"))
		take_event(f->r, line);
	else if (!strcmp(kind, "cut"))
		f->r->cut++;
	else
		f->r->bad_lines++;
	json_decref(line);
}

void rpwi_ck_feed(struct ck_report *r, const char *bytes, size_t len,
	void (*on_kind)(void *arg, struct ck_kind *k), void *arg)
{
	struct feeding f = {r, on_kind, arg};
	while (len) {
		const char *end = memchr(bytes, '\n', len);
		size_t n = end ? (size_t)(end - bytes) : len;
		r->overlong |= n >= sizeof(r->partial) - r->partial_len;
		if (!r->overlong) {
			memcpy(r->partial + r->partial_len, bytes, n);
			r->partial_len += n;
		}
		if (end) {
			if (r->overlong)
				r->bad_lines++;
			else if (r->partial_len)
				take_line(&f, r->partial, r->partial_len);
			r->partial_len = 0;
			r->overlong = false;
		}
		bytes += n + !!end;
		len -= n + !!end;
	}
}

int rpwi_ck_read(struct ck_report *r, const char *file)
{
	char buf[1 << 16];
	ssize_t n;
	int fd = strcmp(file, "-") != 0 ? open(file, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		rpwi_ck_feed(r, buf, (size_t)n, NULL, NULL);
	int rc = n < 0 ? -errno : 0;
	close(fd);
	if (r->partial_len || r->overlong) /* the writer was stopped within a line */
		r->bad_lines++;
	r->partial_len = 0;
	r->overlong = false;
	return r->out_of_memory ? -ENOMEM : rc;
}

/* ---- the whole ---- */

struct ck_totals rpwi_ck_totals(const struct ck_report *r)
{
	struct ck_totals t = {0};
	for (uint32_t i = 0; i < r->kinds; i++) {
		const struct ck_kind *k = &r->kind[i];
		enum rpwi_severity severity = rpwi_rules[k->rule].severity;
		t.suppressed += k->suppressed;
		if (k->suppressed)
			continue;
		t.kinds[severity]++;
		if (severity != RPWI_SEVERITY_NOTE)
			t.times += k->count;
	}
	return t;
}

static void free_site(struct ck_site *s)
{
	for (unsigned f = 0; f < s->frames; f++)
		for (unsigned p = 0; p < s->frame[f].places; p++) {
			free(s->frame[f].place[p].function);
			free(s->frame[f].place[p].file);
		}
}

void rpwi_ck_free(struct ck_report *r)
{
	for (uint32_t i = 0; i < r->kinds; i++) {
		for (unsigned s = 0; s < r->kind[i].sites; s++)
			free_site(&r->kind[i].site[s]);
		free(r->kind[i].objects);
		json_decref(r->kind[i].line);
	}
	for (uint32_t i = 0; i < r->processes; i++) {
		json_decref(r->process[i].line);
		json_decref(r->process[i].end);
		free(r->process[i].kind);
		free(r->process[i].count);
	}
	for (uint32_t i = 0; i < r->events; i++) {
		free_site(&r->event[i].site);
		json_decref(r->event[i].line);
	}
	free(r->kind);
	free(r->process);
	free(r->event);
	*r = (struct ck_report){0};
}
