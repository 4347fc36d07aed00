/* SPDX-License-Identifier: BSD-3-Clause */
/* command.c - the commands of the rdma_cm device: sizes checked, arguments read, results written,
 * names for the log. */
#include "device/refused.h"
#include "explain/trace.h"
#include "fault/fault.h"
#include "ucma/ucma_priv.h"

#include <stddef.h>

#ifndef AF_IB
#define AF_IB 27 /* as the kernel numbers it */
#endif

/* The new end of an id's channel: which was it? */
static int migrate(struct channel *to, struct id *none, const void *buf, void *out)
{
	const struct rdma_ucm_migrate_id *cmd = buf;
	struct rdma_ucm_migrate_resp *resp = out;
	struct channel *from = channel_intact((int)cmd->fd);
	int err;
	if (!from)
		return -EBADF;
	struct id *id = id_find(from, cmd->id, &err);
	if (!id)
		return err;
	int rc = from->cm ? channel_engine(to) : 0;
	if (!rc)
		rc = real_migrate(id, from, to);
	if (rc)
		return rc;
	if (from != to) {
		events_move(id, from, to);
		rpwi_list_del(&id->link);
		rpwi_list_add_tail(&to->ids, &id->link);
		id->ch = to;
	}
	resp->events_reported = id->events_reported;
	return 0;
}

static int create_id(struct channel *ch, struct id *none, const void *buf, void *out)
{
	const struct rdma_ucm_create_id *cmd = buf;
	struct rdma_ucm_create_id_resp *resp = out;
	uint8_t qp_type = cmd->ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD;
	if (cmd->ps != RDMA_PS_TCP && cmd->ps != RDMA_PS_UDP && cmd->ps != RDMA_PS_IPOIB &&
		cmd->ps != RDMA_PS_IB)
		return -EINVAL;
	if (cmd->ps == RDMA_PS_IB)
		qp_type = cmd->qp_type;
	struct id *id = id_new(ch, cmd->ps, qp_type, cmd->uid);
	if (!id)
		return -ENOMEM;
	resp->id = id->handle;
	return 0;
}

static int destroy_id(struct channel *ch, struct id *id, const void *buf, void *out)
{
	struct rdma_ucm_destroy_id_resp *resp = out;
	resp->events_reported = id->events_reported;
	id_free(id);
	return 0;
}

/* An address of a device that the kernel drives is the kernel's; all addresses are both's. */
static int bind_where_it_is(struct id *id, const struct endpoint *e)
{
	bool any = addr_is_any(&e->addr);
	int rc = any ? -ENODEV : real_bind(id, e);
	if (rc != -ENODEV)
		return rc;
	rc = id_bind(id, e);
	if (!rc && any)
		real_bind_beside(id);
	return rc;
}

static int bind_ip(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_bind_ip *cmd = buf;
	struct endpoint e;
	int rc = endpoint_read(&cmd->addr, sizeof(cmd->addr), &e);
	return rc ? rc : bind_where_it_is(id, &e);
}

static int bind_any(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_bind *cmd = buf;
	struct endpoint e;
	int rc = endpoint_read(&cmd->addr, RPWI_MIN((size_t)cmd->addr_size, sizeof(cmd->addr)), &e);
	return rc ? rc : bind_where_it_is(id, &e);
}

static int resolve(
	struct id *id, const void *src, size_t src_size, const void *dst, size_t dst_size)
{
	struct endpoint from, to;
	sa_family_t family = AF_UNSPEC;
	memset(&from, 0, sizeof(from));
	memcpy(&family, src, sizeof(family));
	int rc = src_size && family != AF_UNSPEC ? endpoint_read(src, src_size, &from) : 0;
	if (!rc)
		rc = endpoint_read(dst, dst_size, &to);
	if (!rc && !real_resolve_addr(id, &from, &to))
		return 0;
	return rc ? rc : id_resolve_addr(id, &from, &to);
}

static int resolve_ip(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_resolve_ip *cmd = buf;
	id->resolve_ms = cmd->timeout_ms;
	return resolve(
		id, &cmd->src_addr, sizeof(cmd->src_addr), &cmd->dst_addr, sizeof(cmd->dst_addr));
}

static int resolve_addr(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_resolve_addr *cmd = buf;
	id->resolve_ms = cmd->timeout_ms;
	return resolve(id, &cmd->src_addr, RPWI_MIN((size_t)cmd->src_size, sizeof(cmd->src_addr)),
		&cmd->dst_addr, RPWI_MIN((size_t)cmd->dst_size, sizeof(cmd->dst_addr)));
}

