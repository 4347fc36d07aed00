/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.h - the objects behind ropeway.h: requests, endpoints, contexts, and what they hold.
 * Their functions are in the headers named as the files of msg/. DESIGN.md has the rules that
 * several files keep.
 *
 * Locks: none, a context belongs to one thread at a time. Up-calls of transports and boot never
 * free anything: they leave `todo` at the endpoint, which the end of rpw_context_progress does. */
#ifndef ROPEWAY_MSG_OBJECTS_H
#define ROPEWAY_MSG_OBJECTS_H

#include "ropeway.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"
#include "base/born.h"
#include "base/error.h"
#include "base/turn.h"
#include "boot/boot.h"
#include "msg/link/link.h"
#include "msg/ids.h"
#include "msg/match.h"
#include "msg/owner.h"
#include "msg/wire.h"
#include "tran/tran.h"

enum {
	TRANSPORTS_MAX = 4,
	/* different masks of posted receives with a table of their own; further ones share the
	 * last */
	CLASSES_MAX = 16,
	/* up to here a message waits for credit rather than going as RTS, which would cost as
	 * much */
	EAGER_SMALL = 1024,
	PIECE_BYTES = 1 << 20, /* of a large transfer, of which several are under way */
	PIECES_UNDER_WAY = 8,  /* of one request */
	/* a breakable path: from here on messages that come one behind the other are fetched, which
	 * saves a copy; alone, eager is a round trip faster */
	STREAM_BYTES = 32 * 1024,
	IOV_MAX_COUNT = 1024, /* pieces of a scatter list */
	CONNECT_MS = 10000,   /* default of rpw_endpoint_create */
	PATH_MS = 5000,       /* a path that is not up by then is given up */
	/* a path that was lost: all were tried in vain, they are tried again in a while, which
	 * grows */
	REST_MS_LEAST = 10,
	AGAINS_MAX = 6, /* MTUs: there are five */
	/* what breaks so often, each time within so many seconds and before anything moved, will go
	 * on so */
	FRUITLESS_MAX = 8,
	FRUITLESS_S = 10,
	REST_MS_MOST = 500,
	SILENT_MS = 10000, /* a peer that came to a listener and does not say which path it wants */
	ARRIVE_MS = 30000, /* ... nor comes up with any, however often it chooses */
	ARRIVING_MAX = 1024,   /* such peers at once, for each context: the next wait */
	DRAIN_MS = 500,        /* after a peer's goodbye, for what it sent before */
	BOOT_EVERY_NS = 50000, /* a busy context looks after the control path so often */
	SPIN_NS = 30000,       /* rpw_request_wait polls so long before it sleeps */
	LOAN_BYTES = 1 << 30,  /* default of loan_bytes_max */
	LOAN_PAGE = 4096,      /* pools are whole ones */
};

/* ---- requests ---- */

enum req_kind {
	REQ_CONNECT,
	REQ_SEND,
	REQ_OBJECT,
	REQ_AM,
	REQ_RECV,
	REQ_RECV_VIEW, /* buf: the program's rpw_view, until there is memory for the message */
	REQ_RECV_OBJECT,
	REQ_RECV_AM,
	REQ_RMA,
	REQ_ATOMIC,
	REQ_FLUSH,
	REQ_FENCE,
	/* Our own, on behalf of memory in a GPU: pipeline.c. */
	REQ_CHUNK,
	REQ_RECV_CHUNK,
	REQ_SERVE_PUT,
	REQ_SERVE_GET,
};
enum req_where {
	AT_NONE,   /* complete, or held by its maker */
	AT_POSTED, /* a receive without a message */
	AT_QUEUE,  /* in ep->link.queue: not begun */
	AT_PEER,   /* an RTS, an object, an atomic: the peer has the word */
	AT_FETCH,  /* transfers under way, or about to be */
	AT_SETTLE, /* puts done here, waiting for the transport's flush */
	AT_LOG,    /* sent, buffer in use until acknowledged */
	AT_PLACE,  /* a receive whose buffer is filled while its frame comes: ep->placing */
};

