/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptors.c - a program closes rdma_cm's descriptors in ways that no hook sees, and uses their
 * numbers for files: descriptors <case>, or `descriptors bench`, which prints what a write costs.
 * Commands are written by hand (<rdma/rdma_user_cm.h>), as librdmacm would. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PS_TCP = 0x0106 };

static int channel_open(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0, "%s", strerror(errno));
	return fd;
}

struct command {
	struct rdma_ucm_cmd_hdr hdr;
	union {
		struct rdma_ucm_create_id create;
		struct rdma_ucm_destroy_id destroy;
		struct rdma_ucm_bind_ip bind;
		struct rdma_ucm_listen listen;
		struct rdma_ucm_set_option option;
		uint8_t bytes[300];
	} u;
};

/* 0, or the errno. */
static int run(int fd, uint32_t number, struct command *c, size_t in, size_t out)
{
	c->hdr = (struct rdma_ucm_cmd_hdr){.cmd = number, .in = (uint16_t)in, .out = (uint16_t)out};
	ssize_t len = (ssize_t)(sizeof(c->hdr) + in);
	return write(fd, c, (size_t)len) == len ? 0 : errno ? errno : EIO;
}

/* A new id, or UINT32_MAX. */
static uint32_t create_id(int fd)
{
	struct rdma_ucm_create_id_resp resp = {.id = UINT32_MAX};
	struct command c = {.u.create = {.uid = 7, .response = (uintptr_t)&resp, .ps = PS_TCP}};
	return run(fd, RDMA_USER_CM_CMD_CREATE_ID, &c, sizeof(c.u.create), sizeof(resp))
		       ? UINT32_MAX
		       : resp.id;
}

static int destroy_id(int fd, uint32_t id)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct command c = {.u.destroy = {.response = (uintptr_t)&resp, .id = id}};
	return run(fd, RDMA_USER_CM_CMD_DESTROY_ID, &c, sizeof(c.u.destroy), sizeof(resp));
}

/* A listener on a free port of the loopback interface. */
static uint32_t listener(int fd)
{
	uint32_t id = create_id(fd);
	struct command c = {.u.bind = {.id = id}};
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	memcpy(&c.u.bind.addr, &any, sizeof(any));
	int err = run(fd, RDMA_USER_CM_CMD_BIND_IP, &c, sizeof(c.u.bind), 0);
	CHECK(!err, "bind: %s", strerror(err));
	c = (struct command){.u.listen = {.id = id, .backlog = 4}};
	err = run(fd, RDMA_USER_CM_CMD_LISTEN, &c, sizeof(c.u.listen), 0);
	CHECK(!err, "listen: %s", strerror(err));
	return id;
}

static int file_new(void)
{
	char name[] = "/tmp/ropeway-descriptors-XXXXXX";
	int fd = mkstemp(name);
	unlink(name);
	return fd;
}

/* At this number, or the next that is free: a thread of the device's may have taken it meanwhile,
 * for a connection that came. */
static int file_at(int number)
{
	int fd = file_new();
	if (fd == number)
		return fd;
	int at = fcntl(fd, F_DUPFD, number);
	close(fd);
	return at;
}

/* What a file's bytes may look like: each command of rdma_cm, complete, with an address to answer
 * to. All of them reach the file, and nothing else. */
static void check_bytes_reach(int fd)
{
	static uint64_t secret[64];
	uint64_t had[64];
	off_t end = lseek(fd, 0, SEEK_CUR);
	for (unsigned i = 0; i < 64; i++)
		had[i] = secret[i] = 0x9e3779b97f4a7c15ull * (i + 1);
	for (uint32_t number = 0; number <= RDMA_USER_CM_CMD_JOIN_MCAST + 1; number++)
		for (size_t in = 0; in <= sizeof(((struct command *)0)->u); in += 4) {
			struct command c = {.hdr = {.cmd = number,
						    .in = (uint16_t)in,
						    .out = sizeof(secret)}},
				       back;
			for (size_t i = 0; i + 8 <= sizeof(c.u); i += 8)
				memcpy(c.u.bytes + i, &(uint64_t){(uintptr_t)secret}, 8);
			size_t len = sizeof(c.hdr) + in;
			CHECK(write(fd, &c, len) == (ssize_t)len, "command %u: %s", number,
				strerror(errno));
			CHECK(pread(fd, &back, len, end) == (ssize_t)len && !memcmp(&back, &c, len),
				"command %u of %zu bytes is not in the file", number, in);
			end += (off_t)len;
			CHECK(!memcmp(secret, had, sizeof(had)),
				"command %u of %zu bytes wrote to memory", number, in);
			memcpy(secret, had, sizeof(had));
			if (failures)
				return;
		}
	CHECK(lseek(fd, 0, SEEK_END) == end);
	struct stat st;
	CHECK(!fstat(fd, &st) && S_ISREG(st.st_mode), "it is a file");
}

