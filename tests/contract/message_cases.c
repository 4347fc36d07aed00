/* SPDX-License-Identifier: BSD-3-Clause */
/* message_cases.c - the contract of tagged messages: who owns what, which receive gets which
 * message, probing. */
#include "contract.h"

static void the_list_may_be_forgotten(void)
{
	/* The pieces belong to the call until it is done; the list of them only while it runs. */
	struct pair p;
	rpw_request *r = NULL, *s = NULL;
	static unsigned char out[400000], in[400000];
	pair_open(&p);
	static const size_t sizes[] = {30, 3000, 400000};
	for (int k = 0; k < 3; k++) {
		size_t third = sizes[k] / 3;
		struct iovec o[3] = {{out, third}, {out + third, third},
			{out + 2 * third, sizes[k] - 2 * third}};
		struct iovec i[3] = {{in, 1}, {in + 1, 1}, {in + 2, sizes[k] - 2}};
		pattern_fill(out, sizes[k], (uint64_t)k);
		memset(in, 0, sizes[k]);
		IS(rpw_recv_iov(p.b, NULL, i, 3, 1, ALL, &r), RPW_IN_PROGRESS);
		memset(i, 0xff, sizeof(i));
		s = NULL;
		int rc = rpw_send_iov(p.ea, o, 3, 1, &s);
		memset(o, 0xff, sizeof(o));
		IS(pair_finish(&p, r, NULL), RPW_OK);
		IS(ended(&p, rc, s), RPW_OK);
		CHECK(pattern_right(in, sizes[k], (uint64_t)k));
	}
	pair_close(&p);
}

static void the_buffer_is_free_when_the_send_is_done(void)
{
	struct pair p;
	pair_open(&p);
	static const size_t sizes[] = {8, 1500, 60000, 400000};
	static unsigned char out[400000], in[400000];
	for (int k = 0; k < 4; k++) {
		rpw_request *s = NULL, *r = NULL;
		pattern_fill(out, sizes[k], 70);
		int rc = rpw_send(p.ea, out, sizes[k], 1, &s);
		if (k >= 2) /* more than a peer has room for until it asks */
			IS(rpw_recv(p.b, NULL, in, sizeof(in), 1, ALL, &r), RPW_IN_PROGRESS);
		IS(ended(&p, rc, s), RPW_OK);
		memset(out, 0xee, sizes[k]); /* before it is looked for */
		if (!r)
			IS(rpw_recv(p.b, NULL, in, sizeof(in), 1, ALL, &r), RPW_IN_PROGRESS);
		IS(pair_finish(&p, r, NULL), RPW_OK);
		CHECK(pattern_right(in, sizes[k], 70));
	}
	pair_close(&p);
}

static void tags_and_masks(void)
{
	struct pair p;
	rpw_completion done = RPW_COMPLETION_INIT;
	rpw_request *r[4];
	pair_open(&p);
	static unsigned char in[4][8];
	/* Equal in the bits of the mask; the bits outside of it do not matter, in neither tag. */
	static const struct {
		uint64_t tag, mask, gets;
	} table[4] = {{0xab00000000000000u, 0xff00000000000000u, 0xab00000000000001u},
		{0x12, 0xff, 0x3412}, {0, 0, 0x99}, {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
	for (int i = 0; i < 4; i++)
		if (i != 2)
			IS(rpw_recv(p.b, NULL, in[i], 8, table[i].tag | (i == 1 ? 0xff00 : 0),
				   table[i].mask, &r[i]),
				RPW_IN_PROGRESS);
	IS(rpw_recv(p.b, NULL, in[2], 8, table[2].tag, table[2].mask, &r[2]), RPW_IN_PROGRESS);
	static const int order[] = {3, 1, 0, 2};
	for (int k = 0; k < 4; k++) {
		int i = order[k];
		unsigned char out[8];
		pattern_fill(out, 8, (uint64_t)i);
		CHECK(rpw_send(p.ea, out, 8, table[i].gets, NULL) >= 0);
		IS(pair_finish(&p, r[i], &done), RPW_OK);
		CHECK(done.tag == table[i].gets);
		CHECK(pattern_right(in[i], 8, (uint64_t)i));
	}
	pair_close(&p);
}

/* Three peers of one context. */
struct crowd {
	struct pair p; /* p.b is the one that receives */
	rpw_context *c[3];
	rpw_endpoint *to[3], *from[3];
};
static struct crowd crowd;
static void crowd_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct crowd *w = (struct crowd *)arg;
	(void)l;
	for (int i = 0; i < 3; i++)
		if (!w->from[i]) {
			w->from[i] = ep;
			return;
		}
}
static void crowd_progress(struct crowd *w)
{
	rpw_context_progress(w->p.b);
	for (int i = 0; i < 3; i++)
		rpw_context_progress(w->c[i]);
}
static void crowd_open(struct crowd *w)
{
	char address[64];
	memset(w, 0, sizeof(*w));
	w->p.b = context_open();
	IS(rpw_listener_create(w->p.b, "127.0.0.1:0", crowd_accept, w, &w->p.l), RPW_OK);
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(w->p.l));
	for (int i = 0; i < 3; i++) {
		w->c[i] = context_open();
		IS(rpw_endpoint_create(w->c[i], address, NULL, &w->to[i], NULL), RPW_IN_PROGRESS);
		while (!w->from[i])
			crowd_progress(w);
	}
}

