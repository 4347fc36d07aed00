/* SPDX-License-Identifier: BSD-3-Clause */
/* churn_test.c - connections of a pair of processes by the distribution's librdmacm, made, ended
 * and destroyed as fast as they can, or CHURN_RATE a second: none is refused. A QP number of the
 * client comes again while the server still has its last connection in TIMEWAIT.
 *
 * TEST_ROUNDS: so many (6,000); CHURN_RATE: so many a second (0: no limit). */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"

enum { PORT = 18641, EVENT_MS = 20000, CONNECTIONS = 6000, AT_ONCE = 8, LIMIT_S = 240 };

static struct rdma_event_channel *channel;
static const struct sockaddr_in address = {.sin_family = AF_INET};

static double now_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}
static struct sockaddr_in there(void)
{
	struct sockaddr_in a = address;
	a.sin_port = htons(PORT);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static void must(int failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void qp_make(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	must(rdma_create_qp(id, NULL, &a), "rdma_create_qp");
}
static void id_free(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	must(rdma_destroy_id(id), "rdma_destroy_id");
}

/* ---- the server: it takes whoever comes ---- */

static void server(int ready)
{
	struct sockaddr_in a = there();
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *l;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	must(!(channel = rdma_create_event_channel()), "rdma_create_event_channel");
	must(rdma_create_id(channel, &l, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_bind_addr(l, (struct sockaddr *)&a), "rdma_bind_addr");
	must(rdma_listen(l, 128), "rdma_listen");
	must(write(ready, "r", 1) != 1, "write");
	for (;;) {
		struct rdma_cm_event *e;
		must(rdma_get_cm_event(channel, &e), "rdma_get_cm_event");
		enum rdma_cm_event_type type = e->event;
		struct rdma_cm_id *id = e->id;
		rdma_ack_cm_event(e);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			qp_make(id);
			must(rdma_accept(id, &param), "rdma_accept");
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_disconnect(id);
			id_free(id);
		}
	}
}

/* ---- the client ---- */

static unsigned begun, done, refused;
static int first_status;

static void begin(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in a = there();
	begun++;
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000), "rdma_resolve_addr");
}

static void take_event(void)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct rdma_cm_event *e;
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	errno = ETIMEDOUT;
	must(poll(&p, 1, EVENT_MS) != 1, "an event within 20 s");
	must(rdma_get_cm_event(channel, &e), "rdma_get_cm_event");
	enum rdma_cm_event_type type = e->event;
	struct rdma_cm_id *id = e->id;
	int status = e->status;
	rdma_ack_cm_event(e);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(rdma_resolve_route(id, 2000), "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		qp_make(id);
		must(rdma_connect(id, &param), "rdma_connect");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		must(rdma_disconnect(id), "rdma_disconnect");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		id_free(id);
		done++;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		first_status = refused++ ? first_status : status;
		fprintf(stderr, "%s, status %d\n", rdma_event_str(type), status);
		id_free(id);
		done++;
	}
}

static void none_is_refused(void **state)
{
	const char *given = getenv("CHURN_RATE");
	unsigned n = (unsigned)test_rounds(CONNECTIONS),
		 rate = given ? (unsigned)strtoul(given, NULL, 10) : 0;
	int ready[2], status;
	char r;
	alarm(LIMIT_S);
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		server(ready[1]);
	assert_int_equal(read(ready[0], &r, 1), 1);
	channel = rdma_create_event_channel();
	assert_non_null(channel);
	double t0 = now_s();
	while (done < n && refused < 20) {
		while (begun < n && begun - done < AT_ONCE &&
			(!rate || begun <= (now_s() - t0) * rate))
			begin();
		if (begun > done)
			take_event();
		else
			usleep(200);
	}
	print_message("%u connections, %.0f a second\n", done, done / (now_s() - t0));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status)); /* it has not given up before */
	assert_int_equal(refused, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(none_is_refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
