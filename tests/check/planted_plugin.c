/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_plugin.c - a caller of NCCL's plugin API with one mistake: `planted_plugin TRACER CASE
 * bad|good`; without CASE the list, a line each: CASE RULE. The plugin behind the tracer is
 * plugin_fake.c. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ncclnet/abi/tables.h"

static const struct nccl_net_v8 *net;
static const struct nccl_net_v10 *net10;
static char handle[128], buffer[4096];
static void *listening, *sender, *receiver;

static void expect(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "expected: %s\n", what);
	exit(3);
}

static void begin(void)
{
	int n;
	struct nccl_net_properties_v8 p;
	expect(!net->init(NULL) && !net->devices(&n) && n == 1, "a device");
	expect(!net->getProperties(0, &p), "its properties");
	expect(!net->listen(0, handle, &listening), "to listen");
}

static void connect_both(bool spoil)
{
	begin();
	expect(!net->connect(0, handle, &sender, NULL) && !sender, "not yet");
	if (spoil)
		handle[100] ^= 1;
	expect(!net->connect(0, handle, &sender, NULL) && sender, "a send comm");
	expect(!net->accept(listening, &receiver, NULL) && receiver, "a receive comm");
}

static void *reg(void *comm)
{
	void *mhandle = NULL;
	expect(!net->regMr(comm, buffer, sizeof(buffer), NCCL_PTR_HOST, &mhandle), "to register");
	return mhandle;
}

static void finish(void *request)
{
	int done = 0, sizes[8];
	while (!done)
		expect(!net->test(request, &done, sizes), "to test");
}

static void close_all(void)
{
	expect(!net->closeSend(sender) && !net->closeRecv(receiver) && !net->closeListen(listening),
		"to close");
}

static void send_one(void *mhandle, char *at, int size)
{
	void *request = NULL;
	expect(!net->isend(sender, at, size, 1, mhandle, &request) && request, "to send");
	finish(request);
}

static void receive_one(void *mhandle)
{
	void *request = NULL, *data = buffer;
	int size = 64, tag = 1;
	expect(!net->irecv(receiver, 1, &data, &size, &tag, &mhandle, &request) && request,
		"to receive");
	finish(request);
}

static void version(bool bad)
{
	void *comm = NULL;
	connect_both(false);
	if (bad)
		expect(!net10->accept(listening, &comm, NULL), "another");
	if (comm)
		net->closeRecv(comm);
	close_all();
}

static void handle_bytes(bool bad)
{
	connect_both(bad);
	close_all();
}

static void mhandle(bool bad)
{
	connect_both(false);
	void *of = reg(bad ? receiver : sender);
	send_one(of, buffer, 64);
	expect(!net->deregMr(bad ? receiver : sender, of), "to deregister");
	close_all();
}

static void request(bool bad)
{
	int done;
	connect_both(false);
	void *m = reg(sender), *r = NULL;
	expect(!net->isend(sender, buffer, 64, 1, m, &r), "to send");
	finish(r);
	if (bad)
		net->test(r, &done, NULL);
	expect(!net->deregMr(sender, m), "to deregister");
	close_all();
}

static void *send_from_thread(void *m)
{
	send_one(m, buffer, 64);
	return NULL;
}

static void thread(bool bad)
{
	pthread_t other;
	connect_both(false);
	void *m = reg(sender);
	if (bad)
		setenv("PLUGIN_FAKE", "slow", 1);
	expect(!pthread_create(&other, NULL, send_from_thread, m), "a thread");
	if (!bad)
		pthread_join(other, NULL);
	send_one(m, buffer, 64);
	if (bad)
		pthread_join(other, NULL);
	expect(!net->deregMr(sender, m), "to deregister");
	close_all();
}

static void memory(bool bad)
{
	connect_both(false);
	void *m = reg(sender);
	send_one(m, buffer + sizeof(buffer) - 64, bad ? 65 : 64);
	expect(!net->deregMr(sender, m), "to deregister");
	close_all();
}

static void size(bool bad)
{
	connect_both(false);
	if (bad)
		setenv("PLUGIN_FAKE", "size", 1);
	void *m = reg(receiver);
	receive_one(m);
	expect(!net->deregMr(receiver, m), "to deregister");
	close_all();
}

static void result(bool bad)
{
	connect_both(false);
	if (bad)
		setenv("PLUGIN_FAKE", "negative", 1);
	void *m = reg(receiver);
	receive_one(m);
	expect(!net->deregMr(receiver, m), "to deregister");
	close_all();
}

static void close_early(bool bad)
{
	connect_both(false);
	void *m = reg(sender);
	send_one(m, buffer, 64);
	if (!bad)
		expect(!net->deregMr(sender, m), "to deregister");
	close_all();
}

static void requests(bool bad)
{
	void *r[33];
	int n = bad ? 33 : 32;
	connect_both(false);
	void *m = reg(sender);
	for (int i = 0; i < n; i++)
		expect(!net->isend(sender, buffer, 64, 1, m, &r[i]), "to send");
	for (int i = 0; i < n; i++)
		finish(r[i]);
	expect(!net->deregMr(sender, m), "to deregister");
	close_all();
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
	{"plugin-thread", thread},
	{"plugin-size", size},
	{"plugin-result", result},
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
	expect(tracer, "the tracer");
	net = dlsym(tracer, "ncclNetPlugin_v8");
	net10 = dlsym(tracer, "ncclNetPlugin_v10");
	expect(net && net10, "v8 and v10");
	expect(!dlsym(tracer, "ncclNetPlugin_v9") && !dlsym(tracer, "ncclNetPlugin_v12"),
		"no version that the plugin does not have");
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].rule, argv[2])) {
			cases[i].run(!strcmp(argv[3], "bad"));
			return 0;
		}
	return 2;
}
