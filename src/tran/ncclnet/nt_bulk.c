/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_bulk.c - the comm for bulk data. Its sender has announced each message on the comm for frames, and sends them in that order; the receiver posts its receives in that order, straight into their places. So the plugin need
 * not match anything but first to first. What has no place here (refused, released, cannot be registered) goes to the sink, so that the order holds.
 */
#include "tran/ncclnet/nt_priv.h"

#include <stdlib.h>
#include <sys/mman.h>

int nt_bulk_sink(struct nt_ep *ep)
{
	if (ep->sink_reg)
		return 0;
	void *p = mmap(
		NULL, NT_CHUNK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -1;
	ep->sink = p;
	ep->sink_reg = nt_lane_register(&ep->bulk_in, NULL, p, NT_CHUNK_MAX);
	return ep->sink_reg ? 0 : -1;
}

void nt_bulk_add(struct nt_ep *ep, bool sends, const struct nt_bulk *b)
{
	struct nt_queue *q = sends ? &ep->to_send : &ep->to_receive;
	assert(q->count <
		RPWI_ARRAY_LEN(
			q->at)); /* both sides' windows are bounds of it, and have been checked */
	q->at[(q->first + q->count++) % RPWI_ARRAY_LEN(q->at)] = *b;
	if (b->mem)
		b->mem->users++;
}

static void post(struct nt_ep *ep, struct nt_lane *l, struct nt_queue *q)
{
	while (q->count) {
		struct nt_bulk *b = &q->at[q->first];
		bool to_sink = !b->reg;
		if (to_sink && nt_bulk_sink(ep)) {
			nt_ep_fail(ep, RPW_ERR_NO_MEMORY,
				"plugin %s v%d: there is no place for bytes that are to be thrown "
				"away",
				l->load->name, l->load->n->abi);
			return;
		}
		struct nt_request *r = nt_lane_post(l, to_sink ? ep->sink : b->data, b->len,
			(to_sink ? ep->sink_reg : b->reg)->mhandle);
		if (!r)
			return;
		r->bulk = *b;
		q->first = (q->first + 1) % RPWI_ARRAY_LEN(q->at);
		q->count--;
	}
}

/* Memory is the program's again as soon as the plugin is done with it, whenever that is told. */
static unsigned poll(struct nt_lane *l)
{
	uint32_t before = l->finished;
	unsigned n = nt_lane_poll(l, NT_REQUESTS);
	for (; before != l->finished; before++) {
		struct nt_bulk *b = &l->ring[before % NT_REQUESTS].bulk;
		if (b->mem)
			b->mem->users--;
		b->mem = NULL;
		nt_lane_used(b->reg);
		b->reg = NULL;
	}
	return n;
}

void nt_bulk_push(struct nt_ep *ep)
{
	struct nt_lane *lanes[] = {&ep->bulk_out, &ep->bulk_in};
	for (int i = 0; i < 2; i++) {
		struct nt_queue *q = i ? &ep->to_receive : &ep->to_send;
		if (!lanes[i]->comm)
			continue;
		if (q->count)
			post(ep, lanes[i], q);
		if (lanes[i]->posted != lanes[i]->finished && poll(lanes[i]) && q->count)
			post(ep, lanes[i], q);
	}
}

static unsigned take(struct nt_ep *ep, struct nt_lane *l)
{
	unsigned n = 0;
	for (struct nt_request *r; (r = nt_lane_oldest(l)) && ep->state == NT_UP; n++) {
		struct nt_bulk b = r->bulk;
		if (!l->sends && r->size > 0 && (size_t)r->size != b.len) {
			nt_ep_fail(ep, RPW_ERR_PROTOCOL,
				"plugin %s v%d: %zu bytes of bulk data were announced, and %d came",
				l->load->name, l->load->n->abi, b.len, r->size);
			return n;
		}
		nt_lane_take(l);
		l->sends ? nt_rma_sent(ep, &b) : nt_rma_came(ep, &b);
	}
	return n;
}

unsigned nt_bulk_progress(struct nt_ep *ep)
{
	if (!ep->to_send.count && !ep->to_receive.count && !nt_lane_under_way(&ep->bulk_out) &&
		!nt_lane_under_way(&ep->bulk_in))
		return 0;
	nt_bulk_push(ep);
	unsigned n = take(ep, &ep->bulk_out);
	n += take(ep, &ep->bulk_in);
	if (n && ep->state == NT_UP)
		nt_bulk_push(ep);
	if (ep->bulk_out.error || ep->bulk_in.error)
		nt_ep_lost(ep, ep->bulk_out.error ? &ep->bulk_out : &ep->bulk_in);
	return n;
}

void nt_bulk_forget(struct nt_ep *ep, struct nt_mem *m)
{
	struct nt_queue *q = &ep->to_receive;
	for (unsigned i = 0; i < q->count; i++) {
		struct nt_bulk *b = &q->at[(q->first + i) % RPWI_ARRAY_LEN(q->at)];
		if (b->mem != m)
			continue;
		nt_lane_used(b->reg);
		b->reg = NULL;
		b->mem = NULL;
		b->answer = NT_NO_ACCESS;
		m->users--;
	}
}

static void queue_drop(struct nt_queue *q)
{
	for (; q->count; q->count--, q->first = (q->first + 1) % RPWI_ARRAY_LEN(q->at)) {
		struct nt_bulk *b = &q->at[q->first];
		if (b->mem)
			b->mem->users--;
	}
}

static void lane_drop(struct nt_lane *l)
{
	for (uint32_t n = l->finished; n != l->posted; n++)
		if (l->ring[n % NT_REQUESTS].bulk.mem)
			l->ring[n % NT_REQUESTS].bulk.mem->users--;
	nt_lane_close(l);
}

void nt_bulk_close(struct nt_ep *ep)
{
	if (!ep->has_comms)
		return;
	lane_drop(&ep->bulk_out);
	lane_drop(&ep->bulk_in);
	queue_drop(&ep->to_send);
	queue_drop(&ep->to_receive);
	ep->sink_reg = NULL;
	if (ep->sink)
		munmap(ep->sink, NT_CHUNK_MAX);
	ep->sink = NULL;
}
