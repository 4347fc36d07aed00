/* SPDX-License-Identifier: BSD-3-Clause */
/* html.c - the model as JSON inside of the page (explain.html). Values only; words, in both
 * languages, are the page's (words.js).
 *
 * The page has every packet, and still is bounded: the first ROWS_FULL rows that are not folded
 * (and in a small capture all of them) have their header fields; every other is a short array, some
 * 40 bytes, whose texts are in a table of the conversation. The page says how many those are.
 */
#include "cli/explain/explain.h"

#include "cli/explain/page.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>

enum { ROWS_FULL = 6000, TALKS_MAX = 200 };

/* ---- safe JSON: nothing in it can end the script element that it stands in ---- */

static int write_escaped(const char *buffer, size_t size, void *data)
{
	FILE *to = data;
	for (size_t i = 0; i < size; i++) {
		/* only inside of strings */
		if (buffer[i] == '<' || buffer[i] == '>' || buffer[i] == '&')
			fprintf(to, "\\u%04x", buffer[i]);
		else
			putc(buffer[i], to);
	}
	return ferror(to) ? -1 : 0;
}

/* Takes the reference. */
static int dump(json_t *j, FILE *to)
{
	int rc = j ? json_dump_callback(j, write_escaped, to,
			     JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(14))
		   : -1;
	json_decref(j);
	return rc ? -EIO : 0;
}

/* A file name or a comment need not be UTF-8. */
static json_t *text(const char *s)
{
	json_t *j = json_string(s);
	return j ? j : json_string("?");
}

/* ---- rows ---- */

struct fields {
	const struct ex_pkt *k;
	json_t *list; /* [group, key, value] and, where its bytes are in "r", [.., at, length] */
};

static void add_field(void *arg, const char *group, const char *key, const char *value)
{
	const struct fields *f = arg;
	struct ex_place place = rpwi_explain_place(f->k, group, key);
	json_t *field = json_pack("[s, s, o]", group, key, text(value));
	if (place.len) {
		json_array_append_new(field, json_integer(place.at));
		json_array_append_new(field, json_integer(place.len));
	}
	json_array_append_new(f->list, field);
}

static json_t *bytes(const struct ex_pkt *k)
{
	static const char digit[] = "0123456789abcdef";
	char out[2 * (RPWI_HDR_MAX + RPWI_MAD_LEN)];
	size_t n = RPWI_MIN((size_t)k->raw_len, sizeof(out) / 2);
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digit[k->raw[i] >> 4];
		out[2 * i + 1] = digit[k->raw[i] & 15];
	}
	return json_stringn(out, 2 * n);
}

static json_t *marks(const struct ex_pkt *k)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < EX_MARKS; i++)
		if (k->marks >> i & 1)
			json_array_append_new(list, json_string(rpwi_explain_mark_name[i]));
	return list;
}

static double us_since(const struct ex_model *m, uint64_t ns)
{
	return (double)(int64_t)(ns - m->start_ns) / 1000.0;
}

static const char *kind_of(const struct ex_pkt *k)
{
	return k->marks & EX_GAP                                        ? ""
	       : ex_is_cm(k)                                            ? "cm"
	       : k->undecoded || rpwi_op_is_request(rpwi_pkt_op(&k->p)) ? "req"
									: "resp";
}

static void add_news(json_t *j, const struct ex_pkt *k)
{
	if (k->moved_ns)
		json_object_set_new(j, "v", json_real((double)k->moved_ns / 1000.0));
	if (k->marks)
		json_object_set_new(j, "m", marks(k));
	if (k->why)
		json_object_set_new(j, "w", json_string(k->why));
}

static json_t *row(const struct ex_model *m, const struct ex_pkt *k)
{
	char label[64], detail[160];
	struct fields fields = {k, json_array()};
	rpwi_explain_fields(k, add_field, &fields);
	json_t *j = json_pack("{s:f, s:i, s:s, s:s, s:[iiii], s:o}", "t", us_since(m, k->time_ns),
		"d", k->side, "l", k->marks & EX_GAP ? "" : rpwi_explain_label(k, label), "x",
		rpwi_explain_detail(k, detail), "s", k->state[0].cm, k->state[0].qp, k->state[1].cm,
		k->state[1].qp, "h", fields.list);
	if (!j)
		return NULL;
	if (!(k->marks & EX_GAP)) {
		json_object_set_new(j, "n", json_integer(k->number));
		json_object_set_new(j, "f", json_integer(k->file));
		json_object_set_new(j, "b", json_integer(ex_is_cm(k) ? 0 : k->p.payload_len));
		json_object_set_new(j, "k", json_string(kind_of(k)));
		json_object_set_new(j, "r", bytes(k));
	}
	if (k->seen_ns)
		json_object_set_new(j, "t2", json_real(us_since(m, k->seen_ns)));
	add_news(j, k);
	if (k->comment)
		json_object_set_new(j, "c", text(k->comment));
	return j;
}

