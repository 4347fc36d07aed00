/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - the side that decides: connects, asks for jobs, and makes figures of them. */
#include "cli/perf/side.h"

#include <stdlib.h>

#include "base/hash.h"
#include "cli/cli.h"
#include "cli/perf/hist.h"

const char *const rpwi_perf_op_name[PERF_OPS + 1] = {[PERF_TAG] = "tag",
	[PERF_PUT] = "put",
	[PERF_GET] = "get",
	[PERF_AM] = "am",
	[PERF_LOAN] = "loan",
	[PERF_VIEW] = "view"};

/* ---- one job ---- */

static int job_asked(struct perf_side *s, struct answer_wire *answer)
{
	const struct perf_job *j = &s->job;
	uint64_t flags = j->verify ? FLAG_VERIFY : 0;
	flags |= j->malloc ? FLAG_MALLOC : 0;
	flags |= j->touch ? FLAG_TOUCH : 0;
	struct request_wire q = {.magic = htole32(MAGIC),
		.version = htole32(VERSION),
		.op = htole64(j->op),
		.mode = htole64(j->mode),
		.size = htole64(j->size),
		.n = htole64(j->n),
		.window = htole64(j->window),
		.buffers = htole64(j->buffers),
		.seed = htole64(j->seed),
		.flags = htole64(flags)};
	int rc = perf_key_pack(s, q.key, &q.key_len);
	rc = rc ? rc : perf_send(s, &q, sizeof(q), TAG_REQUEST);
	rc = rc ? rc : perf_recv(s, answer, sizeof(*answer), TAG_READY);
	if (!rc && (int64_t)le64toh((uint64_t)answer->status))
		rc = rpwi_cli_fail(RPW_ERR_REFUSED, PERF_NAME,
			"the server cannot do this job (%s); its standard error says why",
			rpw_status_name((int)le64toh((uint64_t)answer->status)));
	return rc ? rc : perf_key_unpack(s, answer->key, answer->key_len);
}

/* Runs s->job once; *took_ns is the clock's. */
static int job_client(struct perf_side *s, uint64_t *took_ns, uint64_t *took_ticks)
{
	struct answer_wire answer;
	s->got = s->wrong = s->checked = 0;
	int rc = perf_buffers_make(s);
	rc = rc ? rc : job_asked(s, &answer);
	rc = rc ? rc : perf_warm_up(s);
	if (rc)
		return rc;
	uint64_t begin_ns = rpwi_now_ns(), begin_ticks = rpwi_perf_ticks();
	rc = perf_job_run(s);
	*took_ticks = rpwi_perf_ticks() - begin_ticks;
	*took_ns = rpwi_now_ns() - begin_ns;
	rc = rc ? rc : perf_send(s, "f", 1, TAG_FINISH);
	rc = rc ? rc : perf_recv(s, &answer, sizeof(answer), TAG_RESULT);
	if (rc)
		return rc;
	perf_job_check(s);
	s->checked += le64toh(answer.checked);
	s->wrong += le64toh(answer.wrong);
	if (s->wrong)
		return rpwi_cli_fail(RPW_ERR_PROTOCOL, PERF_NAME,
			"%llu of %llu messages that were checked are not what was sent (%s, %llu "
			"bytes)",
			(unsigned long long)s->wrong, (unsigned long long)s->checked,
			rpwi_perf_op_name[s->job.op], (unsigned long long)s->job.size);
	return rc;
}

/* The histogram counts ticks; what a tick is, the clock over the whole job says. */
static int latency_of(
	const struct perf_side *s, uint64_t ns, uint64_t ticks, struct perf_latency *l)
{
	struct perf_hist *h = calloc(1, sizeof(*h));
	if (!h)
		return RPW_ERR_NO_MEMORY;
	for (uint64_t i = 0; i < s->job.n; i++)
		perf_hist_add(h, s->ticks[i]);
	double each_s = (double)ns / 1e9 / (double)(ticks ? ticks : 1);
	each_s = s->job.op == PERF_GET ? each_s : each_s / 2;
	*l = (struct perf_latency){.least = h->least * each_s,
		.p50 = perf_hist_at(h, 0.5) * each_s,
		.p90 = perf_hist_at(h, 0.9) * each_s,
		.p99 = perf_hist_at(h, 0.99) * each_s,
		.p999 = perf_hist_at(h, 0.999) * each_s,
		.most = h->most * each_s,
		.mean = (double)h->sum / (double)h->n * each_s};
	free(h);
	return 0;
}

