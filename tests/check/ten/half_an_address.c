/* SPDX-License-Identifier: BSD-3-Clause */
/* half_an_address.c
 *
 * Public report: w180112/RDMA-example issue #2 (2023) and the second point of issue #3. RDMA WRITE
 * "does nothing": the server's memory keeps its zeros, though a SEND on the same QP arrives. The
 * address of the memory goes to the peer through htonl and comes back through ntohl.
 *
 * The bug: htonl takes 32 bits. The upper half of the address is lost, so the write goes to an
 * address that no memory region has. The client waits for a completion, but does not look at its
 * status, which says so. */
#include "plain.h"

enum { BYTES = 64 };

/* In network byte order. */
struct private_data {
	uint64_t buffer;
	uint32_t rkey;
	uint32_t bytes;
};

static struct private_data describe(const struct ibv_mr *mr)
{
	return (struct private_data){
		.buffer = FIXED ? htobe64((uintptr_t)mr->addr) : htonl((uintptr_t)mr->addr),
		.rkey = htonl(mr->rkey),
		.bytes = htonl(BYTES),
	};
}

static void write_to(struct ibv_qp *qp, struct ibv_mr *mr, const struct private_data *p)
{
	struct ibv_sge s = {(uintptr_t)mr->addr, ntohl(p->bytes), mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma = {.remote_addr = FIXED ? be64toh(p->buffer)
								    : ntohl(p->buffer),
					   .rkey = ntohl(p->rkey)}},
			   *bad;

	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
}

int main(void)
{
	struct device d = {0};
	struct ibv_wc wc;

	alarm(HANG_S);
	device_open(&d);
	struct ibv_cq *client_cq = cq_make(&d, 4, NULL), *server_cq = cq_make(&d, 4, NULL);
	struct ibv_qp *client = qp_make(&d, IBV_QPT_RC, client_cq, client_cq, 4);
	struct ibv_qp *server = qp_make(&d, IBV_QPT_RC, server_cq, server_cq, 4);
	struct ibv_mr *from = registered(&d, BYTES), *to = registered(&d, BYTES);
	rc_connect_two(&d, client, server);

	snprintf(from->addr, BYTES, "the client's numbers");
	const struct private_data p = describe(to);
	write_to(client, from, &p);
	if (!completion(client_cq, &wc))
		die("no completion");
	printf("client: written\n");
	printf("server: the memory has '%s'\n", (const char *)to->addr);

	if (ibv_destroy_qp(client) || ibv_destroy_qp(server) || ibv_destroy_cq(client_cq) ||
		ibv_destroy_cq(server_cq))
		die("the end");
	unregister(from);
	unregister(to);
	device_close(&d);
	return 0;
}
