/* SPDX-License-Identifier: BSD-3-Clause */
/* demo.c - `ropeway demo`: a file goes from one process to another by RDMA WRITE, checked and
 * timed; then a short run is captured.
 *
 * This process makes the files, starts the two peers (peer.c), which print what they do, and
 * compares the result. It never touches a verb itself. The files have no name unless --keep asks
 * for one, and the peers die with this process, so nothing is left behind however it ends.
 */
#include "base/choice.h"
#include "cli/demo/demo.h"
#include "cli/options.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "ropeway demo"
/* first and last ones */
#define CAPTURED_PACKETS 2000

enum {
	/* enough packets that the capture's limit is seen to work, even at MTU 4096 */
	CAPTURED_BYTES = 24 << 20,
};

struct options {
	uint64_t size, seed;
	const char *device, *pcap; /* pcap NULL: no capture */
	bool keep;
};

enum role { RECEIVER, SENDER, ROLES };
static const char *const role_name[ROLES] = {"receiver", "sender"};

/* One transfer. The captured one is quiet: its steps are those of the other. */
struct transfer {
	pid_t pid[ROLES];
	uint64_t size, elapsed_ns;
	bool quiet;
};

/* ---- the two processes ---- */

/* In the child. fds: to the other peer, the file, and where it says how long it took. */
static void child_exec(
	enum role role, const struct options *o, const struct transfer *t, const int fds[3])
{
	char text[5][24];

	snprintf(text[0], sizeof(text[0]), "%" PRIu64, t->size);
	snprintf(text[1], sizeof(text[1]), "%d", getppid());
	for (int i = 0; i < 3; i++) {
		fcntl(fds[i], F_SETFD, 0);
		snprintf(text[2 + i], sizeof(text[0]), "%d", fds[i]);
	}
	/* Both directions pass the sender's device; two captures of the same packets would only
	 * confuse. */
	if (t->quiet && o->pcap && role == SENDER) {
		setenv("ROPEWAY_PCAP", o->pcap, 1);
		setenv("ROPEWAY_PCAP_LIMIT", CLI_STRING(CAPTURED_PACKETS), 1);
	} else {
		unsetenv("ROPEWAY_PCAP");
		unsetenv("ROPEWAY_PCAP_LIMIT");
	}
	execl("/proc/self/exe", "ropeway", "demo-peer", role_name[role], o->device, text[0],
		text[1], text[2], text[3], text[4], t->quiet ? "quiet" : "", (char *)NULL);
	rpwi_cli_fail(
		CLI_FAILED, NAME, "cannot start the %s: %s", role_name[role], strerror(errno));
	_exit(CLI_FAILED);
}

/* Until it ends: how, if it did not say so itself. */
static bool child_reap(pid_t pid, enum role role)
{
	int status;

	if (pid <= 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status))
		rpwi_cli_fail(CLI_FAILED, NAME, "the %s was killed by signal %d (%s)",
			role_name[role], WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) > CLI_FAILED)
		rpwi_cli_fail(CLI_FAILED, NAME, "the %s ended early, with exit status %d",
			role_name[role], WEXITSTATUS(status));
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* 0 when both peers say that all of it went over. */
static int run_transfer(struct transfer *t, const struct options *o, const struct demo_file *from,
	const struct demo_file *to)
{
	int peers[2], result[2] = {-1, -1};

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, peers) ||
		pipe2(result, O_CLOEXEC))
		return rpwi_cli_fail(-1, NAME, "socketpair: %s", strerror(errno));
	fflush(stdout);
	for (int r = 0; r < ROLES; r++) {
		const int fds[3] = {peers[r], r == SENDER ? from->fd : to->fd, result[1]};
		t->pid[r] = fork();
		if (!t->pid[r])
			child_exec(r, o, t, fds);
		if (t->pid[r] < 0)
			rpwi_cli_fail(-1, NAME, "cannot start a process: %s", strerror(errno));
	}
	close(peers[0]);
	close(peers[1]);
	close(result[1]);
	/* no pipe is full of so little, and its end is both processes' */
	ssize_t n = read(result[0], &t->elapsed_ns, sizeof(t->elapsed_ns));
	close(result[0]);
	bool received = child_reap(t->pid[RECEIVER], RECEIVER),
	     sent = child_reap(t->pid[SENDER], SENDER);
	return received && sent && n == sizeof(t->elapsed_ns) ? 0 : -1;
}

/* ---- steps ---- */

static int verify(
	const struct demo_file *from, const struct demo_file *to, uint64_t len, uint32_t *crc)
{
	uint64_t at = 0;

	*crc = crc32_gzip_refl(0, from->map, len);
	if (!memcmp(from->map, to->map, len))
		return 0;
	while (from->map[at] == to->map[at])
		at++;
	return rpwi_cli_fail(-1, NAME,
		"the copy DIFFERS from the file, first at byte %" PRIu64 " (CRC-32 %08x, sent "
		"%08x)",
		at, crc32_gzip_refl(0, to->map, len), *crc);
}

