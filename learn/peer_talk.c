/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_talk.c - what the programs do once they are connected; both sides do the same.
 *
 * rdma-server and rdma-client tell each other of a piece of memory, write to the peer's or read
 * from it, say so, and leave when both have: peer_states.h has the order.
 * rdma-send-recv-server and rdma-send-recv-client each send a text and print the other's; then the
 * client leaves. posted, send and recv count this side's text and the peer's. */
#include <inttypes.h>
#include <unistd.h>

#include "peer.h"

static bool is_text(const struct peer *p) { return p->options->mode == MODE_TEXT; }

/* ---- what this side says and does ---- */

static void send_text(struct peer *p)
{
	char text[WIRE_TEXT_BYTES_MAX];

	/* Not translated: it is data. */
	if (p->options->server)
		snprintf(text, sizeof(text), "greeting from server %ld to its client number %u",
			(long)getpid(), p->number);
	else
		snprintf(text, sizeof(text), "message from client %ld", (long)getpid());
	peer_send(p, WORK_TEXT, wire_put_text(p->out, text));
}

/* A text that no other side, no other run and no other connection of this process writes. */
static void fill_source(struct peer *p)
{
	uint64_t seed = random_number(), checksum;
	char text[120];

	snprintf(text, sizeof(text), "message from %s %ld, number %u, seed %016" PRIx64,
		p->options->server ? "server" : "client", (long)getpid(), p->number, seed);
	checksum = region_fill(p->source, text, seed);
	say("local buffer: \"%s\", and a pattern: %d bytes with checksum %016" PRIx64, text,
		REGION_BYTES, checksum);
}

static void send_mr(struct peer *p)
{
	/* The peer writes to our target, or reads our source. */
	bool read = p->options->mode == MODE_READ;
	struct remote_memory ours = {
		.address = (uintptr_t)(read ? p->source : p->target),
		.rkey = read ? p->source_mr->rkey : p->target_mr->rkey,
		.length = REGION_BYTES,
	};

	fill_source(p);
	peer_send(p, WORK_MR, wire_put_mr(p->out, &ours));
}

static void post_rdma(struct peer *p)
{
	if (p->options->mode == MODE_READ)
		say("reading %d bytes of the peer's memory", REGION_BYTES);
	else
		say("writing %d bytes to the peer's memory", REGION_BYTES);
	peer_post_rdma(p);
}

/* Both are done. In mode write the peer's DONE came behind its data on the same queue pair, so the
 * data is here (IB 9.5, ordering rules); in mode read our own completion says so. */
bool talk_conclude(struct peer *p)
{
	uint64_t checksum;

	if (is_text(p))
		return true;
	if (!region_check(p->target, &checksum)) {
		peer_abort(p,
			"the bytes in the remote buffer are not those that a peer writes: the "
			"checksum, the pattern or the text is wrong (checksum %016" PRIx64 ")",
			checksum);
		return false;
	}
	tell("remote buffer: %s", (const char *)p->target);
	say("all %d bytes are as they should be, checksum %016" PRIx64, REGION_BYTES, checksum);
	return true;
}

static void advance_text(struct peer *p)
{
	if (!p->posted && !p->options->silent)
		send_text(p);
	/* The client has what it waited for. The server lets it leave first. */
	else if (!p->options->server && p->send && p->recv)
		peer_leave(p, ENDED_BY_US);
}

static void advance_memory(struct peer *p)
{
	enum peer_action action = peer_action(p->send, p->recv, p->posted);

	if (action == ACTION_POST_MR)
		send_mr(p);
	else if (action == ACTION_POST_RDMA)
		post_rdma(p);
	else if (action == ACTION_POST_DONE)
		peer_send(p, WORK_DONE, wire_put_done(p->out));
	else if (action == ACTION_DISCONNECT && talk_conclude(p))
		peer_leave(p, ENDED_BY_US);
}

/* Not before ESTABLISHED: on the side that accepts, a receive may complete earlier, since the
 * peer's first message serves the device as well as the RTU that it overtook (IB 12.9.7,
 * Communication Established); its content counts, but this side sends nothing yet
 * (rdma_accept(3)). */
void talk_advance(struct peer *p)
{
	if (p->phase != PHASE_TALK)
		return;
	if (is_text(p))
		advance_text(p);
	else
		advance_memory(p);
}

/* ---- what comes back ---- */

void talk_sent(struct peer *p, enum work work)
{
	enum send_state next = send_state_next(p->send, (enum send_step)(work - WORK_MR));

	if (is_text(p)) {
		p->send++;
		return;
	}
	if (next == SS_ILLEGAL) {
		peer_abort(p,
			"a completion came that does not fit to state %s: the device is at fault",
			send_state_name(p->send));
		return;
	}
	printf("%s -> %s\n", send_state_name(p->send), send_state_name(next));
	p->send = next;
}

static void received_text(struct peer *p, const struct message *m)
{
	if (m->type != WIRE_TEXT || p->recv) {
		peer_abort(p,
			"a message of type %d was refused: one text was expected, and nothing else",
			m->type);
		return;
	}
	p->recv++;
	tell("received message: %s", m->text);
}

void talk_received(struct peer *p, const struct message *m)
{
	enum recv_state next = recv_state_next(p->recv, (enum recv_step)(m->type - WIRE_MR));

	if (is_text(p)) {
		received_text(p, m);
		return;
	}
	if (next == RS_ILLEGAL) {
		peer_abort(p, "a message of type %d was refused: it does not fit to state %s",
			m->type, recv_state_name(p->recv));
		return;
	}
	printf("%s -> %s\n", recv_state_name(p->recv), recv_state_name(next));
	p->recv = next;
	if (m->type == WIRE_DONE) {
		tell("received message: DONE");
		return;
	}
	p->remote = m->memory;
	tell("received message: MR, address 0x%" PRIx64 ", rkey 0x%x, length %u", m->memory.address,
		m->memory.rkey, m->memory.length);
}

/* ---- what is missing ---- */

/* Our text counts as soon as it is posted: the client leaves when it has it, and its
 * acknowledgement may be lost then. */
bool talk_may_leave(const struct peer *p)
{
	if (is_text(p))
		return (p->posted || p->options->silent) && p->recv;
	return peer_may_leave(p->recv, p->posted);
}

static const char *text_waits_for(const struct peer *p)
{
	if (p->posted && !p->send)
		return N_("the completion of our text, which the peer has to acknowledge");
	if (!p->recv)
		return p->options->server ? N_("the client's text") : N_("the server's greeting");
	return p->options->server
		       ? N_("the client's disconnect")
		       : N_("the last step of the handshake (RDMA_CM_EVENT_ESTABLISHED)");
}

const char *talk_waits_for(const struct peer *p)
{
	static const char *const texts[] = {
		[WAIT_NOTHING] = N_("the last step of the handshake (RDMA_CM_EVENT_ESTABLISHED)"),
		[WAIT_OWN_MR] =
			N_("the completion of our MR message, which the peer has to acknowledge"),
		[WAIT_OWN_RDMA] = N_("the completion of our RDMA operation on the peer's memory"),
		[WAIT_OWN_DONE] =
			N_("the completion of our DONE message, which the peer has to acknowledge"),
		[WAIT_PEER_MR] = N_("the peer's MR message"),
		[WAIT_PEER_DONE] = N_("the peer's DONE message"),
	};

	if (is_text(p))
		return _(text_waits_for(p));
	return _(texts[peer_waits_for(p->send, p->recv, p->posted)]);
}
