/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_test.c - comms: strangers never become one, and each ends, whatever is under way. */
#include "plugin_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/descriptors.h"

/* ---- strangers ---- */

static uint16_t port_of(const char *handle, struct sockaddr_in *to)
{
	struct plugin_handle h;
	char host[64];
	memcpy(&h, handle, sizeof(h));
	snprintf(host, sizeof(host), "%s", h.address);
	char *colon = strrchr(host, ':');
	*colon = 0;
	*to = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
	assert_int_equal(inet_pton(AF_INET, host, &to->sin_addr), 1);
	return ntohs(to->sin_port);
}

/* Connections that say nothing, something else, or are ended at once; they are left open. */
static void tcp_strangers(const struct sockaddr_in *to, int *fds, int n)
{
	static const char *const words[] = {"", "GET / HTTP/1.0\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "rpw-nccl"};
	for (int i = 0; i < n; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(fds[i], (const struct sockaddr *)to, sizeof(*to)), 0);
		const char *word = words[i % RPWI_ARRAY_LEN(words)];
		if (*word)
			assert_int_equal(write(fds[i], word, strlen(word)), (ssize_t)strlen(word));
	}
}

static void no_comm(struct pair *p, uint64_t for_ns, rpw_context *also)
{
	for (uint64_t until = rpwi_now_ns() + for_ns; rpwi_now_ns() < until; usleep(200)) {
		if (also)
			rpw_context_progress(also);
		OK(ncclnet_accept(p->n, p->listen_comm, &p->recv, NULL));
		assert_null(p->recv);
	}
}

/* Endpoints of ropeway's own that do not know the nonce: silent, with a hello of zeros, with
 * another nonce, with something else. */
static void ropeway_strangers(rpw_context *c, const char *handle, int count)
{
	struct plugin_handle h;
	struct plugin_hello hello = {.magic = 0x31776e72,
				    .abi = 12,
				    .version = ROPEWAY_VERSION,
				    .nonce = "not this one"},
			    zero = {0};
	const struct {
		const void *header;
		size_t len;
	} words[] = {{NULL, 0}, {&zero, sizeof(zero)}, {&hello, sizeof(hello)}, {"hello", 5}};
	memcpy(&h, handle, sizeof(h));
	for (int i = 0; i < count; i++) {
		rpw_endpoint *ep = NULL;
		assert_true(rpw_endpoint_create(c, h.address, NULL, &ep, NULL) >= 0);
		if (words[i % 4].header)
			assert_true(rpw_am_send(ep, PLUGIN_HELLO, words[i % 4].header,
					    words[i % 4].len, NULL, 0, NULL) >= 0);
		assert_true(rpw_send(ep, "data", 4, 1ull << 32 | 1, NULL) >= 0);
	}
}

void strangers_never_become_comms(void **unused)
{
	struct pair p;
	struct sockaddr_in to;
	int fds[12];
	rpw_context *c = NULL;
	rpw_context_options o = {.size = sizeof(o), .transports = getenv("ROPEWAY_NCCL_TRANSPORT")};
	pair_load(&p, 12);
	OK(ncclnet_listen(p.n, p.ctx, 0, p.handle, &p.listen_comm));
	port_of(p.handle, &to);
	tcp_strangers(&to, fds, RPWI_ARRAY_LEN(fds));
	assert_int_equal(rpw_context_create(&o, &c), RPW_OK);
	ropeway_strangers(c, p.handle, 70); /* more than are let in */
	no_comm(&p, 500 * RPWI_NS_PER_MS, c);
	/* And who has the handle gets in among them. */
	for (uint64_t until = pair_deadline(); !p.send || !p.recv; pair_breathe(until)) {
		rpw_context_progress(c);
		if (!p.send)
			OK(ncclnet_connect(p.n, p.ctx, 0, p.handle, &p.send, NULL));
		if (!p.recv)
			OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
	}
	pair_message(&p, 70000, 1);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(fds); i++)
		close(fds[i]);
	rpw_context_destroy(c);
	pair_message(&p, 17, 1);
	pair_close(&p);
}

