/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_keys_test.c - remote keys that nobody gave: garbled, of another version, of another
 * context, and forged so that they are well-formed. hostile_keys_test [TRANSPORT].
 *
 * Two processes: the parent has the memory, between pages that must keep their bytes and pages that
 * nobody may touch; the child has its keys, and does to them what it likes. Each is refused, by
 * name; the memory beside keeps its bytes; and what the keys do allow goes on.
 */
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "boot/hello.h"
#include "msg/wire.h"
#include "pair.h"

#define ALL UINT64_MAX
enum { PATIENCE_MS = 30000, PAGE = 4096, LEN = 2 * PAGE, REFUSALS_MIN = 20 };
enum { OPEN, READ_ONLY, RELEASED, KEYS };

static const char *transport;

#define EXPECT(ok) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "%s:%d: %s by %s: %s\n", __FILE__, __LINE__, #ok, \
				transport, rpw_last_error()); \
			_exit(1); \
		} \
	} while (0)

struct here {
	rpw_context *c;
	rpw_endpoint *ep;
};
static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg) { *(rpw_endpoint **)arg = ep; }

/* ---- the child: one who forges ---- */

struct packed {
	uint8_t bytes[RPW_RKEY_BYTES_MAX];
	size_t len;
};

static struct rkey_head *head_of(struct packed *k) { return (struct rkey_head *)(void *)k->bytes; }

static void checksum(struct packed *k)
{
	uint32_t crc = (uint32_t)crc32(0, k->bytes, (uInt)(k->len - 4));
	memcpy(k->bytes + k->len - 4, &crc, 4);
}

/* The description for the transport of this test. */
static uint8_t *desc_of(struct packed *k, size_t *len)
{
	uint8_t *p = k->bytes + sizeof(struct rkey_head);
	for (unsigned i = 0; i < head_of(k)->descs; i++, p += 9 + p[8])
		if (!strncmp((char *)p, transport, 8)) {
			*len = p[8];
			return p + 9;
		}
	return NULL;
}

/* As src/tran/verbs has it: a check sum of what is before and after it. */
static uint32_t fnv(const uint8_t *p, size_t len)
{
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

static void verbs_checksum(uint8_t *d, size_t len)
{
	uint32_t sum = fnv(d, 24) ^ fnv(d + 28, len - 28) * 3;
	memcpy(d + 24, &sum, 4);
}

/* The transports' own words: how long it is, what may be done with it, the secret in it. */
static void desc_len(struct packed *k, uint64_t v)
{
	size_t n = 0;
	uint8_t *d = desc_of(k, &n);
	if (!strcmp(transport, "verbs")) {
		memcpy(d + 16, &v, 8);
		verbs_checksum(d, n);
	}
}
static void desc_access(struct packed *k, uint8_t access)
{
	size_t n = 0;
	uint8_t *d = desc_of(k, &n);
	if (!strcmp(transport, "verbs")) {
		d[2] = access;
		verbs_checksum(d, n);
	}
}
static void desc_secret(struct packed *k)
{
	static const struct {
		const char *name;
		size_t at;
	} secrets[] = {{"shm", 8}, {"tcp", 8}, {"verbs", 30}};
	size_t n = 0;
	uint8_t *d = desc_of(k, &n);
	for (size_t i = 0; i < 3; i++)
		if (!strcmp(transport, secrets[i].name))
			d[secrets[i].at] ^= 0x10;
	if (!strcmp(transport, "verbs"))
		verbs_checksum(d, n);
}

static void refused(struct here *h, struct packed *k, int status, const char *word)
{
	rpw_rkey *key = NULL;
	EXPECT(rpw_rkey_unpack(h->ep, k->bytes, k->len, &key) == status && !key);
	EXPECT(strstr(rpw_last_error(), word));
}

/* Keys that are refused before they are used. */
static void spoilt(struct here *h, const struct packed *good)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(h->ep, &info);
	for (size_t i = 8; i < good->len; i++) { /* behind magic and version */
		struct packed k = *good;
		k.bytes[i] ^= (uint8_t)(1u << i % 8);
		refused(h, &k, RPW_ERR_PROTOCOL, "garbled");
		EXPECT(strstr(rpw_last_error(), info.peer));
	}
	struct packed k = *good;
	k.bytes[0] ^= 1;
	refused(h, &k, RPW_ERR_PROTOCOL, "no remote key");
	k = *good;
	head_of(&k)->version = 7;
	checksum(&k);
	refused(h, &k, RPW_ERR_NOT_SUPPORTED, "version 7; this side reads version 1");
	k = *good;
	head_of(&k)->domain ^= 1;
	checksum(&k);
	refused(h, &k, RPW_ERR_ACCESS, "packed by another context");
	EXPECT(strstr(rpw_last_error(), info.peer));
	for (k.len = 0; k.len < good->len; k.len++) {
		memcpy(k.bytes, good->bytes, k.len);
		if (k.len >= sizeof(struct rkey_head) + 4)
			checksum(&k);
		refused(h, &k, RPW_ERR_PROTOCOL, "a remote key");
	}
	k = *good;
	head_of(&k)->descs++;
	checksum(&k);
	refused(h, &k, RPW_ERR_PROTOCOL, "does not fit");
	k = *good;
	head_of(&k)->descs--;
	checksum(&k);
	refused(h, &k, RPW_ERR_PROTOCOL, "too many");
	/* One's own memory is not the peer's, and a key is good for the endpoint that it was
	 * unpacked for. */
	static char own[64];
	rpw_memory *m;
	EXPECT(!rpw_memory_register(h->c, own, sizeof(own), RPW_MEMORY_HOST, 7, &m));
	k.len = (size_t)rpw_rkey_pack(m, k.bytes, sizeof(k.bytes));
	refused(h, &k, RPW_ERR_ACCESS, "packed by another context");
	rpw_memory_destroy(m);
}

