/* SPDX-License-Identifier: BSD-3-Clause */
/* local.c - what `ropeway doctor` finds out about this machine alone. */
#include "base/choice.h"
#include "cli/doctor/doctor.h"
#include "io/io.h"
#include "preload/refused.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HARDWARE_MEMLOCK_LEAST = 64 << 20 };

static void look_at_version(struct doctor_report *r)
{
	bool same = !strcmp(rpw_version(), ROPEWAY_VERSION);

	doctor_add(r, same ? DOCTOR_OK : DOCTOR_FAIL, "version",
		"install the command and libropeway.so of one release", "command %s, library %s",
		ROPEWAY_VERSION, rpw_version());
}

/* ---- devices ---- */

static void describe_port(struct doctor_report *r, const char *what,
	const struct ibv_port_attr *port, const struct cli_gid *gids, int count)
{
	int best = rpwi_cli_gid_pick(gids, count), v2 = 0;
	char gid[CLI_GID_LEN];

	for (int i = 0; i < count; i++)
		v2 += gids[i].type == IBV_GID_TYPE_ROCE_V2;
	if (port->state != IBV_PORT_ACTIVE)
		doctor_add(r, DOCTOR_WARN, what, "plug in the cable, or `ip link set ... up`",
			"its port is %s", rpwi_cli_port_state(port->state));
	else if (best < 0)
		doctor_add(r, DOCTOR_WARN, what, "give its interface an address", "it has no GID");
	else if (!v2)
		doctor_add(r, DOCTOR_WARN, what,
			"set the device to RoCE v2 (cma_roce_mode), which routers and the software "
			"device speak",
			"none of its %d GIDs is of type RoCE v2; GID %u is of type %s", count,
			gids[best].index, rpwi_cli_gid_type(gids[best].type));
	else
		doctor_add(r, DOCTOR_OK, what, NULL,
			"ACTIVE, MTU %u, %d GIDs, %d of type RoCE v2; best GID %u %s, %s",
			rpwi_cli_mtu_bytes(port->active_mtu), count, v2, gids[best].index,
			rpwi_cli_gid_text(&gids[best].gid, gid),
			rpwi_cli_gid_type(gids[best].type));
}

/* Real devices, tried: some list themselves, answer queries and cannot be used otherwise. */
struct tries {
	struct cli_tried tried[CLI_TRIED_MAX];
	int n;
};

static void look_at_tries(struct doctor_report *r, struct tries *t)
{
	char what[64], why[300];

	t->n = rpwi_cli_try(t->tried, why, sizeof(why));
	if (t->n < 0)
		doctor_add(r, DOCTOR_WARN, "real devices",
			"`ropeway run --devices software` hides them from programs", "%s", why);
	for (int i = 0; i < t->n; i++) {
		snprintf(what, sizeof(what), "device %.40s", t->tried[i].name);
		if (rpwi_choice_hides(t->tried[i].name))
			doctor_add(r, DOCTOR_OK, what, NULL,
				"hidden from programs: ROPEWAY_DEVICES=%.64s hides it",
				rpwi_choice());
	}
}

static const char *why_broken(const struct tries *t, const char *name)
{
	for (int i = 0; i < t->n; i++)
		if (!t->tried[i].works && !strcmp(t->tried[i].name, name))
			return t->tried[i].why;
	return NULL;
}

static void look_at_device(
	struct doctor_report *r, struct ibv_device *dev, const struct tries *t, bool *hardware)
{
	const char *name = ibv_get_device_name(dev), *broken = why_broken(t, name);
	struct cli_gid gids[CLI_GIDS_MAX];
	struct ibv_port_attr port;
	char what[64], why[300];

