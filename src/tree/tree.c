/* SPDX-License-Identifier: BSD-3-Clause */
/* tree.c - the table of paths that a kernel would have for our devices, and the contents of their
 * files.
 *
 * The shape is rxe's (Linux 6.1), except that each device has a parent, as NICs have, and as rxe
 * had in older kernels: the interface's own device, or a made-up one where it has none. So the
 * device's folder is <parent>/infiniband/<name>, and programs that go by `device` find something
 * (docs/decisions/tree.md).
 */
#include "tree/tree.h"

#include "io/counters.h"
#include "io/io.h"
#include "like/like.h"

#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Of the ABI that the newest libraries take: <rdma/ib_user_verbs.h>, <rdma/ib_user_mad.h>; a
 * device's own is rxe's. */
enum { VERBS_ABI = 6, MAD_ABI = 5, RXE_ABI = 2, UVERBS_MAJOR = 231, MINOR_MAX = 0xfffff };

struct rpwi_tree_dev {
	const struct rpwi_netdev *net;
	bool has_parent;                       /* the kernel's */
	char parent[RPWI_TREE_PATH_MAX - 128]; /* a path, and what hangs on it has room */
	char dir[RPWI_TREE_PATH_MAX - 64], uverbs_dir[RPWI_TREE_PATH_MAX - 64];
	char uverbs[24];
};

struct file {
	char *buf;
	size_t len;
};

static int put_done(struct file *f, int n)
{
	if (n < 0 || n >= RPWI_SYSFS_FILE_MAX)
		return -EINVAL;
	f->len = (size_t)n;
	return 0;
}
#define put(f, ...) put_done((f), snprintf((f)->buf, RPWI_SYSFS_FILE_MAX, __VA_ARGS__))

/* ---- contents: asked with the device (NULL where there is none) and a numbered file's number ----
 */

typedef int show_fn(const struct rpwi_tree_dev *d, unsigned index, struct file *f);
#define SHOW(name) \
	static int show_##name(const struct rpwi_tree_dev *d, unsigned index, struct file *f)
#define SHOW_TEXT(name, ...) \
	SHOW(name) { return put(f, __VA_ARGS__); }

SHOW_TEXT(zero, "0\n")
SHOW_TEXT(zero_hex, "0x0\n")
SHOW_TEXT(type, "1: CA\n")
SHOW_TEXT(desc, "ropeway on %s\n", d->net->ifname)
SHOW_TEXT(version, "%s\n", ROPEWAY_VERSION)
SHOW_TEXT(board, "ROPEWAY0001\n")
SHOW_TEXT(hca_type, "ropeway\n")
SHOW_TEXT(hw_rev, "0x1\n")
SHOW_TEXT(parent, "%s\n", d->net->ifname)
SHOW_TEXT(uevent, "NAME=%s\n", d->net->name)
SHOW_TEXT(state, d->net->up ? "4: ACTIVE\n" : "1: DOWN\n")
SHOW(phys_state)
{
	if (d->net->up)
		return put(f, "5: LinkUp\n");
	return put(f, d->net->no_carrier ? "2: Polling\n" : "3: Disabled\n");
}
SHOW_TEXT(link_layer, "Ethernet\n")
SHOW_TEXT(cap_mask, "0x00010000\n") /* CM */
SHOW_TEXT(pkey, "0xffff\n")
SHOW_TEXT(ibdev, "%s\n", d->net->name)
SHOW_TEXT(rxe_abi, "%d\n", RXE_ABI)
SHOW_TEXT(verbs_abi, "%d\n", VERBS_ABI)
SHOW_TEXT(mad_abi, "%d\n", MAD_ABI)
SHOW_TEXT(cm_abi, "%d\n", RDMA_USER_CM_ABI_VERSION)
SHOW_TEXT(no_node, "-1\n")
SHOW_TEXT(nothing, "%s", "")
SHOW_TEXT(auto, "auto\n")
SHOW_TEXT(disabled, "disabled\n")
SHOW_TEXT(unsupported, "unsupported\n")

SHOW(io_error) { return -EIO; } /* autosuspend_delay_ms, where nothing suspends */

SHOW(guid)
{
	uint8_t g[8];
	rpwi_netdev_guid(d->net, g);
	return put(f, "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", g[0], g[1], g[2], g[3], g[4], g[5],
		g[6], g[7]);
}

