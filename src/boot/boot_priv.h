/* SPDX-License-Identifier: BSD-3-Clause */
/* boot_priv.h - what the files of boot share.
 *
 * From the bottom to the top: each file calls only files that come before it.
 *
 * hello.c, addr.c, facts.c, key.c   without sockets set.c      the epoll set, the next deadline,
 * whose process it is bytes.c    a buffer that grows stranger.c strangers are counted, and leave
 * names.c    look-ups in threads of their own contact.c  a listener's address as text, and back
 * turns.c    who may connect now, where each costs memory tls.c      the connection's session of
 * src/tls, and bytes that go out through it conn.c     a connection: its states, its socket, its
 * queue, how it ends dial.c     the connecting side until TCP stands: addresses in turn, back-off,
 * the deadline lost.c     a connection that cannot go on greet.c    the two hellos message.c  bytes
 * to whole messages tls_feed.c a filter between the socket's bytes and the messages': the
 * handshake, then records event.c    what happens to a connection, handed to the file that knows
 * what to do listen.c   the listening side: sockets, strangers until the hello boot.c     all of
 * it, made and freed; progress
 *
 * Up-calls may close any connection and free any listener: what dies during boot_progress is
 * unlinked and its socket closed at once, its memory freed when progress returns.
 */
#ifndef ROPEWAY_BOOT_PRIV_H
#define ROPEWAY_BOOT_PRIV_H

#include "boot/addr.h"
#include "boot/boot.h"
#include "boot/hello.h"

enum {
	LINGER_MS = 1000, /* how long boot_close goes on sending */
	ACCEPTS_MAX = 32, /* new connections a round: those that are there say their hello first */
	PAUSE_MS = 100,   /* when no descriptor is left, until the listener tries again */
	FULL_MS = 10,     /* likewise, while the callee has no room for a peer */
	GRACE_MS = 200,   /* so long the oldest stranger stays, however many come after it */
	LOG_LINES_MAX = 10, /* about strangers, each second */
	/* handshakes with a key that we are in at once, each at most TURN_MS: malloc keeps what a
	 * thousand needed while they were made */
	TURNS_MAX = 64,
	TURN_MS = 50,
};

enum boot_source_kind { SOURCE_NAMES, SOURCE_LISTENER, SOURCE_CONN };
/* What an event of the epoll set is about: the first member of its object. */
struct boot_source {
	enum boot_source_kind kind;
};

enum boot_conn_state {
	CONN_LOOKUP,     /* connecting: waits for names.c */
	CONN_WAITING,    /* connecting: until the next try */
	CONN_CONNECTING, /* connecting: TCP */
	CONN_TLS,        /* both sides, where there is a key */
	CONN_HELLO,      /* both sides: until the peer's hello */
	CONN_OPEN,
	CONN_ENDED, /* told to the callee, who has yet to close it */
	/* closed by the callee, or a stranger that is told why: queued bytes are sent, then the
	 * peer's end awaited */
	CONN_LINGER,
	CONN_DEAD, /* waits to be freed */
	CONN_STATES,
};

struct boot_bytes {
	uint8_t *p;
	size_t len, room;
};

struct boot {
	const struct boot_up *up;
	void *user;
	struct tran_facts own;
	int epoll_fd;
	bool busy; /* inside boot_progress */
	/* of the process: a forked child leaves its parent's connections alone */
	unsigned generation;
	uint64_t deadline_ns;
	struct rpwi_list conns, timed, listeners, dead_conns, dead_listeners;
	/* dials: those that have a turn, oldest first, and those that wait for one */
	struct rpwi_list turns, turn_queue;
	unsigned nturns;
	struct boot_names *names;
	struct boot_key *key; /* NULL: none */
	uint64_t strangers;
	uint64_t log_window_ns;
	unsigned log_lines, log_left_out;
	uint32_t random;
	uint8_t scratch[32 * 1024]; /* what one recv takes */
};

/* Whose process an address is to lead to. */
struct boot_contact {
	bool known;
	uint32_t pid;
	uint8_t host_id[16];
};

