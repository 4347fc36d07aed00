/* plugin_test.c - our own NCCL plugin, loaded as NCCL loads it and called through the tables of each version of the API: its promises, one a test. The path of the plugin is the first argument; the rest are names of
 * tests (globs). Both ends are in this process, each with a comm of its own. */
#include "nccl_pair.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "nccl/plugin.h" /* the handle's layout, for forging; the bounds */

static const int some_versions[] = {5, 9, 12};

/* ---- loading ---- */

static void all_versions(void **unused)
{
	for (int v = 5; v <= 12; v++) {
		struct pair p;
		struct ncclnet_properties props;
		pair_open(&p, v);
		assert_string_equal(ncclnet_name(p.n), "ropeway");
		OK(ncclnet_properties(p.n, 0, &props));
		assert_true(props.ptr_support & NCCL_PTR_HOST);
		assert_int_equal(props.max_recvs, PLUGIN_RECVS_MAX);
		assert_true(props.speed > 0 && props.max_comms > 1000);
		pair_message(&p, 24, 7);
		pair_message(&p, 0, 8);
		pair_message(&p, 3 << 20, 9);
		pair_close(&p);
	}
}

/* NCCL may unload it, and load it again. */
static void unloaded_and_loaded(void **unused)
{
	struct pair p;
	for (int i = 0; i < 3; i++) {
		void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
		assert_non_null(library);
		assert_non_null(dlsym(library, "ncclNetPlugin_v5"));
		assert_null(dlsym(library, "ncclNetPlugin_v4"));
		assert_int_equal(dlclose(library), 0);
	}
	pair_open(&p, 0);
	assert_int_equal(p.n->abi, 12);
	void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
	assert_int_equal(dlclose(library) | dlclose(p.n->library), 0); /* with its thread running */
	pair_message(&p, 100000, 1);
	pair_close(&p);
}

/* ---- handles ---- */

static void seal(struct plugin_handle *h)
{
	h->crc = 0;
	h->token = 0;
	h->crc = (uint32_t)crc32(0, (const uint8_t *)h, sizeof(*h));
}

static void handles_refused_by_name(void **unused)
{
	struct pair p;
	char forged[NCCL_NET_HANDLE_BYTES];
	struct plugin_handle h;
	void *comm = NULL;
	pair_load(&p, 9);
	OK(ncclnet_listen(p.n, p.ctx, 0, p.handle, &p.listen_comm));
	for (size_t i = 0; i < sizeof(forged); i++)
		for (int bit = 0; bit < 8; bit++) {
			memcpy(forged, p.handle, sizeof(forged));
			forged[i] ^= (char)(1 << bit);
			REFUSED(ncclnet_connect(p.n, p.ctx, 0, forged, &comm, NULL), NCCL_INVALID_ARGUMENT, "garbled");
			assert_null(comm);
		}
	memset(forged, 0, sizeof(forged));
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, forged, &comm, NULL), NCCL_INVALID_ARGUMENT, "all zero");
	memcpy(&h, p.handle, sizeof(h));
	memcpy(h.magic, "TCPX-fpn", 8);
	seal(&h);
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL), NCCL_INVALID_ARGUMENT, "(TCPX-fpn)");
	memcpy(&h, p.handle, sizeof(h));
	snprintf(h.version, sizeof(h.version), "9.8.7");
	seal(&h);
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL), NCCL_INVALID_USAGE, "9.8.7");
	memcpy(&h, p.handle, sizeof(h));
	h.layout = 2;
	seal(&h);
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL), NCCL_INVALID_USAGE, "layout 2");
	/* Right in all but the nonce: an earlier listener had this port. */
	setenv("ROPEWAY_NCCL_TIMEOUT_MS", "60000", 1);
	memcpy(&h, p.handle, sizeof(h));
	h.nonce[3] ^= 1;
	seal(&h);
	int rc = 0;
	for (uint64_t until = pair_deadline(); !rc; pair_breathe(until)) {
		rc = ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL);
		assert_null(comm);
		OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
		assert_null(p.recv);
	}
	unsetenv("ROPEWAY_NCCL_TIMEOUT_MS");
	REFUSED(rc, NCCL_REMOTE_ERROR, "not made by this listener");
	/* None of this harmed it. */
	for (uint64_t until = pair_deadline(); !p.send || !p.recv; pair_breathe(until)) {
		if (!p.send)
			OK(ncclnet_connect(p.n, p.ctx, 0, p.handle, &p.send, NULL));
		if (!p.recv)
			OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
	}
	pair_message(&p, 1000, 5);
	pair_close(&p);
}

