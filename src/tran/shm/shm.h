/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.h - the shared-memory transport, private to src/tran/shm.
 *
 * A context has one link with each context that it has endpoints with: a segment of memory (memfd)
 * with a ring for each direction, and a Unix socket, over which the segment was passed and which
 * wakes a sleeper, passes descriptors of memory later, and ends when the peer does. All endpoints
 * between the two share them: an endpoint is a number in the cell. So an idle endpoint costs no
 * descriptor and no page, and a thousand of them poll as one.
 *
 * Files: ring.h one direction; link.c how links come to be, sockets, their end; ep.c endpoints and
 * frames; mem.c registered memory, own and the peers'; rma.c access to it; loan.c memory for
 * loans, own and the peers'; shm.c the context: open, progress, sleep.
 */
#ifndef ROPEWAY_TRAN_SHM_SHM_H
#define ROPEWAY_TRAN_SHM_SHM_H

#include <sys/mman.h>
#include <sys/types.h>

#include "base/born.h"
#include "base/slots.h"
#include "near/cost.h"
#include "near/memory.h"
#include "near/who.h"
#include "ring.h"
#include "tran/emulate.h"

enum {
	SHM_VERSION = 6,
	SHM_EPS_MAX = 1 << 20, /* the width of the field in the cell */
	SHM_MEMS_MAX = 256 * 1024,
	SHM_FRAME_MAX = RING_BODY_MAX,
	SHM_HINTS = 16, /* that wait for room; further ones are dropped */
	/* pieces of the peer's memory mapped, for each link; the least recently used goes */
	SHM_MAPS_MAX = 64,
	SHM_POOLS_MAX = 1024, /* of loans, of one endpoint */
	SHM_EMBRYOS_MAX = 64, /* connections that have not said a valid hello yet */
	SHM_EMBRYO_MS = 2000,
	SHM_POLL_BATCH = 64, /* frames taken from one link in one round */
	SHM_COLD_SLICE = 16, /* links without traffic that are looked at in one round */
	SHM_CONTROL_NS = 1000000,
	/* of transfers of up to SHM_SMALL_MAX: the second core starts early; measured */
	SHM_CHUNK_SMALL = 8 * 1024,
	SHM_SMALL_MAX = 128 * 1024,
	SHM_CHUNK = 32 * 1024,
	SHM_PUMP_BATCH = 4,         /* endpoints of one link that hear of room in one round */
	SHM_INLINE_COPY = 8 << 20,  /* up to here a plain copy is made inside of the call */
	SHM_INLINE_VM = 256 * 1024, /* likewise by process_vm */
	SHM_SAMPLED = 8 * 1024,     /* from here on it is measured which way is shorter */
	SHM_HUGE = 2 << 20,         /* allocated memory from here on asks for huge pages */
};

enum shm_kind {
	SHM_FRAME,
	SHM_OPEN,   /* index: the sender's endpoint; nonce: of the receiver's, from its handle */
	SHM_CLOSE,  /* index: the sender's endpoint. Nothing comes for the receiver's after it */
	SHM_REFUSE, /* the endpoint of your OPEN is not there */
	SHM_MEMORY, /* a frame of tran/emulate.h */
	SHM_MAP,    /* asks for the descriptor of memory: comes over the socket */
	SHM_UNMAP,
	SHM_KINDS,
};

/* The head of every frame but SHM_FRAME and SHM_MEMORY; it fits into a cell. */
struct shm_ctl {
	uint32_t index, zero;
	uint64_t nonce;
};
_Static_assert(sizeof(struct shm_ctl) <= RING_INLINE, "control frames are one cell");

struct shm_handle {
	uint32_t magic;
	uint16_t version, len;
	uint8_t context[16];
	uint32_t pid, endpoint;
	uint64_t nonce;
	uint64_t check; /* over what is before it: a garbled handle is told from a wrong one */
};

struct shm_desc {
	uint8_t version, zero;
	uint16_t check; /* of base: else a garbled one would be another good place */
	uint32_t index;
	uint64_t nonce;
	uint64_t base; /* where it begins in that registration */
	uint8_t context[16];
};
_Static_assert(sizeof(struct shm_desc) <= TRAN_DESC_MAX - 1, "fits");
static inline uint16_t shm_desc_check(uint64_t base)
{
	return (uint16_t)(base ^ base >> 16 ^ base >> 32 ^ base >> 48);
}

