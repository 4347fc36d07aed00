/* SPDX-License-Identifier: BSD-3-Clause */
/* ropeway.h - messages and remote memory between two processes, on the best path there is between
 * them, and the reason why it was chosen.
 *
 * A context holds everything of one thread: listeners, endpoints, requests. Two contexts share
 * nothing. A side listens on host:port, the other connects; each connection is an endpoint on both.
 * Over an endpoint go tagged messages of any size (matched like MPI's and UCX's: by a 64-bit tag
 * and mask, in order for each endpoint and tag), objects, active messages, and access to registered
 * remote memory. The path is shared memory, verbs (a NIC, kernel rxe, the software device), TCP, or
 * a network plugin of NCCL; it is chosen from both sides' facts when they connect, and
 * rpw_endpoint_info tells which and why.
 *
 * Threads: a context and all that belongs to it is used by one thread at a time. Each call says who
 * may call it:
 *   [context]       the thread that uses the context now; callbacks, too
 *   [no callback]   that thread, but not from inside a callback: that is RPW_ERR_INVALID
 *   [any]           any thread
 * Callbacks run inside rpw_context_progress, calls that wait and rpw_context_destroy;
 * rpw_request_on_done, rpw_endpoint_on_close and rpw_recv_obj call theirs at once if its event has
 * already happened.
 * After fork the context is the parent's: in the child every call of it is RPW_ERR_INVALID.
 *
 * Errors: every call that can fail gives an int, >= 0 or one of enum rpw_status (negative).
 * rpw_last_error says what was expected, what came, from which peer, and what to do. Completions
 * carry their own status. On an error nothing is created and *out stays as it was. NULL where an
 * object is needed is RPW_ERR_INVALID; calls without a status do nothing then, or give NULL or 0.
 * If there is no memory for a call, it is RPW_ERR_NO_MEMORY. Neither is repeated below.
 *
 * Memory: buffers given to a call belong to it until its request is complete. Strings given out
 * live as long as the object that they are about, those of an endpoint until its path changes: copy
 * what is to be kept. Lengths and offsets are in bytes, times in milliseconds.
 *
 * ABI: until 1.0 a release may break, and then names the version node of its symbols anew, so that
 * a program built against another one is refused by the loader. From 1.0 on, programs built against
 * an older 1.x run with every newer one: structs grow at their end only (see `size`), and no call,
 * constant or field changes its meaning. What is taken away waits for 2.0.
 */
#ifndef ROPEWAY_H
#define ROPEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RPW_API __attribute__((visibility("default")))
#else
#define RPW_API
#endif

#define RPW_VERSION_MAJOR 0
#define RPW_VERSION_MINOR 1

/* ---- types ---- */

typedef struct rpw_context rpw_context;
typedef struct rpw_listener rpw_listener;
typedef struct rpw_endpoint rpw_endpoint;
/* An operation under way. */
typedef struct rpw_request rpw_request;
/* Registered local memory. */
typedef struct rpw_memory rpw_memory;
/* A peer's registered memory, as seen through one endpoint. */
typedef struct rpw_rkey rpw_rkey;

enum rpw_status {
	RPW_OK = 0,
	/* Not an error: the request is not complete yet. */
	RPW_IN_PROGRESS = 1,
	/* An argument, or a call at a time when it makes no sense. */
	RPW_ERR_INVALID = -1,
	RPW_ERR_NO_MEMORY = -2,
	/* The peer did not answer in time. */
	RPW_ERR_TIMEOUT = -3,
	RPW_ERR_CANCELED = -4,
	/* The message was longer than the receive's buffer; as much as fits was written, `length`
	 * is the message's. */
	RPW_ERR_TRUNCATED = -5,
	/* Nobody answers at that address, or no path is left. */
	RPW_ERR_UNREACHABLE = -6,
	/* The peer answered and said no: key, version, a listener that is closing. */
	RPW_ERR_REFUSED = -7,
	/* The peer's process ended, or its endpoint was closed, before the operation was done. */
	RPW_ERR_PEER_GONE = -8,
	/* Outside of the registered memory, or a right that its registration did not give. */
	RPW_ERR_ACCESS = -9,
	/* The peer violated the protocol. */
	RPW_ERR_PROTOCOL = -10,
	RPW_ERR_NOT_SUPPORTED = -11,
	/* A bound of the options was reached. */
	RPW_ERR_LIMIT = -12,
	/* A system call failed: rpw_last_error has its errno. */
	RPW_ERR_SYSTEM = -13,
	/* A wait ran out of time, or rpw_context_wake ended it; what was waited for is still under
	 * way. */
	RPW_ERR_EXPIRED = -14,
};

/* [any] "RPW_ERR_TIMEOUT" of RPW_ERR_TIMEOUT; a text for what is none. Static. */
RPW_API const char *rpw_status_name(int status);

/* [any] A sentence on the last error of this thread's calls; never NULL. After the status of a
 * request that failed (rpw_request_test, a wait, in its callback) it is that request's own. Valid
 * until this thread's next call. */
