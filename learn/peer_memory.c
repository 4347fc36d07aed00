/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_memory.c - what rdma-server and rdma-client do once they are connected: tell each other of a
 * piece of memory, write to the peer's or read from it, say so, and leave when both have. Both
 * sides do the same, so this file knows no side. rdma-server 和 rdma-client 连接之后做的事：
 * 互相告知一块内存，写入或读取对端的内存，告知对方，双方都完成后断开。两端做的完全一样。
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "peer.h"

static const char *role_word(const struct peer *p)
{
	return p->options->server ? "server" : "client";
}

/* A text that no other side, no other run and no other connection of this process writes. /
 * 其他任何一方、任何一次运行都不会写出的文本。 */
static void fill_source(struct peer *p)
{
	uint64_t seed = region_seed(), checksum;
	char text[120];

	/* Not translated: it is data. / 不翻译：这是数据。 */
	snprintf(text, sizeof(text), "message from %s %ld, number %u, seed %016" PRIx64,
		role_word(p), (long)getpid(), p->number, seed);
	checksum = region_fill(p->source, text, seed);
	say(_("local buffer: \"%s\", and a pattern: %d bytes with checksum %016" PRIx64), text,
		REGION_BYTES, checksum);
}

static int post_mr(struct peer *p)
{
	/* The peer writes to our target, or reads our source. / 对端写入 target，或读取 source。 */
	bool read = p->options->mode == MODE_READ;
	struct remote_memory ours = {
		.address = (uintptr_t)(read ? p->source : p->target),
		.rkey = read ? p->source_mr->rkey : p->target_mr->rkey,
		.length = REGION_BYTES,
	};

	fill_source(p);
	p->posted = POSTED_MR;
	return peer_post_send(p, WORK_MR, wire_put_mr(p->message_out, &ours));
}

static int post_rdma(struct peer *p)
{
	if (p->options->mode == MODE_READ)
		say(_("reading %d bytes of the peer's memory"), REGION_BYTES);
	else
		say(_("writing %d bytes to the peer's memory"), REGION_BYTES);
	p->posted = POSTED_RDMA;
	return peer_post_rdma(p);
}

static int post_done(struct peer *p)
{
	p->posted = POSTED_DONE;
	return peer_post_send(p, WORK_DONE, wire_put_done(p->message_out));
}

/* Both are done. In mode write the peer's DONE came behind its data on the same queue pair, so the
 * data is here (IB 9.5, ordering rules); in mode read our own completion says so. / 写模式下，
 * 对端的 DONE 在同一队列对上跟在数据之后，因此数据已到；读模式下由我方的完成事件保证。 */
static int memory_conclude(struct peer *p)
{
	uint64_t checksum;

	if (!region_check(p->target, &checksum))
		return peer_abort(p,
			_("the bytes in the remote buffer are not those that a peer writes: the "
			  "checksum, the pattern or the text is wrong "
			  "(checksum %016" PRIx64 ")"),
			checksum);
	printf(_("remote buffer: %s\n"), region_text(p->target));
	say(_("all %d bytes are as they should be, checksum %016" PRIx64), REGION_BYTES, checksum);
	return 0;
}

static int memory_advance(struct peer *p)
{
	switch (peer_action(p->send, p->recv, p->posted)) {
	case ACTION_POST_MR:
		return post_mr(p);
	case ACTION_POST_RDMA:
		return post_rdma(p);
	case ACTION_POST_DONE:
		return post_done(p);
	case ACTION_DISCONNECT:
		peer_leave(p);
		break;
	case ACTION_WAIT:
		break;
	}
	return 0;
}

static int memory_sent(struct peer *p, unsigned work)
{
	static const enum send_step steps[] = {
		[WORK_MR] = SENT_MR, [WORK_RDMA] = SENT_RDMA, [WORK_DONE] = SENT_DONE};
	enum send_state next = send_state_next(p->send, steps[work]);

	if (next == SS_ILLEGAL)
		return peer_abort(p,
			_("a completion came that does not fit to state %s: the device is at "
			  "fault"),
			send_state_name(p->send));
	printf("%s -> %s\n", send_state_name(p->send), send_state_name(next));
	p->send = next;
	peer_restart_clock(p);
	return 0;
}

static int received_mr(struct peer *p, const struct remote_memory *memory)
{
	p->remote = *memory;
	printf(_("received message: MR, address 0x%" PRIx64 ", rkey 0x%x, length %u\n"),
		memory->address, memory->rkey, memory->length);
	return 0;
}

static int memory_received(struct peer *p, const struct message *m)
{
	enum recv_state next = RS_ILLEGAL;

	if (m->type == WIRE_MR)
		next = recv_state_next(p->recv, RECEIVED_MR);
	else if (m->type == WIRE_DONE)
		next = recv_state_next(p->recv, RECEIVED_DONE);
	if (next == RS_ILLEGAL)
		return peer_abort(p,
			_("a message of type %d was refused: it does not fit to state %s"), m->type,
			recv_state_name(p->recv));
	printf("%s -> %s\n", recv_state_name(p->recv), recv_state_name(next));
	p->recv = next;
	peer_restart_clock(p);
	if (m->type == WIRE_MR)
		return received_mr(p, &m->memory);
	printf("%s\n", _("received message: DONE"));
	return 0;
}

static bool memory_may_leave(const struct peer *p) { return peer_may_leave(p->recv, p->posted); }

static const char *memory_waits_for(const struct peer *p)
{
	static const char *const texts[] = {
		[WAIT_NOTHING] = N_("the last step of the handshake (RDMA_CM_EVENT_ESTABLISHED)"),
		[WAIT_OWN_MR] =
			N_("the completion of our MR message, which the peer has to acknowledge"),
		[WAIT_PEER_MR] = N_("the peer's MR message"),
		[WAIT_OWN_RDMA] = N_("the completion of our RDMA operation on the peer's memory"),
		[WAIT_OWN_DONE] =
			N_("the completion of our DONE message, which the peer has to acknowledge"),
		[WAIT_PEER_DONE] = N_("the peer's DONE message"),
	};

	return _(texts[peer_waits_for(p->send, p->recv, p->posted)]);
}

const struct talk memory_talk = {
	.advance = memory_advance,
	.sent = memory_sent,
	.received = memory_received,
	.may_leave = memory_may_leave,
	.conclude = memory_conclude,
	.waits_for = memory_waits_for,
};
