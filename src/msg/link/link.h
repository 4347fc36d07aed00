/* SPDX-License-Identifier: BSD-3-Clause */
/* link.h - the frames of one endpoint, over the paths that it has one after the other: counted,
 * paid for, acknowledged, kept until acknowledged where a path may break, sent again on the next
 * one.
 *
 * Exactly once, in order: both sides count the frames of each direction. The sender on a path that
 * may break keeps each counted frame until the peer has said that it came (16 bits in every head,
 * or in a CREDIT). When the path has broken, both sides tell each other over the control path how
 * many have come, and the sender goes on with the first that has not (link_resume).
 *
 * A link knows frames and not what is in them: no requests, no endpoints, no control path. It makes
 * no system call, reads no clock and has no thread; what it needs from its owner is in struct
 * link_up. The tests drive two of them against each other (tests/msg/sim/link_sim.c).
 *
 * Threads: those of the context that owns it, one at a time. Up-calls may call everything here. */
#ifndef ROPEWAY_MSG_LINK_H
#define ROPEWAY_MSG_LINK_H

#include "base/base.h"
#include "msg/wire.h"
#include "tran/tran.h"

enum {
	/* Of memory for unexpected messages, in which senders pay. */
	UNIT_BYTES = 64,
	/* Units that an endpoint may have waiting: at first (16 KiB), at least (any RTS fits), at
	 * most (4 MiB). */
	WINDOW_FIRST = 256,
	WINDOW_LEAST = 32,
	WINDOW_MOST = 64 * 1024,
	/* A path that may break: bodies up to here are copied, longer ones stay with their owner
	 * until acknowledged. */
	LOG_COPY_MAX = 4096,
	/* Unacknowledged copies and frames of one link; beyond it sends wait. The frames stay well
	 * below 2^16, the modulus of acknowledgements. */
	LOG_BYTES_MAX = 4 << 20,
	LOG_FRAMES_MAX = 16384,
	/* The receiver acknowledges at the latest after so many frames or bytes. Fewer frames with
	 * many links, so that what all peers keep for each other stays in their caches. */
	ACK_FRAMES = 64,
	ACK_FRAMES_LEAST = 8,
	ACK_FRAMES_ALL = 4096,
	ACK_BYTES = 256 * 1024,
	/* Owed to a peer that does not take them; then it is in breach. */
	REPLIES_MAX = 8192,
	REPLY_BODY_MAX = 44,
	/* Of a head, beyond struct frame_head. */
	LINK_EXTRA_MAX = TRAN_HEAD_MAX - sizeof(struct frame_head),
};

struct link;
struct link_chunk;
struct link_kept;

/* In what owns the body of a frame: from a send that kept it until `delivered`, link_forget or
 * link_end. Zero: nothing is kept. */
struct link_keep {
	struct link_kept *in;
};

/* A body that is to be sent again. */
struct link_body {
	struct iovec iov;
	void *flat; /* allocated, if iov had to be gathered: the link frees it */
	uint8_t made[RTS_BODY_MAX];
};

/* What a link asks of its owner. */
struct link_up {
	/* n bytes from `at` on of the body that k keeps. False: no memory. */
	bool (*body)(struct link_keep *k, size_t at, size_t n, struct link_body *out);
	/* A body that is made anew for each path, whole. */
	void (*anew)(struct link_keep *k, struct link_body *out);
	/* The peer has it: the buffer is its owner's again. */
	void (*delivered)(struct link_keep *k);
	/* There is something to send, or room for what waits: call link_resend and link_work
	 * soon. */
	void (*work)(struct link *l);
	/* The path took no frame (the last error says why): it is of no use any more. */
	void (*lost)(struct link *l);
	/* The peer did what it must not (a sentence without its name), or there is no memory to go
	 * on. */
	void (*breach)(struct link *l, const char *what);
	void (*no_memory)(struct link *l, const char *what);
};

/* What the links of one context share. */
struct link_group {
	const struct link_up *up;
	unsigned links;
	uint32_t pool,
		pool_free; /* units of unexpected memory: in all, and not granted to a link yet */
	uint64_t waited_for_room;
	struct rpwi_list *spare;   /* kept frames that are free */
	struct link_chunk *chunks; /* where they are */
	/* links that owe an acknowledgement which a request of the peer's waits for */
	struct rpwi_list late;
};

/* Three lines of a core's cache, which its owner has to align: what each message touches, what each
 * counted frame does, and what its sender looks at. With a thousand links they are what counts. */
struct link {
	/* The path; NULL before the first. */
	const struct tran_ops *ops;
	struct tran_ep *te;
	/* A small frame may go straight to ops->send: open, nothing waits, the path cannot break,
	 * and the owner knows nothing against it. Set by the owner, cleared here and there. */
	bool fast;
	bool open; /* frames may be sent: from link_open to link_close */
	bool breakable;
	bool head_owed, need_said, ended;
	/* Units: charged, and granted by the peer. */
	uint32_t tx_used, tx_limit;
	/* By the peer; granted; said to be granted. */
	uint32_t rx_used, rx_limit, rx_told;
	uint32_t window, needed; /* needed: the peer waits for so many */
	uint32_t unacked_bytes;
	struct link_group *group;

	uint64_t tx_count, rx_count; /* counted frames */
	uint64_t acked;              /* of ours, by the peer */
	uint64_t ack_said;           /* of theirs, by us */
	struct rpwi_list log;
	uint32_t log_bytes, log_frames;
	struct {
		uint8_t *p;
		size_t len;
	} parts; /* of a body, from the peer */

