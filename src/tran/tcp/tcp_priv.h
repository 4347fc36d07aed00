/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_priv.h - the structs of tran_tcp, and what its files call in each other.
 *
 * From the bottom to the top: each file calls only files that come before it.
 *
 *   tcp_wire.[ch] bytes
 *   tcp_share.c   buffers, random numbers, the next deadline
 *   tcp_number.c  endpoints by their numbers
 *   tcp_tls.c     between a stream and its socket: TLS, where there is a key
 *   tcp_stream.c  one socket: made, watched, closed
 *   tcp_send.c    what a stream has to send; tcp_tx.h: what is asked about that for each frame
 *   tcp_linger.c  what is taken back of that, and streams that only send what is left
 *   tcp_bundle.c  the streams that all endpoints between two contexts share: made, one more, failing, freed
 *   tcp_mem.c     registered memory
 *   tcp_rma.c     gets, puts, atomics, flush: the side that asks, and the side that answers
 *   tcp_room.c    words and endpoints that wait for room on a stream
 *   tcp_member.c  who is a member of a bundle: joining, attached, leaving
 *   tcp_greet.c   streams until they stand: connecting, TLS, greeting
 *   tcp_listen.c  the listening socket, and strangers until they have shown a nonce
 *   tcp_ep.c      endpoints: handles, addresses, failing, closing
 *   tcp_recv.c    what a stream received, taken apart
 *   tcp.c         the table of operations, progress, sleeping, time
 *
 * Who may fail what: the code that reads or writes a stream only notes a failure (tcp_bundle_fail, and fail in tcp_ep.c); up->failed is called at the end of progress, so that no caller
 * finds an endpoint gone under its hands. For the same reason what is closed is freed at the end of progress.
 */
#ifndef ROPEWAY_TRAN_TCP_PRIV_H
#define ROPEWAY_TRAN_TCP_PRIV_H

#include <sys/socket.h>
#include <sys/types.h>

#include "ropeway.h"
#include "tran/slots.h"
#include "tran/tcp/tcp_wire.h"

enum {
	TCP_BUFFER_LEN =
		512 *
		1024, /* one send or receive buffer: holds at least three frames of the largest size */
	TCP_BUFFERS_KEPT = 16,  /* of those not in use */
	TCP_HOT_MAX = 4,        /* streams that progress reads without asking epoll */
	TCP_LISTENERS_MAX = 16, /* addresses of this host that peers come to */
	TCP_STRANGERS_MAX = 128,
	/* As long as a path may take: a peer that waits for a CPU is only slow. What keeps strangers from filling the table is that the oldest goes. */
	TCP_STRANGER_MS = 10000,
	TCP_ENDPOINTS_MAX = 1 << 20,
	TCP_OPS_MAX = 65536, /* rma, atomics and flushes of an endpoint that are not done */
};

struct tcp_ep;
struct tcp_bundle;
struct tcp_op;
struct tcp_tls;
struct tls_domain;

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
	struct tcp_op *
		op; /* NULL: free, or its endpoint was closed meanwhile: what comes is thrown away */
	uint8_t kind; /* TCP_GET, TCP_PUT, TCP_ADD, TCP_SWAP; 0: free */
	uint32_t id;
	uint32_t len;
	char *local;   /* where data goes */
	bool have_all; /* the data has come, its done has not */
};

enum tcp_stream_state {
	TCP_CONNECTING, /* connect() is under way */
	TCP_SHAKING,    /* the TLS handshake is, on the side that connected */
	TCP_STRANGER,   /* accepted; has not said a good greeting */
	TCP_GREETED,    /* our greeting is out, the peer's not here */
	TCP_UP,
	TCP_LINGERING, /* its bundle was closed here: what was taken is still sent, for a moment */
	TCP_DEAD,
};

