/* SPDX-License-Identifier: BSD-3-Clause */
/* script.c - reads a fault script: one fault a line, every mistake with its line and column. The
 * grammar is docs/faults.md's. Nothing is taken before all of it is understood. */
#include "fault/fault.h"

#include <ctype.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/lines.h"
#include "base/number.h"
#include "fault/words.h"

struct parser {
	struct rpwi_lines in;
	const struct rpwi_script_who *who;
	bool ours; /* the process that the lines are for is the one that asks */
	bool seeded;
	struct rpwi_script *script;
};

/* ---- words and mistakes ---- */

#define fail(p, ...) rpwi_lines_fail(&(p)->in, __VA_ARGS__)
static void expected(struct parser *p, const char *what) { rpwi_lines_expected(&p->in, what); }
static void next(struct parser *p) { rpwi_lines_next_word(&p->in); }

/* A mistake in a name is most often a slip. */
static void expected_name(struct parser *p, const char *what, const struct words_entry *table)
{
	const char *near = *p->in.word ? words_near(table, p->in.word) : NULL;
	if (near)
		fail(p, "expected %s, not '%s': did you mean %s?", what, p->in.word, near);
	else
		expected(p, what);
}

static bool is(const struct parser *p, const char *word) { return !strcmp(p->in.word, word); }

static bool accept(struct parser *p, const char *word)
{
	if (p->in.failed || !is(p, word))
		return false;
	next(p);
	return true;
}

static void expect(struct parser *p, const char *word, const char *what)
{
	if (!accept(p, word))
		expected(p, what);
}

static int name(
	struct parser *p, const char *what, const char *prefix, const struct words_entry *table)
{
	int value = 0;
	if (p->in.failed)
		return 0;
	if (!words_find(table, prefix, p->in.word, &value)) {
		expected_name(p, what, table);
		return 0;
	}
	next(p);
	return value;
}

/* ---- numbers ---- */

static uint64_t count(struct parser *p, const char *what)
{
	uint64_t v = 0;
	const char *e = p->in.failed ? NULL : rpwi_number(p->in.word, &v);
	if (p->in.failed)
		return 0;
	if (!e || *e) {
		expected(p, what);
		return 0;
	}
	next(p);
	return v;
}

static uint64_t from_one(struct parser *p, const char *what)
{
	uint64_t v = 1;
	if (!p->in.failed && rpwi_number(p->in.word, &v) && !v)
		fail(p, "they are counted from 1");
	return count(p, what);
}

static double real(struct parser *p, const char *what)
{
	char *e;
	if (p->in.failed)
		return 0;
	double v = strtod(p->in.word, &e);
	if (!isdigit((unsigned char)p->in.word[0]) || *e || !(v >= 0 && v <= 1)) {
		expected(p, what);
		return 0;
	}
	next(p);
	return v;
}

static const struct {
	const char *name;
	uint64_t ns;
} time_units[] = {
	{"us", 1000}, {"ms", RPWI_NS_PER_MS}, {"s", RPWI_NS_PER_S}, {"min", 60 * RPWI_NS_PER_S}};

/* "200 ms", "200ms", "1.5 s". At most a day. */
static uint64_t duration(struct parser *p)
{
	static const char what[] = "a time, as in 200 ms (us, ms, s, min; a day at most)";
	char *e;
	if (p->in.failed)
		return 0;
	double v = strtod(p->in.word, &e);
	if (!isdigit((unsigned char)p->in.word[0]) || e == p->in.word || !(v >= 0 && v <= 1e9)) {
		expected(p, what);
		return 0;
	}
	if (!*e) {
		next(p);
		e = p->in.word;
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(time_units); i++) {
		double ns = v * (double)time_units[i].ns;
		if (strcmp(e, time_units[i].name) || ns > 86400e9)
			continue;
		next(p);
		return (uint64_t)ns;
	}
	expected(p, what);
	return 0;
}

