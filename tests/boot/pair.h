/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - what the tests of boot share: a network namespace, sides that record what they are told,
 * raw sockets as strangers. */
#ifndef TESTS_BOOT_PAIR_H
#define TESTS_BOOT_PAIR_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/pattern.h"
#include "lib/test.h"
#include "base/error.h"
#include "boot/boot.h"
#include "boot/hello.h"
#include "ropeway.h"

enum { PEERS_MAX = 1024 };

/* One connection of a side, as its callee sees it. */
struct peer {
	struct boot_conn *c;
	struct side *side;
	bool connected, gone, close_in_message;
	int status; /* of connected, then of gone */
	char why[512];
	unsigned messages, bad; /* bad: not what pattern_byte() says for its type and length */
	size_t bytes;
	unsigned last_type;
};
struct side {
	struct boot *b;
	struct tran_facts own;
	unsigned n, accepted, connected, ended; /* peers; how many up-calls of each kind */
	bool close_in_accepted;
	struct peer peer[PEERS_MAX];
};

void ns_enter(void); /* exit 77 where there is none */
/* key_file may be NULL. Fails the test when it cannot be made. */
struct side *side_new(const char *key_file);
void side_free(struct side *s);
struct peer *side_connect(struct side *s, const char *host, int port, unsigned timeout_ms);
struct boot_listener *side_listen(struct side *s, const char *address);
/* Progress both until `what` (may look at anything) or a long time has passed: how long is never
 * judged, only whether it comes. b may be NULL. */
bool until(struct side *a, struct side *b, bool (*what)(void *), void *arg);
int send_pattern(struct boot_conn *c, unsigned type, size_t len);
/* What the log says from one to the other; gives the text, valid until the next. */
void log_begin(enum rpwi_log_level level);
const char *log_end(void);
void loopback_set(bool up);

int raw_connect(int port);
/* Sent whole; false when the other side has closed. */
bool raw_send(int fd, const void *p, size_t len);
/* Until the other side closes; how many bytes it sent, while `s` makes progress. */
size_t raw_drain(int fd, struct side *s, uint8_t *out, size_t room);

#endif
