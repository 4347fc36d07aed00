/* SPDX-License-Identifier: BSD-3-Clause */
/* ropeway.h - messages and remote memory between two processes, on the best path there is between them, and the reason why it was chosen.
 *
 * A context holds everything of one thread: listeners, endpoints, requests. Two contexts share nothing. A side listens on host:port, the other connects; each connection is an
 * endpoint on both. Over an endpoint go tagged messages of any size (matched like MPI's and UCX's: by a 64-bit tag and mask, in order for each endpoint and tag),
 * objects, active messages, and access to registered remote memory. The path is shared memory, verbs (a NIC, kernel rxe, the software device) or TCP; it is
 * chosen from both sides' facts when they connect, and rpw_endpoint_info tells which and why.
 *
 * Threads: a context and all that belongs to it is used by one thread at a time. Callbacks run inside rpw_context_progress, calls that wait and rpw_context_destroy; rpw_request_on_done, rpw_endpoint_on_close
 * and rpw_recv_obj call theirs at once when what it is about is there already. They may post, cancel, free, close endpoints, release memory and destroy listeners, but may not progress, wait or
 * destroy the context: that is RPW_ERR_INVALID.
 *
 * Errors: every call that can fail gives an int, >= 0 or one of enum rpw_status (negative). rpw_last_error says what was expected, what came, from whom, and what to do.
 * Completions carry a status of their own. On an error nothing is created and *out is left alone. NULL where an object is needed is RPW_ERR_INVALID; calls without a status do nothing then, or
 * give NULL or 0.
 *
 * Memory: buffers given to a call belong to it until its request is complete. Strings given out live as long as the object that they are about, those of an endpoint until its path changes:
 * copy what is to be kept.
 *
 * ABI: until 1.0 a release may break, and then names the version node of its symbols anew, so that a program built against another one is refused by the loader. From 1.0 on, programs built against
 * an older 1.x run with every newer one: structs grow at their end only (see `size`), and no call, constant or field changes its meaning. What is taken away waits for 2.0.
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
typedef struct rpw_request rpw_request; /* an operation under way */
typedef struct rpw_memory rpw_memory;   /* registered local memory */
typedef struct rpw_rkey rpw_rkey;       /* a peer's registered memory, as seen through one endpoint */

enum rpw_status {
	RPW_OK = 0,
	RPW_IN_PROGRESS = 1,  /* not an error: the request is not complete yet */
	RPW_ERR_INVALID = -1, /* an argument, or a call at a time when it makes no sense */
	RPW_ERR_NO_MEMORY = -2,
	RPW_ERR_TIMEOUT = -3, /* the peer did not answer in time */
	RPW_ERR_CANCELED = -4,
	RPW_ERR_TRUNCATED = -5,   /* the message was longer than the receive's buffer; as much as fits was written, `length` is the message's */
	RPW_ERR_UNREACHABLE = -6, /* nobody answers at that address, or no path is left */
	RPW_ERR_REFUSED = -7,     /* the peer answered and said no: key, version, a listener that is closing */
	RPW_ERR_PEER_GONE = -8,   /* the peer's process ended, or its endpoint was closed, before the operation was done */
	RPW_ERR_ACCESS = -9,      /* outside of the registered memory, or a right that its registration did not give */
	RPW_ERR_PROTOCOL = -10,   /* the peer sent what it must not */
	RPW_ERR_NOT_SUPPORTED = -11,
	RPW_ERR_LIMIT = -12,   /* a bound of the options was reached */
	RPW_ERR_SYSTEM = -13,  /* a system call failed: rpw_last_error has its errno */
	RPW_ERR_EXPIRED = -14, /* a wait ran out of time, or rpw_context_wake ended it; what was waited for is still under way */
};
RPW_API const char *rpw_status_name(int status);
/* A sentence on the last error of this thread's calls; never NULL. After the status of a request that failed (rpw_request_test, a wait, in its callback): that request's own. */
RPW_API const char *rpw_last_error(void);
/* "0.1.0" of the library that runs; compare with RPW_VERSION_* of the header. */
RPW_API const char *rpw_version(void);