/* ---- one version throughout ---- */

static void versions_do_not_mix(void **unused)
{
	struct pair p7, p5;
	char handle[NCCL_NET_HANDLE_BYTES], data[16] = "x";
	void *comm = NULL, *request = NULL, *mhandle = NULL, *pointer = data;
	size_t size = sizeof(data);
	int tag = 1, done = 0;
	pair_open(&p7, 7);
	pair_load(&p5, 5);
	OK(ncclnet_listen(p7.n, p7.ctx, 0, handle, &comm));
	void *listen_comm = comm;
	REFUSED(ncclnet_connect(p5.n, p5.ctx, 0, handle, &comm, NULL), NCCL_INVALID_USAGE, "v7, and given to connect of v5");
	assert_null(comm);
	REFUSED(ncclnet_accept(p5.n, listen_comm, &comm, NULL), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_isend(p5.n, p7.send, data, size, tag, NULL, &request), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_irecv(p5.n, p7.recv, 1, &pointer, &size, &tag, &mhandle, &request), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_reg(p5.n, p7.recv, data, size, NCCL_PTR_HOST, &mhandle), NCCL_INVALID_USAGE, "v7");
	request = pair_isend(&p7, data, size, tag);
	REFUSED(ncclnet_test(p5.n, request, &done, NULL), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_close_send(p5.n, p7.send), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_close_listen(p5.n, listen_comm), NCCL_INVALID_USAGE, "v7");
	/* Kinds do not mix either. */
	REFUSED(ncclnet_isend(p7.n, p7.recv, data, size, tag, NULL, &request), NCCL_INVALID_ARGUMENT, "receive comm");
	REFUSED(ncclnet_irecv(p7.n, p7.send, 1, &pointer, &size, &tag, &mhandle, &request), NCCL_INVALID_ARGUMENT, "send comm");
	REFUSED(ncclnet_close_recv(p7.n, p7.listen_comm), NCCL_INVALID_ARGUMENT, "listen comm");
	REFUSED(ncclnet_isend(p7.n, NULL, data, size, tag, NULL, &request), NCCL_INVALID_ARGUMENT, "no comm");
	OK(ncclnet_close_listen(p7.n, listen_comm));
	pair_message(&p7, 500, 2);
	pair_close(&p5);
	pair_close(&p7);
}

static void memory_types(void **unused)
{
	struct pair p;
	char data[64];
	void *mhandle = NULL;
	struct ncclnet_properties props;
	pair_open(&p, 8);
	OK(ncclnet_properties(p.n, 0, &props));
	OK(ncclnet_reg(p.n, p.send, data, sizeof(data), NCCL_PTR_HOST, &mhandle));
	assert_non_null(mhandle);
	REFUSED(ncclnet_dereg(p.n, p.recv, mhandle), NCCL_INVALID_ARGUMENT, "deregMr");
	OK(ncclnet_dereg(p.n, p.send, mhandle));
	static const int wrong[] = {0, 3, 7, 8, -1};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		char word[64];
		snprintf(word, sizeof(word), "unknown memory type %d", wrong[i]);
		REFUSED(ncclnet_reg(p.n, p.send, data, sizeof(data), wrong[i], &mhandle), NCCL_INVALID_ARGUMENT, word);
		assert_null(mhandle);
	}
	if (!(props.ptr_support & NCCL_PTR_CUDA))
		REFUSED(ncclnet_reg(p.n, p.send, data, sizeof(data), NCCL_PTR_CUDA, &mhandle), NCCL_INVALID_ARGUMENT, "ptrSupport");
	OK(ncclnet_reg(p.n, p.recv, data, sizeof(data), NCCL_PTR_HOST, &mhandle)); /* left for close */
	pair_close(&p);
}

/* ---- strangers ---- */