static int finished(int rc, rpw_request *r)
{
	if (rc == RPW_IN_PROGRESS)
		rc = rpw_request_wait(r, PATIENCE_MS, NULL);
	rpw_request_destroy(r);
	return rc;
}

/* What it does allow still goes. */
static void still_good(struct here *h, const rpw_rkey *key)
{
	static uint64_t round;
	char out[64], in[64];
	rpw_request *r = NULL;
	round++;
	pattern_fill(out, sizeof(out), round);
	int rc = rpw_put(h->ep, out, sizeof(out), key, 128, &r);
	EXPECT(finished(rc, r) == RPW_OK);
	rc = rpw_endpoint_flush(h->ep, &r);
	EXPECT(finished(rc, rc == RPW_IN_PROGRESS ? r : NULL) == RPW_OK);
	r = NULL;
	rc = rpw_get(h->ep, in, sizeof(in), key, 128, &r);
	EXPECT(finished(rc, r) == RPW_OK && !memcmp(in, out, sizeof(in)));
}

static unsigned refusals;

/* Put, get and atomic with a forged key: each is refused, and says what is not registered. */
static void attack(struct here *h, const struct packed *forged, const rpw_rkey *good,
	uint64_t offset, size_t len, const char *what)
{
	rpw_rkey *key = NULL;
	char local[64];
	uint64_t before = 77;
	struct packed k = *forged;
	memset(local, 0x5a, sizeof(local));
	checksum(&k);
	EXPECT(rpw_rkey_unpack(h->ep, k.bytes, k.len, &key) == RPW_OK);
	for (int i = 0; *what; what++, i++) {
		rpw_request *r = NULL;
		int rc = *what == 'p'   ? rpw_put(h->ep, local, len, key, offset, &r)
			 : *what == 'g' ? rpw_get(h->ep, local, len, key, offset, &r)
			 : *what == 'a'
				 ? rpw_fetch_add(h->ep, 1, key, offset & ~7ull, &before, &r)
				 : rpw_compare_swap(h->ep, 0, 1, key, offset & ~7ull, &before, &r);
		EXPECT(finished(rc, rc == RPW_IN_PROGRESS ? r : NULL) == RPW_ERR_ACCESS);
		EXPECT(strstr(rpw_last_error(), "regist"));
		refusals++;
		still_good(h, good);
	}
	for (size_t i = 0; i < sizeof(local); i++)
		EXPECT(local[i] == 0x5a);
	EXPECT(before == 77);
	rpw_rkey_destroy(key);
}

