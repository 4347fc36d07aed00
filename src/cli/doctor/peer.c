/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - the doctor that connects. It talks with the one that serves over TCP, whatever this
 * process would choose: a path by verbs would hold UDP port 4791, which is to be probed. Which path
 * would be chosen is tried at the end, with connections of its own. */
#include "cli/doctor/doctor.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define SAME_RELEASE "use the same release of ropeway on both sides"
#define NO_DOCTOR "give the port of a `ropeway doctor --serve`"
#define DESCRIPTORS "`ulimit -n` says how many descriptors a process may have"

/* ---- what both sides need ---- */

void *doctor_room(size_t len, void *most)
{
	return len <= (size_t)(uintptr_t)most ? malloc(RPWI_MAX(len, (size_t)1)) : NULL;
}

int doctor_turn(const struct doctor_talk *t)
{
	if (t->echo.fd >= 0)
		doctor_echo_answer(&t->echo);
	if (rpw_context_progress(t->c) > 0)
		return 0;
	int rc = rpw_context_arm(t->c);
	struct pollfd p[2] = {{.fd = rpw_context_fd(t->c), .events = POLLIN},
		{.fd = t->echo.fd, .events = POLLIN}};
	if (rc == RPW_OK)
		poll(p, 2, 1000);
	return RPWI_MIN(rc, 0);
}

json_t *doctor_say_echo(const struct doctor_echo *e)
{
	char nonce[DOCTOR_NONCE_BYTES * 2 + 1];

	for (int i = 0; i < DOCTOR_NONCE_BYTES; i++)
		snprintf(nonce + (ptrdiff_t)i * 2, 3, "%02x", e->nonce[i]);
	return json_pack("{s:i, s:i, s:i, s:s}", "doctor", DOCTOR_PROTOCOL, "port", (int)e->port,
		"mtu", (int)e->mtu, "nonce", nonce);
}

int doctor_hear_echo(const json_t *said, struct doctor_echo *e)
{
	const char *text;
	int port, mtu;

	if (json_unpack((json_t *)said, "{s:i, s:i, s:s}", "port", &port, "mtu", &mtu, "nonce",
		    &text) ||
		port < 1 || port > 65535 || mtu < 0 || strlen(text) != DOCTOR_NONCE_BYTES * 2 ||
		strspn(text, "0123456789abcdef") != DOCTOR_NONCE_BYTES * 2)
		return -1;
	*e = (struct doctor_echo){.fd = -1, .port = (unsigned)port, .mtu = (unsigned)mtu};
	for (int i = 0; i < DOCTOR_NONCE_BYTES; i++)
		e->nonce[i] = (uint8_t)strtoul((char[]){text[i * 2], text[i * 2 + 1], 0}, NULL, 16);
	return 0;
}

int doctor_host_of(rpw_endpoint *ep, char host[64])
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	bool known = !rpw_endpoint_info(ep, &info);

	return rpwi_cli_peer_address(known ? info.peer : "", host);
}

/* ---- questions and answers ---- */

struct client {
	struct doctor_talk talk;
	rpw_endpoint *ep;
	const char *address, *key_file;
	void *heard; /* an answer that is given up is still written there until the context ends */
	size_t heard_len;
	bool narrow; /* packets are lost for their size: long packets may never come */
};

static int wait_for(const struct doctor_talk *t, rpw_request *req, unsigned wait_ms)
{
	uint64_t until_ns = rpwi_now_ns() + wait_ms * RPWI_NS_PER_MS;
	int rc = 0;

	while (!rc && rpw_request_test(req, NULL) == RPW_IN_PROGRESS && rpwi_now_ns() < until_ns)
		rc = doctor_turn(t);
	rc = rc ? rc : rpw_request_test(req, NULL);
	rpw_request_destroy(req);
	return rc == RPW_IN_PROGRESS ? RPW_ERR_TIMEOUT : rc;
}

