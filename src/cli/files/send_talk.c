/* SPDX-License-Identifier: BSD-3-Clause */
/* send_talk.c - the sender's side of the talk: say something, wait for the answer; the bytes of a
 * file, several chunks under way. */
#include "cli/files/send.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NAME "ropeway send"

static void bar_clear(struct sender *s)
{
	if (s->has_bar && s->drawn_ns)
		fputs("\r\033[K", stderr);
	s->drawn_ns = 0;
}

/* ---- words for people ---- */

int send_skip(struct sender *s, const char *name, const char *fmt, ...)
{
	char reason[256], shown[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	bar_clear(s);
	s->skipped++;
	rpwi_cli_fail(CLI_FAILED, NAME, "'%s' is left out: %s",
		rpwi_cli_printable(name, shown, sizeof(shown)), reason);
	return 0;
}

void send_note(struct sender *s, const char *fmt, ...)
{
	enum { SHOWN = 10 };
	char line[900];
	va_list ap;

	if (s->notes++ > SHOWN)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	bar_clear(s);
	rpwi_cli_fail(CLI_OK, NAME, "%s", s->notes > SHOWN ? "... and others" : line);
}

/* Evaluates to -1, for `return fail(...)`. */
#define fail(...) rpwi_cli_fail(-1, NAME, __VA_ARGS__)

static int fail_last(const char *what, int status)
{
	return fail("%s: %s (%s). What has arrived is kept: the same command continues there", what,
		rpw_last_error(), rpw_status_name(status));
}

/* ---- the bar ---- */

enum { PACE_COLUMNS = 12 };

/* Columns of the terminal; one is left free, so that none of them wraps. */
static unsigned columns(void)
{
	struct winsize w = {0};

	return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col - 1u : 79;
}

/* How fast, and how long that still takes; nothing from less than a moment. */
static unsigned add_pace(const struct sender *s, uint64_t left, char *out, size_t room)
{
	double seconds = files_seconds_since(s->begin_ns), pace = (double)s->bytes / seconds;
	if (seconds < 0.2 || pace < 1)
		return (unsigned)snprintf(out, room, "%*s", PACE_COLUMNS, "");
	unsigned used = (unsigned)snprintf(out, room, "  %5.2f GB/s", pace / 1e9);
	unsigned long to_go = (unsigned long)((double)left / pace);
	if (to_go < 2 || to_go >= 100 * 3600)
		return used;
	return used + (unsigned)snprintf(
			      out + used, room - used, "  %lu:%02lu left", to_go / 60, to_go % 60);
}

static void bar_draw(struct sender *s, const char *name, uint64_t at, uint64_t size)
{
	enum { WIDTH = 16, NAME_MAX_COLUMNS = 40, NAME_MIN_COLUMNS = 12, EVERY_MS = 100 };
	uint64_t now = rpwi_now_ns();
	char shown[4 * NAME_MAX_COLUMNS + 1], done[CLI_SIZE_LEN], bar[WIDTH + 4] = "", figures[80];
	unsigned width = columns();

	if (now - s->drawn_ns < EVERY_MS * RPWI_NS_PER_MS)
		return;
	s->drawn_ns = now;
	rpwi_cli_when_stopped(NAME,
		"stopped at %s of '%s': what has arrived is kept, and the same command continues "
		"there",
		rpwi_cli_size(at, done), name);
	if (!s->has_bar)
		return;
	double part = size ? (double)at / (double)size : 1;
	/* What fits: the figures, then a name, then the bar. */
	unsigned used =
		(unsigned)snprintf(figures, sizeof(figures), " %3.0f%%  %11s", part * 100, done);
	used += add_pace(s, size - at, figures + used, sizeof(figures) - used);
	if (used + NAME_MIN_COLUMNS + WIDTH + 3 <= width) {
		used += WIDTH + 3;
		bar[0] = ' ';
		bar[1] = '[';
		for (int i = 0; i < WIDTH; i++)
			bar[2 + i] = i < (int)(part * WIDTH) ? '#' : '.';
		bar[2 + WIDTH] = ']';
	}
	const char *slash = strrchr(name, '/');
	unsigned left = width > used ? RPWI_MIN(width - used, (unsigned)NAME_MAX_COLUMNS) : 0;
	unsigned has = rpwi_cli_columns(slash ? slash + 1 : name, shown, sizeof(shown), left);
	fprintf(stderr, "\r\033[K%s%*s%s%.*s", shown, (int)(left - has), "", bar, (int)width,
		figures);
	fflush(stderr);
}

/* ---- waiting ---- */

static int listen_for_answer(struct sender *s)
{
	int rc = rpw_recv(s->c, s->ep, s->control, sizeof(s->control), FILES_TAG_CONTROL,
		UINT64_MAX, &s->hearing);

	return rc < 0 ? fail_last("the receiver cannot be listened to", rc) : 0;
}

/* Until one of the two is complete, or nothing has happened for too long. */
static int wait_either(struct sender *s, rpw_request *a, rpw_request *b)
{
	struct pollfd p = {.fd = rpw_context_fd(s->c), .events = POLLIN};
	uint64_t last_ns = rpwi_now_ns();

	while (rpw_request_test(a, NULL) == RPW_IN_PROGRESS &&
		rpw_request_test(b, NULL) == RPW_IN_PROGRESS) {
		if (rpw_context_progress(s->c) > 0) {
			last_ns = rpwi_now_ns();
			continue;
		}
		if (rpwi_now_ns() - last_ns < FILES_SPIN_NS)
			continue;
		int rc = rpw_context_arm(s->c);
		if (rc < 0)
			return fail("%s", rpw_last_error());
		if (rc == RPW_OK && poll(&p, 1, 1000) < 0 && errno != EINTR)
			return fail("poll: %s", strerror(errno));
		if (rpwi_now_ns() - last_ns > SEND_SILENT_MS * RPWI_NS_PER_MS)
			return fail("the receiver has not moved for %d s: it is stopped, or not a "
				    "ropeway recv",
				SEND_SILENT_MS / 1000);
	}
	return 0;
}

#define ONE(type) (1u << (type))

/* What s->hearing is for: one of those types. While the receiver reads a long file it says STILL,
 * which is no answer. */
static int hear(struct sender *s, unsigned types)
{
	char why[200], shown[1024];
	rpw_completion done = RPW_COMPLETION_INIT;

	do {
		if ((!s->hearing && listen_for_answer(s)) || wait_either(s, s->hearing, s->hearing))
			return -1;
		int status = rpw_request_test(s->hearing, &done);
		rpw_request_destroy(s->hearing);
		s->hearing = NULL;
		bar_clear(s);
		if (status)
			return fail_last("the connection broke", status);
		if (files_unpack(s->control, done.length, &s->heard, why, sizeof(why)))
			return fail("incompatible receiver: %s", why);
	} while (s->heard.type == FILES_STILL);
	if (s->heard.type == FILES_REFUSED)
		return fail("the receiver refused: %s",
			rpwi_cli_printable(s->heard.text, shown, sizeof(shown)));
	if (!(types & ONE(s->heard.type)))
		return fail("the receiver sent an unexpected message of type %d", s->heard.type);
	return 0;
}

/* The end of an entry. 1: what the receiver has stays, and why was told. */
static int hear_end(struct sender *s, unsigned types)
{
	char shown[1024];

	if (hear(s, types | ONE(FILES_KEPT)))
		return -1;
	rpwi_cli_printable(s->heard.text, shown, sizeof(shown));
	if (s->heard.type == FILES_DONE && *shown)
		send_note(s, "%s", shown);
	if (s->heard.type != FILES_KEPT)
		return 0;
	s->skipped++;
	rpwi_cli_fail(CLI_FAILED, NAME, "left out: %s", shown);
	return 1;
}

/* A request of ours, while the receiver may refuse at any time. */
static int finish(struct sender *s, rpw_request **req)
{
	while (*req) {
		if ((!s->hearing && listen_for_answer(s)) || wait_either(s, *req, s->hearing))
			return -1;
		int status = rpw_request_test(*req, NULL);
		/* Nothing is due: it is a refusal, STILL, or wrong. Behind a failure, too, may be
		 * the word why. */
		if (status && rpw_request_test(s->hearing, NULL) != RPW_IN_PROGRESS) {
			if (hear(s, 0))
				return -1;
			continue;
		}
		rpw_request_destroy(*req);
		*req = NULL;
		if (status)
			return fail_last("the connection broke", status);
	}
	return 0;
}

static int say(struct sender *s, const struct files_message *m)
{
	rpw_request *req = NULL;

	if (!s->hearing && listen_for_answer(s))
		return -1;
	int rc = rpw_send(s->ep, s->packed, files_pack(m, s->packed), FILES_TAG_CONTROL, &req);

	if (rc < 0 && rpw_request_test(s->hearing, NULL) != RPW_IN_PROGRESS)
		return hear(s, 0);
	return rc < 0 ? fail_last("the connection broke", rc) : finish(s, &req);
}

/* ---- what is said ---- */

int send_begin(struct sender *s, const char *address, unsigned timeout_ms)
{
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = timeout_ms};
	struct files_message hello = {
		.type = FILES_HELLO, .mode = s->any_links ? FILES_WANTS_LINKS : 0};
	rpw_request *req = NULL;
	int rc = rpw_endpoint_create(s->c, address, &o, &s->ep, &req);

	if (rc == RPW_IN_PROGRESS) {
		rc = rpw_request_wait(req, -1, NULL);
		rpw_request_destroy(req);
	}
	if (rc < 0)
		return fail("%s (%s)", rpw_last_error(), rpw_status_name(rc));
	s->begin_ns = rpwi_now_ns();
	for (int i = 0; i < FILES_WINDOW; i++)
		if (!s->chunk[i] && !(s->chunk[i] = malloc(FILES_CHUNK + FILES_OFFSET_BYTES)))
			return fail("out of memory");
	if (say(s, &hello) || hear(s, ONE(FILES_READY)))
		return -1;
	if (s->any_links && !(s->heard.mode & FILES_WANTS_LINKS))
		return fail("--links: the receiver does not accept links that lead anywhere: start "
			    "it with --links too");
	return 0;
}