/* The page that each context shows to its peers, which can not write it (sealed): whether it
 * sleeps, and what it has registered. */
struct shm_entry {
	_Atomic uint64_t nonce; /* 0: none */
	_Atomic uint64_t addr, len;
	_Atomic uint32_t access; /* and SHM_MAPPABLE */
};
#define SHM_MAPPABLE 0x100u
struct shm_board {
	_Alignas(64) _Atomic uint32_t sleeping; /* not 0: sleeps, the how-manieth time */
	_Atomic uint32_t fence;  /* its kernel has no membarrier: senders must fence */
	_Atomic uint32_t polled; /* who writes into its memory does so upwards (base/copy.h) */
	_Alignas(64) _Atomic uint32_t beat; /* counts rounds of progress */
	_Atomic uint32_t company; /* who progresses it progresses other contexts in turn */
	/* the nonce of memory of a peer's that is accessed now without the peer's help, or 0 */
	_Alignas(64) _Atomic uint64_t touching;
	_Alignas(4096) struct shm_entry entries[SHM_MEMS_MAX];
};

struct shm_segment {
	struct ring_shared shared[2];
	_Alignas(4096) struct ring_cell cells[2][RING_CELLS];
	_Alignas(4096) uint8_t bulk[2][RING_BULK];
};

/* What goes over a link's socket; a single byte is a wake-up. */
enum { SHM_NOTE_MAGIC = 0x4d485352 };
enum shm_note_type { SHM_HELLO = 1, SHM_WELCOME, SHM_PASSED, SHM_POOL };
struct shm_note {
	uint32_t magic;
	uint16_t version, type;
	uint8_t context[16];
	/* HELLO: the endpoint of yours whose handle I have. PASSED: which memory. POOL: the
	 * endpoint of yours that it is for */
	uint32_t index, writable;
	uint64_t nonce; /* POOL: its generation above its index */
	/* HELLO, WELCOME: where `value` can be read if process_vm is allowed. PASSED: value is the
	 * length. POOL: bytes of a slot, and how many there are; 0: it is gone */
	uint64_t addr, value;
};

struct shm;
struct shm_link;
struct shm_ep;

/* Something in the epoll set. */
enum shm_source_kind {
	SHM_SOURCE_LISTENER,
	SHM_SOURCE_EMBRYO,
	SHM_SOURCE_LINK,
	SHM_SOURCE_PROCESS
};
struct shm_source {
	enum shm_source_kind kind;
	int fd;
};

struct shm_embryo {
	struct shm_source source;
	struct rpwi_who who;
	struct rpwi_list in;
	uint64_t deadline_ns;
	bool dead;
};

struct shm_mem {
	struct tran_mem base;
	struct shm *t;
	uint32_t index;
	uint64_t nonce;
	int fd;       /* -1: the program's own memory */
	bool is_view; /* of allocated memory, whose index and nonce it has; not on the board */
};

/* Memory of the peer's that we have mapped, or asked for. */
struct shm_map {
	uint32_t index;
	uint64_t nonce;
	uint8_t *at; /* NULL: asked for */
	size_t len;
	bool writable;
	uint64_t used; /* for choosing the least recent */
};

/* Where an access to the peer's memory leads. */
struct shm_there {
	uint64_t addr;
	bool mappable;
};

struct shm_hint {
	uint8_t kind;
	uint32_t endpoint;
	struct shm_ctl ctl;
};

