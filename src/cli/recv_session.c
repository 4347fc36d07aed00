/* recv_session.c - one sender, as `ropeway recv` sees it: a state machine driven by the completions of receives. It never waits, so that several senders are served at once.
 *
 * What a session has posted is counted; its memory goes when the endpoint is closed and all of that has come back.
 */
#include "cli/recv.h"

#include <stdarg.h>
#include <stdlib.h>

enum { ANSWERS_MAX = 64 }; /* that the sender has not taken: then it takes none */

enum state { WANT_HELLO, WANT_ENTRY, WANT_START, WANT_BYTES, LEAVING, CLOSED };

struct chunk {
	struct recv_session *s;
	uint8_t *bytes;
	size_t expected;
	bool has_come;
	rpw_completion done;
};

struct recv_session {
	struct receiver *r;
	rpw_endpoint *ep;
	enum state state;
	bool is_greeted, is_draining, is_good;
	unsigned posted, answers; /* requests that will call back; those of them that are answers */
	uint64_t heard_ns, begin_ns, bytes;
	uint32_t number, entries;
	struct store_file file;
	char name[FILES_TEXT_MAX + 1];
	uint64_t asked_until; /* receives are posted up to this byte */
	unsigned head;        /* the chunk that is next in the file */
	bool has_end;
	struct files_message end;
	struct chunk chunk[FILES_WINDOW];
	uint8_t control[FILES_MESSAGE_MAX];
	char peer[128];
};

static void session_free(struct recv_session *s)
{
	for (int i = 0; i < FILES_WINDOW; i++)
		free(s->chunk[i].bytes);
	free(s);
}

/* After anything that may have been the last. */
static void session_put(struct recv_session *s)
{
	if (s->state == CLOSED && !s->posted)
		session_free(s);
}

static void session_close(struct recv_session *s)
{
	struct receiver *r = s->r;

	if (s->state == CLOSED)
		return;
	s->state = CLOSED;
	store_file_close(&s->file);
	for (int i = 0; i < RECV_SESSIONS_MAX; i++)
		if (r->session[i] == s)
			r->session[i] = NULL;
	r->sessions--;
	if (s->is_greeted && s->is_good)
		r->good++;
	else if (s->is_greeted)
		r->bad++;
	rpw_endpoint_close(s->ep);
}

/* ---- answers ---- */

struct answer {
	struct recv_session *s;
	uint8_t bytes[];
};

static void answered(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct answer *a = arg;
	struct recv_session *s = a->s;

	rpw_request_free(req);
	free(a);
	s->posted--;
	s->answers--;
	session_put(s);
}

static void answer(struct recv_session *s, const struct files_message *m)
{
	static uint8_t packed[FILES_MESSAGE_MAX];
	size_t len = files_pack(m, packed);
	struct answer *a = s->answers < ANSWERS_MAX ? malloc(sizeof(*a) + len) : NULL;
	rpw_request *req = NULL;

	if (!a) {
		session_close(s);
		return;
	}
	a->s = s;
	memcpy(a->bytes, packed, len);
	int rc = rpw_send(s->ep, a->bytes, len, FILES_TAG_CONTROL, &req);
	if (rc == RPW_IN_PROGRESS) {
		s->posted++;
		s->answers++;
		rpw_on_done(req, answered, a);
		return;
	}
	free(a);
	if (rc < 0)
		session_close(s);
}

static void answer_type(struct recv_session *s, enum files_type type)
{
	struct files_message m = {.type = type};

	answer(s, &m);
}

static void flushed(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct recv_session *s = arg;

	rpw_request_free(req);
	s->posted--;
	session_close(s);
	session_put(s);
}

/* The last word has been said: close when the sender has it. */
static void leave(struct recv_session *s)
{
	rpw_request *req = NULL;

	if (s->state >= LEAVING)
		return;
	s->state = LEAVING;
	s->heard_ns = rpwi_now_ns();
	store_file_close(&s->file);
	if (rpw_flush(s->ep, &req) != RPW_IN_PROGRESS) {
		session_close(s);
		return;
	}
	s->posted++;
	rpw_on_done(req, flushed, s);
}

