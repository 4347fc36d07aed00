/* SPDX-License-Identifier: BSD-3-Clause */
/* recv_session.c - one sender, as `ropeway recv` sees it: a state machine driven by the completions
 * of receives. It never waits, so that several senders are served at once: bytes on the disk are
 * read in pieces (recv_session_work).
 *
 * A place belongs to who uses it. When all are taken, a newcomer gets that of a session that has
 * not said hello, or has moved nothing for RECV_IDLE_MS; else it hears that the receiver is full.
 *
 * What a session has posted is counted; its memory goes when the endpoint is closed and all of that
 * has come back.
 */
#include "cli/files/recv.h"

#include <stdarg.h>
#include <stdlib.h>

enum { ANSWERS_MAX = 64 }; /* that the sender has not taken: then it takes none */

enum state { WANT_HELLO, WANT_ENTRY, READING, WANT_START, WANT_BYTES, LEAVING, CLOSED };

struct chunk {
	struct recv_session *s;
	uint8_t *bytes;
	bool has_come;
	rpw_completion done;
};

struct recv_session {
	struct receiver *r;
	rpw_endpoint *ep;
	enum state state;
	bool is_greeted, is_asking, is_draining, is_good, any_links;
	unsigned posted, answers; /* requests that will call back; those of them that are answers */
	/* anything was heard; an entry or a byte moved; STILL was said last */
	uint64_t heard_ns, moved_ns, still_ns;
	uint64_t begin_ns, bytes;
	uint32_t number, entries, kept;
	struct store_dirs dirs;
	struct store_file file;
	uint64_t file_bytes; /* of it that were sent */
	unsigned head;       /* the chunk that comes next */
	bool has_end;
	uint64_t end_bytes;
	uint8_t end_hash[FILES_HASH_BYTES];
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
	for (int i = 0; i < RECV_SLOTS; i++)
		if (r->session[i] == s)
			r->session[i] = NULL;
	if (s->is_greeted && s->is_good)
		r->good++;
	else if (s->is_greeted)
		r->bad++;
	rpw_endpoint_destroy(s->ep);
}

/* Where the library's sentence names the sender, whom the line has named already. */
static void say_it(char *why, const char *peer)
{
	size_t len = strlen(peer);

	for (char *at = why; len > 2 && (at = strstr(at, peer));) {
		at[0] = 'i';
		at[1] = 't';
		memmove(at + 2, at + len, strlen(at + len) + 1);
	}
}

static void lost(struct recv_session *s, int status)
{
	rpw_endpoint_information info = {.size = sizeof(info), .why = ""};
	char shown[300], why[600];

	rpw_endpoint_info(s->ep, &info);
	/* there may be words of the sender's in it */
	rpwi_cli_printable(info.why, why, sizeof(why));
	say_it(why, s->peer);
	if (s->state < LEAVING && s->is_greeted && s->file.fd >= 0 &&
		s->file.written >= FILES_CHUNK && !s->file.is_there)
		rpwi_cli_fail(CLI_FAILED, "ropeway recv",
			"%s has gone (%s) in the middle of '%s': %llu of %llu bytes are kept, "
			"sending it again continues there: %s",
			s->peer, rpw_status_name(status),
			rpwi_cli_printable(s->file.name, shown, sizeof(shown)),
			(unsigned long long)s->file.written, (unsigned long long)s->file.size, why);
	else if (s->state < LEAVING && (s->is_greeted || status == RPW_ERR_PROTOCOL))
		rpwi_cli_fail(CLI_FAILED, "ropeway recv",
			"%s has gone (%s) before it said goodbye: %s", s->peer,
			rpw_status_name(status), why);
	session_close(s);
}

/* ---- answers ---- */

struct answer {
	struct recv_session *s;
	uint8_t bytes[FILES_MESSAGE_MAX];
};

static void answered(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct answer *a = arg;
	struct recv_session *s = a->s;

	rpw_request_destroy(req);
	free(a);
	s->posted--;
	s->answers--;
	session_put(s);
}

