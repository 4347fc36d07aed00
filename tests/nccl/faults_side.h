/* SPDX-License-Identifier: BSD-3-Clause */
/* faults_side.h - one side of a connection through a plugin, and a process that is one at orders:
 * what faults_test.c kills, stops and watches. */
#ifndef TESTS_NCCL_FAULTS_SIDE_H
#define TESTS_NCCL_FAULTS_SIDE_H

#include <stddef.h>
#include <sys/types.h>

#include "ncclnet/host/host.h"

enum {
	FLIGHTS = 8,         /* requests of a side under way at once */
	BYTES_MAX = 4 << 20, /* of a message */
	/* nothing takes longer, on the slowest machine; a side that waits as long has failed */
	PATIENCE_MS = 30000,
	WARNED_BYTES = 1024,
	STILL_WAITS = -100, /* beside the results of the plugin: not in this time */
	WRONG_DATA = -101,
};

struct flight {
	void *request, *mhandle;
	uint8_t *buf;
	size_t size;
	uint64_t seq;
	bool receives;
};

struct side {
	struct ncclnet *net;
	void *ctx, *listener, *comm;
	bool receives;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	struct flight flight[FLIGHTS];
	uint64_t posted, ended; /* flights, in their order */
	uint64_t good;
};

/* What the plugin warned of since warned_reset, line by line. */
void warned_reset(void);
const char *warned(void);

uint64_t now_ms(void);

/* All of these give the plugin's result, or one of STILL_WAITS and WRONG_DATA. */
int side_open(struct side *s, const char *plugin);
int side_listen(struct side *s);
int side_close_listen(struct side *s);
/* calls: 0, as many as it takes. */
int side_connect(struct side *s, const uint8_t *handle, unsigned calls, unsigned timeout_ms);
int side_accept(struct side *s, unsigned timeout_ms);
/* n messages, each with a pattern that no other has. */
int side_post(struct side *s, unsigned n, size_t size);
/* Until all that was posted has ended; the first result that is none of success. */
int side_wait(struct side *s, unsigned timeout_ms);
/* Messages until something fails, or n have gone. */
int side_stream(struct side *s, uint64_t n, size_t size);
int side_close(struct side *s);

/* ---- a process ---- */

struct order {
	char op;
	unsigned n, timeout_ms;
	size_t size;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
};
struct answer {
	int rc;
	unsigned descriptors;
	uint64_t good;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	char warned[WARNED_BYTES];
};
enum {
	LISTEN = 'L',
	CLOSE_LISTEN = 'X',
	CONNECT = 'C',
	ACCEPT = 'A',
	POST = 'P',
	WAIT = 'W',
	STREAM = 'S',
	CLOSE = 'Q'
};

struct peer {
	pid_t pid;
	int fd;
};
/* What such a process does: obeys until fd ends. */
int peer_main(int fd, const char *plugin);
void peer_start(struct peer *p, const char *plugin);
void peer_tell(const struct peer *p, struct order o);
/* false: it is gone, or does not answer. */
bool peer_hear(const struct peer *p, struct answer *a);
void peer_signal(const struct peer *p, int signal);
void peer_kill(struct peer *p);

#endif
