/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.c - the data path: the verbs calls, in the order in which a program makes them. */
#include <arpa/inet.h>

#include "steps.h"

enum {
	PORT = 1,          /* ports of a device count from 1 */
	LIST_CHARS = 1024, /* for a list of devices or GIDs in an error line */
	WATCH_EVERY_MS = 20,
};

struct gid_text {
	char text[INET6_ADDRSTRLEN];
};

static struct gid_text gid_text(const union ibv_gid *gid)
{
	struct gid_text t;

	inet_ntop(AF_INET6, gid->raw, t.text, sizeof(t.text));
	return t;
}

/* IBV_MTU_256 is 1, IBV_MTU_4096 is 5. */
static unsigned mtu_bytes(enum ibv_mtu mtu) { return 128u << mtu; }
static enum ibv_mtu mtu_from_bytes(unsigned bytes) { return (enum ibv_mtu)(ffs((int)bytes) - 8); }

static void list_add(char *list, const char *word)
{
	size_t used = strlen(list);

	snprintf(list + used, LIST_CHARS - used, "%s%s", used ? ", " : "", word);
}

/* ---- step 1: the device ---- */

static void must(bool done, const char *call)
{
	if (!done)
		die("%s failed (%s): ask for less with -s and -n, raise the limit of locked memory "
		    "(ulimit -l), or name another device",
			call, strerror(errno));
}

static _Noreturn void device_missing(const char *name, struct ibv_device **list, int count)
{
	char names[LIST_CHARS] = "";

	for (int i = 0; i < count; i++)
		list_add(names, ibv_get_device_name(list[i]));
	die("there is no device \"%s\", only: %s (name one of them, or - for the first one; the "
	    "device comes before the port)",
		name, names);
}

static void open_device(struct rdma *r)
{
	int count = 0, i = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || !count)
		die("this machine has no RDMA device: start this program with \"ropeway run -- "
		    "%s\", which brings one in software, or as root make the kernel's (modprobe "
		    "rdma_rxe; rdma link add rxe0 type rxe netdev eth0)",
			program_invocation_name);
	while (r->opt->device && i < count &&
		strcmp(r->opt->device, ibv_get_device_name(list[i])) != 0)
		i++;
	if (i == count)
		device_missing(r->opt->device, list, count);
	say_step(1,
		"open the device %s and look at its port. All later calls go through the opened "
		"device.",
		ibv_get_device_name(list[i]));
	errno = 0;
	r->context = ibv_open_device(list[i]);
	if (!r->context)
		die("cannot open device %s (%s): see \"ropeway devices\" for the reason, or name "
		    "another device",
			ibv_get_device_name(list[i]), strerror(errno));
	/* The list may go once a device of it is open, not earlier. */
	ibv_free_device_list(list);
}

