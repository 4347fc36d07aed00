/* SPDX-License-Identifier: BSD-3-Clause */
/* near_test.c - what each part of src/near promises to both of its users, the lanes of the device
 * and the transport of messages; with a process on the other side that means no good. */
#include "lib/test.h"
#include "lib/users.h"
#include "base/base.h"
#include "near/memory.h"
#include "near/name.h"
#include "near/process.h"
#include "near/rights.h"
#include "lib/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif

enum { BYTES = 8192, WAIT_MS = 60000 };

/* ---- memory ---- */

static void memory_is_shared_and_stays_as_large(void **state)
{
	void *at;
	int fd = rpwi_memory_make("near-test", BYTES, RPWI_MEMORY_WRITE, &at);
	assert_true(fd >= 0);
	assert_int_equal(rpwi_memory_size(fd), BYTES);
	uint8_t *theirs = rpwi_memory_take(fd, BYTES, RPWI_MEMORY_WRITE);
	assert_non_null(theirs);
	for (unsigned i = 0; i < BYTES; i++)
		theirs[i] = (uint8_t)(i * 31 + 7);
	assert_memory_equal(at, theirs, BYTES);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, (off_t)2 * BYTES), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	munmap(theirs, BYTES);
	munmap(at, BYTES);
	close(fd);
}

