/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_text.c - what rdma-send-recv-server and rdma-send-recv-client do once they are connected:
 * each sends a text and prints the other's; then the client leaves. posted, send and recv count
 * this side's text and the peer's. */
#include <unistd.h>

#include "peer.h"

void talk_advance(struct peer *p)
{
	char text[WIRE_TEXT_BYTES_MAX];

	if (!p->posted && !p->loop->silent) {
		if (p->loop->server)
			snprintf(text, sizeof(text),
				"greeting from server %ld to its client number %u", (long)getpid(),
				p->number);
		else
			snprintf(text, sizeof(text), "message from client %ld", (long)getpid());
		peer_send(p, WORK_TEXT, wire_put_text(p->out, text));
	} else if (!p->loop->server && p->send && p->recv) {
		/* The client has what it waited for. The server lets it leave first. */
		peer_leave(p, ENDED_BY_US);
	}
}

void talk_sent(struct peer *p, enum work work) { p->send++; }

void talk_received(struct peer *p, const struct message *m)
{
	if (m->type != WIRE_TEXT || p->recv) {
		peer_abort(p,
			"a message of type %d was refused: one text was expected, and nothing else",
			m->type);
		return;
	}
	p->recv++;
	printf("received message: %s\n", m->text);
}

bool talk_conclude(struct peer *p) { return true; }

/* Our text counts as soon as it is posted: the client leaves when it has it, and its
 * acknowledgement may be lost then. */
bool talk_may_leave(const struct peer *p) { return (p->posted || p->loop->silent) && p->recv; }

const char *talk_waits_for(const struct peer *p)
{
	if (p->posted && !p->send)
		return "the completion of our text, which the peer has to acknowledge";
	if (p->loop->server)
		return p->recv ? "the client's disconnect" : "the client's text";
	return "the server's greeting";
}