static bool is_ethernet(const struct rdma *r)
{
	return r->port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

static const char *device_name(const struct rdma *r)
{
	return ibv_get_device_name(r->context->device);
}

static void query_port(struct rdma *r)
{
	must(succeeded(ibv_query_port(r->context, PORT, &r->port)), "ibv_query_port");
	if (r->port.state != IBV_PORT_ACTIVE)
		die("port %d of %s is not active but %s: bring its network interface up (ip link "
		    "set ... up) or connect its cable",
			PORT, device_name(r), ibv_port_state_str(r->port.state));
	r->mtu = r->port.active_mtu;
	if (r->opt->mtu_bytes > mtu_bytes(r->mtu))
		die("an MTU of %u is more than the %u that port %d of %s allows: choose at most "
		    "that (-m)",
			r->opt->mtu_bytes, mtu_bytes(r->mtu), PORT, device_name(r));
	if (r->opt->mtu_bytes)
		r->mtu = mtu_from_bytes(r->opt->mtu_bytes);
	if (r->opt->buffer_bytes > r->port.max_msg_sz)
		die("%s carries messages of at most %u bytes: choose a smaller size (-s)",
			device_name(r), r->port.max_msg_sz);
	say("port %d is active, MTU %u bytes, link layer %s, LID 0x%04x", PORT, mtu_bytes(r->mtu),
		is_ethernet(r) ? "Ethernet (RoCE)" : "InfiniBand", r->port.lid);
}

static bool gid_at(const struct rdma *r, unsigned index, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	return index < (unsigned)r->port.gid_tbl_len &&
	       !ibv_query_gid(r->context, PORT, (int)index, gid) && !gid_empty(gid);
}

static _Noreturn void gid_wrong(const struct rdma *r, unsigned index)
{
	char usable[LIST_CHARS] = "", entry[INET6_ADDRSTRLEN + 24];
	union ibv_gid gid;

	for (unsigned i = 0; i < (unsigned)r->port.gid_tbl_len; i++) {
		if (!gid_at(r, i, &gid))
			continue;
		snprintf(entry, sizeof(entry), "%u (%s)", i, gid_text(&gid).text);
		list_add(usable, entry);
	}
	if (!*usable)
		list_add(usable, _("none; give its network interface an IP address"));
	if (index >= (unsigned)r->port.gid_tbl_len)
		die("GID index %u does not exist, %s has 0 to %d: choose one that is in use: %s",
			index, device_name(r), r->port.gid_tbl_len - 1, usable);
	die("GID index %u of %s is empty: choose one that is in use: %s", index, device_name(r),
		usable);
}

static void query_gid(struct rdma *r)
{
	if (gid_at(r, r->opt->gid_index, &r->gid))
		say("GID %u is %s: on RoCE, the address of this side", r->opt->gid_index,
			gid_text(&r->gid).text);
	/* InfiniBand finds its way by LID; only RoCE cannot do without a GID. */
	else if (is_ethernet(r))
		gid_wrong(r, r->opt->gid_index);
}

/* ---- steps 2 to 5: the objects ---- */

static void register_memory(struct rdma *r)
{
	size_t bytes = (size_t)r->opt->buffer_bytes * r->opt->qps;

	say_step(3, "register memory (MR). From now on the device may use these buffers by itself, "
		    "without the kernel.");
	/* Devices map whole pages, so buffers of their own pages register best. */
	r->send_buffer[0] = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	r->receive_buffer[0] = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	must(r->send_buffer[0] && r->receive_buffer[0], "aligned_alloc");
	for (unsigned i = 1; i < r->opt->qps; i++) {
		r->send_buffer[i] = r->send_buffer[i - 1] + r->opt->buffer_bytes;
		r->receive_buffer[i] = r->receive_buffer[i - 1] + r->opt->buffer_bytes;
	}
	/* Reading for a send is always allowed; to place what arrives, the device must be allowed
	 * to write. The peer gets no right (no IBV_ACCESS_REMOTE_...): with SEND, the receiver
	 * itself decides where data goes. */
	r->send_mr = ibv_reg_mr(r->pd, r->send_buffer[0], bytes, 0);
	must(r->send_mr, "ibv_reg_mr");
	r->receive_mr = ibv_reg_mr(r->pd, r->receive_buffer[0], bytes, IBV_ACCESS_LOCAL_WRITE);
	must(r->receive_mr, "ibv_reg_mr");
	say("%zu bytes to send from (lkey 0x%x), and as many to receive into (lkey 0x%x)", bytes,
		r->send_mr->lkey, r->receive_mr->lkey);
}

static void create_qps(struct rdma *r)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		/* RC, reliable connection: like TCP, nothing is lost or out of order; unlike TCP,
		 * messages stay messages. */
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1, /* a completion for each send */
	};

	say_step(5,
		"create %u queue pair(s) (QP): a queue for sends and one for receives. A new QP is "
		"in state RESET.",
		r->opt->qps);
	for (unsigned i = 0; i < r->opt->qps; i++) {
		struct ibv_qp_init_attr a = attr; /* the call writes into it */
		r->qp[i] = ibv_create_qp(r->pd, &a);
		must(r->qp[i], "ibv_create_qp");
	}
}

void init_rdma_resources(struct rdma *r)
{
	open_device(r);
	query_port(r);
	query_gid(r);
	say_step(2, "allocate a protection domain (PD). Memory and queue pairs work together only "
		    "within one PD.");
	r->pd = ibv_alloc_pd(r->context);
	must(r->pd, "ibv_alloc_pd");
	register_memory(r);
	say_step(4, "create a completion queue (CQ). The device puts a note there whenever it has "
		    "finished something.");
	/* Room for one send and one receive of each QP: a CQ that overflows is lost. */
	r->cq = ibv_create_cq(r->context, (int)r->opt->qps * 2, NULL, NULL, 0);
	must(r->cq, "ibv_create_cq");
	create_qps(r);
}

