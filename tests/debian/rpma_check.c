/* SPDX-License-Identifier: BSD-3-Clause */
/* rpma_check server|client ADDRESS PORT SECONDARY: librpma between two hosts. The server shows
 * memory that holds pattern 1. The client reads it and compares, writes pattern 2, flushes, and
 * sends the word "look"; the server compares its memory, and answers "seen".
 */
#include <librpma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pattern.h"

#define BYTES ((size_t)4 << 20)
#define WORD 64

#define OK(call) \
	do { \
		int rc_ = (call); \
		if (rc_) { \
			fprintf(stderr, "%s: %s\n", #call, rpma_err_2str(rc_)); \
			exit(1); \
		} \
	} while (0)

static void *pages(size_t n)
{
	void *p = aligned_alloc(4096, n);
	if (!p)
		exit(1);
	memset(p, 0, n);
	return p;
}

static void wait_one(struct rpma_conn *conn, enum ibv_wc_opcode want)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;
	OK(rpma_conn_get_cq(conn, &cq));
	OK(rpma_cq_wait(cq));
	OK(rpma_cq_get_wc(cq, 1, &wc, NULL));
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != want) {
		fprintf(stderr, "completion %d, %s; expected %d\n", wc.opcode,
			ibv_wc_status_str(wc.status), want);
		exit(1);
	}
}

static void expect(struct rpma_conn *conn, enum rpma_conn_event want)
{
	enum rpma_conn_event event;
	OK(rpma_conn_next_event(conn, &event));
	if (event != want) {
		fprintf(stderr, "event %s\n", rpma_utils_conn_event_2str(event));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int server = !strcmp(argv[1], "server");
	struct ibv_context *verbs;
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	struct rpma_mr_local *mr, *word_mr;
	uint8_t *memory = pages(BYTES);
	char *word = pages(4096);
	uint8_t bytes[256];
	size_t size;

	OK(rpma_utils_get_ibv_context(argv[2],
		server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE, &verbs));
	OK(rpma_peer_new(verbs, &peer));
	OK(rpma_mr_reg(peer, word, 4096, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &word_mr));
	OK(rpma_mr_reg(peer, memory, BYTES,
		RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
			RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
		&mr));
	if (server) {
		struct rpma_ep *ep;
		struct rpma_conn_req *request;
		pattern_fill(memory, BYTES, 1);
		OK(rpma_mr_get_descriptor_size(mr, &size));
		OK(rpma_mr_get_descriptor(mr, bytes));
		struct rpma_conn_private_data shown = {.ptr = bytes, .len = (uint8_t)size};
		OK(rpma_ep_listen(peer, argv[2], argv[3], &ep));
		OK(rpma_ep_next_conn_req(ep, NULL, &request));
		OK(rpma_conn_req_recv(request, word_mr, 0, WORD, NULL));
		OK(rpma_conn_req_connect(&request, &shown, &conn));
		expect(conn, RPMA_CONN_ESTABLISHED);
		wait_one(conn, IBV_WC_RECV);
		printf("%s: %zu of %zu bytes right\n", word, pattern_wrong(memory, BYTES, 2),
			BYTES);
		if (strcmp(word, "look") || !pattern_holds(memory, BYTES, 2))
			return 1;
		strcpy(word, "seen");
		OK(rpma_send(conn, word_mr, 0, WORD, RPMA_F_COMPLETION_ALWAYS, NULL));
		wait_one(conn, IBV_WC_SEND);
		expect(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_disconnect(conn));
		OK(rpma_conn_delete(&conn));
		OK(rpma_ep_shutdown(&ep));
	} else {
		struct rpma_conn_req *request;
		struct rpma_conn_private_data shown;
		struct rpma_mr_remote *remote;
		OK(rpma_conn_req_new(peer, argv[2], argv[3], NULL, &request));
		OK(rpma_conn_req_recv(request, word_mr, WORD, WORD, NULL));
		OK(rpma_conn_req_connect(&request, NULL, &conn));
		expect(conn, RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_get_private_data(conn, &shown));
		OK(rpma_mr_remote_from_descriptor(shown.ptr, shown.len, &remote));
		OK(rpma_mr_remote_get_size(remote, &size));
		if (size != BYTES)
			return 1;
		OK(rpma_read(conn, mr, 0, remote, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, NULL));
		wait_one(conn, IBV_WC_RDMA_READ);
		printf("read: %zu of %zu bytes right\n", pattern_wrong(memory, BYTES, 1), BYTES);
		if (!pattern_holds(memory, BYTES, 1))
			return 1;
		pattern_fill(memory, BYTES, 2);
		OK(rpma_write(conn, remote, 0, mr, 0, BYTES, RPMA_F_COMPLETION_ON_ERROR, NULL));
		OK(rpma_flush(conn, remote, 0, BYTES, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ALWAYS, NULL));
		wait_one(conn, IBV_WC_RDMA_READ);
		strcpy(word, "look");
		OK(rpma_send(conn, word_mr, 0, WORD, RPMA_F_COMPLETION_ON_ERROR, NULL));
		wait_one(conn, IBV_WC_RECV);
		printf("answer: %s\n", word + WORD);
		if (strcmp(word + WORD, "seen"))
			return 1;
		OK(rpma_mr_remote_delete(&remote));
		OK(rpma_conn_disconnect(conn));
		expect(conn, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&conn));
	}
	OK(rpma_mr_dereg(&mr));
	OK(rpma_mr_dereg(&word_mr));
	OK(rpma_peer_delete(&peer));
	return 0;
}
