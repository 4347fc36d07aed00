/* send.c - `ropeway send`: goes through files and directories, and sends each to a `ropeway recv`. */
#include "cli/send.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway send"
enum { TIMEOUT_S = 10 };

/* What is left out is told, and makes the exit status 1; the rest is sent. */
static int skip(struct sender *s, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int skip(struct sender *s, const char *name, const char *fmt, ...)
{
	char reason[256], shown[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	s->skipped++;
	rpwi_cli_fail(CLI_FAILED, NAME, "'%s' is left out: %s", rpwi_cli_printable(name, shown, sizeof(shown)), reason);
	return 0;
}

static int walk(struct sender *s, int parent, const char *leaf, const char *name, bool follow);

static int walk_link(struct sender *s, int parent, const char *leaf, const char *name, const struct stat *st)
{
	char target[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(parent, leaf, target, sizeof(target));

	if (n < 0 || (size_t)n == sizeof(target))
		return skip(s, name, "the link cannot be read: %s", n < 0 ? strerror(errno) : "it is too long");
	target[n] = '\0';
	/* Within what is sent: its first component is the directory that was named. */
	const char *inner = strchr(name, '/'), *wrong = inner ? files_link_check(inner + 1, target) : "a link alone";
	return wrong ? skip(s, name, "the link does not stay inside of what is sent: %s", wrong) : send_entry(s, FILES_LINK, name, st, target);
}

static int walk_file(struct sender *s, int parent, const char *leaf, const char *name, bool follow)
{
	struct stat st;
	int fd = openat(parent, leaf, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));

	if (fd < 0)
		return skip(s, name, "it cannot be opened: %s", strerror(errno));
	int ret = fstat(fd, &st) || !S_ISREG(st.st_mode) ? skip(s, name, "it is not a plain file any more") : send_file(s, name, fd, &st);
	close(fd);
	return ret;
}

static int not_dots(const struct dirent *e) { return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0; }

static int walk_inside(struct sender *s, int dir, const char *name)
{
	struct dirent **entries;
	int n = scandirat(dir, ".", &entries, not_dots, alphasort), ret = 0;

	if (n < 0)
		return skip(s, name, "the directory cannot be read: %s", strerror(errno));
	char *path = malloc(FILES_TEXT_MAX + 2);
	for (int i = 0; i < n; i++) {
		if (path && !ret && snprintf(path, FILES_TEXT_MAX + 1, "%s/%s", name, entries[i]->d_name) <= FILES_TEXT_MAX)
			ret = walk(s, dir, entries[i]->d_name, path, false);
		else if (!ret)
			skip(s, name, "the path of what is in it is too long");
		free(entries[i]);
	}
	free(entries);
	free(path);
	return ret;
}

static int walk_dir(struct sender *s, int parent, const char *leaf, const char *name, const struct stat *st, bool follow)
{
	int dir = openat(parent, leaf, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));

	if (dir < 0)
		return skip(s, name, "the directory cannot be opened: %s", strerror(errno));
	int ret = send_entry(s, FILES_DIR, name, st, NULL);
	if (!ret)
		ret = walk_inside(s, dir, name);
	close(dir);
	return ret ? ret : send_entry(s, FILES_DIR_END, name, st, NULL);
}

/* One entry: `leaf` in the directory `parent`, called `name` on the other side. */
static int walk(struct sender *s, int parent, const char *leaf, const char *name, bool follow)
{
	const char *wrong = files_name_check(name);
	struct stat st;

	if (wrong)
		return skip(s, name, "the receiver would refuse its name: %s", wrong);
	if (fstatat(parent, leaf, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))
		return skip(s, name, "%s", strerror(errno));
	if (S_ISLNK(st.st_mode))
		return walk_link(s, parent, leaf, name, &st);
	if (S_ISDIR(st.st_mode))
		return walk_dir(s, parent, leaf, name, &st, follow);
	if (S_ISREG(st.st_mode))
		return walk_file(s, parent, leaf, name, follow);
	return skip(s, name, "it is neither a file nor a directory nor a link");
}

/* "dir/", "." and "../x/.." have a name too: the one that they really have. */
static int walk_top(struct sender *s, const char *path)
{
	char *real = realpath(path, NULL), *end = NULL;
	const char *last = path;

	if (!real)
		return skip(s, path, "%s", strerror(errno));
	char *copy = strdup(path);
	for (end = copy ? copy + strlen(copy) : NULL; copy && end > copy + 1 && end[-1] == '/';)
		*--end = '\0';
	last = copy && strrchr(copy, '/') ? strrchr(copy, '/') + 1 : copy;
	if (!copy || !*last || !strcmp(last, ".") || !strcmp(last, ".."))
		last = strrchr(real, '/') + 1;
	int ret = *last ? walk(s, AT_FDCWD, path, last, true) : skip(s, path, "the root directory has no name: name what is in it");
	free(copy);
	free(real);
	return ret;
}

/* ---- options ---- */

static void print_help(void)
{
	printf("Usage: ropeway send [OPTIONS] PATH... HOST[:PORT]\n\n"
	       "Sends files and directories to a `ropeway recv` on HOST, port %d unless given;\n"
	       "an IPv6 address with a port is [ADDRESS]:PORT. Permissions, times and links\n"
	       "inside of what is sent are kept. Each file is verified by a checksum.\n\n"
	       "  -k, --key-file FILE  the receiver's key\n"
	       "  -t, --timeout S      try so long to connect; %d unless given\n"
	       "  -q, --quiet          no progress bar and no last line\n\n"
	       "What is there already is not sent again, so after a broken connection the same\n"
	       "command goes on where it stopped. Exit status 1 if anything was left out or\n"
	       "refused; a line on standard error says what and why.\n",
		FILES_PORT, TIMEOUT_S);
}

/* "host", "host:port", "[v6]", "[v6]:port", "v6". */
static void address_of(const char *target, char *out, size_t out_len)
{
	const char *colon = strchr(target, ':'), *bracket = strrchr(target, ']');
	bool is_bare_v6 = *target != '[' && colon && strchr(colon + 1, ':');
	bool has_port = *target == '[' ? bracket && bracket[1] : colon && !is_bare_v6;

	if (has_port)
		snprintf(out, out_len, "%s", target);
	else
		snprintf(out, out_len, "%s%s%s:%d", is_bare_v6 ? "[" : "", target, is_bare_v6 ? "]" : "", FILES_PORT);
}

static void print_end(const struct sender *s)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	char sent[CLI_SIZE_LEN], there[CLI_SIZE_LEN];
	double seconds = (double)(rpwi_now_ns() - s->begin_ns) / 1e9;

	rpw_endpoint_info(s->ep, &info);
	printf("%u file%s, %s sent in %.2f s (%.2f GB/s) by %s: %s\n", s->files, s->files == 1 ? "" : "s", rpwi_cli_size(s->bytes, sent), seconds,
		(double)s->bytes / 1e9 / (seconds > 0 ? seconds : 1), info.transport, info.why);
	if (s->resumed)
		printf("%s were there already\n", rpwi_cli_size(s->resumed, there));
}

