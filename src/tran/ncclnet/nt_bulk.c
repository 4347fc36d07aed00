/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_bulk.c - messages of bulk data, for remote memory as tran/emulate.c has it, on the comm for
 * them. Its sender announces each message on the comm for frames, behind the frame that announces
 * it, and sends them in that order; the receiver posts its receives in that order, straight into
 * their places. So the plugin need not match anything but first to first, and an announced message
 * is always expected. One without a place here (refused, released) goes to the sink, so that the
 * order holds.
 *
 * Memory is registered with the plugin when a message first needs it, with the comm of that
 * message, and deregistered when it is released. A plugin cannot be told to stop: memory that it is
 * reading or writing is waited for, at most NT_RELEASE_MS; then the endpoint is broken, which ends
 * it.
 */
#include "tran/ncclnet/nt_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void bulk_free(struct tran_bulk *b)
{
	rpwi_list_del(&b->link);
	rpwi_list_del(&b->of_ep);
	free(b);
}

/* Its memory is the program's again. */
static void let_go(struct tran_bulk *b)
{
	nt_queue_used(b->reg);
	b->reg = NULL;
}

static int sink_ready(struct nt_ep *ep)
{
	if (ep->sink_reg)
		return 0;
	void *p = mmap(
		NULL, NT_CHUNK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -1;
	ep->sink = p;
	ep->sink_reg = nt_queue_register(&ep->bulk_in, NULL, p, NT_CHUNK_MAX);
	return ep->sink_reg ? 0 : -1;
}

/* ---- what goes to the plugin, and comes back ---- */

static void post(struct nt_ep *ep, struct nt_queue *l, struct rpwi_list *queue)
{
	while (!rpwi_list_empty(queue)) {
		struct tran_bulk *b = RPWI_CONTAINER_OF(queue->next, struct tran_bulk, link);
		bool to_sink = !b->reg;
		if (to_sink && sink_ready(ep)) {
			nt_ep_fail(ep, RPW_ERR_NO_MEMORY,
				"plugin %s v%d: there is no place for bytes that are to be thrown "
				"away",
				l->load->name, l->load->n->abi);
			return;
		}
		struct nt_request *r =
			to_sink ? nt_queue_post(l, ep->sink, b->len, ep->sink_reg->mhandle)
				: nt_queue_post(l, b->buf, b->len, b->reg->mhandle);
		if (!r)
			return;
		r->bulk = b;
		b->state = NT_BULK_POSTED;
		rpwi_list_del(&b->link);
	}
}

/* Memory is the program's again as soon as the plugin is done with it, whenever that is told. */
static unsigned poll(struct nt_queue *l)
{
	uint32_t before = l->finished;
	unsigned n = nt_queue_poll(l, NT_REQUESTS);
	for (; before != l->finished; before++) {
		struct tran_bulk *b = l->ring[before % NT_REQUESTS].bulk;
		b->state = NT_BULK_FINISHED;
		let_go(b);
	}
	return n;
}

/* What the peer has to hear before it is sent. */
static void announce(struct nt_ep *ep)
{
	while (!rpwi_list_empty(&ep->announcing)) {
		struct tran_bulk *b =
			RPWI_CONTAINER_OF(ep->announcing.next, struct tran_bulk, link);
		uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN);
		if (!p)
			return;
		struct nt_item item = {
			.kind = NT_BULK, .answer = NT_OK, .id = b->id, .len = b->len};
		if (b->refused) {
			item.answer = NT_NO_ACCESS;
			item.len = 0;
		}
		nt_put_item(p, &item);
		rpwi_list_del(&b->link);
		b->state = b->refused ? NT_BULK_FINISHED : NT_BULK_QUEUED;
		rpwi_list_add_tail(b->refused ? &ep->refused : &ep->to_send, &b->link);
	}
}

static void push(struct nt_ep *ep)
{
	struct nt_queue *queues[] = {&ep->bulk_out, &ep->bulk_in};
	for (int i = 0; i < 2; i++) {
		struct rpwi_list *queue = i ? &ep->to_receive : &ep->to_send;
		if (!queues[i]->comm)
			continue;
		post(ep, queues[i], queue);
		if (queues[i]->posted != queues[i]->finished && poll(queues[i]))
			post(ep, queues[i], queue);
	}
}

/* Its end is the emulation's business. */
static void ended(struct tran_bulk *b)
{
	struct tran_ep *ep = &b->ep->base;
	void *cookie = b->cookie;
	int status = b->status;
	bulk_free(b);
	emulate_moved(ep, cookie, status);
}

static unsigned take(struct nt_ep *ep, struct nt_queue *l)
{
	unsigned n = 0;
	for (struct nt_request *r; (r = nt_queue_oldest(l)) && ep->state == NT_UP; n++) {
		struct tran_bulk *b = r->bulk;
		if (!l->sends && r->size > 0 && (size_t)r->size != b->len) {
			nt_ep_fail(ep, RPW_ERR_PROTOCOL,
				"plugin %s v%d: %zu bytes of bulk data were announced, and %d came",
				l->load->name, l->load->n->abi, b->len, r->size);
			return n;
		}
		nt_queue_take(l);
		ended(b);
	}
	return n;
}

unsigned nt_bulk_progress(struct nt_ep *ep)
{
	if (rpwi_list_empty(&ep->bulks))
		return 0;
	announce(ep);
	push(ep);
	unsigned n = take(ep, &ep->bulk_out);
	n += take(ep, &ep->bulk_in);
	for (; ep->state == NT_UP && !rpwi_list_empty(&ep->refused); n++)
		ended(RPWI_CONTAINER_OF(rpwi_list_pop(&ep->refused), struct tran_bulk, link));
	if (n && ep->state == NT_UP)
		push(ep);
	if (ep->bulk_out.error || ep->bulk_in.error)
		nt_ep_lost(ep, ep->bulk_out.error ? &ep->bulk_out : &ep->bulk_in);
	return n;
}

