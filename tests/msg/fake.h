/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.h - a transport and a bootstrap in memory, for both sides of a connection in one thread:
 * everything that a contract allows can be made to happen, by a seed. */
#ifndef TESTS_MSG_FAKE_H
#define TESTS_MSG_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/rng.h"

struct fake_knobs {
	struct rng rng;
	unsigned again_percent; /* send, rma and flush say RPWI_LATER */
	unsigned late_percent;  /* a frame or an operation stays for another round of progress */
	/* "fake_b": a round of progress breaks the path; what was under way is lost */
	unsigned break_permille;
	bool hold_dones; /* operations do not end before this is false again */
	/* "fake_b": the next round that ends an operation then finds the path broken */
	bool break_behind_done;
	bool break_now;       /* "fake_b": the path breaks, in the next round */
	unsigned break_young; /* "fake_b": so many of the next ends break instead of coming up */
	bool no_ready;        /* "fake_a": paths never come up */
	bool refuse_make;     /* "fake_a": ep_make fails */
	unsigned eager_max, frame_max;
	/* "fake_b": longer frames are put into their places, in two rounds; 0: there are none */
	unsigned placed_max, placed;
	/* "fake_b" reaches memory of GPUs by itself, with these. */
	void (*gpu_write)(void *to, const void *from, size_t len);
	const void *(*gpu_read)(const void *from, size_t len);
	/* What happened */
	unsigned breaks, agains, made;
};
extern struct fake_knobs fake;
uint64_t fake_random(void);
/* Frames that a peer of bad will sends, into the endpoint of that number. */
uint64_t fake_last_made(void);
/* the one that the connecting or the listening side made last */
uint64_t fake_made_by(bool active);
/* what describes memory that is registered, the last time; 0: it is not */
uint64_t fake_number_of(const void *memory);
/* Pools of loans that there are; the oldest of an endpoint's. */
unsigned fake_pools(void);
bool fake_pool(uint64_t owner, uint32_t *id, uint32_t *generation);
void fake_inject(
	uint64_t nth, const void *head, unsigned head_len, const void *body, unsigned body_len);
/* A control message that a peer of bad will sends, over the connection accepted last. */
void fake_say(bool to_listener, unsigned type, const void *data, unsigned len);

#endif