/* One stretch of a transfer. */
struct xfer {
	char *local;
	uint64_t offset;
	size_t len;
	const struct rpw_rkey *key;   /* the peer's memory: by key, or ... */
	const struct tran_desc *desc; /* ... as an RTS described it */
	const struct tran_mem *mem;   /* that `local` is in, or NULL */
	bool is_put;
};

/* The first three lines are all that a receive of a small message touches. */
struct rpw_request {
	_Alignas(64) struct match_node match; /* receives, posted */
	uint8_t kind, where, class;
	bool held; /* by the program: it frees it */
	/* a receive into one piece of the host's memory, that has met nothing long: everything
	 * below `mask` is blank */
	bool plain;
	bool complete;
	rpw_context *c;
	rpw_endpoint *ep; /* receives: the one asked for, or NULL */
	/* ep->active_list, or receives, in the order posted: what flush waits for and close ends;
	 * self-linked when not in a list */
	struct rpwi_list active;
	union {
		struct rpwi_list link;  /* by `where` */
		rpw_request *next_free; /* of c->free_requests */
	};
	/* receives: which was posted first; flushes: the counted frames before theirs */
	uint64_t order;
	rpw_completion done;
	char *buf; /* iovcnt 1 */
	size_t len;
	rpw_done_fn fn;
	void *arg;
	uint64_t tag, mask;
	/* what only long operations need: blank when a request is made */
	bool issuing, canceled, peer_lost, settle_sent, settled, describe;
	bool parked;    /* on ep->fetching, but moved by a pipeline */
	bool asked;     /* counted by its pipelines as a question to the peer */
	bool iov_owned; /* iov was allocated */
	bool invited, was_invited, put_failed, placed; /* of receives: rndv_put.c */
	int rtr_tran, direct_tran;
	int iovcnt;
	struct iovec *iov; /* iovcnt > 1 */
	uint64_t number;   /* with the peer, 0: none */
	/* of what moves, or is to move; NULL: nothing in pieces */
	const struct transfer_role *role;
	struct rts *rts;          /* what is fetched */
	struct rndv *rndv;        /* what the peer fetches */
	struct tran_mem *rtr_mem; /* where the peer puts */
	/* the buffer, in a GPU that the path's transport reaches by itself */
	struct tran_mem *direct;
	struct xfer *xfer; /* &one, or allocated */
	struct xfer one;
	unsigned xfers, at_xfer, under_way;
	size_t at_byte;
	int worst; /* of the transfers */
	union {    /* by kind */
		struct {
			size_t header_len;
			void *header; /* allocated */
		} am;
		struct {
			const struct rpw_rkey *key;
			uint64_t operand, compare, *before;
			uint8_t op;
		} atomic;
		rpw_view *view; /* a receive of one, whose buffer is ours now */
		struct {        /* a receive of one */
			rpw_alloc_fn alloc;
			void *arg, **buf;
			size_t *len;
		} object;
		struct {
			bool notify;
			/* the peer's memory is a GPU's. The key may be gone by the time that a path
			 * is */
			bool to_gpu;
			uint64_t word; /* what is notified */
		} rma;
		struct { /* or a fence */
			bool sent, answered;
			bool ends; /* of rpw_endpoint_shutdown */
		} flush;
	};
	struct link_keep keep;     /* of its body, on a path that may break */
	struct rpwi_error error;   /* why it failed. A truncated one is told from its lengths */
	struct loan_slot *lent;    /* a send of it */
	struct gpu *gpu;           /* whose memory the buffer is; NULL: the host's */
	struct pipeline *pipeline; /* what moves it, then */
	rpw_memory *serves;        /* a peer's put or get of it */
	void *bounce;              /* ours: a small buffer of a GPU's, copied; a view's memory */
};
_Static_assert(offsetof(struct rpw_request, issuing) <= 4 * 64, "what is hot is together");