struct tcp_stream {
	struct tcp *t;
	struct tcp_bundle *bundle; /* NULL: a stranger, or one that lingers */
	struct rpwi_list link;     /* strangers, or the dead */
	struct rpwi_list sending;  /* of t->sending */
	struct rpwi_list unread;   /* of t->unread: TLS has bytes that epoll does not know of */
	struct tcp_tls *tls;       /* NULL: bytes go in the clear */
	enum tcp_stream_state state;
	int fd;
	uint16_t index;
	bool hot, unwatched, wants_out, blocked, heard,
		one_by_one; /* unwatched: not in the epoll set; heard: something came since we sent last */
	int send_errno; /* sending is over; what the peer sent before is still to be read */
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
	char *item_copy; /* the rest of a half sent body whose memory is the program's again */
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
	struct tcp_ep *ep;
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
	struct tcp_bundle *bundle; /* asked to attach it, or attached; NULL: none yet, or no more */
	enum tcp_ep_state state;
	uint32_t number; /* generation and slot: frames to one that was closed find nobody */
	bool active, was_up, peer_left, same_host, keyed;
	uint32_t claim; /* of a passive one: the number of the endpoint that asked */
	struct rpwi_list member, rooming,
		pumping[2]; /* of the bundle: members; wait for room; have parts to be asked for */
	struct rpwi_list waiting[2]; /* ops with parts to be asked for: small ones, large ones */
	struct rpwi_list gets,
		ordered; /* all that is not done; ordered: puts, atomics and flushes, as they were posted */
	unsigned ops;
	unsigned next_address;    /* of the peer: 0 is the one that boot uses */
	struct rpwi_list link;    /* t->starting: has a deadline */
	struct rpwi_list failing; /* up->failed or up->ready(status) is owed */
	uint64_t deadline_ns;
	int fail_status;
	char *fail_why;
	uint8_t nonce[TCP_NONCE_LEN], secret[TRAN_SECRET_LEN]; /* secret: where it is keyed */
	char peer_address[64], peer_name[64];                  /* name: for people, never empty */
	const struct tcp_listener *listener;                   /* of a passive one */
	struct tcp_handle peer;
};

enum tcp_bundle_state {
	TCP_BUNDLE_CONNECTING,
	TCP_BUNDLE_UP,
	TCP_BUNDLE_FAILED,
	TCP_BUNDLE_CLOSED
};

/* The endpoint that was attached first: by its nonces the two sides know each other on further streams. */
struct tcp_founder {
	uint32_t number;
	uint8_t nonce[TCP_NONCE_LEN];
};

/* A word about an endpoint that found no room. */
struct tcp_word {
	struct rpwi_list link;
	uint8_t kind, answer;
	uint32_t to, from;
	uint8_t nonce[TCP_NONCE_LEN];
};

struct tcp_bundle {
	struct tcp *t;
	struct rpwi_list link;    /* t->bundles, or the dead */
	struct rpwi_list opening; /* has a deadline */
	struct rpwi_list failing; /* its members are to be told */
	enum tcp_bundle_state state;
	bool connector, same_host, open_asked, more_failed, keyed;
	struct tcp_stream *stream[TCP_STREAMS_MAX];
	struct rpwi_list members;
	struct rpwi_list rooming; /* those that wait for room, the longest first */
	struct rpwi_list pumping
		[2]; /* those with parts of transfers to be asked for, in turn: small ones, large ones */
	struct rpwi_list words; /* about endpoints, which found no room */
	unsigned word_count;
	uint8_t secret[TRAN_SECRET_LEN]; /* the founder's, where it is keyed */
	struct tcp_founder
		founder[2]; /* on the side that connected, on the other; number 0: none yet */
	uint32_t greeter;   /* whose peer's nonce was the greeting */
	struct sockaddr_storage to; /* where it was connected to */
	socklen_t to_len;
	uint64_t deadline_ns;
	int fail_status; /* while UP: a stream for bulk data is gone, and the end of the others is waited for */
	char fail_why[256], path[160];
};

/* An endpoint's place in t->ep. */
struct tcp_slot {
	struct tcp_ep *ep;
	uint32_t generation;
};

/* A socket that peers connect to. */
struct tcp_listener {
	int fd;
	uint16_t port;
	char address[64]; /* "": all */
};