static int resolve_route(struct channel *ch, struct id *id, const void *buf, void *out)
{
	return id_resolve_route(id);
}

static int query_route(struct channel *ch, struct id *id, const void *buf, void *out)
{
	id_query_route(id, out);
	return 0;
}

static int connect_id(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_connect *cmd = buf;
	return id_connect(id, &cmd->conn_param);
}

static int listen_id(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_listen *cmd = buf;
	/* The kernel's devices first: whoever connects is not kept waiting while our ports are
	 * opened. */
	bool bound = id->state == ID_BOUND;
	if (bound)
		real_listen_beside(id, cmd->backlog);
	int rc = id_listen(id, (int)cmd->backlog);
	if (!rc && !bound)
		real_listen_beside(id, cmd->backlog);
	return rc;
}

static int accept_id(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_accept *cmd = buf;
	if (!cmd->conn_param.valid)
		return id_accept(id, NULL);
	uint64_t was = id->uid;
	id->uid = cmd->uid; /* events from now on are its */
	int rc = id_accept(id, &cmd->conn_param);
	if (rc)
		id->uid = was;
	return rc;
}

static int reject_id(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_reject *cmd = buf;
	return id_reject(id, cmd->reason, cmd->private_data, cmd->private_data_len);
}

static int disconnect_id(struct channel *ch, struct id *id, const void *buf, void *out)
{
	return id_disconnect(id);
}

static int init_qp_attr(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_init_qp_attr *cmd = buf;
	return id_init_qp_attr(id, cmd->qp_state, out);
}

static int set_option(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_set_option *cmd = buf;
	return id_set_option(
		id, cmd->level, cmd->optname, (const void *)(uintptr_t)cmd->optval, cmd->optlen);
}

static int notify(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_notify *cmd = buf;
	return id_notify(id, cmd->event);
}

static int join(struct id *id, const void *addr, size_t room, unsigned flags, uint64_t uid,
	struct rdma_ucm_create_id_resp *resp)
{
	struct endpoint group;
	struct mcast *m;
	int rc = endpoint_read(addr, room, &group);
	if (!rc)
		rc = multicast_join(id, &group, flags, uid, &m);
	if (rc)
		return rc;
	/* There is nobody to ask, and so nothing to wait for. */
	struct event *e = event_new(id, EV_MULTICAST_JOIN, 0);
	if (!e) {
		multicast_free(m);
		return -ENOMEM;
	}
	e->mcast = m;
	multicast_event(m, &e->resp);
	resp->id = m->handle;
	return 0;
}

static int join_ip(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_join_ip_mcast *cmd = buf;
	return join(id, &cmd->addr, sizeof(cmd->addr), RDMA_MC_JOIN_FLAG_FULLMEMBER, cmd->uid, out);
}

static int join_any(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct rdma_ucm_join_mcast *cmd = buf;
	return join(id, &cmd->addr, RPWI_MIN((size_t)cmd->addr_size, sizeof(cmd->addr)),
		cmd->join_flags, cmd->uid, out);
}

static int leave(struct channel *ch, struct id *none, const void *buf, void *out)
{
	const struct rdma_ucm_destroy_id *cmd = buf;
	struct rdma_ucm_destroy_id_resp *resp = out;
	int err;
	struct mcast *m = multicast_find(ch, cmd->id, &err);
	if (!m)
		return err;
	if (m->is_real)
		real_leave(m);
	resp->events_reported = m->events_reported;
	events_of_mcast_drop(ch, m);
	multicast_free(m);
	return 0;
}

/* Newer than the headers that this is built with (Linux 6.18, rdma-core 60). */
#define CMD_RESOLVE_IB_SERVICE 23
#define CMD_WRITE_CM_EVENT 24
struct write_cm_event {
	uint32_t id, reserved, event, status;
	uint32_t arg
		[2]; /* begins a union as long as rdma_ucm_conn_param, of which only this counts */
};

/* An event that the program, or librdmacm for rdma_resolve_addrinfo, has for itself. */
static int write_event(struct channel *ch, struct id *id, const void *buf, void *out)
{
	const struct write_cm_event *cmd = buf;
	if (cmd->event != EV_USER && cmd->event != EV_INTERNAL)
		return -EINVAL;
	struct event *e = event_new(id, (enum cm_event)cmd->event, (int)cmd->status);
	if (!e)
		return -ENOMEM;
	memcpy(&e->resp.param, cmd->arg, sizeof(cmd->arg));
	return 0;
}