/* ---- clauses: which of them, of whom, when ---- */

static void which(struct parser *p, struct rpwi_rule *r, enum rpwi_which w)
{
	if (r->which != RPWI_WHICH_ALL)
		fail(p, "a line selects only once: by number, 'every', 'chance' or 'at "
			"byte'");
	r->which = w;
}

/* "3", "3..5", "3..": false where it is no number. */
static bool range(struct parser *p, struct rpwi_rule *r)
{
	uint64_t first, last;
	if (p->in.failed || !isdigit((unsigned char)p->in.word[0]))
		return false;
	which(p, r, RPWI_WHICH_RANGE);
	const char *e = rpwi_number(p->in.word, &first);
	last = first;
	if (e && !strncmp(e, "..", 2)) {
		last = UINT64_MAX;
		e = e[2] ? rpwi_number(e + 2, &last) : e + 2;
	}
	if (!e || *e) {
		expected(p, "a number, as in 3, 3..5 or 3..");
		return true;
	}
	if (!first)
		fail(p, "they are counted from 1");
	else if (last < first)
		fail(p, "the range ends before it begins");
	r->first = first;
	r->last = last;
	next(p);
	return true;
}

static bool is_packet(const struct rpwi_rule *r)
{
	return r->subject == RPWI_SUBJ_TX || r->subject == RPWI_SUBJ_RX;
}
static bool has_qp(const struct rpwi_rule *r)
{
	return is_packet(r) || r->subject == RPWI_SUBJ_SEND || r->subject == RPWI_SUBJ_RECV ||
	       r->subject == RPWI_SUBJ_COMPLETION;
}

static uint32_t nth(struct parser *p, const char *what)
{
	uint64_t n = from_one(p, what);
	if (n > UINT32_MAX) {
		fail(p, "there are not so many");
		return 0;
	}
	return (uint32_t)n;
}

static void clauses(struct parser *p, struct rpwi_rule *r)
{
	bool timed = r->subject == RPWI_SUBJ_TIME;
	while (!p->in.failed && *p->in.word && !is(p, ":")) {
		if (accept(p, "qp")) {
			r->qp = nth(p, "which QP, as in qp 2: the second that the process creates");
		} else if (accept(p, "cq")) {
			r->cq = nth(p, "which CQ, as in cq 2: the second that the process creates");
		} else if (accept(p, "srq")) {
			r->srq = nth(p, "which SRQ, as in srq 1");
		} else if (timed) {
			expected(p, "':', or qp, cq or srq and a number");
		} else if (accept(p, "every")) {
			which(p, r, RPWI_WHICH_EVERY);
			r->first = from_one(p, "a number, as in every 10");
		} else if (accept(p, "chance")) {
			which(p, r, RPWI_WHICH_CHANCE);
			r->chance = real(p, "a probability from 0 to 1");
		} else if (accept(p, "after")) {
			r->after_ns = duration(p);
		} else if (accept(p, "until")) {
			r->until_ns = duration(p);
		} else if (accept(p, "at")) {
			expect(p, "byte", "'byte' and a number, as in at byte 10^6");
			which(p, r, RPWI_WHICH_BYTE);
			r->first = count(p, "a number of bytes, as in 1000000, 10^6 or 64K");
			if (!p->in.failed && !is_packet(r) && r->subject != RPWI_SUBJ_SEND)
				fail(p, "only sends and packets have bytes");
		} else if (!range(p, r)) {
			expected(p, "':', a number or a range, or one of: every, chance, at byte, "
				    "qp, after, until");
		}
	}
}

/* ---- actions ---- */