static int make_file(struct demo_file *f, const char *dir, uint64_t size, const char *name)
{
	int err = rpwi_demo_file_make(f, dir, size, name);
	char text[CLI_SIZE_LEN];

	if (!err)
		return 0;
	return rpwi_cli_fail(-1, NAME, "cannot make a file of %s in %s: %s",
		rpwi_cli_size(size, text), dir, strerror(-err));
}

static int timed_run(
	const struct options *o, const struct demo_file *from, const struct demo_file *to)
{
	struct transfer t = {.size = o->size};
	char size[CLI_SIZE_LEN];
	uint32_t crc;

	if (run_transfer(&t, o, from, to) || verify(from, to, o->size, &crc))
		return -1;
	double s = (double)t.elapsed_ns / (double)RPWI_NS_PER_S;
	double gb_s = t.elapsed_ns ? (double)o->size / (double)t.elapsed_ns : 0;
	rpwi_demo_step("verified", "all %" PRIu64 " bytes are the same in both files; CRC-32 %08x",
		o->size, crc);
	rpwi_demo_step("speed",
		"%s in %.3f s: %.2f GB/s, %.1f Gbit/s (first post to last completion)",
		rpwi_cli_size(o->size, size), s, gb_s, gb_s * 8);
	return 0;
}

/* The same again, shorter and with a capture, which costs time. */
static int captured_run(const struct options *o, const char *dir, const struct demo_file *from)
{
	struct transfer t = {.size = RPWI_MIN(o->size, (uint64_t)CAPTURED_BYTES), .quiet = true};
	struct demo_file to;
	char size[CLI_SIZE_LEN];
	uint32_t crc;

	if (make_file(&to, dir, t.size, NULL))
		return -1;
	int ret = run_transfer(&t, o, from, &to);
	if (!ret)
		ret = verify(from, &to, t.size, &crc);
	rpwi_demo_file_close(&to);
	if (ret)
		return ret;
	rpwi_demo_step("capture",
		"%s once more, with a capture at the sender (its first and last %d packets)",
		rpwi_cli_size(t.size, size), CAPTURED_PACKETS);
	return 0;
}

/* A file without contents; never a device or a pipe, which this process must not remove either. */
static bool is_empty_file(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISREG(st.st_mode) && !st.st_size;
}

static bool is_missing(const char *path) { return access(path, F_OK) && errno == ENOENT; }

static void print_capture(const struct options *o)
{
	const char *pcap = o->pcap;
	char program[PATH_MAX], file[PATH_MAX];

	if (is_missing(pcap) || is_empty_file(pcap)) {
		printf("\nThere is no capture: %s is not a software device. For a real one, a "
		       "switch or tcpdump has to do it.\n",
			o->device);
		return;
	}
	printf("\nThe packets are in %s. Look at them, as a page, with\n"
	       "  %s explain %s -o demo.html\n",
		pcap, rpwi_cli_shell_word(program_invocation_name, program, sizeof(program)),
		rpwi_cli_shell_word(pcap, file, sizeof(file)));
}

static int run_demo(const struct options *o, const char *dir)
{
	char keep_dir[300], size[CLI_SIZE_LEN];
	const char *in = o->keep ? keep_dir : dir;
	struct demo_file from = {.fd = -1}, to = {.fd = -1};
	int ret = -1;

	if (o->keep) {
		snprintf(keep_dir, sizeof(keep_dir), "%.240s/ropeway-demo-XXXXXX", dir);
		if (!mkdtemp(keep_dir)) {
			rpwi_cli_fail(
				-1, NAME, "cannot make a folder in %s: %s", dir, strerror(errno));
			goto out;
		}
	}
	if (o->keep)
		rpwi_cli_when_stopped(NAME, "stopped: what there is so far is in %s", keep_dir);
	else
		rpwi_cli_when_stopped(NAME, "stopped; no file is left; --size makes it shorter");
	if (make_file(&from, in, o->size, o->keep ? "sent" : NULL))
		goto out;
	if (make_file(&to, in, o->size, o->keep ? "received" : NULL))
		goto out;
	printf("ropeway demo: %s from one process to another by RDMA WRITE on device %s\n\n",
		rpwi_cli_size(o->size, size), o->device);
	uint64_t start_ns = rpwi_now_ns();
	rpwi_demo_file_fill(&from, o->seed);
	rpwi_demo_step("file", "%s of non-repeating data (seed %" PRIu64 "), made in %s in %.1f s",
		size, o->seed, dir, (double)(rpwi_now_ns() - start_ns) / (double)RPWI_NS_PER_S);
	if (getenv("ROPEWAY_FAULT"))
		rpwi_demo_step("faults", "ROPEWAY_FAULT is set: faults are injected (%.200s)",
			getenv("ROPEWAY_FAULT"));
	ret = timed_run(o, &from, &to);
	if (!ret && o->pcap) {
		rpwi_cli_when_stopped(
			NAME, "stopped: the figures above are whole, the capture is not");
		ret = captured_run(o, dir, &from);
	}
	rpwi_cli_stop_is_late();
	if (!ret && o->keep)
		printf("\nKept: %s and %s\n", from.name, to.name);
	if (!ret && o->pcap)
		print_capture(o);
out:
	if (o->pcap && is_empty_file(o->pcap))
		unlink(o->pcap);
	rpwi_demo_file_close(&from);
	rpwi_demo_file_close(&to);
	return ret;
}

