/* SPDX-License-Identifier: BSD-3-Clause */
/* counters_test.c - the memory in which a user's processes count: several at once, those that have
 * ended, killed in the middle, a place that is taken over, forks, another network namespace,
 * another user, and strangers' segments that look like ours. */
#include "lib/users.h"
#include "ns.h"

#include <signal.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>

#include "io/counters.h"

enum { DEADLINE_MS = 30000, INODE = 4711 };
static const char device[] = "rpw_test0";

static struct rpwi_qp_stats sum(const char *of)
{
	struct rpwi_qp_stats s;
	assert_int_equal(rpwi_counters_sum(of, &s, NULL), 0);
	return s;
}

/* Another process: takes the slot, counts `n` packets, says so, and waits to be told how to end. */
struct other {
	pid_t pid;
	int fd;
};

static int child(int fd, uint16_t slot, unsigned n)
{
	char c;
	rpwi_counters_forget();
	rpwi_counters_begin(slot, INODE);
	struct rpwi_counters *at = rpwi_counters_of(device);
	for (unsigned i = 0; i < n; i++)
		at->n.tx_packets++;
	at->res.qps++;
	if (write(fd, "r", 1) != 1)
		return 1;
	if (read(fd, &c, 1) != 1 || c == 'x')
		return 0;
	rpwi_counters_end();
	return 0;
}

static struct other start(uint16_t slot, unsigned n)
{
	int pair[2];
	char c;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	struct other o = {.pid = fork(), .fd = pair[0]};
	if (!o.pid) {
		close(pair[0]);
		_exit(child(pair[1], slot, n));
	}
	close(pair[1]);
	assert_int_equal(read(o.fd, &c, 1), 1);
	return o;
}

static void end(struct other *o, char how)
{
	int status;
	if (how == 'k')
		kill(o->pid, SIGKILL);
	else
		assert_int_equal(write(o->fd, &how, 1), 1);
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	assert_true(how == 'k' ? WIFSIGNALED(status) : WIFEXITED(status) && !WEXITSTATUS(status));
	close(o->fd);
}

/* The kernel lets a segment go when the last process has gone, in its own time: a process that has
 * been waited for has let go. */
static void assert_nothing_left(void) { assert_int_equal(sum(device).tx_packets, 0); }

static void several_processes(void **state)
{
	struct other a = start(1, 10), b = start(4094, 200);
	assert_int_equal(sum(device).tx_packets, 210);
	assert_int_equal(sum("rpw_test1").tx_packets, 0);
	end(&a, 'e');
	assert_int_equal(sum(device).tx_packets, 210);
	struct other c = start(70, 3000);
	end(&b, 'k');
	assert_int_equal(sum(device).tx_packets, 3210);
	end(&c, 'x');
	assert_nothing_left();
}

static void place_is_taken_over(void **state)
{
	struct other keeps = start(9, 1), a = start(5, 10);
	end(&a, 'k');
	for (unsigned i = 0; i < 50; i++) {
		a = start(5, 10);
		end(&a, "kex"[i % 3]);
	}
	assert_int_equal(sum(device).tx_packets, 1 + 51 * 10);
	end(&keeps, 'e');
	assert_nothing_left();
}

/* Of our user and size, whoever uses them. */
static unsigned segments(void)
{
	struct shmid_ds s;
	unsigned n = 0;
	for (int i = 0; i < 4096; i++)
		n += shmctl(i, SHM_STAT, &s) >= 0 && s.shm_perm.cuid == geteuid() &&
		     s.shm_segsz >= 1 << 24;
	return n;
}