static void receives_from_one_and_from_any(void)
{
	struct crowd *w = &crowd;
	rpw_completion done = RPW_COMPLETION_INIT;
	rpw_request *any[3], *one = NULL;
	unsigned char in[4][8], out[3][8];
	crowd_open(w);
	IS(statistics_of(w->p.b).endpoints, 3);
	/* The one from the last comes first; those from any take the others in the order in which
	 * they come. */
	for (int i = 0; i < 2; i++)
		IS(rpw_recv(w->p.b, NULL, in[i], 8, 1, ALL, &any[i]), RPW_IN_PROGRESS);
	IS(rpw_recv(w->p.b, w->from[2], in[2], 8, 2, ALL, &one), RPW_IN_PROGRESS);
	for (int i = 0; i < 3; i++)
		pattern_fill(out[i], 8, (uint64_t)i + 20);
	/* of the tag, but not from that endpoint */
	CHECK(rpw_send(w->to[0], out[0], 8, 2, NULL) >= 0);
	for (int i = 0; i < 1000; i++)
		crowd_progress(w);
	while (rpw_probe(w->p.b, NULL, 2, ALL, &done) != RPW_OK)
		crowd_progress(w);
	CHECK(done.from == w->from[0]);
	IS(rpw_probe(w->p.b, w->from[2], 2, ALL, NULL), RPW_IN_PROGRESS);
	IS(rpw_request_test(one, NULL), RPW_IN_PROGRESS);
	CHECK(rpw_send(w->to[2], out[2], 8, 2, NULL) >= 0);
	while (rpw_request_test(one, &done) == RPW_IN_PROGRESS)
		crowd_progress(w);
	CHECK(done.from == w->from[2]);
	CHECK(pattern_right(in[2], 8, 22));
	rpw_request_destroy(one);
	for (int i = 1; i >= 0; i--) {
		CHECK(rpw_send(w->to[i], out[i], 8, 1, NULL) >= 0);
		while (rpw_request_test(any[1 - i], &done) == RPW_IN_PROGRESS)
			crowd_progress(w);
		CHECK(done.from == w->from[i]);
		CHECK(pattern_right(in[1 - i], 8, (uint64_t)i + 20));
		rpw_request_destroy(any[1 - i]);
	}
	/* An endpoint ends: a receive from any stays, for the others. */
	IS(rpw_recv(w->p.b, NULL, in[3], 8, 5, ALL, &one), RPW_IN_PROGRESS);
	rpw_endpoint_destroy(w->from[0]);
	IS(rpw_request_test(one, NULL), RPW_IN_PROGRESS);
	CHECK(rpw_send(w->to[1], out[1], 8, 5, NULL) >= 0);
	while (rpw_request_test(one, &done) == RPW_IN_PROGRESS)
		crowd_progress(w);
	CHECK(done.from == w->from[1]);
	rpw_request_destroy(one);
	/* Its messages went with it. */
	IS(rpw_probe(w->p.b, NULL, 2, ALL, NULL), RPW_IN_PROGRESS);
	/* An endpoint of another context is none of this one. */
	REFUSED(rpw_recv(w->p.b, w->to[1], in[0], 8, 1, ALL, &one), RPW_ERR_INVALID,
		"the endpoint is of another context");
	REFUSED(rpw_recv_iov(w->p.b, w->to[1], NULL, 0, 1, ALL, &one), RPW_ERR_INVALID,
		"the endpoint is of another context");
	REFUSED(rpw_probe(w->p.b, w->to[1], 1, ALL, NULL), RPW_ERR_INVALID,
		"the endpoint is of another context");
	for (int i = 0; i < 3; i++)
		rpw_context_destroy(w->c[i]);
	rpw_context_destroy(w->p.b);
}

