/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance.h - what the cases of the conformance suite share. */
#ifndef TESTS_TRAN_CONFORMANCE_H
#define TESTS_TRAN_CONFORMANCE_H

#include "pair.h"

#include <stdio.h>
#include <unistd.h>

#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(x, ...) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "# %s:%d (side %d): %s.", __FILE__, __LINE__, the_side, \
				#x); \
			fprintf(stderr, " " __VA_ARGS__); \
			fprintf(stderr, "\n"); \
			_exit(1); \
		} \
	} while (0)

extern int the_side; /* side->which, of this process */
enum { BODY_MAX = 1 << 20 };

/* Both processes run it. */
struct conformance_case {
	const char *name;
	void (*run)(struct side *s);
	bool child_dies;
};
void conformance_run(const char *name, struct side *s); /* a case, as a part of another */
/* Each ends with one without a name. */
extern const struct conformance_case frame_cases[], memory_cases[], end_cases[], context_cases[];

/* conformance_frames.c: a stream of frames of which both sides know all */
struct stream {
	uint64_t seed, next;
};
void stream_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len);
void stream_send(struct end *e, uint64_t seed, uint64_t n);
size_t nth_head(uint64_t n);
size_t nth_body(uint64_t n, const struct end *e);
void head_fill(uint8_t *head, size_t len, uint64_t seed);
bool head_right(const uint8_t *head, size_t len, uint64_t seed);

/* conformance_memory.c: one operation, from its beginning to its end. A status */
struct result {
	bool done;
	int status;
};
void rma_done(struct end *e, void *cookie, int status);
int rma(struct end *e, bool is_put, const struct tran_desc *d, uint64_t offset, void *local,
	size_t len);
int flush(struct end *e);
void rma_case(struct side *s, bool allocate, bool passive_sleeps);
uint64_t atomic(struct end *e, enum tran_atomic op, const struct tran_desc *d, uint64_t offset,
	uint64_t operand, uint64_t compare, int *status);

/* conformance_ends.c */
void handles_swap(struct side *s, struct end *e, uint8_t *theirs, size_t *their_len);

#endif