enum { NO_ID = -1, NO_RESPONSE = -1 };

/* Facts of each command: its size and where it names its id; of its response the size, the size
 * that programs from before the latest addition have room for, and where the command says that it
 * is to go (NO_RESPONSE: nowhere). */
static const struct {
	const char *name;
	int (*run)(struct channel *ch, struct id *id, const void *buf, void *out);
	int16_t id_at;
	uint16_t in, out, out_least;
	int16_t response_at;
} commands[] = {
#define RESPONDS(command_struct, response_struct) \
	offsetof(struct command_struct, id), sizeof(struct command_struct), \
		sizeof(struct response_struct), sizeof(struct response_struct), \
		offsetof(struct command_struct, response)
#define SILENT(command_struct) \
	offsetof(struct command_struct, id), sizeof(struct command_struct), 0, 0, NO_RESPONSE
	[RDMA_USER_CM_CMD_CREATE_ID] = {"create_id", create_id, NO_ID,
		sizeof(struct rdma_ucm_create_id), sizeof(struct rdma_ucm_create_id_resp),
		sizeof(struct rdma_ucm_create_id_resp),
		offsetof(struct rdma_ucm_create_id, response)},
	[RDMA_USER_CM_CMD_DESTROY_ID] = {"destroy_id", destroy_id,
		RESPONDS(rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp)},
	[RDMA_USER_CM_CMD_BIND_IP] = {"bind_addr", bind_ip, SILENT(rdma_ucm_bind_ip)},
	[RDMA_USER_CM_CMD_RESOLVE_IP] = {"resolve_addr", resolve_ip, SILENT(rdma_ucm_resolve_ip)},
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = {"resolve_route", resolve_route,
		SILENT(rdma_ucm_resolve_route)},
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = {"query_route", query_route,
		offsetof(struct rdma_ucm_query, id), sizeof(struct rdma_ucm_query),
		sizeof(struct rdma_ucm_query_route_resp),
		offsetof(struct rdma_ucm_query_route_resp, ibdev_index),
		offsetof(struct rdma_ucm_query, response)},
	[RDMA_USER_CM_CMD_CONNECT] = {"connect", connect_id, SILENT(rdma_ucm_connect)},
	[RDMA_USER_CM_CMD_LISTEN] = {"listen", listen_id, SILENT(rdma_ucm_listen)},
	[RDMA_USER_CM_CMD_ACCEPT] = {"accept", accept_id, SILENT(rdma_ucm_accept)},
	[RDMA_USER_CM_CMD_REJECT] = {"reject", reject_id, SILENT(rdma_ucm_reject)},
	[RDMA_USER_CM_CMD_DISCONNECT] = {"disconnect", disconnect_id, SILENT(rdma_ucm_disconnect)},
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = {"init_qp_attr", init_qp_attr,
		RESPONDS(rdma_ucm_init_qp_attr, ib_uverbs_qp_attr)},
	[RDMA_USER_CM_CMD_SET_OPTION] = {"set_option", set_option, SILENT(rdma_ucm_set_option)},
	[RDMA_USER_CM_CMD_NOTIFY] = {"notify", notify, SILENT(rdma_ucm_notify)},
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = {"join_multicast", join_ip,
		RESPONDS(rdma_ucm_join_ip_mcast, rdma_ucm_create_id_resp)},
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = {"leave_multicast", leave, NO_ID,
		sizeof(struct rdma_ucm_destroy_id), sizeof(struct rdma_ucm_destroy_id_resp),
		sizeof(struct rdma_ucm_destroy_id_resp),
		offsetof(struct rdma_ucm_destroy_id, response)},
	[RDMA_USER_CM_CMD_MIGRATE_ID] = {"migrate_id", migrate, NO_ID,
		sizeof(struct rdma_ucm_migrate_id), sizeof(struct rdma_ucm_migrate_resp),
		sizeof(struct rdma_ucm_migrate_resp),
		offsetof(struct rdma_ucm_migrate_id, response)},
	[RDMA_USER_CM_CMD_BIND] = {"bind_addr", bind_any, SILENT(rdma_ucm_bind)},
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = {"resolve_addr", resolve_addr,
		SILENT(rdma_ucm_resolve_addr)},
	[RDMA_USER_CM_CMD_JOIN_MCAST] = {"join_multicast", join_any,
		RESPONDS(rdma_ucm_join_mcast, rdma_ucm_create_id_resp)},
	[CMD_WRITE_CM_EVENT] = {"write_cm_event", write_event, SILENT(write_cm_event)},
#undef RESPONDS
#undef SILENT
};

