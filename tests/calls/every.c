/* SPDX-License-Identifier: BSD-3-Clause */
/* every.c - calls each exported function of libibverbs and librdmacm, with arguments that a program
 * could give and with NULL for them, each call in a process of its own.
 *
 *   every DEVICE ADDRESS SECONDS [FUNCTION]...    `function<TAB>arguments<TAB>outcome`, a line for
 *                                                 each call
 *
 * Outcomes: returns, waits (had not returned after SECONDS), absent (the device has no object to
 * call it with), or the signal that ended the process. The rows are made by generate.py: ROW(name,
 * arguments, call).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

/* PORT: of rdma_cm and rsockets. */
enum { LEN = 4096, ROOM = 65536, PORT = 7491, AT_ONCE = 4, ABSENT = 77 };

static const char *device_name, *address;
static unsigned limit_s; /* for one call */

/* ---- objects, made when a call first asks for one; ABSENT where the device has none ---- */

static void *made(void *object)
{
	if (!object)
		_exit(ABSENT);
	return object;
}
static void did(int rc)
{
	if (rc)
		_exit(ABSENT);
}

static struct ibv_device **a_list(void)
{
	static struct ibv_device **list;
	return list ? list : (list = made(ibv_get_device_list(NULL)));
}
static struct ibv_device *a_device(void)
{
	struct ibv_device **at = a_list();
	while (*at && strcmp(ibv_get_device_name(*at), device_name) != 0)
		at++;
	return made(*at);
}
static struct ibv_context *a_context(void)
{
	static struct ibv_context *c;
	if (c)
		return c;
	c = made(ibv_open_device(a_device()));
	fcntl(c->async_fd, F_SETFL, O_NONBLOCK);
	return c;
}
static struct ibv_pd *a_pd(void)
{
	static struct ibv_pd *pd;
	return pd ? pd : (pd = made(ibv_alloc_pd(a_context())));
}
static char *memory(void)
{
	static char *at;
	return at ? at : (at = made(aligned_alloc(LEN, LEN)));
}
/* For what a call writes, or for a struct of zeros. */
static void *blank(void) { return made(calloc(1, ROOM)); }
static struct ibv_mr *an_mr(void)
{
	return made(ibv_reg_mr(a_pd(), memory(), LEN, IBV_ACCESS_LOCAL_WRITE));
}
static struct ibv_comp_channel *a_comp_channel(void)
{
	struct ibv_comp_channel *ch = made(ibv_create_comp_channel(a_context()));
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	return ch;
}
static struct ibv_cq *a_cq(void)
{
	static struct ibv_cq *cq;
	return cq ? cq : (cq = made(ibv_create_cq(a_context(), 8, NULL, NULL, 0)));
}
static struct ibv_srq_init_attr *an_srq_attr(void)
{
	struct ibv_srq_init_attr *a = blank();
	a->attr.max_wr = 4;
	a->attr.max_sge = 1;
	return a;
}
static struct ibv_srq_init_attr_ex *an_srq_attr_ex(void)
{
	struct ibv_srq_init_attr_ex *a = blank();
	a->attr.max_wr = 4;
	a->attr.max_sge = 1;
	a->comp_mask = IBV_SRQ_INIT_ATTR_PD;
	a->pd = a_pd();
	return a;
}
static struct ibv_srq *an_srq(void) { return made(ibv_create_srq(a_pd(), an_srq_attr())); }
static struct ibv_qp_init_attr *a_qp_attr(void)
{
	struct ibv_qp_init_attr *a = blank();
	*a = (struct ibv_qp_init_attr){.send_cq = a_cq(),
		.recv_cq = a_cq(),
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	return a;
}
static struct ibv_qp_init_attr_ex *a_qp_attr_ex(void)
{
	struct ibv_qp_init_attr_ex *a = blank();
	memcpy(a, a_qp_attr(), sizeof(struct ibv_qp_init_attr));
	a->comp_mask = IBV_QP_INIT_ATTR_PD;
	a->pd = a_pd();
	return a;
}
static struct ibv_qp *a_qp(void) { return made(ibv_create_qp(a_pd(), a_qp_attr())); }
static struct ibv_qp *a_ud_qp(void)
{
	struct ibv_qp_init_attr *a = a_qp_attr();
	a->qp_type = IBV_QPT_UD;
	return made(ibv_create_qp(a_pd(), a));
}
/* To INIT, with MODIFY_MASK. */
static struct ibv_qp_attr *a_qp_change(void)
{
	struct ibv_qp_attr *a = blank();
	a->qp_state = IBV_QPS_INIT;
	a->port_num = 1;
	return a;
}
enum { MODIFY_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS };
/* To the device itself. */
static struct ibv_ah_attr *an_ah_attr(void)
{
	struct ibv_ah_attr *a = blank();
	a->is_global = 1;
	a->port_num = 1;
	a->grh.sgid_index = 1;
	a->grh.hop_limit = 64;
	did(ibv_query_gid(a_context(), 1, 1, &a->grh.dgid));
	return a;
}
static struct ibv_ah *an_ah(void) { return made(ibv_create_ah(a_pd(), an_ah_attr())); }
static struct ibv_wc *a_wc(void)
{
	struct ibv_wc *wc = blank();
	wc->wc_flags = IBV_WC_GRH;
	return wc;
}
/* As an IPv4 packet leaves it, from the device itself: RoCE v2. */
static struct ibv_grh *a_grh(void)
{
	struct ibv_grh *g = blank();
	uint8_t *ip = (uint8_t *)g + 20;
	struct in_addr a;
	inet_pton(AF_INET, address, &a);
	ip[0] = 0x45;
	ip[8] = 64;
	memcpy(ip + 12, &a, 4);
	memcpy(ip + 16, &a, 4);
	return g;
}
static union ibv_gid *a_group(void)
{
	static const uint8_t group[16] = {[10] = 0xff, 0xff, 239, 7, 7, 7};
	union ibv_gid *gid = blank();
	memcpy(gid, group, sizeof(group));
	return gid;
}
static struct ibv_mw *an_mw(void) { return made(ibv_alloc_mw(a_pd(), IBV_MW_TYPE_1)); }
static struct ibv_dm *a_dm(void)
{
	struct ibv_alloc_dm_attr a = {.length = 64};
	return made(ibv_alloc_dm(a_context(), &a));
}
/* Of a port: it names no object. */
static struct ibv_async_event *an_event(void)
{
	struct ibv_async_event *e = blank();
	e->event_type = IBV_EVENT_PORT_ACTIVE;
	e->element.port_num = 1;
	return e;
}
static struct ibv_recv_wr *a_receive(void)
{
	struct ibv_recv_wr *wr = blank();
	return wr;
}
static struct ibv_send_wr *a_send(void)
{
	struct ibv_send_wr *wr = blank();
	wr->opcode = IBV_WR_SEND;
	return wr;
}
static int a_memfd(void)
{
	int fd = memfd_create("every", 0);
	did(fd < 0 || ftruncate(fd, LEN));
	return fd;
}

#ifdef HAVE_IBV_ALLOC_DMAH
static struct ibv_dmah *a_dmah(void) { return made(ibv_alloc_dmah(a_context(), blank())); }
#endif
#ifdef HAVE_IBV_ALLOC_BUF
static struct ibv_buf *a_buf(void)
{
	struct ibv_buf *buf;
	made(ibv_alloc_buf(a_pd(), LEN, &buf));
	return buf;
}
#endif
#ifdef HAVE_IBV_REG_MR_EX
static struct ibv_mr_init_attr *an_mr_attr(void)
{
	struct ibv_mr_init_attr *a = blank();
	a->length = LEN;
	a->addr = memory();
	a->comp_mask = IBV_REG_MR_MASK_ADDR;
	return a;
}
#endif
#ifdef HAVE_IBV_CREATE_COMP_CNTR
static struct ibv_comp_cntr *a_comp_cntr(void)
{
	return made(ibv_create_comp_cntr(a_context(), blank()));
}
static struct ibv_qp_attach_comp_cntr_attr *an_attach(void)
{
	struct ibv_qp_attach_comp_cntr_attr *a = blank();
	a->op_mask = 1;
	return a;
}
#endif

/* ---- rdma_cm ---- */

static struct rdma_event_channel *a_channel(void)
{
	static struct rdma_event_channel *ch;
	return ch ? ch : (ch = made(rdma_create_event_channel()));
}
static struct sockaddr *an_address(void)
{
	struct sockaddr_in *a = blank();
	a->sin_family = AF_INET;
	a->sin_port = htons(PORT);
	inet_pton(AF_INET, address, &a->sin_addr);
	return (struct sockaddr *)a;
}
static struct sockaddr *a_source(void)
{
	struct sockaddr_in *a = (void *)an_address();
	a->sin_port = 0;
	return (struct sockaddr *)a;
}
static struct sockaddr *a_group_address(void)
{
	struct sockaddr_in *a = (void *)an_address();
	inet_pton(AF_INET, "239.7.7.7", &a->sin_addr);
	return (struct sockaddr *)a;
}
static struct rdma_cm_id *a_new_id(void)
{
	struct rdma_cm_id *id;
	did(rdma_create_id(a_channel(), &id, NULL, RDMA_PS_TCP));
	return id;
}
/* Its address is resolved: it has a device. *event: not acknowledged yet. */
static struct rdma_cm_id *resolved(struct rdma_cm_event **event)
{
	struct rdma_cm_id *id = a_new_id();
	did(rdma_resolve_addr(id, NULL, an_address(), 1000));
	did(rdma_get_cm_event(a_channel(), event));
	did((*event)->event != RDMA_CM_EVENT_ADDR_RESOLVED);
	return id;
}
static struct rdma_cm_id *an_id(void)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id = resolved(&e);
	rdma_ack_cm_event(e);
	return id;
}
/* librdmacm makes the CQs, and has a PD for the device. */
static struct ibv_qp_init_attr *a_cm_qp_attr(void)
{
	struct ibv_qp_init_attr *a = a_qp_attr();
	a->send_cq = a->recv_cq = NULL;
	return a;
}
static struct ibv_qp_init_attr_ex *a_cm_qp_attr_ex(void)
{
	struct ibv_qp_init_attr_ex *a = blank();
	memcpy(a, a_cm_qp_attr(), sizeof(struct ibv_qp_init_attr));
	return a;
}
static struct rdma_cm_id *an_id_with_qp(void)
{
	struct rdma_cm_id *id = an_id();
	did(rdma_create_qp(id, NULL, a_cm_qp_attr()));
	return id;
}
static struct rdma_cm_id *an_id_with_srq(void)
{
	struct rdma_cm_id *id = an_id();
	did(rdma_create_srq(id, NULL, an_srq_attr()));
	return id;
}
static struct rdma_cm_id *a_bound_id(void)
{
	struct rdma_cm_id *id = a_new_id();
	did(rdma_bind_addr(id, a_source()));
	return id;
}
static struct rdma_cm_event *a_cm_event(void)
{
	struct rdma_cm_event *e;
	resolved(&e);
	return e;
}
static struct rdma_event_channel *a_ready_channel(void)
{
	did(rdma_resolve_addr(a_new_id(), NULL, an_address(), 1000));
	return a_channel();
}
static struct rdma_conn_param *a_conn_param(void)
{
	struct rdma_conn_param *p = blank();
	p->responder_resources = p->initiator_depth = 1;
	return p;
}
static struct rdma_addrinfo *an_addrinfo(void)
{
	struct rdma_addrinfo *res;
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
	did(rdma_getaddrinfo(address, "7491", &hints, &res));
	return res;
}
static struct ibv_context **a_cm_list(void) { return made(rdma_get_devices(NULL)); }
static struct rdma_cm_join_mc_attr_ex *a_join(void)
{
	struct rdma_cm_join_mc_attr_ex *a = blank();
	a->comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	a->join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
	a->addr = a_group_address();
	return a;
}