/* What short rows have in common: name, kind, and what follows the PSN. */
struct texts {
	json_t *at, *list; /* key to position; [name, kind, detail] */
};

static json_int_t text_index(
	struct texts *x, const char *label, const char *kind, const char *detail)
{
	char key[256];
	snprintf(key, sizeof(key), "%s\n%s\n%s", label, kind, detail);
	const json_t *have = json_object_get(x->at, key);
	if (have)
		return json_integer_value(have);
	json_int_t n = (json_int_t)json_array_size(x->list);
	json_object_set_new(x->at, key, json_integer(n));
	json_array_append_new(x->list, json_pack("[s, s, s]", label, kind, detail));
	return n;
}

/* [ns since the row before, side, text, PSN, number, file, ns until it was received or -1, bytes]
 * and, where there is anything of it, {marks, reason, states, moved}. */
static int put_short(const struct ex_model *m, const struct ex_pkt *k, const struct ex_pkt *before,
	struct texts *x, FILE *to)
{
	char label[64], detail[160], psn[24];
	bool gap = k->marks & EX_GAP;
	rpwi_explain_detail(k, detail);
	size_t n = (size_t)snprintf(psn, sizeof(psn), "PSN 0x%06x", k->p.psn);
	bool starts = !gap && !strncmp(detail, psn, n);
	json_int_t at = text_index(x, gap ? "" : rpwi_explain_label(k, label), kind_of(k),
		starts ? detail + n : detail);
	fprintf(to, "[%" PRId64 ",%u,%" JSON_INTEGER_FORMAT ",%" PRId64 ",%u,%u,%" PRId64 ",%u",
		(int64_t)(k->time_ns - (before ? before->time_ns : m->start_ns)), k->side, at,
		starts ? (int64_t)k->p.psn : -1, gap ? 0 : k->number, k->file,
		k->seen_ns ? (int64_t)(k->seen_ns - k->time_ns) : -1,
		gap || ex_is_cm(k) ? 0 : k->p.payload_len);
	bool changed = !before || memcmp(k->state, before->state, sizeof(k->state)) != 0;
	int rc = 0;
	if (k->marks || k->why || changed || k->moved_ns) {
		json_t *more = json_object();
		add_news(more, k);
		if (changed)
			json_object_set_new(more, "s",
				json_pack("[iiii]", k->state[0].cm, k->state[0].qp, k->state[1].cm,
					k->state[1].qp));
		putc(',', to);
		rc = dump(more, to);
	}
	putc(']', to);
	return rc;
}

/* How many rows may still have all of their fields. */
struct budget {
	bool everything;
	uint32_t left;
	uint64_t shortened;
};

static int put_rows(const struct ex_model *m, const struct ex_talk *t, struct budget *b,
	struct texts *x, FILE *to)
{
	const struct ex_pkt *before = NULL;
	uint32_t fold = 0;
	int rc = 0;
	for (uint32_t n = 0; n < t->rows && !rc; n++) {
		const struct ex_pkt *k = &m->pkt[t->row[n]];
		while (fold < t->folds && t->fold[fold].to < n)
			fold++;
		bool folded = fold < t->folds && n >= t->fold[fold].from;
		if (n)
			putc(',', to);
		if (b->everything || (!folded && b->left)) {
			rc = dump(row(m, k), to);
			b->left -= !b->everything;
		} else {
			rc = put_short(m, k, before, x, to);
			b->shortened++;
		}
		before = k;
	}
	return rc;
}

static json_t *folds(const struct ex_talk *t)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < t->folds; i++)
		json_array_append_new(list, json_pack("[I, I]", (json_int_t)t->fold[i].from,
						    (json_int_t)t->fold[i].to));
	return list;
}

/* ---- conversations ---- */

static json_t *end(const struct ex_end *e)
{
	char addr[CLI_GID_LEN];
	json_t *j = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "addr",
		rpwi_explain_addr(&e->addr, addr), "packets", (json_int_t)e->packets, "bytes",
		(json_int_t)e->bytes, "messages", (json_int_t)e->messages, "resent",
		(json_int_t)e->resent, "naks", (json_int_t)e->naks, "rnrs", (json_int_t)e->rnrs,
		"lost", (json_int_t)e->lost);
	if (j && e->has_qpn)
		json_object_set_new(j, "qpn", json_integer(e->qpn));
	if (j && e->has_comm_id)
		json_object_set_new(j, "comm", json_integer(e->comm_id));
	return j;
}

