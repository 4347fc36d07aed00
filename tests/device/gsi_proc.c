/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_proc.c - see gsi_proc.h. */
#include "gsi_proc.h"
#include "device/ports.h"
#include "lib/descriptors.h"

enum { CONNS = 1100 };

/* ---- a process: what ucma is, in short ---- */

static struct seen *me;
static struct rpwi_cm *cm;
static struct rpwi_cm_conn conn[CONNS];
static unsigned nconns, naps_ms, put_ms;
static uint64_t services[8];
static unsigned nservices;
static bool holding; /* a program that does not decide on what it is asked */
static const uint8_t guid[8] = {2, 4, 6, 8, 10, 12, 14, 16};

static uint8_t pdata_byte(uint32_t qpn, unsigned i) { return pattern(qpn, qpn >> 12, i); }
static void pdata_fill(uint8_t *out, unsigned len, uint32_t qpn)
{
	for (unsigned i = 0; i < len; i++)
		out[i] = pdata_byte(qpn, i);
}
static bool pdata_holds(const uint8_t *p, unsigned len, uint32_t qpn)
{
	for (unsigned i = 0; i < len; i++)
		if (p[i] != pdata_byte(qpn, i))
			return false;
	return true;
}

static struct rpwi_cm_param param_new(void)
{
	uint16_t slot = hca_here.slots[0];
	return (struct rpwi_cm_param){.qpn = (uint32_t)slot << RPWI_SLOT_SHIFT | (nconns + 2),
		.starting_psn = nconns * 77,
		.retry_count = 7,
		.ack_timeout = 14};
}

static struct rpwi_cm_conn *conn_new(void)
{
	struct rpwi_cm_conn *c = nconns < CONNS ? &conn[nconns++] : NULL;
	if (c)
		rpwi_cm_conn_init(cm, c, c);
	return c;
}

static struct rpwi_cm_conn *on_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	uint64_t wanted = sidr ? m->sidr_req.service_id : m->req.service_id;
	for (unsigned i = 0; i < nservices; i++)
		if (services[i] == wanted)
			return conn_new();
	return NULL;
}

static void on_incoming(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	struct rpwi_cm_param p = param_new();
	uint8_t pdata[RPWI_REP_PDATA];
	pdata_fill(pdata, sizeof(pdata), p.qpn);
	if (m->attr == RPWI_CM_SIDR_REQ) {
		me->sidr_requests++;
		rpwi_cm_sidr_reply(c, 0, 0x4242, 0x11111111, NULL, 0, rpwi_gsi_now());
		return;
	}
	me->requests++;
	if (!pdata_holds(m->pdata, RPWI_REQ_PDATA, m->req.qpn))
		me->bad++;
	if (!holding && rpwi_cm_accept(c, guid, &p, pdata, sizeof(pdata), rpwi_gsi_now()))
		me->bad++;
}

static void on_event(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	me->event[ev->type]++;
	switch (ev->type) {
	case RPWI_CM_EV_REP:
		if (!pdata_holds(ev->pdata, RPWI_REP_PDATA, c->remote.qpn) ||
			rpwi_cm_establish(c, NULL, 0, rpwi_gsi_now()))
			me->bad++;
		me->active++;
		break;
	case RPWI_CM_EV_ESTABLISHED:
		me->passive++;
		break;
	case RPWI_CM_EV_REJ:
		me->rej_reason = ev->reason;
		break;
	case RPWI_CM_EV_DREQ:
		if (rpwi_cm_disconnect(c, rpwi_gsi_now()))
			me->bad++;
		break;
	case RPWI_CM_EV_SIDR_REP:
		me->sidr_status = ev->sidr.status;
		me->sidr_qpn = ev->sidr.qpn;
		break;
	default:
		break;
	}
}

static void on_addresses(void *user) { me->addresses_changed++; }

static const struct rpwi_gsi_user user = {.request = on_request,
	.incoming = on_incoming,
	.event = on_event,
	.addresses_changed = on_addresses};

static struct rpwi_cm_path path_of(const struct order *o)
{
	struct rpwi_cm_path p = {.local = o->from, .remote = o->to, .mtu = 5, .hop_limit = 64};
	rpwi_gsi_gid(&p.local, p.local_gid);
	rpwi_gsi_gid(&p.remote, p.remote_gid);
	return p;
}

static int do_connect(const struct order *o)
{
	struct rpwi_cm_path path = path_of(o);
	for (unsigned i = 0; i < o->n; i++) {
		struct rpwi_cm_conn *c = conn_new();
		struct rpwi_cm_param p = param_new();
		uint8_t pdata[RPWI_REQ_PDATA];
		pdata_fill(pdata, sizeof(pdata), p.qpn);
		int rc = c ? rpwi_cm_connect(c, &path, o->service, guid, &p, pdata, sizeof(pdata),
				     rpwi_gsi_now())
			   : ENOMEM;
		if (rc)
			return -rc;
	}
	return 0;
}