static uint16_t port_of(const char *handle, struct sockaddr_in *to)
{
	struct plugin_handle h;
	char host[64];
	memcpy(&h, handle, sizeof(h));
	snprintf(host, sizeof(host), "%s", h.address);
	char *colon = strrchr(host, ':');
	*colon = 0;
	*to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
	assert_int_equal(inet_pton(AF_INET, host, &to->sin_addr), 1);
	return ntohs(to->sin_port);
}

/* Connections that say nothing, something else, or are ended at once; they are left open. */
static void tcp_strangers(const struct sockaddr_in *to, int *fds, int n)
{
	static const char *const words[] = {"", "GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "rpw-nccl"};
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

/* Endpoints of ropeway's own that do not know the nonce: silent, with a hello of zeros, with another nonce, with something else. */
static void ropeway_strangers(rpw_context *c, const char *handle, int count)
{
	struct plugin_handle h;
	struct plugin_hello hello = {.magic = 0x31776e72, .abi = 12, .version = ROPEWAY_VERSION, .nonce = "not this one"}, zero = {0};
	const struct {
		const void *header;
		size_t len;
	} words[] = {{NULL, 0}, {&zero, sizeof(zero)}, {&hello, sizeof(hello)}, {"hello", 5}};
	memcpy(&h, handle, sizeof(h));
	for (int i = 0; i < count; i++) {
		rpw_endpoint *ep = NULL;
		assert_true(rpw_endpoint_create(c, h.address, NULL, &ep, NULL) >= 0);
		if (words[i % 4].header)
			assert_true(rpw_am_send(ep, PLUGIN_HELLO, words[i % 4].header, words[i % 4].len, NULL, 0, NULL) >= 0);
		assert_true(rpw_send(ep, "data", 4, 1ull << 32 | 1, NULL) >= 0);
	}
}

static void strangers_never_become_comms(void **unused)
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

/* ---- data ---- */

static void truncation_is_an_error(void **unused)
{
	static const size_t sizes[][2] = {{64, 63}, {1, 0}, {200000, 100}, {4 << 20, (4 << 20) - 1}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
		struct pair p;
		char word[100];
		uint8_t *from = malloc(sizes[i][0]), *to = malloc(sizes[i][1] + 16);
		pair_open(&p, 8);
		pair_fill(from, sizes[i][0], 3);
		memset(to, 0x77, sizes[i][1] + 16);
		void *r = pair_irecv(&p, to, sizes[i][1], 3), *s = pair_isend(&p, from, sizes[i][0], 3);
		int done = 0, rc = 0;
		for (uint64_t until = pair_deadline(); !rc; pair_breathe(until)) {
			rc = ncclnet_test(p.n, r, &done, NULL);
			assert_true(rc || !done);
			if (s) {
				int sent = 0;
				OK(ncclnet_test(p.n, s, &sent, NULL));
				s = sent ? NULL : s;
			}
		}
		snprintf(word, sizeof(word), "sent %zu bytes with tag 3, the receive was for %zu", sizes[i][0], sizes[i][1]);
		REFUSED(rc, NCCL_INVALID_USAGE, word);
		for (size_t k = sizes[i][1]; k < sizes[i][1] + 16; k++)
			assert_int_equal(to[k], 0x77);
		REFUSED(ncclnet_test(p.n, r, &done, NULL), NCCL_INVALID_ARGUMENT, "not under way");
		if (s)
			OK(pair_wait(&p, s, NULL));
		pair_message(&p, 5000, 3); /* the next one is not harmed */
		pair_close(&p);
		free(from);
		free(to);
	}
}

enum { GROUPS = NCCL_NET_MAX_REQUESTS, MEMBERS = PLUGIN_RECVS_MAX };

static size_t group_size(int g, int m) { return (size_t)((g * 37 + m * 911) % 9 ? (g * 1237 + m * 10007) % 30000 : 0); }

/* 32 groups of 8 at once; the sender goes through each group's tags in another order; tests in yet another. The buffers are longer than the messages. */
static void groups_in_any_order(void **unused)
{
	for (size_t k = 0; k < RPWI_ARRAY_LEN(some_versions); k++) {
		struct pair p;
		static uint8_t from[GROUPS][MEMBERS][30000], to[GROUPS][MEMBERS][30000];
		void *recvs[GROUPS], *sends[GROUPS * MEMBERS];
		pair_open(&p, some_versions[k]);
		for (int g = 0; g < GROUPS; g++) {
			void *data[MEMBERS], *mhandles[MEMBERS] = {NULL};
			size_t rooms[MEMBERS];
			int tags[MEMBERS];
			for (int m = 0; m < MEMBERS; m++) {
				data[m] = to[g][m];
				rooms[m] = sizeof(to[g][m]);
				tags[m] = 100 + m;
				pair_fill(from[g][m], group_size(g, m), (unsigned)(g * MEMBERS + m));
			}
			recvs[g] = NULL;
			for (uint64_t until = pair_deadline(); !recvs[g]; pair_breathe(until))
				OK(ncclnet_irecv(p.n, p.recv, MEMBERS, data, rooms, tags, mhandles, &recvs[g]));
		}
		for (int g = 0; g < GROUPS; g++)
			for (int m = 0; m < MEMBERS; m++) {
				int who = (m * 3 + g) % MEMBERS; /* 3 and 8 have no common divisor */
				sends[g * MEMBERS + m] = pair_isend(&p, from[g][who], group_size(g, who), 100 + who);
			}
		unsigned left = GROUPS + GROUPS * MEMBERS;
		for (uint64_t until = pair_deadline(); left; pair_breathe(until)) {
			for (int i = GROUPS * MEMBERS - 1; i >= 0; i--) {
				int done = 0, size = -1;
				if (!sends[i])
					continue;
				OK(ncclnet_test(p.n, sends[i], &done, &size));
				if (!done)
					continue;
				int g = i / MEMBERS, who = (i % MEMBERS * 3 + g) % MEMBERS;
				assert_int_equal(size, (int)group_size(g, who));
				sends[i] = NULL;
				left--;
			}
			for (int i = 0; i < GROUPS; i++) {
				int g = (i * 5 + 7) % GROUPS, done = 0, sizes[MEMBERS] = {0};
				if (!recvs[g])
					continue;
				OK(ncclnet_test(p.n, recvs[g], &done, sizes));
				if (!done)
					continue;
				for (int m = 0; m < MEMBERS; m++) {
					assert_int_equal(sizes[m], (int)group_size(g, m));
					pair_verify(to[g][m], group_size(g, m), (unsigned)(g * MEMBERS + m));
				}
				recvs[g] = NULL;
				left--;
			}
		}
		pair_close(&p);
	}
}

/* As many as there may be: one more is not now, and overwrites what the pointer had. */
static void bound_of_requests(void **unused)
{
	struct pair p;
	static uint8_t from[PLUGIN_REQUESTS][8], to[PLUGIN_REQUESTS][8];
	void *sends[PLUGIN_REQUESTS], *recvs[PLUGIN_REQUESTS], *stale = (void *)0x5157a1e0;
	void *mhandle = NULL, *data = to;
	size_t size = 8;
	int tag = 1;
	pair_open(&p, 9);
	for (int i = 0; i < PLUGIN_REQUESTS; i++) {
		pair_fill(from[i], 8, (unsigned)i);
		recvs[i] = pair_irecv(&p, to[i], 8, 1);
		sends[i] = pair_isend(&p, from[i], 8, 1);
	}
	OK(p.n->calls->isend(p.n->table, p.send, from, 8, 1, NULL, &stale));
	assert_null(stale);
	stale = NCCL_NET_OPTIONAL_RECV_COMPLETION;
	OK(p.n->calls->irecv(p.n->table, p.recv, 1, &data, &size, &tag, &mhandle, &stale));
	assert_null(stale);
	for (int i = PLUGIN_REQUESTS - 1; i >= 0; i--) {
		pair_wait_two(&p, recvs[i], sends[i], &(int){0}, &(int){0});
		pair_verify(to[i], 8, (unsigned)i);
	}
	/* Outputs are written where a call fails, too. */
	stale = (void *)0x5157a1e0;
	assert_int_not_equal(p.n->calls->isend(p.n->table, p.recv, from, 8, 1, NULL, &stale), 0);
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	assert_int_not_equal(p.n->calls->reg(p.n->table, p.recv, from, 8, 77, &stale), 0);
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	assert_int_not_equal(
		p.n->calls->connect(p.n->table, p.ctx, 0, (char[NCCL_NET_HANDLE_BYTES]){"x"}, &stale, &(struct nccl_net_device_handle *){NULL}), 0);
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	OK(p.n->calls->accept(p.n->table, p.listen_comm, &stale, &(struct nccl_net_device_handle *){NULL}));
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	OK(p.n->calls->iflush(p.n->table, p.recv, 1, &data, &(int){8}, &mhandle, &stale));
	assert_null(stale);
	pair_message(&p, 9, 1);
	pair_close(&p);
}

static void sizes_of_all_kinds(void **unused)
{
	static const size_t sizes[] = {1, 8, 63, 4096, 8191, 65535, 65536, 65537, 131073, 1 << 20, (8 << 20) + 5};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(some_versions); k++) {
		struct pair p;
		pair_open(&p, some_versions[k]);
		for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++)
			pair_message(&p, sizes[i], (int)i - 3); /* any int is a tag */
		pair_close(&p);
	}
}