/* ---- steps 6 and 7: INIT, and a receive on each QP before the peer may send ---- */

static void modify(
	struct rdma *r, unsigned qp, struct ibv_qp_attr *attr, int mask, const char *state)
{
	if (!succeeded(ibv_modify_qp(r->qp[qp], attr, mask)))
		die("QP %u cannot go to state %s (%s): check that the GID index suits the way to "
		    "the peer (same IP version, same network) and that both sides use devices of "
		    "one kind",
			qp + 1, state, strerror(errno));
}

void modify_qp_to_init(struct rdma *r)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = PORT,
		.qp_access_flags = 0, /* the peer may only SEND */
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	say_step(6,
		"RESET -> INIT: the QP learns its port and what a peer may do. Now receives can be "
		"posted, but nothing arrives yet.");
	for (unsigned i = 0; i < r->opt->qps; i++)
		modify(r, i, &attr, mask, "INIT");
}

static uint64_t work_id(enum work work, unsigned qp) { return (uint64_t)work << 32 | qp; }

static void post_receive(struct rdma *r, unsigned qp)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->receive_buffer[qp],
		.length = r->opt->buffer_bytes,
		.lkey = r->receive_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = work_id(WORK_RECEIVE, qp), .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	must(succeeded(ibv_post_recv(r->qp[qp], &wr, &bad)), "ibv_post_recv");
}

void post_receives(struct rdma *r)
{
	say_step(7,
		"post a receive on each QP: a message that finds none would be turned away (RNR, "
		"receiver not ready).");
	for (unsigned i = 0; i < r->opt->qps; i++)
		post_receive(r, i);
}

/* ---- step 8: who is there? ---- */

void con_data_describe(struct rdma *r)
{
	r->local = (struct cm_con_data_t){
		.mtu_bytes = mtu_bytes(r->mtu),
		.qps = r->opt->qps,
		.buffer_bytes = r->opt->buffer_bytes,
		.message_bytes = r->opt->message_bytes,
		.link_layer = r->port.link_layer,
		.lid = r->port.lid,
		.gid = r->gid,
	};
	for (unsigned i = 0; i < r->opt->qps; i++) {
		r->local.qp[i].qpn = r->qp[i]->qp_num;
		/* PSNs begin anywhere, so that packets of an earlier connection do not fit into
		 * this one. */
		r->local.qp[i].psn = random_number() & 0xffffff;
	}
}

static void show_con_data(const char *name, const struct cm_con_data_t *s)
{
	for (unsigned i = 0; i < s->qps; i++)
		say("%s LID 0x%04x  QPN 0x%06x  PSN 0x%06x  GID %s", name, s->lid, s->qp[i].qpn,
			s->qp[i].psn, gid_text(&s->gid).text);
}

void con_data_show(const struct rdma *r)
{
	show_con_data(_("local: "), &r->local);
	show_con_data(_("remote:"), &r->remote);
	say("MTU %u here, %u there: the smaller counts", r->local.mtu_bytes, r->remote.mtu_bytes);
}

/* ---- steps 9 and 10: RTR, RTS ---- */

void modify_qp_to_rtr(struct rdma *r)
{
	const struct cm_con_data_t *local = &r->local, *remote = &r->remote;
	uint32_t mtu = local->mtu_bytes < remote->mtu_bytes ? local->mtu_bytes : remote->mtu_bytes;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_from_bytes(mtu),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, /* 0.64 ms */
		.ah_attr =
			{
				.dlid = (uint16_t)remote->lid,
				.port_num = PORT,
				/* The global header carries the GIDs; RoCE always has it (on RoCE
				 * v2 it is the IP header). */
				.is_global = is_ethernet(r),
				.grh = {.dgid = remote->gid,
					.sgid_index = (uint8_t)r->opt->gid_index,
					/* RoCE puts the route's in its place. */
					.hop_limit = 64},
			},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	say_step(9,
		"INIT -> RTR (ready to receive): the QP learns its peer: address, QPN, first PSN, "
		"MTU %u. It receives from now on.",
		mtu);
	for (unsigned i = 0; i < r->opt->qps; i++) {
		attr.dest_qp_num = remote->qp[i].qpn;
		attr.rq_psn = remote->qp[i].psn;
		modify(r, i, &attr, mask, "RTR");
	}
}

