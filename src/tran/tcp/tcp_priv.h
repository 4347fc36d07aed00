/* tcp_priv.h - the structs of tran_tcp, and what its files call in each other.
 *
 *   tcp.c         the table of operations, progress, sleeping, time
 *   tcp_ep.c      endpoints: handles, connecting, greeting, failing, closing
 *   tcp_listen.c  the listening socket, and strangers until they have shown a nonce
 *   tcp_stream.c  one socket: sending what waits, receiving, taking the received bytes apart
 *   tcp_rma.c     gets, puts, atomics, flush: the side that asks, and the side that answers
 *   tcp_mem.c     registered memory
 *   tcp_wire.[ch] bytes
 *
 * Who may fail what: the code that reads or writes a stream only notes a failure (tcp_ep_fail); up->failed is called at the end of progress, so that no caller finds an endpoint gone
 * under its hands. For the same reason what is closed is freed at the end of progress.
 */
#ifndef ROPEWAY_TRAN_TCP_PRIV_H
#define ROPEWAY_TRAN_TCP_PRIV_H

#include <sys/types.h>

#include "ropeway.h"
#include "tran/tcp/tcp_wire.h"

enum {
	TCP_BUFFER_LEN = 512 * 1024, /* one send or receive buffer: holds at least three frames of the largest size */
	TCP_BUFFERS_KEPT = 16,       /* of those not in use */
	TCP_HOT_MAX = 4,             /* streams that progress reads without asking epoll */
	TCP_STRANGERS_MAX = 128,
	TCP_STRANGER_MS = 3000,
	TCP_OPS_MAX = 65536, /* rma, atomics and flushes of an endpoint that are not done */
};

struct tcp_ep;
struct tcp_op;

struct tcp_mem {
	struct tran_mem base;
	uint32_t slot;
	uint64_t key;
	unsigned users; /* bodies under way into or out of it */
	bool own;       /* allocated here */
};

/* A bulk body that waits to be sent: the data of a get that the peer asked for, or a put of ours. */
struct tcp_item {
	uint8_t head[TCP_HEADER_LEN + TCP_TARGET_LEN];
	uint8_t head_len;
	uint8_t answer;   /* of the done that ends data */
	bool is_data;     /* ends with a done */
	uint32_t id;      /* of data */
	const char *body; /* NULL: the memory is gone, zeros are sent in its place */
	size_t len;
	struct tcp_mem *mem; /* of data, while its body is not sent yet */
};

/* A request of ours that is not answered yet. */
struct tcp_chunk {
	struct tcp_op *op; /* NULL: free */
	uint32_t id;
	uint32_t len;
	char *local;   /* where data goes */
	bool have_all; /* the data has come, its done has not */
};

enum tcp_stream_state {
	TCP_CONNECTING, /* connect() is under way */
	TCP_STRANGER,   /* accepted; has not said a good greeting */
	TCP_HELD,       /* greeted, but our side of the endpoint was not started yet */
	TCP_GREETED,    /* our greeting is out, the peer's not here */
	TCP_UP,
	TCP_LINGERING, /* its endpoint was closed here: what was taken is still sent, for a moment */
	TCP_DEAD,
};

struct tcp_stream {
	struct tcp *t;
	struct tcp_ep *ep;        /* NULL: a stranger */
	struct rpwi_list link;    /* strangers, or the dead */
	struct rpwi_list sending; /* of t->sending */
	enum tcp_stream_state state;
	int fd;
	uint16_t index;
	bool hot, unwatched, wants_out, blocked, heard; /* unwatched: not in the epoll set; heard: something came since we sent last */
	int send_errno;                                 /* sending is over; what the peer sent before is still to be read */
	unsigned idle_polls, hot_reads;
	uint64_t deadline_ns; /* of a stranger, of one that lingers */
	uint64_t sent_ns;     /* when we last sent on our own account */

	/* received and not yet taken apart */
	uint8_t *rx;
	size_t rx_start, rx_end, rx_need; /* need: from rx_start on, to make the next step */
	/* a body that goes to its place without passing rx */
	char *body; /* NULL: thrown away */
	size_t body_left;
	uint32_t body_id;
	uint8_t body_kind; /* TCP_DATA or TCP_PUT */
	uint8_t body_answer;
	struct tcp_mem *body_mem; /* of a put */

