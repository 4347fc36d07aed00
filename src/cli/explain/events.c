/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - `ropeway explain --events`: lines of JSON (explain/trace.h) become an account. From a
 * socket, each event is answered by one byte when its lines are written, and so is the start: the
 * program waits for that. A line without an event is ignored. */
#include "cli/explain/explain.h"

#include "near/process.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ropeway explain"

enum { LINE_BYTES = 4096, TEXT_MAX = 320, FLOWS = 64 };

/* The highest PSN sent as a request towards each QP: what is not above it is sent again. */
struct flow_psn {
	struct rpwi_addr dst;
	uint32_t dqpn, psn;
	bool used;
};

struct reading {
	int in, program; /* program: its pidfd where events are live; -1 */
	bool live;
	char buf[LINE_BYTES];
	size_t have, taken;
	struct ex_account *account; /* NULL: none has begun */
	struct flow_psn flow[FLOWS];
};

static void answer(const struct reading *r) { send(r->in, "\n", 1, MSG_NOSIGNAL); }

/* ---- packets ---- */

static bool sent_before(struct reading *r, const struct ex_pkt *k)
{
	const struct rpwi_pkt *p = &k->p;
	struct flow_psn *s = &r->flow[(p->dqpn * 2654435761u >> 16) % FLOWS];
	if (!s->used || s->dqpn != p->dqpn || !rpwi_addr_eq(&s->dst, &k->flow.dst)) {
		*s = (struct flow_psn){
			.dst = k->flow.dst, .dqpn = p->dqpn, .psn = p->psn, .used = true};
		return false;
	}
	int32_t ahead = rpwi_psn_diff(p->psn, s->psn);
	/* A READ takes a PSN for each packet of its answer, so what follows it is far ahead; a QP
	 * that begins anew is anywhere. */
	if (ahead > 0 || ahead < -(1 << 20)) {
		s->psn = p->psn;
		return false;
	}
	return true;
}

static void count_nak(struct reading *r, const struct rpwi_pkt *p)
{
	if (!rpwi_op_has(rpwi_pkt_op(p), RPWI_F_AETH))
		return;
	if (rpwi_aeth_kind(p->syndrome) == RPWI_AETH_NAK)
		rpwi_explain_account_fact(r->account, RPWI_FACT_NAK_SEEN, p->dqpn, 1);
	else if (rpwi_aeth_kind(p->syndrome) == RPWI_AETH_RNR_NAK)
		rpwi_explain_account_fact(r->account, RPWI_FACT_RNR_SEEN, p->dqpn, 1);
}

static void append(char text[TEXT_MAX], const char *more)
{
	strncat(text, more, TEXT_MAX - 1 - strlen(text));
}

static void packet_text(
	struct reading *r, enum rpwi_explain_kind kind, const struct ex_pkt *k, char text[TEXT_MAX])
{
	char label[64], detail[160];
	bool is_rc = !k->undecoded && rpwi_pkt_svc(&k->p) == RPWI_SVC_RC;
	bool again = is_rc && kind != RPWI_EXPLAIN_RX && ex_is_request(k) && sent_before(r, k);
	if (is_rc && kind == RPWI_EXPLAIN_RX)
		count_nak(r, &k->p);
	snprintf(text, TEXT_MAX, "%s", rpwi_explain_name(k, label));
	if (*rpwi_explain_detail_long(k, detail)) {
		append(text, " ");
		append(text, detail);
	}
	if (again)
		append(text, ", again");
	if (kind == RPWI_EXPLAIN_LOST)
		append(text, ": lost on purpose");
}

/* Hex digits as bytes: how many. */
static size_t unhex(const char *text, uint8_t *out, size_t room)
{
	size_t n = 0;
	unsigned byte;
	for (; n < room && sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
		out[n] = (uint8_t)byte;
	return n;
}

static void on_packet(struct reading *r, enum rpwi_explain_kind kind, const char *hex,
	const json_t *j, char text[TEXT_MAX])
{
	uint8_t bytes[RPWI_HDR_MAX + RPWI_MAD_LEN];
	struct ex_pkt k = {.talk = EX_NO_TALK};
	struct ex_datagram d = {.payload = bytes};
	const char *to = json_string_value(json_object_get(j, "to"));
	json_int_t len = json_integer_value(json_object_get(j, "len"));
	d.len = (uint32_t)unhex(hex, bytes, sizeof(bytes));
	d.wire_len = (uint32_t)RPWI_MIN(RPWI_MAX(len, (json_int_t)d.len), (json_int_t)UINT16_MAX);
	if (to)
		unhex(to, d.flow.dst.bytes, sizeof(d.flow.dst.bytes));
	if (d.len < RPWI_BTH_LEN || !rpwi_explain_packet_of(&k, &d) || k.undecoded)
		snprintf(text, TEXT_MAX, "%u bytes, not RoCEv2", d.wire_len);
	else
		packet_text(r, kind, &k, text);
	rpwi_explain_pkt_free(&k);
}

/* ---- lines ---- */

static int name_index(const char *name, const char *const *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(name, names[i]))
			return (int)i;
	return -1;
}