	snprintf(what, sizeof(what), "device %.40s", name);
	*hardware |= !rpwi_choice_is_ours(name);
	if (broken) {
		doctor_add(r, DOCTOR_WARN, what,
			"`ropeway run --devices auto` hides it from programs",
			"it cannot make a queue pair: %s", broken);
		return;
	}
	if (rpwi_cli_device_usable(name, why, sizeof(why))) {
		doctor_add(r, DOCTOR_FAIL, what,
			doctor_remedy_of(why,
				"a device needs UDP port 4791 of its address; `ss -uanp sport = "
				":4791` as root shows every holder"),
			"%s", why);
		return;
	}
	struct ibv_context *ctx = ibv_open_device(dev);
	if (!ctx) {
		doctor_add(r, DOCTOR_FAIL, what, "check the permissions of /dev/infiniband",
			"cannot be opened: %s", strerror(errno));
		return;
	}
	int err = ibv_query_port(ctx, 1, &port);
	if (err)
		doctor_add(r, DOCTOR_FAIL, what, "see the kernel's log",
			"its port cannot be queried: %s", strerror(err));
	else
		describe_port(r, what, &port, gids, RPWI_MAX(rpwi_cli_gid_table(ctx, 1, gids), 0));
	ibv_close_device(ctx);
}

static void look_at_hidden(struct doctor_report *r)
{
	struct rpwi_netdev *devs = NULL;
	char what[64], why[RPWI_WHY_LEN];
	unsigned all = 0;
	int shown = rpwi_netdev_list(&devs, &all);

	for (unsigned i = (unsigned)RPWI_MAX(shown, 0); devs && i < all; i++) {
		rpwi_netdev_why_hidden(&devs[i], why, sizeof(why));
		snprintf(what, sizeof(what), "device %.40s", devs[i].name);
		doctor_add(r, DOCTOR_OK, what, NULL, "hidden from programs: %s", why);
	}
	free(devs);
}

static bool look_at_devices(struct doctor_report *r)
{
	struct tries tries;
	bool hardware = false;
	int n = 0;

	look_at_tries(r, &tries);
	if (tries.n < 0) /* nor does this process list them */
		rpwi_choice_add("software");
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list)
		rpwi_cli_software_first(list, n);
	for (int i = 0; list && i < n; i++)
		look_at_device(r, list[i], &tries, &hardware);
	look_at_hidden(r);
	if (!n)
		doctor_add(r, DOCTOR_WARN, "devices",
			"`ip link set lo up`, or bring up another interface",
			"there is none: no interface is up with an address");
	if (list)
		ibv_free_device_list(list);
	return hardware;
}

/* What a program that ends with EOPNOTSUPP may have called. */
static void look_at_refused(struct doctor_report *r)
{
	struct ropeway_refused calls;

	for (unsigned n = 0; ropeway_refused(n, &calls); n++)
		doctor_add(r, DOCTOR_OK, "refused calls", NULL, "%s: no %s; %s", calls.calls,
			calls.lacks, calls.instead);
}

/* ---- limits ---- */

static void look_at_memlock(struct doctor_report *r, bool hardware)
{
	struct rlimit l;
	char size[CLI_SIZE_LEN];

	if (getrlimit(RLIMIT_MEMLOCK, &l))
		doctor_add(
			r, DOCTOR_WARN, "memlock", NULL, "cannot be queried: %s", strerror(errno));
	else if (l.rlim_cur == RLIM_INFINITY)
		doctor_add(r, DOCTOR_OK, "memlock", NULL, "unlimited");
	else if (hardware && l.rlim_cur < HARDWARE_MEMLOCK_LEAST)
		doctor_add(r, DOCTOR_FAIL, "memlock",
			"`ulimit -l unlimited`, or a line `* - memlock unlimited` in "
			"/etc/security/limits.d",
			"only %s may be locked: registering more with a NIC fails",
			rpwi_cli_size(l.rlim_cur, size));
	else
		doctor_add(r, DOCTOR_OK, "memlock", NULL, "%s; the software device locks nothing",
			rpwi_cli_size(l.rlim_cur, size));
}

/* Exit status of a child that reads this process's memory: 0, or the errno. A child is to its
 * parent what any process of the user is to another. */
