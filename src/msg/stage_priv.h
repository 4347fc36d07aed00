/* stage_priv.h - what the files of staging share: the state of what is being moved, and stage.c's calls for stage_ask.c and stage_serve.c. */
#ifndef ROPEWAY_MSG_STAGE_PRIV_H
#define ROPEWAY_MSG_STAGE_PRIV_H

#include "msg/stage.h"

enum {
	STAGE_BYTES = 512 << 10, /* of one chunk */
	CHUNKS_UNDER_WAY = 8,    /* of one message; a peer that sends more without having had their FINs is in breach */
	ASKED_MAX = 64,          /* PUTs and GETs that an endpoint has under way; a peer that asks for more is in breach */
};

enum stage_way { STAGE_SEND, STAGE_RECV, STAGE_PUT, STAGE_GET, STAGE_BATCH };

struct stage {
	struct rpwi_list all; /* of the staging */
	struct staging *of;
	rpw_request *r; /* NULL: it has ended; what is under way comes home */
	enum stage_way way;
	struct gpu *gpu; /* of the memory here; NULL: host */
	char *base;
	size_t len, room; /* of the message; of it, how much there is memory for */
	size_t at;        /* begun up to here */
	size_t landed, announced;
	const struct rpw_rkey *key; /* PUT, GET: the peer's memory */
	uint64_t offset;
	unsigned under_way;
	int worst;
	bool stopped;
	struct rpwi_list ready;  /* requests of ours that could not begin yet, by `active` */
	struct rpwi_list parked; /* RECV: requests of chunks that have come and are not being fetched yet, by `active` */
};

/* What an endpoint has for all this; outlives it while something is under way. */
struct staging {
	struct rpwi_list in_context;
	rpw_context *c;
	rpw_endpoint *ep; /* NULL: closed */
	struct rpwi_list stages, free[2], copying[2];
	struct rpwi_list *next_to_work; /* of `stages`, while they are gone through */
	unsigned made[2];
	unsigned busy; /* stages that exist, ended or not */
	unsigned asked, serving;
};

static inline enum gpu_way stage_way_of(const struct stage *s) { return s->way == STAGE_RECV || s->way == STAGE_GET ? GPU_IN : GPU_OUT; }

/* The endpoint's, made when it is not there; NULL: no memory. */
struct staging *stage_staging(rpw_endpoint *ep);
/* What moves len bytes at base on behalf of r, room of them into memory; NULL: no memory. */
struct stage *stage_new(rpw_endpoint *ep, rpw_request *r, enum stage_way way, char *base, size_t len, size_t room);
/* Begin what can begin; finish it when all of it has come. */
void stage_go(struct stage *s);
/* True, and s is gone: nothing of it is under way any more, and its request has ended. */
bool stage_release(struct stage *s);
/* The callback of a batch's members. */
void stage_member_done(rpw_request *child, const rpw_completion *done, void *arg);

#endif