static int do_sidr(const struct order *o)
{
	struct rpwi_cm_path path = path_of(o);
	struct rpwi_cm_conn *c = conn_new();
	return c ? -rpwi_cm_sidr_request(c, &path, o->service, NULL, 0, 2000, 5, rpwi_gsi_now())
		 : -ENOMEM;
}

static int do_disconnect(void)
{
	int n = 0;
	for (unsigned i = 0; i < nconns; i++)
		if (conn[i].state == RPWI_CM_ESTABLISHED &&
			!rpwi_cm_disconnect(&conn[i], rpwi_gsi_now()))
			n++;
	return n;
}

static int count_state(unsigned state)
{
	int n = 0;
	for (unsigned i = 0; i < nconns; i++)
		n += conn[i].state == state;
	return n;
}

static int do_put(void)
{
	for (unsigned i = 0; i < nconns; i++)
		rpwi_cm_destroy(&conn[i], rpwi_gsi_now());
	nconns = nservices = 0;
	rpwi_gsi_put();
	return 0;
}

/* A device with a port, but no engine: what a plain verbs program is. */
static int open_device_port(const struct rpwi_addr *addr)
{
	char why[256];
	int err = 0;
	int rc = hca_get();
	return rc ? rc : port_get(addr, false, why, sizeof(why), &err) ? 0 : err;
}