static void answer(struct recv_session *s, const struct files_message *m)
{
	struct answer *a = s->answers < ANSWERS_MAX ? malloc(sizeof(*a)) : NULL;
	rpw_request *req = NULL;

	if (!a) {
		session_close(s);
		return;
	}
	a->s = s;
	int rc = rpw_send(s->ep, a->bytes, files_pack(m, a->bytes), FILES_TAG_CONTROL, &req);
	if (rc == RPW_IN_PROGRESS) {
		s->posted++;
		s->answers++;
		rpw_request_on_done(req, answered, a);
		return;
	}
	free(a);
	if (rc < 0 && m->type == FILES_REFUSED) /* the line about that was printed */
		session_close(s);
	else if (rc < 0)
		lost(s, rc);
}

static void answer_type(struct recv_session *s, enum files_type type, const char *text)
{
	struct files_message m = {.type = type};

	snprintf(m.text, sizeof(m.text), "%s", text);
	answer(s, &m);
}

static void flushed(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct recv_session *s = arg;

	rpw_request_destroy(req);
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
	if (rpw_endpoint_flush(s->ep, &req) != RPW_IN_PROGRESS) {
		session_close(s);
		return;
	}
	s->posted++;
	rpw_request_on_done(req, flushed, s);
}

static void refuse(struct recv_session *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void refuse(struct recv_session *s, const char *fmt, ...)
{
	struct files_message m = {.type = FILES_REFUSED};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m.text, 1024, fmt, ap);
	va_end(ap);
	rpwi_cli_printable(m.text, m.text, 1024); /* names are the sender's */
	store_file_close(&s->file); /* before the sender hears of it, and comes again */
	rpwi_cli_fail(CLI_FAILED, "ropeway recv", "%s: %s", s->peer, m.text);
	answer(s, &m);
	leave(s);
}

/* An entry is done with, one way or the other. */
static void entry_done(
	struct recv_session *s, enum store_result result, const struct store_why *why)
{
	s->moved_ns = rpwi_now_ns();
	s->state = WANT_ENTRY;
	if (result == STORE_REFUSED) {
		refuse(s, "%s", why->text);
	} else if (result == STORE_KEPT) {
		s->kept++;
		rpwi_cli_fail(CLI_FAILED, "ropeway recv", "%s: %s", s->peer, why->text);
		answer_type(s, FILES_KEPT, why->text);
	} else {
		answer_type(s, FILES_DONE, why->text);
	}
}

/* ---- the bytes of a file ---- */

/* When the end was announced, all that was sent has come, and all that is to be compared was
 * read. */
static void file_done(struct recv_session *s)
{
	struct store_why why = {""};

	if (s->state != WANT_BYTES || !s->has_end || s->file.is_reading ||
		s->file_bytes < s->end_bytes)
		return;
	if (s->file_bytes > s->end_bytes) {
		refuse(s, "'%s': refused: %llu bytes came where the sender says that it sent %llu",
			s->file.name, (unsigned long long)s->file_bytes,
			(unsigned long long)s->end_bytes);
		return;
	}
	enum store_result result = store_file_end(&s->file, s->end_hash, &why);
	store_file_close(&s->file);
	s->has_end = false;
	s->entries += result == STORE_OK;
	entry_done(s, result, &why);
}

static void chunks_drain(struct recv_session *s);

static void chunk_came(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct chunk *k = arg;
	struct recv_session *s = k->s;

	rpw_request_destroy(req);
	s->posted--;
	k->has_come = true;
	k->done = *done;
	chunks_drain(s);
	session_put(s);
}

/* One that is there already is left for the caller's loop: no recursion as deep as a peer likes. */
static void chunk_ask(struct recv_session *s, struct chunk *k)
{
	rpw_request *req;

	k->s = s;
	k->done = (rpw_completion)RPW_COMPLETION_INIT;
	if (!k->bytes)
		k->bytes = malloc(FILES_CHUNK + FILES_OFFSET_BYTES);
	int rc = k->bytes ? rpw_recv(s->r->c, s->ep, k->bytes, FILES_CHUNK + FILES_OFFSET_BYTES,
				    FILES_TAG_DATA, UINT64_MAX, &req)
			  : RPW_ERR_NO_MEMORY;
	if (rc < 0) {
		lost(s, rc);
		return;
	}
	if (rpw_request_test(req, &k->done) == RPW_IN_PROGRESS) {
		s->posted++;
		rpw_request_on_done(req, chunk_came, k);
	} else {
		k->has_come = true;
		rpw_request_destroy(req);
	}
}

