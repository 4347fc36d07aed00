/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - connect. It does not block: a dial is a connect under way, found again by the token
 * that the first call left in the caller's copy of the handle. */
#include "nccl/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { DIALS_MAX = 1024 };

enum dial_state { DIALING, WELCOME, FAILED };
struct dial {
	struct rpwi_list all;
	uint64_t token;
	bool in_use; /* by the call that is under way */
	struct plugin_handle h;
	int abi;
	struct comm_context *cc;
	const struct plugin_device *device;
	rpw_endpoint *ep;
	enum dial_state state;
	int status;
	unsigned timeout_ms;
	uint64_t until_ns;
	char why[512];
};

/* The table of them; the contents of a dial are its caller's, or its comm context's. */
static struct {
	pthread_mutex_t lock;
	struct rpwi_list all;
	unsigned count;
} dials = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = {&dials.all, &dials.all}};

/* ---- what happens on the comm context ---- */

static void give_up(struct dial *d, int status, const char *why)
{
	if (d->state != DIALING)
		return;
	d->state = FAILED;
	d->status = status;
	snprintf(d->why, sizeof(d->why), "%s", why);
}

static void ended(rpw_endpoint *ep, int status, void *arg)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	give_up(arg, status, !rpw_endpoint_info(ep, &i) && *i.why ? i.why : rpw_last_error());
}

static void connected(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct dial *d = arg;
	struct plugin_hello h;
	rpw_request_destroy(r);
	if (done->status) /* the endpoint's end says why */
		return;
	plugin_hello_make(&h, d->abi, d->h.nonce);
	int rc = rpw_am_send(d->ep, PLUGIN_HELLO, &h, sizeof(h), NULL, 0, NULL);
	if (rc < 0)
		give_up(d, rc, rpw_last_error());
}

static void welcomed(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct dial *d = arg;
	char why[RPW_AM_HEADER_MAX];
	plugin_hello_check(header, header_len, d->abi, d->h.nonce, why, sizeof(why));
	if (*why)
		give_up(d, RPW_ERR_PROTOCOL, why);
	else if (d->state == DIALING)
		d->state = WELCOME;
}

static void refused(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	char why[RPW_AM_HEADER_MAX + 1];
	size_t n = RPWI_MIN(header_len, sizeof(why) - 1);
	memcpy(why, header, n);
	for (size_t i = 0; i < n; i++)
		if (why[i] < ' ' || why[i] > '~')
			why[i] = '?';
	why[n] = 0;
	give_up(arg, RPW_ERR_REFUSED, why);
}

/* ---- dials ---- */

static void dial_free(struct dial *d)
{
	if (d->cc) {
		comm_context_enter(d->cc);
		rpw_context_on_am(d->cc->c, PLUGIN_WELCOME, NULL, NULL);
		rpw_context_on_am(d->cc->c, PLUGIN_REFUSED, NULL, NULL);
		if (d->ep)
			rpw_endpoint_destroy(d->ep);
		comm_context_leave(d->cc);
		comm_context_drop(d->cc);
	}
	free(d);
}

static void dial_remove(struct dial *d)
{
	pthread_mutex_lock(&dials.lock);
	rpwi_list_del(&d->all);
	dials.count--;
	pthread_mutex_unlock(&dials.lock);
}

/* Those that nobody has asked about for as long again as they had time: their caller has given
 * up. */
static void sweep(void)
{
	struct rpwi_list old;
	rpwi_list_init(&old);
	uint64_t now_ns = rpwi_now_ns();
	pthread_mutex_lock(&dials.lock);
	RPWI_LIST_EACH_SAFE (struct dial, d, next, &dials.all, all) {
		if (d->in_use || now_ns < d->until_ns + d->timeout_ms * RPWI_NS_PER_MS)
			continue;
		rpwi_list_del(&d->all);
		rpwi_list_add_tail(&old, &d->all);
		dials.count--;
	}
	pthread_mutex_unlock(&dials.lock);
	while (!rpwi_list_empty(&old))
		dial_free(RPWI_CONTAINER_OF(rpwi_list_pop(&old), struct dial, all));
}

/* In the table, in use; or NULL with a line. */
static struct dial *dial_new(
	int abi, const struct plugin_device *device, const struct plugin_handle *h)
{
	sweep();
	struct dial *d = calloc(1, sizeof(*d));
	if (!d || getrandom(&d->token, sizeof(d->token), 0) != sizeof(d->token)) {
		plugin_warn("no memory or no random number for a connection: %s", strerror(errno));
		free(d);
		return NULL;
	}
	d->token |= 1; /* 0 is a handle that was not connected with yet */
	d->abi = abi;
	d->device = device;
	d->h = *h;
	d->in_use = true;
	d->timeout_ms = plugin_timeout_ms(PLUGIN_CONNECT_MS);
	d->until_ns = rpwi_now_ns() + d->timeout_ms * RPWI_NS_PER_MS;
	pthread_mutex_lock(&dials.lock);
	bool full = dials.count >= DIALS_MAX;
	if (!full) {
		rpwi_list_add_tail(&dials.all, &d->all);
		dials.count++;
	}
	pthread_mutex_unlock(&dials.lock);
	if (!full)
		return d;
	plugin_warn("%d connects are under way at once; pass the same memory as the handle in each "
		    "call for one connection",
		DIALS_MAX);
	free(d);
	return NULL;
}

