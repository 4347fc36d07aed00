/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.c - `ropeway perf --serve`: the side that answers, one client after the other. */
#include "cli/perf/side.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"

struct server {
	struct perf_side *s;
	rpw_endpoint *client[CLIENTS_MAX];
	unsigned clients;
	bool had_one;
};

static void on_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct server *v = arg;
	rpw_endpoint_on_close(ep, perf_on_close, v->s);
	if (v->clients == CLIENTS_MAX) {
		/* the main loop closes what is marked; this one it cannot know */
		fprintf(stderr,
			PERF_NAME ": a client came when %d were there already; it will wait\n",
			CLIENTS_MAX);
		return;
	}
	v->client[v->clients++] = ep;
	v->had_one = true;
}

static void close_the_gone(struct server *v)
{
	for (unsigned i = 0; i < v->clients;) {
		if (!rpw_endpoint_user(v->client[i])) {
			i++;
			continue;
		}
		rpw_endpoint_destroy(v->client[i]);
		v->client[i] = v->client[--v->clients];
	}
}

/* What a client asks for is as much as this server would do for anybody. */
static int job_accept(const struct request_wire *q, struct perf_job *j)
{
	if (le32toh(q->magic) != MAGIC || le32toh(q->version) != VERSION)
		return rpwi_cli_fail(RPW_ERR_PROTOCOL, PERF_NAME,
			"a client of another version came (%u, here is %d): run the same ropeway "
			"on both sides",
			le32toh(q->version), VERSION);
	uint64_t op = le64toh(q->op), mode = le64toh(q->mode), size = le64toh(q->size),
		 n = le64toh(q->n), window = le64toh(q->window);
	uint64_t turns = le64toh(q->buffers);
	bool verify = le64toh(q->flags) & FLAG_VERIFY;
	if (op >= PERF_OPS || mode >= PERF_MODES || size > PERF_SIZE_MOST || !n || n > UINT32_MAX ||
		!window || window > PERF_WINDOW_MOST || !turns || turns > PERF_BUFFERS_MOST)
		return rpwi_cli_fail(RPW_ERR_INVALID, PERF_NAME,
			"a client asked for an unknown job (operation %llu, %llu bytes, "
			"%llu messages)",
			(unsigned long long)op, (unsigned long long)size, (unsigned long long)n);
	uint64_t few = size > LARGE ? FEW_LARGE : FEW, buffers = turns;
	buffers += verify ? window : few;
	if ((buffers + 2) * (size + 8192) > MEMORY_MOST)
		return rpwi_cli_fail(RPW_ERR_LIMIT, PERF_NAME,
			"a client asked for a job that takes more than %llu GiB: use a smaller "
			"--window",
			MEMORY_MOST >> 30);
	*j = (struct perf_job){.op = (enum perf_op)op,
		.mode = (enum perf_mode)mode,
		.size = size,
		.n = n,
		.window = window,
		.buffers = turns,
		.seed = le64toh(q->seed),
		.verify = verify,
		.malloc = le64toh(q->flags) & FLAG_MALLOC,
		.touch = le64toh(q->flags) & FLAG_TOUCH};
	return 0;
}

static int distance_server(struct perf_side *s)
{
	int fd;
	char taken = 'n';
	struct offer_wire offer = {.pid = htole64((uint64_t)getpid())};
	struct perf_line *l = rpwi_perf_line_offer(&fd, offer.nonce);
	offer.fd = htole64(l ? (uint64_t)fd : FD_NONE);
	int rc = perf_send(s, &offer, sizeof(offer), TAG_READY);
	rc = rc ? rc : perf_recv(s, &taken, 1, TAG_GO);
	if (!rc && l && taken == 'y')
		rpwi_perf_line_answer(l);
	rpwi_perf_line_free(l);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int job_server(struct perf_side *s, const struct request_wire *q)
{
	struct answer_wire answer = {0};
	char finish_byte;
	s->got = s->wrong = s->checked = 0;
	s->closed = false;
	int refused = job_accept(q, &s->job);
	refused = refused ? refused : perf_buffers_make(s);
	refused = refused ? refused : perf_key_unpack(s, q->key, q->key_len);
	refused = refused ? refused : perf_key_pack(s, answer.key, &answer.key_len);
	answer.status = (int64_t)htole64((uint64_t)(int64_t)refused);
	int rc = perf_send(s, &answer, sizeof(answer), TAG_READY);
	if (rc || refused)
		return rc;
	rc = perf_warm_up(s);
	rc = rc ? rc : perf_job_run(s);
	rc = rc ? rc : perf_recv(s, &finish_byte, 1, TAG_FINISH);
	if (rc)
		return rc;
	perf_job_check(s);
	answer = (struct answer_wire){.checked = htole64(s->checked), .wrong = htole64(s->wrong)};
	return perf_send(s, &answer, sizeof(answer), TAG_RESULT);
}

/* Who asks next? Looked at rather than received: a receive that is complete at once does not say
 * from whom. NULL: nobody for a while. */
static rpw_endpoint *next_to_ask(struct perf_side *s)
{
	rpw_completion what = RPW_COMPLETION_INIT;
	for (unsigned turn = 0; turn < 2; turn++) {
		while (rpw_context_progress(s->c) > 0)
			;
		if (rpw_probe(s->c, NULL, TAG_REQUEST, ~0ull, &what) == RPW_OK)
			return what.from;
		if (!turn)
			perf_doze(s->c, SERVER_LOOKS_MS);
	}
	return NULL;
}

/* false: nothing more to do. */
static bool serve_one(struct server *v, bool once)
{
	struct perf_side *s = v->s;
	struct request_wire q = {0};
	s->ep = next_to_ask(s);
	if (s->ep) {
		int rc = perf_recv(s, &q, sizeof(q), TAG_REQUEST);
		s->closed = false;
		if (!rc && le64toh(q.op) == OP_DISTANCE && le32toh(q.version) == VERSION)
			rc = distance_server(s);
		else
			rc = rc ? rc : job_server(s, &q);
		perf_buffers_free(s);
		if (rc && !rpw_endpoint_user(s->ep)) {
			/* out of step with us: its client shall see that */
			fprintf(stderr, PERF_NAME ": %s: %s\n", rpw_status_name(rc),
				rpw_last_error());
			rpw_endpoint_set_user(s->ep, s);
		}
	}
	s->ep = NULL;
	close_the_gone(v);
	return !once || !v->had_one || v->clients;
}

int rpwi_perf_serve(const char *address, const char *transport, bool once, int ready_fd)
{
	struct server v = {0};
	rpw_listener *l;
	if (perf_side_make(transport, &v.s) || !v.s)
		return CLI_FAILED;
	int rc = rpw_listener_create(v.s->c, address, on_accept, &v, &l);
	if (rc) {
		rpwi_perf_close(v.s);
		return rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s: %s: %s", address,
			rpw_status_name(rc), rpw_last_error());
	}
	if (ready_fd >= 0)
		dprintf(ready_fd, "%d\n", rpw_listener_port(l));
	else {
		printf("listening on port %d; on the other side: ropeway perf THIS_HOST:%d\n",
			rpw_listener_port(l), rpw_listener_port(l));
		fflush(stdout);
	}
	while (serve_one(&v, once))
		;
	rpw_listener_destroy(l);
	rpwi_perf_close(v.s);
	return CLI_OK;
}
