/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures: read back with a parser written here, from children that set ROPEWAY_PCAP as a user
 * does. */
#include "lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/guard.h"
#include "io/io.h"

static char dir[] = "/tmp/ropeway-pcapng-XXXXXX";
static char path[256];

struct packet {
	bool outbound;
	uint64_t time_ns;
	uint32_t len;
	const uint8_t *bytes;
	char comment[128];
};
struct capture {
	uint8_t *file;
	size_t len;
	unsigned count;
	struct packet *packets;
};

static void read_options(const uint8_t *b, const uint8_t *end, struct packet *p)
{
	while (b < end) {
		unsigned code = b[0] | b[1] << 8, len = b[2] | b[3] << 8;
		assert_true(b + 4 + len <= end);
		if (code == 2)
			p->outbound = (rpwi_get_le32(b + 4) & 3) == 2;
		if (code == 1)
			snprintf(p->comment, sizeof(p->comment), "%.*s", (int)len,
				(const char *)b + 4);
		if (!code)
			return;
		b += 4 + ((len + 3) & ~3u);
	}
	fail_msg("options without an end");
}

static struct capture read_capture(const char *name)
{
	struct capture c = {0};
	FILE *f = fopen(name, "r");
	assert_non_null(f);
	struct stat st;
	fstat(fileno(f), &st);
	c.file = malloc((size_t)st.st_size + 1);
	c.len = fread(c.file, 1, (size_t)st.st_size, f);
	fclose(f);
	c.packets = calloc(c.len / 32 + 1, sizeof(*c.packets));
	unsigned blocks = 0;
	for (size_t at = 0; at < c.len; blocks++) {
		const uint8_t *b = c.file + at;
		uint32_t type = rpwi_get_le32(b), len = rpwi_get_le32(b + 4);
		assert_int_equal(len % 4, 0);
		assert_true(len >= 12 && at + len <= c.len);
		assert_int_equal(rpwi_get_le32(b + len - 4), len);
		if (!blocks) {
			assert_int_equal(type, 0x0a0d0d0a);
			assert_int_equal(rpwi_get_le32(b + 8), 0x1a2b3c4d);
		} else if (blocks == 1) {
			assert_int_equal(type, 1);
			assert_int_equal(b[8] | b[9] << 8, 101);
		} else {
			assert_int_equal(type, 6);
			struct packet *p = &c.packets[c.count++];
			p->time_ns = (uint64_t)rpwi_get_le32(b + 12) << 32 | rpwi_get_le32(b + 16);
			p->len = rpwi_get_le32(b + 20);
			assert_int_equal(rpwi_get_le32(b + 24), p->len);
			p->bytes = b + 28;
			read_options(b + 28 + ((p->len + 3) & ~3u), b + len - 4, p);
		}
		at += len;
	}
	assert_true(blocks >= 2);
	return c;
}

static void free_capture(struct capture *c) { free(c->file), free(c->packets); }

static const struct rpwi_flow v4 = {.src = {.family = 4, .bytes = {192, 168, 7, 1}},
	.dst = {.family = 4, .bytes = {10, 0, 0, 9}},
	.sport = 0xc123,
	.dport = 4791};
