/* msg.h - what the files of msg/ share: the objects behind ropeway.h, and each file's calls for the others. The design is told in DESIGN.md.
 *
 * Locks: none, a context belongs to one thread at a time. Up-calls of transports and boot never free anything: they leave `todo` at the endpoint, which the end of rpw_progress does. */
#ifndef ROPEWAY_MSG_H
#define ROPEWAY_MSG_H

#include "ropeway.h"

#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "base/born.h"
#include "base/fail.h"
#include "boot/boot.h"
#include "msg/link/link.h"
#include "msg/match.h"
#include "msg/wire.h"
#include "tran/tran.h"

enum {
	TRANSPORTS_MAX = 4,
	CLASSES_MAX = 16,      /* different masks of posted receives with a table of their own; further ones share the last */
	EAGER_SMALL = 1024,    /* up to here a message waits for credit rather than going as RTS, which would cost as much */
	PIECE_BYTES = 1 << 20, /* of a large transfer, of which several are under way */
	PIECES_UNDER_WAY = 8,  /* of one request */
	STREAM_BYTES =
		32 *
		1024, /* a breakable path: from here on messages that come one behind the other are fetched, which saves a copy; alone, eager is a round trip faster */
	IOV_MAX_COUNT = 1024, /* pieces of a scatter list */
	CONNECT_MS = 10000,   /* default of rpw_connect */
	PATH_MS = 5000,       /* a path that is not up by then is given up */
	REST_MS_LEAST = 10,   /* a path that was lost: all were tried in vain, they are tried again in a while, which grows */
	REST_MS_MOST = 500,
	SILENT_MS = 10000,     /* a peer that came to a listener and does not say which path it wants */
	ARRIVE_MS = 30000,     /* ... nor comes up with any, however often it chooses */
	ARRIVING_MAX = 1024,   /* such peers at once, for each context */
	DRAIN_MS = 500,        /* after a peer's goodbye, for what it sent before */
	BOOT_EVERY_NS = 50000, /* a busy context looks after the control path so often */
	SPIN_NS = 30000,       /* rpw_wait polls so long before it sleeps */
};

/* ---- requests ---- */