enum { NUMBERS = 3 };

/* Every number that the channel had, its inner ones too, is a file now. */
static void fill_numbers(int first, int files[NUMBERS])
{
	for (int i = 0; i < NUMBERS; i++)
		files[i] = file_at(first + i);
}

static void check_files(int files[NUMBERS])
{
	for (int i = 0; i < NUMBERS; i++) {
		struct stat st;
		CHECK(fcntl(files[i], F_GETFD) >= 0, "number %d was closed by somebody else",
			files[i]);
		CHECK(!fstat(files[i], &st) && S_ISREG(st.st_mode), "number %d is a file",
			files[i]);
	}
}

static void by_close_range(int fd) { CHECK(!syscall(SYS_close_range, fd, fd + NUMBERS - 1, 0)); }
static void by_closefrom(int fd) { closefrom(fd); }
static void by_syscall(int fd)
{
	for (int i = 0; i < NUMBERS; i++)
		syscall(SYS_close, fd + i);
}
static void by_dup2(int fd)
{
	int file = file_new();
	for (int i = 0; i < NUMBERS; i++)
		dup2(file, fd + i);
	close(file);
}

static void after(void (*closes)(int fd), bool writes_first)
{
	int fd = channel_open(), files[NUMBERS];
	if (closes == by_closefrom) /* which takes a device's descriptors as well */
		create_id(fd);
	else
		listener(fd);
	closes(fd);
	fill_numbers(fd, files);
	for (int i = 0; i < NUMBERS && writes_first; i++)
		check_bytes_reach(files[i]);
	check_files(files);
	for (int i = 0; i < NUMBERS; i++) {
		CHECK(!close(files[i]));
		for (int j = i + 1; j < NUMBERS; j++)
			CHECK(fcntl(files[j], F_GETFD) >= 0, "to close %d closed %d", files[i],
				files[j]);
	}
	/* And rdma_cm goes on, on the same number. */
	int again = channel_open();
	uint32_t id = create_id(again);
	CHECK(id != UINT32_MAX && !destroy_id(again, id));
	CHECK(!close(again));
}