static void chunk_take(struct recv_session *s, struct chunk *k)
{
	size_t len = k->done.length - FILES_OFFSET_BYTES;
	struct store_why why;

	s->heard_ns = s->moved_ns = rpwi_now_ns();
	if (k->done.status != RPW_OK && k->done.status != RPW_ERR_TRUNCATED) {
		lost(s, k->done.status);
	} else if (k->done.status != RPW_OK || k->done.length <= FILES_OFFSET_BYTES) {
		refuse(s, "refused: a message of %zu bytes came; pieces of files have %d to %d",
			k->done.length, FILES_OFFSET_BYTES + 1, FILES_CHUNK + FILES_OFFSET_BYTES);
	} else if (s->state != WANT_BYTES || (s->has_end && s->file_bytes == s->end_bytes)) {
		refuse(s, "refused: %zu unexpected bytes of a file", len);
	} else if (store_file_write(&s->file, rpwi_get_be64(k->bytes + len), k->bytes, len, &why)) {
		refuse(s, "%s", why.text);
	} else {
		s->bytes += len;
		s->file_bytes += len;
	}
}

static void chunks_drain(struct recv_session *s)
{
	if (s->is_draining)
		return;
	s->is_draining = true;
	/* In WANT_START they wait for START, which is on its way. */
	while (s->state < LEAVING && s->state != WANT_START && s->chunk[s->head].has_come) {
		struct chunk *k = &s->chunk[s->head];
		k->has_come = false;
		chunk_take(s, k);
		s->head = (s->head + 1) % FILES_WINDOW;
		if (s->state < LEAVING)
			chunk_ask(s, k);
	}
	s->is_draining = false;
	file_done(s);
}

/* ---- what the sender says ---- */

static void on_hello(struct recv_session *s, const struct files_message *m)
{
	struct files_message ready = {.type = FILES_READY,
		.mode = m->mode & FILES_WANTS_LINKS && s->r->store.any_links ? FILES_WANTS_LINKS
									     : 0};

	s->is_greeted = true;
	s->any_links = ready.mode;
	s->state = WANT_ENTRY;
	s->begin_ns = s->moved_ns = rpwi_now_ns();
	answer(s, &ready);
}

/* What is there of the file, and its checksum. */
static void have(struct recv_session *s)
{
	struct files_message m = {.type = FILES_HAVE, .number = s->number, .size = s->file.there};

	files_sum_end(&s->file.sum, m.hash);
	s->state = WANT_START;
	answer(s, &m);
}

static void on_file(struct recv_session *s, const struct files_message *m)
{
	struct files_message compare = {
		.type = FILES_COMPARE, .number = m->number, .size = m->size};
	struct store_why why = {""};
	enum store_result result = store_file_begin(&s->r->store, m, &s->file, &why);

	s->moved_ns = s->still_ns = rpwi_now_ns();
	s->number = m->number;
	s->file_bytes = 0;
	s->has_end = false;
	if (result != STORE_OK) {
		entry_done(s, result, &why);
	} else if (s->file.is_kept) {
		s->state = WANT_START;
		answer(s, &compare);
	} else if (s->file.is_reading) {
		s->state = READING;
	} else {
		have(s);
	}
}

static void on_start(struct recv_session *s, const struct files_message *m)
{
	struct store_why why;

	if (store_file_start(&s->file, m->size, &why)) {
		refuse(s, "%s", why.text);
		return;
	}
	s->state = WANT_BYTES;
	s->moved_ns = rpwi_now_ns();
	for (int i = 0; i < FILES_WINDOW && !s->is_asking && s->state == WANT_BYTES; i++)
		chunk_ask(s, &s->chunk[i]);
	s->is_asking = true; /* from the first file on */
	chunks_drain(s);
}

static void on_end(struct recv_session *s, const struct files_message *m)
{
	if (s->has_end) {
		refuse(s, "'%s': refused: its end was announced twice", s->file.name);
		return;
	}
	memcpy(s->end_hash, m->hash, sizeof(s->end_hash));
	s->end_bytes = m->data;
	s->has_end = true;
	chunks_drain(s);
}