enum boot_turn { TURN_NONE, TURN_WAITS, TURN_HAS };

struct boot_dial {
	struct boot_conn *c;
	struct rpwi_list turn_link;
	enum boot_turn turn;
	uint64_t turn_until_ns;
	char text[BOOT_HOST_MAX + 8];
	char host[BOOT_HOST_MAX];
	uint16_t port;
	struct boot_contact contact; /* known: `addrs` stand, and there is no host to look up */
	struct boot_addrs addrs;
	unsigned next, tries;
	bool once; /* a round in vain is the last one */
	unsigned backoff_ms, timeout_ms, refused_ms;
	uint64_t give_up_ns;
	uint64_t refused_ns; /* since then every try was refused; 0: the last was not */
	struct boot_lookup *lookup;
	int status; /* of the last try */
	char why[300];
	const char *hint; /* what to do about it; NULL: `why` says it */
};

struct boot_conn {
	struct boot_source source;
	enum boot_conn_state state;
	struct boot *b;
	struct rpwi_list link, timer, stranger;
	struct boot_listener *listener; /* while a stranger */
	struct boot_dial *dial;         /* while connecting */
	struct boot_tls *tls;
	int fd;
	int send_errno; /* sending failed: the end is told from progress */
	uint32_t interest;
	bool counted, finished; /* as a stranger; nothing more is sent */
	uint64_t deadline_ns;
	void *user;
	struct boot_bytes in, out;
	struct tran_facts peer;
	char where[BOOT_WHERE_MAX];
	char text[192];
	char local[64];
};

enum { LISTENER_SOCKETS_MAX = 4 };
struct boot_listener_socket {
	struct boot_source source;
	int fd;
	bool all; /* addresses */
	struct boot_listener *l;
};
struct boot_listener {
	struct boot *b;
	struct rpwi_list link, strangers;
	unsigned nstrangers;
	void *user;
	unsigned nsockets;
	int port;
	uint64_t paused_until_ns; /* RPWI_NEVER: not paused */
	bool dead;
	struct boot_listener_socket socket[LISTENER_SOCKETS_MAX];
};

/* ---- set.c ---- */
void boot_make_ours(struct boot *b); /* it is this process's */
bool boot_is_ours(const struct boot *b);
int boot_watch(struct boot *b, int fd, struct boot_source *source, uint32_t events);
void boot_deadline_lower(struct boot *b, uint64_t deadline_ns);
/* May a line about strangers be logged? When it may, *left_out is how many were not before it. */
bool boot_may_log(struct boot *b, unsigned *left_out);

/* ---- bytes.c ---- */
int boot_bytes_add(struct boot_bytes *b, const void *p, size_t len); /* 0 or -ENOMEM */
void boot_bytes_free(struct boot_bytes *b);

/* ---- stranger.c ---- */
/* Counts and logs a stranger, once; `people` for what a person will want to repair: another
 * version, another key. */
void boot_stranger_count(struct boot_conn *c, bool people, const char *why);
void boot_stranger_leaves(struct boot_conn *c); /* the listener's list */

/* ---- names.c ---- */
struct boot_names;
struct boot_lookup;
typedef void boot_names_resolved(
	struct boot_conn *c, const struct boot_addrs *addrs, int gai_error);
int boot_names_new(struct boot *b, struct boot_names **out); /* 0 or -errno */
/* waits for no thread; ours: this is not a forked child */
void boot_names_free(struct boot_names *n, bool ours);
/* `resolved` follows, from boot_names_progress, unless the look-up is forgotten before. NULL: no
 * memory. */
struct boot_lookup *boot_names_ask(struct boot_names *n, const char *host, uint16_t port,
	struct boot_conn *c, boot_names_resolved *resolved);
void boot_names_forget(struct boot_lookup *l);
/* For listeners: waits. 0 or an EAI_ error. */
int boot_names_wait(struct boot_names *n, const char *host, uint16_t port, unsigned timeout_ms,
	struct boot_addrs *out);