/* What a peer offers to be fetched. */
struct rts {
	uint64_t number, len;
	unsigned pieces, am_header_len;
	bool stale;         /* described for a path that is gone */
	uint8_t *am_header; /* behind the pieces */
	struct {
		uint64_t len;
		struct tran_desc desc;
	} piece[];
};

/* A message that came before its receive (tagged ones), or before its turn (active messages). */
struct unexpected {
	struct match_node of_endpoint, of_any;
	struct rpwi_list in_endpoint, in_context;
	uint64_t order, tag;
	rpw_endpoint *ep;
	struct rts *rts;             /* or NULL: the body is here */
	struct unexpected_ref *refs; /* in the indexes by mask */
	uint64_t number;             /* objects: owed an answer */
	uint32_t len, units;
	uint32_t head_len;           /* active messages: of the program's header, before the body */
	bool loaned;                 /* the body is a struct loan_come */
	_Alignas(16) uint8_t body[]; /* which may become a view */
};

/* ---- endpoints ---- */

enum ep_state {
	EP_NEW,
	EP_BOOT,     /* the control path is on its way */
	EP_CHOOSING, /* ... stands, and no path does */
	EP_UP,
	EP_FAILED,
	EP_STATES
};
enum ep_event {
	EP_DIALS,   /* this side connects */
	EP_ARRIVES, /* a peer came to a listener */
	EP_TALKS,   /* the control path stands */
	EP_PATH_UP, /* both ends of a path are ready */
	EP_PATH_LOST,
	EP_ENDS,
	EP_EVENTS
};
enum ep_todo {
	TODO_SEND = 1, /* the queue, answers, credit: something may go now */
	TODO_PATH = 2, /* the path is of no use (any more): the next one */
	TODO_FAIL = 4, /* with ep->error */
	/* rpw_endpoint_destroy from a callback, or a peer that never became an endpoint */
	TODO_CLOSE = 8,
	TODO_AM = 16, /* active messages wait for their turn */
};

struct rpw_endpoint {
	/* a line of a core's cache, and those of the link: all that a small message touches */
	_Alignas(64) rpw_context *c;
	uint8_t state, todo;
	bool active, accepted, rma_dirty, describe, bye_heard, gone_heard, peer_ready, self_ready;
	bool shut; /* rpw_endpoint_shutdown: nothing more can be posted */
	size_t eager_max;
	uint64_t id;
	/* the receive into which a long frame is being written: tag_place; or NULL */
	rpw_request *placing;
	struct rpwi_list receives;
	struct link link; /* with the path */
	/* the rest */
	unsigned settle_under_way, atomics;
	struct rpwi_list active_list, fetching, settling, unexpected, objects, ams, object_receives,
		work;
	size_t posted;
	bool path_broken, was_up;
	bool moved; /* remote memory, over this path */
	/* Paths that broke. */
	struct {
		/* the peer's end of the next path by this transport will do otherwise */
		bool peer_again;
		unsigned agains;    /* tries of that kind since there was a path */
		unsigned fruitless; /* in a row, before anything moved over them */
		/* frames that have gone and come, but for offers that were only described anew;
		 * when the last one broke; and when this one came up */
		uint64_t again_tx, again_rx, mark_tx, mark_rx, up_ns;
	} lost;
	bool shutting, peer_shut; /* it is under way; the peer's is over */
	bool orderly;             /* it ended as the peer's program, or both, wished */
	/* the peer closed when it had taken everything: there is nothing to flush */
	bool all_taken;
	uint64_t peer_received;
	struct boot_conn *boot;
	rpw_listener *listener;
	struct rpwi_list all; /* c->endpoints */
	rpw_request *connecting, *am_fetch;
	int tran; /* index of the path's transport; -1 none */
	/* The next path: choice.c, connect.c. */
	struct {
		int order[TRANSPORTS_MAX], orders; /* what to try, indices of tran_all */
		int candidate, first;              /* the next to try, counted from `first` */
		bool resting; /* all were tried in vain; again when the deadline has passed */
		unsigned rest_ms;
		uint16_t attempt;
		uint64_t deadline_ns, until_ns;
		int refusal; /* what to say when no path is left: the peer refused by name */
		char last_why[400], *reasons;
	} next;
	uint64_t message_tag, control_tag, peer_message_tag, peer_control_tag, peer_domain,
		peer_sent;
	char *why, *peer, *path_text;
	struct rpwi_error error; /* why it is to end, or has ended */
	struct pipelines *pipelines;
	struct loans *loans; /* NULL: none was asked for */
	size_t view_bytes;   /* of the peer's loans, in views */
	/* over this path: this side's program, and the peer's, reads messages in views */
	bool views_said, peer_views;
	rpw_endpoint_closed_fn closed_fn;
	void *closed_arg, *user;
};

