/* SPDX-License-Identifier: BSD-3-Clause */
/* real.c - where the kernel has an rdma_cm of its own, because it drives RDMA devices: ids for
 * their addresses are the kernel's.
 *
 * Behind a channel there is then one of the kernel's. A command for such an id is passed on with
 * the kernel's number for it. Its events are fetched by one thread of this process, and queued like
 * our own, so that a program sees one channel. A listener on all addresses listens on both sides.
 * RESOLVE_ADDR is tried on the kernel first, unless ours come first in the list of devices; when no
 * device of its is on the way (it says so at once, or by ADDR_ERROR), it is ours.
 */
#include "ucma/ucma_priv.h"

#include "base/choice.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

static const char device[] = "/dev/infiniband/rdma_cm";
static struct {
	int pump_epoll;
	int there; /* is the kernel's device? -1: not looked yet */
} kernel = {-1, -1};

/* Past the hooks, which would answer themselves. Number 0 is no device: it is ours for programs
 * that no preload reaches (`ropeway run --namespace`). */
static bool there(void)
{
	struct stat st;
	if (rpwi_choice_software())
		return false; /* none of its devices is seen */
	if (kernel.there < 0)
		kernel.there = !syscall(SYS_faccessat, AT_FDCWD, device, R_OK | W_OK) &&
			       !syscall(SYS_newfstatat, AT_FDCWD, device, &st, 0) && st.st_rdev;
	return kernel.there;
}

/* Whom to ask for an address that both may have, as in the list of devices. */
static bool kernel_first(void) { return !rpwi_choice_first() && there(); }

static int kernel_write(int fd, uint32_t number, const void *body, size_t len, size_t out_len)
{
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		uint8_t body[1024];
	} m = {.hdr = {.cmd = number, .in = (uint16_t)len, .out = (uint16_t)out_len}};
	assert(len <= sizeof(m.body));
	memcpy(m.body, body, len);
	return syscall(SYS_write, fd, &m, sizeof(m.hdr) + len) < 0 ? -errno : 0;
}

/* ---- devices that programs are not shown ---- */

/* As sysfs has it. */
static bool has_guid(const struct rpwi_choice_word *w, const char *guid)
{
	char path[128], text[32] = "";
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/node_guid", (int)w->len, w->name);
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof(text) - 1);
	if (fd >= 0)
		syscall(SYS_close, fd);
	return n > 0 && !strncmp(text, guid, strlen(guid));
}

/* Is the kernel's id of that number on one? */
static bool is_hidden(const struct channel *ch, uint32_t number)
{
	struct rdma_ucm_query_route_resp resp = {0};
	struct rdma_ucm_query cmd = {.response = (uintptr_t)&resp, .id = number};
	const char *list = rpwi_choice();
	struct rpwi_choice_word w;
	char guid[32];
	if (!rpwi_choice_hides_any() || kernel_write(ch->real_fd, RDMA_USER_CM_CMD_QUERY_ROUTE,
						&cmd, sizeof(cmd), sizeof(resp)))
		return false;
	const uint8_t *g = (const void *)&resp.node_guid;
	snprintf(guid, sizeof(guid), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3],
		g[4], g[5], g[6], g[7]);
	while (list && rpwi_choice_next(&list, &w))
		if (w.kind == RPWI_CHOICE_EXCEPT && has_guid(&w, guid))
			return true;
	return false;
}

/* ---- events ---- */

static struct id *id_of_serial(struct channel *ch, uint64_t serial)
{
	int err;
	struct id *id = id_find(ch, (uint32_t)serial % IDS_MAX, &err);
	return id && id->serial == serial ? id : NULL;
}

static void request_of_kernel(struct id *listener, const struct rdma_ucm_event_resp *resp)
{
	struct id *child = is_hidden(listener->ch, resp->id)
				   ? NULL
				   : id_new(listener->ch, listener->ps, listener->qp_type, 0);
	struct event *e = child ? event_new(listener, EV_CONNECT_REQUEST, (int)resp->status) : NULL;
	if (!e) {
		struct rdma_ucm_destroy_id_resp gone;
		struct rdma_ucm_destroy_id cmd = {.response = (uintptr_t)&gone, .id = resp->id};
		kernel_write(listener->ch->real_fd, RDMA_USER_CM_CMD_DESTROY_ID, &cmd, sizeof(cmd),
			sizeof(gone));
		if (child)
			id_free(child);
		return;
	}
	child->real = REAL_ONLY;
	child->real_handle = resp->id;
	child->listener = listener;
	listener->backlog--;
	e->child = child;
	e->resp.id = child->handle;
	e->resp.param = resp->param;
	e->resp.ece = resp->ece;
}