enum req_kind {
	REQ_CONNECT,
	REQ_SEND,
	REQ_OBJECT,
	REQ_AM,
	REQ_RECV,
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
	bool held;  /* by the program: it frees it */
	bool plain; /* a receive into one piece of the host's memory, that has met nothing long: everything below `mask` is blank */
	bool complete;
	rpw_context *c;
	rpw_endpoint *ep;        /* receives: the one asked for, or NULL */
	struct rpwi_list active; /* ep->active_list, or receives, in the order posted: what flush waits for and close ends; self-linked when not in a list */
	union {
		struct rpwi_list link;  /* by `where` */
		rpw_request *next_free; /* of c->free_requests */
	};
	uint64_t order; /* receives: which was posted first; flushes: the counted frames before theirs */
	rpw_completion done;
	char *buf; /* iovcnt 1 */
	size_t len;
	rpw_done_fn fn;
	void *arg;
	uint64_t tag, mask;
	/* what only long operations need: blank when a request is made */
	bool issuing, canceled, peer_lost, notify, flush_sent, answered, settle_sent, settled, describe;
	bool parked;                                   /* on ep->fetching, but moved by a pipeline */
	bool asked;                                    /* counted by its pipelines as a question to the peer */
	bool iov_owned;                                /* iov was allocated */
	bool remote_gpu;                               /* of a put or get: the peer's memory is a GPU's. The key may be gone by the time that a path is */
	bool invited, was_invited, put_failed, placed; /* of receives: rndv_put.c */
	int rtr_tran, direct_tran;
	int iovcnt;
	struct iovec *iov;                /* iovcnt > 1 */
	uint64_t number;                  /* with the peer, 0: none */
	const struct transfer_role *role; /* of what moves, or is to move; NULL: nothing in pieces */
	struct rts *rts;                  /* what is fetched */
	struct rndv *rndv;                /* what the peer fetches */
	struct tran_mem *rtr_mem;         /* where the peer puts */
	struct tran_mem *direct;          /* the buffer, in a GPU that the path's transport reaches by itself */
	struct xfer *xfer;                /* &one, or allocated */
	struct xfer one;
	unsigned xfers, at_xfer, under_way;
	size_t at_byte;
	int worst; /* of the transfers */
	uint64_t operand, compare, *before;
	uint8_t op;
	size_t am_header_len;
	void *am_header; /* allocated */
	const struct rpw_rkey *key;
	rpw_alloc_fn alloc;
	void *arg_alloc;
	struct link_keep keep;     /* of its body, on a path that may break */
	char *why;                 /* it failed: in words. A truncated one is told from its lengths */
	struct gpu *gpu;           /* whose memory the buffer is; NULL: the host's */
	struct pipeline *pipeline; /* what moves it, then */
	rpw_memory *serves;        /* a peer's put or get of it */
	void *bounce;              /* a small buffer of a GPU's, copied; ours */
	void **obj_buf;
	size_t *obj_len;
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

/* What a peer may fetch from us. */
struct rndv {
	unsigned n;
	int tran; /* whose registrations */
	uint8_t kind;
	void *bounce;   /* more pieces than an RTS can describe: packed here */
	struct rts *to; /* where it is being put, invited by the peer */
	struct iovec iov[RTS_PIECES_MAX];
	struct tran_mem *mem[RTS_PIECES_MAX];
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
	uint32_t head_len; /* active messages: of the program's header, before the body */
	uint8_t body[];
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
	TODO_SEND = 1,  /* the queue, answers, credit: something may go now */
	TODO_PATH = 2,  /* the path is of no use (any more): the next one */
	TODO_FAIL = 4,  /* with ep->status */
	TODO_CLOSE = 8, /* rpw_endpoint_close from a callback, or a peer that never became an endpoint */
	TODO_AM = 16,   /* active messages wait for their turn */
};

struct rpw_endpoint {
	rpw_context *c;
	uint8_t state, todo;
	bool active, accepted, rma_dirty, describe, needy, bye_heard, gone_heard, peer_ready, self_ready;
	size_t eager_max;
	struct link link; /* with the path */
	unsigned settle_under_way, atomics;
	struct rpwi_list active_list, fetching, settling, unexpected, objects, ams, receives, object_receives, work;
	size_t posted;
	uint64_t id;
	/* the rest */
	bool path_broken, was_up;
	bool all_taken; /* the peer closed when it had taken everything: there is nothing to flush */
	int refusal;    /* what to say when no path is left: the peer refused by name */
	uint64_t peer_received;
	char last_why[400];
	struct boot_conn *boot;
	rpw_listener *listener;
	struct rpwi_list all; /* c->endpoints */
	rpw_request *connecting, *am_fetch;
	int tran;      /* index of the path's transport; -1 none */
	int candidate; /* the next to try, counted from `first` */
	int first;
	bool resting; /* all were tried in vain; they are again when the deadline has passed */
	unsigned rest_ms;
	int order[TRANSPORTS_MAX], orders; /* what to try, indices of tran_all */
	uint16_t attempt;
	uint64_t deadline_ns, until_ns;
	uint64_t message_tag, control_tag, peer_message_tag, peer_control_tag, peer_domain, peer_sent, flush_number;
	uint32_t reclaim;
	int status;
	char *why, *reasons, *peer, *path_text, *fail_text;
	struct pipelines *pipelines;
	rpw_closed_fn closed_fn;
	void *closed_arg, *user;
};

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
	uint64_t number, secret; /* the number finds it; who does not know the secret, too, was not given its key */
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
	bool device; /* in a GPU: its side has to help where the path's transport has no description of it */
	bool has[TRANSPORTS_MAX];
	struct tran_desc desc[TRANSPORTS_MAX];
};

/* ---- contexts ---- */

struct slot {
	void *what;
	uint32_t generation, next_free;
};
/* What a kind of operation does at each turn of its life: protos.c. */
struct proto {
	const char *name;                            /* "a send" */
	int (*begin)(rpw_request *r);                /* 0: begun (and perhaps complete); -EAGAIN: later */
	void (*fetched)(rpw_request *r, int status); /* the message that it receives is here; NULL: it completes */
	void (*unpost)(rpw_request *r);              /* a receive without a message goes from where it waits for one */
	void (*path_gone)(rpw_request *r);           /* nothing of its path moves any more; NULL: nothing is to do */
	void (*cancel)(rpw_request *r);              /* while it is under way; NULL: it ends as it would have */
	void (*end)(rpw_request *r);                 /* it is complete: what only an operation under way has goes */
	bool message;                                /* a message of the program's goes to the peer: it may be offered, invited, withdrawn */
	bool receive;                                /* one comes, for the program */
	bool waits_for_older;                        /* for everything posted before it */
};
extern const struct proto protos[];

