/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - what the endpoints of a side are doing, for the report of a run that stands still: the
 * soak is linked with the library's parts, so it can look inside. */
#include <stdio.h>

#include "msg/objects.h"

#include "state.h"

static unsigned count(const struct rpwi_list *list)
{
	unsigned n = 0;
	for (const struct rpwi_list *l = list->next; l != list; l = l->next)
		n++;
	return n;
}

static void requests(const char *what, const struct rpwi_list *list)
{
	static const char *const kinds[] = {"connect", "send", "object", "am", "recv",
		"recv-object", "recv-am", "rma", "atomic", "flush", "fence"},
				 *const at[] = {"none", "posted", "queue", "peer", "fetch",
					 "settle", "log"};
	enum { SHOWN = 6 };
	unsigned n = 0;
	for (const struct rpwi_list *l = list->next; l != list && n < SHOWN; l = l->next, n++) {
		const rpw_request *r = RPWI_CONTAINER_OF(l, rpw_request, active);
		bool flush = r->kind == REQ_FLUSH || r->kind == REQ_FENCE;
		fprintf(stderr,
			"soak:       %s: %s, %zu bytes, at %s%s%s%s%s%s%s%s, pieces %u of %u, %u "
			"under way\n",
			what, r->kind < RPWI_ARRAY_LEN(kinds) ? kinds[r->kind] : "own", r->len,
			at[r->where], r->keep.in ? ", logged" : "",
			r->describe ? ", to be described" : "",
			r->rts && r->rts->stale ? ", stale" : "",
			flush && r->flush.sent ? ", flush sent" : "",
			flush && r->flush.answered ? ", answered" : "",
			r->settle_sent ? ", settling" : "", r->settled ? ", settled" : "",
			r->at_xfer, r->xfers, r->under_way);
	}
}

void state_dump(rpw_context *c, unsigned id)
{
	static const char *const states[] = {"boot", "choosing", "up", "failed"};
	uint64_t now = rpwi_now_ns();
	fprintf(stderr,
		"soak:   side %u: %u endpoints, %u connecting, %zu messages kept, %zu bytes of "
		"active messages being fetched, pool %u of %u free%s\n",
		id, c->stat.endpoints, c->connecting, c->unexpected_count, c->am_bytes,
		c->links.pool_free, c->links.pool,
		c->links.late.next != &c->links.late ? ", late acks" : "");
	for (const struct rpwi_list *l = c->endpoints.next; l != &c->endpoints; l = l->next) {
		const rpw_endpoint *ep = RPWI_CONTAINER_OF(l, rpw_endpoint, all);
		fprintf(stderr,
			"soak:     to %s: %s%s, %s, attempt %u, todo %x%s%s%s%s%s, deadline in "
			"%.3f s, last trouble: %s\n",
			ep->peer ? ep->peer : "?", states[ep->state], ep->active ? ", active" : "",
			ep->link.ops ? ep->link.ops->name : "no path", ep->next.attempt, ep->todo,
			ep->self_ready ? ", ready" : "", ep->peer_ready ? ", peer ready" : "",
			ep->path_broken ? ", broken" : "", ep->next.resting ? ", resting" : "",
			ep->bye_heard ? ", bye heard" : "",
			ep->next.deadline_ns == RPWI_NEVER
				? -1.0
				: (double)(int64_t)(ep->next.deadline_ns - now) / 1e9,
			ep->next.last_why);
		fprintf(stderr,
			"soak:       sent %llu, acknowledged %llu, came %llu, said %llu; log %u "
			"frames, %u bytes%s; %zu replies; credit %d left%s; granted "
			"%d, told %d, needed %u of %u\n",
			(unsigned long long)ep->link.tx_count, (unsigned long long)ep->link.acked,
			(unsigned long long)ep->link.rx_count,
			(unsigned long long)ep->link.ack_said, ep->link.log_frames,
			ep->link.log_bytes, ep->link.resending ? ", being sent again" : "",
			ep->link.reply_count, (int)(ep->link.tx_limit - ep->link.tx_used),
			ep->link.need_said ? ", need said" : "",
			(int)(ep->link.rx_limit - ep->link.rx_used),
			(int)(ep->link.rx_told - ep->link.rx_used), ep->link.needed,
			ep->link.window);
		fprintf(stderr,
			"soak:       queue %u, active %u, fetching %u, settling %u (%u asked), "
			"atomics %u; kept: %u messages, %u objects, %u active "
			"messages%s; receives %u, of objects %u%s%s\n",
			count(&ep->link.queue), count(&ep->active_list), count(&ep->fetching),
			count(&ep->settling), ep->settle_under_way, ep->atomics,
			count(&ep->unexpected), count(&ep->objects), count(&ep->ams),
			ep->am_fetch ? ", one being fetched" : "", count(&ep->receives),
			count(&ep->object_receives), ep->describe ? ", describes" : "",
			ep->rma_dirty ? ", dirty" : "");
		requests("under way", &ep->active_list);
	}
}