/* ---- rsockets ---- */

static int a_socket(void)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);
	did(s < 0 || rfcntl(s, F_SETFL, O_NONBLOCK));
	return s;
}
static int a_bound_socket(void)
{
	int s = a_socket();
	did(rbind(s, a_source(), sizeof(struct sockaddr_in)));
	return s;
}
static int a_listener(void)
{
	int s = a_bound_socket();
	did(rlisten(s, 4));
	return s;
}
static int a_datagram_socket(void)
{
	int s = rsocket(AF_INET, SOCK_DGRAM, 0);
	did(s < 0 || rfcntl(s, F_SETFL, O_NONBLOCK));
	return s;
}
static struct pollfd *a_pollfd(void)
{
	struct pollfd *p = blank();
	*p = (struct pollfd){.fd = a_socket(), .events = POLLIN};
	return p;
}
static struct iovec *an_iovec(void)
{
	struct iovec *v = blank();
	*v = (struct iovec){memory(), 64};
	return v;
}
static struct msghdr *a_message(void)
{
	struct msghdr *m = blank();
	m->msg_iov = an_iovec();
	m->msg_iovlen = 1;
	return m;
}
static socklen_t *an_address_len(void)
{
	socklen_t *len = blank();
	*len = sizeof(struct sockaddr_in);
	return len;
}
static int *an_int(void) { return blank(); }
#ifdef HAVE_REPOLL_CREATE
static int an_epoll(void)
{
	int fd = repoll_create(0);
	did(fd < 0);
	return fd;
}
static struct epoll_event *an_epoll_event(void)
{
	struct epoll_event *e = blank();
	e->events = EPOLLIN;
	return e;
}
#endif