enum of { OF_CALL = 1, OF_WR = 2, OF_COMPLETION = 4, OF_TX = 8, OF_RX = 16, OF_CM = 32 };
static unsigned kind_of(const struct rpwi_rule *r)
{
	switch (r->subject) {
	case RPWI_SUBJ_CALL:
		return OF_CALL;
	case RPWI_SUBJ_SEND:
	case RPWI_SUBJ_RECV:
		return OF_WR;
	case RPWI_SUBJ_COMPLETION:
		return OF_COMPLETION;
	case RPWI_SUBJ_TX:
		return OF_TX;
	case RPWI_SUBJ_RX:
		return OF_RX;
	case RPWI_SUBJ_CM_TX:
	case RPWI_SUBJ_CM_RX:
		return OF_CM;
	default:
		return 0;
	}
}

static const struct {
	const char *word;
	enum rpwi_act act;
	unsigned of;
	bool takes_time;
} plain_acts[] = {
	{"take", RPWI_ACT_TAKE, OF_CALL, true},
	{"late", RPWI_ACT_LATE, OF_COMPLETION, true},
	{"drop", RPWI_ACT_DROP, OF_TX | OF_RX | OF_CM, false},
	{"lose", RPWI_ACT_DROP, OF_TX | OF_RX | OF_CM, false},
	{"dup", RPWI_ACT_DUP, OF_TX | OF_RX | OF_CM, false},
	{"delay", RPWI_ACT_DELAY, OF_TX | OF_CM, true},
	{"reorder", RPWI_ACT_REORDER, OF_TX, false},
	{"corrupt", RPWI_ACT_CORRUPT, OF_TX, false},
	{"badkey", RPWI_ACT_BAD_KEY, OF_TX, false},
};

static const char *acts_of(const struct rpwi_rule *r)
{
	switch (kind_of(r)) {
	case OF_CALL:
		return "an errno (ENOMEM), take TIME, event; or ";
	case OF_WR:
		return "status STATUS, forge STATUS; or ";
	case OF_COMPLETION:
		return "late TIME; or ";
	case OF_TX:
		return "drop, dup, delay TIME, reorder, corrupt, badkey; or ";
	case OF_RX:
		return "drop, dup, nak NAME; or ";
	case OF_CM:
		return "lose, dup, delay TIME, reject REASON; or ";
	default:
		return "";
	}
}

static void expected_act(struct parser *p, const struct rpwi_rule *r)
{
	char what[320];
	snprintf(what, sizeof(what),
		"what happens: %sevent NAME, port down TIME, peer silent TIME, gid change, "
		"qp error, qp fatal, cq overrun, device fatal",
		acts_of(r));
	expected(p, what);
}

static void act_event(struct parser *p, struct rpwi_rule *r)
{
	bool cm = r->subject == RPWI_SUBJ_CALL && r->detail >= RPWI_CALL_CM_CREATE_ID;
	int v;
	if (cm && words_find(words_cm_events, "RDMA_CM_EVENT_", p->in.word, &v)) {
		r->act = RPWI_ACT_CM_EVENT;
		r->value = v;
		next(p);
		return;
	}
	r->act = RPWI_ACT_EVENT;
	r->value = name(p,
		cm ? "an event of <infiniband/verbs.h>, or ADDR_ERROR, ROUTE_ERROR, "
		     "CONNECT_ERROR, UNREACHABLE, DEVICE_REMOVAL, ADDR_CHANGE"
		   : "an event of <infiniband/verbs.h>, as in PORT_ERR",
		"IBV_EVENT_", words_events);
}

static uint64_t maybe_duration(struct parser *p) { return *p->in.word ? duration(p) : RPWI_NEVER; }