/* ---- contexts ---- */

/* Structs that a program allocates begin with their size, so that later versions can append: begin with RPW_..._INIT. Zero in a field of options means its default. What lies beyond the size, or beyond
 * what this version knows, is left alone. A size that is less than a struct's first version had is RPW_ERR_INVALID. */
typedef struct {
	size_t size; /* sizeof(rpw_context_options) */
	const char
		*transports;  /* "shm,verbs,tcp" in order of preference, also "ncclnet:PATH[@vN]" (rpw(7)); "": all but that; NULL: $ROPEWAY_TRANSPORT, or "" */
	const char *key_file; /* pre-shared key; NULL: $ROPEWAY_KEY_FILE, or none. Both sides need the same */
	size_t unexpected_bytes_max; /* of messages that came before their receive, for all endpoints; default 64 MiB. Beyond it senders wait */
	size_t eager_bytes_max;      /* 0: as measured for each transport */
	const char *rdma_devices;    /* "mlx5_0,mlx5_1": verbs uses these, and no others; NULL or "": all. At most 255 bytes */
	/* The program looks into its memory while it is filled, as NCCL's kernels do: host memory that tagged messages, gets and peers' puts go to then fills so that of an aligned line of 128 bytes the
	 * last 8 appear after all before them, and 8 aligned bytes at once. Costs large messages some speed: over tcp a copy more. What a NIC or a hosted plugin writes by itself has its order; memory of a
	 * GPU that is staged has none. */
	bool polled;
} rpw_context_options;
#define RPW_CONTEXT_OPTIONS_INIT \
	{ \
		sizeof(rpw_context_options), NULL, NULL, 0, 0, NULL, false \
	}
RPW_API int rpw_context_create(const rpw_context_options *options /* may be NULL */, rpw_context **out);
/* Closes what is left in it without waiting for anybody; callbacks of the requests that this ends still run, those of what is posted in them do not. */
RPW_API void rpw_context_destroy(rpw_context *c);

/* Move things on: deliver what has come, send what waits, call callbacks. How many things happened; 0: nothing. Never blocks. */
RPW_API int rpw_context_progress(rpw_context *c);
/* A descriptor for epoll or poll: after rpw_context_arm has said 0, it becomes readable when rpw_context_progress has something to do.
 * arm: 0 armed; RPW_IN_PROGRESS: there is something to do already, progress first. */
RPW_API int rpw_context_fd(rpw_context *c);
RPW_API int rpw_context_arm(rpw_context *c);
/* From any thread and from signal handlers, as long as the context is there: whoever sleeps on the context goes on. A wait under way, or the next one that is not done at once, ends with
 * RPW_ERR_EXPIRED; or the descriptor becomes readable, and the next rpw_context_arm says RPW_IN_PROGRESS, whichever comes first. Several that nobody has noticed yet count once; none is lost. */
RPW_API void rpw_context_wake(rpw_context *c);

/* ---- listeners and endpoints ---- */

/* Called for each connection that was made; the endpoint is usable at once, and the callee's to close. */
typedef void (*rpw_accept_fn)(rpw_listener *l, rpw_endpoint *ep, void *arg);
/* `address` is "host:port", "[v6]:port", ":port" (all addresses) or "host:0" (any free port). */
RPW_API int rpw_listener_create(rpw_context *c, const char *address, rpw_accept_fn fn, void *arg, rpw_listener **out);
RPW_API int rpw_listener_port(const rpw_listener *l);
/* For those who carry it themselves (MPI, NCCL, a launcher): text that rpw_endpoint_create of any process takes as address, at most RPW_ADDRESS_MAX bytes with its 0. It has all addresses that the
 * listener is at, tried in turn, and whose process it is: who else answers at one of them is not taken for it. Gives its length. */