enum shm_link_state { SHM_LINK_DIALING, SHM_LINK_GREETED, SHM_LINK_UP, SHM_LINK_DEAD };
struct shm_link {
	struct shm *t;
	enum shm_link_state state;
	struct ring_rx rx;
	struct ring_tx tx;
	struct shm_board *board; /* the peer's */
	uint32_t woken;          /* the sleep that we have ended */
	bool todo;               /* something waits for room, or for its turn */
	bool busy;               /* frames since the last tick */
	bool local;              /* of the same process: its addresses are ours */
	bool self;               /* of the same context */
	bool pvm;                /* process_vm works towards the peer */
	bool dead_soon;          /* the socket has ended: when the ring is empty, so has the link */
	int dead_status, wake_fd;
	unsigned position; /* in t->links */
	struct shm_source socket, process;
	uint8_t context[16];
	pid_t pid;
	struct shm_segment *segment;
	struct rpwi_list eps;   /* attached */
	struct rpwi_list owing; /* endpoints that have OPEN or CLOSE to send */
	struct rpwi_list rooms; /* endpoints that were told -EAGAIN */
	/* endpoints with transfers: to be moved by our own hands, that wait for room, that wait for
	 * answers (or did at the last tick) */
	struct rpwi_list work, blocked, asking;
	struct shm_ep *dialing_for;       /* whose nonce the hello has */
	uint32_t beat;                    /* the peer's, as we saw it last */
	uint64_t beat_looked_ns, beat_ns; /* when that was; when it moved, at the earliest */
	struct shm_hint hints[SHM_HINTS];
	unsigned hint_head, hint_count;
	struct shm_map *maps;
	unsigned map_count;
	uint64_t map_clock;
	char pvm_why[64];
	void (*notes)(struct shm_link *l); /* takes all that has come over the socket */
	/* measurements, and the questions to them */
	_Atomic uint32_t put_ns; /* 64 KiB into the peer's memory by process_vm */
	unsigned samples, asked_eager, asked_get, asked_put;
};

/* When a sample of what it costs to move `len` bytes begins; 0: none is taken. */
static inline uint64_t shm_sample(struct shm_link *l, size_t len)
{
	if (RPWI_LIKELY(len < SHM_SAMPLED))
		return 0;
	return rpwi_cost_by_chance(&l->samples) ? rpwi_now_ns() : 0;
}
/* 64 KiB through a ring: as long as the slower side takes; 0: not known. */
static inline uint32_t shm_ring_cost(const struct ring_shared *s)
{
	uint32_t in = atomic_load_explicit(&s->in_ns, memory_order_relaxed);
	uint32_t out = atomic_load_explicit(&s->out_ns, memory_order_relaxed);
	return in && out ? RPWI_MAX(in, out) : 0;
}

enum shm_ep_state { SHM_EP_MADE, SHM_EP_STARTING, SHM_EP_READY, SHM_EP_FAILED, SHM_EP_CLOSED };
struct shm_ep {
	_Alignas(64) struct tran_ep base;
	struct shm *t;
	struct shm_link *link;
	enum shm_ep_state state;
	uint32_t index, peer_index;
	bool started, greeted, open_owed, open_sent, open_got, close_owed, close_sent, close_got;
	uint64_t nonce;
	struct shm_handle peer; /* valid when started */
	pid_t pid_expected;     /* of boot's facts; 0: none */
	struct rpwi_list in_link, in_owing, in_rooms, in_starting, in_work, in_blocked, in_asking;
	uint64_t deadline_ns;
	struct rpwi_slots pools; /* of loans: the indices in use */
	/* the peer's, by their indices (NULL: none was shown); and their bytes in all */
	struct tran_seen **seen;
	size_t seen_bytes;
};

struct shm {
	struct tran base;
	uint8_t context[16];
	uint64_t secret; /* answered to a process that may read our memory: see link.c */
	int board_fd, epoll_fd;
	uint64_t born; /* a forked child leaves what its parent shares alone */
	struct shm_board *board;
	struct shm_source listener;
	bool membarrier, armed;
	uint32_t sleeps, beat;
	/* for which it is still said that other contexts are progressed in turn with this one */
	unsigned company_ticks;
	/* of progress; those to come in which the sockets are asked often, as they are while
	 * endpoints start */
	unsigned rounds, hurry_rounds;
	uint64_t control_ns, tick_ns;
	unsigned dead_count;   /* links to be freed when their endpoints are closed */
	unsigned ending_count; /* links to fail when their rings are empty */
	struct shm_link **links;
	unsigned link_count, link_room, hot_count, cold_next,
		local_count /* links within this process */;
	struct rpwi_slots eps, mems;
	/* what was allocated, by address */
	struct shm_mem **allocated;
	unsigned allocated_count, allocated_room;
	uint64_t nonces[64];
	unsigned nonces_left;
	struct rpwi_list starting, embryos;
	unsigned embryo_count;
	uint64_t strangers;
};