static void describe(struct files_message *m, const char *name, const struct stat *st)
{
	snprintf(m->name, sizeof(m->name), "%s", name);
	m->mode = st->st_mode & 07777;
	m->mtime_s = st->st_mtim.tv_sec;
	m->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
}

int send_entry(struct sender *s, enum files_type type, const char *name, const struct stat *st,
	const char *target)
{
	struct files_message m = {.type = type};

	describe(&m, name, st);
	snprintf(m.text, sizeof(m.text), "%s", target ? target : "");
	return say(s, &m) || hear_end(s, ONE(FILES_DONE)) < 0 ? -1 : 0;
}

/* ---- a file ---- */

struct outgoing {
	const char *name;
	int fd;
	uint64_t size, sent; /* sent: bytes that are not holes */
	struct files_sum sum;
};

/* Of a long file this takes long: the receiver hears of it. 0; 1 if the file is shorter; or
 * negative. */
static int sum_up_to(struct sender *s, struct outgoing *f, uint64_t until)
{
	enum { BUDGET = 16 << 20 };
	struct files_message still = {.type = FILES_STILL};
	int rc;

	while ((rc = files_sum_file(&f->sum, f->fd, until, BUDGET)) > 0) {
		uint64_t now_ns = rpwi_now_ns();
		rpw_context_progress(s->c);
		bar_draw(s, f->name, f->sum.at, f->size);
		if (now_ns - s->still_ns < FILES_STILL_MS * RPWI_NS_PER_MS)
			continue;
		s->still_ns = now_ns;
		if (say(s, &still))
			return -1;
	}
	if (rc == -ENODATA)
		return 1;
	return rc ? fail("'%s' cannot be read: %s", f->name, strerror(-rc)) : 0;
}