static void event_of_kernel(struct channel *ch, const struct rdma_ucm_event_resp *resp)
{
	bool of_group = resp->event == EV_MULTICAST_JOIN || resp->event == EV_MULTICAST_ERROR;
	struct mcast *m = of_group ? multicast_of_serial(ch, resp->uid) : NULL;
	struct id *id = m ? m->id : NULL;
	if (!of_group)
		id = id_of_serial(ch, resp->uid);
	if (!id)
		return;
	if (resp->event == EV_CONNECT_REQUEST) {
		request_of_kernel(id, resp);
		return;
	}
	bool none = resp->event == EV_ADDR_ERROR ||
		    (resp->event == EV_ADDR_RESOLVED && is_hidden(ch, id->real_handle));
	if (none && id->want_dst.addr.family) {
		/* None of the kernel's devices leads there, or a hidden one: one of ours may. */
		real_end(id);
		int rc = id_resolve_addr(id, &id->want_src, &id->want_dst);
		if (rc)
			event_new(id, EV_ADDR_ERROR, rc);
		return;
	}
	struct event *e = event_new(id, (enum cm_event)resp->event, (int)resp->status);
	if (!e)
		return;
	e->resp.param = resp->param;
	e->resp.ece = resp->ece;
	if (!m)
		return;
	e->mcast = m;
	e->resp.uid = m->uid;
	e->resp.id = m->handle;
}

static void fetch(int channel_fd)
{
	struct rdma_ucm_event_resp resp;
	struct rdma_ucm_get_event cmd = {.response = (uintptr_t)&resp};
	rpwi_gsi_lock();
	struct channel *ch = channel_of(channel_fd);
	while (ch && ch->real_fd >= 0) {
		memset(&resp, 0, sizeof(resp));
		if (kernel_write(ch->real_fd, RDMA_USER_CM_CMD_GET_EVENT, &cmd, sizeof(cmd),
			    sizeof(resp)))
			break;
		if (resp.event < EV_COUNT)
			event_of_kernel(ch, &resp);
	}
	rpwi_gsi_unlock();
}

static void *pump(void *arg)
{
	for (;;) {
		struct epoll_event ev[16];
		int n = epoll_wait(kernel.pump_epoll, ev, RPWI_ARRAY_LEN(ev), -1);
		for (int i = 0; i < n; i++)
			fetch((int)ev[i].data.u32);
	}
	return NULL;
}

static int pump_start(void)
{
	pthread_t thread;
	if (kernel.pump_epoll >= 0)
		return 0;
	kernel.pump_epoll = epoll_create1(EPOLL_CLOEXEC);
	if (kernel.pump_epoll < 0)
		return -errno;
	int rc = rpwi_thread_start(&thread, NULL, pump, NULL);
	if (rc)
		return -rc;
	pthread_setname_np(thread, "ropeway-cm");
	return pthread_detach(thread);
}

static int channel_open_real(struct channel *ch)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)ch->fd.fd};
	if (ch->real_fd >= 0)
		return 0;
	int rc = pump_start();
	if (rc)
		return rc;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, device, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0)
		return -ENODEV;
	if (epoll_ctl(kernel.pump_epoll, EPOLL_CTL_ADD, fd, &ev)) {
		rc = -errno;
		syscall(SYS_close, fd);
		return rc;
	}
	ch->real_fd = fd;
	return 0;
}

void real_close(struct channel *ch)
{
	if (ch->real_fd >= 0)
		syscall(SYS_close, ch->real_fd);
	ch->real_fd = -1;
}

/* ---- ids ---- */

static int begin(struct id *id)
{
	struct rdma_ucm_create_id_resp resp = {0};
	struct rdma_ucm_create_id cmd = {.uid = id->serial,
		.response = (uintptr_t)&resp,
		.ps = id->ps,
		.qp_type = id->qp_type};
	if (id->real != REAL_NONE)
		return 0;
	if (!there())
		return -ENODEV;
	int rc = channel_open_real(id->ch);
	if (!rc)
		rc = kernel_write(id->ch->real_fd, RDMA_USER_CM_CMD_CREATE_ID, &cmd, sizeof(cmd),
			sizeof(resp));
	if (rc)
		return -ENODEV;
	id->real = REAL_BESIDE;
	id->real_handle = resp.id;
	return 0;
}

void real_end(struct id *id)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id cmd = {.response = (uintptr_t)&resp, .id = id->real_handle};
	if (id->real != REAL_NONE && id->ch->real_fd >= 0)
		kernel_write(id->ch->real_fd, RDMA_USER_CM_CMD_DESTROY_ID, &cmd, sizeof(cmd),
			sizeof(resp));
	id->real = REAL_NONE;
}

static int forward_bind(struct id *id, const struct endpoint *e)
{
	struct rdma_ucm_bind_ip cmd = {.id = id->real_handle};
	endpoint_write(e, &cmd.addr);
	return kernel_write(id->ch->real_fd, RDMA_USER_CM_CMD_BIND_IP, &cmd, sizeof(cmd), 0);
}

int real_bind(struct id *id, const struct endpoint *e)
{
	int rc = kernel_first() ? begin(id) : -ENODEV;
	if (!rc)
		rc = forward_bind(id, e);
	if (!rc && is_hidden(id->ch, id->real_handle))
		rc = -ENODEV;
	if (!rc)
		id->real = REAL_ONLY;
	else
		real_end(id);
	return rc == -EADDRNOTAVAIL ? -ENODEV : rc; /* the kernel knows no RDMA device there */
}