/* ---- ends ---- */

static void assert_within(uint64_t since_ns, unsigned s)
{
	assert_true(rpwi_now_ns() - since_ns < s * RPWI_NS_PER_S);
}

void close_with_work_in_flight(void **unused)
{
	enum { BYTES = 64 << 20 };
	uint8_t *big = calloc(1, BYTES), small[100];
	for (int who = 0; who < 2; who++) {
		struct pair p;
		pair_open(&p, 12);
		void *s = pair_isend(&p, big, BYTES, 1),
		     *r = pair_irecv(&p, small, sizeof(small), 2);
		int done = 0, rc = 0;
		OK(ncclnet_test(p.n, s, &done, NULL));
		OK(ncclnet_test(p.n, r, &done, NULL));
		uint64_t began = rpwi_now_ns();
		OK(who ? ncclnet_close_send(p.n, p.send) : ncclnet_close_recv(p.n, p.recv));
		assert_within(began, 10);
		for (uint64_t until = pair_deadline(); !rc; pair_breathe(until))
			rc = ncclnet_test(p.n, who ? r : s, &done, NULL);
		REFUSED(rc, NCCL_REMOTE_ERROR, "RPW_ERR_PEER_GONE");
		/* And what is posted after it. */
		size_t size = 8;
		int tag = 1;
		void *data = small, *mhandle = NULL, *request = (void *)1;
		OK(who ? ncclnet_irecv(p.n, p.recv, 1, &data, &size, &tag, &mhandle, &request)
		       : ncclnet_isend(p.n, p.send, small, 8, 1, NULL, &request));
		assert_non_null(request);
		assert_int_equal(pair_wait(&p, request, NULL), NCCL_REMOTE_ERROR);
		began = rpwi_now_ns();
		*(who ? &p.send : &p.recv) = NULL;
		pair_close(&p);
		assert_within(began, 10);
	}
	free(big);
}

/* What was sent before the end can be received after it; close of the sender does not wait for the
 * receives. */
void close_after_sending(void **unused)
{
	/* what an endpoint may have unasked for, at first: 16 KiB */
	enum { COUNT = 4, BYTES = 3000 };
	struct pair p;
	uint8_t from[BYTES], to[BYTES];
	pair_open(&p, 12);
	for (int i = 0; i < COUNT; i++) {
		pattern_fill(from, BYTES, (unsigned)i);
		OK(pair_wait(&p, pair_isend(&p, from, BYTES, i), NULL));
	}
	uint64_t began = rpwi_now_ns();
	OK(ncclnet_close_send(p.n, p.send));
	assert_within(began, 10);
	p.send = NULL;
	usleep(100000);
	for (int i = COUNT - 1; i >= 0; i--) {
		int size = 0;
		OK(pair_wait(&p, pair_irecv(&p, to, BYTES, i), &size));
		assert_int_equal(size, BYTES);
		pair_verify(to, BYTES, (unsigned)i);
	}
	void *data = to, *mhandle = NULL, *request = NULL;
	size_t size = 8;
	int tag = 1, rc = 0, done = 0;
	rc = ncclnet_irecv(p.n, p.recv, 1, &data, &size, &tag, &mhandle, &request);
	for (uint64_t until = pair_deadline(); !rc; pair_breathe(until))
		rc = ncclnet_test(p.n, request, &done, NULL);
	REFUSED(rc, NCCL_REMOTE_ERROR, "look at the log of that rank");
	pair_close(&p);
}

