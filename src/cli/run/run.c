/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - `ropeway run`: starts an unmodified verbs program with the drop-in preloaded, and becomes
 * it.
 *
 * Everything the device has to know goes through environment variables (ROPEWAY_*), so children of
 * the program get it too.
 */
#include "base/choice.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "fault/fault.h"
#include "io/io.h"
#include "like/like.h"
#include "cli/run/choose.h"
#include "cli/run/launch.h"
#include "cli/run/link.h"
#include "cli/run/namespace.h"
#include "cli/run/watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAME "ropeway run"
#define VERSIONED "libibverbs.so.1"
/* Not the name without a version: that is for compilers, and in a package of its own. */
#define DROPIN "libropeway-verbs.so.0"
#define HOOKS "libropeway-check.so.0"

/* ---- what a preload cannot do, said before it fails silently ---- */

/* The kernel sets AT_SECURE where privilege is gained, and then the loader takes no library from a
 * path (ld.so(8)). */
static bool gains_privilege(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return false;
	if ((st.st_mode & S_ISUID && st.st_uid != geteuid()) ||
		(st.st_mode & S_ISGID && st.st_gid != getegid()))
		return true;
	return geteuid() && getxattr(path, "security.capability", NULL, 0) > 0;
}

static void warn_if_not_preloadable(const struct rpwi_launch *l, bool sees_files)
{
	const char *why = NULL;

	if (sees_files) /* what was asked for */
		return;

	if (l->is_static)
		why = "is statically linked";
	else if (l->is_privileged && gains_privilege(l->program))
		why = "is set-uid, set-gid or has capabilities that you do not, so the loader "
		      "ignores the preload";
	if (why)
		fprintf(stderr, NAME ": warning: %s %s: it will not see the software devices%s\n",
			l->program, why,
			l->is_static ? "; with --namespace it sees their files" : "");
}

/* "rpw_lo", "rpw_lo:1", "--device=rpw_lo", but not "rpw_lo_1" */
static bool has_word(const char *text, const char *name)
{
	static const char parts[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
	size_t len = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at += len)
		if ((at == text || !strchr(parts, at[-1])) && (!at[len] || !strchr(parts, at[len])))
			return true;
	return false;
}

/* The program's own words for it are "no device found" at best. */
static void warn_about_devices(char **argv)
{
	struct rpwi_netdev *list = NULL;
	char why[RPWI_WHY_LEN];
	unsigned all = 0;
	int count = rpwi_netdev_list(&list, &all);

	if (!count && !all)
		fprintf(stderr, NAME ": warning: there is no software device, since no interface "
				     "is up with an address: ip link set lo up\n");
	for (unsigned i = (unsigned)RPWI_MAX(count, 0); list && i < all; i++)
		for (char **arg = argv; *arg; arg++) {
			if (!has_word(*arg, list[i].name))
				continue;
			rpwi_netdev_why_hidden(&list[i], why, sizeof(why));
			fprintf(stderr, NAME ": warning: %s is hidden: %s\n", list[i].name, why);
			break;
		}
	free(list);
}

/* ---- the preload ---- */

/* The folder of `library`, for a list that is split at `splits`. 0, -ENOENT: it is not there, or
 * -errno of making a link to the folder. */
static int find_folder(
	const char *const places[2], const char *library, const char *splits, char dir[PATH_MAX])
{
	char path[PATH_MAX];
	int err = rpwi_cli_find(places, library, path);

	if (err)
		return err;
	*strrchr(path, '/') = '\0';
	return rpwi_link_folder(path, splits, dir, PATH_MAX);
}

/* The folder of the versioned library, which holds nothing else. */
static int find_versioned(char dir[PATH_MAX])
{
	static const char *const places[] = {
		"/src/library", "/" ROPEWAY_LIBDIR_FROM_BINDIR "/ropeway"};

	return find_folder(places, VERSIONED, RPWI_LINK_LIBRARY_PATH, dir);
}