static int wait_for_child(pid_t pid)
{
	int status = -1;
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

/* Runs after what ends connections at exit. Not for the leak checker of ASan that comes last: what
 * such a child leaves to its parent is not freed (hca.c says why). */
static int forked_status = -1;
static void end_of_forked(void)
{
	if (forked_status >= 0)
		_exit(forked_status);
}

/* A child that goes its own way: with a place and a prefix of its own. 0 if all is as it should
 * be. */
static int fork_own(const struct order *o)
{
	unsigned prefix = hca_here.slots[0];
	pid_t pid = fork();
	if (pid)
		return wait_for_child(pid);
	struct seen *s = me;
	unsigned active = s->active;
	rpwi_gsi_lock();
	int rc = rpwi_gsi_get(&cm);
	unsigned inherited = nconns;
	if (!rc)
		rc = hca_here.slots[0] == prefix ? 1 : do_connect(o);
	rpwi_gsi_kick();
	rpwi_gsi_unlock();
	for (unsigned i = 0; !rc && s->active == active && i < WAIT_MS; i++)
		usleep(1000);
	rpwi_gsi_lock();
	if (!rc && (conn[inherited].state != RPWI_CM_ESTABLISHED ||
			   conn[inherited].local_id >> 20 != hca_here.slots[0]))
		rc = 2;
	rpwi_gsi_unlock();
	forked_status = rc ? 10 : 0;
	exit(0); /* with all that exit does: only its own connection is taken down */
}

static int counter(unsigned offset)
{
	return (int)*(const uint64_t *)(const void *)((const char *)&hca_here.n + offset);
}

static int lost_handing_over(void)
{
	struct rpwi_port_stats sum = {0};
	for (unsigned i = 0; i < hca_here.nports; i++)
		if (hca_here.port[i].refs)
			port_stats_add(hca_here.port[i].io, &sum);
	return (int)sum.hand_over_lost;
}

static int obey_locked(const struct order *o)
{
	char why[256];
	int rc = 0;
	switch (o->verb) {
	case GET:
		return rpwi_gsi_get(&cm);
	case PUT:
		return do_put();
	case PORT:
		return rpwi_gsi_port_get(&o->from, why, sizeof(why));
	case UNPORT:
		rpwi_gsi_port_put(&o->from);
		return 0;
	case CLAIM:
		rc = rpwi_gsi_claim(o->service, &o->from);
		if (!rc)
			services[nservices++] = o->service;
		return rc;
	case UNCLAIM:
		nservices = 0;
		rpwi_gsi_unclaim(o->service, &o->from);
		return 0;
	case CONNECT:
		rc = do_connect(o);
		break;
	case SIDR:
		rc = do_sidr(o);
		break;
	case DISCONNECT:
		rc = do_disconnect();
		break;
	case STATE:
		return count_state(o->n);
	case NAP:
		naps_ms = o->n;
		return 0;
	case PUT_LATE:
		put_ms = o->n;
		return 0;
	case OPEN_DEVICE_PORT:
		return open_device_port(&o->from);
	case COUNTER:
		return counter(o->n);
	case REFUSED:
		return (int)rpwi_cm_stats(cm)->no_service;
	case LOST:
		return lost_handing_over();
	case SLOT:
		return hca_here.slots[0];
	case HOLD:
		holding = true;
		return 0;
	case DESTROY:
		for (unsigned i = 0; i < nconns; i++)
			rpwi_cm_destroy(&conn[i], rpwi_gsi_now());
		return 0;
	case LOCAL: {
		struct rpwi_gsi_local l;
		return rpwi_gsi_local(&o->from, &l);
	}
	default:
		return -EINVAL;
	}
	rpwi_gsi_kick();
	return rc;
}

static int obey(const struct order *o)
{
	pid_t pid;
	switch (o->verb) {
	case FILES:
		return open_descriptors();
	case FORK_OWN:
		return fork_own(o);
	case DAEMON:
		pid = getpid();
		if (fork())
			_exit(0);
		while (getppid() == pid)
			usleep(1000);
		return 0;
	case FORK_EXIT:
		pid = fork();
		if (!pid)
			exit(0);
		return wait_for_child(pid);
	default:
		rpwi_gsi_lock();
		int rc = obey_locked(o);
		rpwi_gsi_unlock();
		return rc;
	}
}

static void proc_main(int fd)
{
	struct order o;
	rpwi_gsi_attach(&user);
	atexit(end_of_forked);
	while (read(fd, &o, sizeof(o)) == sizeof(o) && o.verb != EXIT) {
		int answer = obey(&o);
		if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
			break;
		if (naps_ms) {
			/* A program whose thread has the lock and does not come to read what
			 * arrives. */
			rpwi_gsi_lock();
			usleep(naps_ms * 1000);
			rpwi_gsi_unlock();
			naps_ms = 0;
		}
		if (put_ms) {
			rpwi_gsi_lock();
			usleep(put_ms * 1000);
			do_put();
			rpwi_gsi_unlock();
			put_ms = 0;
		}
	}
	exit(0);
}

/* ---- the test's side ---- */

void start_as(struct proc *p, uid_t uid)
{
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	p->seen = mmap(
		NULL, sizeof(*p->seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p->seen, MAP_FAILED);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (!p->pid) {
		close(fd[0]);
		if (uid && (setenv("ROPEWAY_SHARE_PORT", "1", 1) || setresgid(uid, uid, uid) ||
				   setresuid(uid, uid, uid)))
			_exit(3);
		me = p->seen;
		proc_main(fd[1]);
	}
	close(fd[1]);
	p->fd = fd[0];
}

void start(struct proc *p) { start_as(p, 0); }

int tell(struct proc *p, struct order o)
{
	int answer = -1;
	assert_int_equal(write(p->fd, &o, sizeof(o)), sizeof(o));
	assert_int_equal(read(p->fd, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

void end(struct proc *p, int signo)
{
	struct order o = {.verb = EXIT};
	if (!p->pid)
		return;
	if (signo)
		kill(p->pid, signo);
	else if (write(p->fd, &o, sizeof(o)) != sizeof(o))
		fprintf(stderr, "a process of the test is gone\n");
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
	close(p->fd);
}

void await(const volatile unsigned *count, unsigned n)
{
	for (int i = 0; *count < n && i < WAIT_MS; i++)
		usleep(1000);
	assert_int_equal(*count, n);
}

void await_state(struct proc *p, unsigned state, int n)
{
	int have = -1;
	for (int i = 0;
		i < WAIT_MS && (have = tell(p, (struct order){.verb = STATE, .n = state})) != n;
		i++)
		usleep(1000);
	assert_int_equal(have, n);
}

void await_counter(struct proc *p, unsigned offset, int n)
{
	int have = -1;
	for (int i = 0;
		i < WAIT_MS && (have = tell(p, (struct order){.verb = COUNTER, .n = offset})) < n;
		i++)
		usleep(1000);
	assert_int_equal(have, n);
}

void open_engine_as(struct proc *p, const struct rpwi_addr *addr, uid_t uid)
{
	start_as(p, uid);
	assert_int_equal(tell(p, (struct order){.verb = GET}), 0);
	assert_int_equal(tell(p, (struct order){.verb = PORT, .from = *addr}), 0);
}

void open_engine(struct proc *p, const struct rpwi_addr *addr) { open_engine_as(p, addr, 0); }

void claim(struct proc *p, uint64_t service, const struct rpwi_addr *addr)
{
	assert_int_equal(
		tell(p, (struct order){.verb = CLAIM, .service = service, .from = *addr}), 0);
}

void connect_to(struct proc *p, uint64_t service, const struct rpwi_addr *from,
	const struct rpwi_addr *to, unsigned n)
{
	assert_int_equal(tell(p, (struct order){.verb = CONNECT,
					 .service = service,
					 .from = *from,
					 .to = *to,
					 .n = n}),
		0);
}