enum { RPW_ADDRESS_MAX = 512 };
RPW_API int rpw_listener_address(const rpw_listener *l, char *out, size_t room);
RPW_API void rpw_listener_destroy(rpw_listener *l);

typedef struct {
	size_t size;
	unsigned timeout_ms;    /* default 10,000: until then connecting is tried again and again, with back-off */
	const char *transports; /* as of the context, for this endpoint */
} rpw_endpoint_options;
#define RPW_ENDPOINT_OPTIONS_INIT \
	{ \
		sizeof(rpw_endpoint_options), 0, NULL \
	}
/* `address` is "host:port", "[v6]:port", or what rpw_listener_address gave. Begin to connect. The endpoint is there at once; what is posted on it waits until it is connected, and fails if it is not. *req completes when the connection stands or has failed; req may be NULL. */
RPW_API int rpw_endpoint_create(
	rpw_context *c, const char *address, const rpw_endpoint_options *options /* may be NULL */, rpw_endpoint **out, rpw_request **req);

enum rpw_protection {
	RPW_PROTECTION_NONE,   /* who is between the two, on the network, can read and change it */
	RPW_PROTECTION_KERNEL, /* shared memory: it does not leave the host, and the kernel lets nobody but this user at it */
	RPW_PROTECTION_TLS,    /* there is a key: TLS 1.3 with keys that only these two processes have */
};
typedef struct {
	size_t size;
	const char *transport;             /* "shm", "verbs", "tcp", "ncclnet" */
	const char *path;                  /* "rpw_eth0, GID 1 ::ffff:10.0.0.1, MTU 1024", "4 streams to 10.0.0.2" */
	const char *why;                   /* "same host: shared memory is the fastest; verbs (rpw_lo) and tcp would do" */
	const char *peer;                  /* "host:pid 10.0.0.2:4711" */
	uint64_t message_tag, control_tag; /* unique to this endpoint; exchanged at connect */
	uint64_t peer_message_tag, peer_control_tag;
	bool connected;
	int status; /* why it failed, when it has; RPW_OK after an orderly end */
	size_t eager_bytes_max;
	enum rpw_protection protection; /* of what goes over the path; `why` says it in words */
} rpw_endpoint_information;
#define RPW_ENDPOINT_INFORMATION_INIT \
	{ \
		sizeof(rpw_endpoint_information), NULL, NULL, NULL, NULL, 0, 0, 0, 0, false, 0, 0, RPW_PROTECTION_NONE \
	}
RPW_API int rpw_endpoint_info(rpw_endpoint *ep, rpw_endpoint_information *info /* size filled in */);
RPW_API void rpw_endpoint_set_user(rpw_endpoint *ep, void *user);
RPW_API void *rpw_endpoint_user(const rpw_endpoint *ep);
/* Called once, when the endpoint has failed (`status` says why) or the peer has closed it (RPW_OK: in order, by rpw_endpoint_shutdown; else RPW_ERR_PEER_GONE), after everything else that there is to hear of it; at once if that has happened. Not for rpw_endpoint_destroy of this side. */
typedef void (*rpw_endpoint_closed_fn)(rpw_endpoint *ep, int status, void *arg);
RPW_API void rpw_endpoint_on_close(rpw_endpoint *ep, rpw_endpoint_closed_fn fn, void *arg);
/* flush: everything posted before is done, on the peer's side too. It is RPW_OK, too, when the peer has closed meanwhile, but had taken everything before it did (taken: by its library; a message may
 * have been in want of a receive); RPW_ERR_PEER_GONE when it had not. */
