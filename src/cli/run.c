/* run.c - `ropeway run`: starts an unmodified verbs program with the drop-in preloaded, and becomes it.
 *
 * Everything the device has to know goes through environment variables (ROPEWAY_*), so children of the program get it too.
 */
#include "cli/cli.h"
#include "io/io.h"
#include "preload/launch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAME "ropeway run"

static void print_help(void)
{
	puts("Usage: ropeway run [--stats] [--pcap FILE] [--fault SPEC] [--] PROGRAM [ARGUMENTS...]\n\n"
	     "Runs PROGRAM, unmodified, with the software RoCEv2 devices in its list of RDMA devices: first, before real ones.\n"
	     "The exit status is PROGRAM's; 126 if it cannot be run, 127 if there is none.\n\n"
	     "  --stats        print counters to standard error at the end: packets, retries, NAKs, RNR, ICRC errors\n"
	     "  --pcap FILE    capture every packet as pcapng (a %p in FILE becomes the process ID)\n"
	     "  --fault SPEC   harm what is sent, reproducibly: drop=0.01,dup=0.01,reorder=0.01,corrupt=0.001,delay=2,seed=7\n"
	     "                 (probabilities; delay in ms; any of them)\n\n"
	     "The same with environment variables: ROPEWAY_STATS=1, ROPEWAY_PCAP, ROPEWAY_PCAP_LIMIT, ROPEWAY_FAULT, ROPEWAY_LOG.");
}

/* ---- what will not work with a preload, said before it fails silently ---- */

static bool is_elf_without_loader(int fd, bool *other_class)
{
	Elf64_Ehdr eh;

	*other_class = false;
	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG))
		return false;
	if (eh.e_ident[EI_CLASS] != ELFCLASS64) {
		*other_class = true;
		return false;
	}
	for (unsigned i = 0; i < eh.e_phnum; i++) {
		Elf64_Phdr ph;
		if (pread(fd, &ph, sizeof(ph), (off_t)(eh.e_phoff + (uint64_t)i * eh.e_phentsize)) != sizeof(ph))
			return false;
		if (ph.p_type == PT_INTERP)
			return false;
	}
	return true;
}

/* The kernel sets AT_SECURE for it, and then the loader takes no library from a path of ours (ld.so(8)). */
static bool gains_privilege(const char *path, const struct stat *st)
{
	if ((st->st_mode & S_ISUID && st->st_uid != geteuid()) || (st->st_mode & S_ISGID && st->st_gid != getegid()))
		return true;
	return geteuid() && getxattr(path, "security.capability", NULL, 0) > 0;
}

static void warn_if_not_preloadable(const char *path)
{
	struct stat st;
	bool other_class = false;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && is_elf_without_loader(fd, &other_class))
		fprintf(stderr, NAME ": warning: %s is statically linked: it will not see the software devices\n", path);
	if (other_class)
		fprintf(stderr, NAME ": warning: %s is not a 64-bit program: it will not see the software devices\n", path);
	if (fd >= 0)
		close(fd);
	if (!stat(path, &st) && gains_privilege(path, &st))
		fprintf(stderr, NAME ": warning: %s is set-uid, set-gid or has capabilities, so the loader ignores the preload: it will not see the "
			"software devices; run it as the user whose rights it takes\n", path);
}

/* ---- finding the program and the drop-in ---- */

/* As execvp(3) would: a name with a slash is a path. 0, or an errno: ENOENT, or EACCES if one was found that cannot be run. */
static int find_program(const char *name, char path[PATH_MAX])
{
	const char *search = getenv("PATH");
	int err = ENOENT;

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return access(path, F_OK) ? errno : 0;
	}
	for (const char *p = search ? search : "/usr/local/bin:/bin:/usr/bin"; *name && p; ) {
		const char *end = strchrnul(p, ':');
		struct stat st;
		int n = snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - p), p, end > p ? "/" : "", name);
		if (n < PATH_MAX && !stat(path, &st) && S_ISREG(st.st_mode)) {
			if (!access(path, X_OK))
				return 0;
			err = EACCES;
		}
		p = *end ? end + 1 : NULL;
	}
	return err;
}