static void on_begin(struct reading *r, const json_t *j)
{
	char program[64];
	const char *name = json_string_value(json_object_get(j, "program"));
	struct ex_process p = {
		.program = rpwi_cli_printable(name ? name : "?", program, sizeof(program)),
		.pid = (int)json_integer_value(json_object_get(j, "pid")),
		.is_child = json_is_true(json_object_get(j, "child")),
		.began = {(time_t)json_integer_value(json_object_get(j, "s")),
			(long)json_integer_value(json_object_get(j, "ns"))}};
	if (r->account) /* one that ended without a word */
		rpwi_explain_account_end(r->account, 0);
	memset(r->flow, 0, sizeof(r->flow));
	r->account = rpwi_explain_account(stdout, &p);
	if (r->live && r->program < 0)
		r->program = rpwi_process_open(p.pid);
}

static void on_fact(struct reading *r, const char *fact, const json_t *j)
{
	int i = name_index(fact, rpwi_explain_fact_name, RPWI_FACT_COUNT);
	if (i >= 0)
		rpwi_explain_account_fact(r->account, (enum rpwi_explain_fact)i,
			(uint32_t)json_integer_value(json_object_get(j, "qpn")),
			(uint64_t)json_integer_value(json_object_get(j, "n")));
}

static void on_event(struct reading *r, const char *event, const json_t *j)
{
	char buf[TEXT_MAX] = "";
	const char *text = json_string_value(json_object_get(j, "text")),
		   *packet = json_string_value(json_object_get(j, "packet"));
	struct ex_event e = {.text = buf,
		.us = (uint64_t)json_integer_value(json_object_get(j, "us")),
		.vain = (uint64_t)json_integer_value(json_object_get(j, "vain"))};
	int kind = name_index(event, rpwi_explain_kind_name, RPWI_EXPLAIN_KINDS);
	if (!strcmp(event, "end")) {
		rpwi_explain_account_end(r->account, e.vain);
		r->account = NULL;
		return;
	}
	if (kind < 0)
		return;
	e.kind = (enum rpwi_explain_kind)kind;
	if (packet)
		on_packet(r, e.kind, packet, j, buf);
	else
		rpwi_cli_printable(text ? text : "", buf, sizeof(buf));
	rpwi_explain_event(r->account, &e);
}

static void on_line(struct reading *r, const char *line)
{
	json_t *j = json_loads(line, 0, NULL);
	const char *event = json_string_value(json_object_get(j, "event")),
		   *fact = json_string_value(json_object_get(j, "fact"));
	if (event && !strcmp(event, "begin"))
		on_begin(r, j);
	else if (event && r->account)
		on_event(r, event, j);
	else if (fact && r->account)
		on_fact(r, fact, j);
	json_decref(j);
	if (!event || !r->live)
		return;
	/* A full disk is no reason to leave: there may be room later. */
	fflush(stdout);
	clearerr(stdout);
	answer(r);
}

/* ---- the input ---- */

/* False: the program has ended, and nothing of it is left to be read. */
static bool is_more(const struct reading *r)
{
	struct pollfd p[] = {{.fd = r->in, .events = POLLIN}, {.fd = r->program, .events = POLLIN}};
	while (poll(p, 2, -1) < 0)
		if (errno != EINTR)
			return false;
	return p[0].revents;
}

/* The next line, without its end; NULL: there is none. One that is too long is passed over. */
static const char *next_line(struct reading *r)
{
	for (;;) {
		char *from = r->buf + r->taken, *end = memchr(from, '\n', r->have - r->taken);
		if (end) {
			*end = '\0';
			r->taken = (size_t)(end + 1 - r->buf);
			return from;
		}
		memmove(r->buf, from, r->have -= r->taken);
		r->taken = 0;
		if (r->have == sizeof(r->buf))
			r->have = 0;
		if (!is_more(r))
			return NULL;
		ssize_t n = read(r->in, r->buf + r->have, sizeof(r->buf) - r->have);
		if (n <= 0 && errno != EINTR)
			return NULL;
		r->have += n > 0 ? (size_t)n : 0;
	}
}

int rpwi_explain_events(const char *file)
{
	struct stat st;
	const char *line;
	bool any = false;
	struct reading *r = calloc(1, sizeof(*r));
	if (!r)
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	r->in = strcmp(file, "-") ? open(file, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	r->program = -1;
	if (r->in < 0 || fstat(r->in, &st)) {
		free(r);
		return rpwi_cli_fail(CLI_FAILED, NAME, "cannot read %s: %s", file, strerror(errno));
	}
	r->live = S_ISSOCK(st.st_mode);
	if (r->live) {
		signal(SIGPIPE, SIG_IGN);
		answer(r); /* "I am there" */
	}
	while ((line = next_line(r))) {
		on_line(r, line);
		any |= r->account != NULL;
	}
	if (r->account)
		rpwi_explain_account_end(r->account, 0);
	free(r);
	return any ? CLI_OK : rpwi_cli_fail(CLI_FAILED, NAME, "there are no events in %s", file);
}