const char *nt_bulk_announced(struct nt_ep *ep, const struct nt_item *i)
{
	RPWI_LIST_EACH (struct tran_bulk, b, &ep->expected, link) {
		if (b->id != i->id)
			continue;
		if (i->len != (i->answer == NT_OK ? b->len : 0))
			return "bulk data of a length that was not requested";
		rpwi_list_del(&b->link);
		if (i->answer != NT_OK) {
			b->status = RPW_ERR_ACCESS;
			let_go(b);
			ended(b);
			return NULL;
		}
		b->state = NT_BULK_QUEUED;
		rpwi_list_add_tail(&ep->to_receive, &b->link);
		return NULL;
	}
	return "bulk data that was not requested";
}

/* ---- what the emulation asks for ---- */

static int bulk_make(struct tran_ep *tran_ep, bool sends, void *buf, size_t len,
	struct tran_home *home, void *cookie, struct tran_bulk **out)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	struct nt_queue *l = sends ? &ep->bulk_out : &ep->bulk_in;
	if (ep->state != NT_UP || (sends && l->error))
		return tran_path_over(tran_ep);
	struct tran_bulk *b = calloc(1, sizeof(*b));
	if (!b)
		return tran_no_memory(tran_ep->tran, "bulk data");
	*b = (struct tran_bulk){.ep = ep, .sends = sends, .buf = buf, .len = len, .cookie = cookie};
	if (buf && !l->error && !(b->reg = nt_queue_register(l, home, buf, len))) {
		/* what comes by a broken comm never does */
		free(b);
		return rpwi_last_error()->status;
	}
	rpwi_list_init(&b->link);
	rpwi_list_add_tail(&ep->bulks, &b->of_ep);
	if (sends) /* the frame of it goes with the announcement */
		ep->corked = true;
	*out = b;
	return 0;
}

static void uncork(struct nt_ep *ep)
{
	ep->corked = false;
	nt_frame_flush(ep);
}

static void bulk_go(struct tran_bulk *b, uint32_t id)
{
	struct nt_ep *ep = b->ep;
	b->id = id;
	b->state = b->sends ? NT_BULK_ANNOUNCING : NT_BULK_EXPECTED;
	rpwi_list_add_tail(b->sends ? &ep->announcing : &ep->expected, &b->link);
	if (!b->sends)
		return;
	announce(ep);
	uncork(ep);
	push(ep);
}

static void bulk_drop(struct tran_bulk *b)
{
	struct nt_ep *ep = b->ep;
	bool uncorks = b->sends;
	let_go(b);
	bulk_free(b);
	if (uncorks)
		uncork(ep);
}

/* The plugin has it, or the peer has been told that it comes. */
static void wait_for_plugin(struct nt_ep *ep, const struct tran_bulk *b)
{
	const struct nt_queue *l = b->sends ? &ep->bulk_out : &ep->bulk_in;
	uint64_t until_ns = rpwi_now_ns() + NT_RELEASE_MS * RPWI_NS_PER_MS;
	for (unsigned rounds = 0; b->reg && !l->error && rpwi_now_ns() < until_ns; rounds++) {
		push(ep);
		if (b->reg && rounds > 100)
			usleep(20);
	}
	if (!b->reg)
		return;
	const char *used = b->sends ? "read it for the peer, which did not take it"
				    : "wrote to it for the peer, which did not send";
	if (l->error) /* nothing comes of it any more */
		nt_ep_lost(ep, l);
	else
		nt_ep_fail(ep, RPW_ERR_UNREACHABLE,
			"memory was released while plugin %s v%d still %s within %d ms",
			l->load->name, l->load->n->abi, used, NT_RELEASE_MS);
	nt_bulk_close(ep);
}

static void bulk_cut(struct tran_bulk *b)
{
	if (b->state == NT_BULK_FINISHED || !b->reg)
		return;
	if (b->state == NT_BULK_POSTED || (b->state == NT_BULK_QUEUED && b->sends)) {
		wait_for_plugin(b->ep, b);
		return;
	}
	b->status = RPW_ERR_ACCESS;
	b->refused = b->sends;
	let_go(b);
}

static void bulk_release(struct tran *t, struct tran_home *home)
{
	while (!rpwi_list_empty(&home->regs))
		nt_queue_deregister(
			RPWI_CONTAINER_OF(rpwi_list_pop(&home->regs), struct nt_reg, of_home));
}

const struct tran_bulk_ops nt_bulk_ops = {.make = bulk_make,
	.go = bulk_go,
	.cut = bulk_cut,
	.drop = bulk_drop,
	.release = bulk_release};

void nt_bulk_close(struct nt_ep *ep)
{
	if (!ep->has_comms)
		return;
	RPWI_LIST_EACH (struct tran_bulk, b, &ep->bulks, of_ep) {
		rpwi_list_del(&b->link);
		b->state = NT_BULK_FINISHED; /* and never told */
		b->reg = NULL;
	}
	nt_queue_close(&ep->bulk_out);
	nt_queue_close(&ep->bulk_in);
	ep->sink_reg = NULL;
	if (ep->sink)
		munmap(ep->sink, NT_CHUNK_MAX);
	ep->sink = NULL;
}

void nt_bulk_forget(struct nt_ep *ep)
{
	while (!rpwi_list_empty(&ep->bulks))
		bulk_free(RPWI_CONTAINER_OF(ep->bulks.next, struct tran_bulk, of_ep));
}