union any_command {
	struct rdma_ucm_accept accept;
	struct rdma_ucm_connect connect;
	struct rdma_ucm_join_mcast join;
	struct rdma_ucm_resolve_addr resolve_addr;
	struct rdma_ucm_reject reject;
	uint8_t bytes[1];
};
union any_response {
	struct rdma_ucm_query_route_resp route;
	struct ib_uverbs_qp_attr attr;
	struct rdma_ucm_event_resp event;
	uint8_t bytes[1];
};

static int get_event(struct channel *ch, const uint8_t *body, size_t body_len, size_t out_room)
{
	struct rdma_ucm_get_event cmd;
	struct rdma_ucm_event_resp resp;
	/* Programs built before ECE was added have room for less: the kernel's oldest accepted
	 * size. */
	size_t least = offsetof(struct rdma_ucm_event_resp, reserved);
	if (body_len < sizeof(cmd))
		return -EINVAL;
	if (out_room < least)
		return -ENOSPC;
	memcpy(&cmd, body, sizeof(cmd));
	int rc = channel_get_event(ch, &resp);
	if (!rc)
		memcpy((void *)(uintptr_t)cmd.response, &resp, RPWI_MIN(sizeof(resp), out_room));
	return rc;
}

/* For an account: what the program called, as far as the command tells. Before it is run, since
 * packets follow from it. */
static void account_call(uint32_t number, const union any_command *in)
{
	bool probe = number == RDMA_USER_CM_CMD_BIND &&
		     ((const struct rdma_ucm_bind *)(const void *)in)->addr.ss_family == AF_IB;
	if (number == RDMA_USER_CM_CMD_QUERY_ROUTE || number == RDMA_USER_CM_CMD_INIT_QP_ATTR)
		return;
	if (probe)
		rpwi_explain(RPWI_EXPLAIN_CM_CALL,
			"(librdmacm asks whether AF_IB addresses are known: no)");
	else if (number == RDMA_USER_CM_CMD_ACCEPT && !in->accept.conn_param.valid)
		rpwi_explain(RPWI_EXPLAIN_CM_CALL,
			"(rdma_connect, continued by librdmacm: the reply is good, confirm it)");
	else
		rpwi_explain(RPWI_EXPLAIN_CM_CALL, "rdma_%s", commands[number].name);
}

static int run(
	struct channel *ch, uint32_t number, const union any_command *in, union any_response *out)
{
	uint32_t handle = 0;
	struct id *id = NULL;
	int rc = 0;
	if (commands[number].id_at != NO_ID) {
		memcpy(&handle, in->bytes + commands[number].id_at, sizeof(handle));
		id = id_find(ch, handle, &rc);
	}
	if (RPWI_UNLIKELY(rpwi_explain_on))
		account_call(number, in);
	bool joins =
		number == RDMA_USER_CM_CMD_JOIN_IP_MCAST || number == RDMA_USER_CM_CMD_JOIN_MCAST;
	if (!rc && id && id->real == REAL_ONLY && joins)
		rc = real_join(id, number, in, commands[number].in, commands[number].id_at,
			(struct rdma_ucm_create_id_resp *)out, commands[number].response_at);
	else if (!rc && id && id->real == REAL_ONLY && number != RDMA_USER_CM_CMD_DESTROY_ID)
		rc = real_command(id, number, in, commands[number].in, commands[number].id_at, out,
			commands[number].out, commands[number].response_at);
	else if (!rc)
		rc = commands[number].run(ch, id, in, out);
	rpwi_debug(
		"rdma_cm: %s, id %u: %s", commands[number].name, handle, rc ? strerror(-rc) : "ok");
	if (rc && rc != -EAFNOSUPPORT)
		rpwi_explain(RPWI_EXPLAIN_CM_CALL, "rdma_%s failed: %s", commands[number].name,
			strerror(-rc));
	return rc;
}

/* What a fault script has for it: 0, nothing; 1, an event in the place of what it would do; or
 * -errno. No lock is held. */