static void on_entry(struct recv_session *s, const struct files_message *m)
{
	const struct store *store = &s->r->store;
	struct store_why why = {""};
	enum store_result result;

	if (m->type == FILES_DIR)
		result = store_dir(store, &s->dirs, m, &why);
	else if (m->type == FILES_DIR_END)
		result = store_dir_end(store, &s->dirs, m, &why);
	else
		result = store_link(store, s->any_links, m, &why);
	s->entries += result == STORE_OK && m->type != FILES_DIR_END;
	entry_done(s, result, &why);
}

/* It reads a long file, while we wait for START or END. Between entries there is nothing to
 * read. */
static void on_still(struct recv_session *s, const struct files_message *m)
{
	if (s->state == WANT_START || s->state == WANT_BYTES)
		s->moved_ns = rpwi_now_ns();
}

static void on_bye(struct recv_session *s, const struct files_message *m)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	char size[CLI_SIZE_LEN];
	double seconds = files_seconds_since(s->begin_ns);

	rpw_endpoint_info(s->ep, &info);
	if (!s->r->quiet)
		printf("%s: %u %s, %s in %.2f s (%.2f GB/s) by %s\n", s->peer, s->entries,
			s->entries == 1 ? "entry" : "entries", rpwi_cli_size(s->bytes, size),
			seconds, (double)s->bytes / 1e9 / seconds, info.transport);
	fflush(stdout);
	s->is_good = !s->kept;
	answer_type(s, FILES_DONE, "");
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
	struct files_message m;
	char why[200];

	s->heard_ns = rpwi_now_ns();
	if (done->status != RPW_OK && done->status != RPW_ERR_TRUNCATED)
		lost(s, done->status);
	else if (done->status == RPW_ERR_TRUNCATED)
		refuse(s, "refused: a control message of %zu bytes; %d are the most", done->length,
			FILES_MESSAGE_MAX);
	else if (files_unpack(s->control, done->length, &m, why, sizeof(why)))
		refuse(s, "refused: %s", why);
	else if (m.type == FILES_STILL && s->is_greeted)
		on_still(s, &m);
	else if (!due[m.type].act || due[m.type].state != s->state)
		refuse(s, "refused: an unexpected message of type %d", m.type);
	else
		due[m.type].act(s, &m);
}

static void control_listen(struct recv_session *s);

static void control_came(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct recv_session *s = arg;

	rpw_request_destroy(req);
	s->posted--;
	if (s->state < LEAVING)
		heard(s, done);
	if (s->state < LEAVING)
		control_listen(s);
	session_put(s);
}

static void control_listen(struct recv_session *s)
{
	rpw_completion done = RPW_COMPLETION_INIT;
	rpw_request *req;

	while (s->state < LEAVING) {
		int rc = rpw_recv(s->r->c, s->ep, s->control, sizeof(s->control), FILES_TAG_CONTROL,
			UINT64_MAX, &req);
		if (rc < 0) {
			lost(s, rc);
			return;
		}
		if (rpw_request_test(req, &done) == RPW_IN_PROGRESS) {
			s->posted++;
			rpw_request_on_done(req, control_came, s);
			return;
		}
		rpw_request_destroy(req);
		heard(s, &done);
	}
}

/* ---- beginning and end ---- */

/* Their ports are others each time. */
static bool is_of_same_address(const struct recv_session *a, const struct recv_session *b)
{
	char x[64], y[64];

	rpwi_cli_peer_address(a->peer, x);
	rpwi_cli_peer_address(b->peer, y);
	return !strcmp(x, y);
}

/* One of those served, all or of one address, that has to give up its place; how many of them there
 * are. */
static struct recv_session *who_gives_way(struct receiver *r, const struct recv_session *newcomer,
	bool of_its_address, unsigned *served)
{
	uint64_t now_ns = rpwi_now_ns();
	struct recv_session *found = NULL;

	*served = 0;
	for (int i = 0; i < RECV_SLOTS; i++) {
		struct recv_session *s = r->session[i];
		if (!s || s == newcomer || s->state >= LEAVING ||
			(of_its_address && !is_of_same_address(s, newcomer)))
			continue;
		++*served;
		if (s->is_greeted && (s->state == READING ||
					     now_ns - s->moved_ns < RECV_IDLE_MS * RPWI_NS_PER_MS))
			continue;
		/* Before hello, moved_ns is 0: those come first, and then who has been idle for
		 * longest. */
		if (!found || s->moved_ns < found->moved_ns ||
			(s->moved_ns == found->moved_ns && s->heard_ns < found->heard_ns))
			found = s;
	}
	return found;
}

