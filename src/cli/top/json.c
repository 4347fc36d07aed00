/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - see top.h: everything, as `--json` prints it. */
#include "cli/top/top.h"

#include "cli/top/words.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *counts(const struct rpwi_qp_stats *n)
{
	json_t *o = json_object();
	const struct top_count *c;
	for (unsigned i = 0; (c = top_count(i)); i++)
		json_object_set_new(o, c->name, json_integer((json_int_t)c->of(n)));
	return o;
}

static json_t *rates(const struct top_row *r)
{
	static const char *const name[TOP_FIGURES] = {"work_requests", "receives",
		"transmitted_bytes", "received_bytes", "retries", "rnr_naks", "errors"};
	json_t *o = json_object();
	for (unsigned f = 0; f < TOP_FIGURES; f++)
		json_object_set_new(o, name[f], json_real(r->rate[f]));
	return o;
}

static json_t *row(const struct top_row *r)
{
	char text[TOP_CELL];
	json_t *o = json_pack("{s:s}", "device", r->device);
	if (r->level == TOP_DEVICES) {
		json_object_set_new(o, "up", json_boolean(r->up));
		json_object_set_new(o, "processes", json_integer(r->processes));
	} else {
		json_object_set_new(o, "pid", json_integer(r->pid));
		json_object_set_new(o, "command", json_string(r->comm));
	}
	if (r->level == TOP_QPS) {
		json_object_set_new(o, "qpn", json_integer(r->qpn));
		json_object_set_new(o, "type", json_string(top_type(r->type)));
		json_object_set_new(o, "state", json_string(top_state(r->state)));
		json_object_set_new(
			o, "peer_qpn", r->peer_qpn ? json_integer(r->peer_qpn) : json_null());
		json_object_set_new(o, "peer_address",
			r->peer_qpn ? json_string(top_address(r->peer, text)) : json_null());
	} else {
		json_object_set_new(o, "qps", json_integer((json_int_t)r->qps));
	}
	json_object_set_new(o, "counted", counts(&r->n));
	json_object_set_new(o, "per_second", rates(r));
	return o;
}

static json_t *level(const struct top_look *l, enum top_level which)
{
	struct top_order order = {.by = TOP_BY_NAME};
	json_t *all = json_array();
	unsigned n;
	const struct top_row **rows = top_rows(l, which, order, &n);
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(all, row(rows[i]));
	free(rows);
	return all;
}

int top_print_json(const struct top_look *l)
{
	json_t *root = json_pack("{s:f, s:o, s:o, s:o}", "seconds", l->seconds, "devices",
		level(l, TOP_DEVICES), "processes", level(l, TOP_PROCESSES), "qps",
		level(l, TOP_QPS));
	return rpwi_cli_json(TOP_NAME, root, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}
