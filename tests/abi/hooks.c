/* SPDX-License-Identifier: BSD-3-Clause */
/* hooks.c - a program under the drop-in sets signal handlers, reads the files of a device, and
 * calls the exported ibv_query_port as old programs do. */
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- signals ---- */

static sigjmp_buf env;
static volatile sig_atomic_t caught;
static void on_signal(int signo)
{
	caught = signo;
	siglongjmp(env, 1);
}
static void on_signal_info(int signo, siginfo_t *info, void *uctx)
{
	caught = info->si_addr ? -signo : 0;
	siglongjmp(env, 1);
}

static volatile char *hole;
static int fault(void)
{
	caught = 0;
	if (!sigsetjmp(env, 1))
		*hole = 1;
	return caught;
}

/* What the kernel has, whatever the library says. */
struct kernel_sigaction {
	void *handler;
	unsigned long flags;
	void *restorer;
	unsigned long mask;
};
static void *kernel_handler(int signo)
{
	struct kernel_sigaction k = {0};
	syscall(SYS_rt_sigaction, signo, NULL, &k, 8);
	return k.handler;
}

static void *expect; /* the kernel's handler once a device is open; NULL before */
static void check_flavours(void)
{
	struct sigaction act = {.sa_handler = on_signal},
			 info = {.sa_sigaction = on_signal_info, .sa_flags = SA_SIGINFO}, old;
	CHECK(!sigaction(SIGSEGV, &act, NULL));
	CHECK(kernel_handler(SIGSEGV) == (expect ? expect : (void *)on_signal));
	CHECK(fault() == SIGSEGV);
	CHECK(!sigaction(SIGSEGV, &info, &old) && old.sa_handler == on_signal &&
		!(old.sa_flags & SA_SIGINFO));
	CHECK(fault() == -SIGSEGV);
	CHECK(!sigaction(SIGSEGV, NULL, &old) && old.sa_sigaction == on_signal_info &&
		old.sa_flags & SA_SIGINFO);
	CHECK(signal(SIGSEGV, on_signal) == (sighandler_t)(void *)on_signal_info);
	CHECK(fault() == SIGSEGV);
	CHECK(signal(SIGSEGV, SIG_DFL) == on_signal);
	CHECK(sigset(SIGSEGV, on_signal) == SIG_DFL);
	CHECK(fault() == SIGSEGV);
	CHECK(sigset(SIGSEGV, SIG_HOLD) == on_signal);
	CHECK(sigset(SIGSEGV, on_signal) == SIG_HOLD);
	CHECK(sigset(SIGSEGV, SIG_DFL) == on_signal);
	CHECK(!expect || kernel_handler(SIGSEGV) == expect);
	/* Another signal is never ours. */
	CHECK(signal(SIGUSR1, on_signal) == SIG_DFL &&
		kernel_handler(SIGUSR1) == (void *)on_signal);
	caught = 0;
	if (!sigsetjmp(env, 1))
		raise(SIGUSR1);
	CHECK(caught == SIGUSR1);
	CHECK(signal(SIGUSR1, SIG_DFL) == on_signal);
	errno = 0;
	CHECK(sigaction(SIGKILL, &act, NULL) == -1 && errno == EINVAL);
}

/* ---- files ---- */

static ssize_t slurp(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, buf, len - 1);
	buf[n > 0 ? n : 0] = '\0';
	close(fd);
	return n;
}