RPW_API int rpw_endpoint_flush(rpw_endpoint *ep, rpw_request **req);
/* The orderly end: what was posted before it is done, as of flush, and then the peer hears that nothing more comes: its rpw_endpoint_closed_fn has RPW_OK, after everything else, where a crash or
 * rpw_endpoint_destroy alone gives RPW_ERR_PEER_GONE. Nothing can be posted after it on this side but receives (RPW_ERR_INVALID). The peer's endpoint ends with that; what it had sent before is still
 * received here. Where both shut down, both hear RPW_OK, and neither loses a message. */
RPW_API int rpw_endpoint_shutdown(rpw_endpoint *ep, rpw_request **req);
/* What is posted after it takes effect at the peer after what was posted before: for puts, atomics and notifications. */
RPW_API int rpw_endpoint_fence(rpw_endpoint *ep);
/* Close. What is still under way completes with RPW_ERR_CANCELED, the peer's with RPW_ERR_PEER_GONE: flush first where that matters. What the peer had sent whole can be received
 * until then, also after it has gone. Inside a callback the endpoint closes before the rpw_context_progress that called back returns; where another call called back, before the next one does. Its
 * remote keys are the caller's to destroy. */
RPW_API void rpw_endpoint_destroy(rpw_endpoint *ep);

/* ---- requests ----
 * A call that posts gives RPW_OK when it is complete already: then *req is NULL. RPW_IN_PROGRESS: *req is the request, to be freed by the caller. Negative: nothing was posted.
 * With `req` NULL the request frees itself when complete. Receives (rpw_recv, rpw_recv_obj) give a request whenever one is asked for, complete or not: its completion says length, tag and sender.
 * A request may be tested, waited on and freed after its endpoint was closed, but not after its context was destroyed. Callbacks of requests that rpw_endpoint_destroy ends run in the next rpw_context_progress. */
typedef struct {
	size_t size;        /* sizeof(rpw_completion), set by whoever has it filled */
	int status;         /* RPW_OK, RPW_IN_PROGRESS or an error */
	size_t length;      /* of the message */
	uint64_t tag;       /* of a received message */
	rpw_endpoint *from; /* of a received message */
} rpw_completion;
#define RPW_COMPLETION_INIT \
	{ \
		sizeof(rpw_completion), 0, 0, 0, NULL \
	}
RPW_API int rpw_request_test(rpw_request *r, rpw_completion *done /* may be NULL */); /* its status; does not progress */
RPW_API int rpw_request_wait(rpw_request *r, int timeout_ms /* -1: no limit */,
	rpw_completion *done); /* progresses; spins briefly, then sleeps. RPW_ERR_EXPIRED: it is still under way */
/* One call posts and waits: rpw_finish(rpw_send(ep, buf, len, tag, &r), &r, timeout_ms, NULL). `posted` is what the call gave: negative, it is given back. Else waits for *r, destroys it and sets
 * it to NULL; where that is NULL already the operation was complete, and `done` has RPW_OK and no more. RPW_ERR_EXPIRED: it is still under way, and *r is there to be waited for again. */
RPW_API int rpw_finish(int posted, rpw_request **r, int timeout_ms, rpw_completion *done /* may be NULL */);
/* NULL in r counts as complete. RPW_OK, or, when all are complete, the first status that is an error. */
RPW_API int rpw_request_wait_all(rpw_context *c, rpw_request **r, size_t n, int timeout_ms);
/* Ask it to end. It completes, with RPW_ERR_CANCELED or, when it was too late, as it would have. */
RPW_API int rpw_request_cancel(rpw_request *r);
RPW_API void rpw_request_destroy(rpw_request *r); /* complete or not: then it goes on by itself */
typedef void (*rpw_done_fn)(rpw_request *r, const rpw_completion *done, void *arg);
/* Called when it completes; at once if it has. Takes the place of an earlier one that has not been called; fn NULL: nobody is. */
RPW_API void rpw_request_on_done(rpw_request *r, rpw_done_fn fn, void *arg);

/* ---- tagged messages ---- */

