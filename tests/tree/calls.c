/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.c - under the drop-in: every call that takes or returns a path, on the tree of one device.
 * `calls DEVICE`; with a second argument it is its own child, which inherited descriptor 9 and a
 * working directory. */
#undef _FORTIFY_SOURCE
#include "../abi/check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char class_path[128], real_path[256], guid_path[160], guid[32];
static const char *device, *self;

static bool is_guid(int fd)
{
	char text[64] = {0};
	bool same = fd >= 0 && read(fd, text, sizeof(text)) == 20 && !memcmp(text, guid, 20);
	if (fd >= 0)
		close(fd);
	return same;
}

#define ERR(call, want) CHECK((errno = 0, (call) == -1) && errno == (want), "errno %d", errno)
/* An entry point that no header of today declares. */
#define OLD(type, name) ((type)dlsym(RTLD_DEFAULT, name))

static void check_open(void)
{
	int dir = open(class_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	errno = EXDEV;
	CHECK(is_guid(open(guid_path, O_RDONLY)) && errno == EXDEV);
	CHECK(is_guid(open64(guid_path, O_RDONLY)));
	CHECK(is_guid(openat(dir, "node_guid", O_RDONLY)));
	CHECK(is_guid(openat64(dir, "ports/../node_guid", O_RDONLY)));
	CHECK(is_guid(openat(dir, "./ports/1/../..//node_guid", O_RDONLY)));
	CHECK(is_guid(OLD(int (*)(const char *, int), "__open_2")(guid_path, O_RDONLY)));
	CHECK(is_guid(OLD(int (*)(const char *, int), "__open64_2")(guid_path, O_RDONLY)));
	CHECK(is_guid(OLD(int (*)(int, const char *, int), "__openat_2")(dir, "node_guid", 0)));
	CHECK(is_guid(OLD(int (*)(int, const char *, int), "__openat64_2")(dir, "node_guid", 0)));
	int copies[] = {dup(dir), dup2(dir, 50), dup3(dir, 51, O_CLOEXEC),
		fcntl(dir, F_DUPFD_CLOEXEC, 60), fcntl(dir, F_DUPFD, 61)};
	for (unsigned i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
		CHECK(is_guid(openat(copies[i], "node_guid", O_RDONLY)), "copy %u", i);
		close(copies[i]);
	}
	/* the number of one of ours becomes another file's */
	int other = open("/etc", O_RDONLY | O_DIRECTORY);
	CHECK(dup2(other, dir) == dir);
	ERR(openat(dir, "node_guid", O_RDONLY), ENOENT);
	int passwd = openat(dir, "passwd", O_RDONLY);
	CHECK(passwd >= 0);
	close(passwd);
	close(other);
	close(dir);

	char text[64];
	FILE *f = fopen(guid_path, "re");
	CHECK(f && fgets(text, sizeof(text), f) && !strcmp(text, guid));
	f = freopen("/dev/null", "r", f);
	CHECK(f && (f = freopen(guid_path, "r", f)) && fgets(text, sizeof(text), f) &&
		!strcmp(text, guid));
	if (f)
		fclose(f);
	CHECK(!fopen(guid_path, "r+") && errno == EACCES);
	ERR(open(guid_path, O_WRONLY), EACCES);
	ERR(creat(guid_path, 0666), EACCES);
	ERR(open(guid_path, O_RDONLY | O_DIRECTORY), ENOTDIR);
	ERR(open(guid_path, O_CREAT | O_EXCL | O_RDWR, 0666), EEXIST);
	ERR(open(class_path, O_RDONLY | O_NOFOLLOW), ELOOP);
	ERR(open(real_path, O_RDWR), EISDIR);
	char deep[256];
	snprintf(deep, sizeof(deep), "%s/x", guid_path);
	ERR(open(deep, O_RDONLY), ENOTDIR);
	snprintf(deep, sizeof(deep), "%s/new", class_path);
	ERR(open(deep, O_RDONLY), ENOENT);
	ERR(open(deep, O_RDWR | O_CREAT, 0666), EACCES);
	int fd = open(guid_path, O_RDONLY);
	ERR(write(fd, "x", 1), EPERM);
	close(fd);
	fd = open(real_path, O_RDONLY);
	ERR(read(fd, text, 1), EISDIR);
	close(fd);
}

static void check_stat(void)
{
	struct stat st, st2;
	struct statx x;
	struct statfs fs;
	char text[64];
	errno = EXDEV;
	CHECK(!stat(guid_path, &st) && errno == EXDEV && S_ISREG(st.st_mode) && st.st_size == 4096);
	int fd = open(guid_path, O_RDONLY);
	CHECK(!fstat(fd, &st2) && st2.st_ino == st.st_ino && st2.st_dev == st.st_dev &&
		st2.st_mode == st.st_mode);
	CHECK(!fstatat(fd, "", &st2, AT_EMPTY_PATH) && st2.st_ino == st.st_ino);
	CHECK(!OLD(int (*)(int, int, struct stat *), "__fxstat")(1, fd, &st2) &&
		st2.st_ino == st.st_ino);
	CHECK(!fstatfs(fd, &fs) && fs.f_type == SYSFS_MAGIC);
	close(fd);
	CHECK(!stat("/sys", &st2) && st2.st_dev == st.st_dev);
	CHECK(!lstat(class_path, &st) && S_ISLNK(st.st_mode));
	CHECK(!lstat(real_path, &st) && S_ISDIR(st.st_mode) && st.st_nlink == 4, "%d",
		(int)st.st_nlink); /* itself, its name, power, ports */
	CHECK(!stat(class_path, &st2) && st.st_ino == st2.st_ino);
	int (*xstat)(int, const char *, struct stat *) = OLD(__typeof__(xstat), "__xstat");
	int (*lxstat)(int, const char *, struct stat *) = OLD(__typeof__(lxstat), "__lxstat64");
	int (*fxstatat)(int, int, const char *, struct stat *, int) =
		OLD(__typeof__(fxstatat), "__fxstatat");
	CHECK(!xstat(1, class_path, &st2) && st.st_ino == st2.st_ino);
	CHECK(!lxstat(1, class_path, &st2) && S_ISLNK(st2.st_mode));
	int dir = open(class_path, O_PATH | O_DIRECTORY);
	CHECK(!fxstatat(1, dir, "node_guid", &st, 0) && S_ISREG(st.st_mode));
	CHECK(!fstatat(dir, "device", &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode));
	CHECK(!statx(dir, "ports", 0, STATX_ALL, &x) && S_ISDIR(x.stx_mode) && x.stx_nlink == 3);
	CHECK(!statx(dir, "", AT_EMPTY_PATH, STATX_ALL, &x) && S_ISDIR(x.stx_mode));
	CHECK(!faccessat(dir, "ports/1/state", R_OK, 0) && !faccessat(dir, "ports", X_OK, 0));
	ERR(faccessat(dir, "ports/2", F_OK, 0), ENOENT);
	close(dir);
	CHECK(!access(guid_path, R_OK) && !eaccess(guid_path, R_OK) &&
		!euidaccess(guid_path, R_OK));
	ERR(access(guid_path, W_OK), EACCES);
	ERR(access(guid_path, X_OK), EACCES);
	CHECK(!statfs(class_path, &fs) && fs.f_type == SYSFS_MAGIC);
	ERR(getxattr(class_path, "security.selinux", text, sizeof(text)), ENODATA);
	CHECK(!llistxattr(class_path, text, sizeof(text)));
	snprintf(text, sizeof(text), "/sys/class/infiniband/%s_", device);
	ERR(stat(text, &st), ENOENT);
	CHECK(!stat("/sys/class/infiniband/../infiniband/", &st));
	const char *volatile none = NULL;
	/* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): the kernel says EFAULT */
	ERR(stat(none, &st), EFAULT);
	char path[PATH_MAX + 64];
	memset(path, 'a', sizeof(path));
	memcpy(path, "/sys/class/infiniband/", 22);
	path[400] = '\0';
	ERR(stat(path, &st), ENAMETOOLONG);
	path[400] = 'a';
	path[sizeof(path) - 1] = '\0';
	ERR(stat(path, &st), ENAMETOOLONG);
	CHECK(!stat("/dev/infiniband/rdma_cm", &st) && S_ISCHR(st.st_mode));
}

/* The names of a stream; each number is that of lstat. */
static int count(DIR *d)
{
	int n = 0;
	struct stat st;
	for (const struct dirent *e; d && (e = readdir(d)); n++)
		if (e->d_name[0] != '.')
			CHECK(!fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
					st.st_ino == e->d_ino && IFTODT(st.st_mode) == e->d_type,
				"%s", e->d_name);
	return n;
}

static int only_gids(const struct dirent *e) { return e->d_name[0] == 'g'; }

static void check_folders(void)
{
	char port[256], pattern[320];
	snprintf(port, sizeof(port), "%s/ports/1", class_path);
	DIR *d = opendir(port);
	int n = count(d);
	CHECK(n >= 14, "%d", n);
	CHECK(!readdir(d));
	rewinddir(d);
	CHECK(readdir(d) && readdir64(d));
	long at = telldir(d);
	char third[256] = "";
	const struct dirent *e = readdir(d);
	if (e)
		strcpy(third, e->d_name);
	seekdir(d, at);
	struct dirent entry, *got = NULL;
	CHECK(!readdir_r(d, &entry, &got) && got && !strcmp(got->d_name, third));
	CHECK(!closedir(d));

	int fd = open(port, O_RDONLY | O_DIRECTORY);
	int by_kernel = 0;
	char buf[120] __attribute__((aligned(8)));
	for (ssize_t len; (len = getdents64(fd, buf, sizeof(buf))) > 0;)
		for (ssize_t i = 0; i < len;
			i +=
			*(unsigned short *)(void *)(buf + i + offsetof(struct dirent64, d_reclen)))
			by_kernel++;
	CHECK(by_kernel == n, "%d", by_kernel);
	lseek(fd, 0, SEEK_SET);
	ERR(getdents64(fd, buf, 8), EINVAL);
	close(fd);
	fd = open(port, O_RDONLY | O_DIRECTORY);
	CHECK(count(d = fdopendir(fd)) == n && dirfd(d) == fd && !closedir(d));
	CHECK(fcntl(fd, F_GETFD) == -1);
	CHECK(!opendir(guid_path) && errno == ENOTDIR);

	struct dirent **list = NULL;
	int found = scandir(port, &list, only_gids, alphasort);
	CHECK(found == 2 && !strcmp(list[0]->d_name, "gid_attrs"), "%d", found);
	while (found > 0)
		free(list[--found]);
	free(list);
	fd = open(class_path, O_RDONLY | O_DIRECTORY);
	found = scandirat(fd, "ports/1", &list, only_gids, alphasort);
	CHECK(found == 2);
	while (found > 0)
		free(list[--found]);
	free(list);
	close(fd);

	glob_t g = {0};
	snprintf(pattern, sizeof(pattern),
		"/sys/class/infiniband/%.3s*/ports/[0-9]/gid_attrs/types/1?", device);
	CHECK(!glob(pattern, 0, NULL, &g) && g.gl_pathc >= 6, "%zu", g.gl_pathc);
	globfree(&g);

	/* more than there is room for: the last say so, all are closed */
	DIR *many[300];
	int open_ones = 0;
	for (int i = 0; i < 300; i++)
		open_ones += (many[i] = opendir(port)) != NULL;
	CHECK(open_ones == 256, "%d", open_ones);
	for (int i = 0; i < 300; i++)
		if (many[i])
			closedir(many[i]);
	CHECK((d = opendir(port)) && !closedir(d));
}

static void check_places(void)
{
	char buf[PATH_MAX], want[300], text[400];
	char *p = realpath(class_path, NULL);
	CHECK(p && !strcmp(p, real_path));
	free(p);
	CHECK(realpath(guid_path, buf) && !strncmp(buf, real_path, strlen(real_path)));
	char *(*realpath_chk)(const char *, char *, size_t) =
		OLD(__typeof__(realpath_chk), "__realpath_chk");
	CHECK(realpath_chk(class_path, buf, sizeof(buf)) && !strcmp(buf, real_path));
	p = canonicalize_file_name(class_path);
	CHECK(p && !strcmp(p, real_path));
	free(p);
	ssize_t n = readlink(class_path, buf, sizeof(buf));
	CHECK(n > 14 && !memcmp(buf, "../../devices/", 14));
	CHECK(readlink(class_path, text, 5) == 5 && !memcmp(text, buf, 5));
	ssize_t (*readlink_chk)(const char *, char *, size_t, size_t) =
		OLD(__typeof__(readlink_chk), "__readlink_chk");
	CHECK(readlink_chk(class_path, text, 200, 300) == n);
	ERR(readlink(guid_path, buf, sizeof(buf)), EINVAL);
	int dir = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
	CHECK(readlinkat(dir, device, buf, sizeof(buf)) == n);
	snprintf(text, sizeof(text), "/proc/self/fd/%d", dir);
	n = readlink(text, buf, sizeof(buf));
	CHECK(n == 21 && !memcmp(buf, "/sys/class/infiniband", 21), "%.*s", (int)n, buf);
	snprintf(text, sizeof(text), "/proc/self/fd/%d/%s/node_guid", dir, device);
	CHECK(is_guid(open(text, O_RDONLY)));

	/* working directory */
	CHECK(!chdir("/tmp"));
	CHECK(!chdir(class_path) && getcwd(buf, sizeof(buf)) && !strcmp(buf, real_path), "%s", buf);
	CHECK(is_guid(open("node_guid", O_RDONLY)));
	CHECK(!chdir("ports/1") && is_guid(open("../../node_guid", O_RDONLY)));
	ERR(chdir("state"), ENOTDIR);
	ERR(chdir("nowhere"), ENOENT);
	CHECK(!getcwd(buf, 5) && errno == ERANGE);
	p = get_current_dir_name();
	snprintf(want, sizeof(want), "%s/ports/1", real_path);
	CHECK(p && !strcmp(p, want));
	free(p);
	CHECK(snprintf(text, sizeof(text), "test \"$(/bin/pwd)\" = '%s' && cd .. && cat 1/state",
		      want) < (int)sizeof(text));
	FILE *f = popen(text, "r");
	CHECK(f && fgets(buf, sizeof(buf), f) && !strcmp(buf, "4: ACTIVE\n"), "%s", buf);
	CHECK(f && !pclose(f));
	DIR *d = opendir(".");
	CHECK(count(d) >= 14);
	if (d)
		closedir(d);
	CHECK(!fchdir(dir) && getcwd(buf, sizeof(buf)) && !strcmp(buf, "/sys/class/infiniband"));
	/* through the kernel's folder and back */
	CHECK(!chdir("..") && getcwd(buf, sizeof(buf)) && !strcmp(buf, "/sys/class"), "%s", buf);
	snprintf(text, sizeof(text), "infiniband/%s/node_guid", device);
	CHECK(is_guid(open(text, O_RDONLY)));
	CHECK(!chdir("infiniband") && !chdir(device) && is_guid(open("node_guid", O_RDONLY)));

	/* a child by exec has both */
	dup2(dir, 9);
	pid_t child = fork();
	if (!child) {
		execl(self, self, device, "child", (char *)NULL);
		_exit(99);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "%x", status);
	close(9);
	close(dir);
	CHECK(!chdir("/tmp") && getcwd(buf, sizeof(buf)) && !strcmp(buf, "/tmp"));

	/* a vfork's child's is not its parent's
	 * NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork) */
	child = vfork();
	if (!child) {
		char there[64];
		int fd;
		if (chdir(class_path) || (fd = open("node_guid", O_RDONLY)) < 0 ||
			read(fd, there, sizeof(there)) != 20)
			_exit(1);
		close(fd);
		_exit(chdir("/"));
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "%x", status);
	CHECK(getcwd(buf, sizeof(buf)) && !strcmp(buf, "/tmp"));
	CHECK(!chdir(class_path));
	child = vfork();
	if (!child)
		_exit(chdir("/"));
	waitpid(child, &status, 0);
	/* NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork) */
	CHECK(getcwd(buf, sizeof(buf)) && !strcmp(buf, real_path), "%s", buf);
	CHECK(!chdir("/"));
}

static int child(void)
{
	char buf[PATH_MAX], path[200];
	CHECK(getcwd(buf, sizeof(buf)) && !strcmp(buf, real_path));
	CHECK(is_guid(open("node_guid", O_RDONLY)));
	snprintf(path, sizeof(path), "%s/node_guid", device);
	CHECK(is_guid(openat(9, path, O_RDONLY)));
	CHECK_DONE();
}

/* ---- as safe in a signal handler as the calls themselves ---- */

static volatile sig_atomic_t handled, wrong;
static void on_alarm(int signo)
{
	struct stat st;
	char buf[300], text[64];
	(void)signo;
	int err = errno;
	int fd = open(guid_path, O_RDONLY | O_CLOEXEC);
	if (stat(guid_path, &st) || access(class_path, F_OK) || fd < 0 ||
		read(fd, text, sizeof(text)) != 20 || readlink(class_path, buf, sizeof(buf)) < 0)
		wrong++;
	if (fd >= 0)
		close(fd);
	errno = err;
	handled++;
}

static void *look_on(void *arg)
{
	for (int i = 0; i < 200; i++) {
		DIR *d = opendir(class_path);
		int n = 0;
		while (d && readdir(d))
			n++;
		if (d)
			closedir(d);
		if (n < 10 || !is_guid(open(guid_path, O_RDONLY)))
			__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void check_signals_and_threads(void)
{
	struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	/* one at a time: a handler longer than the time to the next would be all that runs */
	struct itimerval soon = {{0, 0}, {0, 1000}};
	pthread_t t[4];
	int bad = 0;
	sigaction(SIGALRM, &act, NULL);
	for (int armed = 0; handled < 200;) {
		if (handled == armed) {
			armed++;
			setitimer(ITIMER_REAL, &soon, NULL);
		}
		free(malloc(100 + (size_t)handled * 1000));
	}
	CHECK(!wrong, "%d of %d", (int)wrong, (int)handled);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, look_on, &bad);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK(!bad, "%d", bad);
}

static int descriptors(void)
{
	int n = 0;
	for (int i = 0; i < 1024; i++)
		n += fcntl(i, F_GETFD) != -1;
	return n;
}

int main(int argc, char **argv)
{
	self = argv[0];
	device = argc > 1 ? argv[1] : "rpw_lo";
	snprintf(class_path, sizeof(class_path), "/sys/class/infiniband/%s", device);
	snprintf(guid_path, sizeof(guid_path), "%s/node_guid", class_path);
	snprintf(real_path, sizeof(real_path), "/sys/devices/virtual/ropeway/%s:00.0/infiniband/%s",
		device, device);
	int fd = open(guid_path, O_RDONLY);
	CHECK(fd >= 0 && read(fd, guid, sizeof(guid)) == 20);
	close(fd);
	if (argc > 2)
		return child();
	int before = descriptors();
	check_open();
	check_stat();
	check_folders();
	check_places();
	check_signals_and_threads();
	CHECK(descriptors() == before, "%d, %d before", descriptors(), before);
	CHECK_DONE();
}