_Static_assert(offsetof(struct rpw_endpoint, link) == 64, "lines of a core's cache");

struct rpw_listener {
	rpw_context *c;
	struct boot_listener *boot;
	rpw_accept_fn fn;
	void *arg;
	struct rpwi_list all;
};

struct rpw_memory {
	struct rpwi_list all;
	rpw_context *c;
	void *addr;
	size_t len;
	unsigned access;
	/* the number finds it; a peer without the secret was not given its key */
	uint64_t number, secret;
	struct tran_mem *mem[TRANSPORTS_MAX];
	struct gpu *gpu; /* CUDA memory */
	int dmabuf;      /* of it, ours; -1: none */
	uint64_t dmabuf_offset;
	bool staged[TRANSPORTS_MAX]; /* this one cannot reach it by itself */
	bool allocated;              /* by transport `owner`, or (owner -1) by us */
	int owner;
};

struct rpw_rkey {
	rpw_endpoint *ep;
	uint64_t region, secret, len;
	unsigned access;
	/* in a GPU: its side has to help where the path's transport has no description of it */
	bool device;
	bool has[TRANSPORTS_MAX];
	struct tran_desc desc[TRANSPORTS_MAX];
};

/* ---- contexts ---- */

/* What a kind of operation does at each turn of its life: protos.c. */
struct proto {
	const char *name;             /* "a send" */
	int (*begin)(rpw_request *r); /* 0: begun (and perhaps complete); RPWI_LATER */
	/* the message that it receives is here; NULL: it completes */
	void (*fetched)(rpw_request *r, int status);
	/* a receive without a message goes from where it waits for one */
	void (*unpost)(rpw_request *r);
	/* nothing of its path moves any more; NULL: nothing is to do */
	void (*path_gone)(rpw_request *r);
	void (*cancel)(rpw_request *r); /* while it is under way; NULL: it ends as it would have */
	/* a message of the program's goes to the peer: it may be offered, invited, withdrawn */
	bool message;
	bool receive;         /* one comes, for the program */
	bool waits_for_older; /* for everything posted before it */
};
extern const struct proto protos[];
/* It is complete: what only an operation under way has goes. */
void proto_ends(rpw_request *r);

struct recv_class {
	uint64_t mask;
	size_t of_endpoint, of_any; /* posted */
};