void connect_and_accept_end(void **unused)
{
	struct pair p;
	void *comm = NULL;
	int rc = 0;
	uint64_t until, began = rpwi_now_ns();
	setenv("ROPEWAY_NCCL_TIMEOUT_MS", "300", 1);
	pair_load(&p, 12);
	OK(ncclnet_listen(p.n, p.ctx, 0, p.handle, &p.listen_comm));
	for (until = pair_deadline(); !rc; pair_breathe(until))
		rc = ncclnet_accept(p.n, p.listen_comm, &comm, NULL);
	REFUSED(rc, NCCL_REMOTE_ERROR, "nobody has connected for 300 ms");
	OK(ncclnet_close_listen(p.n, p.listen_comm));
	for (rc = 0, until = pair_deadline(); !rc; pair_breathe(until))
		rc = ncclnet_connect(p.n, p.ctx, 0, p.handle, &comm, NULL);
	REFUSED(rc, NCCL_REMOTE_ERROR, "NCCL_SOCKET_IFNAME");
	assert_null(comm);
	/* Its time is up in the middle: whom it connects to takes TCP connections, and says
	 * nothing. */
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to;
	socklen_t len = sizeof(to);
	struct plugin_handle h;
	memcpy(&h, p.handle, sizeof(h));
	port_of(p.handle, &to);
	to.sin_port = 0;
	assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)) | listen(fd, 5) |
				 getsockname(fd, (struct sockaddr *)&to, &len),
		0);
	char host[INET_ADDRSTRLEN];
	snprintf(h.address, sizeof(h.address), "%s:%d",
		inet_ntop(AF_INET, &to.sin_addr, host, sizeof(host)), ntohs(to.sin_port));
	seal(&h);
	for (rc = 0, until = pair_deadline(); !rc; pair_breathe(until))
		rc = ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL);
	REFUSED(rc, NCCL_REMOTE_ERROR, "ROPEWAY_NCCL_TIMEOUT_MS");
	close(fd);
	unsetenv("ROPEWAY_NCCL_TIMEOUT_MS");
	assert_within(began, 30);
	p.listen_comm = NULL;
	pair_close(&p);
}

/* Connected, and gone before it was accepted: by its own end, and by that of the listener. */
void end_before_accept(void **unused)
{
	for (int who = 0; who < 3; who++) {
		struct pair p;
		int rc = 0, done = 0;
		char data[8] = "data";
		pair_load(&p, 11);
		OK(ncclnet_listen(p.n, p.ctx, 0, p.handle, &p.listen_comm));
		for (uint64_t until = pair_deadline(); !p.send; pair_breathe(until))
			OK(ncclnet_connect(p.n, p.ctx, 0, p.handle, &p.send, NULL));
		if (who) {
			/* what it sent is received, before and after its end; then the receive
			 * hears of it */
			OK(pair_wait(&p, pair_isend(&p, data, sizeof(data), 1), NULL));
			OK(ncclnet_close_send(p.n, p.send));
			usleep(who == 2 ? 200000 : 0);
			for (uint64_t until = pair_deadline(); !p.recv; pair_breathe(until))
				OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
			char to[8] = "";
			OK(pair_wait(&p, pair_irecv(&p, to, sizeof(to), 1), NULL));
			assert_memory_equal(to, data, sizeof(data));
			REFUSED(pair_wait(&p, pair_irecv(&p, to, sizeof(to), 1), NULL),
				NCCL_REMOTE_ERROR, "RPW_ERR_PEER_GONE");
			p.send = NULL;
		} else {
			OK(ncclnet_close_listen(p.n, p.listen_comm));
			void *request = NULL;
			for (uint64_t until = pair_deadline(); !rc; pair_breathe(until)) {
				if (!request)
					rc = ncclnet_isend(
						p.n, p.send, data, sizeof(data), 1, NULL, &request);
				if (!rc && request)
					rc = ncclnet_test(p.n, request, &done, NULL);
				request = done ? NULL : request;
			}
			REFUSED(rc, NCCL_REMOTE_ERROR, "RPW_ERR_PEER_GONE");
			p.listen_comm = NULL;
		}
		pair_close(&p);
	}
}