/* ---- the rows ---- */

#include "declared.inc"

static volatile long result;

struct row {
	const char *name, *arguments;
	void (*call)(void);
};
#define ROW(number, name, arguments, call) \
	static void call_##number(void) { call; }
#include "rows.inc"
#undef ROW
static const struct row rows[] = {
#define ROW(number, name, arguments, call) {name, arguments, call_##number},
#include "rows.inc"
#undef ROW
};
enum { ROWS = sizeof(rows) / sizeof(*rows) };

static void in_child(const struct row *row)
{
	struct rlimit none = {0, 0};
	int null = open("/dev/null", O_RDWR);
	setrlimit(RLIMIT_CORE, &none);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	alarm(limit_s);
	row->call();
	_exit(0);
}

static void say(const struct row *row, int status)
{
	const char *outcome = "returns";
	char text[32];
	if (WIFSIGNALED(status)) {
		snprintf(text, sizeof(text), "SIG%s", sigabbrev_np(WTERMSIG(status)));
		outcome = WTERMSIG(status) == SIGALRM ? "waits" : text;
	} else if (WEXITSTATUS(status)) {
		snprintf(text, sizeof(text), "exit %d", WEXITSTATUS(status));
		outcome = WEXITSTATUS(status) == ABSENT ? "absent" : text;
	}
	printf("%s\t%s\t%s\n", row->name, row->arguments, outcome);
	fflush(stdout);
}

static bool is_wanted(const struct row *row, int argc, char **argv)
{
	for (int i = 4; i < argc; i++)
		if (!strcmp(argv[i], row->name))
			return true;
	return argc == 4;
}

int main(int argc, char **argv)
{
	pid_t pids[AT_ONCE] = {0};
	unsigned of[AT_ONCE], next = 0, running = 0;
	if (argc < 4)
		return 2;
	device_name = argv[1];
	address = argv[2];
	limit_s = (unsigned)atoi(argv[3]);
	while (next < ROWS || running) {
		while (next < ROWS && running < AT_ONCE) {
			if (!is_wanted(&rows[next], argc, argv)) {
				next++;
				continue;
			}
			unsigned slot = 0;
			while (pids[slot])
				slot++;
			of[slot] = next++;
			pids[slot] = fork();
			if (!pids[slot])
				in_child(&rows[of[slot]]);
			running++;
		}
		int status;
		pid_t ended = running ? wait(&status) : 0;
		for (unsigned i = 0; i < AT_ONCE; i++)
			if (ended > 0 && pids[i] == ended) {
				say(&rows[of[i]], status);
				pids[i] = 0;
				running--;
			}
	}
	return 0;
}