static int read_across(void)
{
	volatile uint64_t there = 0x5eed0fd0c705ull;
	pid_t parent = getpid(), child = fork();
	int status;

	if (child < 0)
		return errno;
	if (!child) {
		uint64_t here = 0;
		struct iovec local = {&here, sizeof(here)},
			     remote = {(void *)(uintptr_t)&there, sizeof(there)};
		ssize_t n = process_vm_readv(parent, &local, 1, &remote, 1, 0);
		int err = n < 0 && errno < 126 ? errno : EIO;
		_exit(n == sizeof(here) && here == there ? 0 : err);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
}

static void look_at_ptrace(struct doctor_report *r)
{
	int scope = 0, err = read_across();
	FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	bool has_scope = f && fscanf(f, "%d", &scope) == 1;
	char told[64] = "no restriction by Yama";

	if (f)
		fclose(f);
	if (has_scope)
		snprintf(told, sizeof(told), "kernel.yama.ptrace_scope is %d", scope);
	if (!err)
		doctor_add(r, DOCTOR_OK, "ptrace scope", NULL,
			"one copy between processes is permitted (process_vm_readv; %s)", told);
	else
		doctor_add(r, DOCTOR_WARN, "ptrace scope",
			has_scope && scope ? "`sysctl kernel.yama.ptrace_scope=0`"
					   : "allow process_vm_readv: CAP_SYS_PTRACE, or the "
					     "container's seccomp profile",
			"process_vm_readv of another process: %s (%s); large messages by shared "
			"memory are copied twice",
			strerror(err), told);
}

/* ---- sockets ---- */

/* What the software device asks for, too (src/io/port.c). */
static void look_at_buffers(struct doctor_report *r)
{
	enum { WANTED = 8 << 20, ENOUGH = 2 << 20 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), want = WANTED, have = 0;
	socklen_t len = sizeof(have);
	char size[CLI_SIZE_LEN];

	if (fd < 0) {
		doctor_add(r, DOCTOR_FAIL, "socket buffers",
			"`ulimit -n` says how many descriptors a process may have", "no socket: %s",
			strerror(errno));
		return;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &want, sizeof(want)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &want, sizeof(want));
	getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &have, &len);
	close(fd);
	have /= 2; /* the kernel doubles it, for its own use: socket(7) */
	if (have >= ENOUGH)
		doctor_add(r, DOCTOR_OK, "socket buffers", NULL, "a UDP socket can hold %s",
			rpwi_cli_size((uint64_t)have, size));
	else
		doctor_add(r, DOCTOR_WARN, "socket buffers",
			"`sysctl -w net.core.rmem_max=8388608`, as root",
			"a UDP socket can hold %s: under load the software device loses packets, "
			"and sends them again",
			rpwi_cli_size((uint64_t)have, size));
}

/* Without it nothing that is tried within this machine could come up, and each would be reported
 * for itself. */
static bool look_at_loopback(struct doctor_report *r)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(DOCTOR_PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		err = errno;
	if (fd >= 0)
		close(fd);
	if (err)
		doctor_add(r, DOCTOR_FAIL, "loopback", "`ip link set lo up`",
			"127.0.0.1: %s: no transport can be tried", strerror(err));
	return !err;
}

/* ---- transports: a message from this process to itself over each ---- */

enum { EXCHANGED_BYTES = 300001 };
struct both {
	rpw_context *c[2];
	rpw_listener *l;
	rpw_endpoint *ep[2];
	uint8_t out[EXCHANGED_BYTES], in[EXCHANGED_BYTES];
};

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	((struct both *)arg)->ep[1] = ep;
}

static int turn_until(struct both *b, rpw_request *req)
{
	uint64_t until_ns = rpwi_now_ns() + 5 * RPWI_NS_PER_S;

	while (rpw_request_test(req, NULL) == RPW_IN_PROGRESS && rpwi_now_ns() < until_ns)
		if (!(rpw_context_progress(b->c[0]) + rpw_context_progress(b->c[1])))
			usleep(100);
	int status = rpw_request_test(req, NULL);
	rpw_request_destroy(req);
	return status == RPW_IN_PROGRESS ? RPW_ERR_TIMEOUT : status;
}

