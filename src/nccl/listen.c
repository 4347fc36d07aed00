/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.c - listen and accept. Whoever connects to the listener is an arrival; only one that has
 * said hello with the handle's nonce is taken by accept. Silent ones are bounded in number and
 * time. */
#include "nccl/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* A group's ranks come all at once. */
enum { SILENT_MAX = 64, SILENT_GROUP_MAX = 1024, WAITING_MAX = 1024, SILENT_MS = 10000 };

struct plugin_listener {
	struct plugin_comm *comm;
	rpw_listener *l;
	uint8_t nonce[PLUGIN_NONCE_BYTES];
	char address[64];
	struct rpwi_list silent, welcome; /* arrivals, oldest first */
	unsigned silent_count, welcome_count;
	uint64_t until_ns; /* of accept; from its first call on, or the last that gave a comm */
};

struct arrival {
	struct rpwi_list all;
	struct plugin_listener *l;
	rpw_endpoint *ep;
	uint64_t since_ns;
	bool welcome;
	uint8_t more[PLUGIN_HELLO_MORE_MAX];
	size_t more_len;
};

/* ---- arrivals: in callbacks of the comm context's context ---- */

static void arrival_free(struct arrival *a)
{
	a->l->silent_count -= !a->welcome;
	a->l->welcome_count -= a->welcome;
	rpwi_list_del(&a->all);
	free(a);
}

static void turn_away(struct arrival *a)
{
	rpw_endpoint *ep = a->ep;
	arrival_free(a);
	rpw_endpoint_destroy(ep);
}

static void arrival_gone(rpw_endpoint *ep, int status, void *arg)
{
	struct arrival *a = arg;
	rpw_endpoint_information i = {.size = sizeof(i)};
	rpw_endpoint_info(ep, &i);
	if (a->welcome) {
		/* it took the connect for done, and may have sent: accept gives it, with what came,
		 * and receives hear of the end */
		rpwi_debug("nccl: %s went away before it was accepted at %s: %s", i.peer,
			a->l->address, i.why);
		return;
	}
	rpwi_debug(
		"nccl: %s connected to %s, never said hello, and went away", i.peer, a->l->address);
	turn_away(a);
}

static bool too_long(struct plugin_listener *l, uint64_t now_ns)
{
	const struct arrival *oldest = RPWI_CONTAINER_OF(l->silent.next, struct arrival, all);
	unsigned most = plugin_api_is_rma(l->comm->abi) ? SILENT_GROUP_MAX : SILENT_MAX;
	return l->silent_count &&
	       (l->silent_count > most || now_ns - oldest->since_ns > SILENT_MS * RPWI_NS_PER_MS);
}

static void silent_limit(struct plugin_listener *l, uint64_t now_ns)
{
	while (too_long(l, now_ns)) {
		rpwi_debug("nccl: rejecting an endpoint that connected to %s without a hello",
			l->address);
		turn_away(RPWI_CONTAINER_OF(rpwi_list_pop(&l->silent), struct arrival, all));
	}
}

static void arrived(rpw_listener *unused, rpw_endpoint *ep, void *arg)
{
	struct plugin_listener *l = arg;
	struct arrival *a = l->welcome_count < WAITING_MAX ? calloc(1, sizeof(*a)) : NULL;
	if (!a) {
		rpwi_debug("nccl: %u wait to be accepted at %s, one more is rejected",
			l->welcome_count, l->address);
		rpw_endpoint_destroy(ep);
		return;
	}
	*a = (struct arrival){.l = l, .ep = ep, .since_ns = rpwi_now_ns()};
	rpwi_list_add_tail(&l->silent, &a->all);
	l->silent_count++;
	rpw_endpoint_on_close(ep, arrival_gone, a);
	silent_limit(l, a->since_ns);
}

/* By its endpoint, whose user stays NULL: other handlers of the same context take that for one of
 * theirs. NULL: it has said hello already, or never was one. */
static struct arrival *silent_of(struct plugin_listener *l, const rpw_endpoint *ep)
{
	RPWI_LIST_EACH (struct arrival, a, &l->silent, all)
		if (a->ep == ep)
			return a;
	return NULL;
}

