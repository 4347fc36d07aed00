/* doctor_peer.c - the two doctors of a connection. The one that connects sends an object, the one that serves answers with an object of JSON: its version, what it found on its machine, and
 * the UDP port that sends probes back, with the nonce that they need. */
#include "cli/doctor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define NAME "ropeway doctor"
enum { PROTOCOL = 1, ROCE_PORT = 4791, WAIT_MS = 60 * 1000, HELLO_MAX = 1024 };

/* At most as much as such an object has. */
static void *room(size_t len, void *most) { return len <= (size_t)(uintptr_t)most ? malloc(len ? len : 1) : NULL; }

static void nonce_text(const uint8_t nonce[DOCTOR_NONCE_BYTES], char out[DOCTOR_NONCE_BYTES * 2 + 1])
{
	for (int i = 0; i < DOCTOR_NONCE_BYTES; i++)
		snprintf(out + (ptrdiff_t)i * 2, 3, "%02x", nonce[i]);
}

static int nonce_parse(const char *text, uint8_t nonce[DOCTOR_NONCE_BYTES])
{
	if (strlen(text) != DOCTOR_NONCE_BYTES * 2 || strspn(text, "0123456789abcdef") != DOCTOR_NONCE_BYTES * 2)
		return -1;
	for (int i = 0; i < DOCTOR_NONCE_BYTES; i++)
		nonce[i] = (uint8_t)strtoul((char[]){text[i * 2], text[i * 2 + 1], 0}, NULL, 16);
	return 0;
}

/* ---- the one that connects ---- */

static int wait_for(rpw_request *req)
{
	int status = rpw_wait(req, WAIT_MS, NULL);

	rpw_request_free(req);
	return status;
}

static void judge_path(struct doctor_report *r, rpw_endpoint *ep)
{
	rpw_endpoint_information info = {.size = sizeof(info)};

	if (!rpw_endpoint_info(ep, &info))
		doctor_add(r, DOCTOR_OK, "path", NULL, "%s, %s: %s", info.transport, info.path, info.why);
}

static void take_answer(struct doctor_report *r, const char *host, const char *bytes, size_t len)
{
	const char *version, *nonce_hex;
	uint8_t nonce[DOCTOR_NONCE_BYTES];
	json_t *root = json_loadb(bytes, len, 0, NULL), *verdicts;
	int protocol, port;

	if (!root ||
		json_unpack(root, "{s:i, s:s, s:i, s:s, s:o}", "doctor", &protocol, "version", &version, "port", &port, "nonce", &nonce_hex, "verdicts",
			&verdicts) ||
		protocol != PROTOCOL || port < 1 || port > 65535 || nonce_parse(nonce_hex, nonce)) {
		doctor_add(r, DOCTOR_FAIL, "peer", "use `ropeway doctor --serve` of the same release there",
			"what came from %s is no answer of a doctor of version %d", host, PROTOCOL);
		json_decref(root);
		return;
	}
	bool same = !strcmp(version, rpw_version());
	doctor_add(r, same ? DOCTOR_OK : DOCTOR_WARN, "versions", same ? NULL : "install the same release on both sides", "this side %s, peer %.40s",
		rpw_version(), version);
	doctor_probe(r, host, (unsigned)port, nonce);
	if (doctor_take_json(r, verdicts))
		doctor_add(r, DOCTOR_FAIL, "peer", "use `ropeway doctor --serve` of the same release there", "its verdicts are not as they should be");
	json_decref(root);
}

static void talk(struct doctor_report *r, rpw_endpoint *ep, const char *host)
{
	static const char hello[] = "{\"doctor\": 1}";
	rpw_request *sending = NULL, *receiving;
	static void *bytes; /* one that is given up still writes there until its context ends */
	static size_t len;
	int rc = rpw_recv_obj(ep, room, (void *)(uintptr_t)DOCTOR_REPORT_MAX, &bytes, &len, &receiving);

	if (rc >= 0) {
		rc = rpw_send_obj(ep, hello, sizeof(hello) - 1, &sending);
		if (rc == RPW_IN_PROGRESS)
			rc = wait_for(sending);
		int got = wait_for(receiving);
		rc = rc < 0 ? rc : got;
	}
	if (rc)
		doctor_add(r, DOCTOR_FAIL, "peer", "is it `ropeway doctor --serve`, and not busy with another one?", "%s: %s", rpw_status_name(rc),
			rpw_last_error());
	else
		take_answer(r, host, bytes, len);
	free(rc == RPW_ERR_TIMEOUT ? NULL : bytes);
}

void doctor_peer(struct doctor_report *r, const char *host, const char *address, const char *key_file)
{
	rpw_context_options o = {.size = sizeof(o), .key_file = key_file};
	rpw_connect_options co = {.size = sizeof(co), .timeout_ms = 5000};
	rpw_endpoint *ep = NULL;
	rpw_request *req = NULL;
	rpw_context *c;
	int rc = rpw_context_create(&o, &c);

	if (rc) {
		doctor_add(r, DOCTOR_FAIL, "bootstrap", NULL, "%s", rpw_last_error());
		return;
	}
	rc = rpw_connect(c, address, &co, &ep, &req);
	if (rc == RPW_IN_PROGRESS)
		rc = wait_for(req);
	if (rc) {
		doctor_add(r, DOCTOR_FAIL, "bootstrap", "start `ropeway doctor --serve` there, with the same key, and let that TCP port pass in its firewall",
			"%s: %s", rpw_status_name(rc), rpw_last_error());
	} else {
		doctor_add(r, DOCTOR_OK, "bootstrap", NULL, "TCP %s is reachable, and both sides have agreed on a path", address);
		judge_path(r, ep);
		talk(r, ep, host);
	}
	rpw_context_destroy(c);
}