	struct rpwi_list *resending; /* the next of log to be sent again, */
	/* The owner's, of what it has not begun to send: here it is only looked at whether it is
	 * empty. */
	struct rpwi_list queue;
	struct rpwi_list replies, late;
	size_t resent; /* of the body of what is sent again so much has gone in parts */
	size_t log_kept, reply_count;
};
_Static_assert(offsetof(struct link, tx_count) == 64 && offsetof(struct link, parts.len) == 128,
	"lines of a core's cache");

/* A frame to be sent. `extra` follows the head: at most LINK_EXTRA_MAX bytes. */
struct frame {
	uint8_t type, flags;
	uint64_t tag;
	const void *extra;
	size_t extra_len;
	const struct iovec *iov;
	int iovcnt;
	size_t len; /* of all of iov */
	/* Whose body it is. On a path that may break a body of more than LOG_COPY_MAX bytes is not
	 * copied but asked of `keep` again, and one that is made anew for each path always is.
	 * NULL: copied. */
	struct link_keep *keep;
	bool anew;
	bool stays; /* iov is where `keep` has it, not a copy for this call */
	/* Of the peer's credit: charged when it goes. Whether there is so much, its sender asks
	 * before. */
	uint32_t units;
};

void link_init(struct link *l, struct link_group *group);
/* No link of it is left. */
void link_group_fini(struct link_group *group);
/* Nothing goes or comes any more: frames kept and owed are dropped, without up-calls. */
void link_end(struct link *l);
/* After link_end: it leaves its group, with what it was granted. */
void link_fini(struct link *l);

/* ops and te are set: frames go over them. */
static inline void link_open(struct link *l) { l->open = true; }
/* The path is of no use any more; unacknowledged frames are kept. */
void link_close(struct link *l);
/* After link_open of a further path: the peer has so many of our frames, the others go again. */
void link_resume(struct link *l, uint64_t peer_received);

/* 0; RPWI_LATER: later (`work` is called); RPW_ERR_NO_MEMORY. */
int link_send(struct link *l, const struct frame *f);
/* An answer, which does not wait for room in any queue of the owner's: sent now, or kept in a queue
 * of its own. At most REPLY_BODY_MAX bytes. */
void link_reply(
	struct link *l, unsigned type, unsigned flags, uint64_t tag, const void *body, size_t len);
/* A frame for the sake of its head, with what has come and what may be sent: now, or with the next
 * work. need: so many units are waited for. */
void link_say(struct link *l, uint32_t need);
/* The owner of a kept body has no use for it any more: a frame sent again is empty. */
void link_forget(struct link_keep *k);

/* What has to go before anything else of a further path: false, later. */
bool link_resend(struct link *l);
/* What the link itself has to say, and the answers: false when some of them wait. */
bool link_work(struct link *l);

/* The peer has so many of our frames. */
void link_acknowledged(struct link *l, uint64_t count);
void link_ack_now(struct link *l); /* if anything came that was not reported to the peer */
int link_late_acks(
	struct link_group *group); /* those that no frame has carried meanwhile: how many */

/* A head, and a body of len bytes, has come. False: a breach. */
bool link_took_acknowledged(struct link *l, const struct frame_head *h, size_t len);
static inline bool frame_is_counted(unsigned type) { return type <= FRAME_COUNTED_LAST; }
static inline __attribute__((always_inline)) bool link_took(
	struct link *l, const struct frame_head *h, unsigned type, size_t len)
{
	if (frame_is_counted(type))
		l->rx_count++;
	if ((int32_t)(h->credit - l->tx_limit) > 0) {
		l->tx_limit = h->credit;
		l->need_said = false;
		if (RPWI_UNLIKELY(!rpwi_list_empty(&l->queue)))
			l->group->up->work(l);
	}
	return !l->breakable || link_took_acknowledged(l, h, len);
}
/* The link's own frames: PART and CREDIT. */
void link_part(struct link *l, const struct frame_head *h, const void *body, size_t len);
/* The frame whose first bytes came in parts: *body and *len become the whole. False: a breach.
 * Until link_parts_free the body stays. */
bool link_whole(struct link *l, const struct frame_head *h, const void **body, size_t *len);
void link_parts_free(struct link *l);

void link_breach(struct link *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* credit.c: flow control */
static inline uint32_t credit_units(size_t body_len)
{
	return 2 + (uint32_t)((body_len + UNIT_BYTES - 1) / UNIT_BYTES);
}
static inline bool credit_has(const struct link *l, uint32_t units)
{
	return (int32_t)(l->tx_limit - l->tx_used - units) >= 0;
}
bool credit_open(struct link *l); /* the first window; false: the pool has none left */
void credit_tell(struct link *l);
void credit_need(struct link *l, uint32_t units);
void credit_needed(struct link *l, uint64_t units);
void credit_overdrawn(struct link *l);
/* What came is charged. False: it was not granted. */
static inline bool credit_charge(struct link *l, uint32_t units)
{
	l->rx_used += units;
	if (RPWI_LIKELY((int32_t)(l->rx_limit - l->rx_used) >= 0))
		return true;
	credit_overdrawn(l);
	return false;
}
/* The memory of a frame is free again, or never was used. */
static inline void credit_return(struct link *l, uint32_t units)
{
	l->rx_limit += units;
	if (RPWI_UNLIKELY(l->rx_limit - l->rx_told >= l->window / 2 || l->needed))
		credit_tell(l);
}

#endif