/* What was taken goes on by itself, though the sender never calls again: here 8 MiB of messages, which neither socket buffers nor windows hold; and a long one whose receive comes late. */
static void quiet_sender(void **unused)
{
	enum { COUNT = 128, BYTES = 64 << 10 };
	struct pair p;
	uint8_t *from = malloc((size_t)COUNT * BYTES), *to = malloc(BYTES);
	pair_open(&p, 12);
	pair_fill(from, (size_t)COUNT * BYTES, 11);
	for (int i = 0; i < COUNT; i++)
		pair_isend(&p, from + (size_t)i * BYTES, BYTES, i);
	usleep(100000);
	for (int i = 0; i < COUNT; i++) {
		int size = 0;
		OK(pair_wait(&p, pair_irecv(&p, to, BYTES, i), &size));
		assert_int_equal(size, BYTES);
		for (int k = 0; k < BYTES; k += 97)
			assert_int_equal(to[k], pair_byte(11, (size_t)i * BYTES + (size_t)k));
	}
	pair_close(&p);
	free(from);
	free(to);
}

/* ---- ends ---- */

static void assert_within(uint64_t since_ns, unsigned s) { assert_true(rpwi_now_ns() - since_ns < s * RPWI_NS_PER_S); }

static void close_with_work_in_flight(void **unused)
{
	enum { BYTES = 64 << 20 };
	uint8_t *big = calloc(1, BYTES), small[100];
	for (int who = 0; who < 2; who++) {
		struct pair p;
		pair_open(&p, 12);
		void *s = pair_isend(&p, big, BYTES, 1), *r = pair_irecv(&p, small, sizeof(small), 2);
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
		OK(who ? ncclnet_irecv(p.n, p.recv, 1, &data, &size, &tag, &mhandle, &request) : ncclnet_isend(p.n, p.send, small, 8, 1, NULL, &request));
		assert_non_null(request);
		assert_int_equal(pair_wait(&p, request, NULL), NCCL_REMOTE_ERROR);
		began = rpwi_now_ns();
		*(who ? &p.send : &p.recv) = NULL;
		pair_close(&p);
		assert_within(began, 10);
	}
	free(big);
}