/* All begin at once, again and again: there is one memory, or the sum is right all the same. */
static void race_to_make(void **state)
{
	enum { N = 8, ROUNDS = 25 };
	for (unsigned r = 0; r < ROUNDS; r++) {
		IN_CASE("round", r);
		int go[2], done[2];
		char c[N];
		pid_t pid[N];
		assert_int_equal(pipe(go), 0);
		assert_int_equal(pipe(done), 0);
		for (unsigned i = 0; i < N; i++)
			if (!(pid[i] = fork())) {
				close(go[1]);
				if (read(go[0], c, 1) < 0)
					_exit(1);
				rpwi_counters_begin((uint16_t)(i + 1), INODE);
				rpwi_counters_of(device)->n.rx_packets += 7;
				if (write(done[1], "d", 1) != 1 || pause())
					_exit(1);
			}
		close(go[0]);
		close(go[1]);
		for (unsigned n = 0; n < N;) {
			ssize_t k = read(done[0], c, N - n);
			assert_true(k > 0);
			n += (unsigned)k;
		}
		assert_int_equal(sum(device).rx_packets, 7 * N);
		assert_int_equal(segments(), 1);
		for (unsigned i = 0; i < N; i++) {
			kill(pid[i], SIGKILL);
			waitpid(pid[i], NULL, 0);
		}
		close(done[0]);
		close(done[1]);
		assert_int_equal(sum(device).rx_packets, 0);
	}
}