static void forge(struct here *h, struct packed *key, const rpw_rkey *good)
{
	struct packed k = key[OPEN];
	head_of(&k)->len += 1; /* one byte more */
	attack(h, &k, good, LEN, 1, "pg");
	desc_len(&k, LEN + 1);
	attack(h, &k, good, LEN, 1, "pg");
	k = key[OPEN];
	head_of(&k)->len = UINT64_MAX; /* everything, and beyond its end back to its beginning */
	desc_len(&k, UINT64_MAX);
	attack(h, &k, good, UINT64_MAX - 3, 3, "pg");
	attack(h, &k, good, UINT64_MAX - 15, 8, "pgac");
	attack(h, &k, good, LEN, 8, "pgac");
	attack(h, &k, good, LEN - 1, 2, "pg");
	k = key[READ_ONLY];
	head_of(&k)->access = 7; /* more rights */
	desc_access(&k, 7);
	attack(h, &k, good, 0, 8, "pac");
	k = key[OPEN];
	desc_secret(&k); /* another secret; atomics may go as frames, which have the head's */
	head_of(&k)->secret ^= 1;
	attack(h, &k, good, 0, 8, "pgac");
	k = key[RELEASED]; /* memory that is not registered any more */
	attack(h, &k, good, 0, 8, "pgac");
	/* A key without our transport in it: said by name. */
	k = key[OPEN];
	size_t n = 0;
	memcpy(desc_of(&k, &n) - 9, "pigeon\0", 8);
	checksum(&k);
	rpw_rkey *odd;
	rpw_request *r = NULL;
	char byte = 0;
	EXPECT(rpw_rkey_unpack(h->ep, k.bytes, k.len, &odd) == RPW_OK);
	int rc = rpw_put(h->ep, &byte, 1, odd, 0, &r);
	EXPECT(finished(rc, rc == RPW_IN_PROGRESS ? r : NULL) == RPW_ERR_NOT_SUPPORTED &&
		strstr(rpw_last_error(), transport));
	rpw_rkey_destroy(odd);
	/* What the library itself sees, without asking the peer. */
	EXPECT(rpw_put(h->ep, &byte, 1, good, LEN, &r) == RPW_ERR_ACCESS &&
		strstr(rpw_last_error(), "registered 8192 bytes"));
	EXPECT(rpw_put(h->ep, &byte, 1, good, UINT64_MAX, &r) == RPW_ERR_ACCESS);
	EXPECT(refusals >= REFUSALS_MIN);
}

static void child(struct here *h)
{
	struct packed key[KEYS];
	rpw_rkey *good;
	rpw_completion done = RPW_COMPLETION_INIT;
	rpw_request *r;
	for (uint64_t i = 0; i < KEYS; i++) {
		rpw_recv(h->c, h->ep, key[i].bytes, sizeof(key[i].bytes), i, ALL, &r);
		EXPECT(rpw_request_wait(r, PATIENCE_MS, &done) == RPW_OK);
		rpw_request_destroy(r);
		key[i].len = done.length;
	}
	spoilt(h, &key[OPEN]);
	EXPECT(rpw_rkey_unpack(h->ep, key[OPEN].bytes, key[OPEN].len, &good) == RPW_OK);
	still_good(h, good);
	forge(h, key, good);
	rpw_rkey_destroy(good);
}

/* ---- the parent: whose memory it is ---- */