static void refuse(struct recv_session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct recv_session *s, const char *fmt, ...)
{
	struct files_message m = {.type = FILES_REFUSED};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m.text, 1024, fmt, ap);
	va_end(ap);
	rpwi_cli_printable(m.text, m.text, 1024); /* names are the sender's */
	store_file_close(&s->file);               /* before the sender hears of it, and comes again */
	rpwi_cli_fail(CLI_FAILED, "ropeway recv", "%s: %s", s->peer, m.text);
	answer(s, &m);
	leave(s);
}

static void lost(struct recv_session *s, int status)
{
	char shown[FILES_COMPONENT_MAX + 1];

	if (s->state < LEAVING && s->is_greeted && s->file.fd >= 0 && s->file.written && !s->file.is_there)
		rpwi_cli_fail(CLI_FAILED, "ropeway recv", "%s has gone (%s) in the middle of '%s': %llu of %llu bytes are kept, sending it again goes on there",
			s->peer, rpw_status_name(status), rpwi_cli_printable(s->file.leaf, shown, sizeof(shown)), (unsigned long long)s->file.written,
			(unsigned long long)s->file.size);
	else if (s->state < LEAVING && s->is_greeted)
		rpwi_cli_fail(CLI_FAILED, "ropeway recv", "%s has gone (%s) before it said goodbye", s->peer, rpw_status_name(status));
	session_close(s);
}

/* ---- the bytes of a file ---- */

static void file_done(struct recv_session *s)
{
	struct store_why why;
	rpw_completion extra;

	/* All that were due have come; whatever else has that tag is more than was announced. */
	if (rpw_probe(s->r->c, s->ep, s->number, UINT64_MAX, &extra) == RPW_OK) {
		refuse(s, "'%s': refused: %zu bytes came after the %llu that were announced", s->file.leaf, extra.length, (unsigned long long)s->file.size);
		return;
	}
	if (store_file_end(&s->file, s->end.hash, &why)) {
		refuse(s, "%s", why.text);
		return;
	}
	store_file_close(&s->file);
	s->state = WANT_ENTRY;
	s->has_end = false;
	s->entries++;
	answer_type(s, FILES_DONE);
}

static void chunks_drain(struct recv_session *s);

static void chunk_came(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct chunk *k = arg;
	struct recv_session *s = k->s;

	rpw_request_free(req);
	s->posted--;
	k->has_come = true;
	k->done = *done;
	if (s->state < LEAVING)
		chunks_drain(s);
	session_put(s);
}

/* One that is there already is left for the caller's loop: no recursion as deep as a peer likes. */
static void chunk_ask(struct recv_session *s, struct chunk *k)
{
	rpw_request *req;

	k->expected = (size_t)RPWI_MIN((uint64_t)FILES_CHUNK, s->file.size - s->asked_until);
	if (!k->expected)
		return;
	k->s = s;
	if (!k->bytes)
		k->bytes = malloc(FILES_CHUNK);
	int rc = k->bytes ? rpw_recv(s->r->c, s->ep, k->bytes, k->expected, s->number, UINT64_MAX, &req) : RPW_ERR_NO_MEMORY;
	if (rc < 0) {
		lost(s, rc);
		return;
	}
	s->asked_until += k->expected;
	if (rpw_test(req, &k->done) == RPW_IN_PROGRESS) {
		s->posted++;
		rpw_on_done(req, chunk_came, k);
	} else {
		k->has_come = true;
		rpw_request_free(req);
	}
}

static void chunk_take(struct recv_session *s, struct chunk *k)
{
	struct store_why why;

	s->heard_ns = rpwi_now_ns();
	if (k->done.status == RPW_ERR_TRUNCATED || (k->done.status == RPW_OK && k->done.length != k->expected))
		refuse(s, "'%s': refused: a message of %zu bytes came where %zu were due", s->file.leaf, k->done.length, k->expected);
	else if (k->done.status != RPW_OK)
		lost(s, k->done.status);
	else if (store_file_write(&s->file, k->bytes, k->expected, &why))
		refuse(s, "%s", why.text);
	else
		s->bytes += k->expected;
}