RPW_API const char *rpw_last_error(void);

/* [any] "0.1.0" of the library that runs; compare with RPW_VERSION_* of the header. Static. */
RPW_API const char *rpw_version(void);

/* ---- contexts ---- */

/* Structs that a program allocates begin with their size, so that later versions can append: begin
 * with RPW_..._INIT. Zero in a field of options means its default. What lies beyond the size, or
 * beyond what this version knows, is left alone. A size that is less than a struct's first version
 * had is RPW_ERR_INVALID. */
typedef struct {
	/* sizeof(rpw_context_options) */
	size_t size;
	/* "shm,verbs,tcp" in order of preference, also "ncclnet:PATH[@vN]" (rpw(7)); "": all but
	 * that; NULL: $ROPEWAY_TRANSPORT, or "". */
	const char *transports;
	/* Pre-shared key; NULL: $ROPEWAY_KEY_FILE, or none. Both sides need the same. */
	const char *key_file;
	/* Of messages that came before their receive, for all endpoints; default 64 MiB. Beyond it
	 * senders wait. */
	size_t unexpected_bytes_max;
	/* Messages up to this go at once, longer ones when they have their receive. 0: as measured
	 * for each transport. */
	size_t eager_bytes_max;
	/* "mlx5_0,mlx5_1": verbs uses these, and no others; NULL or "": all. At most 255 bytes. */
	const char *rdma_devices;
	/* The program looks into its memory while it is filled, as NCCL's kernels do: host memory
	 * that tagged messages, gets and peers' puts go to then fills so that of an aligned line of
	 * 128 bytes the last 8 appear after all before them, and 8 aligned bytes at once. Costs
	 * large messages some speed: over tcp a copy more. What a NIC or a hosted plugin writes by
	 * itself has its order; memory of a GPU that is staged has none. */
	bool polled;
	/* Of memory for loans, for each endpoint; default 1 GiB. Beyond it rpw_loan waits. */
	size_t loan_bytes_max;
} rpw_context_options;
#define RPW_CONTEXT_OPTIONS_INIT \
	{ \
		sizeof(rpw_context_options), NULL, NULL, 0, 0, NULL, false, 0 \
	}

/* [any] A context, to be destroyed by the caller.
 * options   NULL: all defaults. Its strings are copied.
 * Gives RPW_OK; RPW_ERR_INVALID (a transport that there is not, a key file that cannot be used),
 * RPW_ERR_NOT_SUPPORTED (a key, and no GnuTLS on this host), RPW_ERR_SYSTEM (no descriptor is
 * left). */
RPW_API int rpw_context_create(const rpw_context_options *options, rpw_context **out);

/* [no callback] Closes what is left in it without waiting for peers. Its requests, listeners,
 * endpoints, memories and keys are then gone. Callbacks of the requests that this ends still run;
 * those of requests posted in these callbacks do not. */
RPW_API void rpw_context_destroy(rpw_context *c);

/* [no callback] Moves things on: delivers what has come, sends what waits, calls callbacks. Never
 * blocks. Gives how many things happened, 0 for nothing. */
RPW_API int rpw_context_progress(rpw_context *c);

/* [context] A descriptor for epoll or poll, the same as long as the context lives, and its own:
 * never read from it, never close it. After rpw_context_arm has given 0, it becomes readable when
 * rpw_context_progress has something to do. */
RPW_API int rpw_context_fd(rpw_context *c);

/* [context] Before sleeping on the descriptor. Gives 0: armed; RPW_IN_PROGRESS: there is something
 * to do already, progress first; RPW_ERR_SYSTEM: a transport's descriptor cannot be waited for. */
RPW_API int rpw_context_arm(rpw_context *c);

/* [any, signal handlers too] A thread that sleeps on the context continues. A wait under way, or
 * the next one that is not done at once, ends with RPW_ERR_EXPIRED; or the descriptor becomes
 * readable, and the next rpw_context_arm returns RPW_IN_PROGRESS, whichever comes first. Several
 * calls that were not noticed yet count once; none is lost. The context must exist until it
 * returns. */
RPW_API void rpw_context_wake(rpw_context *c);

/* ---- listeners ---- */

/* Called for each connection that was made. The endpoint is usable at once, and the callee's to
 * destroy; it lives on when the listener is destroyed. */
typedef void (*rpw_accept_fn)(rpw_listener *l, rpw_endpoint *ep, void *arg);

/* [context] Begins to listen.
 * address   "host:port", "[v6]:port", ":port" (all addresses) or "host:0" (any free port). A host
 *           that is a name is looked up here, which can take 5 s.
 * arg       is handed to `fn`.
 * Gives RPW_OK; RPW_ERR_INVALID (the address, and what is wrong with it), RPW_ERR_SYSTEM (the port
 * is in use, or this host has no such address). */
RPW_API int rpw_listener_create(
	rpw_context *c, const char *address, rpw_accept_fn fn, void *arg, rpw_listener **out);

