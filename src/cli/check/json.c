/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - see check.h: the lines of the report again, each kind of finding once, with functions
 * and lines of source. */
#include "cli/check/check.h"

#include <errno.h>
#include <jansson.h>

static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

static json_t *place_object(const struct ck_place *p)
{
	json_t *o = json_object();
	json_object_set_new(o, "function", text_or_null(p->function));
	json_object_set_new(o, "file", text_or_null(p->file));
	json_object_set_new(o, "line", p->file ? json_integer(p->line) : json_null());
	return o;
}

/* The innermost function is the frame's own; those that it is inlined into are a list. */
static json_t *frame_object(const struct ck_frame *f)
{
	const struct ck_place nowhere = {0};
	char text[32];
	json_t *o = place_object(f->places ? &f->place[0] : &nowhere), *into = json_array();
	json_object_set_new(o, "module", json_string(f->module));
	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)f->offset);
	json_object_set_new(o, "offset", json_string(text));
	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)f->address);
	json_object_set_new(o, "address", json_string(text));
	for (unsigned i = 1; i < f->places; i++)
		json_array_append_new(into, place_object(&f->place[i]));
	json_object_set_new(o, "inlined_into", into);
	return o;
}

static json_t *sites_array(const struct ck_kind *k)
{
	json_t *sites = json_array();
	for (unsigned i = 0; i < k->sites; i++) {
		json_t *frames = json_array();
		for (unsigned f = 0; f < k->site[i].frames; f++)
			json_array_append_new(frames, frame_object(&k->site[i].frame[f]));
		json_t *site = json_pack("{s:s, s:o}", "what", k->site[i].what, "frames", frames);
		const char *when = i ? rpwi_site_when_name(k->site[i].when) : NULL;
		if (when)
			json_object_set_new(site, "when", json_string(when));
		json_array_append_new(sites, site);
	}
	return sites;
}

static int put_line(FILE *to, json_t *line)
{
	int rc = line ? json_dumpf(line, to, JSON_COMPACT) : -1;
	json_decref(line);
	fputc('\n', to);
	return rc ? -ENOMEM : 0;
}

static json_t *summary(const struct ck_report *r)
{
	struct ck_totals t = rpwi_ck_totals(r);
	json_t *unwatched = json_array();
	for (uint32_t i = 0; i < r->processes; i++) {
		size_t n = 0;
		while (n < json_array_size(unwatched) &&
			strcmp(json_string_value(json_array_get(unwatched, n)),
				r->process[i].unwatched) != 0)
			n++;
		if (*r->process[i].unwatched && n == json_array_size(unwatched))
			json_array_append_new(unwatched, json_string(r->process[i].unwatched));
	}
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "kind", "summary", "errors",
		(json_int_t)t.kinds[RPWI_SEVERITY_ERROR], "warnings",
		(json_int_t)t.kinds[RPWI_SEVERITY_WARNING], "notes",
		(json_int_t)t.kinds[RPWI_SEVERITY_NOTE], "suppressed", (json_int_t)t.suppressed,
		"times", (json_int_t)t.times, "processes", (json_int_t)r->processes, "unwatched",
		unwatched);
}

int rpwi_ck_json(FILE *to, const struct ck_report *r)
{
	int rc = 0;
	for (uint32_t i = 0; i < r->kinds && !rc; i++) {
		const struct ck_kind *k = &r->kind[i];
		json_t *line = k->suppressed ? NULL : json_copy(k->line);
		if (k->suppressed)
			continue;
		json_object_set_new(line, "program", json_string(k->program_path));
		json_object_set_new(line, "count", json_integer(k->count));
		json_object_set_new(line, "processes", json_integer(k->processes));
		json_object_set_new(line, "sites", sites_array(k));
		rc = put_line(to, line);
	}
	return rc ? rc : put_line(to, summary(r));
}
