/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - what the suite and the benchmark of transports share: one side of an endpoint, in a
 * process of its own, and a socket pair over which the two exchange handles. */
#ifndef ROPEWAY_TESTS_TRAN_PAIR_H
#define ROPEWAY_TESTS_TRAN_PAIR_H

#include <sys/types.h>

#include "lib/pattern.h"
#include "ropeway.h"
#include "tran/tran.h"

enum { PAIR_DEADLINE_MS = 60000 };

/* What an operation or a message needs to be told, by `user` of its endpoint. */
struct end {
	struct side *side;
	struct tran_ep *ep;
	bool is_ready, is_failed, has_room;
	int status; /* of ready or failed */
	char why[200];
	void (*frame)(struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body,
		size_t body_len);
	void (*done)(struct end *e, void *cookie, int status);
	/* of a long frame: NULL: no place */
	void *(*place)(struct end *e, const uint8_t *head, size_t head_len, size_t body_len);
	void *arg;
	uint64_t frames, rooms, dones;
};

struct side {
	const struct tran_ops *ops;
	struct tran *t;
	struct tran_facts facts, peer_facts;
	int talk;  /* to the other process: whole packets */
	int which; /* 0: the parent, who connects */
	pid_t child;
};

void pair_facts(struct tran_facts *f);
const uint8_t *pair_secret(void); /* what both ends have, where TRAN_SEALED is set; else NULL */
/* Fork; both come back with a side. -1: fork failed. */
int pair_fork(struct side *s, const struct tran_ops *ops);
/* the transport; 0 or -errno. The child says it to the parent: see pair_sync */
int pair_open(struct side *s);
void pair_close(struct side *s);
/* Packets between the two processes; while waiting, progress goes on. False: the other is gone, or
 * it took too long. */
bool pair_say(struct side *s, const void *data, size_t len);
bool pair_hear(struct side *s, void *data, size_t room, size_t *len);
bool pair_sync(struct side *s); /* both are here */
/* An endpoint: make, exchange handles, start, ready. */
bool pair_connect(struct side *s, struct end *e);
/* Progress until *flag, or the deadline. */
bool pair_until(struct side *s, const bool *flag);
bool pair_until_count(struct side *s, const uint64_t *count, uint64_t at_least);
/* A frame, waiting for room as long as it takes. */
bool pair_send(struct end *e, const void *head, size_t head_len, const void *body, size_t body_len);
/* Wait as a program would that sleeps: arm, poll. False: nothing to be done within ms. */
bool pair_sleep(struct side *s, int ms);

/* Registered memory that is nobody's: the transport's own where it allocates, else mapped here. */
int pair_memory(struct side *s, struct tran *t, size_t len, unsigned access, struct tran_mem **out);
void pair_memory_free(struct side *s, struct tran *t, struct tran_mem *m);

#endif