/* [context] The TCP port that it listens at, 1 to 65535, in host byte order. */
RPW_API int rpw_listener_port(const rpw_listener *l);

/* With its terminating 0. */
enum { RPW_ADDRESS_MAX = 512 };

/* [context] Its address, for programs that carry it themselves (MPI, NCCL, a launcher): text that
 * rpw_endpoint_create takes in any process. It has all addresses of the listener, tried in turn,
 * and identifies its process: another process that answers at one of them is not mistaken for it.
 * It is not a secret, and proves nothing.
 * out       room for `room` bytes; RPW_ADDRESS_MAX always do.
 * Gives its length without the 0; RPW_ERR_LIMIT (too little room), RPW_ERR_SYSTEM (no interface is
 * up). */
RPW_API int rpw_listener_address(const rpw_listener *l, char *out, size_t room);

/* [context] Ends it. Connections that are not complete yet are refused; accepted endpoints stay. */
RPW_API void rpw_listener_destroy(rpw_listener *l);

/* ---- endpoints ---- */

typedef struct {
	size_t size;
	/* Default 10,000: until then the call retries, with back-off. */
	unsigned timeout_ms;
	/* As of the context, for this endpoint. */
	const char *transports;
	/* Do not retry: if no process listens, the call fails once every address was tried. A peer
	 * that is silent still has timeout_ms. */
	bool once;
	/* If the host refuses because no process listens there, retry only for this many
	 * milliseconds; 0: for timeout_ms. For an address that came from its listener. */
	unsigned refused_ms;
} rpw_endpoint_options;
#define RPW_ENDPOINT_OPTIONS_INIT \
	{ \
		sizeof(rpw_endpoint_options), 0, NULL, false, 0 \
	}

/* [context] Begins to connect. The endpoint is there at once, and the caller's to destroy; what is
 * posted on it waits until it is connected, and fails if it is not.
 * address   "host:port", "[v6]:port", or what rpw_listener_address gave. Names are looked up in the
 *           background.
 * options   NULL: all defaults. Its strings are copied.
 * req       completes when the connection is up or has failed; NULL: no request is wanted.
 * Gives RPW_IN_PROGRESS; RPW_ERR_INVALID (the address, the transports), RPW_ERR_LIMIT (endpoints
 * beyond unexpected_bytes_max). The request: RPW_OK; RPW_ERR_UNREACHABLE, RPW_ERR_TIMEOUT (the
 * peer is silent), RPW_ERR_REFUSED (another key, another version), RPW_ERR_CANCELED. */
RPW_API int rpw_endpoint_create(rpw_context *c, const char *address,
	const rpw_endpoint_options *options, rpw_endpoint **out, rpw_request **req);

enum rpw_protection {
	/* Any host between the two, on the network, can read and change it. */
	RPW_PROTECTION_NONE,
	/* Shared memory: it does not leave the host, and the kernel gives access only to this
	 * user. */
	RPW_PROTECTION_KERNEL,
	/* There is a key: TLS 1.3 with keys that only these two processes have. */
	RPW_PROTECTION_TLS,
};
typedef struct {
	size_t size;
	/* "shm", "verbs", "tcp", "ncclnet" */
	const char *transport;
	/* "rpw_eth0, GID 1 ::ffff:10.0.0.1, MTU 1024", "4 streams to 10.0.0.2" */
	const char *path;
	/* "same host: shared memory is the fastest; verbs (rpw_lo) and tcp would do" */
	const char *why;
	/* "host:pid 10.0.0.2:4711" */
	const char *peer;
	/* Unique to this endpoint; exchanged at connect. */
	uint64_t message_tag, control_tag;
	uint64_t peer_message_tag, peer_control_tag;
	bool connected;
	/* Why it failed, when it has; RPW_OK after an orderly end. */
	int status;
	size_t eager_bytes_max;
	/* Of what goes over the path; `why` says it in words. */
	enum rpw_protection protection;
	/* On loan now: what this program holds, and what the peer has not given back. And the most
	 * there may be (rpw_context_options). */
	size_t loan_bytes, loan_bytes_max;
	/* Of the peer's loans, in views that this program has not released. */
	size_t view_bytes;
} rpw_endpoint_information;
#define RPW_ENDPOINT_INFORMATION_INIT \
	{ \
		sizeof(rpw_endpoint_information), NULL, NULL, NULL, NULL, 0, 0, 0, 0, false, 0, 0, \
			RPW_PROTECTION_NONE, 0, 0, 0 \
	}

/* [context] Which path it has, and why.
 * info      size filled in; the strings are the endpoint's, until its path changes.
 * Gives RPW_OK, also of an endpoint that has ended. */
RPW_API int rpw_endpoint_info(rpw_endpoint *ep, rpw_endpoint_information *info);

/* [context] A pointer of the program's, which the library only keeps. */
RPW_API void rpw_endpoint_set_user(rpw_endpoint *ep, void *user);

