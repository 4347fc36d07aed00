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
 *   tcp_linger.c  streams that only send what is left
 *   tcp_bundle.c  the streams that all endpoints between two contexts share: made, one more,
 *                 failing, freed
 *   tcp_bulk.c    messages of bulk data
 *   tcp_room.c    words and endpoints that wait for room on a stream
 *   tcp_member.c  who is a member of a bundle: joining, attached, leaving
 *   tcp_greet.c   streams until they stand: connecting, TLS, greeting
 *   tcp_listen.c  the listening socket, and strangers until they have shown a nonce
 *   tcp_ep.c      endpoints: handles, addresses, failing, closing
 *   tcp_recv.c    what a stream received, taken apart
 *   tcp.c         the table of operations, progress, sleeping, time
 *
 * Who may fail what: the code that reads or writes a stream only notes a failure (tcp_bundle_fail,
 * and fail in tcp_ep.c); up->failed is called at the end of progress, so that no caller finds an
 * endpoint gone under its hands. For the same reason what is closed is freed at the end of
 * progress.
 */
#ifndef ROPEWAY_TRAN_TCP_PRIV_H
#define ROPEWAY_TRAN_TCP_PRIV_H

#include <sys/socket.h>
#include <sys/types.h>

#include "ropeway.h"
#include "base/slots.h"
#include "tran/emulate.h"
#include "tran/tcp/tcp_wire.h"

enum {
	/* one send or receive buffer: holds at least three frames of the largest size */
	TCP_BUFFER_LEN = 512 * 1024,
	TCP_BUFFERS_KEPT = 16,  /* of those not in use */
	TCP_HOT_MAX = 4,        /* streams that progress reads without asking epoll */
	TCP_LISTENERS_MAX = 16, /* addresses of this host that peers come to */
	TCP_STRANGERS_MAX = 128,
	/* As long as a path may take: a peer that waits for a CPU is only slow. What keeps
	 * strangers from filling the table is that the oldest goes. */
	TCP_STRANGER_MS = 10000,
	TCP_ENDPOINTS_MAX = 1 << 20,
};

struct tcp_ep;
struct tcp_bundle;
struct tcp_tls;
struct tls_domain;

enum tcp_bulk_state {
	TCP_BULK_MADE,     /* not begun; or its stream is gone, and it will never end */
	TCP_BULK_EXPECTED, /* of ep->expected */
	TCP_BULK_COMES,    /* stream->in */
	TCP_BULK_WAITS,    /* of ep->waiting */
	TCP_BULK_GOES,     /* of stream->out */
	TCP_BULK_GONE,     /* of t->moved */
};

/* A message of bulk data. */
struct tran_bulk {
	struct rpwi_list link;  /* as its state says */
	struct rpwi_list of_ep; /* ep->bulks */
	struct tcp_ep *ep;      /* NULL: closed; a half-sent frame goes on from `copy` */
	struct tcp_stream *stream;
	enum tcp_bulk_state state;
	/* checked: buf may be unmapped by now; refused: nothing of it was sent, and nothing will */
	bool sends, checked, refused;
	bool rest; /* no message, but the end of a long frame */
	uint32_t id;
	int status;
	char *buf, *copy; /* buf NULL: zeros go, incoming bytes are thrown away */
	size_t len, sent; /* sent: of head, body, and the header of its end */
	void *cookie;
	uint8_t head[TCP_HEADER_LEN + TCP_BULK_ID_LEN];
};

enum { TCP_SPARE_MAX = 64 };

/* A long frame that comes. */
struct tcp_long {
	uint32_t id, len;
	uint16_t head_len;
	uint8_t *at, *own; /* at: its place; NULL: nobody wants it. own: where there was none yet */
	uint64_t head[TRAN_HEAD_MAX / 8];
};

enum tcp_stream_state {
	TCP_CONNECTING, /* connect() is under way */
	TCP_SHAKING,    /* the TLS handshake is, on the side that connected */
	TCP_STRANGER,   /* accepted; has not said a good greeting */
	TCP_GREETED,    /* our greeting is out, the peer's not here */
	TCP_UP,
	TCP_LINGERING, /* its bundle was closed here: taken frames are still sent, for a moment */
	TCP_DEAD,
};