static void hello(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct plugin_listener *l = arg;
	struct arrival *a = silent_of(l, ep);
	struct plugin_hello own;
	char why[RPW_AM_HEADER_MAX];
	if (!a)
		return;
	plugin_hello_check(header, header_len, l->comm->abi, l->nonce, why, sizeof(why));
	if (!*why && len > sizeof(a->more))
		snprintf(why, sizeof(why), "a hello with %zu bytes behind it: %zu are the most",
			len, sizeof(a->more));
	if (*why) {
		rpwi_debug("nccl: refused at %s: %s", l->address, why);
		rpw_am_send(ep, PLUGIN_REFUSED, why, strlen(why), NULL, 0, NULL);
		return; /* it closes, or is closed when its time is up */
	}
	plugin_hello_make(&own, l->comm->abi, l->nonce);
	if (rpw_am_send(ep, PLUGIN_WELCOME, &own, sizeof(own), NULL, 0, NULL) < 0)
		return; /* its end is about to be heard of */
	a->welcome = true;
	a->more_len = len;
	if (len)
		memcpy(a->more, data, len);
	rpwi_list_del(&a->all);
	rpwi_list_add_tail(&l->welcome, &a->all);
	l->silent_count--;
	l->welcome_count++;
}

/* ---- listen ---- */

static int listener_open(struct plugin_comm *c, struct plugin_listener *l)
{
	const struct plugin_device *d = c->device;
	char any[80];
	if (getrandom(l->nonce, sizeof(l->nonce), 0) != sizeof(l->nonce)) {
		plugin_warn("no random numbers for a handle: %s", strerror(errno));
		return NCCL_SYSTEM_ERROR;
	}
	snprintf(any, sizeof(any), d->v6 ? "[%s]:0" : "%s:0", d->address);
	int rc = rpw_listener_create(c->cc->c, any, arrived, l, &l->l);
	if (rc) {
		plugin_warn("listening on device %s, %s: %s; %s", d->name, any, rpw_last_error(),
			"choose the interface with NCCL_SOCKET_IFNAME");
		return plugin_result(rc);
	}
	snprintf(l->address, sizeof(l->address), d->v6 ? "[%.48s]:%d" : "%.48s:%d", d->address,
		rpw_listener_port(l->l));
	rpw_context_on_am(c->cc->c, PLUGIN_HELLO, hello, l);
	return NCCL_SUCCESS;
}

static int listen_on(int abi, const struct plugin_device *d, struct plugin_comm **out)
{
	struct comm_context *cc = NULL;
	int rc = comm_context_new(d, plugin_api_is_rma(abi), &cc);
	if (rc)
		return plugin_result(rc);
	struct plugin_comm *c = plugin_comm_new(PLUGIN_LISTEN, abi, cc, d);
	struct plugin_listener *l = c ? calloc(1, sizeof(*l)) : NULL;
	rc = NCCL_SYSTEM_ERROR;
	if (l) {
		l->comm = c;
		rpwi_list_init(&l->silent);
		rpwi_list_init(&l->welcome);
		c->listener = l;
		comm_context_enter(cc);
		rc = listener_open(c, l);
		comm_context_leave_to_progress(cc);
	}
	if (rc) {
		comm_context_drop(cc);
		free(l);
		if (c)
			plugin_comm_free(c);
		return rc;
	}
	*out = c;
	return NCCL_SUCCESS;
}

int plugin_listen(int abi, int dev, void *handle, void **listen_comm)
{
	struct plugin_comm *c = NULL;
	struct plugin_handle h;
	*listen_comm = NULL;
	const struct plugin_device *d = plugin_device(dev);
	if (!d)
		return plugin_no_device(dev);
	int rc = listen_on(abi, d, &c);
	if (!c)
		return rc;
	plugin_handle_make(&h, abi, c->listener->nonce, c->listener->address);
	memcpy(handle, &h, sizeof(h));
	*listen_comm = c;
	return NCCL_SUCCESS;
}