/* [context] That pointer; NULL where none was set. */
RPW_API void *rpw_endpoint_user(const rpw_endpoint *ep);

/* Called once, after all other events of the endpoint: it has failed (`status` says why), or the
 * peer has closed it (RPW_OK: in order, by rpw_endpoint_shutdown; else RPW_ERR_PEER_GONE). */
typedef void (*rpw_endpoint_closed_fn)(rpw_endpoint *ep, int status, void *arg);

/* [context] Sets the function that is called at the end; at once if it has happened. Not for
 * rpw_endpoint_destroy of this side.
 * fn        replaces an earlier one; NULL: none. */
RPW_API void rpw_endpoint_on_close(rpw_endpoint *ep, rpw_endpoint_closed_fn fn, void *arg);

/* [context] Its request completes when everything that was posted on the endpoint before is done,
 * on the peer's side too: puts and atomics have taken effect, messages are in the peer's library,
 * large ones have been received. So the peer has to progress.
 * Gives as every call that posts (see "requests"). The request: RPW_OK, also when the peer has
 * closed meanwhile and had taken everything before it did; RPW_ERR_PEER_GONE when it had not; else
 * the first error of what was posted before. */
RPW_API int rpw_endpoint_flush(rpw_endpoint *ep, rpw_request **req);

/* [context] The orderly end: a flush, and then the peer learns that nothing more will come. Its
 * rpw_endpoint_closed_fn gets RPW_OK, after everything else; a crash or rpw_endpoint_destroy
 * alone gives RPW_ERR_PEER_GONE. After it, this side can post only receives (others:
 * RPW_ERR_INVALID). The peer's endpoint ends with that; messages that it had sent before are still
 * received here. If both shut down, the later is waited for, both get RPW_OK, and neither loses a
 * message. The endpoint itself is still to be destroyed.
 * Gives, and the request, as rpw_endpoint_flush. */
RPW_API int rpw_endpoint_shutdown(rpw_endpoint *ep, rpw_request **req);

/* [context] What is posted after it takes effect at the peer after what was posted before; of puts,
 * atomics and notifications, which otherwise have no order. Messages keep theirs. No wait, no
 * request. Gives RPW_OK, or the status that the endpoint ended with. */
RPW_API int rpw_endpoint_fence(rpw_endpoint *ep);

/* [context] Closes it. What is still under way completes with RPW_ERR_CANCELED, the peer's with
 * RPW_ERR_PEER_GONE: flush or shut down first where that matters. What the peer had sent whole can
 * be received until then, also after it has gone. Inside a callback the endpoint closes before the
 * rpw_context_progress that called back returns; where another call called back, before the next
 * one does. Its remote keys are the caller's to destroy. */
RPW_API void rpw_endpoint_destroy(rpw_endpoint *ep);

/* ---- requests ----
 *
 * A call that posts gives RPW_OK when it is complete already: then *req is NULL. RPW_IN_PROGRESS:
 * *req is the request, to be destroyed by the caller. Negative: nothing was posted;
 * RPW_ERR_INVALID, or the status that the endpoint ended with. With `req` NULL the request destroys
 * itself when complete. Receives (rpw_recv, rpw_recv_iov, rpw_recv_obj) give a request whenever one
 * is asked for, complete or not: its completion says length, tag and sender.
 *
 * Requests end with RPW_OK; with RPW_ERR_CANCELED, where the program canceled them, or closed their
 * endpoint or context; with RPW_ERR_PEER_GONE, RPW_ERR_UNREACHABLE or RPW_ERR_PROTOCOL, as their
 * endpoint ends; and as their call says. They may be tested, waited on and destroyed after their
 * endpoint was closed, but not after their context was destroyed. Callbacks of requests that
 * rpw_endpoint_destroy ends run in the next rpw_context_progress. */

typedef struct {
	/* sizeof(rpw_completion), set by whoever has it filled. */
	size_t size;
	/* RPW_OK, RPW_IN_PROGRESS or an error. */
	int status;
	/* Of the message, whole, also where it was cut. */
	size_t length;
	/* Of a received message. */
	uint64_t tag;
	/* Of a received message: where it came from. NULL in callbacks that run when this side has
	 * destroyed that endpoint. */
	rpw_endpoint *from;
} rpw_completion;
#define RPW_COMPLETION_INIT \
	{ \
		sizeof(rpw_completion), 0, 0, 0, NULL \
	}

/* [context] Its status, RPW_IN_PROGRESS while it is under way. Does not progress.
 * done      filled when it is complete; may be NULL. */
RPW_API int rpw_request_test(rpw_request *r, rpw_completion *done);

/* [no callback] Progresses until it is complete; spins briefly, then sleeps.
 * timeout_ms   -1: no limit. 0: what can be done now.
 * done         filled when it is complete; may be NULL.
 * Gives its status, or RPW_ERR_EXPIRED: it is still under way. It is the caller's to destroy. */
RPW_API int rpw_request_wait(rpw_request *r, int timeout_ms, rpw_completion *done);