/* The dial with that token, now in use; *busy where another call has it. */
static struct dial *dial_find(const struct plugin_handle *h, int abi, bool *busy)
{
	struct dial *found = NULL;
	*busy = false;
	pthread_mutex_lock(&dials.lock);
	for (struct rpwi_list *n = dials.all.next; n != &dials.all && !found; n = n->next) {
		struct dial *d = RPWI_CONTAINER_OF(n, struct dial, all);
		if (d->token == h->token && d->abi == abi &&
			!memcmp(d->h.nonce, h->nonce, sizeof(h->nonce)))
			found = d;
	}
	if (found) {
		*busy = found->in_use;
		found->in_use = true;
	}
	pthread_mutex_unlock(&dials.lock);
	return found;
}

/* Not in use any more; somebody may take it at once. */
static void dial_leave(struct dial *d)
{
	pthread_mutex_lock(&dials.lock);
	d->in_use = false;
	pthread_mutex_unlock(&dials.lock);
}

static int dial_begin(struct dial *d)
{
	rpw_request *r = NULL;
	/* a handle comes from a listener: nobody there means that it has ended */
	rpw_endpoint_options o = {
		.size = sizeof(o), .timeout_ms = d->timeout_ms, .refused_ms = PLUGIN_REFUSED_MS};
	int rc = comm_context_new(d->device, false, &d->cc);
	if (rc)
		return plugin_result(rc);
	comm_context_enter(d->cc);
	rpw_context_on_am(d->cc->c, PLUGIN_WELCOME, welcomed, d);
	rpw_context_on_am(d->cc->c, PLUGIN_REFUSED, refused, d);
	rc = rpw_endpoint_create(d->cc->c, d->h.address, &o, &d->ep, &r);
	if (rc >= 0) {
		rpw_request_on_done(r, connected, d);
		rpw_endpoint_on_close(d->ep, ended, d);
	} else
		plugin_warn("connecting to %s: %s; %s", d->h.address, rpw_last_error(),
			plugin_advice(rc));
	comm_context_leave_begun(d->cc);
	return rc < 0 ? plugin_result(rc) : NCCL_SUCCESS;
}

/* With the comm context's lock held: its outcome. */
static int dial_look(struct dial *d, struct plugin_comm **out)
{
	rpw_context_progress(d->cc->c);
	if (d->state == DIALING && rpwi_now_ns() > d->until_ns) {
		char why[160];
		snprintf(why, sizeof(why), "no connection within %u ms", d->timeout_ms);
		give_up(d, RPW_ERR_TIMEOUT, why);
	}
	if (d->state == DIALING)
		return NCCL_SUCCESS;
	if (d->state == FAILED) {
		plugin_warn("connecting to %s from %s: %s (%s); %s", d->h.address, d->device->name,
			d->why, rpw_status_name(d->status), plugin_advice(d->status));
		return plugin_result(d->status);
	}
	struct plugin_comm *c = plugin_comm_new(PLUGIN_SEND, d->abi, d->cc, d->device);
	if (!c)
		return NCCL_SYSTEM_ERROR;
	c->ep = d->ep;
	d->cc->users++;
	rpw_endpoint_on_close(d->ep, NULL, NULL);
	d->ep = NULL;
	plugin_comm_say(c, "connected to");
	*out = c;
	return NCCL_SUCCESS;
}

static int dial_on(struct dial *d, struct plugin_comm **out)
{
	if (!d->cc) {
		int rc = dial_begin(d);
		if (rc)
			return rc;
	}
	comm_context_enter(d->cc);
	int rc = dial_look(d, out);
	comm_context_leave(d->cc);
	return rc;
}

int plugin_connect(int abi, int dev, void *handle, void **send_comm)
{
	struct plugin_handle h;
	struct plugin_comm *c = NULL;
	char why[320];
	bool busy = false;
	*send_comm = NULL;
	const struct plugin_device *device = plugin_device(dev);
	if (!device)
		return plugin_no_device(dev);
	memcpy(&h, handle, sizeof(h)); /* NCCL aligns it for chars */
	int rc = plugin_handle_check(&h, abi, why, sizeof(why));
	if (rc) {
		plugin_warn("connect: %s", why);
		return rc;
	}
	struct dial *d = h.token ? dial_find(&h, abi, &busy) : dial_new(abi, device, &h);
	if (!d) {
		if (h.token)
			plugin_warn("connect: the handle is garbled: its last 8 bytes, zero when "
				    "listen gives it, are not of a connect that is under way");
		return h.token ? NCCL_INVALID_ARGUMENT : NCCL_SYSTEM_ERROR;
	}
	if (busy)
		return NCCL_SUCCESS;
	rc = dial_on(d, &c);
	h.token = rc || c ? 0 : d->token;
	memcpy(handle, &h, sizeof(h));
	if (rc || c) {
		dial_remove(d);
		dial_free(d);
	} else
		dial_leave(d);
	*send_comm = c;
	return rc;
}
