/* explain_html.c - the model as JSON inside of the page (explain.html). Values only; words, in both languages, are the page's (explain_words.js).
 *
 * The page is bounded: of more packets than it can hold, each conversation shows its first and last ones, and says how many are left out.
 */
#include "cli/explain.h"

#include "cli/explain_page.h"

#include <errno.h>
#include <jansson.h>

enum { ROWS_MAX = 6000, ROWS_A_TALK_MIN = 40, TALKS_MAX = 200 };

/* ---- safe JSON: nothing in it can end the script element that it stands in ---- */

static int write_escaped(const char *buffer, size_t size, void *data)
{
	FILE *to = data;
	for (size_t i = 0; i < size; i++) {
		if (buffer[i] == '<' || buffer[i] == '>' || buffer[i] == '&') /* only inside of strings */
			fprintf(to, "\\u%04x", buffer[i]);
		else
			putc(buffer[i], to);
	}
	return ferror(to) ? -1 : 0;
}

/* Takes the reference. */
static int dump(json_t *j, FILE *to)
{
	int rc = j ? json_dump_callback(j, write_escaped, to, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(14)) : -1;
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

static void add_field(void *arg, const char *group, const char *key, const char *value)
{
	json_array_append_new(arg, json_pack("[s, s, o]", group, key, text(value)));
}

static json_t *marks(const struct ex_pkt *k)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < EX_MARKS; i++)
		if (k->marks >> i & 1)
			json_array_append_new(list, json_string(rpwi_explain_mark_name[i]));
	return list;
}

static double us_since(const struct ex_model *m, uint64_t ns) { return (double)(int64_t)(ns - m->start_ns) / 1000.0; }

static json_t *row(const struct ex_model *m, const struct ex_pkt *k, int fold)
{
	char label[64], detail[160];
	json_t *fields = json_array();
	rpwi_explain_fields(k, add_field, fields);
	json_t *j = json_pack("{s:f, s:i, s:s, s:s, s:[iiii], s:o}", "t", us_since(m, k->time_ns), "d", k->side, "l",
		k->marks & EX_GAP ? "" : rpwi_explain_label(k, label), "x", rpwi_explain_detail(k, detail), "s", k->state[0].cm, k->state[0].qp, k->state[1].cm,
		k->state[1].qp, "h", fields);
	if (!j)
		return NULL;
	if (!(k->marks & EX_GAP)) {
		json_object_set_new(j, "n", json_integer(k->number));
		json_object_set_new(j, "f", json_integer(k->file));
		json_object_set_new(j, "b", json_integer(ex_is_cm(k) ? 0 : k->p.payload_len));
		json_object_set_new(j, "k", json_string(ex_is_cm(k) ? "cm" : k->undecoded || rpwi_op_is_request(rpwi_pkt_op(&k->p)) ? "req" : "resp"));
	}
	if (k->seen_ns)
		json_object_set_new(j, "t2", json_real(us_since(m, k->seen_ns)));
	if (k->moved_ns)
		json_object_set_new(j, "v", json_real((double)k->moved_ns / 1000.0));
	if (k->marks)
		json_object_set_new(j, "m", marks(k));
	if (k->why)
		json_object_set_new(j, "w", json_string(k->why));
	if (k->comment)
		json_object_set_new(j, "c", text(k->comment));
	if (fold >= 0)
		json_object_set_new(j, "g", json_integer(fold));
	return j;
}

/* The fold that row n is in, or -1; `at` goes along with n. */
static int fold_of(const struct ex_talk *t, uint32_t n, uint32_t *at)
{
	while (*at < t->folds && t->fold[*at].to < n)
		++*at;
	return *at < t->folds && n >= t->fold[*at].from ? (int)*at : -1;
}

static int put_rows(const struct ex_model *m, const struct ex_talk *t, uint32_t share, FILE *to)
{
	bool all = t->rows <= share;
	uint32_t head = all ? t->rows : share * 3 / 5, tail = all ? 0 : share - head, fold = 0, marked = 0;
	int rc = 0;
	for (uint32_t n = 0; n < t->rows && !rc; n++) {
		if (!all && n >= head && n < t->rows - tail) {
			marked += m->pkt[t->row[n]].marks != 0;
			continue;
		}
		if (n)
			putc(',', to);
		if (!all && n == t->rows - tail) {
			fprintf(to, "{\"skip\":%u,\"marked\":%u},", t->rows - tail - head, marked);
		}
		rc = dump(row(m, &m->pkt[t->row[n]], fold_of(t, n, &fold)), to);
	}
	return rc;
}