/* What came is an object of a doctor of this version. */
static bool is_answer(struct doctor_report *r, const json_t *root)
{
	const char *version = NULL;
	int protocol;

	if (!root || json_unpack((json_t *)root, "{s:i, s?s}", "doctor", &protocol, "version",
			     &version)) {
		doctor_add(r, DOCTOR_FAIL, "peer", NO_DOCTOR,
			"the answer from there is not from a doctor");
		return false;
	}
	if (protocol != DOCTOR_PROTOCOL)
		doctor_add(r, DOCTOR_FAIL, "versions", SAME_RELEASE,
			"the doctor there (ropeway %.40s) speaks version %d of its protocol, this "
			"one (%s) %d",
			version ? version : "?", protocol, rpw_version(), DOCTOR_PROTOCOL);
	return protocol == DOCTOR_PROTOCOL;
}

/* Says an object, which it takes, and gives the one that comes back; NULL with a verdict. */
static json_t *ask(struct doctor_report *r, struct client *k, json_t *question)
{
	rpw_request *sending = NULL, *receiving;
	unsigned wait_ms = k->narrow ? DOCTOR_WAIT_MS / 5 : DOCTOR_WAIT_MS;
	char *text = question ? json_dumps(question, JSON_COMPACT) : NULL;

	k->heard = NULL;
	int rc = text ? rpw_recv_obj(k->talk.c, k->ep, doctor_room,
				(void *)(uintptr_t)DOCTOR_REPORT_MAX, &k->heard, &k->heard_len,
				&receiving)
		      : RPW_ERR_NO_MEMORY;

	json_decref(question);
	if (rc >= 0) {
		rc = rpw_send_obj(k->ep, text, strlen(text), &sending);
		if (rc == RPW_IN_PROGRESS)
			rc = wait_for(&k->talk, sending, wait_ms);
		int got = wait_for(&k->talk, receiving, wait_ms);
		rc = rc < 0 ? rc : got;
	}
	json_t *root = rc ? NULL : json_loadb(k->heard, k->heard_len, 0, NULL);
	if (rc)
		doctor_add(r, DOCTOR_FAIL, "peer",
			"is it a `ropeway doctor --serve`, of this release, and not busy with "
			"another one?",
			"%s: %s", rpw_status_name(rc),
			rc == RPW_ERR_TIMEOUT ? "it does not answer" : rpw_last_error());
	else if (!is_answer(r, root)) {
		json_decref(root);
		root = NULL;
	}
	if (rc != RPW_ERR_TIMEOUT) {
		free(k->heard);
		free(text);
	}
	return root;
}

static int take_verdicts(struct doctor_report *r, const json_t *said, enum doctor_side side)
{
	r->side = side;
	bool right = !doctor_take_json(r, json_object_get(said, "verdicts"));
	r->side = DOCTOR_BETWEEN;
	if (!right)
		doctor_add(r, DOCTOR_FAIL, "peer", SAME_RELEASE, "its verdicts are malformed");
	return right ? 0 : -1;
}

static void judge_place(struct doctor_report *r, const json_t *there)
{
	char others[DOCTOR_OTHERS_LEN];

	switch (doctor_where(there, others)) {
	case DOCTOR_ELSEWHERE:
		doctor_add(r, DOCTOR_OK, "place", NULL, "the peer is on another host");
		break;
	case DOCTOR_SAME_PLACE:
		doctor_add(r, DOCTOR_OK, "place", NULL,
			"the peer is on this host, in the same namespaces");
		break;
	case DOCTOR_BESIDE:
		doctor_add(r, DOCTOR_WARN, "place",
			"if shared memory is wanted: run both in the same namespaces (of "
			"containers: "
			"`--network container:NAME --pid container:NAME`, of pods: one pod)",
			"the peer is on this host, in another namespace (%s): no shared memory "
			"between the two",
			others);
		break;
	default: /* an older doctor */
		break;
	}
}

