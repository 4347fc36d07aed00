/* SPDX-License-Identifier: BSD-3-Clause */
/* send.c - `ropeway send`: goes through files and directories, and sends each to a `ropeway
 * recv`. */
#include "cli/files/send.h"
#include "cli/options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway send"

static int walk(struct sender *s, int parent, const char *leaf, const char *name, bool follow);

static int walk_link(
	struct sender *s, int parent, const char *leaf, const char *name, const struct stat *st)
{
	char target[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(parent, leaf, target, sizeof(target));

	if (n < 0 || (size_t)n == sizeof(target))
		return send_skip(s, name, "the link cannot be read: %s",
			n < 0 ? strerror(errno) : "it is too long");
	target[n] = '\0';
	/* Within what is sent: its first component is the directory that was named. */
	const char *inner = strchr(name, '/'), *wrong = NULL;
	if (!s->any_links)
		wrong = inner ? files_link_check(inner + 1, target) : "a link alone";
	if (!wrong)
		return send_entry(s, FILES_LINK, name, st, target);
	return send_skip(s, name,
		"the link leads outside of what is sent: %s (--links sends it as it is)", wrong);
}

static void note_bits(struct sender *s, const char *name, const struct stat *st)
{
	char shown[300];

	if (st->st_mode & 07000)
		send_note(s,
			"'%s' has mode %04o: it is sent without its set-user-ID, set-group-ID and "
			"sticky bits",
			rpwi_cli_printable(name, shown, sizeof(shown)), st->st_mode & 07777);
}

static int walk_file(struct sender *s, int parent, const char *leaf, const char *name, bool follow)
{
	char shown[300];
	struct stat st;
	int fd = openat(parent, leaf,
		O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));

	if (fd < 0)
		return send_skip(s, name, "it cannot be opened: %s", strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return send_skip(s, name, "it is not a plain file any more");
	}
	if (st.st_nlink > 1)
		send_note(s,
			"'%s' has %ju names (hard links): each one sent becomes a separate file",
			rpwi_cli_printable(name, shown, sizeof(shown)), (uintmax_t)st.st_nlink);
	note_bits(s, name, &st);
	int ret = send_file(s, name, fd, &st);
	close(fd);
	return ret;
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int walk_inside(struct sender *s, int dir, const char *name)
{
	struct dirent **entries;
	int n = scandirat(dir, ".", &entries, not_dots, alphasort), ret = 0;

	if (n < 0)
		return send_skip(s, name, "the directory cannot be read: %s", strerror(errno));
	char *path = malloc(FILES_TEXT_MAX + 2);
	for (int i = 0; i < n; i++) {
		if (path && !ret &&
			snprintf(path, FILES_TEXT_MAX + 1, "%s/%s", name, entries[i]->d_name) <=
				FILES_TEXT_MAX)
			ret = walk(s, dir, entries[i]->d_name, path, false);
		else if (!ret)
			send_skip(s, name, "the path of an entry in it is too long");
		free(entries[i]);
	}
	free(entries);
	free(path);
	return ret;
}

static int walk_dir(struct sender *s, int parent, const char *leaf, const char *name,
	const struct stat *st, bool follow)
{
	int dir = openat(
		parent, leaf, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));

	if (dir < 0)
		return send_skip(s, name, "the directory cannot be opened: %s", strerror(errno));
	note_bits(s, name, st);
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
		return send_skip(s, name, "the receiver would refuse its name: %s", wrong);
	if (fstatat(parent, leaf, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))
		return send_skip(s, name, "%s", strerror(errno));
	if (S_ISLNK(st.st_mode))
		return walk_link(s, parent, leaf, name, &st);
	if (S_ISDIR(st.st_mode))
		return walk_dir(s, parent, leaf, name, &st, follow);
	if (S_ISREG(st.st_mode))
		return walk_file(s, parent, leaf, name, follow);
	return send_skip(s, name, "it is neither a file nor a directory nor a link");
}

/* ---- what is named on the command line ---- */

/* A path, and what it is called on the other side. */
struct source {
	const char *path;
	char *name; /* NULL: it is left out, which was told */
};

/* The last component; where that says nothing ("dir/.", "..", "."), the one that the directory
 * really has. NULL, and told, if there is no such thing. */
static char *name_of(struct sender *s, const char *path)
{
	size_t len = strlen(path);
	struct stat st;

	if (fstatat(AT_FDCWD, path, &st, s->any_links ? AT_SYMLINK_NOFOLLOW : 0)) {
		send_skip(s, path, "%s", strerror(errno));
		return NULL;
	}
	while (len > 1 && path[len - 1] == '/')
		len--;
	char *name = strndup(path, len), *slash = name ? strrchr(name, '/') : NULL;
	const char *last = slash ? slash + 1 : name;
	if (name && (!*last || !strcmp(last, ".") || !strcmp(last, ".."))) {
		free(name);
		name = realpath(path, NULL);
		slash = name ? strrchr(name, '/') : NULL;
	}
	if (slash)
		memmove(name, slash + 1, strlen(slash + 1) + 1);
	const char *wrong = name ? files_name_check(name) : strerror(errno);
	if (name && !*name)
		wrong = "the root directory has no name: name its entries instead";
	if (!wrong)
		return name;
	send_skip(s, path, "%s", wrong);
	free(name);
	return NULL;
}

