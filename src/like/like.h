/* SPDX-License-Identifier: BSD-3-Clause */
/* like.h - profiles: which limits and capabilities of the device programs see, as data. `ropeway
 * run --like NAME|FILE` sets ROPEWAY_LIKE; docs/like.md has the format. A profile only narrows: of
 * each value the smaller one holds, of each set what both have.
 *
 * Nothing is enforced here: the code that answers a call asks for the number. The data path's
 * limits are copied into each QP when it is made.
 *
 * Threads: any, signal handlers too. The profile is read when it is first asked for, and stays.
 */
#ifndef ROPEWAY_LIKE_LIKE_H
#define ROPEWAY_LIKE_LIKE_H

#include "base/base.h"

enum rpwi_like_key {
	/* of one device in one process */
	RPWI_LIKE_MAX_QP,
	RPWI_LIKE_MAX_CQ,
	RPWI_LIKE_MAX_MR,
	RPWI_LIKE_MAX_PD,
	RPWI_LIKE_MAX_MW,
	RPWI_LIKE_MAX_AH,
	RPWI_LIKE_MAX_SRQ,
	/* of one object */
	RPWI_LIKE_MAX_QP_WR,
	RPWI_LIKE_MAX_SGE,
	RPWI_LIKE_MAX_SGE_RD,
	RPWI_LIKE_MAX_INLINE_DATA,
	RPWI_LIKE_MAX_QP_RD_ATOM,
	RPWI_LIKE_MAX_QP_INIT_RD_ATOM,
	RPWI_LIKE_MAX_RES_RD_ATOM,
	RPWI_LIKE_MAX_CQE,
	RPWI_LIKE_MAX_MR_SIZE,
	RPWI_LIKE_MAX_SRQ_WR,
	RPWI_LIKE_MAX_SRQ_SGE,
	RPWI_LIKE_MAX_MCAST_GRP,
	RPWI_LIKE_MAX_MCAST_QP_ATTACH,
	RPWI_LIKE_MAX_TOTAL_MCAST_QP_ATTACH,
	RPWI_LIKE_MAX_PKEYS,
	/* of the port */
	RPWI_LIKE_MAX_MTU,
	RPWI_LIKE_MAX_MSG_SZ,
	RPWI_LIKE_MAX_SEND_SZ,
	RPWI_LIKE_GID_TBL_LEN,
	RPWI_LIKE_GID_FIRST,
	RPWI_LIKE_GID_STEP,
	/* what there is */
	RPWI_LIKE_ATOMIC_CAP,
	RPWI_LIKE_TRANSPORTS,
	RPWI_LIKE_DEVICE_CAP_FLAGS,
	RPWI_LIKE_ODP_GENERAL,
	RPWI_LIKE_ODP_RC,
	RPWI_LIKE_ODP_UC,
	RPWI_LIKE_ODP_UD,
	RPWI_LIKE_OPTIONAL,
	RPWI_LIKE_SEND_SLOTS,
	RPWI_LIKE_KEYS
};

/* Of RPWI_LIKE_DEVICE_CAP_FLAGS, newer than the headers of rdma-core 44:
 * IB_UVERBS_DEVICE_ATOMIC_WRITE */
#define RPWI_LIKE_ATOMIC_WRITE (1ull << 40)
/* Of RPWI_LIKE_OPTIONAL: calls that many devices do not have. */
enum rpwi_like_optional {
	RPWI_LIKE_DOMAINS = 1,         /* thread and parent domains */
	RPWI_LIKE_NULL_MR = 1 << 1,    /* ibv_alloc_null_mr */
	RPWI_LIKE_REREG_MR = 1 << 2,   /* ibv_rereg_mr */
	RPWI_LIKE_ZERO_BASED = 1 << 3, /* IBV_ACCESS_ZERO_BASED of a region */
	RPWI_LIKE_MODERATION = 1 << 4, /* ibv_modify_cq */
	RPWI_LIKE_TIMESTAMPS = 1 << 5, /* of completions, and the device's clock */
	RPWI_LIKE_IMPORT = 1 << 6,     /* ibv_import_device and what goes with it */
	RPWI_LIKE_COUNTERS = 1 << 7,   /* ibv_create_comp_cntr */
};

/* Of RPWI_LIKE_SEND_SLOTS: when a slot of a send queue is free again. */
enum rpwi_like_slots {
	RPWI_LIKE_SLOTS_POLL,       /* a completion of it, or of one behind it, was polled */
	RPWI_LIKE_SLOTS_COMPLETION, /* its request is done */
};

enum { RPWI_LIKE_NAME_MAX = 64, RPWI_LIKE_FILE_MAX = 1 << 14 };
struct rpwi_like {
	char name[RPWI_LIKE_NAME_MAX]; /* the profile's, or the file's; empty: there is none */
	char about[128];               /* what it is of, in a few words */
	uint64_t given;                /* bits by key: those that the profile names */
	uint64_t said[RPWI_LIKE_KEYS]; /* what it says */
	uint64_t has[RPWI_LIKE_KEYS];  /* what holds */
	char wrong[2 * RPWI_WHY_LEN];  /* why it cannot be read; then there is none */
};
_Static_assert(RPWI_LIKE_KEYS <= 64, "a bit for each key");

/* ---- load.c ---- */
/* This process's, of ROPEWAY_LIKE. Never NULL; where it is unset or wrong, the whole device. */
const struct rpwi_like *rpwi_like(void);
static inline uint64_t rpwi_like_most(enum rpwi_like_key key) { return rpwi_like()->has[key]; }
static inline bool rpwi_like_has(enum rpwi_like_key set, uint64_t bits)
{
	return (rpwi_like()->has[set] & bits) == bits;
}
/* Is that more than the device has? Then the log says so, at level info. */
bool rpwi_like_beyond(enum rpwi_like_key key, uint64_t asked);
/* A profile by its name, or of a file. 0, or -errno and why. */
int rpwi_like_read(const char *name, struct rpwi_like *out, char *why, size_t why_len);
/* The names of the profiles that are built in, up to a NULL; and is it one of them? */
extern const char *const rpwi_like_names[];
bool rpwi_like_is_name(const char *name);

/* ---- parse.c ---- */
/* `len` bytes of text; the error begins with "LINE:COLUMN: ". 0 or -EINVAL, and *out as it was. */
int rpwi_like_parse(const char *text, size_t len, struct rpwi_like *out, char *why, size_t why_len);

/* ---- keys.c ---- */
const char *rpwi_like_key_name(enum rpwi_like_key key);
/* What `said` has beyond `has`, in words; false: nothing. */
bool rpwi_like_more(const struct rpwi_like *l, enum rpwi_like_key key, char *out, size_t len);
/* The whole device. */
extern const struct rpwi_like rpwi_like_whole;

#endif
