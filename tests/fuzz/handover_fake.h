/* SPDX-License-Identifier: BSD-3-Clause */
/* handover_fake.h - the host around hand-over and steering, played by the target: users, names, the
 * kernel's lists, the sending side of a port; and what of it is true in this run. */
#ifndef ROPEWAY_HANDOVER_FAKE_H
#define ROPEWAY_HANDOVER_FAKE_H

#include "fuzz.h"

#include <sys/socket.h>

#include "io/port_priv.h"

enum { NAMES = 8, CONNS = 3, LINES = 32, NOBODY = 65534 };
/* another process of our user; another user; one without a number in our namespace */
enum who { COUSIN, STRANGER, NAMELESS, WHOS };

/* A name that somebody else listens at, and whom of us he has got. */
struct name {
	bool used;
	enum who who;
	struct io_dest dest;
	char text[RPWI_NAME_MAX];
	int fd, conn[CONNS];
};
struct line {
	enum who who;
	int fd; /* -1: none */
};

extern struct fuzz_run {
	struct fuzz_input in;
	bool shares, all_mapped, port_taken;
	uid_t us;
	struct rpwi_steer *steer;
	struct rpwi_port *port;
	struct name name[NAMES];
	struct line line[LINES];
	unsigned serial, floods;
	uint64_t page_cookie, probe_cookie;
	uint64_t told[64]; /* slots that our user has told, and our own */
	uint64_t claims;
	int page_fd; /* of the last page shown to us */
	struct {
		int who; /* -1: nobody */
		unsigned sockets;
		uint64_t until_ns[WHOS];
	} holder;
} run;

uid_t uid_of(enum who w);
bool is_trusted(enum who w);
bool is_for_sharing(const struct io_dest *d);

int __real_bind(int fd, const struct sockaddr *sa, socklen_t len);
/* For sockets of others, too: they are under names that nobody else of this host has. */
int __wrap_bind(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len);

#endif