/* As query.c's port attributes: width and speed come nearest to the interface's speed. */
SHOW(rate)
{
	static const struct {
		uint32_t mbps;
		const char *rate;
	} rates[] = {
		{200000, "200 Gb/sec (4X HDR)"},
		{100000, "100 Gb/sec (4X EDR)"},
		{56000, "56 Gb/sec (4X FDR)"},
		{50000, "50 Gb/sec (1X HDR)"},
		{40000, "40 Gb/sec (4X QDR)"},
		{25000, "25 Gb/sec (1X EDR)"},
		{14000, "14 Gb/sec (1X FDR)"},
		{10000, "10 Gb/sec (4X SDR)"},
		{0, "2.5 Gb/sec (1X SDR)"},
	};
	unsigned i = 0;
	while (d->net->speed_mbps < rates[i].mbps)
		i++;
	return put(f, "%s\n", rates[i].rate);
}

static bool has_gid(const struct rpwi_tree_dev *d, unsigned index)
{
	static const uint8_t none[16];
	return index < d->net->gid_count && memcmp(d->net->gid[index].raw, none, sizeof(none)) != 0;
}

SHOW(gid)
{
	static const uint8_t none[16];
	const uint8_t *g = index < d->net->gid_count ? d->net->gid[index].raw : none;
	uint16_t w[8];
	for (unsigned i = 0; i < 8; i++)
		w[i] = rpwi_get_be16(g + 2 * i);
	return put(f, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x\n", w[0], w[1], w[2], w[3], w[4],
		w[5], w[6], w[7]);
}

/* The kernel's files for an empty GID are there, but reading them fails with EINVAL. */
SHOW(gid_type) { return has_gid(d, index) ? put(f, "RoCE v2\n") : -EINVAL; }
SHOW(gid_ndev) { return has_gid(d, index) ? put(f, "%s\n", d->net->ifname) : -EINVAL; }

static unsigned minor_of(const struct rpwi_tree_dev *d)
{
	return rpwi_netdev_uverbs(d->net) & MINOR_MAX;
}
SHOW(dev) { return put(f, "%d:%u\n", UVERBS_MAJOR, minor_of(d)); }
SHOW(verbs_uevent)
{
	return put(f, "MAJOR=%d\nMINOR=%u\nDEVNAME=infiniband/%s\nDEVMODE=0666\n", UVERBS_MAJOR,
		minor_of(d), d->uverbs);
}
SHOW(cm_dev)
{
	dev_t r = rpwi_rdma_cm_rdev();
	return put(f, "%u:%u\n", major(r), minor(r));
}
SHOW(cm_uevent)
{
	dev_t r = rpwi_rdma_cm_rdev();
	return put(f, "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666\n", major(r),
		minor(r));
}