struct rpw_context {
	const struct proto *protos;
	void (*proto_ends)(rpw_request *r);
	/* the frame that has just come, for a receive that may be about to be posted: path_up_frame
	 * says so */
	bool kept_one;
	bool in_progress, debug, closes; /* closes: an endpoint has TODO_CLOSE */
	pthread_t mover;                 /* who made progress last */
	pid_t pid;
	uint64_t born; /* a forked child is refused; BORN_LOOKED_AT */
	bool polled;   /* rpw_context_options */
	unsigned polls;
	struct rpwi_turn turn;
	size_t unexpected_count; /* tagged messages waiting */
	uint64_t next_order;
	/* receives without a message; messages without a receive */
	struct match_table posted, unexpected;
	struct unexpected_index *unexpected_indexes; /* of masks */
	struct recv_class class[CLASSES_MAX];
	unsigned classes;
	rpw_request *free_requests; /* the one used last is warm, and first */
	struct rpwi_list chunks;
	struct {
		const struct tran_ops *ops;
		struct tran *tran; /* opened when first needed */
		unsigned endpoints;
		int fd;
	} t[TRANSPORTS_MAX];
	int tn;
	struct boot *boot;
	int epfd; /* boot's, which transports may use as well */
	int timerfd;
	_Atomic bool woken; /* rpw_context_wake was called, which may be from another thread */
	uint64_t boot_next_ns, timers_next_ns, timer_set_ns;
	unsigned connecting;
	struct rpwi_list gpus, pipelines; /* empty where no memory of a GPU is met */
	struct rpwi_list endpoints, listeners, memories, work, callbacks, any_receives,
		unexpected_list, small_free;
	/* receives from any endpoint; objects that came before their receive, of all endpoints */
	struct rpwi_list object_receives, objects;
	unsigned small_count;
	struct tran_facts own;
	struct tran_up up;
	uint64_t domain;
	char transports[64];     /* usable here */
	char *listed;            /* what options or ROPEWAY_TRANSPORT ask for, or NULL */
	struct link_group links; /* and the pool of unexpected memory */
	/* live, and kept for the next; a number for each loan and each view */
	struct rpwi_list views, idle_views;
	unsigned idle_view_count;
	uint64_t loan_numbers;
	size_t loan_max; /* of each endpoint */
	size_t am_bytes; /* being fetched for active messages */
	size_t unexpected_max, eager_option;
	struct rpwi_slots numbers, regions;
	struct {
		rpw_am_fn fn;
		void *arg;
	} am[RPW_AM_IDS];
	rpw_notify_fn notify_fn;
	void *notify_arg;
	rpw_statistics stat;
	unsigned arriving;
	char host[64];
	uint64_t born_here; /* `born`, whoever looks */
	struct owner owner;
};

/* Also where each call looks at its thread (ROPEWAY_LOG=debug, ROPEWAY_CHECK): then the comparison
 * fails. */
#define BORN_LOOKED_AT UINT64_MAX
__attribute__((always_inline)) static inline bool msg_is_ours(const rpw_context *c)
{
	return RPWI_LIKELY(rpwi_is_ours(c->born)) ||
	       owner_look((rpw_context *)c, __builtin_return_address(0));
}
/* From any thread. */
static inline bool msg_is_ours_anywhere(const rpw_context *c) { return rpwi_is_ours(c->born_here); }
static inline int msg_inherited(const rpw_context *c)
{
	return rpwi_fail(RPW_ERR_INVALID,
		"this context belongs to process %d, this is its child %d: make one after fork",
		c->pid, getpid());
}
/* "rpw_recv: the context is NULL" */
static inline int msg_wrong(const char *call, const char *argument)
{
	return rpwi_fail(RPW_ERR_INVALID, "%s: %s", call, argument);
}
static inline const char *text_or(const char *s, const char *other) { return s && *s ? s : other; }
/* Left for the end of the round. */
static inline void msg_todo(rpw_endpoint *ep, unsigned what)
{
	if (!ep->todo)
		rpwi_list_add_tail(&ep->c->work, &ep->work);
	ep->todo |= (uint8_t)what;
}
/* Around a callback that is not called by rpw_context_progress, so that what it must not do is
 * refused, and what it closes is closed later. Gives what in_progress is to be afterwards. */
static inline bool msg_callback_begin(rpw_context *c)
{
	bool outer = c->in_progress;
	c->in_progress = true;
	return outer;
}

/* enum rpw_access as enum tran_access */
static inline unsigned memory_tran_access(unsigned access)
{
	unsigned out = 0;
	if (access & RPW_REMOTE_WRITE)
		out |= TRAN_WRITE;
	if (access & RPW_REMOTE_READ)
		out |= TRAN_READ;
	if (access & RPW_REMOTE_ATOMIC)
		out |= TRAN_ATOMIC;
	return out;
}

static inline const struct proto *proto_of(const rpw_request *r) { return &r->c->protos[r->kind]; }

#endif
