/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - see pair.h. */
#include "pair.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t ignored = write(fd, text, strlen(text));
	(void)ignored;
	close(fd);
}

void ns_enter(void)
{
	char uid[64], gid[64];
	snprintf(uid, sizeof(uid), "0 %u 1", geteuid());
	snprintf(gid, sizeof(gid), "0 %u 1", getegid());
	if (unshare(CLONE_NEWNET)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
			fprintf(stderr,
				"SKIPPED: no network namespace can be made here (%s): these tests "
				"did not run\n",
				strerror(errno));
			exit(77);
		}
		put("/proc/self/setgroups", "deny");
		put("/proc/self/uid_map", uid);
		put("/proc/self/gid_map", gid);
	}
	loopback_set(true);
}

void loopback_set(bool up)
{
	struct ifreq ifr = {.ifr_flags = (short)(up ? IFF_UP | IFF_RUNNING : 0)};
	strcpy(ifr.ifr_name, "lo");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr)) {
		fprintf(stderr, "SKIPPED: loopback cannot be set in a new network namespace (%s)\n",
			strerror(errno));
		exit(77);
	}
	close(fd);
}

static int log_fd = -1, log_stderr = -1, log_level;

void log_begin(enum rpwi_log_level level)
{
	fflush(stderr);
	log_fd = memfd_create("log", MFD_CLOEXEC);
	log_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	log_level = rpwi_log_level_cached;
	rpwi_log_level_cached = (int)level;
	dup2(log_fd, STDERR_FILENO);
}

const char *log_end(void)
{
	static char text[65536];
	dup2(log_stderr, STDERR_FILENO);
	close(log_stderr);
	rpwi_log_level_cached = log_level;
	ssize_t n = pread(log_fd, text, sizeof(text) - 1, 0);
	close(log_fd);
	text[RPWI_MAX(n, 0)] = 0;
	return text;
}

/* ---- up-calls ---- */

static struct peer *peer_new(struct side *s)
{
	assert_true(s->n < PEERS_MAX);
	struct peer *p = &s->peer[s->n++];
	p->side = s;
	return p;
}

static void on_accepted(void *user, void *listener_user, struct boot_conn *c)
{
	struct side *s = user;
	assert_ptr_equal(listener_user, s);
	s->accepted++;
	if (s->close_in_accepted) {
		boot_close(c);
		return;
	}
	struct peer *p = peer_new(s);
	p->c = c;
	p->connected = true;
	boot_set_user(c, p);
}

static void end(struct peer *p, int status, const char *why)
{
	p->status = status;
	snprintf(p->why, sizeof(p->why), "%s", why);
}

static void on_connected(void *user, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	const char *why = e ? e->text : "";
	struct peer *p = user;
	assert_false(p->connected || p->gone);
	p->side->connected++;
	end(p, status, why);
	p->connected = !status;
	if (status) {
		p->gone = true;
		p->side->ended++;
		boot_close(p->c);
		p->c = NULL;
	}
}

static void on_message(void *user, unsigned type, const uint8_t *data, size_t len)
{
	struct peer *p = user;
	assert_non_null(p->c);
	for (size_t i = 0; i < len; i++)
		p->bad += data[i] != pattern_byte(type, i);
	p->messages++;
	p->bytes += len;
	p->last_type = type;
	if (p->close_in_message) {
		boot_close(p->c);
		p->c = NULL;
	}
}

static void on_gone(void *user, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	const char *why = e ? e->text : "";
	struct peer *p = user;
	assert_non_null(p->c);
	assert_false(p->gone);
	end(p, status, why);
	p->gone = true;
	p->side->ended++;
	boot_close(p->c);
	p->c = NULL;
}

static const struct boot_up up = {
	.accepted = on_accepted, .connected = on_connected, .message = on_message, .gone = on_gone};

/* ---- sides ---- */

struct side *side_new(const char *key_file)
{
	struct side *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	boot_own_facts(&s->own);
	strcpy(s->own.transports, "shm,tcp");
	strcpy(s->own.hostname, "the-host-of-a-side"); /* found by chance in no random bytes */
	if (boot_new(&up, s, &s->own, key_file, &s->b))
		fail_msg("boot_new: %s", rpwi_last_error()->text);
	return s;
}

void side_free(struct side *s)
{
	boot_free(s->b);
	free(s);
}

struct peer *side_connect(struct side *s, const char *host, int port, unsigned timeout_ms)
{
	char address[300];
	struct peer *p = peer_new(s);
	snprintf(address, sizeof(address), "%s:%d", host, port);
	if (boot_connect(s->b, address, timeout_ms, p, &p->c))
		fail_msg("boot_connect: %s", rpwi_last_error()->text);
	return p;
}

struct boot_listener *side_listen(struct side *s, const char *address)
{
	struct boot_listener *l = NULL;
	if (boot_listen(s->b, address, s, &l))
		fail_msg("boot_listen: %s", rpwi_last_error()->text);
	return l;
}

/* As a program would: sleep on the descriptors until the deadline. */
static void wait_for_work(struct side *a, struct side *b)
{
	struct pollfd p[2] = {{.fd = boot_fd(a->b), .events = POLLIN},
		{.fd = b ? boot_fd(b->b) : -1, .events = POLLIN}};
	uint64_t deadline = RPWI_MIN(boot_deadline(a->b), b ? boot_deadline(b->b) : RPWI_NEVER),
		 now = rpwi_now_ns();
	int ms = deadline <= now ? 0
		 : deadline == RPWI_NEVER
			 ? 20
			 : (int)RPWI_MIN((deadline - now) / RPWI_NS_PER_MS + 1, 20ull);
	poll(p, 2, ms);
}

bool until(struct side *a, struct side *b, bool (*what)(void *), void *arg)
{
	uint64_t give_up = rpwi_now_ns() + 30 * RPWI_NS_PER_S;
	while (!what(arg)) {
		unsigned did = boot_progress(a->b) + (b ? boot_progress(b->b) : 0);
		if (!did && rpwi_now_ns() > give_up)
			return false;
		if (!did)
			wait_for_work(a, b);
	}
	return true;
}

int send_pattern(struct boot_conn *c, unsigned type, size_t len)
{
	static uint8_t data[BOOT_MESSAGE_MAX + 1];
	for (size_t i = 0; i < len; i++)
		data[i] = pattern_byte(type, i);
	return boot_send(c, type, data, len);
}

/* ---- strangers ---- */

int raw_connect(int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

bool raw_send(int fd, const void *p, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, (const uint8_t *)p + at, len - at, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

size_t raw_drain(int fd, struct side *s, uint8_t *out, size_t room)
{
	size_t len = 0;
	uint64_t give_up = rpwi_now_ns() + 30 * RPWI_NS_PER_S;
	for (;;) {
		uint8_t byte[256];
		ssize_t n = recv(fd, byte, sizeof(byte), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return len;
		if (n > 0) {
			memcpy(out + len, byte, RPWI_MIN((size_t)n, room - len));
			len += RPWI_MIN((size_t)n, room - len);
			continue;
		}
		if (rpwi_now_ns() > give_up)
			fail_msg("the other side does not close");
		boot_progress(s->b);
		usleep(1000);
	}
}