static void chunks_drain(struct recv_session *s)
{
	if (s->is_draining)
		return;
	s->is_draining = true;
	while (s->state == WANT_BYTES && s->chunk[s->head].has_come) {
		struct chunk *k = &s->chunk[s->head];
		k->has_come = false;
		chunk_take(s, k);
		s->head = (s->head + 1) % FILES_WINDOW;
		if (s->state == WANT_BYTES)
			chunk_ask(s, k);
	}
	s->is_draining = false;
	if (s->state == WANT_BYTES && s->has_end && s->file.written == s->file.size)
		file_done(s);
}

/* ---- what the sender says ---- */

static void on_hello(struct recv_session *s, const struct files_message *m)
{
	s->is_greeted = true;
	s->state = WANT_ENTRY;
	s->begin_ns = rpwi_now_ns();
	answer_type(s, FILES_READY);
}

static void on_file(struct recv_session *s, const struct files_message *m)
{
	struct files_message have = {0};
	struct store_why why;

	if (store_file_begin(s->r->root, m, &s->file, &have, &why)) {
		refuse(s, "%s", why.text);
		return;
	}
	s->number = m->number;
	s->state = WANT_START;
	answer(s, &have);
}

static void on_start(struct recv_session *s, const struct files_message *m)
{
	struct store_why why;

	if (store_file_start(&s->file, m->size, &why)) {
		refuse(s, "%s", why.text);
		return;
	}
	s->state = WANT_BYTES;
	s->head = 0;
	s->has_end = false;
	s->asked_until = s->file.written;
	for (int i = 0; i < FILES_WINDOW; i++)
		s->chunk[i].has_come = false;
	for (int i = 0; i < FILES_WINDOW && s->state == WANT_BYTES; i++)
		chunk_ask(s, &s->chunk[i]);
	chunks_drain(s);
}

static void on_end(struct recv_session *s, const struct files_message *m)
{
	if (s->has_end) {
		refuse(s, "'%s': refused: its end was announced twice", s->file.leaf);
		return;
	}
	s->end = *m;
	s->has_end = true;
	chunks_drain(s);
}

static void on_entry(struct recv_session *s, const struct files_message *m)
{
	struct store_why why;
	int root = s->r->root;
	int rc = m->type == FILES_DIR ? store_dir(root, m, &why) : m->type == FILES_DIR_END ? store_dir_end(root, m, &why) : store_link(root, m, &why);

	if (rc) {
		refuse(s, "%s", why.text);
		return;
	}
	s->entries += m->type != FILES_DIR_END;
	answer_type(s, FILES_DONE);
}

static void on_bye(struct recv_session *s, const struct files_message *m)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	char size[CLI_SIZE_LEN];
	double seconds = (double)(rpwi_now_ns() - s->begin_ns) / 1e9;

	rpw_endpoint_info(s->ep, &info);
	if (!s->r->quiet)
		printf("%s: %u %s, %s in %.2f s (%.2f GB/s) by %s\n", s->peer, s->entries, s->entries == 1 ? "entry" : "entries", rpwi_cli_size(s->bytes, size),
			seconds, (double)s->bytes / 1e9 / (seconds > 0 ? seconds : 1), info.transport);
	fflush(stdout);
	s->is_good = true;
	answer_type(s, FILES_DONE);
	leave(s);
}

static const struct {
	enum state state;
	void (*act)(struct recv_session *s, const struct files_message *m);
} due[FILES_TYPES] = {
	[FILES_HELLO] = {WANT_HELLO, on_hello},
	[FILES_DIR] = {WANT_ENTRY, on_entry},
	[FILES_DIR_END] = {WANT_ENTRY, on_entry},
	[FILES_LINK] = {WANT_ENTRY, on_entry},
	[FILES_FILE] = {WANT_ENTRY, on_file},
	[FILES_START] = {WANT_START, on_start},
	[FILES_END] = {WANT_BYTES, on_end},
	[FILES_BYE] = {WANT_ENTRY, on_bye},
};