/* What may follow any subject. False: none of these. */
static bool happening(struct parser *p, struct rpwi_rule *r)
{
	if (accept(p, "event")) {
		act_event(p, r);
	} else if (accept(p, "port")) {
		expect(p, "down", "'down'");
		r->act = RPWI_ACT_PORT_DOWN;
		r->ns = maybe_duration(p);
	} else if (accept(p, "peer")) {
		expect(p, "silent", "'silent'");
		r->act = RPWI_ACT_PEER_SILENT;
		r->ns = maybe_duration(p);
	} else if (accept(p, "gid")) {
		expect(p, "change", "'change'");
		r->act = RPWI_ACT_EVENT;
		r->value = IBV_EVENT_GID_CHANGE;
	} else if (accept(p, "device")) {
		expect(p, "fatal", "'fatal'");
		r->act = RPWI_ACT_DEVICE_FATAL;
	} else if (accept(p, "cq")) {
		expect(p, "overrun", "'overrun'");
		r->act = RPWI_ACT_EVENT;
		r->value = IBV_EVENT_CQ_ERR;
	} else if (accept(p, "qp")) {
		bool fatal = accept(p, "fatal");
		if (!fatal)
			expect(p, "error", "'error' or 'fatal'");
		r->act = fatal ? RPWI_ACT_EVENT : RPWI_ACT_QP_ERROR;
		r->value = IBV_EVENT_QP_FATAL;
	} else {
		return false;
	}
	return true;
}

static void action(struct parser *p, struct rpwi_rule *r)
{
	unsigned of = kind_of(r);
	int v;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(plain_acts); i++) {
		if (!(plain_acts[i].of & of) || !accept(p, plain_acts[i].word))
			continue;
		r->act = plain_acts[i].act;
		if (plain_acts[i].takes_time)
			r->ns = duration(p);
		return;
	}
	if (of == OF_CALL && words_find(words_errnos, NULL, p->in.word, &v)) {
		r->act = RPWI_ACT_FAIL;
		r->value = v;
		next(p);
	} else if (of == OF_WR && (is(p, "status") || is(p, "forge"))) {
		r->act = is(p, "forge") ? RPWI_ACT_FORGE : RPWI_ACT_STATUS;
		next(p);
		r->value = name(p, "a status of <infiniband/verbs.h>, as in REM_ACCESS_ERR",
			"IBV_WC_", words_statuses);
	} else if (of == OF_RX && accept(p, "nak")) {
		r->act = RPWI_ACT_NAK;
		r->value = name(p, "RNR, INV_REQ, REM_ACCESS or REM_OP", NULL, words_naks);
	} else if (of == OF_CM && accept(p, "reject")) {
		r->act = RPWI_ACT_REJECT;
		if (isdigit((unsigned char)p->in.word[0])) {
			uint64_t n = count(p, "a reason");
			r->value = (int)RPWI_MIN(n, UINT16_MAX);
		} else {
			r->value = name(p,
				"a reason, by number (IB 12.6.7.2) or name, as in "
				"NO_RESOURCES",
				NULL, words_reasons);
		}
		if (!p->in.failed && r->detail != 0x10 /* REQ: RPWI_CM_REQ */)
			fail(p, "only a REQ can be rejected, as in cm REQ 1: reject NO_RESOURCES");
	} else if (!happening(p, r) && !p->in.failed) {
		if (of == OF_CALL && p->in.word[0] == 'E')
			expected_name(p, "an errno, as in ENOMEM", words_errnos);
		expected_act(p, r);
	}
}

/* ---- does it make sense as a whole? ---- */

