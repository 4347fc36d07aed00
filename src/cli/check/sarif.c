/* SPDX-License-Identifier: BSD-3-Clause */
/* sarif.c - see check.h: SARIF 2.1.0, as code scanning takes it. Sections are of the OASIS standard
 * "Static Analysis Results Interchange Format Version 2.1.0". */
#include "cli/check/check.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"

#define SCHEMA "https://json.schemastore.org/sarif-2.1.0.json"
#define BASE "%SRCROOT%" /* the folder that the command runs in, where the sources are */

/* ---- texts ---- */

static json_t *message(const char *text) { return json_pack("{s:s}", "text", text); }

/* "Post a buffer again (IB 10.8.3.1)." of "post a buffer again", " (", "IB 10.8.3.1" and ")". */
static json_t *sentence(
	const char *first, const char *before, const char *second, const char *behind)
{
	size_t room = strlen(first) + strlen(before) + strlen(second) + strlen(behind) + 2;
	char *text = malloc(room);
	if (!text)
		return NULL;
	snprintf(text, room, "%s%s%s%s.", first, *second ? before : "", second,
		*second ? behind : "");
	text[0] = (char)toupper((unsigned char)text[0]);
	json_t *m = message(text);
	free(text);
	return m;
}

/* "RPW103": what an alert is known by (3.49.3). */
static const char *rule_id(const struct rpwi_rule_info *rule, char id[16])
{
	snprintf(id, 16, "RPW%u", rule->number);
	return id;
}

/* A path as part of a URI (RFC 3986, 3.3). */
static char *escaped(const char *before, const char *path)
{
	char *uri = malloc(strlen(before) + 3 * strlen(path) + 1), *to = uri;
	if (!uri)
		return NULL;
	to += sprintf(to, "%s", before);
	for (; *path; path++)
		to += isalnum((unsigned char)*path) || strchr("/-._~+@", *path)
			      ? sprintf(to, "%c", *path)
			      : sprintf(to, "%%%02X", (unsigned char)*path);
	return uri;
}

/* ---- places (3.28 to 3.34) ---- */

static json_t *artifact(const char *path)
{
	const char *short_path = rpwi_ck_short_path(path);
	bool below = short_path != path;
	char *uri = escaped(below || path[0] != '/' ? "" : "file://", short_path);
	json_t *o = json_pack("{s:s}", "uri", uri ? uri : "");
	if (below)
		json_object_set_new(o, "uriBaseId", json_string(BASE));
	free(uri);
	return o;
}

static json_t *logical(const char *function)
{
	return json_pack("[{s:s, s:s}]", "fullyQualifiedName", function, "kind", "function");
}

/* Where there is no line of source, the module and the address in it. */
static json_t *location_of(const struct ck_frame *f, const struct ck_place *p)
{
	json_t *physical, *o;
	if (p && p->file)
		physical = json_pack("{s:o, s:{s:i}}", "artifactLocation", artifact(p->file),
			"region", "startLine", p->line ? (int)p->line : 1);
	else if (*f->module)
		physical = json_pack("{s:o, s:{s:I, s:s}}", "artifactLocation", artifact(f->module),
			"address", "relativeAddress", (json_int_t)f->address, "kind",
			"instruction");
	else
		physical = json_pack("{s:{s:I, s:s}}", "address", "absoluteAddress",
			(json_int_t)f->address, "kind", "instruction");
	o = json_pack("{s:o}", "physicalLocation", physical);
	if (p && p->function)
		json_object_set_new(o, "logicalLocations", logical(p->function));
	return o;
}

static json_t *location(const struct ck_site *s)
{
	const struct ck_frame *f = rpwi_ck_best_frame(s);
	return f ? location_of(f, f->places ? &f->place[0] : NULL) : NULL;
}

static void add_message(json_t *location, const char *text)
{
	if (location)
		json_object_set_new(location, "message", message(text));
}

/* A call stack: a frame for each function, inlined ones too. */
static json_t *stack(const struct ck_site *s)
{
	json_t *frames = json_array();
	for (unsigned f = 0; f < s->frames; f++) {
		const struct ck_frame *frame = &s->frame[f];
		const char *slash = strrchr(frame->module, '/');
		for (unsigned p = 0; p < RPWI_MAX(frame->places, 1u); p++)
			json_array_append_new(frames,
				json_pack("{s:o, s:s}", "location",
					location_of(frame, frame->places ? &frame->place[p] : NULL),
					"module", slash ? slash + 1 : frame->module));
	}
	return json_pack("{s:o, s:o}", "message", message(s->what), "frames", frames);
}

/* ---- how it came about (3.36 to 3.38) ---- */

static void add_step(json_t *steps, const struct ck_site *s)
{
	json_t *where = location(s);
	if (!where)
		return;
	add_message(where, s->what);
	json_array_append_new(steps, json_pack("{s:o, s:i}", "location", where, "executionOrder",
					     (int)json_array_size(steps) + 1));
}

/* The sites whose order is known, the earliest first; NULL: there are not two. */
static json_t *code_flow(const struct ck_kind *k)
{
	json_t *steps = json_array();
	for (unsigned i = k->sites; i-- > 1;)
		if (k->site[i].when == RPWI_SITE_BEFORE)
			add_step(steps, &k->site[i]);
	for (unsigned i = 0; i < k->sites; i++)
		if (!i || k->site[i].when == RPWI_SITE_AFTER)
			add_step(steps, &k->site[i]);
	if (json_array_size(steps) > 1)
		return json_pack("{s:[{s:o}]}", "threadFlows", "locations", steps);
	json_decref(steps);
	return NULL;
}

