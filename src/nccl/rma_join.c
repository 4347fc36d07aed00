/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_join.c - a coll comm's endpoints: each rank connects to those below it, and to itself, and is
 * connected to by those above. The hello has the rank that connects. A rank that is taken gets
 * JOINED, and uses the endpoint only then: earlier messages would be lost. */
#include "nccl/rma.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLEEP_NS = 50000, SPIN_ROUNDS = 2000 };

/* Of the peer that the endpoint is dialed for. */
static void give_up(struct rma_peer *p, int status, const char *why)
{
	if (p->gone)
		return;
	p->gone = true;
	p->status = status;
	snprintf(p->why, sizeof(p->why), "%s", why);
}

static void ended(rpw_endpoint *ep, int status, void *arg)
{
	struct rma_peer *p = arg;
	rpw_endpoint_information i = {.size = sizeof(i)};
	bool was_up = p->up;
	give_up(p, status, !rpw_endpoint_info(ep, &i) && *i.why ? i.why : "its endpoint has ended");
	if (was_up && status)
		rma_peer_failed(p, status, "the connection to");
}

static void say(struct rma_peer *p)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	if (rpw_endpoint_info(p->ep, &i))
		return;
	snprintf(p->name, sizeof(p->name), "%s", i.peer);
	size_t small = strcmp(i.transport, "tcp") != 0 ? RMA_SMALL : RMA_SMALL_TCP;
	p->small = RPWI_MIN(i.eager_bytes_max, small);
	plugin_info("%s: rank %d: %s by %s (%s): %s", PLUGIN_API(p->comm->abi), p->rank, i.peer,
		i.transport, i.path, i.why);
}

/* ---- the side that connects ---- */

struct dial {
	struct rma_peer *peer;
	struct plugin_hello hello;
	struct rma_join join;
};
/* Of one call of rma_join_all. */
struct joining {
	struct rma_comm *c;
	struct plugin_comm *lc;
	const struct plugin_handle *handles;
	struct dial *dials; /* ranks up to our own */
};

static void connected(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct dial *d = arg;
	rpw_request_destroy(r);
	if (done->status) /* the endpoint's end says why */
		return;
	int rc = rpw_am_send(d->peer->ep, PLUGIN_HELLO, &d->hello, sizeof(d->hello), &d->join,
		sizeof(d->join), NULL);
	if (rc < 0)
		give_up(d->peer, rc, rpw_last_error());
}

static void joined(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct rma_peer *p = rpw_endpoint_user(ep);
	if (!p || p->up)
		return;
	say(p);
	p->up = true;
}

static void refused(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct rma_peer *p = rpw_endpoint_user(ep);
	char why[RPW_AM_HEADER_MAX + 1];
	size_t n = RPWI_MIN(header_len, sizeof(why) - 1);
	memcpy(why, header, n);
	for (size_t i = 0; i < n; i++)
		if (why[i] < ' ' || why[i] > '~')
			why[i] = '?';
	why[n] = 0;
	if (p)
		give_up(p, RPW_ERR_REFUSED, why);
}

static int dial(struct joining *j, int rank, unsigned timeout_ms)
{
	struct rma_comm *c = j->c;
	struct rma_peer *p = &c->peer[rank];
	struct dial *d = &j->dials[rank];
	rpw_request *r = NULL;
	rpw_endpoint_options o = {
		.size = sizeof(o), .timeout_ms = timeout_ms, .refused_ms = PLUGIN_REFUSED_MS};
	d->peer = p;
	plugin_hello_make(&d->hello, c->abi, j->handles[rank].nonce);
	d->join = (struct rma_join){.rank = c->rank, .ranks = c->ranks};
	memcpy(d->join.from, j->handles[c->rank].nonce, sizeof(d->join.from));
	snprintf(p->name, sizeof(p->name), "%s", j->handles[rank].address);
	int rc = rpw_endpoint_create(c->cc->c, j->handles[rank].address, &o, &p->ep, &r);
	if (rc < 0) {
		p->ep = NULL;
		give_up(p, rc, rpw_last_error());
		return rc;
	}
	rpw_endpoint_set_user(p->ep, p);
	rpw_request_on_done(r, connected, d);
	rpw_endpoint_on_close(p->ep, ended, p);
	return 0;
}

/* ---- the side that is connected to ---- */

/* Which of our peers it is; NULL: why not. */
static struct rma_peer *peer_of(
	struct joining *j, const uint8_t *more, size_t len, char *why, size_t why_len)
{
	struct rma_comm *c = j->c;
	struct rma_join join;
	if (len != sizeof(join)) {
		snprintf(
			why, why_len, "a hello of %zu bytes: %zu were expected", len, sizeof(join));
		return NULL;
	}
	memcpy(&join, more, sizeof(join));
	if (join.ranks != c->ranks || join.rank < c->rank || join.rank >= c->ranks) {
		snprintf(why, why_len,
			"rank %d of %d connects to rank %d of %d: ranks connect to those below "
			"them, of the same communicator",
			join.rank, join.ranks, c->rank, c->ranks);
		return NULL;
	}
	if (memcmp(join.from, j->handles[join.rank].nonce, sizeof(join.from)) != 0) {
		snprintf(why, why_len,
			"what connects as rank %d does not have the handle of rank %d", join.rank,
			join.rank);
		return NULL;
	}
	struct rma_peer *p = &c->peer[join.rank == c->rank ? c->ranks : join.rank];
	if (p->ep) {
		snprintf(why, why_len, "rank %d connects a second time", join.rank);
		return NULL;
	}
	return p;
}

