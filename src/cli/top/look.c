/* SPDX-License-Identifier: BSD-3-Clause */
/* look.c - see top.h: the devices, processes and QPs of this moment, and their rates. */
#include "cli/top/top.h"

#include "io/io.h"

#include <errno.h>
#include <stdlib.h>

const char *const top_level_name[TOP_LEVELS + 1] = {"device", "process", "qp", NULL};

/* ---- figures ---- */

uint64_t top_work_requests(const struct rpwi_qp_stats *n)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < RPWI_DONE_KINDS; i++)
		sum += n->done[i];
	return sum;
}

uint64_t top_bad_packets(const struct rpwi_qp_stats *n)
{
	return n->rx_broken + n->rx_bad_opcode + n->rx_bad_length + n->rx_bad_qkey +
	       n->rx_wrong_peer + n->rx_wrong_state;
}

uint64_t top_figure(const struct rpwi_qp_stats *n, enum top_figure f)
{
	switch (f) {
	case TOP_OUT:
		return top_work_requests(n);
	case TOP_IN:
		return n->recvs;
	case TOP_TX:
		return n->tx_bytes + n->written_alone_bytes;
	case TOP_RX:
		return n->rx_bytes + n->read_alone_bytes;
	case TOP_RETRY:
		return n->retries;
	case TOP_RNR:
		return n->rnr_nak_rx + n->rnr_nak_tx;
	default:
		return n->failed + top_bad_packets(n) + n->tx_refused;
	}
}

/* ---- gathering ---- */

static struct top_row *row_add(struct top_look *l)
{
	if (l->n == l->cap) {
		unsigned cap = l->cap ? 2 * l->cap : 64;
		struct top_row *more = realloc(l->row, cap * sizeof(*more));
		if (!more)
			return NULL;
		l->row = more;
		l->cap = cap;
	}
	l->row[l->n] = (struct top_row){0};
	return &l->row[l->n++];
}

static bool add_part(void *arg, const struct rpwi_counters_part *p)
{
	/* a device of a former holder of the place */
	if (!p->qpn && !p->contexts && !p->qps)
		return true;
	struct top_row *r = row_add(arg);
	if (!r)
		return false;
	r->level = p->qpn ? TOP_QPS : TOP_PROCESSES;
	memcpy(r->device, p->device, sizeof(r->device));
	r->qps = p->qps;
	r->pid = p->pid;
	r->slot = p->slot;
	r->socket_inode = p->socket_inode;
	r->qpn = p->qpn;
	r->peer_qpn = p->peer_qpn;
	r->type = p->type;
	r->state = p->state;
	memcpy(r->peer, p->peer, sizeof(r->peer));
	r->n = p->n;
	return true;
}

/* Devices first, then processes; of one kind by what they are. */
static int compare(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	if (x->socket_inode != y->socket_inode)
		return x->socket_inode < y->socket_inode ? -1 : 1;
	int by_device = strncmp(x->device, y->device, sizeof(x->device));
	if (by_device || x->qpn == y->qpn)
		return by_device;
	return x->qpn < y->qpn ? -1 : 1;
}

static struct top_row *row_find(const struct top_look *l, const struct top_row *like)
{
	return l && l->n ? bsearch(like, l->row, l->n, sizeof(*l->row), compare) : NULL;
}

/* What a process has counted is what its QPs have, too. */
static void sum_qps(struct top_look *l)
{
	for (unsigned i = 0; i < l->n; i++) {
		const struct top_row *q = &l->row[i];
		struct top_row like = *q;
		like.level = TOP_PROCESSES;
		like.qpn = 0;
		struct top_row *p = q->level == TOP_QPS ? row_find(l, &like) : NULL;
		if (p)
			rpwi_counts_add(&p->n, &q->n);
	}
}

static int add_device(struct top_look *l, const struct rpwi_netdev *d)
{
	struct rpwi_qp_stats sum;
	int rc = rpwi_counters_sum(d->name, &sum, NULL);
	bool counted = top_work_requests(&sum) || sum.tx_packets || sum.rx_packets;
	if (rc || (d->hidden && !counted))
		return rc;
	struct top_row *r = row_add(l);
	if (!r)
		return -ENOMEM;
	r->level = TOP_DEVICES;
	memcpy(r->device, d->name, sizeof(r->device));
	r->up = d->up;
	r->n = sum;
	return 0;
}

static int add_devices(struct top_look *l)
{
	struct rpwi_netdev *list = NULL;
	unsigned all = 0;
	int rc = rpwi_netdev_list(&list, &all);
	for (unsigned i = 0; rc >= 0 && i < all; i++)
		rc = add_device(l, &list[i]);
	free(list);
	return RPWI_MIN(rc, 0);
}