void modify_qp_to_rts(struct rdma *r)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout =
			14, /* 4.096 us * 2^14 = 67 ms until an unanswered packet is sent again */
		.retry_cnt = 7, /* so many times */
		.rnr_retry = 7, /* wait for a receive without limit; the 5 s of polling end it */
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	say_step(10,
		"RTR -> RTS (ready to send): the QP learns its own first PSN, and how long and how "
		"often to try again. Now it may send, too.");
	for (unsigned i = 0; i < r->opt->qps; i++) {
		attr.sq_psn = r->local.qp[i].psn;
		modify(r, i, &attr, mask, "RTS");
	}
}

/* ---- steps 12 and 13: messages ---- */

void post_send(struct rdma *r, unsigned qp, uint32_t bytes)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->send_buffer[qp],
		.length = bytes,
		.lkey = r->send_mr->lkey,
	};
	struct ibv_send_wr wr = {.wr_id = work_id(WORK_SEND, qp),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;

	/* This only hands the work over; the buffer belongs to the device until the completion
	 * comes. */
	must(succeeded(ibv_post_send(r->qp[qp], &wr, &bad)), "ibv_post_send");
}

/* What to do about each way in which an operation can fail. */
static const char *advice_for(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return N_("the peer acknowledged nothing: check that it still runs, that the GIDs "
			  "reach each other, and that UDP port 4791 is not blocked");
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return N_("the peer had no receive posted: start both again");
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return N_("the message was longer than the receive buffer: start both with the "
			  "same -s");
	case IBV_WC_LOC_PROT_ERR:
		return N_("the buffer is not registered as the operation needs it: the program or "
			  "the device is at fault");
	case IBV_WC_WR_FLUSH_ERR:
		return N_("the queue pair failed earlier: look at what the other side printed");
	default:
		return N_("look at what the other side printed, then start both again");
	}
}

struct completion poll_completion(struct rdma *r, struct exchange *x)
{
	uint64_t start = now_ms(), watched = start, now;
	struct completion c;
	struct ibv_wc wc;
	int n;

	/* Polling never sleeps: on a NIC this is how latencies of a microsecond come about. */
	while ((n = ibv_poll_cq(r->cq, 1, &wc)) == 0) {
		now = now_ms();
		if (now - start >= WAIT_MS)
			die("nothing was completed for %d s: check that the GIDs of both sides "
			    "reach each other, that UDP port 4791 is not blocked, and use a "
			    "smaller -s if the network is too slow for the message",
				WAIT_MS / 1000);
		if (now - watched < WATCH_EVERY_MS)
			continue;
		watched = now;
		exchange_watch(x);
	}
	if (n < 0)
		die("the completion queue cannot be read: the device is at fault, start both "
		    "again");
	if (r->opt->verbose)
		printf("wc->status = %d (%s)\n", wc.status, ibv_wc_status_str(wc.status));
	c = (struct completion){(enum work)(wc.wr_id >> 32), (unsigned)wc.wr_id, wc.byte_len};
	if (wc.status != IBV_WC_SUCCESS)
		die(c.work == WORK_SEND ? N_("the send on QP %u failed (%s): %s")
					: N_("the receive on QP %u failed (%s): %s"),
			c.qp + 1, ibv_wc_status_str(wc.status), _(advice_for(wc.status)));
	return c;
}

/* ---- the end ---- */

/* In reverse order: nothing may be closed while something still uses it. */
void close_rdma_resources(struct rdma *r)
{
	for (unsigned i = 0; i < r->opt->qps; i++)
		ibv_destroy_qp(r->qp[i]);
	ibv_destroy_cq(r->cq);
	ibv_dereg_mr(r->receive_mr);
	ibv_dereg_mr(r->send_mr);
	free(r->receive_buffer[0]);
	free(r->send_buffer[0]);
	ibv_dealloc_pd(r->pd);
	ibv_close_device(r->context);
}