/* Where to begin: after what the receiver has, if that is the beginning of this file; at the end
 * where it only compares. */
static int agree_on_start(struct sender *s, struct outgoing *f)
{
	struct files_message start = {.type = FILES_START};
	bool is_compared = s->heard.type == FILES_COMPARE;
	uint64_t there = is_compared ? f->size : s->heard.size;
	uint8_t theirs[FILES_HASH_BYTES], ours[FILES_HASH_BYTES];

	memcpy(theirs, s->heard.hash, sizeof(theirs));
	s->still_ns = rpwi_now_ns();
	int rc = there > f->size ? 1 : sum_up_to(s, f, there);
	if (rc < 0 || (rc && is_compared))
		return rc < 0 ? rc : fail("'%s' became shorter while it was sent", f->name);
	files_sum_end(&f->sum, ours);
	if (is_compared || (!rc && !memcmp(ours, theirs, sizeof(ours))))
		start.size = there;
	else
		files_sum_reset(&f->sum);
	s->compared += start.size;
	return say(s, &start);
}

static int read_chunk(const struct outgoing *f, uint8_t *to, size_t len, uint64_t at)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(f->fd, to + done, len - done, (off_t)(at + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail("'%s' cannot be read: %s", f->name, strerror(errno));
		if (!n)
			return fail("'%s' became shorter while it was sent", f->name);
		done += (size_t)n;
	}
	return 0;
}

