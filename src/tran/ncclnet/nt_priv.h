/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_priv.h - the structs of tran_ncclnet, and what its files call in each other.
 *
 *   ncclnet.c    the table of operations, progress, sleeping
 *   nt_load.c    a plugin, loaded and initialized once in a process
 *   nt_setup.c   connecting: the threads in which connect and accept run, and who is let in
 *   nt_ep.c      endpoints: made, started, up, failing, leaving
 *   nt_queue.c    one comm: its requests, its registrations
 *   nt_frame.c   batches: what goes and comes on the comm for frames
 *   nt_bulk.c    messages of bulk data
 *   nt_wire.[ch] bytes
 *
 * Who may fail what: code that finds a failure notes it (nt_ep_fail); up->failed is called at the
 * end of progress, so that no caller finds an endpoint gone under its hands.
 */
#ifndef ROPEWAY_TRAN_NCCLNET_NT_PRIV_H
#define ROPEWAY_TRAN_NCCLNET_NT_PRIV_H

#include "ncclnet/host/host.h"
#include "ncclnet/host/quirks.h"
#include "ropeway.h"
#include "tran/emulate.h"
#include "tran/ncclnet/nt_wire.h"

enum {
	NT_REQUESTS = NCCLNET_REQUESTS_SAFE,
	/* one comm is broken: so long the peer's goodbye on the other may take */
	NT_LOST_MS = 1000,
	NT_LINGER_MS = 3000, /* after ep_close, for what was taken and the goodbye */
	NT_CLOSE_MS = 500,   /* the same when the context goes */
	/* memory released while a plugin still reads or writes there: then the endpoint is
	 * broken */
	NT_RELEASE_MS = 2000,
};

/* A plugin and its device; one for each "PATH[@vN]" of the process, never freed. */
struct nt_load {
	struct nt_load *next;
	char spec[256], name[NT_NAME_LEN], device[64];
	struct ncclnet *n;
	void *ctx;
	int dev;
	struct ncclnet_properties props;
	size_t chunk_max;
	int err; /* -errno and `why`: it is of no use */
	char why[400];
};
const struct nt_load *nt_load_get(const char *spec);
extern __thread bool nt_closing; /* this thread closes a comm */

/* Memory registered with one comm. */
struct nt_reg {
	struct rpwi_list of_home, of_queue;
	struct nt_queue *queue;
	struct tran_home *home; /* NULL: a piece of memory, for one message */
	void *mhandle;
};

enum nt_bulk_state {
	NT_BULK_MADE,
	NT_BULK_ANNOUNCING, /* of ep->announcing */
	NT_BULK_EXPECTED,   /* of ep->expected */
	NT_BULK_QUEUED,     /* announced: of ep->to_send or ep->to_receive */
	NT_BULK_POSTED,     /* the plugin has it */
	NT_BULK_FINISHED,   /* and is to be told; or its comm was closed, and it never is */
};

/* A message of bulk data. */
struct tran_bulk {
	struct rpwi_list link;  /* as its state says */
	struct rpwi_list of_ep; /* ep->bulks */
	struct nt_ep *ep;
	enum nt_bulk_state state;
	bool sends, refused; /* refused: it is announced as what will not come */
	uint32_t id;
	int status;
	void *buf;
	size_t len;
	struct nt_reg *reg; /* NULL: the sink's, or the plugin is done with it */
	void *cookie;
};

struct nt_request {
	void *request;
	void *data;
	size_t len;
	void *mhandle;
	bool flushing;
	int size; /* as the plugin says; 0: it says nothing */
	struct tran_bulk *bulk;
};

/* A comm. Its requests are numbered from 0: taken <= finished <= posted. */
struct nt_queue {
	const struct nt_load *load;
	void *comm;
	struct nccl_net_device_handle *device;
	struct rpwi_list regs;
	uint32_t posted, finished, taken;
	bool sends;
	int error; /* what the plugin said when it broke */
	const char *error_call;
	struct nt_request ring[NT_REQUESTS];
};

struct nt_comm {
	void *comm;
	struct nccl_net_device_handle *device;
};
struct nt_setup;

enum nt_ep_state { NT_MADE, NT_STARTING, NT_UP, NT_EP_FAILED, NT_LEAVING };

struct nt_ep {
	struct tran_ep base;
	struct rpwi_list link; /* of nt->eps or nt->leaving */
	struct rpwi_list failing;
	enum nt_ep_state state;
	bool was_up, want_room, has_comms, leave_owed, leave_placed, leave_heard;
	/* of starting, of leaving; while up: lost, and since when that has to have a reason */
	uint64_t deadline_ns;
	char peer[72]; /* for people */
	char lost_why[200];
	struct rpwi_error error; /* why it failed */
	struct nt_setup *setup;

	struct nt_queue out, in, bulk_out, bulk_in;
	/* Batches: filled <= closed... slots are used in turn; `done` to `post` are under way,
	 * `post` to `fill` are full, `fill` is being filled. */
	uint8_t *buffers; /* NT_REQUESTS to send, then as many to receive */
	struct nt_reg *out_reg, *in_reg;
	uint32_t fill, post, done;
	size_t filled; /* bytes in slot `fill`; 0: none yet */
	uint32_t in_number;