static bool path_of_self(char dir[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", dir, PATH_MAX - 1);
	if (n <= 0)
		return false;
	dir[n] = '\0';
	char *slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	return slash;
}

/* Beside the command (build tree), else where `meson install` put it, as seen from the command: a moved tree works too. */
static int find_dropin(char path[PATH_MAX])
{
	static const char *const places[] = {"", "/" ROPEWAY_LIBDIR_FROM_BINDIR};
	char dir[PATH_MAX], candidate[2 * PATH_MAX];

	if (!path_of_self(dir))
		return -errno;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(places); i++) {
		snprintf(candidate, sizeof(candidate), "%s%s/libropeway-verbs.so", dir, places[i]);
		if (realpath(candidate, path))
			return 0;
	}
	return -ENOENT;
}

/* ---- options ---- */

struct options { const char *pcap, *fault; bool stats; };

static const struct option long_options[] = {
	{"help", no_argument, NULL, 'h'}, {"stats", no_argument, NULL, 's'}, {"pcap", required_argument, NULL, 'p'},
	{"fault", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0},
};

/* "+": what follows the program's name is the program's. */
static int parse(int argc, char **argv, struct options *o, bool *help)
{
	int c;

	while ((c = getopt_long(argc, argv, "+hsp:f:", long_options, NULL)) != -1) {
		switch (c) {
		case 'h':
			*help = true;
			return CLI_OK;
		case 's':
			o->stats = true;
			break;
		case 'p':
			o->pcap = optarg;
			break;
		case 'f':
			o->fault = optarg;
			break;
		default:
			return rpwi_cli_usage(NAME);
		}
	}
	if (optind < argc)
		return CLI_OK;
	rpwi_cli_fail(CLI_USAGE, NAME, "no program given");
	return rpwi_cli_usage(NAME);
}

static int check_fault(const char *spec)
{
	char why[256] = "";
	struct rpwi_fault *f = NULL;

	if (!rpwi_fault_parse(spec, &f, why, sizeof(why))) {
		rpwi_fault_free(f);
		return CLI_OK;
	}
	rpwi_cli_fail(CLI_USAGE, NAME, "--fault '%s': %s", spec, why);
	return rpwi_cli_usage(NAME);
}

/* The program may change its folder before it opens a device: the capture still goes where it was asked for. */
static int set_pcap(const char *file)
{
	char cwd[PATH_MAX], path[2 * PATH_MAX];

	if (!*file) {
		rpwi_cli_fail(CLI_USAGE, NAME, "--pcap needs a file name");
		return rpwi_cli_usage(NAME);
	}
	if (file[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		snprintf(path, sizeof(path), "%s", file);
	else
		snprintf(path, sizeof(path), "%s/%s", cwd, file);
	char *slash = strrchr(path, '/');
	*slash = '\0';
	if (access(*path ? path : "/", W_OK | X_OK))
		return rpwi_cli_fail(CLI_FAILED, NAME, "cannot write a capture to %s: %s", *path ? path : "/", strerror(errno));
	*slash = '/';
	setenv("ROPEWAY_PCAP", path, 1);
	return CLI_OK;
}

static int set_environment(const struct options *o)
{
	int status = CLI_OK;

	setenv("ROPEWAY_FIRST", "software", 1);
	if (o->stats)
		setenv("ROPEWAY_STATS", "1", 1);
	if (o->pcap)
		status = set_pcap(o->pcap);
	if (!status && o->fault) {
		status = check_fault(o->fault);
		setenv("ROPEWAY_FAULT", o->fault, 1);
	}
	return status;
}

int rpwi_cli_run(int argc, char **argv)
{
	struct options o = {0};
	char program[PATH_MAX], dropin[PATH_MAX];
	bool help = false;

	int status = parse(argc, argv, &o, &help);
	if (help)
		print_help();
	if (status || help)
		return status;
	status = set_environment(&o);
	if (status)
		return status;
	argv += optind;
	int err = find_program(argv[0], program);
	if (err)
		return rpwi_cli_fail(err == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_RUN, NAME, "%s: %s", argv[0],
				     err == ENOENT ? "there is no such program" : strerror(err));
	if (find_dropin(dropin))
		return rpwi_cli_fail(CLI_FAILED, NAME, "libropeway-verbs.so is neither beside this command nor in its library folder; build or install it again");
	warn_if_not_preloadable(program);
	fflush(stdout);
	execv(program, argv);
	return rpwi_cli_fail(CLI_CANNOT_RUN, NAME, "cannot run %s: %s", program, strerror(errno));
}