static int by_name(const void *a, const void *b)
{
	const struct source *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* All of them are looked at before anything is sent: how many there are to send, or -1 if two would
 * be one on the other side. */
static int sources_open(struct sender *s, struct source *sources, int n, char **paths)
{
	const struct source **sorted = malloc((size_t)n * sizeof(const struct source *));
	int there = 0;

	for (int i = 0; sorted && i < n; i++) {
		sources[i] = (struct source){.path = paths[i], .name = name_of(s, paths[i])};
		if (sources[i].name)
			sorted[there++] = &sources[i];
	}
	if (sorted)
		qsort(sorted, (size_t)there, sizeof(const struct source *), by_name);
	for (int i = 1; i < there; i++) {
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0)
			continue;
		rpwi_cli_fail(CLI_FAILED, NAME,
			"'%s' and '%s' would both become '%s' there, so nothing is sent: send them "
			"to two directories",
			sorted[i - 1]->path, sorted[i]->path, sorted[i]->name);
		there = -1;
		break;
	}
	free(sorted);
	return there;
}

static void sources_close(struct source *sources, int n)
{
	for (int i = 0; sources && i < n; i++)
		free(sources[i].name);
	free(sources);
}

/* ---- options ---- */

static void print_end(const struct sender *s)
{
	char sent[CLI_SIZE_LEN], compared[CLI_SIZE_LEN];
	double seconds = files_seconds_since(s->begin_ns);
	bool is_all_there = !s->bytes && s->compared;
	uint64_t bytes = is_all_there ? s->compared : s->bytes;

	printf("%u file%s, %s %s in %.2f s (%.2f GB/s) by %s: %s\n", s->files,
		rpwi_cli_plural(s->files), rpwi_cli_size(bytes, sent),
		is_all_there ? "compared" : "sent", seconds, (double)bytes / 1e9 / seconds,
		s->transport, s->why);
	if (is_all_there)
		printf("all of it was there already\n");
	else if (s->compared)
		printf("%s were there already\n", rpwi_cli_size(s->compared, compared));
}

struct options {
	const char *key_file;
	unsigned timeout_s;
	bool links, quiet;
};
static const struct cli_option option[] = {
	{"key-file", 'k', CLI_FILE, "FILE",
		"the receiver's key; names, contents and checksums are encrypted",
		CLI_INTO(struct options, key_file)},
	{"links", 'L', CLI_FLAG, NULL,
		"send all symbolic links as they are, wherever they lead; the receiver needs "
		"--links too",
		CLI_INTO(struct options, links)},
	{"timeout", 't', CLI_NUMBER, "S", "seconds to try to connect", .unit = "seconds",
		.least = 1, .most = 86400, .preset = "10", CLI_INTO(struct options, timeout_s)},
	{"quiet", 'q', CLI_FLAG, NULL, "no progress bar and no last line",
		CLI_INTO(struct options, quiet)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[OPTIONS] PATH... HOST[:PORT]",
	.about = "Sends files and directories to a `ropeway recv` on HOST, port " FILES_PORT
		 " by default; write an IPv6 address with a port as [ADDRESS]:PORT. Permissions, "
		 "times, holes, and links that stay inside of what is sent are kept; hard "
		 "links become separate files, and set-user-ID and set-group-ID bits are "
		 "dropped, each with a line. The receiver verifies each file by a checksum; "
		 "then it counts as sent.",
	.option = option,
	.after = "Data that the receiver already has is compared, not sent again, so after a "
		 "broken connection the same command continues where it stopped. If the "
		 "receiver has a different file of the same name, the file is left out, unless the "
		 "receiver has --overwrite. The exit status is 1 if anything was left out or "
		 "refused; a line on standard error says what and why.",
	.operands_least = 2,
	.operands_most = INT_MAX,
	.operand = CLI_OPERAND_FILE,
	.missing = "expected at least one PATH, and the HOST to send it to",
};

static int run(struct sender *s, const struct options *o, const struct source *sources, int n,
	const char *target)
{
	char host[CLI_HOST_LEN], address[CLI_ADDRESS_LEN];

	/* What is no address, the library says. */
	bool is_address = !rpwi_cli_address(target, FILES_PORT, host, address);
	s->has_bar = !o->quiet && isatty(STDERR_FILENO);
	int rc = send_begin(s, is_address ? address : target, o->timeout_s * 1000);
	for (int i = 0; !rc && i < n; i++)
		if (sources[i].name)
			rc = walk(s, AT_FDCWD, sources[i].path, sources[i].name, !s->any_links);
	if (!rc)
		rc = send_end(s);
	if (!rc && !o->quiet)
		print_end(s);
	send_close(s);
	return rc || s->skipped ? CLI_FAILED : CLI_OK;
}

static int open_and_run(
	struct sender *s, const struct options *o, char **paths, int n, const char *target)
{
	rpw_context_options co = {.size = sizeof(co), .key_file = o->key_file};
	struct source *sources = calloc((size_t)n, sizeof(*sources));
	int status = CLI_FAILED;

	if (!sources)
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	if (sources_open(s, sources, n, paths) <= 0)
		; /* why was told */
	else if (rpw_context_create(&co, &s->c) < 0)
		rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
	else {
		status = run(s, o, sources, n, target);
		rpw_context_destroy(s->c);
	}
	sources_close(sources, n);
	return status;
}

int rpwi_cli_send(int argc, char **argv)
{
	struct options o = {0};
	struct sender s = {0};
	int status = cli_options_parse(&command, &o, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	s.any_links = o.links;
	return open_and_run(&s, &o, argv, argc - 1, argv[argc - 1]);
}
