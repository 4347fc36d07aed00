/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - the helper: one process for each user and network namespace, which speaks for ropeway
 * processes that have ended without a word: a signal, a crash, _exit, exec. It is started by the
 * first of them that is connected with another host, and ends a moment after the last.
 *
 * How it sees an end: the process's connection to it closes (exec closes it, too); or, where a
 * forked child still has a copy of that, a pidfd of the process says so, and no child has said
 * within a moment that it goes on (daemons do). Then it reads what the process has left behind
 * (device/ledger.h), and takes leave of each peer (say.c), three times, because packets
 * get lost.
 *
 * While it lives it has UDP port 4791 of those addresses open like any other ropeway: so connection
 * requests to a process that has just ended are rejected, and hosts that ask get an answer, even if
 * every other process of this one is stopped in a debugger. Of its clients it takes memory and
 * pidfds; it says nothing that is not in that memory, and no other user's process can connect.
 */
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/farewell.h"
#include "device/gsi.h"
#include "say.h"

enum {
	CLIENTS_MAX = 4096,
	ROUNDS = 3,
	ACCEPTS_A_ROUND = 64,
};
static const uint64_t ROUND_NS[ROUNDS] = {
	0, 400 * RPWI_NS_PER_MS, RPWI_NS_PER_MS *RPWI_HELPER_SAYS_MS};

struct client {
	int fd, pid_fd; /* -1: none, or not any more */
	const struct ledger *ledger;
	uint64_t dead_ns;  /* its pidfd says that it has ended, its connection is open; or 0 */
	uint64_t ended_ns; /* 0: it lives */
	unsigned round;    /* goodbyes said */
	uint32_t locals;   /* addresses opened */
};

static struct client client[CLIENTS_MAX];
static unsigned nclients;
static struct pollfd fds[1 + 2 * CLIENTS_MAX];

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void forget(struct client *c)
{
	close_fd(&c->fd);
	close_fd(&c->pid_fd);
	ledger_unmap(c->ledger);
	*c = client[--nclients];
}

/* The ports of its addresses, so that what comes there is answered. */
static void open_ports(struct client *c)
{
	char why[RPWI_WHY_LEN];
	if (!c->ledger)
		return;
	uint32_t n = RPWI_MIN(c->ledger->nlocals, (uint32_t)LEDGER_LOCALS);
	rpwi_gsi_lock();
	for (; c->locals < n; c->locals++) {
		struct rpwi_addr a = c->ledger->local[c->locals];
		if ((a.family == 4 || a.family == 6) && rpwi_gsi_port_get(&a, why, sizeof(why)))
			rpwi_debug("helper: %s", why);
	}
	rpwi_gsi_unlock();
	rpwi_gsi_kick();
}

static void hello(struct client *c, struct rpwi_helper_heard *got)
{
	if (!c->ledger) /* else it is a child that goes on, with the same memory */
		c->ledger = ledger_map(got->ledger_fd);
	close_fd(&c->pid_fd);
	c->pid_fd = got->pid_fd;
	got->pid_fd = -1;
	c->dead_ns = 0;
	rpwi_helper_tell_slot(c->fd, hca_here.slots[0]);
}

static void end(struct client *c, uint64_t now_ns)
{
	close_fd(&c->fd);
	close_fd(&c->pid_fd);
	c->ended_ns = now_ns;
}

static void hear(struct client *c, uint64_t now_ns)
{
	struct rpwi_helper_heard got;
	int rc;
	while ((rc = rpwi_helper_heard(c->fd, &got)) > 0) {
		if (got.hello)
			hello(c, &got);
		close_fd(&got.ledger_fd); /* mapped, or not asked for */
		close_fd(&got.pid_fd);
		open_ports(c);
	}
	if (rc < 0)
		end(c, now_ns);
}

static void accept_all(int listener)
{
	for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
		int fd = rpwi_helper_accept(listener);
		if (fd == -EAGAIN)
			return;
		if (fd < 0)
			continue;
		if (nclients == CLIENTS_MAX)
			close(fd);
		else
			client[nclients++] = (struct client){.fd = fd, .pid_fd = -1};
	}
}