static uint8_t *bed(uint64_t seed)
{
	uint8_t *p = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + PAGE, 4 * PAGE, PROT_READ | PROT_WRITE), 0);
	pattern_fill(p + PAGE, 4 * PAGE, seed);
	return p;
}
/* Its bytes but those from `from` on, so many. */
static void bed_check(const uint8_t *p, uint64_t seed, size_t from, size_t len)
{
	static uint8_t want[4 * PAGE];
	pattern_fill(want, sizeof(want), seed);
	for (size_t i = 0; i < sizeof(want); i++)
		if ((i < from || i >= from + len) && p[PAGE + i] != want[i])
			fail_msg("byte %zd, seen from the registered memory, was written by %s",
				(ssize_t)i - PAGE, transport);
}

static void until_closed(struct here *h)
{
	for (rpw_endpoint_information i = {.size = sizeof(i), .connected = true}; i.connected;
		rpw_endpoint_info(h->ep, &i)) {
		struct pollfd p = {rpw_context_fd(h->c), POLLIN, 0};
		if (rpw_context_arm(h->c) == 0)
			poll(&p, 1, 100);
		rpw_context_progress(h->c);
	}
}

static void forged_keys_reach_nothing(void **state)
{
	int port[2], n = 0;
	struct here h = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	assert_int_equal(pipe(port), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		char address[64];
		rpw_request *r;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		EXPECT(read(port[0], &n, sizeof(n)) == sizeof(n));
		snprintf(address, sizeof(address), "127.0.0.1:%d", n);
		EXPECT(!rpw_context_create(&o, &h.c));
		EXPECT(rpw_endpoint_create(h.c, address, NULL, &h.ep, &r) == RPW_IN_PROGRESS);
		EXPECT(rpw_request_wait(r, PATIENCE_MS, NULL) == RPW_OK);
		rpw_request_destroy(r);
		child(&h);
		rpw_context_destroy(h.c);
		_exit(0);
	}
	rpw_listener *l;
	assert_int_equal(rpw_context_create(&o, &h.c), 0);
	assert_int_equal(rpw_listener_create(h.c, "127.0.0.1:0", accepted, &h.ep, &l), 0);
	n = rpw_listener_port(l);
	assert_int_equal(write(port[1], &n, sizeof(n)), sizeof(n));
	while (!h.ep) {
		struct pollfd p = {rpw_context_fd(h.c), POLLIN, 0};
		if (rpw_context_arm(h.c) == 0)
			assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		rpw_context_progress(h.c);
	}
	/* A page of ours before, the registered two, one of ours behind; then nothing. The second
	 * is at the edge. */
	static const unsigned access[KEYS] = {
		RPW_REMOTE_READ | RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC, RPW_REMOTE_READ,
		RPW_REMOTE_READ | RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC};
	static const size_t at[KEYS] = {2 * PAGE, 3 * PAGE, 2 * PAGE};
	uint8_t *memory[KEYS];
	rpw_memory *m[KEYS];
	struct packed k[KEYS];
	for (uint64_t i = 0; i < KEYS; i++) {
		memory[i] = bed(i + 1);
		assert_int_equal(rpw_memory_register(h.c, memory[i] + at[i], LEN, RPW_MEMORY_HOST,
					 access[i], &m[i]),
			0);
		int len = rpw_rkey_pack(m[i], k[i].bytes, sizeof(k[i].bytes));
		assert_true(len > 0);
		k[i].len = (size_t)len;
	}
	rpw_memory_destroy(m[RELEASED]);
	for (uint64_t i = 0; i < KEYS; i++)
		assert_true(rpw_send(h.ep, k[i].bytes, k[i].len, i, NULL) >= 0);
	until_closed(&h);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	bed_check(memory[OPEN], OPEN + 1, PAGE + 128, 64); /* what still_good puts */
	bed_check(memory[READ_ONLY], READ_ONLY + 1, 0, 0);
	bed_check(memory[RELEASED], RELEASED + 1, 0, 0);
	rpw_context_destroy(h.c);
	for (int i = 0; i < KEYS; i++)
		munmap(memory[i], 6 * PAGE);
	close(port[0]);
	close(port[1]);
}

/* ---- the wrong peer altogether: the sentence is at the endpoint ---- */

/* Connects from a context with that key to `port`; what the endpoint says of it. `other` makes
 * progress, too. */
