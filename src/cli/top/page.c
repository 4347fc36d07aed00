/* SPDX-License-Identifier: BSD-3-Clause */
/* page.c - see top.h: the text that Prometheus scrapes (its exposition format, version 0.0.4). */
#include "cli/top/top.h"

#include "cli/top/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct page {
	FILE *to;
	const struct top_look *l;
};

static void head(const struct page *p, const char *of, const char *name, const char *end,
	const char *kind, const char *help)
{
	fprintf(p->to, "# HELP ropeway_%s_%s%s %s\n# TYPE ropeway_%s_%s%s %s\n", of, name, end,
		help, of, name, end, kind);
}

static void label(const struct page *p, const char *name, const char *value)
{
	fprintf(p->to, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			fputc('\\', p->to);
		fputc(*value, p->to);
	}
	fputc('"', p->to);
}

static void labels(const struct page *p, const struct top_row *r)
{
	fputc('{', p->to);
	label(p, "device", r->device);
	if (r->level != TOP_DEVICES) {
		/* containers that share a network may both have a PID 1: the slot is one's alone */
		fprintf(p->to, ",slot=\"%u\",pid=\"%u\",", r->slot, r->pid);
		label(p, "command", r->comm);
	}
	if (r->level == TOP_QPS)
		fprintf(p->to, ",qpn=\"0x%06x\"", r->qpn);
	fputs("} ", p->to);
}

static void counters(const struct page *p, enum top_level level)
{
	const char *of = top_level_name[level];
	const struct top_count *c;
	for (unsigned i = 0; (c = top_count(i)); i++) {
		head(p, of, c->name, "_total", "counter", c->help);
		for (unsigned k = 0; k < p->l->n; k++) {
			const struct top_row *r = &p->l->row[k];
			if (r->level != level)
				continue;
			fprintf(p->to, "ropeway_%s_%s_total", of, c->name);
			labels(p, r);
			fprintf(p->to, "%" PRIu64 "\n", c->of(&r->n));
		}
	}
}

static uint64_t is_up(const struct top_row *r) { return r->up; }
static uint64_t processes(const struct top_row *r) { return r->processes; }
static uint64_t qps(const struct top_row *r) { return r->qps; }
static uint64_t state(const struct top_row *r) { return r->state; }

static void gauges(const struct page *p, enum top_level level)
{
	static const struct {
		enum top_level level;
		const char *name, *help;
		uint64_t (*of)(const struct top_row *r);
	} all[] = {
		{TOP_DEVICES, "up", "1: the interface is up.", is_up},
		{TOP_DEVICES, "processes", "Processes that have the device open.", processes},
		{TOP_DEVICES, "qps", "Queue pairs that live.", qps},
		{TOP_PROCESSES, "qps", "Queue pairs that live.", qps},
		{TOP_QPS, "state",
			"0 RESET, 1 INIT, 2 RTR, 3 RTS, 4 SQD, 5 SQE, 6 ERR (enum ibv_qp_state).",
			state},
	};
	const char *of = top_level_name[level];
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(all); i++) {
		if (all[i].level != level)
			continue;
		head(p, of, all[i].name, "", "gauge", all[i].help);
		for (unsigned k = 0; k < p->l->n; k++) {
			const struct top_row *r = &p->l->row[k];
			if (r->level != level)
				continue;
			fprintf(p->to, "ropeway_%s_%s", of, all[i].name);
			labels(p, r);
			fprintf(p->to, "%" PRIu64 "\n", all[i].of(r));
		}
	}
}

int top_page(const struct top_look *l, enum top_level level, char **text, size_t *len)
{
	*text = NULL;
	struct page p = {.to = open_memstream(text, len), .l = l};
	if (!p.to)
		return -ENOMEM;
	fputs("# HELP ropeway_build_info 1, with the version of ropeway top.\n"
	      "# TYPE ropeway_build_info gauge\n"
	      "ropeway_build_info{version=\"" ROPEWAY_VERSION "\"} 1\n",
		p.to);
	for (enum top_level i = TOP_DEVICES; i <= level; i++) {
		gauges(&p, i);
		counters(&p, i);
	}
	bool bad = ferror(p.to);
	if (fclose(p.to) || bad) {
		free(*text);
		*text = NULL;
		return -ENOMEM;
	}
	return 0;
}