static void say_goodbye(struct client *c, uint64_t now_ns)
{
	if (c->ledger) {
		rpwi_gsi_lock();
		/* DREQ alone at first: a program that hears DISCONNECTED ends its QP itself. */
		unsigned n = say_farewell(c->ledger, now_ns, c->round > 0);
		rpwi_gsi_unlock();
		rpwi_debug("helper: notified %u peers, round %u", n, c->round + 1);
	}
	c->round++;
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) > 0;
}

/* When something is next to be done, in ms; -1: never. */
static int next_ms(uint64_t now_ns, uint64_t idle_ns)
{
	uint64_t at = nclients ? RPWI_NEVER : idle_ns + RPWI_HELPER_LINGER_MS * RPWI_NS_PER_MS;
	for (unsigned i = 0; i < nclients; i++) {
		const struct client *c = &client[i];
		if (c->ended_ns)
			at = RPWI_MIN(at, c->ended_ns + ROUND_NS[c->round]);
		else if (c->dead_ns)
			at = RPWI_MIN(at, c->dead_ns + RPWI_HELPER_HEIR_MS * RPWI_NS_PER_MS);
	}
	if (at == RPWI_NEVER)
		return -1;
	return at > now_ns ? (int)((at - now_ns) / RPWI_NS_PER_MS) + 1 : 0;
}

static void tend(struct client *c, uint64_t now_ns)
{
	if (!c->ended_ns && c->fd >= 0)
		hear(c, now_ns);
	if (!c->ended_ns && !c->dead_ns && c->pid_fd >= 0 && is_readable(c->pid_fd))
		c->dead_ns = now_ns;
	if (!c->ended_ns && c->dead_ns &&
		now_ns - c->dead_ns >= RPWI_HELPER_HEIR_MS * RPWI_NS_PER_MS)
		end(c, now_ns);
	while (c->ended_ns && c->round < ROUNDS && c->ended_ns + ROUND_NS[c->round] <= now_ns)
		say_goodbye(c, now_ns);
}

static void serve(int listener)
{
	uint64_t idle_ns = rpwi_now_ns();
	for (;;) {
		uint64_t now_ns = rpwi_now_ns();
		unsigned n = 0;
		if (!nclients && now_ns - idle_ns >= RPWI_HELPER_LINGER_MS * RPWI_NS_PER_MS)
			return;
		fds[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
		for (unsigned i = 0; i < nclients; i++) {
			if (client[i].fd >= 0)
				fds[n++] = (struct pollfd){.fd = client[i].fd, .events = POLLIN};
			if (client[i].pid_fd >= 0 && !client[i].dead_ns)
				fds[n++] =
					(struct pollfd){.fd = client[i].pid_fd, .events = POLLIN};
		}
		poll(fds, n, next_ms(now_ns, idle_ns));
		now_ns = rpwi_now_ns();
		accept_all(listener);
		for (unsigned i = nclients; i-- > 0;) {
			tend(&client[i], now_ns);
			if (client[i].round == ROUNDS)
				forget(&client[i]);
		}
		if (nclients)
			idle_ns = now_ns;
	}
}

/* What is the starter's, and no use here. */
static void leave_starter(void)
{
	cpu_set_t all;
	struct sched_param none = {0};
	struct rlimit files;
	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
	sched_setscheduler(0, SCHED_OTHER, &none);
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	prctl(PR_SET_NAME, "ropeway-helper");
	umask(077);
}

int main(void)
{
	struct rpwi_cm *cm;
	leave_starter();
	int listener = rpwi_helper_listen();
	if (listener < 0) /* another was faster */
		return listener == -EADDRINUSE ? 0 : 1;
	farewell_is_helper = true;
	rpwi_gsi_lock();
	int rc = rpwi_gsi_get(&cm);
	rpwi_gsi_unlock();
	if (rc) {
		rpwi_debug("helper: no device: %s", strerror(-rc));
		return 1;
	}
	serve(listener);
	close(listener);
	return 0;
}