struct tcp_stream {
	struct tcp *t;
	struct tcp_bundle *bundle; /* NULL: a stranger, or one that lingers */
	struct rpwi_list link;     /* strangers, or the dead */
	struct rpwi_list sending;  /* of t->sending */
	struct rpwi_list unread;   /* of t->unread: it has bytes that epoll does not know of */
	struct tcp_tls *tls;       /* NULL: bytes go in the clear */
	enum tcp_stream_state state;
	int fd;
	uint16_t index;
	/* unwatched: not in the epoll set; heard: something came since we sent last */
	bool hot, unwatched, wants_out, blocked, heard, one_by_one;
	int send_errno; /* sending is over; what the peer sent before is still to be read */
	unsigned idle_polls, hot_reads;
	uint64_t deadline_ns; /* of a stranger, of one that lingers */
	uint64_t sent_ns;     /* when we last sent on our own account */
	unsigned under_way;   /* of tran_ep, when the last frame came to be sent */
	uint64_t large_ns;    /* when the last large frame was written */
	unsigned run;         /* large frames, each posted soon after that */

	/* received and not yet taken apart */
	uint8_t *rx;
	size_t rx_start, rx_end, rx_need; /* need: from rx_start on, to make the next step */
	/* bulk data that comes: past rx to its place */
	struct tran_bulk *in;
	struct tcp_long *frame; /* or a long frame */
	char *body;             /* NULL: thrown away */
	size_t body_left;
	bool in_body; /* from its header on to that of its end */
	/* what comes next in rx is bulk data that nobody expects yet, or a long frame that waits
	 * for its receive */
	bool stalled;
	/* of the latter: until 0, it does not wait; before since, it has waited long enough */
	uint64_t wait_since_ns, wait_until_ns;
	unsigned looks;              /* since it waits */
	unsigned in_vain, not_again; /* how often none came; so many frames do not wait */
	bool enough; /* taken apart in this round: receives may be posted before the next */

	/* to be sent: tx first, unless a message of bulk data is half sent */
	uint8_t *tx;
	size_t tx_start, tx_end;
	bool corked; /* tx waits for what goes with it */
	/* until then a large frame waits for others to go with; 0: none does */
	uint64_t deferred_ns;
	struct rpwi_list out;
	unsigned out_count;

	uint8_t greeting[TCP_GREETING_LEN];
	size_t greeting_len;
};

enum tcp_ep_state { TCP_EP_MADE, TCP_EP_STARTED, TCP_EP_UP, TCP_EP_FAILED, TCP_EP_CLOSED };

struct tcp_ep {
	_Alignas(64) struct tran_ep base;
	struct tcp_bundle *bundle; /* asked to attach it, or attached; NULL: none yet, or no more */
	enum tcp_ep_state state;
	uint32_t number; /* generation and slot: frames to one that was closed find nobody */
	uint32_t to;     /* peer.number, which each frame has */
	bool active, was_up, peer_left, same_host, keyed;
	bool waited;    /* for room, so that its next large frame waits for no others */
	uint32_t claim; /* of a passive one: the number of the endpoint that asked */
	/* of the bundle: members; wait for room; have bulk data to send */
	struct rpwi_list member, rooming, turn[2];
	struct rpwi_list bulks; /* all of its messages of bulk data: */
	/* small ones and large ones, to be sent; those that may come */
	struct rpwi_list waiting[2], expected;
	unsigned next_address;    /* of the peer: 0 is the one that boot uses */
	struct rpwi_list link;    /* t->starting: has a deadline */
	struct rpwi_list failing; /* up->failed or up->ready(status) is owed */
	uint64_t deadline_ns;
	struct rpwi_error error;                               /* why it failed */
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

/* The endpoint that was attached first: by its nonces the two sides know each other on further
 * streams. */
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
	struct rpwi_list rooming;  /* those that wait for room, the longest first */
	struct rpwi_list turns[2]; /* those with bulk data to send, in turn: small, large */
	unsigned in_turn;          /* how many there are in both */
	unsigned expecting[2];     /* messages of bulk data that may come */
	struct rpwi_list words;    /* about endpoints, which found no room */
	unsigned word_count;
	uint8_t secret[TRAN_SECRET_LEN]; /* the founder's, where it is keyed */
	/* on the side that connected, on the other; number 0: none yet */
	struct tcp_founder founder[2];
	uint32_t greeter;           /* whose peer's nonce was the greeting */
	struct sockaddr_storage to; /* where it was connected to */
	socklen_t to_len;
	uint64_t deadline_ns;
	/* while UP: a stream for bulk data is gone, and the end of the others is waited for */
	struct rpwi_error error;
	char path[160];
};