static int run(const char *key_file, unsigned timeout_s, bool quiet, char **paths, int n, const char *target)
{
	rpw_context_options co = {.size = sizeof(co), .key_file = key_file};
	struct sender *s = calloc(1, sizeof(*s));
	char address[512];

	if (!s || rpw_context_create(&co, &s->c) < 0) {
		free(s);
		return rpwi_cli_fail(CLI_FAILED, NAME, "%s", s ? rpw_last_error() : "out of memory");
	}
	s->has_bar = !quiet && isatty(STDERR_FILENO);
	address_of(target, address, sizeof(address));
	int rc = send_begin(s, address, timeout_s * 1000);
	for (int i = 0; !rc && i < n; i++)
		rc = walk_top(s, paths[i]);
	if (!rc)
		rc = send_end(s);
	if (!rc && !quiet)
		print_end(s);
	int status = rc || s->skipped ? CLI_FAILED : CLI_OK;
	send_close(s);
	rpw_context_destroy(s->c);
	free(s);
	return status;
}

static const struct option long_options[] = {{"help", no_argument, NULL, 'h'}, {"key-file", required_argument, NULL, 'k'}, {"quiet", no_argument, NULL, 'q'},
	{"timeout", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};

static int wrong_timeout(const char *text)
{
	rpwi_cli_fail(CLI_USAGE, NAME, "--timeout '%s': a number of seconds from 1 to 86400", text);
	return rpwi_cli_usage(NAME);
}

int rpwi_cli_send(int argc, char **argv)
{
	const char *key_file = NULL;
	unsigned long timeout_s = TIMEOUT_S;
	bool quiet = false;
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "hk:qt:", long_options, NULL)) != -1) {
		switch (c) {
		case 'h':
			print_help();
			return CLI_OK;
		case 'k':
			key_file = optarg;
			break;
		case 'q':
			quiet = true;
			break;
		case 't':
			timeout_s = strtoul(optarg, &end, 10);
			if (*end || timeout_s < 1 || timeout_s > 86400)
				return wrong_timeout(optarg);
			break;
		default:
			return rpwi_cli_usage(NAME);
		}
	}
	if (argc - optind < 2) {
		rpwi_cli_fail(CLI_USAGE, NAME, "at least one path, and where it is to go");
		return rpwi_cli_usage(NAME);
	}
	return run(key_file, (unsigned)timeout_s, quiet, argv + optind, argc - optind - 1, argv[argc - 1]);
}
