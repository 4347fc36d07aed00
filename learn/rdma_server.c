/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_server.c - wait for an rdma_client, receive a message on each queue pair, answer each.
 *
 * Read this file first, then rdma_client.c; both use the steps of steps.c and the TCP connection of
 * exchange.c. 等待 rdma_client，在每个队列对上接收一条消息并逐一回答。请先读本文件，再读
 * rdma_client.c；两者都用到 steps.c 的各个步骤和 exchange.c 的 TCP 连接。
 */
#include "common.h"
#include "exchange.h"
#include "steps.h"

static int check_and_answer(struct rdma *r, const struct cm_con_data_t *local,
	const struct cm_con_data_t *remote, const struct completion *c)
{
	unsigned i = c->qp;
	uint32_t bytes = remote->message_bytes;

	if (c->bytes != bytes)
		return fail(_("QP %u received %u bytes instead of %u: the device is at fault, "
			      "start both again"),
			i + 1, c->bytes, bytes);
	message_write(
		r->expected, bytes, ROLE_CLIENT, i, r->qps, remote->qp[i].qpn, remote->qp[i].psn);
	if (message_check(r->receive_buffer + (size_t)i * r->buffer_bytes, r->expected, bytes, i))
		return -1;
	message_write(r->send_buffer + (size_t)i * r->buffer_bytes, bytes, ROLE_SERVER, i, r->qps,
		local->qp[i].qpn, local->qp[i].psn);
	return post_send(r, i, bytes);
}

static int answer_messages(struct rdma *r, struct exchange *x, const struct cm_con_data_t *local,
	const struct cm_con_data_t *remote)
{
	unsigned received = 0, sent = 0;
	struct completion c;

	say_step(_("poll the completion queue for the client's messages, and answer each with as "
		   "many bytes."));
	while (received < r->qps || sent < r->qps) {
		if (poll_completion(r, x, &c))
			return -1;
		if (c.work == WORK_SEND) {
			sent++;
			continue;
		}
		received++;
		if (check_and_answer(r, local, remote, &c))
			return -1;
	}
	say(_("%u answer(s) sent, and acknowledged by the client's device"), sent);
	return 0;
}

static int serve(struct rdma *r, struct exchange *x, const struct options *opt)
{
	struct cm_con_data_t local, remote;

	/* Objects of this side alone. / 只涉及本端的对象。 */
	if (init_rdma_resources(r, opt) || modify_qp_to_init(r) || post_receives(r))
		return -1;

	/* Who is there? / 对端是谁？ */
	con_data_describe(r, opt, &local);
	say_step(_("exchange QPN, LID, GID, PSN and MTU with the client over TCP."));
	if (exchange_accept(x, opt) || sock_sync_data(x, opt, &local, &remote))
		return -1;
	con_data_show(&local, &remote);

	/* Connect the queue pairs. / 连接队列对。 */
	if (modify_qp_to_rtr(r, opt, &local, &remote) || modify_qp_to_rts(r, &local))
		return -1;

	/* Only now may the client send: the receives are posted and the QPs can take messages. /
	 * 此时客户端才可以发送：接收已投递，QP 可以收消息。 */
	say_step(_(
		"tell the client over TCP that this side is ready: its messages find a receive."));
	if (exchange_tell(x, KIND_READY) || answer_messages(r, x, &local, &remote))
		return -1;

	/* A QP that is destroyed answers no repetition, so nobody leaves before the other has all.
	 * / 被销毁的 QP 不再应答重传，所以双方都收齐之后才能离开。 */
	say_step(_(
		"wait until the client has all answers, then close everything in reverse order."));
	return exchange_await(x, KIND_DONE) || exchange_tell(x, KIND_DONE) ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options opt;
	struct rdma r = {0};
	struct exchange x = {.fd = -1};
	int rc;

	language_start(program_name(ROLE_SERVER));
	rc = options_parse(&opt, ROLE_SERVER, argc, argv);
	if (rc)
		return rc < 0;
	rc = serve(&r, &x, &opt);
	exchange_close(&x, rc != 0);
	close_rdma_resources(&r);
	if (!rc)
		say(_("Done: every message arrived as it was sent."));
	return rc != 0;
}