/* [no callback] Posts and waits in one:
 *     rpw_finish(rpw_send(ep, buf, len, tag, &r), &r, timeout_ms, NULL)
 * posted    what the call gave; negative, it is given back, and nothing is waited for.
 * r         is waited for, destroyed, and set to NULL. NULL already: the operation was complete,
 *           and `done` has RPW_OK and no more.
 * Gives the status of the operation, or RPW_ERR_EXPIRED: it is still under way, and *r is there to
 * be waited for again, or canceled. */
RPW_API int rpw_finish(int posted, rpw_request **r, int timeout_ms, rpw_completion *done);

/* [no callback] Progresses until all n are complete. NULL in r counts as complete; the others stay
 * the caller's to destroy.
 * Gives RPW_OK, the first status that is an error, or RPW_ERR_EXPIRED: not all are complete. */
RPW_API int rpw_request_wait_all(rpw_context *c, rpw_request **r, size_t n, int timeout_ms);

/* [context] Asks it to end. It completes, with RPW_ERR_CANCELED or, when it was too late, as it
 * would have; a receive without a message at once. It is still to be destroyed.
 * Gives RPW_OK, also of one that is complete. */
RPW_API int rpw_request_cancel(rpw_request *r);

/* [context] Complete or not: an incomplete one continues by itself, and its end is not reported. */
RPW_API void rpw_request_destroy(rpw_request *r);

/* `done` is valid during the call. The request is still to be destroyed, which can be done here. */
typedef void (*rpw_done_fn)(rpw_request *r, const rpw_completion *done, void *arg);

/* [context] Sets the function that is called at its end, in rpw_context_progress; at once if it is
 * complete.
 * fn        replaces an earlier one that has not been called; NULL: none. */
RPW_API void rpw_request_on_done(rpw_request *r, rpw_done_fn fn, void *arg);

/* ---- tagged messages ---- */

/* [context] Sends `len` bytes. Complete when the buffer can be used again; flush says when they are
 * there. Messages of one endpoint and tag are received in the order sent.
 * buf       the request's until it is complete; NULL where len is 0.
 * Gives as every call that posts. */
RPW_API int rpw_send(
	rpw_endpoint *ep, const void *buf, size_t len, uint64_t tag, rpw_request **req);

/* [context] The same of several pieces, which make one message.
 * iov       copied; the pieces are the request's until it is complete. At most 1,024.
 * Gives as every call that posts. */
RPW_API int rpw_send_iov(
	rpw_endpoint *ep, const struct iovec *iov, int iovcnt, uint64_t tag, rpw_request **req);

/* [context] Receives a message whose tag is equal to `tag` in the bits that `mask` has. Of the
 * receives that match, the one posted first gets it; of the messages that match, the one that came
 * first.
 * ep        NULL: from any endpoint of the context.
 * buf, len  where to; the request's until it is complete.
 * Gives RPW_IN_PROGRESS with a request, complete or not; with req NULL perhaps RPW_OK. When the
 * endpoint has ended and has no such message left: its status. The request: also
 * RPW_ERR_TRUNCATED. */
RPW_API int rpw_recv(rpw_context *c, rpw_endpoint *ep, void *buf, size_t len, uint64_t tag,
	uint64_t mask, rpw_request **req);

/* [context] The same into several pieces, filled one after the other.
 * iov       copied; the pieces are the request's until it is complete. At most 1,024. */
RPW_API int rpw_recv_iov(rpw_context *c, rpw_endpoint *ep, const struct iovec *iov, int iovcnt,
	uint64_t tag, uint64_t mask, rpw_request **req);

/* [context] Is there a message for such a receive? It stays. Does not progress.
 * what      filled with its length, tag and sender; may be NULL.
 * Gives RPW_OK: there is; RPW_IN_PROGRESS: not yet. When the endpoint has ended and has none left:
 * its status. */
RPW_API int rpw_probe(
	rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask, rpw_completion *what);

/* ---- loaned messages ----
 *
 * The sender writes its message into memory of the library's, a loan, and passes it on; the
 * receiver reads it there, in a view, and gives it back. Over shared memory no byte is copied,
 * whatever its length. Over other paths the same calls work, and cost what rpw_send and rpw_recv
 * cost. A loan may be received by rpw_recv, which copies it, and every other tagged message by
 * rpw_recv_view: they are matched alike, in one order. Over shared memory a message of more than
 * 1 KiB that goes as one frame (eager_bytes_max of rpw_endpoint_info) lies in a loan, too, once the
 * peer has received such a message by rpw_recv_view, and until it copies one.
 *
 * The sender can still change a view of its memory, and a hostile one will: check what you have
 * copied, not what you look at. rpw_recv is the call for data that must not change under its
 * reader. Only processes of this user get that far (RPW_PROTECTION_KERNEL).
 *
 * A receiver that keeps its views delays the loans of that endpoint, and nobody else's. The memory
 * of a view, and of a loan that was not sent, stays until it is released or returned: whatever
 * becomes of the endpoint, the context and the peer. */