/* A socket that peers connect to. */
struct tcp_listener {
	int fd;
	uint16_t port;
	char address[64]; /* "": all */
};

/* Large frames that go in one write: their headers and heads; bodies stay where they lie. */
enum { TCP_GATHER_MAX = 16 };
struct tcp_gather {
	struct tcp_stream *of; /* NULL: none are gathered */
	int n;
	size_t len;
	struct iovec iov[1 + 2 * TCP_GATHER_MAX];
	uint8_t head[TCP_GATHER_MAX][TCP_HEADER_LEN + TRAN_HEAD_MAX];
};

struct tcp {
	struct tran base;
	struct tran_facts own;
	size_t polled_read_max; /* asked for at once, where base.polled */
	pid_t pid;
	uint64_t born; /* a forked child leaves its parent's connections alone */
	int epoll;     /* up->set, or our own */
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
	struct rpwi_slots eps;  /* by their numbers */
	struct rpwi_list moved; /* bulk data that has gone, and is to be told */
	struct rpwi_list spare; /* bulk data that is over, for the next */
	unsigned spare_count;
	bool unsent;            /* frames wait for others to go with */
	struct tls_domain *tls; /* made with the first endpoint that has a secret; */
	uint8_t *record;        /* ... with it, the bytes of a record before they are sealed */
	bool keyed;             /* there was one */
	uint64_t random[32];
	unsigned random_left;
	uint8_t *buffer[TCP_BUFFERS_KEPT];
	unsigned buffer_count;
	struct tcp_gather gather;
};

static inline struct tcp *tcp_of(struct tran *t) { return (struct tcp *)t; }

/* ---- tcp_share.c ---- */
uint8_t *tcp_buffer_get(struct tcp *t);
void tcp_buffer_put(struct tcp *t, uint8_t *b);
uint64_t tcp_random(struct tcp *t);
void tcp_deadline_lower(struct tcp *t, uint64_t ns);

/* ---- tcp_number.c ---- */
int tcp_ep_number(struct tcp *t, struct tcp_ep *ep); /* gives it one: 0 or an error */
void tcp_ep_unnumber(struct tcp *t, struct tcp_ep *ep);
struct tcp_ep *tcp_ep_find(struct tcp *t, uint32_t number); /* or NULL */
/* Is it (not NULL) a passive one that waits for its peer, and this its nonce? */
bool tcp_ep_waits(const struct tcp_ep *ep, const uint8_t *nonce);
/* What a caller that names an endpoint and a stream has to know; NULL: nothing like that is waited
 * for. */
const uint8_t *tcp_bundle_secret(struct tcp *t, uint32_t number, unsigned index);

/* ---- tcp_tls.c ---- */
/* As recvmsg, a recv that throws away, and sendmsg; careful: bit i is set where iov[i] may not be
 * mapped. EBADMSG: not of the peer's making. */
ssize_t tcp_io_recv(struct tcp_stream *s, struct iovec *iov, int n);
ssize_t tcp_io_skip(struct tcp_stream *s, size_t len);
ssize_t tcp_io_send(struct tcp_stream *s, struct iovec *iov, int n, uint64_t careful);
/* Something that was sent is not in the socket yet. */
bool tcp_io_waits(const struct tcp_stream *s);
/* The side that connected, with the secret and number of the peer's endpoint; or (NULL) was
 * connected to. */
bool tcp_tls_begin(struct tcp_stream *s, const uint8_t *secret, uint32_t number);
void tcp_tls_free(struct tcp_stream *s);
int tcp_tls_shake(struct tcp_stream *s);  /* 0: up; -EAGAIN; else it failed: tcp_tls_why */
void tcp_tls_alert(struct tcp_stream *s); /* the last failure is reported to the peer */
void tcp_tls_bye(struct tcp_stream *s);
const char *tcp_tls_why(const struct tcp_stream *s);
/* The side that was connected to: it was for this endpoint and stream that the peer knew the
 * secret. */
