/* doctor.h - `ropeway doctor`: one verdict for each thing looked at. doctor_local.c looks at this machine, doctor_probe.c at the way to another one, doctor_peer.c talks with the
 * `ropeway doctor --serve` there. */
#ifndef ROPEWAY_CLI_DOCTOR_H
#define ROPEWAY_CLI_DOCTOR_H

#include "cli/cli.h"
#include "ropeway.h"

#include <jansson.h>
#include <sys/socket.h>

enum { DOCTOR_PORT = 7478, DOCTOR_VERDICTS_MAX = 96, DOCTOR_REPORT_MAX = 256 * 1024, DOCTOR_NONCE_BYTES = 16 };

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };
struct doctor_verdict {
	enum doctor_level level;
	bool of_peer;
	char what[64], text[320], remedy[320]; /* remedy: empty if none is needed */
};
struct doctor_report {
	struct doctor_verdict verdict[DOCTOR_VERDICTS_MAX];
	unsigned count;
};

/* ---- doctor.c ---- */
void doctor_add(struct doctor_report *r, enum doctor_level level, const char *what, const char *remedy /* or NULL */, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
json_t *doctor_json(const struct doctor_report *r);
/* What a peer sent, checked; those of its verdicts that fit. 0 or -1. */
int doctor_take_json(struct doctor_report *r, const json_t *verdicts);

/* ---- doctor_local.c ---- */
void doctor_local(struct doctor_report *r);

/* ---- doctor_probe.c: datagrams with DF set, to a socket of the peer's that sends them back ---- */
/* Bound to `port`, or to any if that is taken; the port it got is in *got. fd or -errno. */
int doctor_echo_open(unsigned port, unsigned *got);
/* Answers what has come, if it has the nonce: no one else is answered, and nobody gets more than he sent. */
void doctor_echo(int fd, const uint8_t nonce[DOCTOR_NONCE_BYTES]);
/* Probes the way to host, UDP port `port`, and back. */
void doctor_probe(struct doctor_report *r, const char *host, unsigned port, const uint8_t nonce[DOCTOR_NONCE_BYTES]);

/* ---- doctor_peer.c ---- */
void doctor_peer(struct doctor_report *r, const char *host, const char *address, const char *key_file);
int doctor_serve(const char *address, const char *key_file, bool once); /* an exit status */

#endif
