/* SPDX-License-Identifier: BSD-3-Clause */
/* conform_priv.h - what the files of the conformance run share. A case is a function that both
 * processes run, each with its role; it begins with both loaded and initialized, unless it says
 * otherwise. */
#ifndef ROPEWAY_NCCLNET_CONFORM_PRIV_H
#define ROPEWAY_NCCLNET_CONFORM_PRIV_H

#include "ncclnet/check/conform.h"
#include "ncclnet/drive/pair.h"
#include "ncclnet/host/quirks.h"

enum { LINGER = 4 };

struct conform {
	struct side *s;
	const struct conform_options *o;
	bool initialized;
	char name[64];  /* before init */
	int load_error; /* of ncclnet_load: -ENOENT, -ENOTSUP */
	int abi;        /* 0: nothing is loaded yet */
	struct rma_checked *rma;
	/* Of the case under way. */
	enum conform_verdict verdict;
	int quirk; /* enum ncclnet_quirk_id, or -1 */
	char text[400];
};

/* ---- verdicts of a case; the worst one stays. Each gives false. ---- */
/* quirk: the entry of quirks.h that it is, or -1. */
bool conform_judge(struct conform *c, enum conform_verdict verdict, int quirk, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#define conform_fail(c, ...) conform_judge(c, CONFORM_FAIL, -1, __VA_ARGS__)
#define conform_quirk(c, quirk, ...) conform_judge(c, CONFORM_QUIRK, quirk, __VA_ARGS__)
#define conform_note(c, ...) conform_judge(c, CONFORM_PASS, -1, __VA_ARGS__)
#define conform_skip(c, ...) conform_judge(c, CONFORM_SKIP, -1, __VA_ARGS__)

enum conform_flag {
	CASE_BARE = 1,           /* before init */
	CASE_FRESH = 2,          /* what it leaves behind is not for the next case */
	CASE_KILLS = 4,          /* the last side dies by SIGKILL */
	CASE_CRASH_IS_QUIRK = 8, /* of `quirk` */
	CASE_NEVER_FAILS = 16,   /* NCCL never does it: a failure is `quirk` */
	CASE_FIRST = 32,         /* nothing is loaded before */
	CASE_NEEDED = 64,        /* without it nothing else can be tried */
	CASE_NCCL_ONLY = 128,    /* RCCL does not ask for it */
	CASE_LONG = 256,
};
/* A share of the deadline: how long something is waited for that need not come. */
static inline unsigned conform_linger_ms(const struct conform *c)
{
	return c->o->timeout_ms / LINGER;
}
/* Both sides: a connection to `receiver`, the stream, and close. */
bool conform_stream(struct conform *c, struct stream *t, int receiver);
/* What a stream was refused is a quirk, if NCCL asks for as many. */
void conform_refused(struct conform *c, const struct stream *t);

struct conform_case {
	const char *id, *what;
	void (*run)(struct conform *c);
	unsigned flags;
	int abi_least, quirk;
	const char *then; /* what NCCL does where it does not hold; NULL: the text says it */
};
/* What is checked of a kind of plugin. */
struct conform_list {
	const struct conform_case *cases;
	unsigned n;
	/* what a case with these flags needs: false, and s->text */
	bool (*prepare)(struct conform *c, unsigned flags);
	void (*facts)(const struct conform *c, struct conform_facts *out);
};
extern const struct conform_list conform_net, conform_rma;
/* getProperties of a table stays within the struct of that version of the net API, and fills it. */
bool conform_within_struct(struct conform *c, int (*call)(int, void *), int net_abi, int dev);

/* ---- the cases ---- */
void case_load(struct conform *c);
void case_table(struct conform *c);
void case_name(struct conform *c);
void case_init(struct conform *c);
void case_devices(struct conform *c);
void case_properties(struct conform *c);
void case_vprops(struct conform *c);
void case_handle(struct conform *c);
void case_accept(struct conform *c);
void case_connect(struct conform *c);
void case_handle_copy(struct conform *c);
void case_device_handle(struct conform *c);
void case_reg(struct conform *c);
void case_reg_bad(struct conform *c);
void case_wrong_handle(struct conform *c);
void case_mixed(struct conform *c);
void case_messages(struct conform *c);
void case_request(struct conform *c);
void case_zero(struct conform *c);
void case_sizes(struct conform *c);
void case_sizes_null(struct conform *c);
void case_short(struct conform *c);
void case_truncation(struct conform *c);
void case_patterns(struct conform *c);
void case_order(struct conform *c);
void case_polled(struct conform *c);
void case_group(struct conform *c);
void case_same_tag(struct conform *c);
void case_under_way(struct conform *c);
void case_test_order(struct conform *c);
void case_flush(struct conform *c);
void case_comms(struct conform *c);
void case_threads(struct conform *c);
void case_reg_thread(struct conform *c);
void case_killed(struct conform *c);
void case_close_busy(struct conform *c);
void case_finalize(struct conform *c);
void case_reload(struct conform *c);

#endif