enum rpw_loan_flags {
	/* The receiver may write into its view. Else its memory is read-only: a store ends the
	 * program by SIGSEGV. */
	RPW_LOAN_WRITABLE = 1,
};
/* Filled by rpw_loan. */
typedef struct {
	/* sizeof(rpw_loaned) */
	size_t size;
	/* Aligned to 64. NULL: there is none, or it was sent or returned. */
	void *data;
	/* At least what was asked for. */
	size_t length;
	/* The library's. */
	void *holder;
	uint64_t number;
} rpw_loaned;
#define RPW_LOANED_INIT \
	{ \
		sizeof(rpw_loaned), NULL, 0, NULL, 0 \
	}

/* [no callback; with timeout_ms 0: context] Memory for one message, with what its last user left
 * in it. Waits for loans that the peer has not given back, with progress.
 * bytes       how many are needed.
 * flags       rpw_loan_flags, added up.
 * timeout_ms  -1: no limit. 0: what there is now.
 * out         to be given to rpw_send_loan or rpw_loan_return.
 * Gives RPW_OK; RPW_ERR_LIMIT (loan_bytes_max is reached; rpw_last_error says who holds how many
 * bytes since when), RPW_ERR_EXPIRED (rpw_context_wake ended the wait), the status that the
 * endpoint ended with. */
RPW_API int rpw_loan(
	rpw_endpoint *ep, size_t bytes, unsigned flags, int timeout_ms, rpw_loaned *out);

/* [context] Sends the first `len` bytes of a loan of this endpoint. The memory is the receiver's
 * then, and comes back by itself when it was released.
 * loan      emptied; untouched where the call fails.
 * Gives as every call that posts; RPW_ERR_INVALID: no loan of this endpoint, sent or returned
 * before, or shorter than len. */
RPW_API int rpw_send_loan(
	rpw_endpoint *ep, rpw_loaned *loan, size_t len, uint64_t tag, rpw_request **req);

/* [context; any one thread when the context was destroyed] Gives back a loan that was not sent.
 * Gives RPW_OK; RPW_ERR_INVALID: it was sent or returned before. */
RPW_API int rpw_loan_return(rpw_loaned *loan);

/* Filled by rpw_recv_view. */
typedef struct {
	/* sizeof(rpw_view) */
	size_t size;
	/* The message, aligned to 64 where it was loaned over shared memory. NULL: there is none,
	 * or it was released. */
	void *data;
	size_t length;
	/* It lies in the sender's memory, which the sender can change. */
	bool loaned;
	/* May be written to; else it is read-only memory. */
	bool writable;
	/* The library's. */
	void *holder;
	uint64_t number;
} rpw_view;
#define RPW_VIEW_INIT \
	{ \
		sizeof(rpw_view), NULL, 0, false, false, NULL, 0 \
	}

/* [context] Receives a message as rpw_recv does, of any length, where it lies: loans, and messages
 * that came in shared memory, in the sender's memory; others in memory of the library's, as much as
 * the sender says (rpw_probe shows how much before).
 * view      filled on completion, so it must exist until then. To be released; after an error there
 *           is none.
 * Gives as rpw_recv. The request: also RPW_ERR_NO_MEMORY. */
RPW_API int rpw_recv_view(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask,
	rpw_view *view, rpw_request **req);

/* [context; any one thread when the context was destroyed] Gives it back, and empties `view`.
 * Gives RPW_OK; RPW_ERR_INVALID: it was released before, or never filled. */
RPW_API int rpw_view_release(rpw_view *view);

/* ---- objects: a size, then the payload, into memory that the receiver's allocator gives ---- */

/* Gives memory for `len` bytes, also for 0. NULL: the object is refused, and its sender told
 * (RPW_ERR_NO_MEMORY on both sides). */
typedef void *(*rpw_alloc_fn)(size_t len, void *arg);

/* [context] Sends an object; objects of one endpoint come in the order sent, apart from tagged
 * messages. Complete when the receiver has taken it, or has refused it.
 * buf       the request's until it is complete; NULL where len is 0.
 * Gives as every call that posts. The request: also RPW_ERR_NO_MEMORY, refused. */
RPW_API int rpw_send_obj(rpw_endpoint *ep, const void *buf, size_t len, rpw_request **req);

/* [context] Receives the next one. Of the receives that it may go to, the one posted first gets it.
 * ep        NULL: from any endpoint of the context; the completion says from which.
 * alloc     NULL: malloc. Called when the size is known, perhaps at once.
 * buf, len  filled on completion, so they must exist until then. The memory is the caller's,
 *           to be freed as its allocator wants; after an error only where *buf is not NULL.
 * Gives as rpw_recv. The request: also RPW_ERR_NO_MEMORY, the allocator gave none. */
RPW_API int rpw_recv_obj(rpw_context *c, rpw_endpoint *ep, rpw_alloc_fn alloc, void *arg,
	void **buf, size_t *len, rpw_request **req);