static int send_chunk(struct sender *s, struct outgoing *f, unsigned i, size_t len)
{
	if (finish(s, &s->under_way[i]) || read_chunk(f, s->chunk[i], len, f->sum.at))
		return -1;
	rpwi_put_be64(s->chunk[i] + len, f->sum.at);
	files_sum_bytes(&f->sum, s->chunk[i], len);
	int rc = rpw_send(
		s->ep, s->chunk[i], len + FILES_OFFSET_BYTES, FILES_TAG_DATA, &s->under_way[i]);
	if (rc < 0) {
		s->under_way[i] = NULL;
		return rpw_request_test(s->hearing, NULL) == RPW_IN_PROGRESS
			       ? fail_last("the connection broke", rc)
			       : hear(s, 0);
	}
	f->sent += len;
	s->bytes += len;
	bar_draw(s, f->name, f->sum.at, f->size);
	return 0;
}

/* Nothing is due while the bytes go: a message now is a refusal. Holes are neither read nor
 * sent. */
static int send_bytes(struct sender *s, struct outgoing *f)
{
	uint64_t from, until = f->sum.at;

	if (!s->hearing && listen_for_answer(s))
		return -1;
	for (unsigned i = 0; f->sum.at < f->size;) {
		if (f->sum.at == until) {
			files_data_next(f->fd, f->sum.at, f->size, &from, &until);
			files_sum_hole(&f->sum, from - f->sum.at);
			continue;
		}
		/* Up to a multiple of a chunk, as the checksum wants them. */
		if (send_chunk(s, f, i,
			    (size_t)RPWI_MIN(
				    FILES_CHUNK - f->sum.at % FILES_CHUNK, until - f->sum.at)))
			return -1;
		i = (i + 1) % FILES_WINDOW;
	}
	for (int i = 0; i < FILES_WINDOW; i++)
		if (finish(s, &s->under_way[i]))
			return -1;
	return 0;
}

/* 0: it is there and verified; 1: the receiver has kept another one. */
static int send_contents(struct sender *s, struct outgoing *f, const struct stat *st)
{
	struct files_message m = {.type = FILES_FILE, .number = ++s->number, .size = f->size},
			     end = {.type = FILES_END};
	struct stat now;

	describe(&m, f->name, st);
	m.data = RPWI_MIN((uint64_t)st->st_blocks * 512, f->size);
	int rc = say(s, &m) ? -1 : hear_end(s, ONE(FILES_HAVE) | ONE(FILES_COMPARE));
	if (rc)
		return rc;
	if (agree_on_start(s, f) || send_bytes(s, f))
		return -1;
	if (fstat(f->fd, &now) || now.st_size != st->st_size ||
		now.st_mtim.tv_sec != st->st_mtim.tv_sec ||
		now.st_mtim.tv_nsec != st->st_mtim.tv_nsec)
		return fail("'%s' was changed while it was sent: send it again", f->name);
	files_sum_end(&f->sum, end.hash);
	end.data = f->sent;
	return say(s, &end) ? -1 : hear_end(s, ONE(FILES_DONE));
}

int send_file(struct sender *s, const char *name, int fd, const struct stat *st)
{
	struct outgoing f = {.name = name, .fd = fd, .size = (uint64_t)st->st_size};

	if (files_sum_open(&f.sum))
		return fail("out of memory");
	int rc = send_contents(s, &f, st);
	files_sum_close(&f.sum);
	s->files += !rc;
	return rc < 0 ? rc : 0;
}

int send_end(struct sender *s)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	struct files_message bye = {.type = FILES_BYE};

	/* now: after goodbye, all that is known is that the receiver has gone */
	rpw_endpoint_info(s->ep, &info);
	snprintf(s->transport, sizeof(s->transport), "%s", info.transport ? info.transport : "?");
	snprintf(s->why, sizeof(s->why), "%s", info.why ? info.why : "");
	return say(s, &bye) || hear(s, ONE(FILES_DONE)) ? -1 : 0;
}

void send_close(struct sender *s)
{
	bar_clear(s);
	rpw_endpoint_destroy(s->ep); /* what is under way ends: only then its memory is ours */
	for (int i = 0; i < FILES_WINDOW; i++) {
		rpw_request_destroy(s->under_way[i]);
		free(s->chunk[i]);
	}
	rpw_request_destroy(s->hearing);
}