/* Addresses as both sides see them, of the control connection. */
static void judge_addresses(struct doctor_report *r, const json_t *said, const char *to)
{
	const char *you = json_string_value(json_object_get(said, "you"));
	const json_t *mine = json_object_get(said, "mine");
	if (you && !doctor_is_own_address(you))
		doctor_nat(r,
			"connections from here arrive there from %.60s, which is not an "
			"address of this host",
			you);
	else if (json_is_false(mine))
		doctor_nat(
			r, "%.60s, where the peer is reached, is not an address of its host", to);
}

/* What a NAT breaks needs no remedy of its own. */
static void blame_nat(struct doctor_report *r)
{
	for (unsigned i = 0; r->nat && i < r->count; i++) {
		struct doctor_verdict *v = &r->verdict[i];
		if (v->side == DOCTOR_BETWEEN && v->level != DOCTOR_OK &&
			(!strncmp(v->what, "UDP port", 8) || !strncmp(v->what, "MTU", 3) ||
				!strcmp(v->what, "path by verbs")))
			snprintf(v->remedy, sizeof(v->remedy), "as for NAT");
	}
}

/* The way there. 0: go on. */
static int hello(struct doctor_report *r, struct client *k)
{
	char to[64];
	doctor_host_of(k->ep, to);
	json_t *root = ask(r, k, json_pack("{s:i, s:s}", "doctor", DOCTOR_PROTOCOL, "to", to));
	struct doctor_echo there;
	const char *version;

	if (!root)
		return -1;
	if (json_unpack(root, "{s:s}", "version", &version) || doctor_hear_echo(root, &there)) {
		doctor_add(r, DOCTOR_FAIL, "peer", NO_DOCTOR,
			"the answer from there is not from a doctor: it names neither its "
			"release nor where to probe");
		json_decref(root);
		return -1;
	}
	bool same = !strcmp(version, rpw_version());
	doctor_add(r, same ? DOCTOR_OK : DOCTOR_WARN, "versions", SAME_RELEASE,
		"%s on this side, %.40s there", rpw_version(), version);
	judge_place(r, json_object_get(root, "place"));
	judge_addresses(r, root, to);
	json_decref(root);
	doctor_probe(r, r->host, &there, false);
	root = ask(r, k, json_pack("{s:i}", "doctor", DOCTOR_PROTOCOL));
	json_decref(root);
	return root ? 0 : -1;
}

/* The way back. 0: go on. */
static int be_probed(struct doctor_report *r, struct client *k)
{
	int err = doctor_echo_open(&k->talk.echo);

	if (err) {
		doctor_add(r, DOCTOR_FAIL, "UDP", DESCRIPTORS, "no socket: %s", strerror(-err));
		return 0;
	}
	k->talk.echo.mtu = doctor_route_mtu(r->host);
	json_t *root = ask(r, k, doctor_say_echo(&k->talk.echo));
	doctor_echo_close(&k->talk.echo);
	if (!root)
		return -1;
	int rc = take_verdicts(r, root, DOCTOR_BETWEEN);
	json_decref(root);
	return rc;
}

static bool is_too_narrow(const struct doctor_report *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->verdict[i].side == DOCTOR_BETWEEN && r->verdict[i].level != DOCTOR_OK &&
			!strncmp(r->verdict[i].what, "MTU", 3))
			return true;
	return false;
}

static void take_report(struct doctor_report *r, struct client *k)
{
	unsigned before = r->count;

	k->narrow = is_too_narrow(r);
	json_t *root = ask(r, k, json_pack("{s:i}", "doctor", DOCTOR_PROTOCOL));
	if (root)
		take_verdicts(r, root, DOCTOR_THERE);
	else if (k->narrow && r->count > before)
		snprintf(r->verdict[before].remedy, sizeof(r->verdict[before].remedy),
			"as for MTU: its report is longer than what arrives");
	json_decref(root);
}

/* ---- connections ---- */