static int by_script(struct channel *ch, uint32_t number, const union any_command *in)
{
	static const uint8_t call_of[RPWI_ARRAY_LEN(commands)] = {
		[RDMA_USER_CM_CMD_CREATE_ID] = 1 + RPWI_CALL_CM_CREATE_ID,
		[RDMA_USER_CM_CMD_BIND_IP] = 1 + RPWI_CALL_CM_BIND_ADDR,
		[RDMA_USER_CM_CMD_BIND] = 1 + RPWI_CALL_CM_BIND_ADDR,
		[RDMA_USER_CM_CMD_LISTEN] = 1 + RPWI_CALL_CM_LISTEN,
		[RDMA_USER_CM_CMD_RESOLVE_IP] = 1 + RPWI_CALL_CM_RESOLVE_ADDR,
		[RDMA_USER_CM_CMD_RESOLVE_ADDR] = 1 + RPWI_CALL_CM_RESOLVE_ADDR,
		[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = 1 + RPWI_CALL_CM_RESOLVE_ROUTE,
		[RDMA_USER_CM_CMD_CONNECT] = 1 + RPWI_CALL_CM_CONNECT,
		[RDMA_USER_CM_CMD_ACCEPT] = 1 + RPWI_CALL_CM_ACCEPT,
		[RDMA_USER_CM_CMD_REJECT] = 1 + RPWI_CALL_CM_REJECT,
		[RDMA_USER_CM_CMD_DISCONNECT] = 1 + RPWI_CALL_CM_DISCONNECT,
	};
	int event = 0, err;
	/* librdmacm's question whether AF_IB is known, and an active side's RTU, are no calls of
	 * the program */
	bool probe = number == RDMA_USER_CM_CMD_BIND &&
		     ((const struct rdma_ucm_bind *)(const void *)in)->addr.ss_family == AF_IB;
	if (!call_of[number] || probe ||
		(number == RDMA_USER_CM_CMD_ACCEPT && !in->accept.conn_param.valid))
		return 0;
	err = rpwi_plan_cm_call((enum rpwi_call)(call_of[number] - 1), &event);
	if (err || !event)
		return -err;
	uint32_t handle;
	memcpy(&handle, in->bytes + commands[number].id_at, sizeof(handle));
	rpwi_gsi_lock();
	struct id *id = ch->closed ? NULL : id_find(ch, handle, &err);
	if (id)
		event_new(id, (enum cm_event)(event - 1), -ETIMEDOUT);
	rpwi_gsi_unlock();
	return id ? 1 : 0;
}

ssize_t command(struct channel *ch, const void *buf, size_t len)
{
	struct rdma_ucm_cmd_hdr hdr;
	union any_command in;
	union any_response out;
	if (len < sizeof(hdr))
		return -EINVAL;
	memcpy(&hdr, buf, sizeof(hdr));
	const uint8_t *body = (const uint8_t *)buf + sizeof(hdr);
	size_t body_len = len - sizeof(hdr);
	if (hdr.in > body_len)
		return -EINVAL;
	if (hdr.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
		int rc = get_event(ch, body, body_len, hdr.out);
		return rc ? rc : (ssize_t)len;
	}
	if (hdr.cmd >= RPWI_ARRAY_LEN(commands))
		return -EINVAL;
	if (hdr.cmd == CMD_RESOLVE_IB_SERVICE)
		rpwi_refused_told(RPWI_REFUSED_SERVICE, "rdma_resolve_addrinfo");
	if (!commands[hdr.cmd].run)
		return -ENOSYS;
	if (hdr.out < commands[hdr.cmd].out_least)
		return -ENOSPC;
	/* Later versions append to a command; earlier ones lack that: zeros stand for it. */
	memset(&in, 0, sizeof(in));
	memcpy(&in, body, RPWI_MIN(body_len, RPWI_MIN((size_t)commands[hdr.cmd].in, sizeof(in))));
	memset(&out, 0, sizeof(out));
	int rc = RPWI_UNLIKELY(rpwi_plan_on) ? by_script(ch, hdr.cmd, &in) : 0;
	if (rc < 0)
		return rc;
	if (rc)
		return (ssize_t)len;
	rpwi_gsi_lock();
	rc = ch->closed ? -EBADF : run(ch, hdr.cmd, &in, &out);
	rpwi_gsi_unlock();
	if (rc)
		return rc;
	if (commands[hdr.cmd].response_at != NO_RESPONSE) {
		uint64_t to;
		memcpy(&to, in.bytes + commands[hdr.cmd].response_at, sizeof(to));
		memcpy((void *)(uintptr_t)to, &out, RPWI_MIN(hdr.out, commands[hdr.cmd].out));
	}
	return (ssize_t)len;
}