void real_bind_beside(struct id *id)
{
	if (begin(id))
		return;
	int rc = forward_bind(id, &id->src);
	if (!rc)
		return;
	rpwi_warn("rdma_bind_addr, port %u: real devices will not be listened on: %s", id->src.port,
		strerror(-rc));
	real_end(id);
}

void real_listen_beside(struct id *id, uint32_t backlog)
{
	struct rdma_ucm_listen cmd = {.id = id->real_handle, .backlog = backlog};
	if (id->real == REAL_NONE && addr_is_any(&id->src.addr))
		real_bind_beside(id); /* listen bound it itself */
	if (id->real != REAL_BESIDE)
		return;
	cmd.id = id->real_handle;
	int rc = kernel_write(id->ch->real_fd, RDMA_USER_CM_CMD_LISTEN, &cmd, sizeof(cmd), 0);
	if (rc) {
		rpwi_warn("rdma_listen, port %u: not on real devices: %s", id->src.port,
			strerror(-rc));
		real_end(id);
	}
}

int real_resolve_addr(struct id *id, const struct endpoint *src, const struct endpoint *dst)
{
	struct rdma_ucm_resolve_ip cmd = {.timeout_ms = 2000};
	bool local_is_ours = id->state != ID_IDLE && !addr_is_any(&id->src.addr);
	int rc = local_is_ours || !kernel_first() ? -ENODEV : begin(id);
	if (rc)
		return rc;
	cmd.id = id->real_handle;
	endpoint_write(src, &cmd.src_addr);
	endpoint_write(dst, &cmd.dst_addr);
	rc = kernel_write(id->ch->real_fd, RDMA_USER_CM_CMD_RESOLVE_IP, &cmd, sizeof(cmd), 0);
	if (rc) {
		real_end(id);
		return rc;
	}
	id->real = REAL_ONLY;
	id->want_src = *src;
	id->want_dst = *dst;
	return 0;
}

int real_command(struct id *id, uint32_t number, const void *in, size_t in_len, int id_at,
	void *out, size_t out_len, int response_at)
{
	union {
		struct rdma_ucm_accept accept;
		uint8_t bytes[1024];
	} m;
	uint64_t response = (uintptr_t)out;
	assert(in_len <= sizeof(m));
	memcpy(&m, in, in_len);
	memcpy(m.bytes + id_at, &id->real_handle, sizeof(id->real_handle));
	if (response_at >= 0)
		memcpy(m.bytes + response_at, &response, sizeof(response));
	uint64_t uid = m.accept.uid, was = id->uid;
	bool accepts = number == RDMA_USER_CM_CMD_ACCEPT && m.accept.conn_param.valid;
	if (number == RDMA_USER_CM_CMD_ACCEPT)
		m.accept.uid = id->serial;
	if (accepts)
		id->uid = uid;
	int rc = kernel_write(id->ch->real_fd, number, &m, in_len, out_len);
	if (rc && accepts)
		id->uid = was;
	return rc;
}

int real_join(struct id *id, uint32_t number, const void *in, size_t in_len, int id_at,
	struct rdma_ucm_create_id_resp *out, int response_at)
{
	struct rdma_ucm_join_mcast cmd; /* JOIN_IP_MCAST begins alike, and is shorter */
	_Static_assert(offsetof(struct rdma_ucm_join_ip_mcast, uid) ==
			       offsetof(struct rdma_ucm_join_mcast, uid),
		"one place for both");
	assert(in_len <= sizeof(cmd));
	memcpy(&cmd, in, in_len);
	struct mcast *m = multicast_new(id, cmd.uid);
	if (!m)
		return -ENOMEM;
	cmd.uid = m->serial;
	int rc = real_command(id, number, &cmd, in_len, id_at, out, sizeof(*out), response_at);
	if (rc) {
		multicast_free(m);
		return rc;
	}
	m->is_real = true;
	m->real_handle = out->id;
	out->id = m->handle;
	return 0;
}

int real_leave(const struct mcast *m)
{
	struct rdma_ucm_destroy_id_resp gone;
	struct rdma_ucm_destroy_id cmd = {.response = (uintptr_t)&gone, .id = m->real_handle};
	return kernel_write(
		m->id->ch->real_fd, RDMA_USER_CM_CMD_LEAVE_MCAST, &cmd, sizeof(cmd), sizeof(gone));
}

int real_migrate(struct id *id, struct channel *from, struct channel *to)
{
	struct rdma_ucm_migrate_resp resp;
	struct rdma_ucm_migrate_id cmd = {
		.response = (uintptr_t)&resp, .id = id->real_handle, .fd = (uint32_t)from->real_fd};
	if (id->real == REAL_NONE || from == to)
		return 0;
	int rc = channel_open_real(to);
	return rc ? rc
		  : kernel_write(to->real_fd, RDMA_USER_CM_CMD_MIGRATE_ID, &cmd, sizeof(cmd),
			    sizeof(resp));
}