static bool has_place(struct recv_session *s, bool of_its_address, unsigned most)
{
	unsigned served;
	struct recv_session *victim = who_gives_way(s->r, s, of_its_address, &served);

	if (served < most)
		return true;
	if (!victim) {
		refuse(s, "refused: %u %s are already being served, the maximum: try again later",
			served, of_its_address ? "senders of your address" : "senders");
		return false;
	}
	refuse(victim,
		"refused: nothing moved for %d s, and others wait for the place: the same command "
		"continues where it stopped",
		RECV_IDLE_MS / 1000);
	session_put(victim);
	return true;
}

/* A slot; the one that has been leaving for longest has to go if need be. */
static void take_slot(struct receiver *r, struct recv_session *s)
{
	int at = -1, oldest = -1;

	for (int i = 0; i < RECV_SLOTS; i++) {
		const struct recv_session *there = r->session[i];
		if (!there)
			at = i;
		else if (there->state == LEAVING &&
			 (oldest < 0 || there->heard_ns < r->session[oldest]->heard_ns))
			oldest = i;
	}
	if (at < 0) {
		struct recv_session *leaving = r->session[at = oldest];
		session_close(leaving);
		session_put(leaving);
	}
	r->session[at] = s;
}

void recv_session_begin(struct receiver *r, rpw_endpoint *ep)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	struct recv_session *s = calloc(1, sizeof(*s));

	if (!s) {
		rpw_endpoint_destroy(ep);
		return;
	}
	rpw_endpoint_info(ep, &info);
	rpwi_cli_printable(info.peer ? info.peer : "?", s->peer, sizeof(s->peer));
	s->r = r;
	s->ep = ep;
	s->file = (struct store_file){.fd = -1, .parent = -1};
	s->heard_ns = rpwi_now_ns();
	take_slot(r, s);
	if (has_place(s, true, RECV_PER_PEER_MAX) && has_place(s, false, RECV_SESSIONS_MAX))
		control_listen(s);
	session_put(s);
}

bool recv_session_work(struct receiver *r, uint64_t now_ns)
{
	bool more = false;

	for (int i = 0; i < RECV_SLOTS; i++) {
		struct recv_session *s = r->session[i];
		struct store_why why;
		if (!s || s->state >= LEAVING || !s->file.is_reading)
			continue;
		s->heard_ns = s->moved_ns = now_ns; /* the sender waits for us */
		if (store_file_read(&s->file, &why))
			refuse(s, "%s", why.text);
		else if (s->state == READING && !s->file.is_reading)
			have(s);
		else if (!s->file.is_reading)
			file_done(s);
		else if (now_ns - s->still_ns > FILES_STILL_MS * RPWI_NS_PER_MS) {
			s->still_ns = now_ns;
			answer_type(s, FILES_STILL, "");
		}
		more |= s->file.is_reading;
		session_put(s);
	}
	return more;
}

void recv_session_timers(struct receiver *r, uint64_t now_ns)
{
	for (int i = 0; i < RECV_SLOTS; i++) {
		struct recv_session *s = r->session[i];
		uint64_t silent_ms =
			s && now_ns > s->heard_ns ? (now_ns - s->heard_ns) / RPWI_NS_PER_MS : 0;
		if (!s || silent_ms < (s->state == LEAVING || !s->is_greeted ? RECV_LEAVING_MS
									     : RECV_SILENT_MS))
			continue;
		if (s->state != LEAVING && s->is_greeted)
			rpwi_cli_fail(CLI_FAILED, "ropeway recv",
				"%s has said nothing for %d s: its session is closed", s->peer,
				RECV_SILENT_MS / 1000);
		session_close(s);
		session_put(s);
	}
}

void recv_session_end_all(struct receiver *r)
{
	for (int i = 0; i < RECV_SLOTS; i++) {
		struct recv_session *s = r->session[i];
		if (!s)
			continue;
		session_close(s);
		session_put(s);
	}
}