static uint64_t most_messages(const struct perf_job *j)
{
	if (j->verify && j->op == PERF_PUT && j->mode == PERF_BW)
		return j->window;
	return j->mode == PERF_LAT ? LAT_MOST : UINT32_MAX;
}

/* Once to see how long a message takes (and to warm up), then as many as the time allows. */
int rpwi_perf_measure(
	struct perf_side *s, struct perf_job *job, double seconds, struct perf_row *row)
{
	uint64_t asked = job->n, ns = 1, ticks = 1;
	int rc = 0;
	for (unsigned turn = asked ? 1 : 0; turn < 3 && !rc; turn++) {
		s->job = *job;
		s->job.seed = rpwi_scatter(job->seed + turn);
		if (asked)
			s->job.n = asked;
		else if (!turn)
			s->job.n = job->size >= LARGE ? 4 : 64;
		else /* the second look is longer: the first was cold */
			s->job.n = (uint64_t)((double)s->job.n + (turn == 1 ? 0.1 : 1) * seconds /
									 ((double)ns / 1e9) *
									 row->messages);
		s->job.n = RPWI_MAX(RPWI_MIN(s->job.n, most_messages(job)), (uint64_t)1);
		rc = job_client(s, &ns, &ticks);
		row->messages = s->job.n;
		row->checked = s->checked;
		if (!rc && job->mode == PERF_LAT)
			rc = latency_of(s, ns, ticks, &row->latency);
		row->messages_s = job->mode == PERF_BW ? (double)s->job.n / ((double)ns / 1e9)
						       : row->messages_s;
		perf_buffers_free(s);
		if (asked)
			break;
	}
	row->has[job->mode] = !rc;
	if (rc && rc != RPW_ERR_PROTOCOL && rc != RPW_ERR_REFUSED)
		rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s of %llu bytes: %s: %s",
			rpwi_perf_op_name[job->op], (unsigned long long)job->size,
			rpw_status_name(rc), rpw_last_error());
	return rc;
}

/* ---- the distance ---- */

/* The server offers a line, the client says whether it could take it (GO), then both are at it. */
int rpwi_perf_distance(struct perf_side *s, struct perf_distance *out)
{
	struct request_wire q = {
		.magic = htole32(MAGIC), .version = htole32(VERSION), .op = htole64(OP_DISTANCE)};
	struct offer_wire offer;
	*out = (struct perf_distance){.core = {-1, -1}};
	int rc = perf_send(s, &q, sizeof(q), TAG_REQUEST);
	rc = rc ? rc : perf_recv(s, &offer, sizeof(offer), TAG_READY);
	if (rc)
		return rpwi_cli_fail(rc, PERF_NAME,
			"the server does not say how near it is (%s): run the same ropeway on both "
			"sides",
			rpw_status_name(rc));
	struct perf_line *l =
		rpwi_perf_line_take(le64toh(offer.pid), le64toh(offer.fd), offer.nonce);
	rc = perf_send(s, l ? "y" : "n", 1, TAG_GO);
	if (l && !rc)
		out->half_trip_s = rpwi_perf_line_ask(l, out->core);
	rpwi_perf_line_free(l);
	return rc;
}

/* ---- the client ---- */

int rpwi_perf_connect(const char *address, const char *transport, struct perf_side **out)
{
	struct perf_side *s = NULL;
	rpw_request *r = NULL;
	int rc = perf_side_make(transport, &s);
	if (rc || !s)
		return rc;
	s->client = true;
	rc = rpw_endpoint_create(s->c, address, NULL, &s->ep, &r);
	if (rc == RPW_IN_PROGRESS) {
		rc = rpw_request_wait(r, -1, NULL);
		rpw_request_destroy(r);
	}
	if (rc) {
		rpwi_cli_fail(rc, PERF_NAME, "%s: %s: %s", address, rpw_status_name(rc),
			rpw_last_error());
		rpwi_perf_close(s);
		return rc;
	}
	rpw_endpoint_on_close(s->ep, perf_on_close, s);
	*out = s;
	return 0;
}

rpw_endpoint *rpwi_perf_endpoint(struct perf_side *s) { return s->ep; }
