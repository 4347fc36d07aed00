/* SPDX-License-Identifier: BSD-3-Clause */
/* tran.h - what a transport is: a reliable, ordered channel of frames between two endpoints, and
 * access to the peer's registered memory. One table of operations, one conformance suite for all
 * (tests/tran). msg/ sees nothing else of a transport; a transport sees nothing of msg/ but struct
 * tran_up.
 *
 * Threads: a transport belongs to one context, and is used by one thread at a time. Up-calls come
 * from inside `progress` (and, where said, from inside other calls); from inside an up-call
 * everything may be called but `progress`, `close` and `ep_close` of the endpoint that it is about.
 * Nothing here waits for the peer or for a device, but mem->del: what still moves bytes of that
 * memory is told to let go, and memory is given back only when it has (at most two seconds).
 */
#ifndef ROPEWAY_TRAN_H
#define ROPEWAY_TRAN_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/error.h"
#include "ropeway.h"

struct tran;
struct tran_ep;
struct emulated;
struct emulated_ep;
struct emulated_move;

enum {
	TRAN_HANDLE_MAX = 4096, /* what ep_make may give */
	TRAN_SECRET_LEN = 32,   /* what the two ends of an endpoint with a key have in common */
	TRAN_DESC_MAX = 64,     /* how a piece of memory is described to peers */
	TRAN_HEAD_MAX = 320,    /* a frame's head: msg's header, and an active message's */
	/* a head whose first byte is at least this is the emulation's (tran/emulate.h); nobody else
	 * sends such */
	TRAN_OWN_HEADS = 0x80,
};

/* What the two sides know of each other before a path is chosen: from boot's hello. */
struct tran_facts {
	/* equal on both sides: the same host (boot ID and network and PID namespaces) */
	uint8_t host_id[16];
	uint32_t pid, uid;
	char hostname[64];
	char address[64];    /* the peer's as boot sees it, numeric, without port; "" for our own */
	char transports[64]; /* "shm,verbs,tcp": what that side can */
	char rdma_devices[256]; /* our own only, the peer is not told: what verbs may use; "" all */
	/* our own only, too: what follows "ncclnet:" in the list of transports that was asked
	 * for */
	char plugin[256];
	/* our own only: bytes written into memory here are seen while it is filled; all of it by
	 * rpwi_copy_up (base/copy.h), nothing by the kernel */
	bool polled;
};

/* What the control connection of an endpoint says about the path that it is to have. */
struct tran_control {
	const struct tran_facts *peer;
	bool active; /* this side connected */
	/* own address, numeric, where the peer came to it and others of this host are not to be
	 * listened at; NULL or "": all may be */
	const char *local;
	/* TRAN_SECRET_LEN bytes that both ends of the control connection have, and nobody else:
	 * nothing may go in the clear. NULL: without a key */
	const uint8_t *secret;
};

/* Up-calls. `user` is what ep_make was given. All are set. */
struct tran_up {
	/* The endpoint can carry frames (NULL), or cannot be brought up: then it is of no more use
	 * but to be closed. */
	void (*ready)(void *user, const struct rpwi_error *e);
	/* A frame came, whole; both pieces are valid during the call. False: it had to be kept,
	 * since nobody waits for it yet. A transport whose peer can wait leaves the rest for the
	 * next round, so that receives can be posted first. */
	bool (*frame)(
		void *user, const void *head, size_t head_len, const void *body, size_t body_len);
	/* A long frame (limits.placed_max) begins to come: where does its body go? Written until
	 * `frame` is called with it as the body (NULL: it is not mapped), the path breaks, or
	 * ep_close. NULL: nowhere yet, the transport keeps it. TRAN_PLACE_LATER: nowhere yet, and
	 * the peer waits for nothing that this side says: the transport may leave it, and frames
	 * behind it, where they are for a while, and ask again. NULL itself where nobody has a
	 * place. */
	void *(*place)(void *user, const void *head, size_t head_len, size_t body_len);
	/* After RPWI_LATER from send: there is room again. */
	void (*room)(void *user);
	/* A get, put, atomic or flush is done (NULL), or has failed. */
	void (*done)(void *user, void *cookie, const struct rpwi_error *e);
	/* The path broke: no further up-calls for it; pending operations are not reported one by
	 * one. RPW_ERR_PEER_GONE when the peer's process is known to have ended. */
	void (*failed)(void *user, const struct rpwi_error *e);
	/* An epoll set for the transport's descriptors, in which others have some, too: TRAN_MARK
	 * of data.u64 tells them apart. NULL, or left aside: it has a set of its own. */
	const int *set;
};
#define TRAN_PLACE_LATER ((void *)1)
enum { TRAN_MARK = 1 }; /* set: the transport's; nobody else has it set */