/* In huge pages, where the kernel has any for shared memory: fewer faults and TLB misses for who
 * copies to it. Each side asks for its own mapping. */
static inline void shm_huge(void *at, size_t len)
{
	if (len >= SHM_HUGE)
		madvise(at, len, MADV_HUGEPAGE);
}

static inline struct shm *shm_of(struct tran *t) { return RPWI_CONTAINER_OF(t, struct shm, base); }
static inline struct shm_ep *shm_ep_of(struct tran_ep *ep)
{
	return RPWI_CONTAINER_OF(ep, struct shm_ep, base);
}

/* shm.c */
uint64_t rpwi_shm_nonce(struct shm *t); /* never 0, not to be guessed */
void rpwi_shm_hurry(struct shm *t);     /* something is expected on a socket */

/* link.c */
int rpwi_shm_listen(struct shm *t); /* the context's door; 0 or -errno */
void rpwi_shm_unlisten(struct shm *t);
unsigned rpwi_shm_control(struct shm *t); /* all sockets, without waiting */
void rpwi_shm_embryos_tick(struct shm *t, uint64_t now_ns);
uint64_t rpwi_shm_embryos_next(const struct shm *t);
struct shm_link *rpwi_shm_link_find(struct shm *t, const uint8_t context[16], pid_t pid);
/* For an endpoint that is the first to need it; 0 or -errno. It is up at once when it leads to
 * ourselves. */
int rpwi_shm_link_dial(struct shm *t, struct shm_ep *ep, struct shm_link **out);
void rpwi_shm_link_dial_on(struct shm_link *l);
void rpwi_shm_link_forsake(struct shm_link *l); /* dialing_for is being closed */
void rpwi_shm_link_fail(struct shm_link *l, int status, const char *why);
/* it fails in the next round, when its ring is empty; at once when the peer broke the rules */
void rpwi_shm_link_end(struct shm_link *l, int status);
/* two places in t->links: those below hot_count have traffic */
void rpwi_shm_link_swap(struct shm *t, unsigned a, unsigned b);
void rpwi_shm_link_free(struct shm_link *l);
void rpwi_shm_link_wake(struct shm_link *l);
int rpwi_shm_link_pass(struct shm_link *l, const struct shm_mem *m);
/* After frames were published. The peer may sleep: then it is woken, once. */
static inline void shm_link_kick(struct shm_link *l)
{
	if (RPWI_UNLIKELY(!l->t->membarrier ||
			  atomic_load_explicit(&l->board->fence, memory_order_relaxed)))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst); /* the peer's membarrier does the rest */
	uint32_t sleep = atomic_load_explicit(&l->board->sleeping, memory_order_relaxed);
	if (RPWI_UNLIKELY(sleep && sleep != l->woken)) {
		l->woken = sleep;
		rpwi_shm_link_wake(l);
	}
}
/* One frame, when `spare` bytes of the ring stay free; 0, -EAGAIN, -EPROTO. */
int rpwi_shm_link_put(struct shm_link *l, enum shm_kind kind, uint32_t endpoint, const void *head,
	size_t head_len, const void *body, size_t body_len, size_t spare);
static inline int rpwi_shm_link_ctl(
	struct shm_link *l, enum shm_kind kind, uint32_t endpoint, const struct shm_ctl *ctl)
{
	return rpwi_shm_link_put(l, kind, endpoint, ctl, sizeof *ctl, NULL, 0, 0);
}
/* What helps the peer, and is dropped when there is no room. */
void rpwi_shm_link_hint(
	struct shm_link *l, enum shm_kind kind, uint32_t endpoint, const struct shm_ctl *ctl);
unsigned rpwi_shm_link_hints(struct shm_link *l);