/* An error of the two above. */
static int no_folder(const char *library, int err)
{
	if (err == -ENOENT)
		return rpwi_cli_fail(CLI_FAILED, NAME,
			"ropeway's own %s is neither in the build folder of this command nor in "
			"its library folder; build or install it again",
			library);
	return rpwi_cli_fail(CLI_FAILED, NAME,
		"the loader would split the path of %s, which has a space, a colon or a semicolon, "
		"and no link to its folder can be made in /tmp, /var/tmp or /dev/shm: %s; put "
		"ropeway elsewhere",
		library, strerror(-err));
}

/* `list` without `library`: a run within a run needs no second one. */
static void without(const char *list, const char *library, char *out, size_t len)
{
	size_t used = 0;

	out[0] = '\0';
	while (list && *(list += strspn(list, " :"))) {
		size_t n = strcspn(list, " :");
		if ((n != strlen(library) || strncmp(list, library, n) != 0) && used + n + 2 < len)
			used += (size_t)snprintf(
				out + used, len - used, "%s%.*s", used ? ":" : "", (int)n, list);
		list += n;
	}
}

/* Behind what the user has. */
static int preload(const char *name)
{
	static const char *const places[] = {"", "/" ROPEWAY_LIBDIR_FROM_BINDIR};
	char dir[PATH_MAX], library[PATH_MAX + 64], value[4 * PATH_MAX], have[2 * PATH_MAX];

	int err = find_folder(places, name, RPWI_LINK_PRELOAD, dir);
	if (err)
		return no_folder(name, err);
	snprintf(library, sizeof(library), "%s/%s", dir, name);
	without(getenv("LD_PRELOAD"), library, have, sizeof(have));
	err = rpwi_launch_preload(library, have, value, sizeof(value));
	if (err)
		return rpwi_cli_fail(CLI_FAILED, NAME, "LD_PRELOAD is too long");
	setenv("LD_PRELOAD", value, 1);
	return CLI_OK;
}

/* `check`: of --check; the environment may ask for it, too. */
static int set_preload(const char *check)
{
	const char *spec = check ? check : getenv("ROPEWAY_CHECK");
	char value[4 * PATH_MAX];
	int err = preload(DROPIN);

	if (!err && spec && strcmp(spec, "0") != 0)
		err = preload(HOOKS);
	if (err)
		return err;
	err = rpwi_launch_asan_options(getenv("ASAN_OPTIONS"), value, sizeof(value));
	if (err)
		return rpwi_cli_fail(CLI_FAILED, NAME, "ASAN_OPTIONS is too long");
	setenv("ASAN_OPTIONS", value, 1);
	return CLI_OK;
}

/* Before all others if the user asks for it; after them where the system has none, since programs
 * that need libibverbs.so.1 would not start. */
static int set_library(bool asked)
{
	char dir[PATH_MAX];
	const char *have = getenv("LD_LIBRARY_PATH");
	void *library = asked ? NULL : dlopen(VERSIONED, RTLD_LAZY | RTLD_LOCAL);

	if (library) {
		dlclose(library);
		return CLI_OK;
	}
	int err = find_versioned(dir);
	if (err == -ENOENT && !asked) /* many programs do without */
		return CLI_OK;
	if (err)
		return no_folder(VERSIONED, err);
	size_t len = strlen(dir), have_len = have ? strlen(have) : 0;
	if (have_len && !strncmp(have, dir, len) && (!have[len] || have[len] == ':'))
		return CLI_OK; /* a run within a run */
	char *value = malloc(len + have_len + 2);
	if (!value)
		return rpwi_cli_fail(CLI_FAILED, NAME, "no memory for LD_LIBRARY_PATH");
	if (!have_len)
		strcpy(value, dir);
	else if (asked)
		sprintf(value, "%s:%s", dir, have);
	else
		sprintf(value, "%s:%s", have, dir);
	setenv("LD_LIBRARY_PATH", value, 1);
	free(value);
	return CLI_OK;
}