/* The same handle again, and one listener for several. */
void several_of_one_listener(void **unused)
{
	struct pair p, more[3];
	pair_open(&p, 12);
	for (int i = 0; i < 3; i++) {
		more[i] = (struct pair){.n = p.n};
		for (uint64_t until = pair_deadline(); !more[i].send || !more[i].recv;
			pair_breathe(until)) {
			if (!more[i].send)
				OK(ncclnet_connect(p.n, p.ctx, 0, p.handle, &more[i].send, NULL));
			if (!more[i].recv)
				OK(ncclnet_accept(p.n, p.listen_comm, &more[i].recv, NULL));
		}
	}
	OK(ncclnet_close_listen(p.n, p.listen_comm));
	p.listen_comm = NULL;
	for (int i = 0; i < 3; i++) {
		more[i].seed = (unsigned)i * 10;
		pair_message(&more[i], 40000, 1);
	}
	OK(ncclnet_close_send(p.n, more[0].send) | ncclnet_close_recv(p.n, more[2].recv));
	pair_message(&more[1], 10, 2);
	pair_message(&p, 1 << 20, 1);
	OK(ncclnet_close_recv(p.n, more[0].recv) | ncclnet_close_send(p.n, more[2].send));
	OK(ncclnet_close_recv(p.n, more[1].recv) | ncclnet_close_send(p.n, more[1].send));
	pair_close(&p);
}

/* A program has 1,024 descriptors where nobody raises the limit, and other uses for them. Both ends
 * are in this process: two comms a pair. How long things take is printed, not judged. */
void many_comms_take_few_descriptors(void **unused)
{
	enum { PAIRS = 64, BYTES = 300000, EACH_TCP = 6, EACH = 12 };
	const char *transport = getenv("ROPEWAY_NCCL_TRANSPORT");
	bool tcp = transport && !strcmp(transport, "tcp");
	unsigned n = tcp ? PAIRS : PAIRS / 2;
	static struct pair p[PAIRS];
	struct rlimit before, limit;
	uint64_t connect_ns = 0, close_ns = 0;
	pair_load(&p[0], 12);
	unsigned at_first = open_descriptors();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = RPWI_MIN(before.rlim_max, (rlim_t)1024);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (unsigned i = 0; i < n; i++) {
		if (i)
			p[i] = (struct pair){.n = p[0].n, .seed = i * 10};
		uint64_t began = rpwi_now_ns();
		pair_connect(&p[i]);
		connect_ns += rpwi_now_ns() - began;
		OK(ncclnet_close_listen(p[i].n, p[i].listen_comm));
		p[i].listen_comm = NULL;
		pair_message(&p[i], BYTES, 1);
	}
	unsigned more = open_descriptors() - at_first;
	printf("# %u comms: %.2f descriptors each\n", 2 * n, more / 2.0 / n);
	assert_true(more <= 2 * n * (tcp ? EACH_TCP : EACH));
	for (unsigned i = n; i-- > 1;) {
		pair_message(&p[i], 10, 2);
		uint64_t began = rpwi_now_ns();
		OK(ncclnet_close_send(p[i].n, p[i].send));
		OK(ncclnet_close_recv(p[i].n, p[i].recv));
		close_ns += rpwi_now_ns() - began;
	}
	printf("# listen, connect and accept %.3f ms a pair, close %.3f ms a comm\n",
		(double)connect_ns / 1e6 / n, (double)close_ns / 1e6 / 2 / (n - 1));
	OK(ncclnet_close_send(p[0].n, p[0].send) | ncclnet_close_recv(p[0].n, p[0].recv));
	/* What the peers' words are waited for goes by itself. */
	for (uint64_t until = pair_deadline(); open_descriptors() > at_first; usleep(1000))
		assert_true(rpwi_now_ns() < until);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	p[0].send = p[0].recv = NULL;
	pair_close(&p[0]);
}
