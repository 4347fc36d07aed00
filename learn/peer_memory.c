/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_memory.c - what rdma-server and rdma-client do once they are connected; both sides do the
 * same. They tell each other of a piece of memory, write to the peer's or read from it, say so, and
 * leave when both have: peer_states.h has the order. */
#include <inttypes.h>
#include <unistd.h>

#include "peer.h"

/* A text that no other side, no other run and no other connection of this process writes. */
static void fill_source(struct peer *p)
{
	uint64_t seed = random_number(), checksum;
	char text[120];

	snprintf(text, sizeof(text), "message from %s %ld, number %u, seed %016" PRIx64,
		p->loop->server ? "server" : "client", (long)getpid(), p->number, seed);
	checksum = region_fill(p->source, text, seed);
	printf("    local buffer: \"%s\", and a pattern: %d bytes with checksum %016" PRIx64 "\n",
		text, REGION_BYTES, checksum);
}

static void send_mr(struct peer *p)
{
	/* The peer writes to our target, or reads our source. */
	const struct ibv_mr *mr = p->loop->mode == MODE_READ ? p->source_mr : p->target_mr;
	struct remote_memory ours = {(uintptr_t)mr->addr, mr->rkey, REGION_BYTES};

	fill_source(p);
	peer_send(p, WORK_MR, wire_put_mr(p->out, &ours));
}

/* Both are done. In mode write the peer's DONE came behind its data on the same queue pair, so the
 * data is here (IB 9.5, ordering rules); in mode read our own completion says so. */
bool talk_conclude(struct peer *p)
{
	uint64_t checksum;

	if (!region_check(p->target, &checksum)) {
		peer_abort(p,
			"the bytes in the remote buffer are not those that a peer writes: the "
			"checksum, the pattern or the text is wrong (checksum %016" PRIx64 ")",
			checksum);
		return false;
	}
	printf("remote buffer: %s\n", (const char *)p->target);
	printf("    all %d bytes are as they should be, checksum %016" PRIx64 "\n", REGION_BYTES,
		checksum);
	return true;
}

void talk_advance(struct peer *p)
{
	enum peer_action action = peer_action(p->send, p->recv, p->posted);

	if (action == ACTION_POST_MR)
		send_mr(p);
	else if (action == ACTION_POST_RDMA)
		peer_post_rdma(p);
	else if (action == ACTION_POST_DONE)
		peer_send(p, WORK_DONE, wire_put_done(p->out));
	else if (action == ACTION_DISCONNECT && talk_conclude(p))
		peer_leave(p, ENDED_BY_US);
}

void talk_sent(struct peer *p, enum work work)
{
	enum send_state next = send_state_next(p->send, (enum send_step)(work - WORK_MR));

	if (next == SS_ILLEGAL) {
		peer_abort(p,
			"a completion came that does not fit to state %s: the device is at fault",
			send_state_name(p->send));
		return;
	}
	printf("%s -> %s\n", send_state_name(p->send), send_state_name(next));
	p->send = next;
}

void talk_received(struct peer *p, const struct message *m)
{
	enum recv_state next = recv_state_next(p->recv, (enum recv_step)(m->type - WIRE_MR));

	if (next == RS_ILLEGAL) {
		peer_abort(p, "a message of type %d was refused: it does not fit to state %s",
			m->type, recv_state_name(p->recv));
		return;
	}
	printf("%s -> %s\n", recv_state_name(p->recv), recv_state_name(next));
	p->recv = next;
	if (m->type == WIRE_DONE) {
		puts("received message: DONE");
		return;
	}
	p->remote = m->memory;
	printf("received message: MR, address 0x%" PRIx64 ", rkey 0x%x, length %u\n",
		m->memory.address, m->memory.rkey, m->memory.length);
}

bool talk_may_leave(const struct peer *p) { return peer_may_leave(p->recv, p->posted); }

const char *talk_waits_for(const struct peer *p)
{
	static const char *const texts[] = {
		[WAIT_NOTHING] = "nothing",
		[WAIT_OWN_MR] =
			"the completion of our MR message, which the peer has to acknowledge",
		[WAIT_OWN_RDMA] = "the completion of our RDMA operation on the peer's memory",
		[WAIT_OWN_DONE] =
			"the completion of our DONE message, which the peer has to acknowledge",
		[WAIT_PEER_MR] = "the peer's MR message",
		[WAIT_PEER_DONE] = "the peer's DONE message",
	};

	return texts[peer_waits_for(p->send, p->recv, p->posted)];
}