	bool corked;            /* frames wait for what goes with them */
	struct rpwi_list bulks; /* all messages of bulk data: */
	/* refused: that has been said, and is to be told */
	struct rpwi_list announcing, expected, to_send, to_receive, refused;
	void *sink; /* where bytes go that have no other place */
	struct nt_reg *sink_reg;
};

struct nt {
	struct tran base;
	const struct nt_load *load;
	struct rpwi_list eps, leaving, failing;
	struct rpwi_list *cursor; /* what progress looks at next */
	uint64_t active_ns;       /* when something happened last */
	unsigned starting;
};

static inline struct nt *nt_of(struct tran *t) { return (struct nt *)t; }
static inline struct nt *nt_of_ep(const struct nt_ep *ep) { return (struct nt *)ep->base.tran; }

/* nt_setup.c: what one endpoint listens on. The handle's plugin parts and nonce are filled in. 0 or
 * -errno and a sentence. */
int nt_setup_new(const struct nt_load *load, struct nt_handle *h, struct nt_setup **out, char *why,
	size_t why_len);
/* Begin to connect, with the peer's handle. 0 or -errno. */
int nt_setup_start(struct nt_setup *s, const struct nt_handle *peer, uint64_t deadline_ns);
/* 1: all four comms are there, and taken: send frames, send bulk, receive frames, receive bulk. 0:
 * not yet. < 0: enum rpw_status, with a sentence. */
int nt_setup_look(struct nt_setup *s, struct nt_comm out[4], char *why, size_t why_len);
/* Wherever its threads are: what they hold is closed by whoever leaves last. */
void nt_setup_drop(struct nt_setup *s);

/* nt_fail.c */
void nt_ep_breach(struct tran_ep *ep, const struct rpwi_error *e);
void nt_ep_fail(struct nt_ep *ep, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A comm broke: if the peer has left, its goodbye says so in a moment. */
void nt_ep_lost(struct nt_ep *ep, const struct nt_queue *l);

/* nt_ep.c */
int nt_ep_make(struct tran *t, const struct tran_control *control, void *user, struct tran_ep **out,
	uint8_t *handle, size_t *handle_len);
int nt_ep_start(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms);
void nt_ep_close(struct tran_ep *ep);
void nt_ep_report(struct nt *t);
unsigned nt_ep_progress(struct nt_ep *ep);
/* Of one that leaves: true: it is gone. */
bool nt_ep_leave_progress(struct nt_ep *ep, uint64_t now_ns);

/* nt_queue.c */
void nt_queue_open(
	struct nt_queue *l, const struct nt_load *load, const struct nt_comm *c, bool sends);
/* Its registrations, the comm, its device handle. Operations under way end. */
void nt_queue_close(struct nt_queue *l);
/* The request, or NULL: not now, or broken. */
struct nt_request *nt_queue_post(struct nt_queue *l, void *data, size_t len, void *mhandle);
/* Tests the oldest, as long as it is done, and at most so often. How many were. */
unsigned nt_queue_poll(struct nt_queue *l, unsigned most);
/* The oldest one that is done, or NULL. It stays until nt_queue_take. */
struct nt_request *nt_queue_oldest(struct nt_queue *l);
static inline void nt_queue_take(struct nt_queue *l) { l->taken++; }
static inline unsigned nt_queue_under_way(const struct nt_queue *l) { return l->posted - l->taken; }
/* NULL: the plugin said no. home: all of it, kept until it is released; NULL: this piece, for one
 * message. */
struct nt_reg *nt_queue_register(
	struct nt_queue *l, struct tran_home *home, void *data, size_t len);
/* After one message: those of pieces go. */
void nt_queue_used(struct nt_reg *r);
void nt_queue_deregister(struct nt_reg *r);

/* nt_frame.c */
int nt_frame_open(struct nt_ep *ep);
void nt_frame_close(struct nt_ep *ep);
int nt_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len);
/* Room for an item of `len` bytes in all, or NULL. */
uint8_t *nt_frame_reserve(struct nt_ep *ep, size_t len);
/* Send full batches, and others while little is under way. Not while corked. */
void nt_frame_flush(struct nt_ep *ep);
/* All that was taken has been sent. */
bool nt_frame_idle(const struct nt_ep *ep);
/* Receives for all batches that may come. */
void nt_frame_receive(struct nt_ep *ep);
/* As soon as there is room. */
void nt_frame_goodbye(struct nt_ep *ep);

/* nt_batch.c */
unsigned nt_batch_progress(struct nt_ep *ep);

/* nt_bulk.c */
extern const struct tran_bulk_ops nt_bulk_ops;
unsigned nt_bulk_progress(struct nt_ep *ep);
/* The peer says what it sends next. NULL, or the error in it. */
const char *nt_bulk_announced(struct nt_ep *ep, const struct nt_item *i);
/* Both comms: operations under way end, and their memory is not touched any more. */
void nt_bulk_close(struct nt_ep *ep);
/* Then, with the endpoint: all of it. */
void nt_bulk_forget(struct nt_ep *ep);

/* What closed contexts have left to be sent is sent, or given up. */
void nt_linger_wait(void);

extern const struct tran_ops tran_ncclnet;

#endif