enum tran_caps {
	TRAN_SAME_HOST = 1, /* works between processes of one host only */
	/* the path can be lost while both processes live: msg keeps what is not acknowledged */
	TRAN_CAN_BREAK = 2,
	TRAN_MAPS = 4, /* has mem->alloc */
	/* only where it is asked for, and the list says "name:" and what of it
	 * (tran_facts.plugin) */
	TRAN_BY_NAME = 8,
	/* with a secret nobody between the two can read or change what goes over it */
	TRAN_SEALS = 32,
	/* it does not leave the host, where the kernel lets only this user at it */
	TRAN_GUARDED = 64,
	/* close may be called in a forked child, with endpoints and memory still there: what the
	 * child has of it goes, peers and parent see nothing */
	TRAN_INHERITED = 128,
	/* has mem->add_gpu: there may be devices that reach the memory of a GPU by themselves */
	TRAN_GPU = 16,
};

struct tran_limits {
	size_t frame_max; /* body bytes that one send takes */
	/* above it, the receiver fetching (get) is faster: measured */
	size_t eager_max;
	/* a frame's body may have so many bytes, more than frame_max, where `eager` says so for
	 * now: its place is asked for when it begins to come (up->place), so that it is copied no
	 * oftener than what is fetched, a round trip sooner; 0: none. Frames behind it wait for all
	 * of it */
	size_t placed_max;
	/* only if at most so many requests are under way, itself one of them: its receive may not
	 * be posted yet, and a frame kept for it is copied twice. Not where memory is polled, and
	 * who sends makes progress, too (else what is fetched is the other thread's work) */
	unsigned placed_under_way;
	/* from here on, the sender putting where the receiver says is faster still; 0: nowhere */
	size_t put_min;
	size_t bulk_min,
		/* with `bulk`: from here on it is better than frames; and of one message that this
		 * side asks for, at most TRAN_BULK_LEN_MAX */
		bulk_max;
};

enum tran_access { TRAN_READ = 1, TRAN_WRITE = 2, TRAN_ATOMIC = 4 };

/* Memory of a GPU: by its address (peer memory), or by a dma-buf that has it from `offset` on. */
struct tran_gpu_memory {
	void *addr;
	size_t len;
	int dmabuf; /* -1: by its address. The descriptor is needed during the call only */
	uint64_t offset;
};

struct tran_mem; /* registered memory; `desc` is what peers need, opaque to all but the transport */
struct tran_desc {
	uint8_t len, bytes[TRAN_DESC_MAX - 1];
};