/* Numbers given to peers: an index and a generation, so that a late or forged one names nothing. */
struct slots {
	struct slot *v;
	uint32_t n, used, free_head;
};

struct recv_class {
	uint64_t mask;
	size_t of_endpoint, of_any; /* posted */
};

struct rpw_context {
	const struct proto *protos;
	bool kept_one;                   /* the frame that has just come, for a receive that may be about to be posted: path_up_frame says so */
	bool in_progress, debug, closes; /* closes: an endpoint has TODO_CLOSE */
	pid_t pid;
	uint64_t born; /* a forked child is refused */
	bool polled;   /* rpw_context_options */
	unsigned polls;
	unsigned fails_seen;     /* rpwi_fail_count: what was recorded since may be about the request that fails now */
	size_t unexpected_count; /* tagged messages waiting */
	uint64_t next_order;
	struct match_table posted, unexpected;       /* receives without a message; messages without a receive */
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
	int epfd, timerfd;
	uint64_t boot_next_ns, timers_next_ns, timer_set_ns;
	unsigned connecting;
	struct rpwi_list gpus, pipelines; /* empty where no memory of a GPU is met */
	struct rpwi_list endpoints, listeners, memories, work, callbacks, any_receives, unexpected_list, small_free;
	unsigned small_count;
	struct tran_facts own;
	struct tran_up up;
	uint64_t domain;
	char transports[64];     /* usable here */
	char *listed;            /* what options or ROPEWAY_TRANSPORT ask for, or NULL */
	struct link_group links; /* and the pool of unexpected memory */
	size_t am_bytes;         /* being fetched for active messages */
	size_t unexpected_max, eager_option;
	struct slots numbers, regions;
	struct {
		rpw_am_fn fn;
		void *arg;
	} am[RPW_AM_IDS];
	rpw_notify_fn notify_fn;
	void *notify_arg;
	rpw_statistics stat;
	unsigned arriving;
	char host[64];
};

/* context.c */
static inline bool msg_is_ours(const rpw_context *c) { return rpwi_is_ours(c->born); }
static inline int msg_inherited(const rpw_context *c)
{
	return rpwi_fail(RPW_ERR_INVALID, "this context belongs to process %d, this is its child %d: make one after fork", c->pid, getpid());
}
/* "rpw_recv: the context is NULL" */
static inline int msg_wrong(const char *call, const char *argument) { return rpwi_fail(RPW_ERR_INVALID, "%s: %s", call, argument); }
/* Left for the end of the round. */
static inline void msg_todo(rpw_endpoint *ep, unsigned what)
{
	if (!ep->todo)
		rpwi_list_add_tail(&ep->c->work, &ep->work);
	ep->todo |= (uint8_t)what;
}
int msg_deliver_callbacks(rpw_context *c);
/* Around a callback that is not called by rpw_progress, so that what it must not do is refused, and what it closes is closed later. Gives what in_progress is to be afterwards. */
static inline bool msg_callback_begin(rpw_context *c)
{
	bool outer = c->in_progress;
	c->in_progress = true;
	return outer;
}
struct tran *msg_tran(rpw_context *c, int i, char *why, size_t why_len);
uint64_t msg_random(void);
uint64_t slots_add(struct slots *s, void *what); /* 0: no memory */
void *slots_get(const struct slots *s, uint64_t number);
void slots_del(struct slots *s, uint64_t number);

/* enum rpw_access as enum tran_access */
static inline unsigned memory_tran_access(unsigned access)
{
	return (access & RPW_REMOTE_WRITE ? TRAN_WRITE : 0u) | (access & RPW_REMOTE_READ ? TRAN_READ : 0u) | (access & RPW_REMOTE_ATOMIC ? TRAN_ATOMIC : 0u);
}

static inline const struct proto *proto_of(const rpw_request *r) { return &r->c->protos[r->kind]; }

