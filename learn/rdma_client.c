/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_client.c - call an rdma_server, send a message on each queue pair, receive the answers.
 *
 * The steps are the server's; what differs is who waits for whom. / 步骤与服务器相同，
 * 不同的只是谁等谁。 连接 rdma_server，在每个队列对上发送一条消息并接收回答。
 */
#include "common.h"
#include "exchange.h"
#include "steps.h"

static int send_messages(
	struct rdma *r, const struct options *opt, const struct cm_con_data_t *local)
{
	say_step(_("send a message of %u bytes on each QP. Posting returns at once, the device "
		   "does the work."),
		opt->message_bytes);
	for (unsigned i = 0; i < r->qps; i++) {
		message_write(r->send_buffer + (size_t)i * r->buffer_bytes, opt->message_bytes,
			ROLE_CLIENT, i, r->qps, local->qp[i].qpn, local->qp[i].psn);
		if (post_send(r, i, opt->message_bytes))
			return -1;
	}
	return 0;
}

static int check_answer(struct rdma *r, const struct options *opt,
	const struct cm_con_data_t *remote, const struct completion *c)
{
	unsigned i = c->qp;

	if (c->bytes != opt->message_bytes)
		return fail(_("QP %u received %u bytes instead of %u: the device is at fault, "
			      "start both again"),
			i + 1, c->bytes, opt->message_bytes);
	message_write(r->expected, opt->message_bytes, ROLE_SERVER, i, r->qps, remote->qp[i].qpn,
		remote->qp[i].psn);
	return message_check(r->receive_buffer + (size_t)i * r->buffer_bytes, r->expected,
		opt->message_bytes, i);
}

static int receive_answers(struct rdma *r, struct exchange *x, const struct options *opt,
	const struct cm_con_data_t *remote)
{
	unsigned received = 0, sent = 0;
	struct completion c;

	say_step(_("poll the completion queue: for each QP one note that the message was sent, and "
		   "one that the answer is there."));
	while (received < r->qps || sent < r->qps) {
		if (poll_completion(r, x, &c))
			return -1;
		if (c.work == WORK_SEND) {
			sent++;
			continue;
		}
		received++;
		if (check_answer(r, opt, remote, &c))
			return -1;
	}
	return 0;
}

static int call(struct rdma *r, struct exchange *x, const struct options *opt)
{
	struct cm_con_data_t local, remote;

	/* Objects of this side alone. / 只涉及本端的对象。 */
	if (init_rdma_resources(r, opt) || modify_qp_to_init(r) || post_receives(r))
		return -1;

	/* Who is there? / 对端是谁？ */
	con_data_describe(r, opt, &local);
	say_step(_("exchange QPN, LID, GID, PSN and MTU with the server over TCP."));
	if (exchange_connect(x, opt) || sock_sync_data(x, opt, &local, &remote))
		return -1;
	con_data_show(&local, &remote);

	/* Connect the queue pairs. / 连接队列对。 */
	if (modify_qp_to_rtr(r, opt, &local, &remote) || modify_qp_to_rts(r, &local))
		return -1;

	say_step(_("wait for the server's word over TCP that it is ready."));
	if (exchange_await(x, KIND_READY))
		return -1;
	if (send_messages(r, opt, &local) || receive_answers(r, x, opt, &remote))
		return -1;

	/* A QP that is destroyed answers no repetition, so nobody leaves before the other has all.
	 * / 被销毁的 QP 不再应答重传，所以双方都收齐之后才能离开。 */
	say_step(_("tell the server that all answers are here, then close everything in reverse "
		   "order."));
	return exchange_tell(x, KIND_DONE) || exchange_await(x, KIND_DONE) ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options opt;
	struct rdma r = {0};
	struct exchange x = {.fd = -1};
	int rc;

	language_start(program_name(ROLE_CLIENT));
	rc = options_parse(&opt, ROLE_CLIENT, argc, argv);
	if (rc)
		return rc < 0;
	rc = call(&r, &x, &opt);
	exchange_close(&x, rc != 0);
	close_rdma_resources(&r);
	if (!rc)
		say(_("Done: every message arrived as it was sent."));
	return rc != 0;
}