static void only_the_maker_writes_what_is_for_reading(void **state)
{
	void *at;
	int fd = rpwi_memory_make("near-test", BYTES, RPWI_MEMORY_READ, &at);
	assert_true(fd >= 0);
	assert_null(rpwi_memory_take(fd, BYTES, RPWI_MEMORY_WRITE));
	const uint8_t *theirs = rpwi_memory_take(fd, BYTES, RPWI_MEMORY_READ);
	assert_non_null(theirs);
	assert_int_equal(mprotect((void *)(uintptr_t)theirs, BYTES, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	memset(at, 0xa5, BYTES);
	assert_int_equal(theirs[BYTES - 1], 0xa5);
	munmap((void *)(uintptr_t)theirs, BYTES);
	munmap(at, BYTES);
	close(fd);
}

static void memory_of_another_size_is_not_taken(void **state)
{
	void *at;
	int fd = rpwi_memory_make("near-test", BYTES, RPWI_MEMORY_WRITE, &at);
	assert_true(fd >= 0);
	assert_null(rpwi_memory_take(fd, BYTES - 1, RPWI_MEMORY_READ));
	assert_null(rpwi_memory_take(fd, BYTES + 1, RPWI_MEMORY_READ));
	assert_null(rpwi_memory_take_part(fd, BYTES + 1, RPWI_MEMORY_READ));
	assert_null(rpwi_memory_take_part(fd, 0, RPWI_MEMORY_READ));
	assert_null(rpwi_memory_take_part(fd, SIZE_MAX, RPWI_MEMORY_READ));
	void *part = rpwi_memory_take_part(fd, BYTES / 2, RPWI_MEMORY_READ);
	assert_non_null(part);
	munmap(part, BYTES / 2);
	munmap(at, BYTES);
	close(fd);
}

/* Each could be taken from under us, or is none. */
static void unsound_memory_is_not_taken(void **state)
{
	char path[] = "/tmp/near-test-XXXXXX";
	int file = mkstemp(path), null = open("/dev/null", O_RDWR | O_CLOEXEC), pipes[2];
	int bare = memfd_create("near-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int grows = memfd_create("near-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int huge = memfd_create("near-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	assert_true(file >= 0 && null >= 0 && bare >= 0 && grows >= 0 && !pipe(pipes));
	unlink(path);
	assert_int_equal(
		ftruncate(file, BYTES) | ftruncate(bare, BYTES) | ftruncate(grows, BYTES), 0);
	assert_int_equal(fcntl(grows, F_ADD_SEALS, F_SEAL_GROW), 0);
	if (huge >= 0) /* a kernel without them refuses, which is as good */
		assert_int_equal(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	const int unsound[] = {-1, file, null, bare, grows, huge, pipes[0]};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(unsound); i++) {
		IN_CASE("row", i);
		if (rpwi_memory_size(unsound[i]) >= 0 ||
			rpwi_memory_take(unsound[i], BYTES, RPWI_MEMORY_READ) ||
			rpwi_memory_take_part(unsound[i], 1, RPWI_MEMORY_READ))
			fail_msg("descriptor %u of the list was taken", i);
		if (unsound[i] >= 0)
			close(unsound[i]);
	}
	close(pipes[1]);
}

static void a_limit_of_files_is_an_error_and_no_signal(void **state)
{
	struct rlimit was, small = {BYTES / 2, RLIM_INFINITY};
	void *at;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small.rlim_max = was.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	unsigned before = open_descriptors();
	assert_int_equal(rpwi_memory_make("near-test", BYTES, RPWI_MEMORY_WRITE, &at), -EFBIG);
	assert_null(at);
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
}

/* The child goes on with a copy; what it writes is not seen here. */
static void a_child_leaves_memory_to_its_parent(void **state)
{
	void *at;
	int status, fd = rpwi_memory_make("near-test", BYTES, RPWI_MEMORY_WRITE, &at);
	assert_true(fd >= 0);
	uint8_t *p = at;
	memset(p, 0x5a, BYTES);
	pid_t child = fork();
	if (!child) {
		rpwi_memory_leave(p, BYTES, BYTES / 2);
		bool good = p[0] == 0x5a && p[BYTES / 2 - 1] == 0x5a && !p[BYTES / 2];
		memset(p, 0x11, BYTES);
		_exit(good && p[7] == 0x11 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	for (unsigned i = 0; i < BYTES; i++)
		assert_int_equal(p[i], 0x5a);
	munmap(at, BYTES);
	close(fd);
}

/* ---- rights ---- */

static void make_pair(int ends[2])
{
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
}

static void descriptors_come_in_order_and_closed_on_exec(void **state)
{
	int ends[2], fds[RPWI_RIGHTS_MAX], mine[RPWI_RIGHTS_MAX];
	char got[16] = "";
	struct iovec to = {got, sizeof(got)};
	make_pair(ends);
	for (unsigned n = 0; n <= RPWI_RIGHTS_MAX; n++) {
		for (unsigned i = 0; i < n; i++) {
			void *at;
			size_t bytes = BYTES * (size_t)(i + 1);
			mine[i] = rpwi_memory_make("near-test", bytes, RPWI_MEMORY_READ, &at);
			assert_true(mine[i] >= 0);
			munmap(at, bytes);
		}
		assert_int_equal(rpwi_rights_send(ends[0], "word", 5, mine, n), 0);
		assert_int_equal(rpwi_rights_recv(ends[1], &to, 1, fds), 5);
		assert_string_equal(got, "word");
		for (unsigned i = 0; i < RPWI_RIGHTS_MAX; i++) {
			if (i >= n) {
				assert_int_equal(fds[i], -1);
				continue;
			}
			assert_int_equal(rpwi_memory_size(fds[i]), BYTES * (i + 1));
			assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
		}
		rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
		rpwi_rights_close(mine, n);
	}
	assert_int_equal(rpwi_rights_recv(ends[1], &to, 1, fds), -EAGAIN);
	close(ends[0]);
	assert_int_equal(rpwi_rights_recv(ends[1], &to, 1, fds), 0);
	close(ends[1]);
}

/* More than were agreed on, with too long a message, and with an empty one. */
static void descriptors_that_nobody_wants_are_closed(void **state)
{
	enum { MANY = 60 };
	int ends[2], fds[RPWI_RIGHTS_MAX], many[MANY];
	char got[4], sent[64] = {0};
	struct iovec to = {got, sizeof(got)};
	make_pair(ends);
	for (unsigned i = 0; i < MANY; i++)
		many[i] = ends[0];
	unsigned before = open_descriptors();
	const struct {
		size_t len;
		ssize_t want;
	} cases[] = {{sizeof(got), sizeof(got)}, {sizeof(sent), -EMSGSIZE}, {0, 0}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		union {
			char room[CMSG_SPACE(sizeof(many))];
			struct cmsghdr align;
		} control = {{0}};
		struct iovec from = {sent, cases[i].len};
		struct msghdr h = {.msg_iov = &from,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(many));
		memcpy(CMSG_DATA(c), many, sizeof(many));
		assert_int_equal(sendmsg(ends[0], &h, 0), cases[i].len);
		ssize_t n = rpwi_rights_recv(ends[1], &to, 1, fds);
		if (n != cases[i].want)
			fail_msg("%zu bytes: %zd, wanted %zd", cases[i].len, n, cases[i].want);
		rpwi_rights_close(fds, n > 0 ? RPWI_RIGHTS_MAX : 0);
		assert_int_equal(open_descriptors(), before);
	}
	close(ends[0]);
	close(ends[1]);
}

/* ---- names ---- */

static const char *own_name(char name[RPWI_NAME_MAX])
{
	snprintf(name, RPWI_NAME_MAX, "ropeway/test/%d", (int)getpid());
	return name;
}

static void a_name_has_one_listener_and_tells_whose_it_is(void **state)
{
	char name[RPWI_NAME_MAX], text[RPWI_WHO_TEXT], want[RPWI_WHO_TEXT];
	struct rpwi_who who;
	own_name(name);
	assert_int_equal(rpwi_name_connect(name, &who), -ECONNREFUSED);
	int listener = rpwi_name_listen(name);
	assert_true(listener >= 0);
	assert_int_equal(rpwi_name_listen(name), -EADDRINUSE);
	int fd = rpwi_name_connect(name, &who);
	assert_true(fd >= 0);
	assert_int_equal(who.pid, getpid());
	assert_int_equal(who.uid, geteuid());
	assert_true(who.us);
	snprintf(want, sizeof(want), "process %d (", (int)getpid());
	assert_true(!strncmp(rpwi_who_text(&who, text), want, strlen(want)));
	int end = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(end >= 0);
	assert_int_equal(rpwi_who_of(end, &who), 0);
	assert_int_equal(who.pid, getpid());
	close(end);
	close(fd);
	close(listener);
	assert_int_equal(rpwi_name_connect(name, &who), -ECONNREFUSED);
}

/* The kernel names who has listened, not who wrote last. */
static void a_stranger_is_told_from_us(void **state)
{
	char name[RPWI_NAME_MAX];
	struct rpwi_who who;
	int ready[2];
	if (!users_can_be_others("a stranger's socket"))
		return;
	own_name(name);
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (!child) {
		alarm(WAIT_MS / 1000);
		bool good = !setresuid(4242, 4242, 4242) && rpwi_name_listen(name) >= 0 &&
			    write(ready[1], "x", 1) == 1;
		if (good)
			pause();
		_exit(1);
	}
	char c;
	assert_int_equal(read(ready[0], &c, 1), 1);
	int fd = rpwi_name_connect(name, &who);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(fd >= 0);
	assert_int_equal(who.pid, child);
	assert_int_equal(who.uid, 4242);
	assert_false(who.us);
	close(fd);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(rpwi_name_connect(name, &who), -ECONNREFUSED); /* nothing is left */
}

/* ---- processes ---- */

static bool turns(bool (*says)(pid_t), pid_t pid, bool want)
{
	for (unsigned ms = 0; ms < WAIT_MS && says(pid) != want; ms++)
		usleep(1000);
	return says(pid) == want;
}

static void a_process_is_seen_to_stop_go_on_and_end(void **state)
{
	pid_t child = fork();
	if (!child) {
		alarm(WAIT_MS / 1000);
		for (;;)
			pause();
	}
	int fd = rpwi_process_open(child);
	assert_true(fd >= 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	assert_false(rpwi_process_is_stopped(child));
	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_true(turns(rpwi_process_seems_stopped, child, true));
	assert_true(turns(rpwi_process_is_stopped, child, true));
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(kill(child, SIGCONT), 0);
	assert_true(turns(rpwi_process_is_stopped, child, false));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(fd);
	assert_int_equal(rpwi_process_open(child), -ESRCH);
	assert_false(rpwi_process_is_stopped(child));
	assert_false(rpwi_process_is_stopped(0));
}

/* Bytes of a child that runs, by its number. Nothing is read that is unmapped, or of a process that
 * has ended, or has another word. */
static void memory_of_a_process_is_read_and_written(void **state)
{
	enum { WORD = 7 };
	static uint64_t word = WORD;
	static uint8_t theirs[BYTES], mine[BYTES];
	memset(theirs, 0x5a, sizeof(theirs));
	pid_t child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	assert_true(child > 0);
	word = 0; /* here; there it stays */
	memset(theirs, 0, sizeof(theirs));
	assert_int_equal(rpwi_process_read(child, mine, theirs, BYTES), BYTES);
	assert_int_equal(mine[0], 0x5a);
	assert_int_equal(mine[BYTES - 1], 0x5a);
	memset(mine, 0xa5, sizeof(mine));
	assert_int_equal(rpwi_process_write(child, theirs + 1, mine, BYTES - 2), BYTES - 2);
	struct iovec to[3] = {{mine, 2}, {mine + 2, BYTES - 2}}, from[2] = {{theirs, BYTES}};
	assert_true(rpwi_process_readv(child, to, 2, from, 1, BYTES, &word, WORD));
	assert_int_equal(mine[0], 0x5a);
	assert_int_equal(mine[1], 0xa5);
	assert_int_equal(mine[BYTES - 2], 0xa5);
	assert_int_equal(mine[BYTES - 1], 0x5a);
	assert_int_equal(theirs[1], 0); /* ours is ours */
	assert_false(rpwi_process_readv(child, to, 2, from, 1, BYTES, &word, WORD + 1));
	assert_false(rpwi_process_readv(child, to, 2, from, 1, BYTES, NULL, WORD));
	assert_false(rpwi_process_readv(getpid(), to, 2, from, 1, BYTES, &word, WORD));
	from[0].iov_base = NULL;
	assert_false(rpwi_process_readv(child, to, 2, from, 1, BYTES, &word, WORD));
	assert_int_equal(rpwi_process_read(child, mine, NULL, 8), -EFAULT);
	assert_int_equal(rpwi_process_write(child, NULL, mine, 8), -EFAULT);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(rpwi_process_read(child, mine, theirs, BYTES), -ESRCH);
	assert_int_equal(rpwi_process_write(child, theirs, mine, BYTES), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_shared_and_stays_as_large),
		cmocka_unit_test(only_the_maker_writes_what_is_for_reading),
		cmocka_unit_test(memory_of_another_size_is_not_taken),
		cmocka_unit_test(unsound_memory_is_not_taken),
		cmocka_unit_test(a_limit_of_files_is_an_error_and_no_signal),
		cmocka_unit_test(a_child_leaves_memory_to_its_parent),
		cmocka_unit_test(descriptors_come_in_order_and_closed_on_exec),
		cmocka_unit_test(descriptors_that_nobody_wants_are_closed),
		cmocka_unit_test(a_name_has_one_listener_and_tells_whose_it_is),
		cmocka_unit_test(a_stranger_is_told_from_us),
		cmocka_unit_test(a_process_is_seen_to_stop_go_on_and_end),
		cmocka_unit_test(memory_of_a_process_is_read_and_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