static int exchange(struct both *b, const char *transport)
{
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	rpw_request *req = NULL, *got;
	char address[32];

	for (uint32_t i = 0; i < EXCHANGED_BYTES; i++)
		b->out[i] = (uint8_t)(i * 2654435761u >> 13);
	int rc = rpw_context_create(&o, &b->c[0]);
	if (!rc)
		rc = rpw_context_create(&o, &b->c[1]);
	if (!rc)
		rc = rpw_listener_create(b->c[1], "127.0.0.1:0", accepted, b, &b->l);
	if (rc)
		return rc;
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(b->l));
	rc = rpw_endpoint_create(b->c[0], address, NULL, &b->ep[0], &req);
	if (rc == RPW_IN_PROGRESS)
		rc = turn_until(b, req);
	if (!rc)
		rc = rpw_recv(b->c[1], NULL, b->in, sizeof(b->in), 1, UINT64_MAX, &got);
	if (rc < 0)
		return rc;
	rc = rpw_send(b->ep[0], b->out, sizeof(b->out), 1, NULL);
	int arrived = turn_until(b, got);
	if (rc < 0 || arrived)
		return rc < 0 ? rc : arrived;
	return memcmp(b->in, b->out, sizeof(b->in)) ? RPW_ERR_PROTOCOL : RPW_OK;
}

static const struct transport {
	const char *name;
	enum doctor_level level; /* where it cannot be used */
	const char *remedy;
} transports[] = {
	{"shm", DOCTOR_FAIL,
		"let processes call memfd_create (a container's seccomp profile may forbid it)"},
	{"tcp", DOCTOR_FAIL, "let TCP pass on lo (`nft list ruleset` shows what a firewall does)"},
	{"verbs", DOCTOR_WARN, "see the devices above; without it the others are used"},
};

#define LATE "a message from this process to itself took more than 5 s"

static void look_at_transport(struct doctor_report *r, const struct transport *t)
{
	struct both b = {0};
	char what[64], error[DOCTOR_ERROR_LEN], text[DOCTOR_ERROR_LEN + sizeof(LATE) + 3] = LATE;

	snprintf(what, sizeof(what), "transport %s", t->name);
	int rc = exchange(&b, t->name);
	if (!rc)
		doctor_add(r, DOCTOR_OK, what, NULL,
			"a message from this process to itself came through");
	else {
		doctor_last_error(error);
		if (rc != RPW_ERR_TIMEOUT)
			snprintf(text, sizeof(text), "%s", error);
		else if (*error)
			snprintf(text, sizeof(text), LATE " (%s)", error);
		doctor_add(r, t->level, what, doctor_remedy_of(error, t->remedy), "%s: %s",
			rpw_status_name(rc), text);
	}
	for (int i = 0; i < 2; i++)
		if (b.c[i])
			rpw_context_destroy(b.c[i]);
}

/* Of what reaches into each program without a word in it. */
static void look_at_environment(struct doctor_report *r)
{
	const char *transport = getenv("ROPEWAY_TRANSPORT");

	if (transport && *transport)
		doctor_add(r, DOCTOR_WARN, "environment",
			"if that is not wanted: `unset ROPEWAY_TRANSPORT`",
			"ROPEWAY_TRANSPORT=%.64s: no other transport is tried", transport);
}

void doctor_local(struct doctor_report *r)
{
	look_at_version(r);
	look_at_environment(r);
	look_at_memlock(r, look_at_devices(r));
	look_at_refused(r);
	look_at_ptrace(r);
	look_at_buffers(r);
	if (!look_at_loopback(r))
		return;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(transports); i++)
		look_at_transport(r, &transports[i]);
}