enum tran_atomic { TRAN_FETCH_ADD, TRAN_COMPARE_SWAP };
/* On an aligned word of this process; its former value. */
static inline uint64_t tran_atomic_here(
	uint64_t *word, enum tran_atomic op, uint64_t operand, uint64_t compare)
{
	if (op == TRAN_FETCH_ADD)
		return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(
		word, &compare, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare;
}

/* Registered memory of this process. Those that give an int: 0 or an error (base/error.h). */
struct tran_mem_ops {
	/* The program's memory. */
	int (*add)(struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out);
	/* With TRAN_MAPS, else NULL: memory that peers of this host may map; the transport's, until
	 * `del`. */
	int (*alloc)(struct tran *t, size_t len, unsigned access, struct tran_mem **out);
	/* With TRAN_GPU, else NULL: as add. Every device that an endpoint may get reaches it, or it
	 * is refused (the error says what is missing). What lies in memory that was added before,
	 * and is `kept`, with the rights that are wanted costs nothing. No byte of it is touched by
	 * the processor, provided that `mem` says so where it is the local side of a transfer. */
	int (*add_gpu)(struct tran *t, const struct tran_gpu_memory *what, unsigned access,
		struct tran_mem **out);
	void (*del)(struct tran *t, struct tran_mem *m);
};

/* Access to the peer's registered memory. 0, RPWI_LATER, or an error (base/error.h):
 * RPW_ERR_PEER_GONE where the path has failed, of which up->failed tells. `cookie` comes back in
 * up->done, also from inside. */
struct tran_rma_ops {
	/* [offset, offset+len) of the peer's memory to or from ours; checked by the peer's side (or
	 * the kernel) against what was registered: RPW_ERR_ACCESS. mem: registered memory that has
	 * the local side in it and outlives the transfer, or NULL. Unordered among each other and
	 * towards frames, until flush. */
	int (*transfer)(struct tran_ep *ep, bool is_put, const struct tran_desc *remote,
		uint64_t offset, void *local, size_t len, const struct tran_mem *mem, void *cookie);
	int (*atomic)(struct tran_ep *ep, enum tran_atomic op, const struct tran_desc *remote,
		uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before,
		void *cookie);
	/* up->done(cookie) when all puts and atomics before it have taken effect at the peer. */
	int (*flush)(struct tran_ep *ep, void *cookie);
};

/* Registered memory, for a transport that wants to know what it moves beforehand: what it keeps for
 * it. */
struct tran_home {
	void *addr;
	size_t len;
	struct rpwi_list regs;
};

/* What a transport that cannot reach its peer's memory offers for `mem` and `rma` to be emulated
 * (tran/emulate.h): bytes that go by themselves, past the frames, straight from and into their
 * places. The frames say what they are. At most TRAN_BULK_MOST are under way on an endpoint each
 * way. */
struct tran_bulk;
enum { TRAN_BULK_MOST = 48, TRAN_BULK_LEN_MAX = 1 << 20 };
struct tran_bulk_ops {
	/* One message, not begun: of buf, or into it. home: the registered memory that buf lies in,
	 * which may be unmapped by now; or NULL: buf is of an operation under way. buf NULL:
	 * incoming bytes are thrown away. `cookie` comes back in emulate_moved. */
	int (*make)(struct tran_ep *ep, bool sends, void *buf, size_t len, struct tran_home *home,
		void *cookie, struct tran_bulk **out);
	/* It moves, as soon as the peer's of the same id does, whichever was first. */
	void (*go)(struct tran_bulk *b, uint32_t id);
	/* Its memory is not touched any more when this returns; it still ends, RPW_ERR_ACCESS on
	 * both sides. May wait for a device, two seconds at most. */
	void (*cut)(struct tran_bulk *b);
	/* It never went, or the peer has said that its own never will: gone, without a word. */
	void (*drop)(struct tran_bulk *b);
	/* What is kept for it goes; nothing of it is under way. NULL: nothing is. */
	void (*release)(struct tran *t, struct tran_home *home);
};

/* What a transport that reaches its peer's memory by itself, but not always, offers for `rma` to be
 * emulated the rest of the time. Its registered memory is its own (`mem`), and stays mapped. */
enum { TRAN_ASK = 2 };
struct tran_reach_ops {
	/* A transfer or an atomic, as far as one call may go; up->done from inside, or
	 * emulate_begin. `m` has no place yet: that is for the transport to read. */
	int (*begin)(struct tran_ep *ep, struct emulated_move *m, const struct tran_desc *remote,
		uint64_t offset);
	/* A place in memory of this side's, for a peer that wants this access; NULL: it may not. */
	uint8_t *(*own)(struct tran *t, uint32_t slot, uint64_t key, uint64_t offset, uint64_t len,
		unsigned access);
	/* One frame of the emulation's: 0, an error, or RPWI_LATER: emulate_room follows. */
	int (*send)(struct tran_ep *ep, const void *head, size_t head_len, const void *body,
		size_t len);
	/* So many bytes of a transfer of `len` go into one frame. */
	size_t (*piece)(size_t len);
	/* Moves the next bytes. 0, with how many; RPWI_LATER; TRAN_ASK: the peer is to be asked for
	 * the rest; or an error. */
	int (*step)(struct tran_ep *ep, const struct emulated_move *m, size_t *moved);
};

/* Memory of one endpoint that its peer sees, in slots of one size (docs/decisions/loans.md). The
 * owner's side; the peer finds it by the first two. */
struct tran_pool {
	uint32_t id, generation;
	uint32_t slots;
	size_t slot_bytes; /* a multiple of TRAN_LOAN_ALIGN */
	uint8_t *data;
	/* for each slot the number of the loan that the peer has given back last. The peer writes
	 * what it likes, whenever it likes */
	const _Atomic uint64_t *returned;
};
/* A pool of the peer's, as this side sees it: mapped until the last reference is gone, whatever
 * becomes of the endpoint, the transport, and the peer. */
struct tran_seen {
	unsigned refs;
	uint32_t generation, slots;
	size_t slot_bytes;
	bool writable;
	uint8_t *data; /* NULL: it could not be mapped */
	_Atomic uint64_t *returned;
};
enum { TRAN_LOAN_ALIGN = 64 };
/* Of one endpoint, in all its pools: what a peer may make this side map, in addresses. */
#define TRAN_LOAN_BYTES_MAX ((size_t)1 << 36)
struct tran_loan_ops {
	/* A pool of at least one slot, which the peer is shown before any frame that follows. 0, an
	 * error, or RPWI_LATER: the peer has to make progress first. */
	int (*make)(struct tran_ep *ep, size_t slot_bytes, uint32_t slots, bool writable,
		struct tran_pool **out);
	/* Its memory goes here; what the peer has mapped stays there. ep NULL: it was closed. */
	void (*end)(struct tran_ep *ep, struct tran_pool *p);
	/* The peer's pool of that name; whoever keeps it takes a reference. RPW_ERR_PROTOCOL: it
	 * has shown none; RPW_ERR_NO_MEMORY: it could not be mapped. */
	int (*find)(struct tran_ep *ep, uint32_t id, uint32_t generation, struct tran_seen **out);
	/* The last reference is gone. Needs no transport. */
	void (*forget)(struct tran_seen *s);
};

/* The transport and its endpoints. Those that give an int: 0 or an error (base/error.h). */
struct tran_ops {
	const char *name; /* "shm" */
	unsigned caps;
	/* Can it be used here at all, and between these two? 0; 1: yes, but by software that
	 * imitates a device, so the automatic choice takes it last; or enum rpw_status with `why`
	 * filled (a sentence): no error, but an answer. Side-effect free. peer NULL: here at
	 * all. */
	int (*usable)(const struct tran_facts *own, const struct tran_facts *peer, char *why,
		size_t why_len);
	int (*open)(const struct tran_up *up, const struct tran_facts *own, struct tran **out);
	void (*close)(struct tran *t); /* all its endpoints and memory have been given back */
	/* Deliver what has come, send what waits. How many things happened. */
	unsigned (*progress)(struct tran *t);
	/* Before sleeping: 0 with *fd a descriptor (the same each time; *up->set, if it is there)
	 * that becomes readable when progress has something to do; 1: there is something already.
	 * *deadline_ns (CLOCK_MONOTONIC) may be lowered; a transport that has no descriptor leaves
	 * *fd alone, and does all by that. */
	int (*arm)(struct tran *t, int *fd, uint64_t *deadline_ns);
	/* An endpoint, and the handle that the peer's ep_start needs: at most TRAN_HANDLE_MAX
	 * bytes, versioned, checked by whoever gets it. */
	int (*ep_make)(struct tran *t, const struct tran_control *control, void *user,
		struct tran_ep **out, uint8_t *handle, size_t *handle_len);
	/* With the peer's handle (hostile until checked). up->ready follows, at the latest after
	 * timeout_ms; may come from inside. */
	int (*ep_start)(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms);
	/* No up-calls any more. Operations under way end; memory of theirs is not touched after
	 * this returns. */
	void (*ep_close)(struct tran_ep *ep);
	/* NULL: always. Is a frame better now than a message that the receiver fetches, for one of
	 * `len` bytes, at most limits.eager_max, or placed_max? They are at `buf`; NULL: in several
	 * places. Asked once for each such message. */
	bool (*eager)(struct tran_ep *ep, const void *buf, size_t len);
	/* One frame: taken whole and copied (0), or not at all (RPWI_LATER: up->room follows).
	 * head_len <= TRAN_HEAD_MAX, body <= limits.frame_max, or placed_max. In order with all
	 * frames before it. */
	int (*send)(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
		int iovcnt, size_t body_len);
	/* Several frames come now: those that stay (tran_ep) may go in one write, at the latest
	 * when it ends. NULL: that is of no use. */
	void (*gather)(struct tran_ep *ep, bool begins);
	/* After an endpoint to that peer did not come up: will the next one be made otherwise (with
	 * a smaller MTU), so that it may? Says so once. NULL: never. */
	bool (*again)(struct tran *t, const struct tran_facts *peer);
	/* Has it taken frames that wait here to go together? `progress` sends them. NULL: never. */
	bool (*unsent)(const struct tran *t);
	const struct tran_mem_ops *mem;
	const struct tran_rma_ops *rma;
	const struct tran_loan_ops *loan; /* NULL: the peer can see no memory of this side's */
	/* Where these two are the emulation's: */
	const struct tran_bulk_ops *bulk;   /* NULL: all goes in frames */
	const struct tran_reach_ops *reach; /* NULL: the peer is always asked */
	/* the peer did what it must not: the endpoint fails, at the end of progress */
	void (*breach)(struct tran_ep *ep, const struct rpwi_error *e);
};

/* Each transport embeds these at the beginning of its own structs. */
struct tran {
	const struct tran_ops *ops;
	const struct tran_up *up;
	bool polled; /* of tran_facts */
	struct emulated *emulated;
};
struct tran_ep {
	char path[192]; /* for people: "4 streams to 10.0.0.2", "rpw_eth0, GID 1 ..., MTU 1024" */
	/* By who sends, for one `send`: so many frames before it are not acknowledged, and its body
	 * stays as it is at least until `gather` ends. */
	unsigned under_way;
	bool stays;
	bool closed; /* of a transport that is emulated for: nothing more is asked for */
	struct tran_limits limits;
	/* a line of a core's cache, with the first of what follows in a transport's own */
	struct emulated_ep *emulated;
	struct tran *tran;
	void *user;
};
_Static_assert(offsetof(struct tran_ep, emulated) == 256, "a line of a core's cache");
struct tran_mem {
	void *addr;
	size_t len;
	unsigned access;
	/* the program's: set by who added it. It outlives all that uses it, and may serve as the
	 * local side of any operation */
	bool kept;
	struct tran_desc desc;
};

/* The sentences that all have. */
static inline int tran_no_memory(const struct tran *t, const char *what)
{
	return rpwi_fail(RPW_ERR_NO_MEMORY, "%s: no memory for %s", t->ops->name, what);
}
static inline int tran_path_over(const struct tran_ep *ep)
{
	return rpwi_fail(RPW_ERR_PEER_GONE, "%s: the path has ended", ep->tran->ops->name);
}

/* Names with commas between them: "shm,tcp" has "tcp". */
static inline bool tran_lists(const char *list, const char *name)
{
	size_t len = strlen(name);
	for (const char *p = list; *p;) {
		size_t n = strcspn(p, ",");
		if (n == len && !memcmp(p, name, n))
			return true;
		p += n + (p[n] ? 1 : 0);
	}
	return false;
}

extern const struct tran_ops tran_shm, tran_tcp, tran_verbs, tran_ncclnet;
/* All of them, in order of preference; ends with NULL. */
extern const struct tran_ops *const tran_all[];

#endif
