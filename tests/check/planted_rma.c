/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_rma.c - a caller of NCCL's one-sided operations with one mistake: `planted_rma TRACER
 * CASE bad|good`; without CASE the list, a line each: CASE RULE. It is a rank alone, which puts to
 * itself; the plugin behind the tracer is tests/nccl/rma_reference.c. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ncclnet/abi/rma.h"

enum { BYTES = 4096, LOOKS = 1000000, MANY = 33 };

static const struct nccl_rma_v16 *rma;
static const struct nccl_rma_v15 *older;
static char buffer[2 * BYTES];
static char handle[NCCL_RMA_HANDLE_BYTES];
static void *instance, *listening;
struct comm {
	void *coll, *ctx;
};

static void expect(int truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "planted_rma: expected %s\n", what);
	exit(1);
}

static void log_nothing(
	int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
}

static void begin(void)
{
	struct nccl_net_properties_v12 p;
	int ndev = 0;
	expect(!rma->init(&instance, 0, log_nothing) && !rma->devices(&ndev) && ndev == 1,
		"one device");
	expect(!rma->getProperties(0, &p), "its properties");
	expect(!rma->listen(instance, 0, handle, &listening), "to listen");
}

static struct comm connect_alone(void)
{
	struct comm c = {NULL, NULL};
	struct nccl_rma_config config = {.contexts = 1, .traffic_class = -1, .rank_stride = 1};
	void *handles[1] = {handle};
	expect(!rma->connect(instance, handles, 1, 0, listening, &c.coll) && c.coll, "to connect");
	expect(!rma->createContext(c.coll, &config, &c.ctx), "a context");
	return c;
}

static void *reg(const struct comm *c)
{
	void *mhandle = NULL;
	expect(!rma->regMrSym(c->coll, buffer, sizeof(buffer), NCCL_PTR_HOST, NCCL_RMA_FORCE_ORDER,
		       &mhandle),
		"to register");
	return mhandle;
}

static void end(struct comm *c)
{
	expect(!rma->destroyContext(c->ctx) && !rma->closeColl(c->coll), "to close");
}

static void finish(const struct comm *c, void *request)
{
	int done = 0;
	for (int i = 0; i < LOOKS && !done; i++)
		expect(!rma->test(c->coll, request, &done), "to test");
	expect(done, "a request to be done");
}

static void *put(const struct comm *c, void *mhandle, size_t size, uint32_t rank)
{
	void *request = NULL;
	int rc = rma->iputSignal(c->ctx, 0, 0, mhandle, size, BYTES, mhandle, rank, 8, mhandle, 1,
		NCCL_RMA_SIGNAL_ADD, true, 0, &request);
	expect(!rc == (rank == 0), "a put to be taken, or refused");
	return request;
}

static void version(bool bad)
{
	struct comm c = connect_alone();
	int done = 0;
	void *m = reg(&c), *r = put(&c, m, 64, 0);
	if (bad)
		older->test(c.coll, r, &done);
	if (!done)
		finish(&c, r);
	expect(!rma->deregMrSym(c.coll, m), "to deregister");
	end(&c);
}

static void handle_bytes(bool bad)
{
	handle[NCCL_RMA_HANDLE_BYTES - 1] ^= (char)bad;
	struct comm c = connect_alone();
	end(&c);
}

static void mhandle(bool bad)
{
	struct comm c = connect_alone();
	void *m = reg(&c), *request = NULL;
	if (!bad)
		finish(&c, put(&c, m, 64, 0));
	expect(!rma->deregMrSym(c.coll, m), "to deregister");
	/* which the plugin refuses */
	if (bad)
		rma->iput(c.ctx, 0, 0, m, 64, BYTES, m, 0, 0, &request);
	end(&c);
}

static void request(bool bad)
{
	struct comm c = connect_alone(), other = {NULL, NULL};
	void *m = reg(&c), *r = put(&c, m, 64, 0);
	int done = 0;
	if (bad) {
		other = connect_alone();
		rma->test(other.coll, r, &done);
	}
	if (!done)
		finish(&c, r);
	expect(!rma->deregMrSym(c.coll, m), "to deregister");
	if (bad)
		end(&other);
	end(&c);
}

static void memory(bool bad)
{
	struct comm c = connect_alone();
	void *m = reg(&c), *r = put(&c, m, 64, bad);
	if (r)
		finish(&c, r);
	expect(!rma->deregMrSym(c.coll, m), "to deregister");
	end(&c);
}

static void close_early(bool bad)
{
	struct comm c = connect_alone();
	void *m = reg(&c);
	if (!bad)
		expect(!rma->deregMrSym(c.coll, m), "to deregister");
	end(&c);
}

static void requests(bool bad)
{
	struct comm c = connect_alone();
	void *m = reg(&c), *r[MANY];
	int n = bad ? MANY : MANY - 1;
	for (int i = 0; i < n; i++)
		r[i] = put(&c, m, 64, 0);
	for (int i = 0; i < n; i++)
		finish(&c, r[i]);
	expect(!rma->deregMrSym(c.coll, m), "to deregister");
	end(&c);
}

static const struct {
	const char *rule;
	void (*run)(bool bad);
} cases[] = {
	{"plugin-version", version},
	{"plugin-handle", handle_bytes},
	{"plugin-mhandle", mhandle},
	{"plugin-request", request},
	{"plugin-memory", memory},
	{"plugin-close", close_early},
	{"plugin-requests", requests},
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (argc < 4)
			printf("%s %s\n", cases[i].rule, cases[i].rule);
	if (argc < 4)
		return 0;
	void *tracer = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	expect(tracer != NULL, "the tracer");
	rma = dlsym(tracer, "ncclRmaPlugin_v16");
	older = dlsym(tracer, "ncclRmaPlugin_v15");
	expect(rma && older, "RMA v16 and v15");
	expect(!dlsym(tracer, "ncclNetPlugin_v12"), "no table that the plugin does not have");
	begin();
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].rule, argv[2])) {
			cases[i].run(!strcmp(argv[3], "bad"));
			expect(!rma->closeListen(listening) && !rma->finalize(instance), "the end");
			return 0;
		}
	return 2;
}