void plugin_listen_close(struct plugin_comm *c)
{
	struct plugin_listener *l = c->listener;
	while (!rpwi_list_empty(&l->silent))
		turn_away(RPWI_CONTAINER_OF(rpwi_list_pop(&l->silent), struct arrival, all));
	while (!rpwi_list_empty(&l->welcome))
		turn_away(RPWI_CONTAINER_OF(rpwi_list_pop(&l->welcome), struct arrival, all));
	rpw_context_on_am(c->cc->c, PLUGIN_HELLO, NULL, NULL);
	rpw_listener_destroy(l->l);
	free(l);
}

const uint8_t *plugin_listen_nonce(const struct plugin_comm *lc) { return lc->listener->nonce; }

const char *plugin_listen_refused(struct plugin_comm *lc, char *text, size_t len)
{
	rpw_statistics s = {.size = sizeof(s)};
	rpw_context_statistics(lc->cc->c, &s);
	if (!s.strangers_refused)
		return "";
	snprintf(text, len,
		"; %llu connection%s came and had to be refused: do all ranks have the same "
		"ROPEWAY_KEY_FILE?",
		(unsigned long long)s.strangers_refused, rpwi_plural(s.strangers_refused));
	return text;
}

/* ---- accept ---- */

rpw_endpoint *plugin_listen_take(
	struct plugin_comm *lc, uint8_t more[PLUGIN_HELLO_MORE_MAX], size_t *more_len)
{
	struct plugin_listener *l = lc->listener;
	silent_limit(l, rpwi_now_ns());
	if (rpwi_list_empty(&l->welcome))
		return NULL;
	struct arrival *a = RPWI_CONTAINER_OF(l->welcome.next, struct arrival, all);
	rpw_endpoint *ep = a->ep;
	memcpy(more, a->more, a->more_len);
	*more_len = a->more_len;
	rpw_endpoint_on_close(ep, NULL, NULL);
	arrival_free(a);
	return ep;
}

static struct plugin_comm *comm_of(struct plugin_comm *lc, struct arrival *a)
{
	struct plugin_comm *c = plugin_comm_new(PLUGIN_RECV, lc->abi, lc->cc, lc->device);
	if (!c)
		return NULL;
	c->ep = a->ep;
	lc->cc->users++;
	rpw_endpoint_on_close(a->ep, NULL, NULL);
	arrival_free(a);
	plugin_comm_say(c, "accepted");
	return c;
}

static int nobody_yet(struct plugin_listener *l, uint64_t now_ns)
{
	unsigned ms = plugin_timeout_ms(PLUGIN_ACCEPT_MS);
	char refused[160];
	if (!l->until_ns)
		l->until_ns = now_ns + ms * RPWI_NS_PER_MS;
	if (now_ns < l->until_ns)
		return NCCL_SUCCESS;
	plugin_warn("accept at %s: nobody has connected for %u ms; is the other rank alive, and "
		    "can it reach this address? NCCL_SOCKET_IFNAME chooses the "
		    "interface, ROPEWAY_NCCL_TIMEOUT_MS how long to wait%s",
		l->address, ms, plugin_listen_refused(l->comm, refused, sizeof(refused)));
	l->until_ns = 0;
	return NCCL_REMOTE_ERROR;
}

int plugin_accept(int abi, void *listen_comm, void **recv_comm)
{
	struct plugin_comm *lc = listen_comm;
	*recv_comm = NULL;
	int rc = plugin_comm_check(listen_comm, PLUGIN_LISTEN, abi, "accept");
	if (rc)
		return rc;
	struct plugin_listener *l = lc->listener;
	comm_context_enter(lc->cc);
	rpw_context_progress(lc->cc->c);
	uint64_t now_ns = rpwi_now_ns();
	silent_limit(l, now_ns);
	if (!rpwi_list_empty(&l->welcome)) {
		*recv_comm = comm_of(lc, RPWI_CONTAINER_OF(l->welcome.next, struct arrival, all));
		rc = *recv_comm ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
		l->until_ns = 0;
		rpw_context_progress(lc->cc->c); /* the welcome goes: nobody may poll for a while */
	} else
		rc = nobody_yet(l, now_ns);
	comm_context_leave(lc->cc);
	return rc;
}