static void arrivals_take(struct joining *j)
{
	uint8_t more[PLUGIN_HELLO_MORE_MAX];
	size_t len;
	char why[RPW_AM_HEADER_MAX];
	rpw_endpoint *ep;
	while ((ep = plugin_listen_take(j->lc, more, &len))) {
		struct rma_peer *p = peer_of(j, more, len, why, sizeof(why));
		if (!p) {
			plugin_warn("connect: %s", why);
			rpw_am_send(ep, PLUGIN_REFUSED, why, strlen(why), NULL, 0, NULL);
			rpw_context_progress(j->c->cc->c); /* so that it hears why */
			rpw_endpoint_destroy(ep);
			continue;
		}
		p->ep = ep;
		rpw_endpoint_set_user(ep, p);
		if (rpw_am_send(ep, RMA_JOINED, NULL, 0, NULL, 0, NULL) >= 0) {
			say(p);
			p->up = true;
		}
		rpw_endpoint_on_close(ep, ended, p); /* perhaps at once */
	}
}

/* ---- all ---- */

static void begin(struct joining *j, unsigned timeout_ms)
{
	struct rma_comm *c = j->c;
	rpw_context *x = c->cc->c;
	rpw_context_on_am(x, PLUGIN_REFUSED, refused, c);
	rpw_context_on_am(x, RMA_JOINED, joined, c);
	rpw_context_on_am(x, RMA_REG, rma_reg_arrived, c);
	rpw_context_on_am(x, RMA_PUT, rma_put_arrived, c);
	rpw_context_on_am(x, RMA_REFUSED, rma_refused_arrived, c);
	for (int i = 0; i <= c->rank; i++)
		if (dial(j, i, timeout_ms))
			return;
}

/* The first that will not come up, or is not up yet. */
static struct rma_peer *missing(struct rma_comm *c)
{
	struct rma_peer *first = NULL;
	for (int i = c->ranks; i >= 0; i--) {
		struct rma_peer *p = &c->peer[i];
		if (p->gone)
			return p;
		if (!p->up)
			first = p;
	}
	return first;
}

static void breathe(unsigned round)
{
	const struct timespec moment = {.tv_nsec = SLEEP_NS};
	if (round < SPIN_ROUNDS)
		sched_yield();
	else
		nanosleep(&moment, NULL);
}

/* Dialed endpoints end here, since `connected` has their dials. What the others hear of that is no
 * news: one of them is our own. */
static void leave(struct rma_comm *c)
{
	for (int i = 0; i <= c->ranks; i++)
		if (c->peer[i].ep)
			rpw_endpoint_on_close(c->peer[i].ep, NULL, NULL);
	for (int i = 0; i <= c->rank; i++)
		if (c->peer[i].ep) {
			rpw_endpoint_destroy(c->peer[i].ep);
			c->peer[i].ep = NULL;
		}
	rpw_context_progress(c->cc->c);
}

int rma_join_all(struct rma_comm *c, struct plugin_comm *lc, const struct plugin_handle *handles)
{
	unsigned ms = plugin_timeout_ms(PLUGIN_ACCEPT_MS),
		 dial_ms = plugin_timeout_ms(PLUGIN_CONNECT_MS);
	uint64_t until_ns = rpwi_now_ns() + ms * RPWI_NS_PER_MS;
	struct joining j = {.c = c, .lc = lc, .handles = handles};
	struct rma_peer *p = &c->peer[0];
	char refused[160];
	j.dials = calloc((size_t)c->rank + 1, sizeof(*j.dials));
	if (!j.dials)
		return NCCL_SYSTEM_ERROR;
	comm_context_enter(c->cc);
	begin(&j, dial_ms);
	for (unsigned round = 0; p && !p->gone && rpwi_now_ns() < until_ns; round++) {
		if (round) {
			comm_context_leave(c->cc);
			breathe(round);
			comm_context_enter(c->cc);
		}
		rpw_context_progress(c->cc->c);
		arrivals_take(&j);
		p = missing(c);
	}
	int rc = NCCL_SUCCESS;
	if (p && p->gone) {
		plugin_warn("connect, rank %d of %d: rank %d (%s): %s (%s); %s%s", c->rank,
			c->ranks, p->rank, p->name, p->why, rpw_status_name(p->status),
			plugin_advice(p->status),
			plugin_listen_refused(lc, refused, sizeof(refused)));
		rc = p->status ? plugin_result(p->status) : NCCL_REMOTE_ERROR;
	} else if (p) {
		plugin_warn(
			"connect, rank %d of %d: rank %d has not connected within %u ms: has it "
			"called connect, and can it reach this address? ROPEWAY_NCCL_TIMEOUT_MS "
			"is how long to wait%s",
			c->rank, c->ranks, p->rank, ms,
			plugin_listen_refused(lc, refused, sizeof(refused)));
		rc = NCCL_REMOTE_ERROR;
	}
	if (rc)
		leave(c);
	free(j.dials);
	comm_context_leave(c->cc);
	return rc;
}