static void count_processes(struct top_look *l)
{
	for (unsigned i = 0; i < l->n; i++)
		for (unsigned k = 0; k < l->n && l->row[k].level == TOP_DEVICES; k++)
			if (l->row[i].level == TOP_PROCESSES &&
				!strcmp(l->row[i].device, l->row[k].device)) {
				l->row[k].processes++;
				l->row[k].qps += l->row[i].qps;
			}
}

/* ---- names and rates ---- */

/* The name of the process with that number, if it is the one that has the socket. */
static void comm_of(struct top_row *r)
{
	char pid[16], path[32], text[TOP_COMM_LEN] = "";
	snprintf(pid, sizeof(pid), "%u", r->pid);
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	FILE *f = rpwi_holder_has_socket(pid, r->socket_inode) ? fopen(path, "re") : NULL;
	if (f && fgets(text, sizeof(text), f))
		text[strcspn(text, "\n")] = '\0';
	if (f)
		fclose(f);
	rpwi_cli_printable(text[0] ? text : "?", r->comm, sizeof(r->comm));
}

static void name(struct top_look *l, struct top_row *r, const struct top_row *was)
{
	struct top_row like = *r;
	if (was) {
		memcpy(r->comm, was->comm, sizeof(r->comm));
		return;
	}
	like.level = TOP_PROCESSES;
	like.qpn = 0;
	const struct top_row *p = r->level == TOP_QPS ? row_find(l, &like) : NULL;
	if (p)
		memcpy(r->comm, p->comm, sizeof(r->comm));
	else
		comm_of(r);
}

/* A count that went down is none of the same QP: it has no rate this time. */
static void rates(struct top_row *r, const struct top_row *was, double seconds)
{
	for (unsigned f = 0; f < TOP_FIGURES; f++) {
		uint64_t now = top_figure(&r->n, f), then = was ? top_figure(&was->n, f) : 0;
		r->grew[f] = seconds > 0 && now > then;
		r->rate[f] = r->grew[f] ? (double)(now - then) / seconds : 0;
	}
}

int top_look(struct top_look *l, const struct top_look *before)
{
	*l = (struct top_look){.at_ns = rpwi_now_ns()};
	if (before && before->at_ns)
		l->seconds = (double)(l->at_ns - before->at_ns) / RPWI_NS_PER_S;
	int rc = add_devices(l);
	if (!rc)
		rc = rpwi_counters_walk(add_part, l);
	if (rc)
		return rc;
	if (l->n)
		qsort(l->row, l->n, sizeof(*l->row), compare);
	sum_qps(l);
	count_processes(l);
	for (unsigned i = 0; i < l->n; i++) {
		const struct top_row *was = row_find(before, &l->row[i]);
		if (l->row[i].level != TOP_DEVICES)
			name(l, &l->row[i], was);
		rates(&l->row[i], was, l->seconds);
	}
	return 0;
}

void top_free(struct top_look *l)
{
	free(l->row);
	*l = (struct top_look){0};
}

/* ---- order ---- */

static double key(const struct top_row *r, enum top_sort by)
{
	switch (by) {
	case TOP_BY_MESSAGES:
		return r->rate[TOP_OUT] + r->rate[TOP_IN];
	case TOP_BY_BYTES:
		return r->rate[TOP_TX] + r->rate[TOP_RX];
	case TOP_BY_RETRIES:
		return (double)top_figure(&r->n, TOP_RETRY);
	case TOP_BY_RNR:
		return (double)top_figure(&r->n, TOP_RNR);
	case TOP_BY_ERRORS:
		return (double)top_figure(&r->n, TOP_ERROR);
	default:
		return 0;
	}
}

static int by_name(const struct top_row *x, const struct top_row *y)
{
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->qpn != y->qpn)
		return x->qpn < y->qpn ? -1 : 1;
	return strncmp(x->device, y->device, sizeof(x->device));
}

/* The largest first; those that are equal by name, so that they stay where they are. */
static int compare_shown(const void *a, const void *b, void *arg)
{
	const struct top_row *x = *(const struct top_row *const *)a;
	const struct top_row *y = *(const struct top_row *const *)b;
	const struct top_order *o = arg;
	double kx = key(x, o->by), ky = key(y, o->by);
	int order = by_name(x, y);
	if (kx > ky || kx < ky)
		order = kx > ky ? -1 : 1;
	return o->reverse ? -order : order;
}

const struct top_row **top_rows(
	const struct top_look *l, enum top_level level, struct top_order order, unsigned *n)
{
	const struct top_row **rows = malloc((l->n + 1) * sizeof(*rows));
	*n = 0;
	for (unsigned i = 0; rows && i < l->n; i++)
		if (l->row[i].level == level)
			rows[(*n)++] = &l->row[i];
	if (rows)
		qsort_r(rows, *n, sizeof(*rows), compare_shown, &order);
	return rows;
}