static void turned_away(int port, const char *key, rpw_context *other, int listener,
	const uint8_t *hello, size_t len, const char *word)
{
	rpw_context_options o = {.size = sizeof(o), .transports = "tcp", .key_file = key};
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_context *c;
	rpw_endpoint *ep;
	rpw_request *r;
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	assert_int_equal(rpw_context_create(&o, &c), 0);
	assert_int_equal(rpw_endpoint_create(c, address,
				 &(rpw_endpoint_options){.size = sizeof(rpw_endpoint_options),
					 .timeout_ms = PATIENCE_MS},
				 &ep, &r),
		RPW_IN_PROGRESS);
	int fd = -1;
	for (int i = 0; i < 20000 && rpw_request_test(r, NULL) == RPW_IN_PROGRESS; i++) {
		rpw_request_wait(r, 1, NULL);
		if (other)
			rpw_context_progress(other);
		else if (fd < 0 && (fd = accept(listener, NULL, NULL)) >= 0)
			assert_int_equal(send(fd, hello, len, MSG_NOSIGNAL), (ssize_t)len);
	}
	assert_int_equal(rpw_request_test(r, NULL), RPW_ERR_REFUSED);
	rpw_endpoint_info(ep, &info);
	assert_int_equal(info.status, RPW_ERR_REFUSED);
	if (!strstr(info.why, word))
		fail_msg("'%s' is not in: %s", word, info.why);
	rpw_request_destroy(r);
	rpw_context_destroy(c);
	if (fd >= 0)
		close(fd);
}

static void another_version_and_another_byte_order(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *word;
	} change[] = {{11, BOOT_VERSION + 1, "install the same ropeway on both"},
		{8, BOOT_BIG_ENDIAN, "endian"}};
	struct tran_facts facts = {.pid = 4, .hostname = "elsewhere", .transports = "tcp"};
	for (size_t i = 0; i < 2; i++) {
		struct sockaddr_in a = {
			.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t room = sizeof(a);
		uint8_t hello[BOOT_HELLO_MAX];
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)) | listen(fd, 4) |
					 getsockname(fd, (struct sockaddr *)&a, &room),
			0);
		size_t len = boot_hello_encode(BOOT_HELLO_LISTENER, &facts, hello);
		hello[change[i].at] = change[i].value;
		turned_away(ntohs(a.sin_port), NULL, NULL, fd, hello, len, change[i].word);
		close(fd);
	}
}

static void key_make(char *path, const char *text)
{
	int fd = mkstemp(path); /* 0600 */
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void the_wrong_key(void **state)
{
	char one[] = "/tmp/ropeway-key-XXXXXX", two[] = "/tmp/ropeway-key-XXXXXX";
	rpw_context *c;
	rpw_listener *l;
	rpw_endpoint *ep = NULL;
	key_make(one, "00112233445566778899aabbccddeeff\n");
	key_make(two, "ffeeddccbbaa99887766554433221100\n");
	rpw_context_options o = {.size = sizeof(o), .transports = "tcp", .key_file = one};
	assert_int_equal(rpw_context_create(&o, &c), 0);
	assert_int_equal(rpw_listener_create(c, "127.0.0.1:0", accepted, &ep, &l), 0);
	turned_away(rpw_listener_port(l), two, c, -1, NULL, 0, "refused the key");
	turned_away(rpw_listener_port(l), NULL, c, -1, NULL, 0, "ROPEWAY_KEY_FILE");
	assert_null(ep);
	rpw_context_destroy(c);
	unlink(one);
	unlink(two);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest once[] = {
		cmocka_unit_test(another_version_and_another_byte_order),
		cmocka_unit_test(the_wrong_key)};
	static const struct CMUnitTest tests[] = {cmocka_unit_test(forged_keys_reach_nothing)};
	static const char *const transports[] = {"shm", "tcp"};
	int failed = 0;
	if (argc > 1) {
		transport = argv[1];
		return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
	}
	for (size_t i = 0; i < 2; i++) {
		transport = transports[i];
		failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
	}
	return failed + cmocka_run_group_tests_name("hello", once, NULL, NULL);
}