static void a_probe_leaves_the_message(void)
{
	struct pair p;
	rpw_completion what = RPW_COMPLETION_INIT;
	static const size_t sizes[] = {0, 5, 2000, 300000};
	static unsigned char out[300000], in[300000];
	pair_open(&p);
	IS(rpw_probe(p.b, NULL, 0, 0, &what), RPW_IN_PROGRESS);
	IS(rpw_probe(p.b, p.eb, 0, 0, NULL), RPW_IN_PROGRESS);
	for (int k = 0; k < 4; k++) {
		rpw_request *s = NULL, *r = NULL;
		pattern_fill(out, sizes[k], (uint64_t)k);
		int rc = rpw_send(p.ea, out, sizes[k], 0x1000 + (uint64_t)k, &s);
		/* It does not progress. */
		for (int i = 0; i < 100; i++) {
			rpw_context_progress(p.a);
			IS(rpw_probe(p.b, NULL, 0, 0, NULL), RPW_IN_PROGRESS);
		}
		UNTIL(&p, rpw_probe(p.b, NULL, 0, 0, NULL) == RPW_OK);
		for (int i = 0; i < 3; i++) {
			memset(&what, 0x5a, sizeof(what));
			IS(rpw_probe(p.b, i & 1 ? p.eb : NULL, i ? 0x1000 : 0x1000 + (uint64_t)k,
				   i ? 0xf000 : ALL, &what),
				RPW_OK);
			IS(what.status, RPW_OK);
			IS(what.length, sizes[k]);
			IS(what.tag, 0x1000 + k);
			CHECK(what.from == p.eb);
		}
		IS(rpw_probe(p.b, NULL, 0x1000 + (uint64_t)k + 1, ALL, NULL), RPW_IN_PROGRESS);
		IS(rpw_recv(p.b, what.from, in, what.length, what.tag, ALL, &r), RPW_IN_PROGRESS);
		IS(rpw_probe(p.b, NULL, 0, 0, NULL), RPW_IN_PROGRESS);
		IS(pair_finish(&p, r, NULL), RPW_OK);
		IS(ended(&p, rc, s), RPW_OK);
		CHECK(pattern_right(in, sizes[k], (uint64_t)k));
	}
	pair_close(&p);
}

static void a_receive_says_what_it_got_although_it_is_done(void)
{
	struct pair p;
	rpw_request *r = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	pair_open(&p);
	CHECK(rpw_send(p.ea, outgoing, 20, 3, NULL) >= 0);
	CHECK(rpw_send(p.ea, outgoing, 21, 4, NULL) >= 0);
	UNTIL(&p, rpw_probe(p.b, NULL, 4, ALL, NULL) == RPW_OK);
	/* It is there: complete from the beginning, with a request all the same; without, when none
	 * is asked for. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 3, ALL, &r), RPW_IN_PROGRESS);
	CHECK(r != NULL);
	IS(rpw_request_test(r, &done), RPW_OK);
	IS(done.length, 20);
	IS(done.tag, 3);
	CHECK(done.from == p.eb);
	rpw_request_destroy(r);
	IS(rpw_recv(p.b, NULL, incoming, 5, 4, ALL, NULL), RPW_ERR_TRUNCATED);
	IS(statistics_of(p.b).requests, 0);
	pair_close(&p);
}

static void longer_than_its_receive(void)
{
	/* In every way that a message can come: eager and large, in one piece and in several, early
	 * and late. */
	struct pair p;
	static unsigned char out[300000], in[110];
	static const size_t sizes[] = {101, 5000, 300000};
	pair_open(&p);
	for (int k = 0; k < 3; k++)
		for (int how = 0; how < 4; how++) {
			rpw_request *r = NULL, *s = NULL;
			rpw_completion done = RPW_COMPLETION_INIT;
			bool early = how & 1, pieces = how & 2;
			struct iovec iov[2] = {{in, 33}, {in + 33, 67}};
			pattern_fill(out, sizes[k], (uint64_t)(k * 10 + how));
			memset(in, 0x3c, sizeof(in));
			int rc = RPW_OK;
			if (early) {
				rc = rpw_send(p.ea, out, sizes[k], 1, &s);
				UNTIL(&p, rpw_probe(p.b, NULL, 1, ALL, NULL) == RPW_OK);
			}
			if (pieces)
				IS(rpw_recv_iov(p.b, NULL, iov, 2, 1, ALL, &r), RPW_IN_PROGRESS);
			else
				IS(rpw_recv(p.b, NULL, in, 100, 1, ALL, &r), RPW_IN_PROGRESS);
			if (!early)
				rc = rpw_send(p.ea, out, sizes[k], 1, &s);
			IS(pair_finish(&p, r, &done), RPW_ERR_TRUNCATED);
			IS(done.length, sizes[k]);
			IS(ended(&p, rc, s), RPW_OK); /* the sender has done its part */
			CHECK(pattern_right(in, 100, (uint64_t)(k * 10 + how)));
			for (int i = 100; i < 110; i++)
				IS(in[i], 0x3c);
		}
	pair_close(&p);
}

const struct contract_case message_cases[] = {
	{"the_list_may_be_forgotten", the_list_may_be_forgotten, true, "rpw_send_iov rpw_recv_iov"},
	{"the_buffer_is_free_when_the_send_is_done", the_buffer_is_free_when_the_send_is_done, true,
		"rpw_send"},
	{"tags_and_masks", tags_and_masks, true, "rpw_recv rpw_send"},
	{"receives_from_one_and_from_any", receives_from_one_and_from_any, true,
		"rpw_recv rpw_recv_iov rpw_probe rpw_endpoint_destroy"},
	{"a_probe_leaves_the_message", a_probe_leaves_the_message, true, "rpw_probe"},
	{"a_receive_says_what_it_got_although_it_is_done",
		a_receive_says_what_it_got_although_it_is_done, true, "rpw_recv"},
	{"longer_than_its_receive", longer_than_its_receive, true, "rpw_recv rpw_recv_iov"},
	{NULL, NULL, false, NULL},
};
