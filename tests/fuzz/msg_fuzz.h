/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_fuzz.h - what the two halves of the msg target share: the state of both programs, and the
 * input. */
#ifndef ROPEWAY_MSG_FUZZ_H
#define ROPEWAY_MSG_FUZZ_H

#include "fuzz.h"

#include "../msg/fake.h"
#include "msg/objects.h"

enum {
	COMMANDS_MAX = 300,
	OPS_MAX = 40,
	EPS_MAX = 4,
	KEYS_MAX = 8,
	LOANS_MAX = 4, /* and views, of a side */
	REGION = 4096,
	GUARD = 64,
	POOL = 256 * 1024,
	OBJECT_MAX = 1 << 20
};
enum { WRITABLE, READABLE, REGIONS };
enum { GPU_ROOM = 1300 << 10 }; /* of an operation: several chunks */

struct side;
struct op {
	bool used;
	rpw_request *r; /* NULL: the program has let go of it */
	uint8_t *buf;
	size_t len;
	uint64_t before;
	void *obj;
	size_t obj_len;
	bool is_recv;
	rpw_view view;
	struct side *viewer; /* of `view`; NULL: it receives none */
	uint8_t *gpu;        /* buf is in a GPU, and this is what is there */
};
struct side {
	rpw_context *c;
	rpw_listener *l;
	rpw_endpoint *ep[EPS_MAX];
	uint8_t *region[REGIONS]; /* each with guards around it */
	rpw_memory *memory[REGIONS];
	/* that a peer may put into and get from; NULL: this side knows no GPU */
	uint8_t *gpu_region;
	rpw_memory *gpu_memory[2]; /* the operations' buffers, gpu_region */
	rpw_rkey *key[KEYS_MAX];
	unsigned keys;
	rpw_loaned loan[LOANS_MAX];
	rpw_view view[LOANS_MAX];
};
extern struct fuzz_run {
	struct fuzz_input in;
	struct side side[2]; /* 0 connects, 1 listens */
	struct op op[OPS_MAX];
} run;

/* msg_fuzz.c */
/* Small numbers mostly, and the ones that programs trip over. */
uint64_t fuzz_some_number(void);
size_t fuzz_some_len(void);
rpw_endpoint *fuzz_some_ep(const struct side *s);

/* msg_frames.c: into whatever side `to` has under way. */
void fuzz_inject(unsigned to);
void fuzz_say(bool to_listener);

#endif
