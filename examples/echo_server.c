/* SPDX-License-Identifier: BSD-3-Clause */
/* echo_server.c - objects come, and go back to where they came from.
 *
 *   echo_server ADDRESS [CLIENTS]     for example  echo_server :7471
 *
 * It serves any number of clients in one thread: nothing here waits for one of them. Each step is a
 * callback, which posts the next one. With CLIENTS it ends when so many have come and gone. */
#include "example.h"

enum { OBJECT_BYTES_MAX = 1 << 30 };

/* One client: the object that it sent last. One operation is under way at any time, so its end with
 * an error is how we learn that the client has gone. */
struct client {
	rpw_context *context;
	rpw_endpoint *ep;
	void *object;
	size_t len;
};
static long gone;

static void leave(struct client *c, int status)
{
	printf("a client has left (%s)\n", rpw_status_name(status));
	fflush(stdout);
	rpw_endpoint_destroy(c->ep);
	free(c->object);
	free(c);
	gone++;
}

static void receive(struct client *c);

static void went_back(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct client *c = arg;

	rpw_request_destroy(req);
	free(c->object);
	c->object = NULL;
	if (done->status == RPW_OK)
		receive(c);
	else
		leave(c, done->status);
}

static void came(rpw_request *req, const rpw_completion *done, void *arg)
{
	struct client *c = arg;

	rpw_request_destroy(req);
	if (done->status != RPW_OK) {
		leave(c, done->status);
		return;
	}
	printf("an object of %zu bytes\n", c->len);
	/* The object must stay as it is until it has gone back. That takes until the client has
	 * asked for it, so it is never done at once. */
	int status = rpw_send_obj(c->ep, c->object, c->len, &req);
	if (status == RPW_IN_PROGRESS)
		rpw_request_on_done(req, went_back, c);
	else
		leave(c, status);
}

/* Memory for an object of which only the size is known yet. Clients may say any size: what we do
 * not want to hold for one of them is refused. */
static void *room(size_t len, void *arg)
{
	(void)arg;
	return len <= OBJECT_BYTES_MAX ? malloc(len ? len : 1) : NULL;
}

static void receive(struct client *c)
{
	rpw_request *req;
	int status = rpw_recv_obj(c->context, c->ep, room, NULL, &c->object, &c->len, &req);

	if (status == RPW_IN_PROGRESS)
		rpw_request_on_done(req, came, c);
	else
		leave(c, status);
}

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct client *c = calloc(1, sizeof(*c));

	(void)l;
	if (!c) {
		rpw_endpoint_destroy(ep);
		return;
	}
	c->context = arg;
	c->ep = ep;
	print_path(ep);
	receive(c);
}

int main(int argc, char **argv)
{
	rpw_context *c;

	if (argc < 2) {
		fprintf(stderr, "Usage: echo_server ADDRESS [CLIENTS]\n");
		return 2;
	}
	long clients = argc > 2 ? atol(argv[2]) : -1;
	must(rpw_context_create(NULL, &c), "rpw_context_create");
	rpw_listener *l = listen_on(c, argv[1], accepted, c);
	while (gone != clients)
		turn(c);
	rpw_listener_destroy(l);
	rpw_context_destroy(c);
	return 0;
}