static int print_library(void)
{
	char dir[PATH_MAX];

	int err = find_versioned(dir);
	if (err)
		return no_folder(VERSIONED, err);
	puts(dir);
	return CLI_OK;
}

/* ---- options ---- */

struct options {
	const char *pcap, *fault, *wire, *explain; /* explain "-": standard error */
	const char *devices, *like, *check;
	bool stats, library, print_library, namespace;
};

static const struct cli_option option[] = {
	{"explain", 'e', CLI_FILE, "FILE",
		"print step by step what happens: calls, states, packets, completions, and at the "
		"end why; to standard error or FILE",
		.bare = "-", CLI_INTO(struct options, explain)},
	{"check", 'c', CLI_TEXT, "SPEC",
		"check how the program and its children use verbs and rdma_cm; each finding goes "
		"to "
		"standard error as it occurs. SPEC: rules by name, as in race,-leak, and settings, "
		"all between colons: halt=1 (end at the first error), exitcode=N, log=FILE, "
		"suppress=FILE, color=WHEN, columns=N (docs/check.md)",
		.bare = "1", CLI_INTO(struct options, check)},
	{"stats", 's', CLI_FLAG, NULL,
		"print counters to standard error at the end: packets, retries, NAKs, ICRC errors",
		CLI_INTO(struct options, stats)},
	{"pcap", 'p', CLI_FILE, "FILE", "capture every packet as pcapng",
		CLI_INTO(struct options, pcap)},
	{"fault", 'f', CLI_TEXT, "SPEC|FILE",
		"inject faults into what is sent, reproducibly, as in drop=0.01,delay=2,seed=7 "
		"(drop, dup, reorder, corrupt: probabilities; delay: ms; seed); or follow FILE, "
		"one "
		"fault per line, as in 'reg_mr 3: ENOMEM': calls, completions, events, packets, CM "
		"messages (docs/faults.md)",
		.words = rpwi_fault_names, .offer = CLI_OFFER_SETTINGS,
		CLI_INTO(struct options, fault)},
	{"wire", 'w', CLI_CHOICE, "WAY",
		"how packets travel; auto: by shared memory to processes of the same user and "
		"network namespace, otherwise by UDP; udp: always by UDP; copy: as auto, but "
		"payloads are always copied, and no other process's memory is read; fetch: as "
		"auto, but large ones are always fetched from the sender",
		.words = rpwi_wire_names, CLI_INTO(struct options, wire)},
	{"devices", 'd', CLI_TEXT, "LIST",
		"the devices that PROGRAM sees: names of software devices or interfaces, lo, or "
		"all; by default all but that of lo, which reaches this host alone (it is there if "
		"no other is active). Of real devices, which come after them: software: none; "
		"^NAME: not this one; auto: none that cannot make a queue pair (each is tried, for "
		"at most 2 s); first: all",
		.words = rpwi_choice_words, .offer = CLI_OFFER_DEVICES,
		CLI_INTO(struct options, devices)},
	{"like", 0, CLI_TEXT, "NAME|FILE",
		"a device for the job: limits and capabilities of another one, of which this one's "
		"are narrowed to those: efa-limits, mlx5, rxe, thunderbolt, or FILE, one limit per "
		"line, as in 'max_sge = 2' (docs/like.md)",
		.words = rpwi_like_names, CLI_INTO(struct options, like)},
	{"library", 'l', CLI_FLAG, NULL,
		"also put ropeway's own libibverbs.so.1, whose symbols have rdma-core's versions, "
		"before the system's; the default if the system has none",
		CLI_INTO(struct options, library)},
	{"namespace", 'n', CLI_FLAG, NULL,
		"also show the devices' files, in /sys and /dev, to programs that no preload "
		"reaches (static ones, Go), in a mount namespace that all runs of the user join; "
		"they can list devices, but not open one (docs/tree.md)",
		CLI_INTO(struct options, namespace)},
	{"print-library", 0, CLI_FLAG, NULL,
		"print the folder of that library and run nothing: for "
		"LD_LIBRARY_PATH, or for a program that takes a library's path",
		CLI_INTO(struct options, print_library)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[OPTIONS] [--] PROGRAM [ARGUMENTS...]\n--print-library",
	.about = "Runs PROGRAM, unmodified, with the software RoCEv2 devices first in its list of "
		 "RDMA devices. The exit status is PROGRAM's; 126 if it cannot "
		 "be run, 127 if there is none; with --check 86 if there was an error or a "
		 "warning, and PROGRAM was not ended by a signal.",
	.option = option,
	.after = "A %p in FILE becomes the process ID. Environment variables do the same: "
		 "ROPEWAY_STATS=1, ROPEWAY_PCAP, ROPEWAY_PCAP_LIMIT, ROPEWAY_FAULT, "
		 "ROPEWAY_WIRE, ROPEWAY_DEVICES, ROPEWAY_LIKE, ROPEWAY_EXPLAIN (a file, or -), "
		 "ROPEWAY_CHECK (a SPEC; 1: the defaults), ROPEWAY_LOG.",
	.operand = CLI_OPERAND_PROGRAM,
	.ends_at_operand = true,
};

int rpwi_cli_check_fault(const char *spec, char *why, size_t why_len)
{
	struct rpwi_fault *f = NULL;

	if (rpwi_script_is_file(spec)) {
		struct rpwi_script *s = NULL;
		struct rpwi_script_who who = rpwi_script_self();
		int rc = rpwi_script_load(spec, &who, &s, why, why_len);
		free(s);
		return rc;
	}
	int err = rpwi_fault_parse(spec, &f, why, why_len);

	if (!err)
		rpwi_fault_free(f);
	return err;
}

/* What may have been meant by the first setting of a name that there is not; NULL: nothing near. */
static const char *near_setting(const char *spec)
{
	char name[32];
	for (size_t len; *spec; spec += len + (spec[len] == ',')) {
		len = strcspn(spec, ",");
		snprintf(name, sizeof(name), "%.*s",
			(int)RPWI_MIN(strcspn(spec, ",="), sizeof(name) - 1), spec);
		const char *near = rpwi_word_near(name, rpwi_fault_names);
		if (near && strcmp(near, name) != 0)
			return near;
	}
	return NULL;
}

static int fault_invalid(const char *spec, const char *why)
{
	const char *near = rpwi_script_is_file(spec) ? NULL : near_setting(spec);
	char text[RPWI_WHY_LEN + 64];
	if (near)
		snprintf(text, sizeof(text), "did you mean '%s'? %s", near, why);
	return cli_options_invalid(&command, "fault", spec, near ? text : why);
}

/* Of --fault, else of the environment. The program would say it too, but as late as it needs the
 * device. */
static int set_fault(const char *spec)
{
	const char *inherited = getenv("ROPEWAY_FAULT");
	char why[RPWI_WHY_LEN] = "", path[PATH_MAX];

	if (spec && rpwi_cli_check_fault(spec, why, sizeof(why)))
		return fault_invalid(spec, why);
	/* The program may change its folder. */
	if (spec && rpwi_script_is_file(spec) && realpath(spec, path))
		setenv("ROPEWAY_FAULT", path, 1);
	else if (spec)
		setenv("ROPEWAY_FAULT", spec, 1);
	else if (inherited && rpwi_cli_check_fault(inherited, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, NAME, "ROPEWAY_FAULT: %s", why);
	return CLI_OK;
}

/* Of --like, else of the environment; the program would say it too, but as late as it opens the
 * device. */
static int set_like(const char *name)
{
	const char *inherited = getenv("ROPEWAY_LIKE");
	char why[RPWI_WHY_LEN] = "", path[PATH_MAX];
	struct rpwi_like like;

	if (name && rpwi_like_read(name, &like, why, sizeof(why)))
		return cli_options_invalid(&command, "like", name, why);
	/* The program may change its folder. */
	if (name && !rpwi_like_is_name(name) && realpath(name, path))
		setenv("ROPEWAY_LIKE", path, 1);
	else if (name)
		setenv("ROPEWAY_LIKE", name, 1);
	else if (inherited && *inherited && rpwi_like_read(inherited, &like, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, NAME, "ROPEWAY_LIKE: %s", why);
	return CLI_OK;
}

/* The device, interface or word that was meant, or NULL. */
static const char *near_device(const char *name, const struct rpwi_netdev *devs, unsigned n)
{
	enum { MOST = 62 };
	const char *names[2 * MOST + 5] = {NULL};
	unsigned at = 0;

	for (; rpwi_choice_words[at]; at++)
		names[at] = rpwi_choice_words[at];
	for (unsigned i = 0; i < n && i < MOST; i++) {
		names[at++] = devs[i].name;
		names[at++] = devs[i].ifname;
	}
	return rpwi_word_near(name, names);
}

/* A word of --devices that names nothing is most likely a slip. The variable may have been set for
 * another machine, so there it is a warning, by the device. */
static int check_devices(const char *asked)
{
	struct rpwi_netdev *devs = NULL;
	char name[64], why[RPWI_WHY_LEN];
	unsigned all = 0;
	size_t used = 0;

	bool unknown = rpwi_netdev_list(&devs, &all) >= 0 &&
		       rpwi_netdev_unknown(devs, all, name, sizeof(name));
	const char *are = all == 1 ? "is" : "are";
	const char *near = unknown ? near_device(name, devs, all) : NULL;
	if (near)
		used = (size_t)snprintf(why, sizeof(why), "did you mean '%s'? ", near);
	if (unknown)
		used += (size_t)snprintf(why + used, sizeof(why) - used,
			"%so software device and no interface is called '%s'; there %s",
			near ? "N" : "n", name, all ? are : "is none");
	for (unsigned i = 0; unknown && i < all && used < sizeof(why); i++)
		used += (size_t)snprintf(
			why + used, sizeof(why) - used, "%s %s", i ? "," : "", devs[i].name);
	free(devs);
	return unknown ? cli_options_invalid(&command, "devices", asked, why) : CLI_OK;
}

static int set_devices(const char *asked)
{
	char list[CHOOSE_LIST_MAX], why[RPWI_WHY_LEN];

	if (rpwi_choose_devices(NAME, asked, list, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, NAME, "%s", why);
	setenv("ROPEWAY_DEVICES", list, 1);
	return asked ? check_devices(asked) : CLI_OK;
}

/* The program may change its folder before it opens a device: what it leaves still goes where it
 * was asked for. */
static int set_file(const char *what, const char *variable, const char *file)
{
	char cwd[PATH_MAX], path[2 * PATH_MAX];

	if (file[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		snprintf(path, sizeof(path), "%s", file);
	else
		snprintf(path, sizeof(path), "%s/%s", cwd, file);
	char *slash = strrchr(path, '/');
	*slash = '\0';
	const char *folder = *path ? path : "/";
	if (access(folder, W_OK | X_OK))
		return rpwi_cli_fail(CLI_FAILED, NAME, "cannot write %s to %s: %s", what, folder,
			strerror(errno));
	*slash = '/';
	setenv(variable, path, 1);
	return CLI_OK;
}

/* Of --check, else of the environment, where only a mistake is told: the program, or the run that
 * this one is part of, has the rest. */
static int set_check(const char *spec, struct rpwi_watch *w)
{
	const char *inherited = getenv("ROPEWAY_CHECK");
	struct rpwi_check_options unused;
	char why[RPWI_WHY_LEN];

	if (spec && rpwi_watch_prepare(w, spec, why, sizeof(why)))
		return cli_options_invalid(&command, "check", spec, why);
	if (!spec && inherited && rpwi_check_options_read(inherited, &unused, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, NAME, "ROPEWAY_CHECK: %s", why);
	return CLI_OK;
}

static int set_environment(const struct options *o)
{
	int status = set_devices(o->devices);

	if (o->stats)
		setenv("ROPEWAY_STATS", "1", 1);
	if (o->wire)
		setenv("ROPEWAY_WIRE", o->wire, 1);
	if (!status)
		status = set_like(o->like);
	if (o->pcap && !status)
		status = set_file("a capture", "ROPEWAY_PCAP", o->pcap);
	if (o->explain && !strcmp(o->explain, "-"))
		setenv("ROPEWAY_EXPLAIN", "-", 1);
	else if (o->explain && !status)
		status = set_file("an account", "ROPEWAY_EXPLAIN", o->explain);
	return status ? status : set_fault(o->fault);
}

static int enter_namespace(void)
{
	char why[2 * PATH_MAX];

	if (rpwi_namespace_enter(why, sizeof(why)))
		return rpwi_cli_fail(CLI_FAILED, NAME,
			"--namespace: %s. Without it, the program runs but sees no device unless "
			"it is dynamically linked",
			why);
	return CLI_OK;
}

/* Programs of rdma-core and perftest, and the packages of Debian and Ubuntu that have them. */
static const struct {
	const char *names, *package;
} PACKAGES[] = {
	{"ibv_*", "ibverbs-utils"},
	{"ib_*_bw", "perftest"},
	{"ib_*_lat", "perftest"},
	{"raw_ethernet_*", "perftest"},
	{"cmtime", "rdmacm-utils"},
	{"mckey", "rdmacm-utils"},
	{"r*stream", "rdmacm-utils"},
	{"rcopy", "rdmacm-utils"},
	{"rdma_[cx]*", "rdmacm-utils"},
	{"rdma_server", "rdmacm-utils"},
	{"rping", "rdmacm-utils"},
	{"ucmatose", "rdmacm-utils"},
	{"udaddy", "rdmacm-utils"},
	{"udpong", "rdmacm-utils"},
};

static const char *package_of(const char *program)
{
	for (size_t i = 0; i < sizeof(PACKAGES) / sizeof(PACKAGES[0]); i++)
		if (!fnmatch(PACKAGES[i].names, program, 0))
			return PACKAGES[i].package;
	return NULL;
}

/* An errno of finding or starting a program, as the shell has it. */
static int cannot_run(const char *program, int err)
{
	const char *package = package_of(program);

	if (err == ENOENT || err == ENOTDIR)
		return rpwi_cli_fail(CLI_NOT_FOUND, NAME,
			"%s: there is no such program (or its interpreter is missing)%s%s", program,
			package ? ". To install it: apt install " : "", package ? package : "");
	return rpwi_cli_fail(CLI_CANNOT_RUN, NAME, "cannot run %s: %s", program, strerror(err));
}

int rpwi_cli_run(int argc, char **argv)
{
	struct options o = {0};
	struct rpwi_launch launch;
	struct rpwi_watch watch = {.how.any = false};

	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	if (o.print_library)
		return print_library();
	if (!argc)
		return rpwi_cli_usage(NAME, "no program given");
	status = set_environment(&o);
	if (status)
		return status;
	int err = rpwi_launch_inspect(argv[0], &launch);
	if (err)
		return cannot_run(argv[0], -err);
	status = set_preload(o.check);
	if (!status)
		status = set_library(o.library);
	if (status)
		return status;
	if (o.namespace && enter_namespace())
		return CLI_FAILED;
	warn_if_not_preloadable(&launch, o.namespace);
	warn_about_devices(argv);
	if (!rpwi_choice_software() && !rpwi_choice_first() && rpwi_choice_add("first"))
		return rpwi_cli_fail(CLI_FAILED, NAME, "no memory for ROPEWAY_DEVICES");
	fflush(stdout);
	status = set_check(o.check, &watch);
	if (status || watch.how.any)
		return status ? status : rpwi_watch_run(&watch, argv, cannot_run);
	rpwi_cli_file_limit_as_before();
	execvp(argv[0], argv);
	return cannot_run(argv[0], errno);
}