/* ep.c */
int rpwi_shm_ep_make(struct tran *t, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len);
int rpwi_shm_ep_start(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms);
void rpwi_shm_ep_close(struct tran_ep *ep);
bool rpwi_shm_ep_eager(struct tran_ep *ep, const void *buf, size_t len);
int rpwi_shm_ep_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len);
static inline struct shm_ep *rpwi_shm_ep_find(const struct shm *t, uint32_t index)
{
	return rpwi_slots_find(&t->eps, index);
}
void rpwi_shm_ep_attach(struct shm_ep *ep, struct shm_link *l); /* the link stands */
/* a peer dialed: endpoints may have waited for it */
void rpwi_shm_ep_adopt(struct shm *t, struct shm_link *l);
void rpwi_shm_ep_fail(struct shm_ep *ep, int status, const char *why);
void rpwi_shm_ep_free(struct shm_ep *ep);
/* OPEN, CLOSE, REFUSE */
void rpwi_shm_ep_ctl(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl);
unsigned rpwi_shm_ep_owed(struct shm_link *l);
unsigned rpwi_shm_ep_rooms(struct shm_link *l);
void rpwi_shm_ep_tick(struct shm *t, uint64_t now_ns);
uint64_t rpwi_shm_ep_next(const struct shm *t); /* the earliest deadline of those that start */

/* mem.c */
int rpwi_shm_mem_alloc(struct tran *t, size_t len, unsigned access, struct tran_mem **out);
int rpwi_shm_mem_add(
	struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out);
void rpwi_shm_mem_del(struct tran *t, struct tran_mem *m);
void rpwi_shm_mem_inherited_free(struct shm *t); /* in a forked child: peers see nothing */
/* The allocated memory that all of this lies in, or NULL. */
struct shm_mem *rpwi_shm_mem_allocated(const struct shm *t, const void *addr, size_t len);
/* Our memory for the peer: NULL when it may not. */
uint8_t *rpwi_shm_mem_own(struct shm *t, uint32_t index, uint64_t nonce, uint64_t offset,
	uint64_t len, unsigned access);
struct shm_mem *rpwi_shm_mem_find(struct shm *t, uint32_t index, uint64_t nonce);
/* What of the peer's memory a description names: RPW_OK or RPW_ERR_ACCESS. */
int rpwi_shm_mem_target(struct shm_link *l, struct emulated_move *m, const struct tran_desc *remote,
	uint64_t offset);
/* May it be accessed so, by the peer's board? RPW_OK or RPW_ERR_ACCESS. */
int rpwi_shm_mem_remote(struct shm_link *l, const struct emulated_move *m, unsigned access,
	struct shm_there *there);
/* Where we can reach it ourselves, or NULL (then a mapping has been asked for, if there can be
 * one). */
uint8_t *rpwi_shm_mem_reach(
	struct shm_link *l, const struct emulated_move *m, const struct shm_there *there);
void rpwi_shm_mem_mapped(
	struct shm_link *l, uint32_t index, uint64_t nonce, int fd, uint64_t len, bool writable);
void rpwi_shm_mem_unmap(struct shm_link *l, uint32_t index, uint64_t nonce);
void rpwi_shm_mem_unmap_all(struct shm_link *l);

/* loan.c */
extern const struct tran_loan_ops rpwi_shm_loan;
/* A pool of the peer's has come, or has gone. */
void rpwi_shm_loan_shown(struct shm_link *l, const struct shm_note *n, const int fds[2]);
void rpwi_shm_loan_ep_close(struct shm_ep *ep);

/* rma.c */
extern const struct tran_reach_ops rpwi_shm_reach;
void rpwi_shm_rma_breach(struct tran_ep *ep, const struct rpwi_error *e);
/* MEMORY; MAP, UNMAP. false: the peer broke the rules. */
bool rpwi_shm_rma_frame(struct shm_link *l, const struct ring_frame *f);
bool rpwi_shm_rma_ctl(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl);
unsigned rpwi_shm_rma_round(struct shm_link *l);     /* move transfers on */
bool rpwi_shm_rma_pending(const struct shm_link *l); /* there are transfers for rounds to come */
bool rpwi_shm_rma_can_go(struct shm_link *l);        /* would a round do something now? */
void rpwi_shm_rma_tick(struct shm_link *l);
bool rpwi_shm_rma_needs_tick(const struct shm_link *l);
void rpwi_shm_rma_ep_close(struct shm_ep *ep);
enum { RPWI_SHM_WAY = 112 };
const char *rpwi_shm_rma_path(const struct shm_link *l, char text[RPWI_SHM_WAY]);

#endif