/* ---- options ---- */

static const char pcap_default[] = "ropeway-demo.pcapng";

static const struct cli_option option[] = {
	{"size", 's', CLI_SIZE, "N", "bytes to move, with a suffix K, M or G", .least = 1,
		.preset = "1G", CLI_INTO(struct options, size)},
	{"device", 'd', CLI_TEXT, "NAME",
		"the device (default: the loopback one; `ropeway devices` lists all)",
		.offer = CLI_OFFER_DEVICE, CLI_INTO(struct options, device)},
	{"pcap", 'p', CLI_FILE, "FILE", "write the capture to FILE", .preset = pcap_default,
		CLI_INTO(struct options, pcap)},
	{"no-pcap", 0, CLI_UNSET, NULL, "do not capture", CLI_INTO(struct options, pcap)},
	{"keep", 0, CLI_FLAG, NULL, "keep the file and its copy", CLI_INTO(struct options, keep)},
	{"seed", 0, CLI_NUMBER, "N", "seed of the contents (default: random; it is printed)",
		CLI_INTO(struct options, seed)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[OPTIONS]",
	.about = "Moves a file between two processes by RDMA WRITE over an RC connection, through "
		 "the software device of the loopback interface; shows each "
		 "step, verifies the copy, and prints the speed. Then it makes a short run with a "
		 "capture for Wireshark. It needs no privilege.",
	.option = option,
	.after = "The files are made in $TMPDIR, /tmp or /var/tmp, whichever has room.",
};

/* The loopback device, if it is not hidden: both ends are here, whatever the network. Else the last
 * of the software devices. False: there is none. */
static bool default_device(char name[IBV_SYSFS_NAME_MAX])
{
	int num;
	struct ibv_device **list = ibv_get_device_list(&num);

	*name = '\0';
	for (int i = 0; list && i < num && strcmp(name, "rpw_lo") != 0; i++)
		if (rpwi_choice_is_ours(ibv_get_device_name(list[i])))
			snprintf(name, IBV_SYSFS_NAME_MAX, "%s", ibv_get_device_name(list[i]));
	if (list)
		ibv_free_device_list(list);
	return *name;
}

/* Empties it too: its contents afterwards are of this run. One that was not there is not there
 * afterwards, so that a demo that is stopped leaves none. */
static bool can_write(const char *path)
{
	int made = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int fd = made < 0 ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) : made;

	if (fd < 0)
		return false;
	close(fd);
	if (made >= 0)
		unlink(path);
	return true;
}

/* Found out now, not after the transfer. The default name falls back to the temporary folder: the
 * working folder may be another user's. */
static int check_pcap(struct options *o, char fallback[PATH_MAX], const char *dir)
{
	if (!o->pcap || can_write(o->pcap))
		return 0;
	if (o->pcap != pcap_default)
		return rpwi_cli_fail(
			-1, NAME, "cannot write the capture %s: %s", o->pcap, strerror(errno));
	snprintf(fallback, PATH_MAX, "%s/ropeway-demo-%d.pcapng", dir, getpid());
	o->pcap = fallback;
	return can_write(fallback)
		       ? 0
		       : rpwi_cli_fail(-1, NAME,
				 "cannot write a capture here, nor in %s; see --no-pcap", dir);
}

/* What both processes would stumble over, said once, and before the file is made. */
static int check_environment(const struct options *o)
{
	const char *fault = getenv("ROPEWAY_FAULT");
	char why[512];

	if (fault && rpwi_cli_check_fault(fault, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, NAME, "%s", why);
	if (rpwi_cli_device_usable(o->device, why, sizeof(why)))
		return rpwi_cli_fail(CLI_FAILED, NAME, "%s", why);
	return CLI_OK;
}

int rpwi_cli_demo(int argc, char **argv)
{
	struct options o = {0};
	char why[512] = "", fallback[PATH_MAX], device[IBV_SYSFS_NAME_MAX];

	if (!rpwi_choice_names())
		rpwi_choice_add("all");
	if (getrandom(&o.seed, 4, 0) != 4)
		o.seed = (uint64_t)getpid();
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	if (!o.device && !default_device(device))
		return rpwi_cli_fail(CLI_FAILED, NAME,
			"there is no software device: no interface is up with an address; see "
			"`ropeway devices`");
	o.device = o.device ? o.device : device;
	status = check_environment(&o);
	if (status)
		return status;
	const char *dir = rpwi_demo_dir(2 * o.size, why, sizeof(why));
	if (!dir)
		return rpwi_cli_fail(CLI_FAILED, NAME,
			"%s; set TMPDIR to a folder with more room, or give a smaller --size", why);
	return check_pcap(&o, fallback, dir) || run_demo(&o, dir) ? CLI_FAILED : CLI_OK;
}