bool tcp_tls_is_for(const struct tcp_stream *s, uint32_t number, unsigned index);

/* ---- tcp_stream.c ---- */
struct tcp_stream *tcp_stream_new(
	struct tcp *t, int fd, enum tcp_stream_state state, uint32_t events);
/* same_host: both ends of it are here. */
void tcp_stream_set_options(int fd, bool same_host);
void tcp_stream_watch_out(struct tcp_stream *s, bool on);
/* epoll_ctl of a stream or a listener. */
int tcp_watch(const struct tcp *t, int op, int fd, uint32_t events, const void *whose);
/* In the epoll set, or not: then only progress looks at it. */
void tcp_stream_watch(struct tcp_stream *s, bool on);
void tcp_hot_add(struct tcp_stream *s);
/* The endpoint of the long frame that comes ends: its place is the program's again. */
void tcp_long_leave(struct tcp_stream *s, uint32_t number);
/* It is in no list. */
void tcp_bulk_spare(struct tcp *t, struct tran_bulk *b);
void tcp_hot_del(struct tcp_stream *s);
void tcp_stream_close(struct tcp_stream *s);

/* ---- tcp_send.c ---- */
/* Bytes at the end of the queue; NULL: no room. */
uint8_t *tcp_stream_reserve(struct tcp_stream *s, size_t len);
/* The same, but the room for answers stays free. */
uint8_t *tcp_stream_reserve_word(struct tcp_stream *s, size_t len);
/* Something was added: send it soon, or at once. */
void tcp_stream_kick(struct tcp_stream *s);
void tcp_stream_send(struct tcp_stream *s);
bool tcp_eager(struct tran_ep *ep, const void *buf, size_t len);
void tcp_gather(struct tran_ep *ep, bool begins);
int tcp_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len);

/* ---- tcp_linger.c ---- */
/* Leave the bundle: frames in tx, and the rest of a half-sent one, still go out, and then the
 * peer's end is waited for. */
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

/* ---- tcp_bulk.c ---- */
extern const struct tran_bulk_ops tcp_bulk_ops;
/* Streams that have something to send do. */
void tcp_bulk_kick(struct tcp_bundle *b);
/* All that has gone is told to whom it was from. */
void tcp_bulk_tell(struct tcp *t);
/* The endpoint leaves its bundle, or has none: its memory is not touched any more, and its remote
 * memory is over. */
void tcp_bulk_leave(struct tcp_ep *ep);
/* Its header; its end. -1: against the rules, *why says which. 1: nobody expects it yet, the stream
 * is to wait. */
int tcp_bulk_begins(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why);
int tcp_bulk_ends(struct tcp_stream *s, const struct tcp_header *h, const char **why);
/* It cannot be put where it should: the rest is thrown away, and it fails. */
void tcp_bulk_fault(struct tcp_stream *s);

/* ---- tcp_room.c ---- */
/* A word goes now, or waits for room; more of them than WORDS_MAX, and the bundle fails. */
void tcp_bundle_say(struct tcp_bundle *b, const struct tcp_word *word);
/* In progress: send what is due, or everything (now); report room. True: something is left. */
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
/* A stranger greeted: it is stream 0 of a new bundle, or a further one of its bundle, or
 * refused. */
int tcp_bundle_accept(
	struct tcp *t, struct tcp_stream *s, const struct tcp_greeting *g, const char **why);
/* connect() has ended, or the greeting has come. */
void tcp_bundle_connected(struct tcp_stream *s);
/* The handshake went on. */
void tcp_bundle_shaken(struct tcp_stream *s);
void tcp_bundle_greeted(struct tcp_stream *s);

/* ---- tcp_listen.c ---- */
/* The listener at that address of ours; NULL or "": at all. 0 or an error. */
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
/* The peer's whole bundle is no better. */
void tcp_ep_breach(struct tran_ep *ep, const struct rpwi_error *e);
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
/* How much a read asks for at most where the program may look at its place: see tcp_recv.c. */
size_t tcp_polled_read_max(void);

#endif