static bool is_qp_event(int type)
{
	return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
	       type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
	       type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG ||
	       type == IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

static void check(struct parser *p, const struct rpwi_rule *r)
{
	bool event = r->act == RPWI_ACT_EVENT, knows_qp = r->qp || has_qp(r);
	if (!knows_qp && (r->act == RPWI_ACT_QP_ERROR || (event && is_qp_event(r->value))))
		fail(p, "of which QP? Say qp N before the colon");
	else if (event && r->value == IBV_EVENT_CQ_ERR && !r->cq)
		fail(p, "of which CQ? Say cq N before the colon");
	else if (event && !r->srq &&
		 (r->value == IBV_EVENT_SRQ_ERR || r->value == IBV_EVENT_SRQ_LIMIT_REACHED))
		fail(p, "of which SRQ? Say srq N before the colon");
	else if (r->cq && !(event && r->value == IBV_EVENT_CQ_ERR))
		fail(p, "cq N is for 'cq overrun' alone");
	else if (r->srq && !(event && (r->value == IBV_EVENT_SRQ_ERR ||
					      r->value == IBV_EVENT_SRQ_LIMIT_REACHED)))
		fail(p, "srq N is for the events SRQ_ERR and SRQ_LIMIT_REACHED alone");
	else if (r->qp && !has_qp(r) && r->act < RPWI_ACT_HAPPENS)
		fail(p, "qp N is for sends, receives, completions and packets, and for what "
			"happens to a QP");
	else if (r->until_ns && r->until_ns <= r->after_ns)
		fail(p, "it ends before it begins");
}

/* ---- lines ---- */

static bool subject(struct parser *p, struct rpwi_rule *r)
{
	int v;
	r->detail = r->state = RPWI_ANY;
	if (is(p, "at")) {
		r->subject = RPWI_SUBJ_TIME;
		next(p);
		r->after_ns = duration(p);
	} else if (is(p, "qp")) { /* as in: qp 5 at byte 10^6: status ... */
		r->subject = RPWI_SUBJ_SEND;
	} else if (accept(p, "send")) {
		r->subject = RPWI_SUBJ_SEND;
	} else if (accept(p, "recv")) {
		r->subject = RPWI_SUBJ_RECV;
	} else if (accept(p, "completion")) {
		r->subject = RPWI_SUBJ_COMPLETION;
		if (accept(p, "send"))
			r->detail = 0;
		else if (accept(p, "recv"))
			r->detail = 1;
	} else if (accept(p, "packet")) {
		r->subject = is(p, "received") ? RPWI_SUBJ_RX : RPWI_SUBJ_TX;
		if (!accept(p, "received"))
			expect(p, "sent", "'sent' or 'received'");
		if (words_find(words_opcodes, NULL, p->in.word, &v)) {
			r->detail = v;
			next(p);
		}
	} else if (accept(p, "cm")) {
		r->detail = name(p,
			"a CM message: REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, "
			"SIDR_REP",
			NULL, words_messages);
		r->subject = is(p, "received") ? RPWI_SUBJ_CM_RX : RPWI_SUBJ_CM_TX;
		if (!accept(p, "received"))
			accept(p, "sent");
	} else if (words_find(words_calls, "ibv_", p->in.word, &v)) {
		r->subject = RPWI_SUBJ_CALL;
		r->detail = v;
		next(p);
		if (v == RPWI_CALL_MODIFY_QP &&
			words_find(words_states, "IBV_QPS_", p->in.word, &v)) {
			r->state = v;
			next(p);
		}
	} else {
		return false;
	}
	return true;
}

static void keep(struct parser *p, struct rpwi_rule *r)
{
	struct rpwi_script *s = p->script;
	const char *from = p->in.line_at, *to = p->in.word_at;
	while (from < to && isspace((unsigned char)*from))
		from++;
	while (to > from && isspace((unsigned char)to[-1]))
		to--;
	size_t n = RPWI_MIN((size_t)(to - from), sizeof(r->text) - 1);
	memcpy(r->text, from, n);
	if (s->nrules == RPWI_SCRIPT_RULES_MAX)
		fail(p, "more than %d faults", RPWI_SCRIPT_RULES_MAX);
	else if (p->ours)
		s->rule[s->nrules++] = *r;
}

static void fault_line(struct parser *p)
{
	struct rpwi_rule r = {.line = p->in.line};
	if (!subject(p, &r)) {
		expected_name(p,
			"'at TIME', a call (reg_mr, rdma_connect, ...), send, recv, completion, "
			"packet, cm, qp, seed or process",
			words_calls);
		return;
	}
	clauses(p, &r);
	expect(p, ":", "':' and what happens");
	action(p, &r);
	if (*p->in.word)
		expected(p, "the end of the line");
	check(p, &r);
	if (!p->in.failed)
		keep(p, &r);
}

static void process_line(struct parser *p)
{
	if (!*p->in.word || is(p, ":")) {
		expected(p, "a program's name, rank N, or all");
		return;
	}
	if (is(p, "all")) {
		p->ours = true;
	} else if (is(p, "rank")) {
		next(p);
		uint64_t n = count(p, "a rank, as in process rank 0");
		p->ours = p->who->rank >= 0 && n == (uint64_t)p->who->rank;
		return;
	} else {
		p->ours = !strcmp(p->in.word, p->who->name);
	}
	next(p);
}

static void one_line(struct parser *p)
{
	next(p);
	if (p->in.failed || !*p->in.word)
		return;
	if (accept(p, "seed")) {
		if (p->seeded)
			fail(p, "a script has one seed");
		p->seeded = true;
		p->script->seed = count(p, "a number, as in seed 7");
	} else if (accept(p, "process")) {
		process_line(p);
	} else {
		fault_line(p);
		return;
	}
	if (*p->in.word)
		expected(p, "the end of the line");
}

int rpwi_script_parse(const char *text, size_t len, const struct rpwi_script_who *who,
	struct rpwi_script **out, char *why, size_t why_len)
{
	struct parser p = {
		.in = rpwi_lines_begin(text, len, ':', why, why_len), .who = who, .ours = true};
	*out = NULL;
	if (len > RPWI_SCRIPT_BYTES_MAX) {
		fail(&p, "a script of more than %d bytes", RPWI_SCRIPT_BYTES_MAX);
		return -EINVAL;
	}
	p.script = calloc(1, sizeof(*p.script) + RPWI_SCRIPT_RULES_MAX * sizeof(struct rpwi_rule));
	if (!p.script) {
		fail(&p, "out of memory");
		return -ENOMEM;
	}
	p.script->seed = 1;
	for (; rpwi_lines_go_on(&p.in); rpwi_lines_next_line(&p.in))
		one_line(&p);
	if (p.in.failed) {
		free(p.script);
		return -EINVAL;
	}
	*out = p.script;
	return 0;
}

/* ---- files ---- */

int rpwi_script_load(const char *path, const struct rpwi_script_who *who, struct rpwi_script **out,
	char *why, size_t why_len)
{
	char *text = calloc(1, RPWI_SCRIPT_BYTES_MAX + 1);
	*out = NULL;
	if (!text) {
		snprintf(why, why_len, "%s: out of memory", path);
		return -ENOMEM;
	}
	ssize_t n = rpwi_file_read(path, text, RPWI_SCRIPT_BYTES_MAX + 1);
	int rc = n < 0 ? (int)n : 0;
	if (rc) {
		snprintf(why, why_len,
			"%s: %s (a file with a fault script was expected, or drop=P,delay=MS,"
			"seed=N and so on)",
			path, strerror(-rc));
	} else {
		int at = snprintf(why, why_len, "%s:", path);
		size_t used = RPWI_MIN((size_t)RPWI_MAX(at, 0), why_len - 1);
		rc = rpwi_script_parse(text, (size_t)n, who, out, why + used, why_len - used);
	}
	free(text);
	return rc;
}

bool rpwi_script_is_file(const char *fault)
{
	return *fault && (strchr(fault, '/') || !strchr(fault, '='));
}

struct rpwi_script_who rpwi_script_self(void)
{
	/* what Open MPI, PMIx, MPICH and Slurm tell each process of a job */
	static const char *const variables[] = {
		"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
	struct rpwi_script_who who = {.name = program_invocation_short_name, .rank = -1};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(variables); i++) {
		const char *v = getenv(variables[i]);
		uint64_t rank;
		if (!v || !*v)
			continue;
		const char *e = rpwi_digits(v, &rank);
		if (e != v && !*e && rank <= INT32_MAX) {
			who.rank = (int)rank;
			break;
		}
	}
	return who;
}