/* request.c */
rpw_request *req_new(rpw_context *c, rpw_endpoint *ep, enum req_kind kind, bool held);
rpw_request *req_more(rpw_context *c); /* there is no free one: NULL, no memory */
void req_blank(rpw_request *r);
/* For a receive into one piece: blank, with nothing written that is so already. */
static inline rpw_request *req_new_plain(rpw_context *c, rpw_endpoint *ep, bool held)
{
	rpw_request *r = c->free_requests;
	if (RPWI_UNLIKELY(!r) && !(r = req_more(c)))
		return NULL;
	c->free_requests = r->next_free;
	if (RPWI_UNLIKELY(!r->plain)) {
		req_blank(r);
		r->plain = true;
	}
	r->c = c;
	r->ep = ep;
	r->kind = REQ_RECV;
	r->where = AT_NONE;
	r->held = held;
	r->complete = false;
	r->done = (rpw_completion){.status = RPW_IN_PROGRESS};
	r->fn = NULL;
	c->stat.requests++;
	return r;
}
static inline void req_give_back(rpw_request *r)
{
	r->next_free = r->c->free_requests;
	r->c->free_requests = r;
}
void req_complete(rpw_request *r, int status);
void req_note_why(rpw_request *r, int status); /* it is about to fail: what was recorded of that is its sentence */
void req_say_why(const rpw_request *r);        /* it has failed: its own sentence is the last error */
void req_drop(rpw_request *r);                 /* was never posted */
int req_set_local(rpw_request *r, const struct iovec *iov, int iovcnt);
int req_set_slice(rpw_request *slice, const rpw_request *r, size_t skip, size_t len); /* a stretch (len > 0) of r's buffers */
void req_chunks_free(rpw_context *c);
/* Give what was posted to the program: RPW_OK, RPW_IN_PROGRESS or its status. */
int req_return(rpw_request *r, rpw_request **out);
/* What `iov` has from `skip` on, at most n bytes, to or from `flat`. How many. */
size_t iov_scatter(const struct iovec *iov, int iovcnt, const void *flat, size_t n, bool up); /* up: by rpwi_copy_up */
size_t iov_gather(const struct iovec *iov, int iovcnt, size_t skip, void *flat, size_t n);
int iov_total(const struct iovec *iov, int iovcnt, size_t *total);
static inline struct iovec *req_iov(rpw_request *r, struct iovec *one)
{
	if (r->iovcnt != 1)
		return r->iov;
	*one = (struct iovec){r->buf, r->len};
	return one;
}

/* state.c: false, the event has no meaning now */
bool ep_move(rpw_endpoint *ep, enum ep_event event);