/* ---- conversations ---- */

static json_t *end(const struct ex_end *e)
{
	char addr[CLI_GID_LEN];
	json_t *j = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "addr", rpwi_explain_addr(&e->addr, addr), "packets", (json_int_t)e->packets, "bytes",
		(json_int_t)e->bytes, "messages", (json_int_t)e->messages, "resent", (json_int_t)e->resent, "naks", (json_int_t)e->naks, "rnrs",
		(json_int_t)e->rnrs, "lost", (json_int_t)e->lost);
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
			json_array_append_new(diagnoses, json_string(rpwi_explain_diagnosis_name[i]));
	const struct ex_pkt *first = &m->pkt[t->row[0]], *last = &m->pkt[t->row[t->rows - 1]];
	return json_pack("{s:s, s:b, s:i, s:i, s:[oo], s:s, s:i, s:i, s:s, s:o, s:i, s:f, s:f}", "kind", kind[t->kind], "cm", t->has_cm, "port", t->port, "mtu",
		(int)t->mtu, "ends", end(&t->end[0]), end(&t->end[1]), "outcome", t->outcome ? t->outcome : "open", "outcome_side", t->outcome_side,
		"outcome_number", (int)t->outcome_number, "outcome_text",
		t->outcome && !strcmp(t->outcome, "rejected")                                    ? rpwi_cm_rej_name(t->outcome_number)
		: t->outcome && !strcmp(t->outcome, "nak") && t->outcome_number < RPWI_NAK_COUNT ? rpwi_nak_name[t->outcome_number]
												 : "",
		"diag", diagnoses, "cm_retries", (int)t->cm_retries, "t", us_since(m, first->time_ns), "t_end", us_since(m, last->time_ns));
}

static int put_talk(const struct ex_model *m, const struct ex_talk *t, uint32_t share, FILE *to)
{
	fputs("{\"about\":", to);
	int rc = dump(talk(m, t), to);
	fputs(",\"rows\":[", to);
	if (!rc)
		rc = put_rows(m, t, share, to);
	fputs("]}\n", to);
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
		json_array_append_new(list, json_pack("{s:o, s:I, s:b, s:I}", "name", text(m->file_name[i]), "packets", (json_int_t)m->file_packets[i], "cut",
						    m->file_cut[i], "shift", (json_int_t)m->file_shift_ns[i]));
	return list;
}

static json_t *head(const struct ex_model *m)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "version", ROPEWAY_VERSION, "files", files(m), "cm_states",
		names(rpwi_explain_cm_name, EX_CM_STATES), "qp_states", names(rpwi_explain_qp_name, EX_QP_STATES), "packets", (json_int_t)m->pkts, "other",
		(json_int_t)m->other_frames, "beyond", (json_int_t)m->beyond, "talks", (json_int_t)m->talks, "moved", (json_int_t)m->moved, "start_ms",
		(json_int_t)(m->start_ns / RPWI_NS_PER_MS));
}

int rpwi_explain_html(const struct ex_model *m, FILE *to)
{
	uint32_t shown = RPWI_MIN(m->talks, (uint32_t)TALKS_MAX), rows = 0;
	fwrite(rpwi_explain_page_head, 1, rpwi_explain_page_head_len, to);
	for (uint32_t i = 0; i < shown; i++)
		rows += m->talk[i].rows;
	uint32_t share = rows <= ROWS_MAX ? UINT32_MAX : RPWI_MAX(ROWS_MAX / RPWI_MAX(shown, 1u), (uint32_t)ROWS_A_TALK_MIN);
	fputs("{\"head\":", to);
	int rc = dump(head(m), to);
	fputs(",\"talks\":[", to);
	for (uint32_t i = 0, put = 0; i < shown && !rc; i++) {
		if (!m->talk[i].rows)
			continue;
		if (put++)
			putc(',', to);
		rc = put_talk(m, &m->talk[i], share, to);
	}
	fputs("]}", to);
	fwrite(rpwi_explain_page_tail, 1, rpwi_explain_page_tail_len, to);
	return rc ? rc : ferror(to) ? -EIO : 0;
}