/* What was sent before the end can be received after it; close of the sender does not wait for the receives. */
static void close_after_sending(void **unused)
{
	enum { COUNT = 4, BYTES = 3000 }; /* what an endpoint may have unasked for, at first: 16 KiB */
	struct pair p;
	uint8_t from[BYTES], to[BYTES];
	pair_open(&p, 12);
	for (int i = 0; i < COUNT; i++) {
		pair_fill(from, BYTES, (unsigned)i);
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

static void connect_and_accept_end(void **unused)
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
	/* Its time is up in the middle: whom it connects to takes TCP connections, and says nothing. */
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to;
	socklen_t len = sizeof(to);
	struct plugin_handle h;
	memcpy(&h, p.handle, sizeof(h));
	port_of(p.handle, &to);
	to.sin_port = 0;
	assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)) | listen(fd, 5) | getsockname(fd, (struct sockaddr *)&to, &len), 0);
	char host[INET_ADDRSTRLEN];
	snprintf(h.address, sizeof(h.address), "%s:%d", inet_ntop(AF_INET, &to.sin_addr, host, sizeof(host)), ntohs(to.sin_port));
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
static void end_before_accept(void **unused)
{
	for (int who = 0; who < 3; who++) {
		struct pair p;
		int rc = 0, done = 0;
		char data[8] = "data";
		pair_load(&p, 11);
		OK(ncclnet_listen(p.n, p.ctx, 0, p.handle, &p.listen_comm));
		for (uint64_t until = pair_deadline(); !p.send; pair_breathe(until))
			OK(ncclnet_connect(p.n, p.ctx, 0, p.handle, &p.send, NULL));
		if (who) { /* what it sent is received, before and after its end; then the receive hears of it */
			OK(pair_wait(&p, pair_isend(&p, data, sizeof(data), 1), NULL));
			OK(ncclnet_close_send(p.n, p.send));
			usleep(who == 2 ? 200000 : 0);
			for (uint64_t until = pair_deadline(); !p.recv; pair_breathe(until))
				OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
			char to[8] = "";
			OK(pair_wait(&p, pair_irecv(&p, to, sizeof(to), 1), NULL));
			assert_memory_equal(to, data, sizeof(data));
			REFUSED(pair_wait(&p, pair_irecv(&p, to, sizeof(to), 1), NULL), NCCL_REMOTE_ERROR, "RPW_ERR_PEER_GONE");
			p.send = NULL;
		} else {
			OK(ncclnet_close_listen(p.n, p.listen_comm));
			void *request = NULL;
			for (uint64_t until = pair_deadline(); !rc; pair_breathe(until)) {
				if (!request)
					rc = ncclnet_isend(p.n, p.send, data, sizeof(data), 1, NULL, &request);
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
static void several_of_one_listener(void **unused)
{
	struct pair p, more[3];
	pair_open(&p, 12);
	for (int i = 0; i < 3; i++) {
		more[i] = (struct pair){.n = p.n};
		for (uint64_t until = pair_deadline(); !more[i].send || !more[i].recv; pair_breathe(until)) {
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

/* ---- devices ---- */

static void virtual_device(void **unused)
{
	struct pair p;
	struct ncclnet_properties props;
	struct nccl_net_vdevice_v12 one = {.ndevs = 1}, wrong = {.ndevs = 1, .devs = {999}}, none = {0};
	int dev = -1;
	pair_load(&p, 12);
	REFUSED(ncclnet_make_vdevice(p.n, &dev, &wrong), NCCL_INVALID_ARGUMENT, "device 999");
	REFUSED(ncclnet_make_vdevice(p.n, &dev, &none), NCCL_INVALID_ARGUMENT, "1 to 8");
	OK(ncclnet_make_vdevice(p.n, &dev, &one));
	assert_true(dev >= 1);
	OK(ncclnet_properties(p.n, dev, &props));
	assert_int_equal(props.v_props.ndevs, 1);
	assert_int_equal(props.v_props.devs[0], 0);
	REFUSED(ncclnet_properties(p.n, dev + 1, &props), NCCL_INVALID_ARGUMENT, "no device");
	REFUSED(ncclnet_listen(p.n, p.ctx, -1, p.handle, &p.listen_comm), NCCL_INVALID_ARGUMENT, "no device -1");
	assert_null(p.listen_comm);
	OK(ncclnet_listen(p.n, p.ctx, dev, p.handle, &p.listen_comm));
	for (uint64_t until = pair_deadline(); !p.send || !p.recv; pair_breathe(until)) {
		if (!p.send)
			OK(ncclnet_connect(p.n, p.ctx, dev, p.handle, &p.send, NULL));
		if (!p.recv)
			OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
	}
	pair_message(&p, 100000, 1);
	pair_close(&p);
}

/* ---- threads ---- */

enum { PAIRS = 4, ROUNDS = 200, DEPTH = 8 };

static size_t round_size(int i) { return (size_t)(i % 16 ? i * 131 % 9000 : 200000); }

static void *send_many(void *arg)
{
	struct pair *p = arg;
	static const unsigned seed = 77;
	uint8_t *from = malloc(200000);
	pair_fill(from, 200000, seed);
	void *requests[DEPTH] = {NULL};
	for (int i = 0; i < ROUNDS + DEPTH; i++) {
		if (requests[i % DEPTH])
			OK(pair_wait(p, requests[i % DEPTH], NULL));
		requests[i % DEPTH] = i < ROUNDS ? pair_isend(p, from, round_size(i), i) : NULL;
	}
	free(from);
	return NULL;
}

static void *recv_many(void *arg)
{
	struct pair *p = arg;
	uint8_t *to[DEPTH];
	void *requests[DEPTH] = {NULL};
	for (int i = 0; i < DEPTH; i++)
		to[i] = malloc(200000);
	for (int i = 0; i < ROUNDS + DEPTH; i++) {
		if (requests[i % DEPTH]) {
			int size = -1;
			OK(pair_wait(p, requests[i % DEPTH], &size));
			assert_int_equal(size, (int)round_size(i - DEPTH));
			pair_verify(to[i % DEPTH], round_size(i - DEPTH), 77);
		}
		requests[i % DEPTH] = i < ROUNDS ? pair_irecv(p, to[i % DEPTH], round_size(i), i) : NULL;
	}
	for (int i = 0; i < DEPTH; i++)
		free(to[i]);
	return NULL;
}

/* NCCL's service thread: registers on comms that others use, connects, closes. */
static _Atomic bool service_stop;
static void *service(void *arg)
{
	struct pair *pairs = arg;
	char data[100];
	for (int i = 0; !service_stop; i++) {
		void *mhandle = NULL, *comm = i & 1 ? pairs[i % PAIRS].send : pairs[i % PAIRS].recv;
		OK(ncclnet_reg(pairs[0].n, comm, data, sizeof(data), NCCL_PTR_HOST, &mhandle));
		OK(ncclnet_dereg(pairs[0].n, comm, mhandle));
		if (i % 100)
			continue;
		struct pair p = {.n = pairs[0].n, .ctx = pairs[0].ctx};
		pair_connect(&p);
		pair_message(&p, 1000, i);
		OK(ncclnet_close_send(p.n, p.send) | ncclnet_close_recv(p.n, p.recv) | ncclnet_close_listen(p.n, p.listen_comm));
	}
	return NULL;
}

static void comms_and_threads_at_once(void **unused)
{
	struct pair pairs[PAIRS];
	pthread_t senders[PAIRS], receivers[PAIRS], server;
	pair_load(&pairs[0], 12);
	for (int i = 0; i < PAIRS; i++) {
		if (i)
			pairs[i] = (struct pair){.n = pairs[0].n, .ctx = pairs[0].ctx};
		pair_connect(&pairs[i]);
	}
	service_stop = false;
	assert_int_equal(pthread_create(&server, NULL, service, pairs), 0);
	for (int i = 0; i < PAIRS; i++) {
		assert_int_equal(pthread_create(&senders[i], NULL, send_many, &pairs[i]), 0);
		assert_int_equal(pthread_create(&receivers[i], NULL, recv_many, &pairs[i]), 0);
	}
	for (int i = 0; i < PAIRS; i++) {
		pthread_join(senders[i], NULL);
		pthread_join(receivers[i], NULL);
	}
	service_stop = true;
	pthread_join(server, NULL);
	for (int i = PAIRS - 1; i > 0; i--)
		OK(ncclnet_close_send(pairs[i].n, pairs[i].send) | ncclnet_close_recv(pairs[i].n, pairs[i].recv) |
			ncclnet_close_listen(pairs[i].n, pairs[i].listen_comm));
	pair_close(&pairs[0]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_versions),
		cmocka_unit_test(unloaded_and_loaded),
		cmocka_unit_test(handles_refused_by_name),
		cmocka_unit_test(versions_do_not_mix),
		cmocka_unit_test(memory_types),
		cmocka_unit_test(strangers_never_become_comms),
		cmocka_unit_test(truncation_is_an_error),
		cmocka_unit_test(groups_in_any_order),
		cmocka_unit_test(bound_of_requests),
		cmocka_unit_test(sizes_of_all_kinds),
		cmocka_unit_test(quiet_sender),
		cmocka_unit_test(close_with_work_in_flight),
		cmocka_unit_test(close_after_sending),
		cmocka_unit_test(connect_and_accept_end),
		cmocka_unit_test(end_before_accept),
		cmocka_unit_test(several_of_one_listener),
		cmocka_unit_test(virtual_device),
		cmocka_unit_test(comms_and_threads_at_once),
	};
	return pair_main(argc, argv, tests, RPWI_ARRAY_LEN(tests));
}