static const struct {
	int status;
	const char *remedy;
} connect_remedies[] = {
	{RPW_ERR_UNREACHABLE, "start `ropeway doctor --serve` there, and let that TCP port pass in "
			      "the firewalls of both sides and between them"},
	{RPW_ERR_REFUSED, "give both sides the same --key-file, and the same release"},
	{RPW_ERR_PROTOCOL, NO_DOCTOR},
	{RPW_ERR_TIMEOUT, NO_DOCTOR " that is not stopped"},
	{RPW_ERR_INVALID, "give HOST or HOST:PORT"},
};

static const char *connect_remedy(int status)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(connect_remedies); i++)
		if (connect_remedies[i].status == status)
			return connect_remedies[i].remedy;
	return NULL;
}

/* A context and a connection of its own; `transports` NULL: as any program would. To be destroyed
 * whatever the result is. */
static int join(const struct client *k, const char *transports, rpw_context **c, rpw_endpoint **ep)
{
	rpw_context_options o = {
		.size = sizeof(o), .key_file = k->key_file, .transports = transports};
	rpw_endpoint_options co = {.size = sizeof(co), .timeout_ms = 5000};
	rpw_request *req = NULL;
	int rc = rpw_context_create(&o, c);

	if (!rc)
		rc = rpw_endpoint_create(*c, k->address, &co, ep, &req);
	return rc == RPW_IN_PROGRESS ? wait_for(&(struct doctor_talk){.c = *c, .echo.fd = -1}, req,
					       DOCTOR_WAIT_MS)
				     : rc;
}

/* The path that is chosen, or the one by `transports`. Was it verbs? */
static bool look_at_path(
	struct doctor_report *r, const struct client *k, const char *what, const char *transports)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_context *c = NULL;
	rpw_endpoint *ep;
	bool is_verbs = false;
	char error[DOCTOR_ERROR_LEN];
	int rc = join(k, transports, &c, &ep);

	if (!rc && !rpw_endpoint_info(ep, &info)) {
		is_verbs = !strcmp(info.transport, "verbs");
		if (transports)
			doctor_add(r, DOCTOR_OK, what, NULL, "%s", info.path);
		else
			doctor_add(r, DOCTOR_OK, what, NULL, "%s (%s), because %s", info.transport,
				info.path, info.why);
	} else if (transports) {
		doctor_add(r, DOCTOR_WARN, what,
			"if verbs is wanted: as for UDP port 4791, MTU, and the devices of both "
			"sides",
			"%s", doctor_last_error(error));
	} else {
		doctor_add(r, DOCTOR_FAIL, what,
			getenv("ROPEWAY_TRANSPORT") ? "`unset ROPEWAY_TRANSPORT`"
						    : "as for the failures above",
			"%s", doctor_last_error(error));
	}
	if (c)
		rpw_context_destroy(c);
	return is_verbs;
}

void doctor_peer(struct doctor_report *r, const char *address, const char *key_file)
{
	struct client k = {.address = address, .key_file = key_file, .talk.echo.fd = -1};

	r->side = DOCTOR_BETWEEN;
	int rc = join(&k, "tcp", &k.talk.c, &k.ep);
	if (rc)
		doctor_add(r, DOCTOR_FAIL, "bootstrap port",
			doctor_remedy_of(rpw_last_error(), connect_remedy(rc)), "%s: %s",
			rpw_status_name(rc), rpw_last_error());
	else
		doctor_add(r, DOCTOR_OK, "bootstrap port", NULL, "TCP %s is reachable, and answers",
			address);
	if (!rc && !hello(r, &k) && !be_probed(r, &k)) {
		take_report(r, &k);
		if (look_at_path(r, &k, "path", NULL) ||
			look_at_path(r, &k, "path by verbs", "verbs"))
			doctor_port_is_proven(r);
	}
	blame_nat(r);
	if (k.talk.c)
		rpw_context_destroy(k.talk.c);
}