static void check_gid_files(struct ibv_context *c, int count)
{
	const char *dir = c->device->ibdev_path;
	char path[512], text[128], want[64];
	int seen = 0;
	for (int i = 0; i < count; i++) {
		union ibv_gid gid = {0}, none = {0};
		if (ibv_query_gid(c, 1, i, &gid) || !memcmp(&gid, &none, sizeof(gid))) {
			snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/types/%d", dir, i);
			CHECK(slurp(path, text, sizeof(text)) == -EINVAL);
			continue;
		}
		seen++;
		snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/types/%d", dir, i);
		CHECK(slurp(path, text, sizeof(text)) == 8 && !strcmp(text, "RoCE v2\n"), "%s: %s",
			path, text);
		snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/ndevs/%d", dir, i);
		CHECK(slurp(path, text, sizeof(text)) > 0 && !strcmp(text, "lo\n"), "%s: %s", path,
			text);
		snprintf(path, sizeof(path), "%s/ports/1/gids/%d", dir, i);
		for (int w = 0; w < 8; w++)
			snprintf(want + 5 * w, 6, "%02x%02x%c", gid.raw[2 * w], gid.raw[2 * w + 1],
				w == 7 ? '\n' : ':');
		CHECK(slurp(path, text, sizeof(text)) == 40 && !strcmp(text, want), "%s: %s", path,
			text);
	}
	CHECK(seen >= 2, "%d GIDs", seen);
	snprintf(path, sizeof(path), "%s/ports/1/gids/%d", dir, count + 1000);
	CHECK(slurp(path, text, sizeof(text)) == -ENOENT);
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static void check_files(struct ibv_context *c)
{
	const char *dir = c->device->ibdev_path;
	char path[512], text[128];
	struct stat st;
	snprintf(path, sizeof(path), "%s/node_guid", dir);
	CHECK(slurp(path, text, sizeof(text)) == 20);
	FILE *f = fopen(path, "re");
	CHECK(f && fgets(text, sizeof(text), f) && strlen(text) == 20);
	if (f)
		fclose(f);
	CHECK(!fopen(path, "w") && errno == EACCES);
	CHECK(open(path, O_RDWR) == -1 && errno == EACCES);
	int fd = openat(AT_FDCWD, path, O_RDONLY);
	CHECK(fd >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC) && read(fd, text, sizeof(text)) == 20);
	close(fd);
	CHECK(!stat(path, &st) && S_ISREG(st.st_mode) && !access(path, R_OK) &&
		access(path, W_OK) == -1);
	CHECK(!stat(dir, &st) && S_ISDIR(st.st_mode));
	memset(text, 'x', sizeof(text));
	CHECK(ibv_read_sysfs_file(dir, "node_guid", text, sizeof(text)) == 19 && text[19] == '\0');
	CHECK(ibv_read_sysfs_file(dir, "node_guid", text, 8) == -1);
	CHECK(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof(text)) == 5 &&
		!strcmp(text, "Linux"));
	/* What UCX asks of a device before it uses it. */
	snprintf(path, sizeof(path), "/dev/infiniband/%s", c->device->dev_name);
	CHECK(!stat(path, &st) && S_ISCHR(st.st_mode) && !access(path, R_OK | W_OK), "%s", path);
	CHECK(open(path, O_RDWR) == -1 && errno == ENXIO);
	snprintf(path, sizeof(path), "/dev/infiniband/%s_not", c->device->dev_name);
	CHECK(stat(path, &st) == -1 && errno == ENOENT);
	CHECK(stat("/sys/class/infiniband/rpw_", &st) == -1 && errno == ENOENT);
	/* Nothing else is touched. */
	CHECK(!stat("/proc/self/exe", &st) && S_ISREG(st.st_mode));
	CHECK(open("/nonexistent/rpw_lo", O_RDONLY) == -1 && errno == ENOENT);
	char temp[] = "/tmp/ropeway-hooks-XXXXXX";
	fd = mkstemp(temp);
	CHECK(fd >= 0 && !fchmod(fd, 0600));
	close(fd);
	unlink(temp);
	fd = open(temp, O_CREAT | O_EXCL | O_WRONLY, 0640);
	CHECK(fd >= 0 && !fstat(fd, &st) && (st.st_mode & 0137) == 0 && st.st_mode & 0200,
		"the mode arrives");
	close(fd);
	unlink(temp);
}

/* ---- the old ibv_query_port ---- */

static void check_old_query_port(struct ibv_context *c)
{
	enum { OLD_SIZE = 48, ROOM = 256 };
	int (*old)(struct ibv_context *, uint8_t, void *) =
		(__typeof__(old))dlsym(RTLD_DEFAULT, "ibv_query_port");
	uint8_t buf[ROOM];
	for (unsigned i = 0; i < ROOM; i++)
		buf[i] = (uint8_t)(i * 7 + 3);
	struct ibv_port_attr now;
	CHECK(old && !old(c, 1, buf));
	CHECK(!ibv_query_port(c, 1, &now));
	CHECK(!memcmp(buf, &now, OLD_SIZE));
	for (unsigned i = OLD_SIZE; i < ROOM; i++)
		CHECK(buf[i] == (uint8_t)(i * 7 + 3), "byte %u was written", i);
	CHECK(old(c, 2, buf) != 0);
}

/* Descriptors and threads of this process. */
static int count(const char *dir)
{
	int n = 0;
	DIR *d = opendir(dir);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

int main(void)
{
	hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check_flavours();
	int fds = count("/proc/self/fd"), threads = count("/proc/self/task"), n = 0;
	setenv("ROPEWAY_DEVICES", "all", 1); /* rpw_lo is on every machine */
	struct ibv_device **list = ibv_get_device_list(&n), *lo = NULL;
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i]->name, "rpw_lo"))
			lo = list[i];
	CHECK(lo);
	CHECK(count("/proc/self/fd") == fds && count("/proc/self/task") == threads,
		"a list of devices opens nothing");
	CHECK(kernel_handler(SIGSEGV) == NULL);
	struct ibv_context *c = lo ? ibv_open_device(lo) : NULL;
	CHECK(c, "%s", strerror(errno));
	if (!c)
		CHECK_DONE();
	ibv_free_device_list(list);
	expect = kernel_handler(SIGSEGV);
	CHECK(expect);
	check_flavours();
	struct ibv_port_attr attr;
	CHECK(!ibv_query_port(c, 1, &attr));
	check_gid_files(c, attr.gid_tbl_len);
	check_files(c);
	check_old_query_port(c);
	CHECK(!ibv_close_device(c));
	CHECK_DONE();
}