RPW_API int rpw_send(rpw_endpoint *ep, const void *buf, size_t len, uint64_t tag, rpw_request **req);
RPW_API int rpw_send_iov(rpw_endpoint *ep, const struct iovec *iov, int iovcnt, uint64_t tag, rpw_request **req);
/* Matches a message whose tag is equal in the bits that mask has. ep NULL: from any endpoint of the context. */
RPW_API int rpw_recv(rpw_context *c, rpw_endpoint *ep, void *buf, size_t len, uint64_t tag, uint64_t mask, rpw_request **req);
RPW_API int rpw_recv_iov(rpw_context *c, rpw_endpoint *ep, const struct iovec *iov, int iovcnt, uint64_t tag, uint64_t mask, rpw_request **req);
/* Is there a message for such a receive? RPW_OK with *what filled, or RPW_IN_PROGRESS. It stays. Does not progress. When the endpoint has ended and has none left: its status. */
RPW_API int rpw_probe(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask, rpw_completion *what);

/* Objects: a size, then the payload, into memory that the receiver's allocator gives. */
typedef void *(*rpw_alloc_fn)(size_t len, void *arg); /* NULL: the object is refused, and its sender told (RPW_ERR_NO_MEMORY) */
RPW_API int rpw_send_obj(rpw_endpoint *ep, const void *buf, size_t len, rpw_request **req);
/* *buf and *len are filled on completion. alloc NULL: malloc. ep NULL: the next one of any endpoint of the context; the completion says of which. */
RPW_API int rpw_recv_obj(rpw_context *c, rpw_endpoint *ep, rpw_alloc_fn alloc, void *arg, void **buf, size_t *len, rpw_request **req);

/* ---- active messages ---- */

/* `data` is valid during the call; it may lie where the peer can still write (shared memory): what has to be checked is copied before. Runs in rpw_context_progress, in the order sent on each
 * endpoint. */
typedef void (*rpw_am_fn)(rpw_endpoint *ep, const void *header, size_t header_len, const void *data, size_t len, void *arg);
enum { RPW_AM_IDS = 256, RPW_AM_HEADER_MAX = 256 };
/* fn NULL: none; messages without a handler are dropped. */
RPW_API int rpw_context_on_am(rpw_context *c, unsigned id, rpw_am_fn fn, void *arg);
RPW_API int rpw_am_send(rpw_endpoint *ep, unsigned id, const void *header, size_t header_len, const void *buf, size_t len, rpw_request **req);

/* ---- remote memory ---- */

/* CUDA: device memory of an NVIDIA GPU. Once it is registered it can be given to every call that takes a buffer (in one piece, not in a scatter list), and peers can put to it and get from it as
 * from host memory, but for atomics. What is sent has to be there (synchronize its stream first); received bytes are there when the request is complete, for all that is started on the GPU
 * afterwards. Where the path's RDMA device reaches it by itself, messages from it, long ones to it, puts and gets do not pass through host memory; else they do, in a pipeline. */
enum rpw_memory_kind { RPW_MEMORY_HOST = 0, RPW_MEMORY_CUDA = 1 };
enum rpw_access { RPW_REMOTE_WRITE = 1, RPW_REMOTE_READ = 2, RPW_REMOTE_ATOMIC = 4 };
RPW_API int rpw_memory_register(rpw_context *c, void *addr, size_t len, enum rpw_memory_kind kind, unsigned access, rpw_memory **out);
/* The same for memory of a GPU of which the program has a dma-buf: it lies in that from `offset` on. The descriptor stays the program's, and may be closed afterwards. Where no device takes it,
 * the memory is reached as if it had been registered by its address. */
RPW_API int rpw_memory_register_dmabuf(rpw_context *c, void *addr, size_t len, int fd, uint64_t offset, unsigned access, rpw_memory **out);
/* How the RDMA devices that this context may use reach memory of the current GPU (else the first) by themselves: the sum of RPW_DIRECT_*, found by registering some with each of them. 0: not;
 * rpw_last_error says what is missing. Takes milliseconds, and may make a CUDA context: ask once. */