	/* to be sent: tx first, unless an item is half sent */
	uint8_t *tx;
	size_t tx_start, tx_end;
	size_t item_sent;
	char *item_copy; /* of one that lingers: the rest of a half sent body */
	unsigned item_first, item_count, gets_owed;
	struct tcp_item item[2 * TCP_WINDOW];

	unsigned chunk_count;
	uint32_t chunk_seq;
	struct tcp_chunk chunk[TCP_WINDOW];

	uint8_t greeting[TCP_GREETING_LEN];
	size_t greeting_len;
};

enum tcp_op_kind { TCP_OP_GET, TCP_OP_PUT, TCP_OP_ADD, TCP_OP_SWAP, TCP_OP_FLUSH };

struct tcp_op {
	struct rpwi_list waiting; /* has parts that are not asked for yet */
	struct rpwi_list posted;  /* of ep->gets or ep->ordered */
	enum tcp_op_kind kind;
	int status;
	unsigned chunks; /* asked for, not answered */
	struct tcp_target target;
	char *local;
	size_t len, issued;
	uint64_t operand, compare, *before;
	void *cookie;
};

enum tcp_ep_state { TCP_EP_MADE, TCP_EP_STARTED, TCP_EP_UP, TCP_EP_FAILED, TCP_EP_CLOSED };

struct tcp_ep {
	struct tran_ep base;
	struct rpwi_list link;    /* t->starting (has a deadline), or the dead */
	struct rpwi_list failing; /* up->failed or up->ready(status) is owed */
	enum tcp_ep_state state;
	bool active, want_room, was_up;
	uint32_t slot;
	uint8_t nonce[TCP_NONCE_LEN];
	char peer_address[64];
	bool same_host;
	struct tcp_handle peer;
	unsigned next_address; /* of the peer: 0 is the one that boot uses */
	uint64_t deadline_ns, attempt_ns;
	struct tcp_stream *stream[TCP_STREAMS_MAX];
	bool open_asked, more_failed;
	struct rpwi_list waiting[2];    /* ops with parts to be asked for: small ones, large ones */
	struct rpwi_list gets, ordered; /* all that is not done; ordered: puts, atomics and flushes, as they were posted */
	unsigned ops;
	int fail_status;
	char fail_why[256];
};

struct tcp {
	struct tran base;
	struct tran_facts own;
	pid_t pid;
	int epoll;
	int listener;
	uint16_t port;
	char congestion[16]; /* what the system gives to sockets of other hosts */
	bool accept_paused, others_talk;
	unsigned in_progress;
	unsigned polls, streams_max;
	uint64_t deadline_ns, accept_again_ns;
	struct tcp_stream *hot[TCP_HOT_MAX];
	unsigned hot_count;
	struct rpwi_list sending, strangers, lingering, starting, failing, dead_streams, dead_eps;
	unsigned stranger_count;
	uint64_t strangers_refused;
	struct tcp_ep **ep;
	unsigned ep_room, ep_count, ep_hint;
	struct tcp_mem **mem;
	unsigned mem_room, mem_free_count;
	uint32_t *mem_free;
	uint64_t random[32];
	unsigned random_left;
	struct rpwi_list op_free;
	unsigned op_free_count;
	uint8_t *buffer[TCP_BUFFERS_KEPT];
	unsigned buffer_count;
};

static inline struct tcp *tcp_of(struct tran *t) { return (struct tcp *)t; }

/* tcp.c */
uint8_t *tcp_buffer_get(struct tcp *t);
void tcp_buffer_put(struct tcp *t, uint8_t *b);
uint64_t tcp_random(struct tcp *t);
void tcp_deadline_lower(struct tcp *t, uint64_t ns);
void tcp_hot_add(struct tcp_stream *s);
void tcp_hot_del(struct tcp_stream *s);

/* tcp_listen.c */
int tcp_listen_start(struct tcp *t);
void tcp_listen_accept(struct tcp *t);
unsigned tcp_listen_addresses(struct tcp_address *out, unsigned max);
/* A stranger sent something. */
void tcp_listen_heard(struct tcp_stream *s);
void tcp_listen_time(struct tcp *t, uint64_t now_ns);
/* Dropped and counted. */
void tcp_listen_refuse(struct tcp_stream *s, const char *why);