/* ---- rules and results (3.49, 3.27) ---- */

static json_t *rule_object(const struct rpwi_rule_info *rule)
{
	char id[16];
	const char *severity = rpwi_severity_name(rule->severity);
	json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", rule_id(rule, id), "name",
		rule->name, "shortDescription", sentence(rule->what, "", "", ""), "fullDescription",
		sentence(rule->nic, "", "", ""), "help",
		sentence(rule->remedy, " (", rule->source, ")"));
	json_object_set_new(o, "defaultConfiguration",
		json_pack("{s:s, s:b}", "level", severity, "enabled", !rule->off));
	json_object_set_new(o, "properties",
		json_pack("{s:[s], s:s}", "tags", "rdma", "problem.severity",
			rule->severity == RPWI_SEVERITY_NOTE ? "recommendation" : severity));
	return o;
}

/* What stays where lines of source move (3.27.17). */
static json_t *fingerprint(const struct ck_kind *k)
{
	uint64_t h =
		rpwi_hash(RPWI_HASH, rpwi_rules[k->rule].name, strlen(rpwi_rules[k->rule].name));
	char text[32];
	for (unsigned s = 0; s < k->sites; s++)
		for (unsigned f = 0; f < k->site[s].frames; f++) {
			const struct ck_frame *frame = &k->site[s].frame[f];
			const char *name = frame->places ? frame->place[0].function : NULL;
			if (name)
				h = rpwi_hash(h, name, strlen(name) + 1);
			else
				h = rpwi_mix(h, frame->address);
		}
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)h);
	return json_pack("{s:s}", "ropewayCall/v1", text);
}

static json_t *result_message(const struct ck_kind *k)
{
	const char *part[] = {k->text, k->objects, k->peer};
	size_t room = 8, used = 0;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(part); i++)
		room += part[i] ? strlen(part[i]) + 8 : 0;
	char *text = calloc(1, room);
	for (size_t i = 0; text && i < RPWI_ARRAY_LEN(part); i++)
		if (part[i] && *part[i])
			used += (size_t)snprintf(text + used, room - used, "%s%s%s",
				used ? "; " : "", i == 2 ? "peer: " : "", part[i]);
	json_t *m = sentence(rpwi_rules[k->rule].what, ": ", text ? text : "", "");
	free(text);
	return m;
}

static json_t *result(const struct ck_kind *k)
{
	const struct rpwi_rule_info *rule = &rpwi_rules[k->rule];
	char id[16];
	const struct ck_frame program = {.module = k->program_path};
	json_t *where = k->sites ? location(&k->site[0]) : NULL, *others = json_array(),
	       *stacks = json_array();
	if (!where && *k->program_path)
		where = json_pack("{s:{s:o}}", "physicalLocation", "artifactLocation",
			artifact(program.module));
	else if (where)
		add_message(where, k->site[0].what);
	for (unsigned i = 0; i < k->sites; i++) {
		json_t *other = i ? location(&k->site[i]) : NULL;
		if (other) {
			json_object_set_new(other, "id", json_integer(i));
			add_message(other, k->site[i].what);
			json_array_append_new(others, other);
		}
		json_array_append_new(stacks, stack(&k->site[i]));
	}
	json_t *o = json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "ruleId",
		rule_id(rule, id), "ruleIndex", (int)k->rule, "level",
		rpwi_severity_name(rule->severity), "message", result_message(k),
		"relatedLocations", others, "stacks", stacks, "partialFingerprints", fingerprint(k),
		"occurrenceCount", json_integer(k->count ? k->count : 1));
	json_object_set_new(o, "locations", where ? json_pack("[o]", where) : json_array());
	json_t *flow = code_flow(k);
	if (flow)
		json_object_set_new(o, "codeFlows", json_pack("[o]", flow));
	return o;
}

/* ---- the whole ---- */

static json_t *run_object(const struct ck_report *r)
{
	json_t *rules = json_array(), *results = json_array();
	char folder[4096], *base = NULL;
	for (unsigned i = 0; i < RPWI_RULES; i++)
		json_array_append_new(rules, rule_object(&rpwi_rules[i]));
	for (uint32_t i = 0; i < r->kinds; i++)
		if (!r->kind[i].suppressed)
			json_array_append_new(results, result(&r->kind[i]));
	json_t *o = json_pack("{s:{s:{s:s, s:s, s:o}}, s:o, s:s}", "tool", "driver", "name",
		"ropeway", "semanticVersion", ROPEWAY_VERSION, "rules", rules, "results", results,
		"columnKind", "utf16CodeUnits");
	if (getcwd(folder, sizeof(folder) - 1)) {
		strcat(folder, "/");
		base = escaped("file://", folder);
	}
	if (base)
		json_object_set_new(
			o, "originalUriBaseIds", json_pack("{s:{s:s}}", BASE, "uri", base));
	free(base);
	return o;
}

int rpwi_ck_sarif(FILE *to, const struct ck_report *r)
{
	json_t *o = json_pack(
		"{s:s, s:s, s:[o]}", "$schema", SCHEMA, "version", "2.1.0", "runs", run_object(r));
	int rc = o ? json_dumpf(o, to, JSON_INDENT(1)) : -1;
	json_decref(o);
	fputc('\n', to);
	return rc ? -ENOMEM : 0;
}