/* endpoint.c */
rpw_endpoint *ep_new(rpw_context *c);
void ep_free(rpw_endpoint *ep);                                                               /* everything of it ends, requests with CANCELED */
void ep_breach(rpw_endpoint *ep, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* the peer sent what it must not */
int ep_post(rpw_endpoint *ep, rpw_request *r, rpw_request **out);                             /* queue it, and begin what can begin */
void ep_fail(rpw_endpoint *ep, int status, const char *why);
void ep_keep(char **where, const char *text);       /* a copy, for the one that is there */
void ep_say_why(rpw_endpoint *ep, const char *why); /* keeps a copy as the reason of a failure */
void ep_refresh(rpw_endpoint *ep);                  /* ep->link.fast, from everything that it depends on */

/* choice.c */
int choice_index(const char *name, size_t len);                                            /* of tran_all, or -1 */
int choice_parse(const char *list, int *order, char *why, size_t why_len);                 /* how many, or a status */
int choice_plugin(const char *list, char *plugin, size_t room, char *why, size_t why_len); /* what follows "ncclnet:" in it; 0 or a status */
/* Nobody said an order: what imitates a device comes last, since TCP is the faster of the two (RATIONALE). */
void choice_order_by_worth(rpw_context *c, int *order, int n);
/* Why not, or "". True: it would do, but in software. */
bool choice_has(const char *list, const char *name); /* "shm,tcp" has it */
/* With a key: nobody on the way reads or changes what this transport carries. Without one: true. */
bool choice_protects(const rpw_context *c, int i);
bool choice_wanted(rpw_context *c, int i); /* may an endpoint of this context use it? */
bool choice_why_not(rpw_endpoint *ep, int i, char *why, size_t why_len);
void choice_explain(rpw_endpoint *ep, int chosen);                           /* in ep->why */
void choice_reason_add(rpw_endpoint *ep, const char *name, const char *why); /* to ep->reasons: tried in vain */

/* say.c: over the control path */
int say_word(rpw_endpoint *ep, enum boot_type type, const char *text);
int say_path(rpw_endpoint *ep, enum boot_type type, int status, const char *name, const char *text, const uint8_t *handle, size_t handle_len);
void say_bye(rpw_endpoint *ep, const char *why);

/* end.c */
void connect_path_close(rpw_endpoint *ep);

/* connect.c */
extern const struct boot_up connect_boot_up;
void connect_next_path(rpw_endpoint *ep);
void connect_cancel(rpw_request *r);
void connect_ready(void *user, int status, const char *why);
void connect_peer_talks(rpw_endpoint *ep);
void connect_timers(rpw_context *c, uint64_t now_ns);
/* A path that cannot break has ended, and the control path has not said why yet: it will in a moment, and what a goodbye says may complete what waits. */
void connect_await_word(rpw_endpoint *ep);
void connect_trouble(const rpw_endpoint *ep, char *out, size_t room); /* connecting is under way: what was in the way so far, or "" */
uint64_t connect_deadline(rpw_context *c);

/* post.c */
void post_go(rpw_endpoint *ep); /* the queue, as far as it goes now */

/* path.c */
bool path_up_frame(void *user, const void *head, size_t head_len, const void *body, size_t body_len);
void path_up_room(void *user);
void path_up_failed(void *user, int status, const char *why);
void path_work(rpw_endpoint *ep);
extern const struct link_up path_link_up;
/* Of an RTS: what it costs must not depend on how this path's transport describes memory, since it may go again on another, which describes it otherwise. */
static inline uint32_t credit_units_rts(unsigned pieces, size_t am_header_len)
{
	return credit_units(sizeof(struct rts_body) + pieces * sizeof(struct tran_desc) + am_header_len);
}

/* unexpected.c */
struct unexpected *unexpected_new(rpw_endpoint *ep, size_t body_len);
struct unexpected *unexpected_offered(rpw_endpoint *ep, struct rts *rts, uint32_t units);
void unexpected_release(struct unexpected *u);
void unexpected_add(rpw_endpoint *ep, struct unexpected *u, uint64_t tag);
struct unexpected *unexpected_for(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask); /* the oldest, or NULL; it stays */
void unexpected_indexes_free(rpw_context *c);

/* tag.c, object.c, am.c */
void tag_arrived(rpw_endpoint *ep, uint64_t tag, const void *body, size_t len);
void tag_offered(rpw_endpoint *ep, uint64_t tag, struct rts *rts, uint32_t units);
void tag_unpost(rpw_request *r);
void object_unpost(rpw_request *r);
void unexpected_free(struct unexpected *u, bool credit);
int tag_send_begin(rpw_request *r);
bool tag_eager(rpw_endpoint *ep, size_t len, uint32_t *units);
void object_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void object_offered(rpw_endpoint *ep, struct rts *rts, uint32_t units);
void object_fetched(rpw_request *r, int status);
int object_send_begin(rpw_request *r);
void am_arrived(rpw_endpoint *ep, uint64_t word, const void *header, size_t header_len, const void *body, size_t len);
void am_offered(rpw_endpoint *ep, uint64_t word, struct rts *rts, uint32_t units);
void am_fetched(rpw_request *r, int status);
void am_turn(rpw_endpoint *ep);
int am_send_begin(rpw_request *r);

/* A small frame may go at once, without a request: nothing is before it, and the log would copy it. */
static inline bool path_is_free(const rpw_endpoint *ep, size_t len, uint32_t units)
{
	return ep->state == EP_UP && msg_is_ours(ep->c) && len <= EAGER_SMALL && len <= ep->eager_max && rpwi_list_empty(&ep->link.queue) &&
	       rpwi_list_empty(&ep->link.replies) && credit_has(&ep->link, units) && rpwi_list_empty(&ep->c->gpus);
}

/* rendezvous.c */
int rndv_offer(rpw_request *r, enum rts_kind kind, uint64_t tag); /* -EAGAIN: later */
int rndv_offer_as(rpw_request *r, enum frame_type type, enum rts_kind kind, uint64_t tag, const void *extra, size_t extra_len);
void *rndv_flatten(rpw_request *r); /* a list of pieces, in one; NULL: no memory */
void rndv_fetch_parked(rpw_request *r, size_t room);
size_t rndv_describe(rpw_request *r, uint8_t *body); /* for the path of now */
void rndv_describe_all(rpw_endpoint *ep);
bool rndv_describe_go(rpw_endpoint *ep);
void rndv_path_gone(rpw_endpoint *ep);
void rndv_end(rpw_request *r);
void rndv_unregister(rpw_request *r); /* what it offers, with the path that is gone */
struct rts *rndv_parse(const void *body, size_t len);
void rndv_fetch(rpw_request *r, rpw_endpoint *ep, struct rts *rts, size_t room);
void rndv_fetched(rpw_request *r);
void rndv_finished(rpw_endpoint *ep, uint64_t number, unsigned flags);
void rndv_withdrawn(rpw_endpoint *ep, uint64_t number);
void rndv_described(rpw_endpoint *ep, const void *body, size_t len);
/* The body of a description of one piece. Its length. */
size_t rndv_describe_piece(uint8_t *p, uint64_t len, const struct tran_desc *d);
size_t rndv_describe_one(uint8_t *body, uint64_t number, uint64_t len, const struct tran_desc *desc);

/* rndv_put.c */
bool rndv_put_invite(rpw_request *r); /* a receive that is to be fetched: false when it has to be, indeed */
void rtr_drop(rpw_request *r);
void rndv_put_placed(rpw_endpoint *ep, uint64_t number, unsigned flags);
void rndv_put_invited(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void rndv_put_path_gone(rpw_request *r);

/* transfer.c */
/* What the bytes of a transfer are for. */
struct transfer_role {
	bool (*ready)(rpw_request *r, rpw_endpoint *ep); /* before any piece: false when it is not to go in pieces, now or any more. NULL: it is */
	void (*done)(rpw_request *r);                    /* no piece is under way: all are done, or `worst` says why not */
	void (*settled)(rpw_request *r, int status);     /* the transport has flushed what was put, or the peer has said that it is there */
};
/* What a transport's `done` is about: low bits of the cookie. */
enum transfer_cookie { COOKIE_PIECE = 0, COOKIE_SETTLE = 1, COOKIE_FLUSH = 2, COOKIE_BITS = 3 };
static inline void *transfer_cookie(void *p, enum transfer_cookie what) { return (void *)((uintptr_t)p | what); }
/* The transport has no room now: -EAGAIN of the contract, and -ENOBUFS of its table of operations. */
static inline bool transfer_later(int rc) { return rc == -EAGAIN || rc == -ENOBUFS; }
void transfer_go(rpw_request *r);
void transfer_over(rpw_request *r);                 /* it is to go in no more pieces */
void transfer_settles(rpw_request *r);              /* what it put is to be flushed: then role->settled */
void transfer_answered(rpw_request *r, int status); /* the peer has said that it is done */
void transfer_restart(rpw_request *r);              /* the path is gone: from the beginning, on the next one. Puts and gets may be repeated */
void transfer_settle(rpw_endpoint *ep);
void transfer_up_done(void *user, void *cookie, int status);

/* rma.c, atomic.c, flush.c */
int rma_begin(rpw_request *r);
int rma_access_check(rpw_endpoint *ep, const rpw_rkey *key, uint64_t offset, size_t len, unsigned need, const char *what);
int rma_atomic_begin(rpw_request *r);
void rma_atomic_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void rma_atomic_done(rpw_endpoint *ep, uint64_t number, unsigned flags, const void *body, size_t len);
int rma_flush_begin(rpw_request *r);
int rma_fence_begin(rpw_request *r);
void rma_flush_look(rpw_endpoint *ep);
void rma_flush_bye(rpw_endpoint *ep, uint64_t received); /* the peer has closed; so many of our frames had come */
void flush_path_gone(rpw_request *r);
int msg_status_of_errno(int rc);

/* trace.c: lines for people */
void trace_line(rpw_endpoint *ep, const char *what, uint64_t number, uint64_t tag, size_t len);
static inline void trace_send(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	if (RPWI_UNLIKELY(ep->c->debug))
		trace_line(ep, "Send", ep->c->stat.sent, tag, len);
}
static inline void trace_recv(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	if (RPWI_UNLIKELY(ep->c->debug))
		trace_line(ep, "Recv", ep->c->stat.received, tag, len);
}

#endif
