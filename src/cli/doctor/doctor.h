/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.h - `ropeway doctor`: one verdict for each thing looked at. local.c looks at this machine,
 * probe.c at the way to another one, peer.c talks with the `ropeway doctor --serve` there, which is
 * serve.c. */
#ifndef ROPEWAY_CLI_DOCTOR_H
#define ROPEWAY_CLI_DOCTOR_H

#include "cli/cli.h"
#include "cli/options.h"
#include "ropeway.h"

#include <jansson.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define DOCTOR_PORT 7478
#define DOCTOR_PORT_TEXT CLI_STRING(DOCTOR_PORT)
enum {
	DOCTOR_ROCE_PORT = 4791,
	DOCTOR_VERDICTS_MAX = 96,
	DOCTOR_REPORT_MAX = 256 * 1024,
	DOCTOR_NONCE_BYTES = 16
};

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };
enum doctor_side { DOCTOR_HERE, DOCTOR_THERE, DOCTOR_BETWEEN };
struct doctor_verdict {
	enum doctor_level level;
	enum doctor_side side;
	char what[64], text[480], remedy[320]; /* remedy: empty if none is needed */
};
struct doctor_report {
	struct doctor_verdict verdict[DOCTOR_VERDICTS_MAX];
	unsigned count;
	enum doctor_side side; /* of the next addition */
	const char *host;      /* the peer, or NULL */
	bool nat;              /* one lies between: told, and the cause of more */
};

/* ---- report.c ---- */
extern const char *const doctor_level_name[];
/* remedy: or NULL; of what is in order it is not kept. */
void doctor_add(struct doctor_report *r, enum doctor_level level, const char *what,
	const char *remedy, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
json_t *doctor_json(const struct doctor_report *r);
/* What a peer sent, checked; it becomes verdicts of r->side, whatever it says itself. 0 or -1. */
int doctor_take_json(struct doctor_report *r, const json_t *verdicts);

/* rpw_last_error, without its advice to ask the doctor. Returns out. */
enum { DOCTOR_ERROR_LEN = 400 };
const char *doctor_last_error(char out[DOCTOR_ERROR_LEN]);

/* ---- remedy.c ---- */
/* What helps against what an error says; `otherwise` where the sentence does not tell. */
const char *doctor_remedy_of(const char *said, const char *otherwise);

/* ---- place.c ---- */
/* This process's host and namespaces, for the other side; and where that is, by what it said of
 * itself (NULL: nothing). others: of DOCTOR_BESIDE, the namespaces that differ. */
enum doctor_where {
	DOCTOR_NOWHERE,   /* not known */
	DOCTOR_ELSEWHERE, /* on another host */
	DOCTOR_SAME_PLACE,
	DOCTOR_BESIDE, /* on this host, in another namespace */
};
enum { DOCTOR_OTHERS_LEN = 64 };
json_t *doctor_place(void);
enum doctor_where doctor_where(const json_t *there, char others[DOCTOR_OTHERS_LEN]);
bool doctor_is_own_address(const char *text); /* numeric; true where it is no address */
unsigned doctor_interface_mtu(int fd);        /* of a connected socket's interface; 0: not known */
void doctor_map(struct in6_addr *out, const struct in_addr *v4);

/* ---- local.c ---- */
void doctor_local(struct doctor_report *r);

/* ---- probe.c: datagrams with DF set, to a socket of the peer's that sends them back ---- */
struct doctor_echo {
	int fd;             /* -1: none */
	unsigned port, mtu; /* mtu: of the route to the other side, as its own side sees it */
	uint8_t nonce[DOCTOR_NONCE_BYTES];
};
/* Bound to UDP port 4791, or to any if that is taken. 0 or -errno. */
int doctor_echo_open(struct doctor_echo *e);
void doctor_echo_close(struct doctor_echo *e);
/* Answers what has come, if it has the nonce: no one else is answered, and nobody gets more than he
 * sent. */
void doctor_echo_answer(const struct doctor_echo *e);
/* Of the route to host, as the kernel knows it. */
unsigned doctor_route_mtu(const char *host);
/* Verdicts on the way to an echo at host; `back`: said of the way from the one that serves to the
 * one that asks. */
/* Addresses or ports are translated between the two: told once. */
void doctor_nat(struct doctor_report *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_probe(
	struct doctor_report *r, const char *host, const struct doctor_echo *there, bool back);
/* A path by verbs came up, which needs UDP port 4791 both ways: what was said of it before, where
 * it was in use or nothing but RDMA hardware hears it, is put right. */
void doctor_port_is_proven(struct doctor_report *r);

/* ---- what the two doctors say ----
 * Objects of JSON, each with "doctor": the version of this. The one that connects asks four times:
 *   {to}               -> {version, port, mtu, nonce, you, mine, place}: where the echo there is,
 *                      which it then probes; the address from which it came as seen there; whether
 *                      `to`, at which it connected, is an address of that host; which host and
 *                      namespaces that is. What is behind nonce may be missing
 *   {}                 -> {}: that echo is closed
 *   {port, mtu, nonce} -> {verdicts}: where its own echo is, and what the one that serves found on
 *   the way to it. A firewall may let answers pass, and nothing else in
 *   {}                 -> {verdicts}: on the machine there. The only long one, and so the last:
 *                      where the MTU is not as it should be it may never come
 * Then it makes other connections, of which the one that serves has nothing to do but to accept
 * them. */
enum { DOCTOR_PROTOCOL = 3, DOCTOR_ASK_MAX = 1024, DOCTOR_WAIT_MS = 30 * 1000 };
struct doctor_talk {
	rpw_context *c;
	struct doctor_echo echo;
};
/* Does the work that is due, or sleeps until there is something. Negative: rpw_last_error says
 * why. */
int doctor_turn(const struct doctor_talk *t);
/* An allocator for rpw_recv_obj that gives at most (uintptr_t)most bytes. */
void *doctor_room(size_t len, void *most);
json_t *doctor_say_echo(const struct doctor_echo *e);
int doctor_hear_echo(const json_t *said, struct doctor_echo *e);
/* The numeric address of the other side. 0, or negative and an empty one. */
int doctor_host_of(rpw_endpoint *ep, char host[64]);

void doctor_peer(struct doctor_report *r, const char *address, const char *key_file);
int doctor_serve(const char *address, const char *key_file, bool once); /* an exit status */

#endif