enum rpw_direct { RPW_DIRECT_PEER = 1 /* by its address: nvidia-peermem */, RPW_DIRECT_DMABUF = 2 };
RPW_API int rpw_memory_direct(rpw_context *c);
/* Memory of ropeway's own, which peers on this host can map: put and get are then plain copies. Freed by rpw_memory_destroy. */
RPW_API int rpw_memory_allocate(rpw_context *c, size_t len, unsigned access, rpw_memory **out);
RPW_API void *rpw_memory_address(const rpw_memory *m);
RPW_API size_t rpw_memory_length(const rpw_memory *m);
RPW_API void rpw_memory_destroy(rpw_memory *m);
/* What a peer needs to reach it: opaque bytes, at most RPW_RKEY_BYTES_MAX. Gives their number. */
enum { RPW_RKEY_BYTES_MAX = 512 };
RPW_API int rpw_rkey_pack(const rpw_memory *m, void *out, size_t room);
/* Refused by name when it is garbled, of another version, or of memory that this endpoint's peer does not have. The endpoint has to be connected. */
RPW_API int rpw_rkey_unpack(rpw_endpoint *ep, const void *packed, size_t len, rpw_rkey **out);
RPW_API void rpw_rkey_destroy(rpw_rkey *k);

/* Offsets are from the beginning of the registered memory. A put is complete when its buffer can be used again; flush says when it has taken effect. */
RPW_API int rpw_put(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key, uint64_t offset, rpw_request **req);
RPW_API int rpw_get(rpw_endpoint *ep, void *buf, size_t len, const rpw_rkey *key, uint64_t offset, rpw_request **req);
/* On 8 aligned bytes; *before gets the value that was there. */
RPW_API int rpw_fetch_add(rpw_endpoint *ep, uint64_t add, const rpw_rkey *key, uint64_t offset, uint64_t *before, rpw_request **req);
RPW_API int rpw_compare_swap(rpw_endpoint *ep, uint64_t compare, uint64_t swap, const rpw_rkey *key, uint64_t offset, uint64_t *before, rpw_request **req);
/* Several transfers with one completion. All of an array have one size. */
typedef struct {
	size_t size; /* sizeof(rpw_transfer): how far it is from one to the next */
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
RPW_API int rpw_transfer_batch(rpw_endpoint *ep, const rpw_transfer *t, size_t n, rpw_request **req);
/* A put whose arrival the peer is told, after its bytes are there, with 64 bits of the program's. */
RPW_API int rpw_put_notify(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key, uint64_t offset, uint64_t data, rpw_request **req);
typedef void (*rpw_notify_fn)(rpw_endpoint *ep, uint64_t data, size_t len, void *arg);
/* fn NULL: none; notifications that come without one are dropped, so call it before peers can put. */
RPW_API void rpw_context_on_notify(rpw_context *c, rpw_notify_fn fn, void *arg);

/* ---- statistics ---- */

typedef struct {
	size_t size;
	uint64_t sent, received, bytes_sent, bytes_received; /* messages of all kinds */
	uint64_t unexpected, unexpected_bytes;               /* messages that came before their receive; how many bytes of them are held now */
	uint64_t waited_for_room;                            /* sends that the peer had no room for at first */
	uint64_t strangers_refused, path_changes;
	unsigned endpoints, listeners, requests; /* now */
	unsigned
		unsent; /* not 0: bytes of sends that are complete, or acknowledgements that the peer waits for, are still in this process, for rpw_context_progress to send */
} rpw_statistics;
#define RPW_STATISTICS_INIT \
	{ \
		sizeof(rpw_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}
RPW_API int rpw_context_statistics(rpw_context *c, rpw_statistics *s /* size filled in */);

#ifdef __cplusplus
}
#endif
#endif
