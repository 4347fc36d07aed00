/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_priv.h - what the files of pipelines share: the state of transfers under way, and
 * pipeline.c's calls for pipeline_ask.c and pipeline_serve.c. */
#ifndef ROPEWAY_MSG_PIPELINE_PRIV_H
#define ROPEWAY_MSG_PIPELINE_PRIV_H

#include "msg/pipeline.h"

enum {
	PIPELINE_BYTES = 512 << 10, /* of one chunk */
	/* of one message; a peer that sends more without having had their FINs is in breach */
	CHUNKS_UNDER_WAY = 8,
	/* PUTs and GETs that an endpoint has under way; a peer that asks for more is in breach */
	ASKED_MAX = 64,
};

enum pipeline_kind { PIPELINE_SEND, PIPELINE_RECV, PIPELINE_PUT, PIPELINE_GET, PIPELINE_BATCH };

struct pipeline {
	struct rpwi_list all; /* of `list` */
	struct pipelines *of;
	rpw_request *r; /* NULL: it has ended; chunks under way come home */
	enum pipeline_kind way;
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
	struct rpwi_list ready; /* requests of ours that could not begin yet, by `active` */
	/* RECV: requests of chunks that have come and are not being fetched yet, by `active` */
	struct rpwi_list parked;
};

/* What an endpoint has for all this; outlives it while something is under way. */
struct pipelines {
	struct rpwi_list in_context;
	rpw_context *c;
	rpw_endpoint *ep; /* NULL: closed */
	struct rpwi_list list, free[2], copying[2];
	struct rpwi_list *next_to_work; /* of `list`, while they are gone through */
	unsigned made[2];
	unsigned busy; /* pipelines that exist, ended or not */
	unsigned asked, serving;
};

static inline enum gpu_direction pipeline_direction(const struct pipeline *s)
{
	return s->way == PIPELINE_RECV || s->way == PIPELINE_GET ? GPU_IN : GPU_OUT;
}

/* The endpoint's, made when it is not there; NULL: no memory. */
struct pipelines *pipelines_of(rpw_endpoint *ep);
/* What moves len bytes at base on behalf of r, room of them into memory; NULL: no memory. */
struct pipeline *pipeline_new(rpw_endpoint *ep, rpw_request *r, enum pipeline_kind way, char *base,
	size_t len, size_t room);
/* Begin what can begin; finish it when all of it has come. */
void pipeline_go(struct pipeline *s);
/* The callback of a batch's members. */
void pipeline_member_done(rpw_request *child, const rpw_completion *done, void *arg);

#endif