struct tcp {
	struct tran base;
	struct tran_facts own;
	pid_t pid;
	uint64_t born; /* a forked child leaves its parent's connections alone */
	int epoll;
	struct tcp_listener listener[TCP_LISTENERS_MAX];
	unsigned listener_count;
	char congestion[16]; /* what the system gives to sockets of other hosts */
	bool accept_paused, others_talk;
	unsigned in_progress;
	unsigned polls, streams_max;
	uint64_t deadline_ns, accept_again_ns;
	struct tcp_stream *hot[TCP_HOT_MAX];
	unsigned hot_count;
	struct rpwi_list bundles, sending, strangers, lingering, starting, opening, failing,
		failing_bundles, dead_streams, dead_bundles, unread;
	unsigned stranger_count;
	uint64_t strangers_refused;
	struct tcp_slot *ep;
	unsigned ep_room, ep_count, ep_hint;
	struct tran_slots mem;  /* of struct tcp_mem */
	bool unsent;            /* frames wait for others to go with */
	struct tls_domain *tls; /* made with the first endpoint that has a secret; */
	uint8_t *record;        /* ... with it, the bytes of a record before they are sealed */
	bool keyed;             /* there was one */
	uint64_t random[32];
	unsigned random_left;
	struct rpwi_list op_free;
	unsigned op_free_count;
	uint8_t *buffer[TCP_BUFFERS_KEPT];
	unsigned buffer_count;
};

static inline struct tcp *tcp_of(struct tran *t) { return (struct tcp *)t; }

/* ---- tcp_share.c ---- */
uint8_t *tcp_buffer_get(struct tcp *t);
void tcp_buffer_put(struct tcp *t, uint8_t *b);
uint64_t tcp_random(struct tcp *t);
void tcp_deadline_lower(struct tcp *t, uint64_t ns);

/* ---- tcp_number.c ---- */
int tcp_ep_number(struct tcp *t, struct tcp_ep *ep); /* gives it one: 0 or -ENOMEM */
void tcp_ep_unnumber(struct tcp *t, struct tcp_ep *ep);
struct tcp_ep *tcp_ep_find(struct tcp *t, uint32_t number); /* or NULL */
/* Is it (not NULL) a passive one that waits for its peer, and this its nonce? */
bool tcp_ep_waits(const struct tcp_ep *ep, const uint8_t *nonce);
/* What a caller that names an endpoint and a stream has to know; NULL: nothing like that is waited for. */
const uint8_t *tcp_bundle_secret(struct tcp *t, uint32_t number, unsigned index);

/* ---- tcp_tls.c ---- */
/* As recvmsg, a recv that throws away, and sendmsg; careful: bit i is set where iov[i] may not be mapped. EBADMSG: not of the peer's making. */
ssize_t tcp_io_recv(struct tcp_stream *s, struct iovec *iov, int n);
ssize_t tcp_io_skip(struct tcp_stream *s, size_t len);
ssize_t tcp_io_send(struct tcp_stream *s, struct iovec *iov, int n, uint64_t careful);
/* Something that was sent is not in the socket yet. */
bool tcp_io_waits(const struct tcp_stream *s);
/* The side that connected, with the secret and number of the peer's endpoint; or (NULL) was connected to. */
bool tcp_tls_begin(struct tcp_stream *s, const uint8_t *secret, uint32_t number);
void tcp_tls_free(struct tcp_stream *s);
int tcp_tls_shake(struct tcp_stream *s);  /* 0: up; -EAGAIN; else it failed: tcp_tls_why */
void tcp_tls_alert(struct tcp_stream *s); /* the peer is told of what failed last */
void tcp_tls_bye(struct tcp_stream *s);
const char *tcp_tls_why(const struct tcp_stream *s);
/* The side that was connected to: it was for this endpoint and stream that the peer knew the secret. */
bool tcp_tls_is_for(const struct tcp_stream *s, uint32_t number, unsigned index);