static json_t *talk(const struct ex_model *m, const struct ex_talk *t)
{
	static const char *const kind[] = {"RC", "UC", "UD", "SIDR", "?"};
	json_t *diagnoses = json_array();
	for (unsigned i = 0; i < EX_DIAGNOSES; i++)
		if (t->diagnoses >> i & 1)
			json_array_append_new(
				diagnoses, json_string(rpwi_explain_diagnosis[i].key));
	const struct ex_pkt *first = &m->pkt[t->row[0]], *last = &m->pkt[t->row[t->rows - 1]];
	return json_pack("{s:s, s:b, s:i, s:i, s:[oo], s:s, s:i, s:i, s:s, s:o, s:i, s:f, s:f}",
		"kind", kind[t->kind], "cm", t->has_cm, "port", t->port, "mtu", (int)t->mtu, "ends",
		end(&t->end[0]), end(&t->end[1]), "outcome", t->outcome ? t->outcome : "open",
		"outcome_side", t->outcome_side, "outcome_number", (int)t->outcome_number,
		"outcome_text",
		t->outcome && !strcmp(t->outcome, "rejected") ? rpwi_cm_rej_name(t->outcome_number)
		: t->outcome && !strcmp(t->outcome, "nak") && t->outcome_number < RPWI_NAK_COUNT
			? rpwi_nak_name[t->outcome_number]
			: "",
		"diag", diagnoses, "cm_retries", (int)t->cm_retries, "t",
		us_since(m, first->time_ns), "t_end", us_since(m, last->time_ns));
}

static int put_talk(const struct ex_model *m, const struct ex_talk *t, struct budget *b, FILE *to)
{
	struct texts x = {.at = json_object(), .list = json_array()};
	fputs("{\"about\":", to);
	int rc = dump(talk(m, t), to);
	fputs(",\"folds\":", to);
	rc = rc ? rc : dump(folds(t), to);
	fputs(",\"rows\":[", to);
	rc = rc ? rc : put_rows(m, t, b, &x, to);
	fputs("],\"texts\":", to);
	rc = rc ? rc : dump(json_incref(x.list), to);
	fputs("}\n", to);
	json_decref(x.at);
	json_decref(x.list);
	return rc;
}

static json_t *names(const char *const *name, unsigned count)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < count; i++)
		json_array_append_new(list, json_string(name[i]));
	return list;
}

static json_t *files(const struct ex_model *m)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < m->files; i++)
		json_array_append_new(
			list, json_pack("{s:o, s:I, s:b, s:I}", "name", text(m->file_name[i]),
				      "packets", (json_int_t)m->file_packets[i], "cut",
				      m->file_cut[i], "shift", (json_int_t)m->file_shift_ns[i]));
	return list;
}

static json_t *head(const struct ex_model *m)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "version",
		ROPEWAY_VERSION, "files", files(m), "cm_states",
		names(rpwi_explain_cm_name, EX_CM_STATES), "qp_states",
		names(rpwi_explain_qp_name, EX_QP_STATES), "packets", (json_int_t)m->pkts, "other",
		(json_int_t)m->other_frames, "beyond", (json_int_t)m->beyond, "talks",
		(json_int_t)m->talks, "moved", (json_int_t)m->moved, "start_ms",
		(json_int_t)(m->start_ns / RPWI_NS_PER_MS));
}

int rpwi_explain_html(const struct ex_model *m, FILE *to)
{
	uint32_t shown = RPWI_MIN(m->talks, (uint32_t)TALKS_MAX), rows = 0;
	fwrite(rpwi_explain_page_head, 1, rpwi_explain_page_head_len, to);
	for (uint32_t i = 0; i < shown; i++)
		rows += m->talk[i].rows;
	struct budget b = {.everything = rows <= ROWS_FULL, .left = ROWS_FULL};
	fputs("{\"head\":", to);
	int rc = dump(head(m), to);
	fputs(",\"talks\":[", to);
	for (uint32_t i = 0, put = 0; i < shown && !rc; i++) {
		if (!m->talk[i].rows)
			continue;
		if (put++)
			putc(',', to);
		rc = put_talk(m, &m->talk[i], &b, to);
	}
	fprintf(to, "],\"shortened\":%" PRIu64 "}", b.shortened);
	fwrite(rpwi_explain_page_tail, 1, rpwi_explain_page_tail_len, to);
	return rc ? rc : ferror(to) ? -EIO : 0;
}
