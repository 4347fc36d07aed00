/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_text.c - what rdma-send-recv-server and rdma-send-recv-client do once they are connected:
 * each sends a text and prints the other's. rdma-send-recv-server 和 rdma-send-recv-client
 * 连接之后做的事：各发送一段文本，并打印对方的文本。
 */
#include <stdio.h>
#include <unistd.h>

#include "peer.h"

static int post_text(struct peer *p)
{
	char text[WIRE_TEXT_BYTES_MAX];

	/* Not translated: it is data. / 不翻译：这是数据。 */
	if (p->options->server)
		snprintf(text, sizeof(text), "greeting from server %ld to its client number %u",
			(long)getpid(), p->number);
	else
		snprintf(text, sizeof(text), "message from client %ld", (long)getpid());
	p->text_posted = true;
	return peer_post_send(p, WORK_TEXT, wire_put_text(p->message_out, text));
}

static int text_advance(struct peer *p)
{
	if (!p->text_posted && !p->options->silent)
		return post_text(p);
	/* The client has what it waited for. The server lets it leave first. / 客户端已等到它要的；
	 * 服务器让客户端先离开。 */
	if (!p->options->server && p->text_sent && p->text_received)
		peer_leave(p);
	return 0;
}

static int text_sent(struct peer *p, unsigned work)
{
	(void)work;
	p->text_sent = true;
	peer_restart_clock(p);
	return 0;
}

static int text_received(struct peer *p, const struct message *m)
{
	if (m->type != WIRE_TEXT || p->text_received)
		return peer_abort(p,
			_("a message of type %d was refused: one text was expected, and nothing "
			  "else"),
			m->type);
	p->text_received = true;
	peer_restart_clock(p);
	printf(_("received message: %s\n"), m->text);
	return 0;
}

/* Our text counts as soon as it is posted: the client leaves when it has it, and its
 * acknowledgement may be lost then. 我方文本投递之后即可：客户端收到后就离开，其确认可能丢失。 */
static bool text_may_leave(const struct peer *p)
{
	return (p->text_posted || p->options->silent) && p->text_received;
}

/* The text was printed when it came. / 文本在收到时已经打印。 */
static int text_conclude(struct peer *p)
{
	(void)p;
	return 0;
}

static const char *text_waits_for(const struct peer *p)
{
	if (p->text_posted && !p->text_sent)
		return _("the completion of our text, which the peer has to acknowledge");
	if (!p->text_received)
		return p->options->server ? _("the client's text") : _("the server's greeting");
	return p->options->server ? _("the client's disconnect")
				  : _("the last step of the handshake (RDMA_CM_EVENT_ESTABLISHED)");
}

const struct talk text_talk = {
	.advance = text_advance,
	.sent = text_sent,
	.received = text_received,
	.may_leave = text_may_leave,
	.conclude = text_conclude,
	.waits_for = text_waits_for,
};
