/* send_talk.c - the sender's side of the talk: say something, wait for the answer; the bytes of a file, several chunks under way. */
#include "cli/send.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway send"

static int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int fail(const char *fmt, ...)
{
	char line[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	rpwi_cli_fail(CLI_FAILED, NAME, "%s", line);
	return -1;
}

static int fail_last(const char *what, int status)
{
	return fail("%s: %s (%s). What has arrived is kept: the same command goes on there", what, rpw_last_error(), rpw_status_name(status));
}

/* ---- the bar ---- */

static void bar_clear(struct sender *s)
{
	if (s->has_bar && s->drawn_ns)
		fputs("\r\033[K", stderr);
	s->drawn_ns = 0;
}

static void bar_draw(struct sender *s, const char *name, uint64_t at, uint64_t size)
{
	enum { WIDTH = 24, EVERY_MS = 100 };
	uint64_t now = rpwi_now_ns();
	char shown[40], done[CLI_SIZE_LEN], bar[WIDTH + 1];

	if (!s->has_bar || now - s->drawn_ns < EVERY_MS * RPWI_NS_PER_MS)
		return;
	s->drawn_ns = now;
	double part = size ? (double)at / (double)size : 1, seconds = (double)(now - s->begin_ns) / 1e9;
	for (int i = 0; i < WIDTH; i++)
		bar[i] = i < (int)(part * WIDTH) ? '#' : '.';
	bar[WIDTH] = '\0';
	const char *slash = strrchr(name, '/');
	fprintf(stderr, "\r\033[K%-39s [%s] %3.0f%%  %s  %.2f GB/s", rpwi_cli_printable(slash ? slash + 1 : name, shown, sizeof(shown)), bar, part * 100,
		rpwi_cli_size(at, done), (double)s->bytes / 1e9 / (seconds > 0 ? seconds : 1));
	fflush(stderr);
}

/* ---- waiting ---- */

static int listen_for_answer(struct sender *s)
{
	int rc = rpw_recv(s->c, s->ep, s->control, sizeof(s->control), FILES_TAG_CONTROL, UINT64_MAX, &s->hearing);

	return rc < 0 ? fail_last("the receiver cannot be listened to", rc) : 0;
}

/* Until one of the two is complete, or nothing has happened for too long. */
static int wait_either(struct sender *s, rpw_request *a, rpw_request *b)
{
	struct pollfd p = {.fd = rpw_context_fd(s->c), .events = POLLIN};
	uint64_t last_ns = rpwi_now_ns();

	while (rpw_test(a, NULL) == RPW_IN_PROGRESS && rpw_test(b, NULL) == RPW_IN_PROGRESS) {
		if (rpw_progress(s->c) > 0) {
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
			return fail("the receiver has not moved for %d s: it is stopped, or not a ropeway recv", SEND_SILENT_MS / 1000);
	}
	return 0;
}

/* The answer that s->hearing is for, which must be of that type. */
static int hear(struct sender *s, enum files_type want)
{
	rpw_completion done;
	char why[200], shown[1024];

	if (wait_either(s, s->hearing, s->hearing))
		return -1;
	int status = rpw_test(s->hearing, &done);
	rpw_request_free(s->hearing);
	s->hearing = NULL;
	bar_clear(s);
	if (status)
		return fail_last("the connection broke", status);
	if (files_unpack(s->control, done.length, &s->heard, why, sizeof(why)))
		return fail("the receiver is not one that this side can talk to: %s", why);
	if (s->heard.type == FILES_REFUSED)
		return fail("the receiver refused: %s", rpwi_cli_printable(s->heard.text, shown, sizeof(shown)));
	if (s->heard.type != want)
		return fail("the receiver said something of type %d where %d was due", s->heard.type, want);
	return 0;
}

/* A request of ours, while the receiver may refuse at any time. */
static int finish(struct sender *s, rpw_request **req)
{
	if (!*req)
		return 0;
	if (wait_either(s, *req, s->hearing))
		return -1;
	int status = rpw_test(*req, NULL);
	if (status == RPW_IN_PROGRESS)
		return hear(s, FILES_TYPES); /* nothing is due: it is a refusal, or wrong */
	/* The word why may be there, behind the failure. */
	if (status && rpw_test(s->hearing, NULL) != RPW_IN_PROGRESS)
		return hear(s, FILES_TYPES);
	rpw_request_free(*req);
	*req = NULL;
	return status ? fail_last("the connection broke", status) : 0;
}

static int say(struct sender *s, const struct files_message *m)
{
	static uint8_t packed[FILES_MESSAGE_MAX];
	rpw_request *req = NULL;
	if (!s->hearing && listen_for_answer(s))
		return -1;
	int rc = rpw_send(s->ep, packed, files_pack(m, packed), FILES_TAG_CONTROL, &req);

	if (rc < 0 && rpw_test(s->hearing, NULL) != RPW_IN_PROGRESS)
		return hear(s, FILES_TYPES);
	return rc < 0 ? fail_last("the connection broke", rc) : finish(s, &req);
}

/* ---- what is said ---- */

int send_begin(struct sender *s, const char *address, unsigned timeout_ms)
{
	rpw_connect_options o = {.size = sizeof(o), .timeout_ms = timeout_ms};
	struct files_message hello = {.type = FILES_HELLO};
	rpw_request *req = NULL;
	int rc = rpw_connect(s->c, address, &o, &s->ep, &req);

	if (rc == RPW_IN_PROGRESS) {
		rc = rpw_wait(req, -1, NULL);
		rpw_request_free(req);
	}
	if (rc < 0)
		return fail("%s (%s)", rpw_last_error(), rpw_status_name(rc));
	s->begin_ns = rpwi_now_ns();
	for (int i = 0; i < FILES_WINDOW; i++)
		if (!s->chunk[i] && !(s->chunk[i] = malloc(FILES_CHUNK)))
			return fail("out of memory");
	return say(s, &hello) || hear(s, FILES_READY) ? -1 : 0;
}

static void describe(struct files_message *m, const char *name, const struct stat *st)
{
	snprintf(m->name, sizeof(m->name), "%s", name);
	m->mode = st->st_mode & 07777;
	m->mtime_s = st->st_mtim.tv_sec;
	m->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
}

int send_entry(struct sender *s, enum files_type type, const char *name, const struct stat *st, const char *target)
{
	struct files_message m = {.type = type};

	describe(&m, name, st);
	snprintf(m.text, sizeof(m.text), "%s", target ? target : "");
	return say(s, &m) || hear(s, FILES_DONE) ? -1 : 0;
}

/* ---- a file ---- */

/* Where to begin: after what the receiver has, if that is the beginning of this file. */
static int agree_on_start(struct sender *s, const char *name, int fd, uint64_t size, XXH3_state_t *hash, uint64_t *from)
{
	struct files_message start = {.type = FILES_START};
	uint8_t ours[FILES_HASH_BYTES];
	int err = s->heard.size > size ? -ENODATA : files_hash_prefix(fd, s->heard.size, hash);

	if (err && err != -ENODATA)
		return fail("'%s' cannot be read: %s", name, strerror(-err));
	files_hash_end(hash, ours);
	if (!err && !memcmp(ours, s->heard.hash, FILES_HASH_BYTES))
		start.size = s->heard.size;
	else
		XXH3_128bits_reset(hash);
	*from = start.size;
	s->resumed += start.size;
	return say(s, &start);
}

static int read_chunk(const char *name, int fd, uint8_t *to, size_t len, uint64_t at)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, to + done, len - done, (off_t)(at + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail("'%s' cannot be read: %s", name, strerror(errno));
		if (!n)
			return fail("'%s' became shorter while it was sent", name);
		done += (size_t)n;
	}
	return 0;
}

/* Nothing is due while the bytes go: what comes is a refusal. */
static int send_bytes(struct sender *s, const char *name, int fd, uint64_t at, uint64_t size, XXH3_state_t *hash)
{
	if (!s->hearing && listen_for_answer(s))
		return -1;
	for (unsigned i = 0; at < size; i = (i + 1) % FILES_WINDOW) {
		size_t len = (size_t)RPWI_MIN((uint64_t)FILES_CHUNK, size - at);
		if (finish(s, &s->under_way[i]) || read_chunk(name, fd, s->chunk[i], len, at))
			return -1;
		XXH3_128bits_update(hash, s->chunk[i], len);
		int rc = rpw_send(s->ep, s->chunk[i], len, s->number, &s->under_way[i]);
		if (rc < 0) {
			s->under_way[i] = NULL;
			return rpw_test(s->hearing, NULL) == RPW_IN_PROGRESS ? fail_last("the connection broke", rc) : hear(s, FILES_TYPES);
		}
		at += len;
		s->bytes += len;
		bar_draw(s, name, at, size);
	}
	for (int i = 0; i < FILES_WINDOW; i++)
		if (finish(s, &s->under_way[i]))
			return -1;
	return 0;
}

static int send_contents(struct sender *s, const char *name, int fd, const struct stat *st, XXH3_state_t *hash)
{
	struct files_message m = {.type = FILES_FILE, .number = ++s->number, .size = (uint64_t)st->st_size}, end = {.type = FILES_END};
	struct stat now;
	uint64_t from = 0;

	describe(&m, name, st);
	if (say(s, &m) || hear(s, FILES_HAVE) || agree_on_start(s, name, fd, m.size, hash, &from) || send_bytes(s, name, fd, from, m.size, hash))
		return -1;
	if (fstat(fd, &now) || now.st_size != st->st_size || now.st_mtim.tv_sec != st->st_mtim.tv_sec || now.st_mtim.tv_nsec != st->st_mtim.tv_nsec)
		return fail("'%s' was changed while it was sent: send it again", name);
	files_hash_end(hash, end.hash);
	return say(s, &end) || hear(s, FILES_DONE) ? -1 : 0;
}

int send_file(struct sender *s, const char *name, int fd, const struct stat *st)
{
	XXH3_state_t *hash = XXH3_createState();

	if (!hash)
		return fail("out of memory");
	XXH3_128bits_reset(hash);
	int ret = send_contents(s, name, fd, st, hash);
	XXH3_freeState(hash);
	s->files += !ret;
	return ret;
}

int send_end(struct sender *s)
{
	struct files_message bye = {.type = FILES_BYE};

	return say(s, &bye) || hear(s, FILES_DONE) ? -1 : 0;
}

void send_close(struct sender *s)
{
	bar_clear(s);
	rpw_endpoint_close(s->ep); /* what is under way ends: only then its memory is ours */
	for (int i = 0; i < FILES_WINDOW; i++) {
		rpw_request_free(s->under_way[i]);
		free(s->chunk[i]);
	}
	rpw_request_free(s->hearing);
}