static int wait_for(pid_t pid)
{
	int status = -1;
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A forked worker closes everything, and its log gets the number. The parent's listener lives. */
static void child_closes(void)
{
	int fd = channel_open();
	uint32_t id = listener(fd);
	pid_t pid = fork();
	if (!pid) {
		int files[NUMBERS];
		closefrom(fd);
		fill_numbers(fd, files);
		for (int i = 0; i < NUMBERS; i++)
			check_bytes_reach(files[i]);
		check_files(files);
		_exit(failures > 0);
	}
	CHECK(!wait_for(pid));
	CHECK(!destroy_id(fd, id), "the parent's listener is gone");
	CHECK(!close(fd));
}

/* The number's new file is written to by a process that knows of no channel there, but shares the
 * memory of one that does. */
static void vfork_child(bool writes)
{
	int fd = channel_open(), file = file_new();
	uint32_t id = listener(fd);
	pid_t pid = vfork();
	if (!pid) {
		if (writes) {
			static const struct rdma_ucm_cmd_hdr like_destroy = {.cmd = 1, .in = 0};
			dup2(file, fd);
			_exit(write(fd, &like_destroy, sizeof(like_destroy)) !=
				sizeof(like_destroy));
		}
		for (int i = 3; i < 256; i++)
			close(i);
		_exit(0);
	}
	CHECK(!wait_for(pid));
	CHECK(!writes || lseek(file, 0, SEEK_END) == sizeof(struct rdma_ucm_cmd_hdr));
	CHECK(!destroy_id(fd, id), "the parent's listener is gone");
	CHECK(create_id(fd) != UINT32_MAX, "the parent's channel is gone");
	CHECK(!close(fd));
	CHECK(!close(file));
}

/* ---- listeners on all addresses of one family (tgtd has two) ---- */

static int set_option(int fd, uint32_t id, uint32_t name)
{
	int on = 1;
	struct command c = {.u.option = {.optval = (uintptr_t)&on,
				    .id = id,
				    .level = 0,
				    .optname = name,
				    .optlen = sizeof(on)}};
	return run(fd, RDMA_USER_CM_CMD_SET_OPTION, &c, sizeof(c.u.option), 0);
}

static int bind_all(int fd, uint32_t id, int family, int port)
{
	struct command c = {.u.bind = {.id = id}};
	/* the address is all zeros in both, and the port at the same place */
	c.u.bind.addr.sin6_family = (unsigned short)family;
	c.u.bind.addr.sin6_port = htons((uint16_t)port);
	return run(fd, RDMA_USER_CM_CMD_BIND_IP, &c, sizeof(c.u.bind), 0);
}

static int listen_on(int fd, uint32_t id)
{
	struct command c = {.u.listen = {.id = id, .backlog = 4}};
	return run(fd, RDMA_USER_CM_CMD_LISTEN, &c, sizeof(c.u.listen), 0);
}

static void families(void)
{
	enum { AFONLY = RDMA_OPTION_ID_AFONLY, PORT = 23260 };
	int fd = channel_open();
	for (int only = 0; only < 4; only++) { /* bit 0: the first says so, bit 1: the second */
		uint32_t a = create_id(fd), b = create_id(fd), c = create_id(fd);
		CHECK(!(only & 1) || !set_option(fd, a, AFONLY));
		CHECK(!(only & 2) || !set_option(fd, b, AFONLY));
		CHECK(!set_option(fd, c, AFONLY));
		CHECK(!bind_all(fd, a, AF_INET, PORT) && !listen_on(fd, a));
		int err = bind_all(fd, b, AF_INET6, PORT);
		if (only == 3) {
			CHECK(!err, "[::] beside 0.0.0.0: %s", strerror(err));
			CHECK(!listen_on(fd, b));
			CHECK(bind_all(fd, c, AF_INET6, PORT), "[::] twice");
		} else {
			CHECK(err == EADDRINUSE || err == EADDRNOTAVAIL,
				"[::] beside 0.0.0.0, only %d: %s", only, strerror(err));
		}
		CHECK(!destroy_id(fd, a) && !destroy_id(fd, b));
		CHECK(!bind_all(fd, c, AF_INET, PORT), "the port is free again");
		CHECK(!destroy_id(fd, c));
	}
	CHECK(!close(fd));
}

static double now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static double write_costs(int fd)
{
	enum { WRITES = 100000, ROUNDS = 30 };
	double best = 1e9;
	for (int r = 0; r < ROUNDS; r++) {
		double t = now_ns();
		for (int i = 0; i < WRITES; i++)
			if (write(fd, "x", 1) == 2)
				return 0;
		t = (now_ns() - t) / WRITES;
		best = t < best ? t : best;
	}
	return best;
}

/* With a library behind the drop-in whose write only returns (LD_PRELOAD=drop-in:stub), these are
 * the hook's own costs. */
static void bench(void)
{
	int null = open("/dev/null", O_WRONLY), high = fcntl(null, F_DUPFD, 100);
	double before[] = {write_costs(null), write_costs(high)};
	int fd = channel_open();
	double after[] = {write_costs(null), write_costs(high)};
	char text[200];
	int n = snprintf(text, sizeof(text),
		"write to two numbers: %.1f and %.1f ns; with channel %d open: %.1f and %.1f ns\n",
		before[0], before[1], fd, after[0], after[1]);
	syscall(SYS_write, 1, text, n);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	alarm(strcmp(name, "bench") ? 30 : 120);
	if (!strcmp(name, "close_range"))
		after(by_close_range, true);
	else if (!strcmp(name, "closefrom"))
		after(by_closefrom, true);
	else if (!strcmp(name, "dup2"))
		after(by_dup2, true);
	else if (!strcmp(name, "syscall"))
		after(by_syscall, true);
	else if (!strcmp(name, "close_only"))
		after(by_close_range, false);
	else if (!strcmp(name, "child"))
		child_closes();
	else if (!strcmp(name, "vfork"))
		vfork_child(false);
	else if (!strcmp(name, "vfork_write"))
		vfork_child(true);
	else if (!strcmp(name, "families"))
		families();
	else if (!strcmp(name, "bench"))
		bench();
	else
		CHECK(!"a case");
	CHECK_DONE();
}