/* Killed anywhere, also while it makes the memory: nothing that it leaves behind is in the way. */
static void killed_at_any_moment(void **state)
{
	for (unsigned i = 0; i < 200; i++) {
		pid_t pid = fork();
		if (!pid) {
			rpwi_counters_begin(3, INODE);
			for (struct rpwi_counters *c = rpwi_counters_of(device);;)
				c->n.tx_packets++;
		}
		usleep(i * 7);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	struct other a = start(3, 10);
	assert_int_equal(sum(device).tx_packets, 10);
	end(&a, 'k');
	assert_nothing_left();
	assert_int_equal(segments(), 0);
}

static void forked(void **state)
{
	int status;
	rpwi_counters_begin(20, INODE);
	rpwi_counters_of(device)->n.tx_packets += 5;
	pid_t pid = fork();
	if (!pid) { /* begins anew */
		rpwi_counters_forget();
		rpwi_counters_begin(21, INODE);
		rpwi_counters_of(device)->n.tx_packets += 6;
		rpwi_counters_end();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(sum(device).tx_packets, 11);
	rpwi_counters_of(device)->n.tx_packets += 5;
	assert_int_equal(sum(device).tx_packets, 16);
	rpwi_counters_end();
	/* kept until the process ends */
	assert_int_equal(sum(device).tx_packets, 16);
}

static void many_devices(void **state)
{
	char name[32];
	pid_t pid = fork();
	if (!pid) {
		rpwi_counters_begin(30, INODE);
		for (unsigned i = 0; i < 12; i++) {
			snprintf(name, sizeof(name), "rpw_m%u", i);
			rpwi_counters_of(name)->n.tx_bytes += i + 1;
		}
		for (unsigned i = 0; i < 12; i++) {
			struct rpwi_qp_stats s;
			snprintf(name, sizeof(name), "rpw_m%u", i);
			if (rpwi_counters_sum(name, &s, NULL) || s.tx_bytes != (i < 10 ? i + 1 : 0))
				_exit(1);
		}
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Resources are those of who has a slot's name now, by the very socket. */
static void resources(void **state)
{
	struct rpwi_steer *steer;
	struct rpwi_qp_stats s;
	struct rpwi_resources r;
	uint16_t slot;
	rpwi_counters_end();
	assert_int_equal(rpwi_steer_open(&steer), 0);
	rpwi_steer_slots(steer, &slot, 1);
	assert_int_not_equal(rpwi_steer_inode(steer), 0);
	rpwi_counters_begin(slot, rpwi_steer_inode(steer));
	struct rpwi_counters *c = rpwi_counters_of("rpw_res");
	c->res.qps = 3;
	c->res.mrs = 4;
	/* another's, that has no such socket any more */
	struct other dead = start(slot == 1 ? 2 : 1, 1);
	end(&dead, 'k');
	assert_int_equal(rpwi_counters_sum(device, &s, &r), 0);
	assert_int_equal(r.qps, 0);
	assert_int_equal(rpwi_counters_sum("rpw_res", &s, &r), 0);
	assert_int_equal(r.qps, 3);
	assert_int_equal(r.mrs, 4);
	rpwi_steer_close(steer);
	assert_int_equal(rpwi_counters_sum("rpw_res", &s, &r), 0);
	assert_int_equal(r.qps, 0);
	rpwi_counters_end();
}

/* What a walk shows of a device: the process, or one of its QPs. */
struct looked {
	const char *device;
	uint32_t qpn;
	unsigned met;
	struct rpwi_counters_part part;
};

static bool look_at(void *arg, const struct rpwi_counters_part *p)
{
	struct looked *l = arg;
	if (!strcmp(p->device, l->device) && p->qpn == l->qpn) {
		l->met++;
		l->part = *p;
	}
	return true;
}

static struct looked look_for(const char *at, uint32_t qpn)
{
	struct looked l = {.device = at, .qpn = qpn};
	assert_int_equal(rpwi_counters_walk(look_at, &l), 0);
	return l;
}

static void a_qp_has_a_row_that_the_next_goes_on_with(void **state)
{
	static const uint8_t gid[16] = {1, 2, 3};
	static const char name[] = "rpw_rows", other[] = "rpw_rows2";
	struct rpwi_steer *steer;
	uint16_t slot;
	assert_int_equal(rpwi_steer_open(&steer), 0);
	rpwi_steer_slots(steer, &slot, 1);
	rpwi_counters_begin(slot, rpwi_steer_inode(steer));
	struct rpwi_counters *c = rpwi_counters_of(name);
	struct rpwi_counters_qp *a = rpwi_counters_qp_begin(name, 0x1001, 2);
	assert_non_null(a);
	a->n.tx_packets += 5;
	c->n.tx_packets += 2;
	rpwi_counters_qp_peer(a, gid, 0x2002);
	assert_int_equal(sum(name).tx_packets, 7);
	struct looked l = look_for(name, 0x1001);
	assert_int_equal(l.met, 1);
	assert_int_equal(l.part.n.tx_packets, 5);
	assert_int_equal(l.part.pid, getpid());
	assert_int_equal(l.part.peer_qpn, 0x2002);
	assert_memory_equal(l.part.peer, gid, sizeof(gid));
	assert_int_equal(look_for(name, 0).part.n.tx_packets, 2);

	/* it goes: its process has its counts */
	rpwi_counters_qp_end(c, a);
	assert_int_equal(look_for(name, 0x1001).met, 0);
	assert_int_equal(look_for(name, 0).part.n.tx_packets, 7);
	assert_int_equal(sum(name).tx_packets, 7);

	struct rpwi_counters_qp *b = rpwi_counters_qp_begin(other, 0x1003, 4);
	assert_ptr_not_equal(b, a);
	assert_ptr_equal(rpwi_counters_qp_begin(name, 0x1002, 2), a);
	a->n.tx_packets += 1;
	l = look_for(name, 0x1002);
	assert_int_equal(l.part.n.tx_packets, 1);
	assert_int_equal(l.part.peer_qpn, 0);
	assert_int_equal(sum(name).tx_packets, 8);
	assert_int_equal(sum(other).tx_packets, 0);

	/* never destroyed: its counts stay, and nobody has it */
	rpwi_counters_end();
	assert_int_equal(look_for(name, 0x1002).met, 0);
	assert_int_equal(sum(name).tx_packets, 8);
	rpwi_steer_close(steer);
}

/* Takes all rows that there are, counts 1 in each, and is killed. How many it had. */
static unsigned take_all(const char *name)
{
	unsigned n = 0;
	int told[2], status;
	assert_int_equal(pipe(told), 0);
	pid_t pid = fork();
	if (!pid) {
		struct rpwi_counters_qp *r;
		struct rpwi_steer *steer;
		uint16_t slot;
		if (rpwi_steer_open(&steer))
			_exit(1);
		rpwi_steer_slots(steer, &slot, 1);
		rpwi_counters_begin(slot, rpwi_steer_inode(steer));
		for (; n < 5000 && (r = rpwi_counters_qp_begin(name, n + 1, 2)); n++)
			r->n.tx_packets++;
		/* again: it does not look through all of them each time */
		for (unsigned i = 0; i < 100000; i++)
			if (rpwi_counters_qp_begin(name, 1, 2))
				_exit(1);
		if (write(told[1], &n, sizeof(n)) != sizeof(n))
			_exit(1);
		raise(SIGKILL);
	}
	assert_int_equal(read(told[0], &n, sizeof(n)), sizeof(n));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(told[0]);
	close(told[1]);
	return n;
}

static void rows_of_killed_processes_are_used_again(void **state)
{
	static const char name[] = "rpw_full";
	assert_int_equal(rpwi_counters_hold(), 0);
	unsigned all = take_all(name);
	assert_in_range(all, 1000, 4096);
	assert_int_equal(sum(name).tx_packets, all);
	assert_int_equal(look_for(name, 1).met, 0); /* it does not live */
	assert_int_equal(take_all(name), all);
	assert_int_equal(sum(name).tx_packets, 2 * all);
}

static int in_child(void (*then)(void), int (*look)(void))
{
	int status;
	pid_t pid = fork();
	if (!pid) {
		then();
		_exit(look());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void new_netns(void)
{
	if (unshare(CLONE_NEWNET))
		_exit(77);
}
static int sees_none(void)
{
	struct rpwi_qp_stats s;
	return rpwi_counters_sum(device, &s, NULL) || s.tx_packets;
}

/* With what it has inherited. */
static int counts_there(void)
{
	struct rpwi_qp_stats s;
	rpwi_counters_forget();
	rpwi_counters_begin(20, INODE);
	rpwi_counters_of(device)->n.tx_packets += 3;
	return rpwi_counters_sum(device, &s, NULL) || s.tx_packets != 3;
}

static void another_netns(void **state)
{
	struct other a = start(1, 10);
	uint64_t before = sum(device).tx_packets;
	assert_true(before >= 10);
	assert_int_equal(in_child(new_netns, sees_none), 0);
	assert_int_equal(in_child(new_netns, counts_there), 0);
	assert_int_equal(sum(device).tx_packets, before);
	end(&a, 'k');
}

static void other_user(void)
{
	if (setresuid(4711, 4711, 4711))
		_exit(1);
}

/* As much like one of root's as a stranger can make it: he gives segments away, under every way to
 * find one. */
static void forge(size_t bytes, int mode)
{
	struct shmid_ds s;
	int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0666);
	uint32_t *m = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
	if (m == (void *)-1 || shmctl(id, IPC_STAT, &s))
		_exit(1);
	memset(m, 0xff, 4096);
	s.shm_perm.uid = 0;
	s.shm_perm.mode = (unsigned short)mode;
	if (shmctl(id, IPC_SET, &s) || shmctl(id, IPC_RMID, NULL))
		_exit(1);
}

static void another_user(void **state)
{
	struct shmid_ds s;
	int ready[2];
	char c;
	if (!users_can_be_others("counters of another user"))
		skip();
	struct other a = start(1, 10);
	uint64_t before = sum(device).tx_packets;
	size_t bytes = 0;
	for (int i = 0; i < 4096 && !bytes; i++)
		if (shmctl(i, SHM_STAT, &s) >= 0 && s.shm_cpid > 0 && s.shm_segsz >= 1 << 24)
			bytes = s.shm_segsz;
	assert_int_not_equal(bytes, 0);
	assert_int_equal(in_child(other_user, sees_none), 0);
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid) {
		other_user();
		for (unsigned i = 0; i < 3; i++)
			forge(bytes - i, i ? 0666 : 0600);
		if (write(ready[1], "r", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(sum(device).tx_packets, before);
	end(&a, 'k');
	/* nor is one of his taken for ours by who begins */
	a = start(2, 3);
	assert_int_equal(in_child(other_user, sees_none), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	end(&a, 'k');
	close(ready[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_processes),
		cmocka_unit_test(place_is_taken_over),
		cmocka_unit_test(race_to_make),
		cmocka_unit_test(killed_at_any_moment),
		cmocka_unit_test(many_devices),
		/* from here on this process has the memory itself */
		cmocka_unit_test(forked),
		cmocka_unit_test(resources),
		cmocka_unit_test(a_qp_has_a_row_that_the_next_goes_on_with),
		cmocka_unit_test(rows_of_killed_processes_are_used_again),
		cmocka_unit_test(another_netns),
		cmocka_unit_test(another_user),
	};
	ns_enter();
	if (unshare(CLONE_NEWIPC)) { /* no other test's segments */
		fprintf(stderr, "SKIPPED: no IPC namespace can be made here (%s)\n",
			strerror(errno));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