/* ---- tcp_stream.c ---- */
struct tcp_stream *tcp_stream_new(
	struct tcp *t, int fd, enum tcp_stream_state state, uint32_t events);
/* same_host: both ends of it are here. */
void tcp_stream_set_options(int fd, bool same_host);
void tcp_stream_watch_out(struct tcp_stream *s, bool on);
/* In the epoll set, or not: then only progress looks at it. */
void tcp_stream_watch(struct tcp_stream *s, bool on);
void tcp_hot_add(struct tcp_stream *s);
void tcp_hot_del(struct tcp_stream *s);
void tcp_stream_close(struct tcp_stream *s);

/* ---- tcp_send.c ---- */
/* Bytes at the end of what waits to be sent; NULL: no room. */
uint8_t *tcp_stream_reserve(struct tcp_stream *s, size_t len);
/* The same, but the room for answers stays free. */
uint8_t *tcp_stream_reserve_word(struct tcp_stream *s, size_t len);
struct tcp_item *tcp_stream_item(struct tcp_stream *s);
/* Something was added: send it soon, or at once. */
void tcp_stream_kick(struct tcp_stream *s);
void tcp_stream_send(struct tcp_stream *s);
int tcp_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len);

/* ---- tcp_linger.c ---- */
void tcp_stream_forget_mem(struct tcp_stream *s, struct tcp_mem *m);
/* A chunk's memory is the program's again: of a put what is not begun is not sent, and the rest of one that is, is copied; data is thrown away. True: nothing of it is under way. */
bool tcp_stream_forget_chunk(struct tcp_stream *s, struct tcp_chunk *c);
/* Leave the bundle: what waits in tx, and the rest of what is half sent, still goes out, and then the peer's end is waited for. */
void tcp_stream_linger(struct tcp_stream *s);
/* What is left of it. True: something still is. */
bool tcp_stream_linger_send(struct tcp_stream *s);
void tcp_stream_linger_read(struct tcp_stream *s);
void tcp_stream_time(struct tcp *t, uint64_t now_ns);