static size_t read_real(const char *path, char *buf, size_t size)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, size - 1, 0);
	if (fd >= 0)
		syscall(SYS_close, fd);
	buf[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

/* A device without a node is near to every CPU. */
SHOW(cpulist)
{
	f->len = read_real("/sys/devices/system/cpu/online", f->buf, RPWI_SYSFS_FILE_MAX);
	return 0;
}

SHOW(cpus)
{
	enum { CPUS = 1024 };
	uint32_t mask[CPUS / 32] = {0};
	char list[256], *p = list;
	unsigned last = 0;
	read_real("/sys/devices/system/cpu/online", list, sizeof(list));
	while (*p >= '0' && *p <= '9') {
		unsigned long from = strtoul(p, &p, 10), to = from;
		if (*p == '-')
			to = strtoul(p + 1, &p, 10);
		for (; from <= to && from < CPUS; from++) {
			mask[from / 32] |= 1u << from % 32;
			last = RPWI_MAX(last, (unsigned)from / 32);
		}
		if (*p == ',')
			p++;
	}
	int n = 0;
	for (unsigned i = last + 1; i-- > 0;)
		n += snprintf(f->buf + n, RPWI_SYSFS_FILE_MAX - (size_t)n, i ? "%08x," : "%08x\n",
			mask[i]);
	return put_done(f, n);
}

/* ---- counters: of all processes of this user here, ended ones too (io/counters.h) ---- */

static int put_count(const struct rpwi_tree_dev *d, struct file *f,
	uint64_t (*of)(const struct rpwi_qp_stats *n))
{
	struct rpwi_qp_stats n;
	int rc;
	RPWI_KEEP_ERRNO(rc = rpwi_counters_sum(d->net->name, &n, NULL));
	return rc ? rc : put(f, "%llu\n", (unsigned long long)of(&n));
}
#define SHOW_COUNT(name, count) \
	static uint64_t count_of_##name(const struct rpwi_qp_stats *n) { return count; } \
	SHOW(name) { return put_count(d, f, count_of_##name); }

SHOW_COUNT(xmit_data, n->tx_bytes / 4)
SHOW_COUNT(rcv_data, n->rx_bytes / 4)
SHOW_COUNT(xmit_packets, n->tx_packets)
SHOW_COUNT(rcv_packets, n->rx_packets)
SHOW_COUNT(xmit_unicast, n->tx_packets - RPWI_MIN(n->tx_mcast, n->tx_packets))
SHOW_COUNT(rcv_unicast, n->rx_packets - RPWI_MIN(n->rx_mcast, n->rx_packets))
SHOW_COUNT(xmit_multicast, n->tx_mcast)
SHOW_COUNT(rcv_multicast, n->rx_mcast)
SHOW_COUNT(rcv_errors, n->rx_broken + n->rx_bad_opcode + n->rx_bad_length)
SHOW_COUNT(xmit_discards, n->tx_refused)
SHOW_COUNT(duplicates, n->rx_duplicate)
SHOW_COUNT(out_of_order, n->rx_out_of_order)
SHOW_COUNT(rnr_rcvd, n->rnr_nak_rx)
SHOW_COUNT(rnr_sent, n->rnr_nak_tx)
SHOW_COUNT(seq_rcvd, n->seq_nak_rx)
SHOW_COUNT(retry_exceeded, n->retry_exceeded)
SHOW_COUNT(rnr_exceeded, n->rnr_exceeded)
SHOW_COUNT(retries, n->retries)
SHOW_COUNT(sends, n->done[RPWI_DONE_SENDS])
SHOW_COUNT(recvs, n->recvs)

/* Each process would count the same event: the kernel counts it once. */
SHOW(link_downed)
{
	char path[64];
	snprintf(path, sizeof(path), "/sys/class/net/%s/carrier_down_count", d->net->ifname);
	f->len = read_real(path, f->buf, RPWI_SYSFS_FILE_MAX);
	return f->len ? 0 : put(f, "0\n");
}

/* ---- the table ----
 *
 * In a path: %n the device's name, %u its uverbsN, %i the interface, %P the parent's folder, %D and
 * %U the device's and uverbsN's, %V a parent that we made up (no such path where the kernel has
 * one); a last part # stands for 0 to `count` - 1. Folders are what has something in it.
 */
struct rpwi_tree_row {
	const char *path;
	enum rpwi_kind kind;
	show_fn *show;
	const char *to; /* a link's target */
	unsigned count;
	bool hidden; /* followed, but in no list */
	bool counts; /* another number in each moment */
};

#define FILE_AT(path, show) \
	{ \
		path, RPWI_NODE_FILE, show, NULL, 0, false, false \
	}
#define FILES_AT(path, show, count) \
	{ \
		path "/#", RPWI_NODE_FILE, show, NULL, count, false, false \
	}
#define LINK_AT(path, to) \
	{ \
		path, RPWI_NODE_LINK, NULL, to, 0, false, false \
	}
#define COUNT_AT(path, show) \
	{ \
		path, RPWI_NODE_FILE, show, NULL, 0, false, true \
	}
#define COUNTER_AT(name, show) COUNT_AT("%D/ports/1/counters/" name, show)
#define HW_COUNTERS "%D/ports/1/hw_counters/"
#define HW_COUNTER_AT(name, show) COUNT_AT(HW_COUNTERS name, show)
#define POWER_AT(path) \
	FILE_AT(path "/power/async", show_disabled), \
		FILE_AT(path "/power/autosuspend_delay_ms", show_io_error), \
		FILE_AT(path "/power/control", show_auto), \
		FILE_AT(path "/power/runtime_active_kids", show_zero), \
		FILE_AT(path "/power/runtime_active_time", show_zero), \
		FILE_AT(path "/power/runtime_enabled", show_disabled), \
		FILE_AT(path "/power/runtime_status", show_unsupported), \
		FILE_AT(path "/power/runtime_suspended_time", show_zero), \
		FILE_AT(path "/power/runtime_usage", show_zero)

static const struct rpwi_tree_row rows[] = {
	LINK_AT("/sys/class/infiniband/%n", "%D"),
	LINK_AT("/sys/class/infiniband_verbs/%u", "%U"),
	FILE_AT("/sys/class/infiniband_verbs/abi_version", show_verbs_abi),
	FILE_AT("/sys/class/infiniband_mad/abi_version", show_mad_abi),
	LINK_AT("/sys/class/misc/rdma_cm", "/sys/devices/virtual/misc/rdma_cm"),
	FILE_AT("/sys/devices/virtual/misc/rdma_cm/abi_version", show_cm_abi),
	FILE_AT("/sys/devices/virtual/misc/rdma_cm/dev", show_cm_dev),
	FILE_AT("/sys/devices/virtual/misc/rdma_cm/uevent", show_cm_uevent),
	LINK_AT("/sys/devices/virtual/misc/rdma_cm/subsystem", "/sys/class/misc"),
	POWER_AT("/sys/devices/virtual/misc/rdma_cm"),
	{"/dev/infiniband/rdma_cm", RPWI_NODE_RDMA_CM, NULL, NULL, 0, false, false},
	{"/dev/infiniband/%u", RPWI_NODE_CHARDEV, NULL, NULL, 0, false, false},
	/* ibdev2netdev and its like go this way. Without the next part there is none: programs take
	 * an interface with a `device` for a NIC. */
	{"/sys/devices/virtual/net/%i/device", RPWI_NODE_LINK, NULL, "%V", 0, true, false},
	LINK_AT("%V/net/%i", "/sys/devices/virtual/net/%i"),
	FILE_AT("%V/numa_node", show_no_node),
	FILE_AT("%V/local_cpus", show_cpus),
	FILE_AT("%V/local_cpulist", show_cpulist),
	FILE_AT("%V/uevent", show_nothing),
	LINK_AT("%D/device", "%P"),
	LINK_AT("%D/subsystem", "/sys/class/infiniband"),
	FILE_AT("%D/uevent", show_uevent),
	FILE_AT("%D/node_guid", show_guid),
	FILE_AT("%D/sys_image_guid", show_guid),
	FILE_AT("%D/node_type", show_type),
	FILE_AT("%D/node_desc", show_desc),
	FILE_AT("%D/fw_ver", show_version),
	FILE_AT("%D/hw_rev", show_hw_rev),
	FILE_AT("%D/hca_type", show_hca_type),
	FILE_AT("%D/board_id", show_board),
	FILE_AT("%D/parent", show_parent),
	POWER_AT("%D"),
	FILE_AT("%D/ports/1/state", show_state),
	FILE_AT("%D/ports/1/phys_state", show_phys_state),
	FILE_AT("%D/ports/1/link_layer", show_link_layer),
	FILE_AT("%D/ports/1/rate", show_rate),
	FILE_AT("%D/ports/1/lid", show_zero_hex),
	FILE_AT("%D/ports/1/lid_mask_count", show_zero),
	FILE_AT("%D/ports/1/sm_lid", show_zero_hex),
	FILE_AT("%D/ports/1/sm_sl", show_zero),
	FILE_AT("%D/ports/1/cap_mask", show_cap_mask),
	FILES_AT("%D/ports/1/pkeys", show_pkey, 1),
	FILES_AT("%D/ports/1/gids", show_gid, RPWI_GIDS_MAX),
	FILES_AT("%D/ports/1/gid_attrs/types", show_gid_type, RPWI_GIDS_MAX),
	FILES_AT("%D/ports/1/gid_attrs/ndevs", show_gid_ndev, RPWI_GIDS_MAX),
	COUNTER_AT("port_xmit_data", show_xmit_data),
	COUNTER_AT("port_rcv_data", show_rcv_data),
	COUNTER_AT("port_xmit_packets", show_xmit_packets),
	COUNTER_AT("port_rcv_packets", show_rcv_packets),
	COUNTER_AT("unicast_xmit_packets", show_xmit_unicast),
	COUNTER_AT("unicast_rcv_packets", show_rcv_unicast),
	COUNTER_AT("multicast_xmit_packets", show_xmit_multicast),
	COUNTER_AT("multicast_rcv_packets", show_rcv_multicast),
	COUNTER_AT("port_rcv_errors", show_rcv_errors),
	COUNTER_AT("port_xmit_discards", show_xmit_discards),
	COUNTER_AT("link_downed", show_link_downed),
	/* of links of InfiniBand: what there is not is never counted */
	COUNTER_AT("symbol_error", show_zero),
	COUNTER_AT("link_error_recovery", show_zero),
	COUNTER_AT("local_link_integrity_errors", show_zero),
	COUNTER_AT("port_rcv_remote_physical_errors", show_zero),
	COUNTER_AT("port_rcv_switch_relay_errors", show_zero),
	COUNTER_AT("port_rcv_constraint_errors", show_zero),
	COUNTER_AT("port_xmit_constraint_errors", show_zero),
	COUNTER_AT("VL15_dropped", show_zero),
	HW_COUNTER_AT("sent_pkts", show_xmit_packets),
	HW_COUNTER_AT("rcvd_pkts", show_rcv_packets),
	HW_COUNTER_AT("duplicate_request", show_duplicates),
	HW_COUNTER_AT("out_of_seq_request", show_out_of_order),
	HW_COUNTER_AT("rcvd_rnr_err", show_rnr_rcvd),
	HW_COUNTER_AT("send_rnr_err", show_rnr_sent),
	HW_COUNTER_AT("rcvd_seq_err", show_seq_rcvd),
	HW_COUNTER_AT("ack_deferred", show_zero), /* they are not */
	HW_COUNTER_AT("retry_exceeded_err", show_retry_exceeded),
	HW_COUNTER_AT("retry_rnr_exceeded_err", show_rnr_exceeded),
	HW_COUNTER_AT("completer_retry_err", show_retries),
	HW_COUNTER_AT("send_err", show_xmit_discards),
	HW_COUNTER_AT("link_downed", show_link_downed),
	HW_COUNTER_AT("rdma_sends", show_sends),
	HW_COUNTER_AT("rdma_recvs", show_recvs),
	HW_COUNTER_AT("lifespan", show_zero), /* ms that what is read may be old */
	LINK_AT("%U/device", "%P"),
	LINK_AT("%U/subsystem", "/sys/class/infiniband_verbs"),
	FILE_AT("%U/ibdev", show_ibdev),
	FILE_AT("%U/abi_version", show_rxe_abi),
	FILE_AT("%U/dev", show_dev),
	FILE_AT("%U/uevent", show_verbs_uevent),
	POWER_AT("%U"),
};

/* ---- a row's path, character by character ---- */

struct spell {
	const char *row, *word;
	const struct rpwi_tree_dev *d;
};

static const char *word_of(const struct rpwi_tree_dev *d, char c)
{
	if (!d) /* row_is_for has seen to it */
		return "";
	switch (c) {
	case 'n':
		return d->net->name;
	case 'i':
		return d->net->ifname;
	case 'u':
		return d->uverbs;
	case 'D':
		return d->dir;
	case 'U':
		return d->uverbs_dir;
	default:
		return d->parent;
	}
}

static char spell_next(struct spell *s)
{
	while (!s->word || !*s->word) {
		if (*s->row != '%')
			return *s->row ? *s->row++ : '\0';
		s->word = word_of(s->d, s->row[1]);
		s->row += 2;
	}
	return *s->word++;
}

/* A row without a device's word is there once (d NULL); one with a made-up parent only where there
 * is such. */
/* The table of GIDs is as long as the port's attributes say. */
static unsigned count_of(const struct rpwi_tree_row *r)
{
	bool gids = r->count == RPWI_GIDS_MAX;
	return gids ? (unsigned)rpwi_like_most(RPWI_LIKE_GID_TBL_LEN) : r->count;
}

static bool row_is_for(const struct rpwi_tree_row *r, const struct rpwi_tree_dev *d)
{
	const char *in_path = strchr(r->path, '%'), *in_to = r->to ? strchr(r->to, '%') : NULL;
	if (!in_path && !in_to)
		return !d;
	bool made_up = (in_path && in_path[1] == 'V') || (in_to && in_to[1] == 'V');
	return d && !(d->has_parent && made_up);
}

/* A number as the kernel names such files: decimal, no sign, no leading zero. -1 if it is not
 * one. */
static int number(const char *s)
{
	int v = 0;
	if (s[0] == '0' && s[1])
		return -1;
	const char *p = s;
	for (; *p >= '0' && *p <= '9' && v < 100000; p++)
		v = v * 10 + (*p - '0');
	return *p || p == s ? -1 : v;
}

enum match { NO, WHOLE, FOLDER };

/* Is `path` the row's, or a folder above it? Then *s is at the name below. */
static enum match match(const struct rpwi_tree_row *r, const struct rpwi_tree_dev *d,
	const char *path, struct spell *s, unsigned *index)
{
	*s = (struct spell){.row = r->path, .d = d};
	if (!row_is_for(r, d))
		return NO;
	for (;; path++) {
		char c = spell_next(s);
		if (c == '#' && r->count) {
			int i = number(path);
			*index = (unsigned)i;
			return i >= 0 && (unsigned)i < count_of(r) ? WHOLE : NO;
		}
		if (!*path && c == '/')
			return FOLDER;
		if (*path != c)
			return NO;
		if (!c)
			return WHOLE;
	}
}

/* ---- looking up ---- */

struct rpwi_node rpwi_tree_node(const struct rpwi_tree *t, const char *path)
{
	struct rpwi_node n = {.kind = RPWI_NODE_NONE};
	struct spell s;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		for (unsigned j = 0; j <= t->n; j++) {
			const struct rpwi_tree_dev *d = j < t->n ? &t->devs[j] : NULL;
			enum match m = match(&rows[i], d, path, &s, &n.index);
			if (m == WHOLE)
				return (struct rpwi_node){rows[i].kind, &rows[i], d, n.index};
			if (m == FOLDER)
				n.kind = RPWI_NODE_DIR;
		}
	return n;
}

bool rpwi_tree_is_first(const struct rpwi_node *n) { return n->kind == RPWI_NODE_RDMA_CM; }

unsigned rpwi_tree_minor(const struct rpwi_node *n) { return minor_of(n->dev); }

bool rpwi_tree_counts(const struct rpwi_node *n) { return n->row && n->row->counts; }

int rpwi_tree_show(const struct rpwi_node *n, char *buf, size_t *len)
{
	struct file f = {.buf = buf};
	int rc = n->row->show(n->dev, n->index, &f);
	*len = f.len;
	return rc;
}

bool rpwi_tree_hw_counter(
	const struct rpwi_netdev *net, unsigned i, const char **name, uint64_t *value)
{
	const struct rpwi_tree_dev d = {.net = net};
	char text[RPWI_SYSFS_FILE_MAX];
	const size_t prefix = sizeof(HW_COUNTERS) - 1;
	for (unsigned r = 0; r < RPWI_ARRAY_LEN(rows); r++) {
		struct file f = {.buf = text};
		if (strncmp(rows[r].path, HW_COUNTERS, prefix) != 0 || i--)
			continue;
		if (rows[r].show(&d, 0, &f))
			return false;
		*name = rows[r].path + prefix;
		*value = strtoull(text, NULL, 10);
		return true;
	}
	return false;
}

int rpwi_tree_target(const struct rpwi_node *n, const char *path, char *buf, size_t size)
{
	char to[RPWI_TREE_PATH_MAX], *end = to;
	struct spell s = {.row = n->row->to, .d = n->dev};
	do {
		if (end == to + sizeof(to))
			return -ENAMETOOLONG;
		*end = spell_next(&s);
	} while (*end++);
	/* from the last folder that both are in, as kernfs has it */
	size_t same = 0, i = 0, len = 0;
	for (; path[i] && path[i] == to[i]; i++)
		if (path[i] == '/')
			same = i + 1;
	for (const char *up = path + same; (up = strchr(up, '/')); up++) {
		if (len + 3 >= size)
			return -ENAMETOOLONG;
		/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): the rest ends it */
		memcpy(buf + len, "../", 3);
		len += 3;
	}
	size_t rest = strlen(to + same);
	if (len + rest >= size)
		return -ENAMETOOLONG;
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): it is, with the + 1 */
	memcpy(buf + len, to + same, rest + 1);
	return (int)(len + rest);
}

static void visit_row(
	const struct rpwi_tree_row *r, struct spell *s, rpwi_tree_visit *visit, void *arg)
{
	char name[RPWI_TREE_PATH_MAX];
	unsigned n = 0;
	char c;
	while ((c = spell_next(s)) && c != '/' && n + 1 < sizeof(name))
		name[n++] = c;
	name[n] = '\0';
	if (!r->count || c) {
		visit(arg, name, c ? RPWI_NODE_DIR : r->kind);
		return;
	}
	for (unsigned i = 0; i < count_of(r); i++) {
		snprintf(name, sizeof(name), "%u", i);
		visit(arg, name, r->kind);
	}
}

void rpwi_tree_list(
	const struct rpwi_tree *t, const char *folder, rpwi_tree_visit *visit, void *arg)
{
	struct spell s;
	unsigned index;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		for (unsigned j = 0; j <= t->n; j++)
			if (!rows[i].hidden && match(&rows[i], j < t->n ? &t->devs[j] : NULL,
						       folder, &s, &index) == FOLDER)
				visit_row(&rows[i], &s, visit, arg);
}

/* ---- the devices ---- */

/* The end of a link in the folder `dir`, without links, "." and "..". False: there is none. */
static bool follow(char *dir, size_t size, const char *name)
{
	char path[RPWI_TREE_PATH_MAX], to[RPWI_TREE_PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (len < 0 || (size_t)len >= sizeof(path))
		return false;
	long n = syscall(SYS_readlinkat, AT_FDCWD, path, to, sizeof(to) - 1);
	if (n <= 0 || n == sizeof(to) - 1)
		return false;
	to[n] = '\0';
	char *rest = to;
	size_t at = *rest == '/' ? 0 : strlen(dir);
	for (char *part; (part = strsep(&rest, "/"));) {
		size_t part_len = strlen(part);
		if (!part_len || !strcmp(part, "."))
			continue;
		if (!strcmp(part, "..")) {
			while (at && dir[--at] != '/')
				;
			continue;
		}
		if (at + 1 + part_len >= size)
			return false;
		dir[at++] = '/';
		memcpy(dir + at, part, part_len);
		at += part_len;
	}
	dir[at] = '\0';
	return true;
}

static void dev_fill(struct rpwi_tree_dev *d, const struct rpwi_netdev *net)
{
	d->net = net;
	snprintf(d->uverbs, sizeof(d->uverbs), "uverbs%u", rpwi_netdev_uverbs(net));
	snprintf(d->parent, sizeof(d->parent), "/sys/class/net");
	/* The interface, then its device. Names as in PCI, device 00, function 0: a program that
	 * takes all functions of a device for one (NCCL) still finds two devices. */
	d->has_parent = follow(d->parent, sizeof(d->parent), net->ifname) &&
			follow(d->parent, sizeof(d->parent), "device");
	if (!d->has_parent)
		snprintf(d->parent, sizeof(d->parent), "/sys/devices/virtual/ropeway/%s:00.0",
			net->name);
	snprintf(d->dir, sizeof(d->dir), "%s/infiniband/%s", d->parent, net->name);
	snprintf(d->uverbs_dir, sizeof(d->uverbs_dir), "%s/infiniband_verbs/%s", d->parent,
		d->uverbs);
}

void rpwi_tree_open(struct rpwi_tree *t)
{
	if (t->open)
		return;
	*t = (struct rpwi_tree){.open = true};
	int n = rpwi_netdev_map(&t->nets, &t->nets_bytes, NULL);
	if (n <= 0)
		return;
	t->devs_bytes = (size_t)n * sizeof(*t->devs);
	void *m = mmap(
		NULL, t->devs_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return;
	t->devs = m;
	t->n = (unsigned)n;
	for (unsigned i = 0; i < t->n; i++)
		dev_fill(&t->devs[i], &t->nets[i]);
}

void rpwi_tree_close(struct rpwi_tree *t)
{
	if (t->devs)
		munmap(t->devs, t->devs_bytes);
	rpwi_netdev_unmap(t->nets, t->nets_bytes);
	*t = (struct rpwi_tree){0};
}