/* ---- active messages ---- */

/* Runs in rpw_context_progress, in the order sent on each endpoint. header and data are valid
 * during the call; they may be where the peer can still write (shared memory): copy before you
 * check. */
typedef void (*rpw_am_fn)(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg);
enum { RPW_AM_IDS = 256, RPW_AM_HEADER_MAX = 256 };

/* [context] Who takes active messages of this id, from all endpoints. Without one they are dropped.
 * id        0 to RPW_AM_IDS - 1, else RPW_ERR_INVALID.
 * fn        takes the place of an earlier one; NULL: none. */
RPW_API int rpw_context_on_am(rpw_context *c, unsigned id, rpw_am_fn fn, void *arg);

/* [context] Sends one. Complete when the buffer can be used again.
 * header    copied, at most RPW_AM_HEADER_MAX bytes; NULL where header_len is 0.
 * buf       the request's until it is complete; NULL where len is 0.
 * Gives as every call that posts. */
RPW_API int rpw_am_send(rpw_endpoint *ep, unsigned id, const void *header, size_t header_len,
	const void *buf, size_t len, rpw_request **req);

/* ---- memory ---- */

/* CUDA: device memory of an NVIDIA GPU. Once it is registered it can be given to every call that
 * takes a buffer (in one piece, not in a scatter list), and peers can put to it and get from it as
 * from host memory; its owner's processor does atomics, which are atomic towards others of that
 * process only. What is sent has to be there (synchronize its stream first); received bytes are
 * there when the request is complete, for all that is started on the GPU afterwards. Where the
 * path's RDMA device reaches it by itself, messages from it, long ones to it, puts and gets do not
 * pass through host memory; else they do, in a pipeline. */
enum rpw_memory_kind { RPW_MEMORY_HOST = 0, RPW_MEMORY_CUDA = 1 };
enum rpw_access { RPW_REMOTE_WRITE = 1, RPW_REMOTE_READ = 2, RPW_REMOTE_ATOMIC = 4 };

/* [context] Registers memory of the program's, for peers that get its key.
 * access    what they may do: rpw_access, added up; 0 for memory that only this side uses.
 * out       to be destroyed by the caller; the memory must exist until then.
 * Gives RPW_OK; RPW_ERR_INVALID, RPW_ERR_NOT_SUPPORTED (no GPU, no such right of it). */
RPW_API int rpw_memory_register(rpw_context *c, void *addr, size_t len, enum rpw_memory_kind kind,
	unsigned access, rpw_memory **out);

/* [context] The same for memory of a GPU of which the program has a dma-buf.
 * fd        stays the program's, and may be closed afterwards.
 * offset    where in the dma-buf the memory begins.
 * Gives as rpw_memory_register; where no device takes the dma-buf, the memory is reached as if it
 * had been registered by its address. */
RPW_API int rpw_memory_register_dmabuf(rpw_context *c, void *addr, size_t len, int fd,
	uint64_t offset, unsigned access, rpw_memory **out);

/* PEER: by its address (nvidia-peermem). */
enum rpw_direct { RPW_DIRECT_PEER = 1, RPW_DIRECT_DMABUF = 2 };

/* [context] How the RDMA devices that this context may use reach memory of the current GPU (else
 * the first) by themselves, found by registering some with each of them. Takes milliseconds, and
 * may make a CUDA context: ask once.
 * Gives the sum of RPW_DIRECT_*; 0: not, and rpw_last_error says what is missing. */
RPW_API int rpw_memory_direct(rpw_context *c);

/* [context] Memory of ropeway's own, which peers on this host can map: put and get are then plain
 * copies. Messages of 8 KiB and more that are sent out of it are copied once, by their receiver, if
 * `access` has RPW_REMOTE_READ. Page-aligned, zeroed.
 * Gives as rpw_memory_register. */
RPW_API int rpw_memory_allocate(rpw_context *c, size_t len, unsigned access, rpw_memory **out);

/* [context] Where it begins. */
RPW_API void *rpw_memory_address(const rpw_memory *m);

/* [context] How many bytes it has. */
RPW_API size_t rpw_memory_length(const rpw_memory *m);

/* [context] Takes it back, and frees what rpw_memory_allocate gave. Transfers of peers under way
 * end with RPW_ERR_ACCESS on their side; after the return no peer touches it. Waits for devices
 * that do, at most 2 s. */
RPW_API void rpw_memory_destroy(rpw_memory *m);

enum { RPW_RKEY_BYTES_MAX = 512 };

/* [context] What a peer needs to reach the memory: opaque bytes for rpw_rkey_unpack, carried as the
 * program likes. A peer with them and an endpoint has the rights of the registration.
 * out       room for `room` bytes; RPW_RKEY_BYTES_MAX always do.
 * Gives their number; RPW_ERR_LIMIT (too little room), RPW_ERR_NOT_SUPPORTED (no
 * transport of the context can give access). */
