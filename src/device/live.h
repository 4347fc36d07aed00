/* SPDX-License-Identifier: BSD-3-Clause */
/* live.h - the verbs objects of this process that are made and not yet destroyed: all of them, by
 * kind, and by the address that the program has.
 *
 * Every verb but those of the data path asks here before it reads a byte of an object, so a program
 * that destroys something twice, or whose memory was overwritten, gets ENOENT as from a kernel,
 * which finds objects by number. The number (`handle`) and the context in the program's struct are
 * compared as well. An address that another object of the same kind has by now cannot be told from
 * its own.
 *
 * What the device says it has room for (ibv_query_device) is counted and kept here, too, for each
 * device. The HCA's lock is held.
 */
#ifndef ROPEWAY_DEVICE_LIVE_H
#define ROPEWAY_DEVICE_LIVE_H

#include <infiniband/verbs.h>

#include "base/base.h"

struct dev;

enum live_kind {
	LIVE_PD, /* imported ones and parent domains, too */
	LIVE_MR,
	LIVE_MW,
	LIVE_CQ,
	LIVE_SRQ,
	LIVE_QP,
	LIVE_AH,
	LIVE_CHANNEL,
	LIVE_COUNTER,
	LIVE_KINDS
};

/* A part of each object. */
struct live {
	struct rpwi_list link; /* all of its kind, the oldest first */
	struct live *next;     /* in its bucket */
	const void *object;    /* struct ibv_pd, ...: as the program knows it */
	const struct ibv_context *ctx;
	struct dev *dev;
	uint32_t handle;
	uint16_t place; /* where it was made (check/made.h), or 0 */
	uint8_t kind;   /* enum live_kind */
};

/* From now on it is one: its context is in the struct already, its handle is put there. 0, or
 * -ENOMEM: the device has as many as it says; -EOPNOTSUPP: it has none at all. */
int live_add(struct live *l, enum live_kind kind, void *object, uint32_t handle);
void live_del(struct live *l); /* nothing where it never became one */
/* Is it one, and are its number and its context what they were? Any address may be asked for. */
bool live_is(enum live_kind kind, const void *object);
/* May it be destroyed? 0; ENOENT: it is none; EBUSY: others use it, as *refs says. */
int live_may_go(enum live_kind kind, const void *object, const unsigned *refs);
/* For --check: the program gets EBUSY for it; the objects that use it are looked for. */
void live_tell_busy(enum live_kind kind, const void *object);
/* Its context is closed, and with it what was made in it, as the kernel has it. */
void live_context_gone(const struct ibv_context *ctx);
/* The kernel knows it by another number from now on (ibv_rereg_mr). */
void live_renumber(struct live *l, uint32_t handle);
/* The list of all of a kind, of `link`. */
struct rpwi_list *live_all(enum live_kind kind);

#endif