/* ---- the one that serves: one client at a time ---- */

struct server {
	rpw_context *c;
	rpw_endpoint *ep; /* the client, or NULL */
	bool has_asked, is_over;
	rpw_request *asking, *answering;
	void *hello;
	size_t hello_len;
	char *answer;
	int echo;
	uint8_t nonce[DOCTOR_NONCE_BYTES];
	uint64_t until_ns;
	unsigned served;
};

static void asked(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct server *s = arg;

	s->has_asked = done->status == RPW_OK;
	s->is_over |= !s->has_asked;
	free(s->hello);
	s->hello = NULL;
}

static void left(rpw_endpoint *ep, int status, void *arg) { ((struct server *)arg)->is_over = true; }

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct server *s = arg;

	if (s->ep) {
		rpw_endpoint_close(ep);
		return;
	}
	s->ep = ep;
	s->has_asked = s->is_over = false;
	s->until_ns = rpwi_now_ns() + WAIT_MS * RPWI_NS_PER_MS;
	rpw_endpoint_on_close(ep, left, s);
	if (rpw_recv_obj(ep, room, (void *)(uintptr_t)HELLO_MAX, &s->hello, &s->hello_len, &s->asking) < 0)
		s->is_over = true;
	else
		rpw_on_done(s->asking, asked, s);
}

static void answer(struct server *s)
{
	struct doctor_report *r = calloc(1, sizeof(*r));
	char nonce[DOCTOR_NONCE_BYTES * 2 + 1];
	unsigned port = 0;

	s->has_asked = false;
	if (!r || getrandom(s->nonce, sizeof(s->nonce), 0) != sizeof(s->nonce)) {
		free(r);
		s->is_over = true;
		return;
	}
	doctor_local(r);
	s->echo = doctor_echo_open(ROCE_PORT, &port);
	if (s->echo < 0)
		doctor_add(r, DOCTOR_FAIL, "UDP", NULL, "no socket: %s", strerror(-s->echo));
	nonce_text(s->nonce, nonce);
	json_t *root = json_pack(
		"{s:i, s:s, s:i, s:s, s:o}", "doctor", PROTOCOL, "version", rpw_version(), "port", (int)port, "nonce", nonce, "verdicts", doctor_json(r));
	s->answer = root ? json_dumps(root, JSON_COMPACT) : NULL;
	if (!s->answer || rpw_send_obj(s->ep, s->answer, strlen(s->answer), &s->answering) < 0)
		s->is_over = true;
	json_decref(root);
	free(r);
}

static void end_client(struct server *s)
{
	rpw_endpoint_close(s->ep);
	rpw_progress(s->c); /* what it had posted is called back now */
	rpw_request_free(s->asking);
	rpw_request_free(s->answering);
	free(s->answer);
	if (s->echo >= 0)
		close(s->echo);
	printf("a client was %s\n", s->answer ? "served" : "gone before it asked");
	fflush(stdout);
	s->served += s->answer != NULL;
	s->ep = NULL;
	s->asking = s->answering = NULL;
	s->answer = NULL;
	s->echo = -1;
}

static int loop(struct server *s, bool once)
{
	while (!once || !s->served) {
		if (s->ep && s->has_asked)
			answer(s);
		if (s->ep && (s->is_over || rpwi_now_ns() > s->until_ns))
			end_client(s);
		if (s->echo >= 0)
			doctor_echo(s->echo, s->nonce);
		if (rpw_progress(s->c) > 0)
			continue;
		int rc = rpw_context_arm(s->c);
		if (rc < 0)
			return rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
		struct pollfd p[2] = {{.fd = rpw_context_fd(s->c), .events = POLLIN}, {.fd = s->echo, .events = POLLIN}};
		if (rc == RPW_OK && poll(p, 2, 1000) < 0 && errno != EINTR)
			return rpwi_cli_fail(CLI_FAILED, NAME, "poll: %s", strerror(errno));
	}
	return CLI_OK;
}

int doctor_serve(const char *address, const char *key_file, bool once)
{
	rpw_context_options o = {.size = sizeof(o), .key_file = key_file};
	struct server s = {.echo = -1};
	rpw_listener *l;

	if (rpw_context_create(&o, &s.c) || rpw_listener_create(s.c, address, accepted, &s, &l)) {
		rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
		if (s.c)
			rpw_context_destroy(s.c);
		return CLI_FAILED;
	}
	printf("listening on port %d: `ropeway doctor HOST:%d` on the other machine\n", rpw_listener_port(l), rpw_listener_port(l));
	fflush(stdout);
	int status = loop(&s, once);
	rpw_context_destroy(s.c);
	return status;
}