RPW_API int rpw_rkey_pack(const rpw_memory *m, void *out, size_t room);

/* [context] The peer's memory, as this endpoint reaches it; the endpoint has to be connected.
 * out       to be destroyed by the caller, when nothing that uses it is under way.
 * Gives RPW_OK; RPW_ERR_PROTOCOL (garbled, or no key), RPW_ERR_NOT_SUPPORTED (of another version),
 * RPW_ERR_ACCESS (of memory that this endpoint's peer does not have), RPW_ERR_INVALID (not
 * connected). */
RPW_API int rpw_rkey_unpack(rpw_endpoint *ep, const void *packed, size_t len, rpw_rkey **out);

/* [context] */
RPW_API void rpw_rkey_destroy(rpw_rkey *k);

/* ---- remote memory: offsets are from the beginning of what was registered ---- */

/* [context] Writes to the peer's memory. Complete when the buffer can be used again; flush says
 * when it has taken effect. Puts have no order among each other, nor towards messages: flush or
 * fence.
 * buf       the request's until it is complete.
 * key       stays the caller's, and must exist until the request is complete.
 * Gives as every call that posts. The request, or a flush: also RPW_ERR_ACCESS. */
RPW_API int rpw_put(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key,
	uint64_t offset, rpw_request **req);

/* [context] Reads from the peer's memory. Complete when the bytes are in `buf`.
 * Arguments and errors as rpw_put. */
RPW_API int rpw_get(rpw_endpoint *ep, void *buf, size_t len, const rpw_rkey *key, uint64_t offset,
	rpw_request **req);

/* [context] Adds to 8 aligned bytes of the peer's, in its byte order, atomic towards other atomics.
 * before    gets the value that was there, on completion; it must exist until then.
 * Gives as every call that posts; RPW_ERR_INVALID: the offset is not a multiple of 8. The request:
 * also RPW_ERR_ACCESS, RPW_ERR_NOT_SUPPORTED. */
RPW_API int rpw_fetch_add(rpw_endpoint *ep, uint64_t add, const rpw_rkey *key, uint64_t offset,
	uint64_t *before, rpw_request **req);

/* [context] Sets 8 aligned bytes of the peer's to `swap` where they are `compare`; else leaves
 * them. Otherwise as rpw_fetch_add. */
RPW_API int rpw_compare_swap(rpw_endpoint *ep, uint64_t compare, uint64_t swap, const rpw_rkey *key,
	uint64_t offset, uint64_t *before, rpw_request **req);

/* All of an array have one size. */
typedef struct {
	/* sizeof(rpw_transfer): how far it is from one to the next. */
	size_t size;
	bool is_get;
	void *buf;
	size_t len;
	const rpw_rkey *key;
	uint64_t offset;
} rpw_transfer;
#define RPW_TRANSFER_INIT \
	{ \
		sizeof(rpw_transfer), false, NULL, 0, NULL, 0 \
	}

/* [context] n puts and gets with one completion, which has the first error of them.
 * t         copied; buffers and keys are the request's until it is complete.
 * Gives, and the request, as rpw_put. */
RPW_API int rpw_transfer_batch(
	rpw_endpoint *ep, const rpw_transfer *t, size_t n, rpw_request **req);

/* [context] A put that notifies the peer when its bytes are there.
 * data      64 bits of the program's, for the peer's rpw_notify_fn.
 * Otherwise as rpw_put. */
RPW_API int rpw_put_notify(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key,
	uint64_t offset, uint64_t data, rpw_request **req);

/* Runs in rpw_context_progress; len: how long the put was. */
typedef void (*rpw_notify_fn)(rpw_endpoint *ep, uint64_t data, size_t len, void *arg);

/* [context] Sets the function that is called for puts with a notification, from all endpoints.
 * Without one they are dropped, so call it before peers can put.
 * fn        replaces an earlier one; NULL: none. */
RPW_API void rpw_context_on_notify(rpw_context *c, rpw_notify_fn fn, void *arg);

/* ---- statistics ---- */

typedef struct {
	size_t size;
	/* Messages of all kinds, since the context was made. */
	uint64_t sent, received, bytes_sent, bytes_received;
	/* Messages that came before their receive; how many bytes of them are held now. */
	uint64_t unexpected, unexpected_bytes;
	/* Sends that the peer had no room for at first. */
	uint64_t waited_for_room;
	uint64_t strangers_refused, path_changes;
	/* Now. */
	unsigned endpoints, listeners, requests;
	/* Not 0: bytes of sends that are complete, or acknowledgements that the peer waits for, are
	 * still in this process, for rpw_context_progress to send. */
	unsigned unsent;
} rpw_statistics;
#define RPW_STATISTICS_INIT \
	{ \
		sizeof(rpw_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* [context] What it has done.
 * s         size filled in.
 * Gives RPW_OK. */
RPW_API int rpw_context_statistics(rpw_context *c, rpw_statistics *s);

#ifdef __cplusplus
}
#endif
#endif