/* tcp_ep.c */
int tcp_ep_make(struct tran *t, const struct tran_facts *peer, bool active, void *user, struct tran_ep **out, uint8_t *handle, size_t *handle_len);
int tcp_ep_start(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms);
void tcp_ep_close(struct tran_ep *ep);
/* A stranger showed the nonce of this endpoint: it is a stream of it now, or refused. */
int tcp_ep_attach(struct tcp_ep *ep, struct tcp_stream *s, unsigned index, const char **why);
/* connect() has ended, or the greeting has come. */
void tcp_ep_connected(struct tcp_stream *s);
void tcp_ep_greeted(struct tcp_stream *s);
/* The stream is of no more use: while connecting, the next address; else the endpoint fails. */
void tcp_ep_stream_lost(struct tcp_stream *s, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void tcp_ep_fail(struct tcp_ep *ep, int status, const char *why);
void tcp_ep_report(struct tcp *t);
void tcp_ep_time(struct tcp *t, uint64_t now_ns);
void tcp_ep_more_streams(struct tcp_ep *ep);
/* The peer would like one more; only the side that connects can. */
void tcp_ep_open(struct tcp_ep *ep);

/* tcp_stream.c */
struct tcp_stream *tcp_stream_new(struct tcp *t, int fd, enum tcp_stream_state state, uint32_t events);
/* same_host: both ends of it are here. */
void tcp_stream_set_options(int fd, bool same_host);
void tcp_stream_close(struct tcp_stream *s);
/* Leave the endpoint: what waits in tx, and the rest of what is half sent, still goes out, and then the peer's end is waited for. */
void tcp_stream_linger(struct tcp_stream *s);
void tcp_stream_linger_read(struct tcp_stream *s);
void tcp_stream_time(struct tcp *t, uint64_t now_ns);
/* Bytes at the end of what waits to be sent; NULL: no room. */
uint8_t *tcp_stream_reserve(struct tcp_stream *s, size_t len);
struct tcp_item *tcp_stream_item(struct tcp_stream *s);
/* Something was added: send it soon, or at once. */
void tcp_stream_kick(struct tcp_stream *s);
void tcp_stream_send(struct tcp_stream *s);
/* In progress: send what is due, or everything (now); tell of room. True: something is left. */
bool tcp_stream_flush(struct tcp_stream *s, bool now);
/* How many things happened. */
unsigned tcp_stream_read(struct tcp_stream *s);
/* Take apart what is in rx. For tests too. */
unsigned tcp_stream_parse(struct tcp_stream *s);
void tcp_stream_watch_out(struct tcp_stream *s, bool on);
/* In the epoll set, or not: then only progress looks at it. */
void tcp_stream_watch(struct tcp_stream *s, bool on);
void tcp_stream_forget_mem(struct tcp_stream *s, struct tcp_mem *m);
int tcp_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov, int iovcnt, size_t body_len);

/* tcp_rma.c */
int tcp_rma(struct tran_ep *ep, bool is_put, const struct tran_desc *remote, uint64_t offset, void *local, size_t len, void *cookie);
int tcp_atomic(struct tran_ep *ep, enum tran_atomic op, const struct tran_desc *remote, uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before,
	void *cookie);
int tcp_flush(struct tran_ep *ep, void *cookie);
void tcp_rma_pump(struct tcp_ep *ep);
void tcp_rma_drop(struct tcp_ep *ep);
void tcp_rma_free_ops(struct tcp *t);
/* Requests of the peer, and answers to ours; -1: against the rules, *why says which. */
int tcp_rma_on_get(struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_rma_on_put(struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_rma_on_atomic(struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_rma_on_data(struct tcp_stream *s, const struct tcp_header *h, const char **why);
int tcp_rma_on_done(struct tcp_stream *s, const struct tcp_header *h, const char **why);
/* The body is complete. */
int tcp_rma_body_end(struct tcp_stream *s, const char **why);
/* The body cannot be put where it should: the rest is thrown away, and the transfer fails. */
void tcp_rma_body_fault(struct tcp_stream *s);

/* tcp_mem.c */
int tcp_mem_add(struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out);
void tcp_mem_del(struct tran *t, struct tran_mem *m);
/* The memory that a peer names, if it may do this there; NULL otherwise. */
struct tcp_mem *tcp_mem_find(struct tcp *t, const struct tcp_target *at, size_t len, unsigned access);

#endif
