/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.c - the doctor that serves: one client at a time, each with a context of its own, so that
 * nothing of the last one's still holds UDP port 4791. */
#include "cli/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME "ropeway doctor"
/* How often a client asks, and how many more connections it may make. */
enum { ANSWERS = 4, MORE_MAX = 4, CLIENT_S_MAX = 120 };

struct server {
	struct doctor_talk talk;
	rpw_listener *l;
	rpw_endpoint *ep; /* the client, or NULL */
	unsigned more;    /* its other connections so far */
	bool is_over;
	json_t *asked; /* what it said, and is not answered yet */
	unsigned answers;
	rpw_request *asking, *answering[ANSWERS];
	char *answer[ANSWERS];
	void *heard;
	size_t heard_len;
	uint64_t until_ns;
};

static void asked(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct server *s = arg;

	s->asked = done->status ? NULL : json_loadb(s->heard, s->heard_len, 0, NULL);
	s->is_over |= !s->asked;
	free(s->heard);
	s->heard = NULL;
}

static void left(rpw_endpoint *ep, int status, void *arg)
{
	((struct server *)arg)->is_over = true;
}

static void listen_to(struct server *s)
{
	rpw_request_destroy(s->asking);
	s->asking = NULL;
	if (rpw_recv_obj(s->talk.c, s->ep, doctor_room, (void *)(uintptr_t)DOCTOR_ASK_MAX,
		    &s->heard, &s->heard_len, &s->asking) < 0)
		s->is_over = true;
	else
		rpw_request_on_done(s->asking, asked, s);
}

/* "host:pid address:port" without what differs between connections of a process. */
static size_t process_len(const char *peer) { return strcspn(peer, " "); }

static bool is_same_process(rpw_endpoint *a, rpw_endpoint *b)
{
	rpw_endpoint_information info_a = {.size = sizeof(info_a)},
				 info_b = {.size = sizeof(info_b)};

	if (rpw_endpoint_info(a, &info_a) || rpw_endpoint_info(b, &info_b))
		return false;
	return process_len(info_a.peer) == process_len(info_b.peer) &&
	       !strncmp(info_a.peer, info_b.peer, process_len(info_a.peer));
}

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct server *s = arg;

	if (s->ep) {
		if (!is_same_process(s->ep, ep) || s->more++ == MORE_MAX)
			rpw_endpoint_destroy(ep);
		return;
	}
	s->ep = ep;
	s->until_ns = rpwi_now_ns() + CLIENT_S_MAX * RPWI_NS_PER_S;
	rpw_endpoint_on_close(ep, left, s);
	listen_to(s);
}

/* ---- answers ---- */

static json_t *with_verdicts(struct doctor_report *r)
{
	return json_pack("{s:i, s:o}", "doctor", DOCTOR_PROTOCOL, "verdicts", doctor_json(r));
}

/* Where probes go. */
static json_t *answer_hello(struct server *s, struct doctor_report *r)
{
	char host[64];

	if (doctor_echo_open(&s->talk.echo))
		return NULL;
	s->talk.echo.mtu = doctor_host_of(s->ep, host) ? 0 : doctor_route_mtu(host);
	json_t *root = doctor_say_echo(&s->talk.echo);
	const char *to = json_string_value(json_object_get(s->asked, "to"));
	if (root) {
		json_object_set_new(root, "version", json_string(rpw_version()));
		json_object_set_new(root, "place", doctor_place());
		if (!doctor_host_of(s->ep, host))
			json_object_set_new(root, "you", json_string(host));
		if (to)
			json_object_set_new(root, "mine", json_boolean(doctor_is_own_address(to)));
	}
	return root;
}

static json_t *answer_probed(struct server *s, struct doctor_report *r)
{
	doctor_echo_close(&s->talk.echo);
	return json_pack("{s:i}", "doctor", DOCTOR_PROTOCOL);
}

