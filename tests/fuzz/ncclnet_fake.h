/* SPDX-License-Identifier: BSD-3-Clause */
/* ncclnet_fake.h - a network plugin in the process, for ncclnet_fuzz.c: no sockets, no threads.
 * What arrives is brought by whoever drives it, sends are done when it says so, and calls are
 * refused when it says so. It ends the process where its host does what no host may: tests a
 * request twice, or another one than the oldest; uses what is closed; has more under way than is
 * safe; moves what is not registered.
 */
#ifndef ROPEWAY_NCCLNET_FAKE_H
#define ROPEWAY_NCCLNET_FAKE_H

#include "fuzz.h"
#include "tran/ncclnet/nt_priv.h"

enum {
	FAKE_COMMS = 128,
	FAKE_LISTENS = 64,
	FAKE_REGS = 1024,
	FAKE_REQUESTS = 16384,
	FAKE_RING = 2 * NT_REQUESTS,
	FAKE_LENS = 256
};

struct fake_comm;
struct fake_reg {
	bool live;
	struct fake_comm *comm;
	uint8_t *data;
	size_t len;
};
struct fake_request {
	struct fake_comm *comm;
	uint8_t *data;
	size_t len;
	int size;     /* what test will say */
	uint32_t sum; /* of what is being sent as a batch: it must not change */
	bool filled, told, consumed, flushes, poisoned;
};
struct fake_listen {
	bool live;
	int which;
	void *handle; /* where the host keeps it */
};
struct fake_comm {
	bool live, sends, bulk, left; /* left: a goodbye was sent */
	int broken;                   /* what the next call gives */
	bool told_broken;
	struct fake_listen *listen;
	unsigned moved; /* messages, of which the first is the hello */
	unsigned head, fill, tail, regs;
	/* head to tail are under way, up to fill they are there */
	struct fake_request *ring[FAKE_RING];
	struct fake_request *flush;
	/* of bulk data, as it was announced or sent; those beyond the first FAKE_LENS are not
	 * looked at */
	unsigned lens;
	size_t len[FAKE_LENS];
};
struct fake {
	struct fuzz_input *in;
	unsigned comms, listens, regs, requests, comms_live, listens_live, regs_live;
	int next_which;
	bool sends_wait, bulk_waits; /* until fake_sent, fake_bring */
	bool no_sizes;               /* test leaves them alone */
	/* of the next eight calls, those whose bit is set */
	uint8_t not_now, bad_posts, bad_regs, bad_listens, bad_consumed;
	uint8_t flush_tests; /* a flush is done at the so manieth test; 0: none is needed */
	struct fake_comm comm[FAKE_COMMS];
	struct fake_listen listen[FAKE_LISTENS];
	struct fake_reg reg[FAKE_REGS];
	struct fake_request request[FAKE_REQUESTS];
};
extern struct fake fake;
extern struct nt_load fake_load;

void fake_reset(struct fuzz_input *in, size_t chunk_max, bool force_flush);
/* The peer's message comes, into the oldest receive that waits; `size` is what test will say of it.
 * False: none waits. */
bool fake_bring(struct fake_comm *c, const uint8_t *bytes, size_t len, int size);
/* Bulk data, as much as is expected or as `size` says. */
void fake_bring_bulk(struct fake_comm *c, int size);
/* So many sends are done. */
void fake_sent(struct fake_comm *c, unsigned n);
/* A request that is under way, or a registration, has something of it. */
bool fake_uses(const void *data, size_t len);

/* The driver's: the hello that comes on a new comm. */
void fake_hello(struct fake_comm *c);
/* The driver's: a batch is sent. */
void fake_batch(struct fake_comm *c, const uint8_t *p, size_t len);
/* The driver's: may bulk data be read, or written, there? */
void fake_may(const uint8_t *data, size_t len, bool sends);

#endif
