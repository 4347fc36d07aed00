/* SPDX-License-Identifier: BSD-3-Clause */
/* boot.h - the control path: a TCP connection for each endpoint, over which the two sides say
 * hello, exchange opaque handles, and later notice each other's end.
 *
 * Messages are whole, always: a length, a type, bytes; never one recv() assumed complete. The hello
 * has magic, version, byte order, and struct tran_facts. With a pre-shared key the connection is
 * TLS 1.3 with that key (GnuTLS), and nothing but the TLS handshake is answered without it.
 * Strangers (port scans, other protocols, other versions, silence) cost a bounded time
 * (HELLO_TIMEOUT_MS) and memory, a counter and one line of the log, never the listener.
 *
 * Threads and up-calls: as tran.h. Nothing blocks; name look-ups do not either for numeric
 * addresses, and run in a thread of their own for names.
 */
#ifndef ROPEWAY_BOOT_H
#define ROPEWAY_BOOT_H

#include "tran/tran.h"

struct boot;
struct boot_listener;
struct boot_conn;

enum {
	BOOT_MESSAGE_MAX = 8192,
	BOOT_HELLO_TIMEOUT_MS = 3000,
	/* connections of a listener that have not said a valid hello yet; beyond it the oldest
	 * goes */
	BOOT_STRANGERS_MAX = 128,
	BOOT_QUEUE_MAX = 64 * 1024, /* bytes not yet taken by the kernel, for each connection */
};

struct boot_up {
	/* A peer came to a listener, and its hello is good; the connection is the callee's to
	 * close. */
	void (*accepted)(void *user, void *listener_user, struct boot_conn *c);
	/* Our boot_connect: connected and hello exchanged (NULL), or given up: then the connection
	 * is to be closed. */
	void (*connected)(void *conn_user, const struct rpwi_error *e);
	/* A message; data valid during the call. */
	void (*message)(void *conn_user, unsigned type, const uint8_t *data, size_t len);
	/* The connection ended: RPW_ERR_PEER_GONE (closed, reset, keep-alive unanswered),
	 * RPW_ERR_PROTOCOL. No further up-calls. */
	void (*gone)(void *conn_user, const struct rpwi_error *e);
	/* Is there no room for one more peer beside `coming`, of whom `accepted` is still to tell?
	 * Then the next wait in the kernel's backlog. NULL: there always is. */
	bool (*is_full)(void *user, unsigned coming);
};

/* 0 or an error */
int boot_new(const struct boot_up *up, void *user, const struct tran_facts *own,
	const char *key_file /* or NULL */, struct boot **out);
void boot_free(struct boot *b);
unsigned boot_progress(struct boot *b);
/* An epoll set: readable when progress has something to do. Others may have descriptors in it, too,
 * whose data.u64 is 0 or odd. */
int boot_fd(struct boot *b);
uint64_t boot_deadline(const struct boot *b);

/* "host:port", "[v6]:port", ":port" (IPv4 and IPv6), "host:0". 0 or an error. A host that is a name
 * is looked up here, which may take 5 s. */
int boot_listen(
	struct boot *b, const char *address, void *listener_user, struct boot_listener **out);
int boot_listener_port(const struct boot_listener *l);
/* Its address for boot_connect of any process: text of at most RPW_ADDRESS_MAX bytes. Its length,
 * or an error. */
int boot_listener_contact(const struct boot_listener *l, char *out, size_t room);
void boot_listener_free(struct boot_listener *l);
uint64_t boot_strangers(const struct boot *b);

/* Tries until timeout_ms, with back-off (10 ms, doubled, at most 1 s): refused, unreachable, closed
 * before the hello; a wrong key or version is final. */
int boot_connect(struct boot *b, const char *address, unsigned timeout_ms, void *conn_user,
	struct boot_conn **out);
/* Of a connection that is being made: it ends when a round of its addresses was in vain. */
void boot_connect_once(struct boot_conn *c);
/* Likewise: it ends once it has been refused for so long, and nothing but that. */
void boot_connect_refused(struct boot_conn *c, unsigned ms);
void boot_set_user(struct boot_conn *c, void *conn_user);
/* Connecting is under way: what the last try met, and how many there were; "" before the first has
 * ended. */
void boot_trouble(const struct boot_conn *c, char *out, size_t room);
const struct tran_facts *boot_peer(const struct boot_conn *c);
/* Own address, numeric, that the peer came to, where the listener has certain addresses; "": it has
 * all, or this side connected. */
const char *boot_local(const struct boot_conn *c);
const char *boot_peer_text(const struct boot_conn *c); /* "host:pid 10.0.0.2:4711" */
/* RFC 5705, from the TLS session of a connection with a key, once accepted or connected was called:
 * bytes that the two ends of this connection can make, and nobody else, for whatever the layer
 * above wants to protect. 0, or RPW_ERR_INVALID: there is no key. */
int boot_export(const struct boot_conn *c, const char *label, const void *context,
	size_t context_len, uint8_t *out, size_t len);
bool boot_has_key(const struct boot *b);
/* Queued, in order, once accepted or connected was called. 0, or RPW_ERR_LIMIT beyond
 * BOOT_QUEUE_MAX, RPW_ERR_PEER_GONE, RPW_ERR_INVALID (too long, or too early). */
int boot_send(struct boot_conn *c, unsigned type, const void *data, size_t len);
void boot_close(struct boot_conn *c); /* what is queued is sent first, for a moment */

/* The facts of this process (host ID, PID, ...); `transports` is left to the caller. Those of a
 * peer are what it says: well-formed, not proven. */
void boot_own_facts(struct tran_facts *out);

#endif