static void heard(struct recv_session *s, const rpw_completion *done)
{
	static struct files_message m;
	char why[200];

	s->heard_ns = rpwi_now_ns();
	if (done->status != RPW_OK && done->status != RPW_ERR_TRUNCATED)
		lost(s, done->status);
	else if (done->status == RPW_ERR_TRUNCATED)
		refuse(s, "refused: a control message of %zu bytes; %d are the most", done->length, FILES_MESSAGE_MAX);
	else if (files_unpack(s->control, done->length, &m, why, sizeof(why)))
		refuse(s, "refused: %s", why);
	else if (!due[m.type].act || due[m.type].state != s->state)
		refuse(s, "refused: a message of type %d at a time when it is not due", m.type);
	else
		due[m.type].act(s, &m);
}

static void control_listen(struct recv_session *s);

static void control_came(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct recv_session *s = arg;

	rpw_request_free(req);
	s->posted--;
	if (s->state < LEAVING)
		heard(s, done);
	if (s->state < LEAVING)
		control_listen(s);
	session_put(s);
}

static void control_listen(struct recv_session *s)
{
	rpw_completion done;
	rpw_request *req;

	while (s->state < LEAVING) {
		int rc = rpw_recv(s->r->c, s->ep, s->control, sizeof(s->control), FILES_TAG_CONTROL, UINT64_MAX, &req);
		if (rc < 0) {
			lost(s, rc);
			return;
		}
		if (rpw_test(req, &done) == RPW_IN_PROGRESS) {
			s->posted++;
			rpw_on_done(req, control_came, s);
			return;
		}
		rpw_request_free(req);
		heard(s, &done);
	}
}

/* ---- beginning and end ---- */

/* When all places are taken, those who are refused already, or have not said hello, have to give up theirs: the one that has been silent for longest. */
static void make_room(struct receiver *r)
{
	struct recv_session *oldest = NULL;

	for (int i = 0; i < RECV_SESSIONS_MAX; i++) {
		struct recv_session *s = r->session[i];
		if (s && (s->state == LEAVING || !s->is_greeted) && (!oldest || s->heard_ns < oldest->heard_ns))
			oldest = s;
	}
	if (!oldest)
		return;
	session_close(oldest);
	session_put(oldest);
}

void recv_session_begin(struct receiver *r, rpw_endpoint *ep)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	if (r->sessions == RECV_SESSIONS_MAX)
		make_room(r);
	struct recv_session *s = r->sessions < RECV_SESSIONS_MAX ? calloc(1, sizeof(*s)) : NULL;
	if (!s) {
		rpwi_cli_fail(CLI_FAILED, "ropeway recv", "a sender was turned away: %u are served already", r->sessions);
		rpw_endpoint_close(ep);
		return;
	}
	rpw_endpoint_info(ep, &info);
	rpwi_cli_printable(info.peer ? info.peer : "?", s->peer, sizeof(s->peer));
	s->r = r;
	s->ep = ep;
	s->file = (struct store_file){.fd = -1, .parent = -1};
	s->heard_ns = rpwi_now_ns();
	r->sessions++;
	for (int i = 0; i < RECV_SESSIONS_MAX; i++)
		if (!r->session[i]) {
			r->session[i] = s;
			break;
		}
	control_listen(s);
	session_put(s);
}

void recv_session_timers(struct receiver *r, uint64_t now_ns)
{
	for (int i = 0; i < RECV_SESSIONS_MAX; i++) {
		struct recv_session *s = r->session[i];
		uint64_t silent_ms = s && now_ns > s->heard_ns ? (now_ns - s->heard_ns) / RPWI_NS_PER_MS : 0;
		if (!s || silent_ms < (s->state == LEAVING || !s->is_greeted ? RECV_LEAVING_MS : RECV_SILENT_MS))
			continue;
		if (s->state != LEAVING && s->is_greeted)
			rpwi_cli_fail(CLI_FAILED, "ropeway recv", "%s has said nothing for %d s: it is let go", s->peer, RECV_SILENT_MS / 1000);
		session_close(s);
		session_put(s);
	}
}

void recv_session_end_all(struct receiver *r)
{
	for (int i = 0; i < RECV_SESSIONS_MAX; i++) {
		struct recv_session *s = r->session[i];
		if (!s)
			continue;
		session_close(s);
		session_put(s);
	}
}