static const struct rpwi_flow v6 = {
	.src = {.family = 6, .bytes = {0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
	.dst = {.family = 6, .bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}},
	.sport = 0xd456,
	.dport = 4791};

/* A valid packet, SEND ONLY number n of `len` payload bytes, tapped in pieces. */
static void tap_one(const struct rpwi_flow *flow, uint32_t n, uint32_t len, bool outbound)
{
	uint8_t hdr[RPWI_HDR_MAX], payload[RPWI_MTU_MAX], tail[8] = {0};
	struct rpwi_pkt p = {.opcode = RPWI_OP_SEND_ONLY,
		.pkey = 0xffff,
		.dqpn = 0x11,
		.psn = n,
		.payload_len = len,
		.pad = (uint8_t)(-len & 3)};
	size_t h = rpwi_pkt_encode(&p, hdr);
	for (uint32_t i = 0; i < len; i++)
		payload[i] = (uint8_t)(n * 31 + i * 7 + (i >> 8));
	struct rpwi_iov parts[3] = {{hdr, h}, {payload, len}, {tail, p.pad + 4u}};
	rpwi_put_le32(tail + p.pad, rpwi_icrc(flow, (uint16_t)n, hdr, h, parts + 1, 1, p.pad));
	rpwi_tap(flow, (uint16_t)n, 64, 2, outbound ? rpwi_tap_clock_ns() : 0, parts, 3);
}

/* Run fn in a child with the environment a user gives; the child ends by exit(), which flushes,
 * unless `how` says otherwise. */
static int child(const char *name, const char *limit, void (*fn)(void))
{
	pid_t pid = fork();
	if (!pid) {
		setenv("ROPEWAY_PCAP", name, 1);
		limit ? setenv("ROPEWAY_PCAP_LIMIT", limit, 1) : unsetenv("ROPEWAY_PCAP_LIMIT");
		int null = open("/dev/null", O_WRONLY);
		dup2(null, 1);
		int rc = rpwi_guard_install() ? 99 : -rpwi_tap_init();
		if (!rc && fn)
			fn();
		exit(rc);
	}
	int st;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

static uint16_t words_sum(uint64_t sum, const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum += (uint64_t)b[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* One packet as it should be: checksums that add up to all ones, and an ICRC that rpwi_icrc_check
 * takes. */
static void check_packet(const struct packet *p, const struct rpwi_flow *flow, uint32_t n,
	uint32_t len, bool outbound)
{
	size_t ip = flow->src.family == 6 ? 40 : 20, addrs = flow->src.family == 6 ? 8 : 12;
	const uint8_t *udp = p->bytes + ip, *data = udp + 8;
	size_t udp_len = 8 + 12 + ((len + 3) & ~3u) + 4;
	assert_int_equal(p->outbound, outbound);
	assert_int_equal(p->len, ip + udp_len);
	if (ip == 20) {
		assert_int_equal(p->bytes[0], 0x45);
		assert_int_equal(p->bytes[1], 2);
		assert_int_equal(rpwi_get_be16(p->bytes + 2), p->len);
		assert_int_equal(rpwi_get_be16(p->bytes + 4), n & 0xffff);
		assert_int_equal(rpwi_get_be16(p->bytes + 6), 0x4000);
		assert_int_equal(p->bytes[8], 64);
		assert_int_equal(p->bytes[9], 17);
		assert_int_equal(words_sum(0, p->bytes, 20), 0xffff);
	} else {
		assert_int_equal(rpwi_get_be32(p->bytes), 0x60200000);
		assert_int_equal(rpwi_get_be16(p->bytes + 4), udp_len);
		assert_int_equal(p->bytes[6], 17);
		assert_int_equal(p->bytes[7], 64);
	}
	assert_memory_equal(p->bytes + addrs, flow->src.bytes, ip == 40 ? 16 : 4);
	assert_memory_equal(
		p->bytes + addrs + (ip == 40 ? 16 : 4), flow->dst.bytes, ip == 40 ? 16 : 4);
	assert_int_equal(rpwi_get_be16(udp), flow->sport);
	assert_int_equal(rpwi_get_be16(udp + 2), 4791);
	assert_int_equal(rpwi_get_be16(udp + 4), udp_len);
	assert_int_equal(
		words_sum(17 + udp_len + words_sum(0, p->bytes + addrs, ip - addrs), udp, udp_len),
		0xffff);
	struct rpwi_pkt q;
	uint16_t id = (uint16_t)n;
	assert_int_equal(rpwi_pkt_decode(data, udp_len - 8, &q), 0);
	assert_int_equal(q.psn, n);
	assert_int_equal(rpwi_icrc_check(flow, data, udp_len - 8, &id), RPWI_ICRC_OK);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(q.payload[i], (uint8_t)(n * 31 + i * 7 + (i >> 8)));
}

static uint32_t len_of(uint32_t n) { return n * 37 % 4097; }

static void tap_both_families(void)
{
	for (uint32_t n = 0; n < 300; n++)
		tap_one(n % 3 ? &v4 : &v6, n, len_of(n), n % 2);
}

static void packets_are_read_back_whole(void **state)
{
	assert_int_equal(child(path, NULL, tap_both_families), 0);
	struct capture c = read_capture(path);
	assert_int_equal(c.count, 300);
	for (uint32_t n = 0; n < 300; n++) {
		check_packet(&c.packets[n], n % 3 ? &v4 : &v6, n, len_of(n), n % 2);
		assert_true(!n || c.packets[n].time_ns + RPWI_NS_PER_S >= c.packets[n - 1].time_ns);
	}
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	uint64_t now_ns = (uint64_t)ts.tv_sec * RPWI_NS_PER_S, day_ns = 86400 * RPWI_NS_PER_S;
	/* the unit is right */
	assert_in_range(c.packets[0].time_ns, now_ns - day_ns, now_ns + day_ns);
	free_capture(&c);
}

static void tap_long(void)
{
	for (uint32_t n = 0; n < 1000; n++)
		tap_one(&v4, n, len_of(n), true);
	rpwi_tap_flush();
	for (uint32_t n = 1000; n < 1234; n++)
		tap_one(&v4, n, len_of(n), true);
}

static void a_limit_keeps_the_first_and_the_last(void **state)
{
	assert_int_equal(child(path, "20", tap_long), 0);
	struct capture c = read_capture(path);
	assert_int_equal(c.count, 40);
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t n = i < 20 ? i : 1234 - 40 + i;
		check_packet(&c.packets[i], &v4, n, len_of(n), true);
		assert_string_equal(c.packets[i].comment,
			i == 20 ? "1194 packets before this one were left out (ROPEWAY_PCAP_LIMIT)"
				: "");
	}
	free_capture(&c);
}

static void tap_30(void)
{
	for (uint32_t n = 0; n < 30; n++)
		tap_one(&v4, n, 100, false);
}

static void a_limit_not_reached_leaves_nothing_out(void **state)
{
	static const char *const limits[] = {"20", "29", "30", "1000"};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(limits); i++) {
		IN_CASE("row", i);
		assert_int_equal(child(path, limits[i], tap_30), 0);
		struct capture c = read_capture(path);
		assert_int_equal(c.count, 30);
		for (uint32_t n = 0; n < 30; n++) {
			check_packet(&c.packets[n], &v4, n, 100, false);
			assert_string_equal(c.packets[n].comment, "");
		}
		free_capture(&c);
	}
}

static void wrong_settings_fail(void **state)
{
	assert_int_equal(child(path, "0", NULL), EINVAL);
	assert_int_equal(child(path, "-3", NULL), EINVAL);
	assert_int_equal(child(path, "many", NULL), EINVAL);
	assert_int_equal(child("/nonexistent/x.pcapng", NULL, NULL), ENOENT);
}

static void tap_disabled(void)
{
	if (rpwi_tap_enabled)
		abort();
	tap_one(&v4, 1, 10, true);
}
static void without_a_name_nothing_happens(void **state)
{
	assert_int_equal(child("", NULL, tap_disabled), 0);
}

static void fork_in_the_middle(void)
{
	tap_one(&v4, 0, 10, true);
	pid_t pid = fork();
	int st;
	if (!pid) {
		tap_one(&v4, 50, 50, true);
		tap_one(&v4, 51, 51, true);
		exit(0);
	}
	waitpid(pid, &st, 0);
	tap_one(&v4, 1, 11, true);
	if (st)
		abort();
	printf("%d\n", (int)pid);
	FILE *f = fopen("child_pid", "w");
	fprintf(f, "%d %d", (int)getpid(), (int)pid);
	fclose(f);
}

static void a_forked_child_writes_nothing_without_p(void **state)
{
	assert_int_equal(child(path, NULL, fork_in_the_middle), 0);
	struct capture c = read_capture(path);
	assert_int_equal(c.count, 2);
	check_packet(&c.packets[0], &v4, 0, 10, true);
	check_packet(&c.packets[1], &v4, 1, 11, true);
	free_capture(&c);
}

static void a_forked_child_writes_its_own_with_p(void **state)
{
	int parent, kid;
	char name[300];
	assert_int_equal(child("cap-%p.pcapng", NULL, fork_in_the_middle), 0);
	FILE *f = fopen("child_pid", "r");
	assert_int_equal(fscanf(f, "%d %d", &parent, &kid), 2);
	fclose(f);
	snprintf(name, sizeof(name), "cap-%d.pcapng", parent);
	struct capture c = read_capture(name);
	assert_int_equal(c.count, 2);
	check_packet(&c.packets[1], &v4, 1, 11, true);
	free_capture(&c);
	unlink(name);
	snprintf(name, sizeof(name), "cap-%d.pcapng", kid);
	c = read_capture(name);
	assert_int_equal(c.count, 2);
	check_packet(&c.packets[0], &v4, 50, 50, true);
	check_packet(&c.packets[1], &v4, 51, 51, true);
	free_capture(&c);
	unlink(name);
}

static void second_process_same_name(void)
{
	tap_one(&v4, 3, 33, true);
	rpwi_tap_flush();
	/* Another program with the same environment, while this one is writing. */
	if (system("./again")) /* a link to this very program: see main */
		abort();
	tap_one(&v4, 4, 44, true);
}

static void two_processes_do_not_overwrite_each_other(void **state)
{
	char self[256], command[400];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	assert_true(n > 0);
	self[n] = 0;
	assert_int_equal(symlink(self, "again"), 0);
	assert_int_equal(child("same.pcapng", NULL, second_process_same_name), 0);
	struct capture c = read_capture("same.pcapng");
	assert_int_equal(c.count, 2);
	check_packet(&c.packets[0], &v4, 3, 33, true);
	check_packet(&c.packets[1], &v4, 4, 44, true);
	free_capture(&c);
	snprintf(command, sizeof(command), "mv same.[0-9]*.pcapng other.pcapng");
	assert_int_equal(system(command), 0);
	c = read_capture("other.pcapng");
	assert_int_equal(c.count, 1);
	check_packet(&c.packets[0], &v6, 9, 99, false);
	free_capture(&c);
	unlink("again"), unlink("same.pcapng"), unlink("other.pcapng");
}

static void *tap_thread(void *arg)
{
	uint32_t base = (uint32_t)(uintptr_t)arg;
	for (uint32_t n = base; n < base + 1000; n++)
		tap_one(&v4, n, n % 700, true);
	return NULL;
}

static void tap_from_threads(void)
{
	pthread_t t[4];
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, tap_thread, (void *)(i * 10000));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

static void threads_write_whole_packets(void **state)
{
	uint32_t next[4] = {0};
	assert_int_equal(child(path, NULL, tap_from_threads), 0);
	struct capture c = read_capture(path);
	assert_int_equal(c.count, 4000);
	for (uint32_t i = 0; i < c.count; i++) {
		uint32_t psn = rpwi_get_be24(c.packets[i].bytes + 28 + 9), t = psn / 10000;
		assert_in_range(t, 0, 3);
		assert_int_equal(psn % 10000, next[t]++);
		check_packet(&c.packets[i], &v4, psn, psn % 700, true);
	}
	free_capture(&c);
}

static void tap_and_die(void)
{
	tap_30();
	rpwi_tap_flush();
	tap_one(&v4, 30, 10, true);
	raise(SIGKILL);
}

static void what_was_flushed_survives_a_kill(void **state)
{
	assert_int_equal(child(path, NULL, tap_and_die), -SIGKILL);
	struct capture c = read_capture(path); /* also fails on a half written block */
	assert_in_range(c.count, 30, 31);
	free_capture(&c);
}

static int setup(void **state)
{
	if (!mkdtemp(dir) || chdir(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/x.pcapng", dir);
	return 0;
}

static int teardown(void **state)
{
	unlink(path), unlink("child_pid");
	return rmdir(dir);
}

int main(int argc, char **argv)
{
	if (strstr(argv[0], "again")) {
		if (rpwi_guard_install() || rpwi_tap_init())
			return 1;
		tap_one(&v6, 9, 99, false);
		return 0;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_are_read_back_whole),
		cmocka_unit_test(a_limit_keeps_the_first_and_the_last),
		cmocka_unit_test(a_limit_not_reached_leaves_nothing_out),
		cmocka_unit_test(wrong_settings_fail),
		cmocka_unit_test(without_a_name_nothing_happens),
		cmocka_unit_test(a_forked_child_writes_nothing_without_p),
		cmocka_unit_test(a_forked_child_writes_its_own_with_p),
		cmocka_unit_test(two_processes_do_not_overwrite_each_other),
		cmocka_unit_test(threads_write_whole_packets),
		cmocka_unit_test(what_was_flushed_survives_a_kill),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