/* ---- tcp_bundle.c ---- */
struct tcp_bundle *tcp_bundle_new(struct tcp *t);            /* here for tests */
void tcp_bundle_deadline(struct tcp_bundle *b, uint64_t ns); /* RPWI_NEVER: none */
void tcp_bundle_free(struct tcp_bundle *b);
void tcp_bundle_close_streams(struct tcp_bundle *b);
/* A socket on its way to where the bundle was connected to. False: it cannot be. */
bool tcp_bundle_connect_stream(struct tcp_bundle *b, unsigned index);
/* Connect one more stream, or ask the side that can; that side was asked. */
void tcp_bundle_more_streams(struct tcp_bundle *b);
void tcp_bundle_fail(struct tcp_bundle *b, int status, const char *why);
/* The stream is of no more use: without it the bundle fails, at once or soon. */
void tcp_bundle_lost(struct tcp_stream *s, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void tcp_bundle_time(struct tcp *t, uint64_t now_ns);
void tcp_bundle_close_all(struct tcp *t);

/* ---- tcp_mem.c ---- */
int tcp_mem_add(struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out);
void tcp_mem_del(struct tran *t, struct tran_mem *m);
/* The memory that a peer names, if it may do this there; NULL otherwise. */
struct tcp_mem *tcp_mem_find(
	struct tcp *t, const struct tcp_target *at, size_t len, unsigned access);

/* ---- tcp_rma.c ---- */
int tcp_rma(struct tran_ep *ep, bool is_put, const struct tran_desc *remote, uint64_t offset,
	void *local, size_t len, const struct tran_mem *mem, void *cookie);
int tcp_atomic(struct tran_ep *ep, enum tran_atomic op, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie);
int tcp_flush(struct tran_ep *ep, void *cookie);
/* Ask for parts of transfers while there is room, each endpoint in its turn. */
void tcp_rma_pump(struct tcp_bundle *b);
void tcp_rma_drop(struct tcp_ep *ep);
void tcp_rma_free_ops(struct tcp *t);
/* Requests of the peer, and answers to ours; -1: against the rules, *why says which. */
int tcp_rma_on_get(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_rma_on_put(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_rma_on_atomic(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_rma_on_data(struct tcp_stream *s, const struct tcp_header *h, const char **why);
int tcp_rma_on_done(struct tcp_stream *s, const struct tcp_header *h, const char **why);
/* The body is complete. */
int tcp_rma_body_end(struct tcp_stream *s, const char **why);
/* The body cannot be put where it should: the rest is thrown away, and the transfer fails. */
void tcp_rma_body_fault(struct tcp_stream *s);

/* ---- tcp_room.c ---- */
/* A word goes now, or waits for room; more of them than WORDS_MAX, and the bundle fails. */
void tcp_bundle_say(struct tcp_bundle *b, const struct tcp_word *word);
/* In progress: send what is due, or everything (now); tell of room. True: something is left. */
bool tcp_stream_flush(struct tcp_stream *s, bool now);

/* ---- tcp_member.c ---- */
void tcp_bundle_join(struct tcp_bundle *b, struct tcp_ep *ep);
/* Ask the peer to attach it. */
void tcp_bundle_say_attach(struct tcp_bundle *b, const struct tcp_ep *ep);
/* A passive endpoint that was asked for has been started. */
void tcp_bundle_answer(struct tcp_ep *ep);
void tcp_bundle_describe(struct tcp_bundle *b); /* its path, for people */
/* Its operations end, its peer is told; the last member's end is the bundle's. */
void tcp_bundle_leave(struct tcp_ep *ep);
/* Words; -1: against the rules, *why says which. */
int tcp_bundle_on_attach(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_bundle_on_attached(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);

/* ---- tcp_greet.c ---- */
/* Join the bundle to that address, or begin one. False: it cannot be. */
bool tcp_bundle_connect(
	struct tcp_ep *ep, const struct sockaddr_storage *to, socklen_t len, uint64_t attempt_ns);
/* A stranger greeted: it is stream 0 of a new bundle, or a further one of its bundle, or refused. */
int tcp_bundle_accept(
	struct tcp *t, struct tcp_stream *s, const struct tcp_greeting *g, const char **why);
/* connect() has ended, or the greeting has come. */
void tcp_bundle_connected(struct tcp_stream *s);
/* The handshake went on. */
void tcp_bundle_shaken(struct tcp_stream *s);
void tcp_bundle_greeted(struct tcp_stream *s);

/* ---- tcp_listen.c ---- */
/* The listener at that address of ours; NULL or "": at all. 0 or -errno. */
int tcp_listen_start(struct tcp *t, const char *address, const struct tcp_listener **out);
void tcp_listen_accept(struct tcp *t, const struct tcp_listener *l);
void tcp_listen_end(struct tcp *t);
/* Where it can be reached, beside the address that the control path has. */
unsigned tcp_listen_addresses(const struct tcp_listener *l, struct tcp_address *out, unsigned max);
/* A stranger sent something. */
void tcp_listen_heard(struct tcp_stream *s);
void tcp_listen_time(struct tcp *t, uint64_t now_ns);

/* ---- tcp_ep.c ---- */
int tcp_ep_make(struct tran *t, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len);
int tcp_ep_start(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms);
void tcp_ep_close(struct tran_ep *ep);
/* The peer says that it has none like it, or no more. -1: against the rules, *why says which. */
int tcp_ep_on_close(struct tcp_stream *s, const struct tcp_header *h, const char **why);
/* What was noted is told: bundles that failed, then endpoints. */
void tcp_ep_report_bundles(struct tcp *t);
void tcp_ep_report(struct tcp *t);
void tcp_ep_free_all(struct tcp *t); /* in a forked child: nobody is told */
void tcp_ep_time(struct tcp *t, uint64_t now_ns);

/* ---- tcp_recv.c ---- */
/* How many things happened. */
unsigned tcp_stream_read(struct tcp_stream *s);
/* Take apart what is in rx. For tests too. */
unsigned tcp_stream_parse(struct tcp_stream *s);

#endif