/* The client's echo is open: probe it. Only its own address is, so nobody is probed by order of
 * others. */
static json_t *answer_echo(struct server *s, struct doctor_report *r)
{
	struct doctor_echo there;
	char host[64];

	if (doctor_hear_echo(s->asked, &there) || doctor_host_of(s->ep, host))
		return NULL;
	doctor_probe(r, host, &there, true);
	return with_verdicts(r);
}

static json_t *answer_report(struct server *s, struct doctor_report *r)
{
	doctor_local(r);
	return with_verdicts(r);
}

static json_t *compose(struct server *s, struct doctor_report *r)
{
	static json_t *(*const answers[ANSWERS])(struct server * s, struct doctor_report * r) = {
		answer_hello, answer_probed, answer_echo, answer_report};
	int protocol;

	if (json_unpack(s->asked, "{s:i}", "doctor", &protocol))
		return NULL;
	if (protocol != DOCTOR_PROTOCOL) /* it is for the client to say so */
		return json_pack("{s:i, s:s}", "doctor", DOCTOR_PROTOCOL, "version", rpw_version());
	return answers[s->answers](s, r);
}

static void answer(struct server *s)
{
	struct doctor_report *r = calloc(1, sizeof(*r));
	json_t *root = r ? compose(s, r) : NULL;
	unsigned i = s->answers++;

	s->answer[i] = root ? json_dumps(root, JSON_COMPACT) : NULL;
	if (!s->answer[i] ||
		rpw_send_obj(s->ep, s->answer[i], strlen(s->answer[i]), &s->answering[i]) < 0)
		s->is_over = true;
	json_decref(root);
	json_decref(s->asked);
	s->asked = NULL;
	free(r);
	if (!s->is_over && s->answers < ANSWERS)
		listen_to(s);
}

/* ---- one client after another ---- */

static int open_at(struct server *s, const char *address, const char *key_file)
{
	/* All of them, whatever ROPEWAY_TRANSPORT says here: it is the client that chooses, and it
	 * talks over TCP. */
	rpw_context_options o = {
		.size = sizeof(o), .key_file = key_file, .transports = "shm,verbs,tcp"};

	*s = (struct server){.talk.echo.fd = -1};
	int rc = rpw_context_create(&o, &s->talk.c);
	if (!rc)
		rc = rpw_listener_create(s->talk.c, address, accepted, s, &s->l);
	return rc ? rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error()) : CLI_OK;
}

static int loop(struct server *s)
{
	while (!s->ep || (!s->is_over && rpwi_now_ns() < s->until_ns)) {
		if (s->ep && s->asked)
			answer(s);
		if (doctor_turn(&s->talk))
			return rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
	}
	return CLI_OK;
}

static void close_all(struct server *s)
{
	if (s->talk.c)
		rpw_context_destroy(s->talk.c); /* what was posted is called back now */
	for (size_t i = 0; i < ANSWERS; i++)
		free(s->answer[i]);
	json_decref(s->asked);
	doctor_echo_close(&s->talk.echo);
}

int doctor_serve(const char *address, const char *key_file, bool once)
{
	struct server s;
	char same[300];
	int status = open_at(&s, address, key_file), port = status ? 0 : rpw_listener_port(s.l);

	if (!status) {
		printf("listening on port %d: `ropeway doctor HOST:%d` on the other machine\n",
			port, port);
		fflush(stdout);
	}
	/* The next client finds the same port, also where any free one was taken. */
	snprintf(same, sizeof(same), "%.*s:%d",
		(int)(strrchr(address, ':') ? strrchr(address, ':') - address : 0), address, port);
	while (!status) {
		status = loop(&s);
		if (!status)
			printf("a client was %s\n", s.answers ? "served" : "gone before it asked");
		fflush(stdout);
		bool done = once && s.answers;
		close_all(&s);
		if (status || done)
			return status;
		status = open_at(&s, same, key_file);
	}
	close_all(&s);
	return status;
}