unsigned boot_names_progress(struct boot_names *n);

/* ---- contact.c ---- */
bool boot_is_contact(const char *address);
/* 0 or enum rpw_status */
int boot_contact_parse(const struct boot *b, const char *address, struct boot_contact *out,
	struct boot_addrs *addrs);
bool boot_contact_is(const struct boot_contact *k, const struct tran_facts *peer);

/* ---- turns.c ---- */
void boot_turn_end(struct boot_dial *d);
bool boot_turn_is_free(struct boot *b, uint64_t now_ns);
bool boot_turn_take(struct boot_dial *d); /* false: it waits for one */

/* ---- conn.c ---- */
struct boot_conn *boot_conn_new(struct boot *b, void *user);
void boot_conn_move(struct boot_conn *c, enum boot_conn_state to);
/* Its socket, with the options that all have. 0 or -errno (the socket is closed). */
int boot_conn_attach(struct boot_conn *c, int fd, uint32_t events);
void boot_conn_detach(struct boot_conn *c);
void boot_conn_timer(struct boot_conn *c, uint64_t deadline_ns); /* RPWI_NEVER: none */
void boot_conn_where(struct boot_conn *c, const struct boot_addr *a);
/* Bytes for the socket, as they are: 0 or -ENOMEM. */
int boot_conn_put(struct boot_conn *c, const void *p, size_t len);
/* Bytes of ours, to be encrypted where there is a key. */
int boot_conn_say(struct boot_conn *c, const void *p, size_t len);
void boot_conn_flush(struct boot_conn *c);
void boot_conn_dial_done(struct boot_conn *c); /* it connects no more */
void boot_conn_linger(struct boot_conn *c);
void boot_conn_bury(struct boot_conn *c);
void boot_conn_free(struct boot_conn *c);

/* ---- dial.c ---- */
unsigned boot_dial_timeout(struct boot_conn *c, uint64_t now_ns);
/* false: it was not, and the next is tried */
bool boot_dial_meant(struct boot_conn *c, const struct tran_facts *peer);
/* TCP answered. True: it stands; else the next try is under way. */
bool boot_dial_established(struct boot_conn *c);
/* This try failed: the next address, or later. */
void boot_dial_failed(struct boot_conn *c, int status, const char *why);
/* No try can do better: the callee is told. */
void boot_dial_refused(struct boot_conn *c, int status, const char *why);
void boot_dial_turns(struct boot *b); /* those that wait for a turn, as far as there are any */

/* ---- lost.c ---- */
/* The connection cannot go on; what that means depends on its state: another try, a stranger that
 * left, the end. */
void boot_conn_broken(struct boot_conn *c, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void boot_conn_lost(struct boot_conn *c, int err); /* 0: its end; else errno */

/* ---- greet.c ---- */
void boot_greet(struct boot_conn *c); /* our hello */
/* How long the peer's hello is, as far as its bytes tell; -1: it is not acceptable, and was dealt
 * with. */
ssize_t boot_greet_len(struct boot_conn *c, const uint8_t *p, size_t len);
void boot_greet_came(struct boot_conn *c, const uint8_t *p, size_t len);
void boot_greet_not_ropeway(struct boot_conn *c, const uint8_t *p, size_t len);

/* ---- message.c ---- */
/* Bytes of the peer's, decrypted. */
void boot_conn_take(struct boot_conn *c, const uint8_t *p, size_t len);

/* ---- event.c ---- */
/* TCP stands: TLS, or our hello. */
void boot_conn_begin(struct boot_conn *c);
unsigned boot_conn_event(struct boot_conn *c, uint32_t events);
unsigned boot_conn_timeout(struct boot_conn *c, uint64_t now_ns);
unsigned boot_conn_read(struct boot_conn *c);

/* ---- listen.c ---- */
unsigned boot_listener_accept(struct boot_listener_socket *s);
void boot_listener_timers(struct boot *b, uint64_t now_ns);
void boot_listener_bury(struct boot_listener *l);

#endif
