/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs.c - the files that the kernel would have for a device: /sys/class/infiniband/rpw_<if>/...,
 * and /dev/infiniband/uverbs_rpw_<if>. No file is stored anywhere; each look-up asks the interfaces
 * as they are now, as sysfs does, and whether or not a device is open.
 */
#include "preload/preload.h"

#include "io/io.h"

#include <endian.h>
#include <rdma/rdma_user_cm.h>
#include <stdio.h>
#include <stdlib.h>

static const char class_dir[] = "/sys/class/infiniband/";
static const char verbs_dir[] = "/sys/class/infiniband_verbs/";
static const char char_dir[] = "/dev/infiniband/";
static const char uverbs_prefix[] = "uverbs_"; /* ibv_device.dev_name is uverbs_<name> */
static const char name_prefix[] = "rpw_";
static const char rdma_cm_dev[] = "/dev/infiniband/rdma_cm";
static const char rdma_cm_abi[] = "/sys/class/misc/rdma_cm/abi_version";

/* What follows a prefix, or NULL. */
RPWI_BARE static const char *after(const char *path, const char *prefix)
{
	while (*prefix && *path == *prefix)
		path++, prefix++;
	return *prefix ? NULL : path;
}

/* The part behind one of the folders, from the device's name on, if that is one of ours by its
 * beginning. */
RPWI_BARE static const char *device_part(const char *path, bool *is_char)
{
	const char *p = after(path, class_dir), *behind;
	*is_char = false;
	if (!p) {
		p = after(path, char_dir);
		*is_char = p != NULL;
		if (!p)
			p = after(path, verbs_dir);
		if (p && (behind = after(p, uverbs_prefix)))
			p = behind;
	}
	return p && after(p, name_prefix) ? p : NULL;
}

RPWI_BARE static bool equal(const char *a, const char *b)
{
	const char *rest = after(a, b);
	return rest && !*rest;
}

static bool disabled(void)
{
	const char *v = getenv("ROPEWAY_DISABLE");
	return v && !strcmp(v, "1");
}

RPWI_BARE bool rpwi_sysfs_maybe(const char *path)
{
	bool is_char;
	if (path[0] != '/' || (path[1] != 's' && path[1] != 'd'))
		return false;
	return device_part(path, &is_char) ||
	       ((equal(path, rdma_cm_dev) || equal(path, rdma_cm_abi)) && !disabled());
}

struct file {
	char *buf;
	size_t len;
};

static int put_done(struct file *f, int n)
{
	if (n < 0 || n >= RPWI_SYSFS_FILE_MAX)
		return -EINVAL;
	f->len = (size_t)n;
	return RPWI_PATH_FILE;
}
#define put(f, ...) put_done((f), snprintf((f)->buf, RPWI_SYSFS_FILE_MAX, __VA_ARGS__))

/* What a file shows is asked with the interface, the file's number (gids/3) and where to put it. */
typedef int show_fn(const struct rpwi_netdev *d, unsigned index, struct file *f);

static uint64_t guid_of(const struct rpwi_netdev *d)
{
	int n = 0;
	uint64_t guid = 0;
	struct ibv_device **list = rpwi_dev_get_list(&n);
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i]->name, d->name))
			guid = be64toh(rpwi_dev_get_guid(list[i]));
	free(list);
	return guid;
}

static int show_guid(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	uint64_t g = guid_of(d);
	return put(f, "%04x:%04x:%04x:%04x\n", (unsigned)(g >> 48), (unsigned)(g >> 32 & 0xffff),
		(unsigned)(g >> 16 & 0xffff), (unsigned)(g & 0xffff));
}

static int show_type(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, "1: CA\n");
}
static int show_desc(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, "ropeway on %s\n", d->ifname);
}
static int show_version(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, "%s\n", ROPEWAY_VERSION);
}
static int show_state(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, d->up ? "4: ACTIVE\n" : "1: DOWN\n");
}
static int show_phys_state(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, d->up ? "5: LinkUp\n" : "3: Disabled\n");
}
static int show_link_layer(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, "Ethernet\n");
}
static int show_zero(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, "0\n");
}
static int show_zero_hex(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return put(f, "0x0\n");
}

static int show_rate(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	unsigned mbps = d->speed_mbps ? d->speed_mbps : 10000;
	return put(
		f, mbps % 1000 ? "%u.%u Gb/sec\n" : "%u Gb/sec\n", mbps / 1000, mbps % 1000 / 100);
}

static int show_pkey(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	return index == 0 ? put(f, "0xffff\n") : -ENOENT;
}

static int show_gid(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	static const uint8_t none[16];
	if (index >= RPWI_GIDS_MAX)
		return -ENOENT;
	const uint8_t *g = index < d->gid_count ? d->gid[index].raw : none;
	uint16_t w[8];
	for (unsigned i = 0; i < 8; i++)
		w[i] = rpwi_get_be16(g + 2 * i);
	return put(f, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x\n", w[0], w[1], w[2], w[3], w[4],
		w[5], w[6], w[7]);
}

/* The kernel's files for an empty GID are there, but reading them fails with EINVAL. */
static int gid_state(const struct rpwi_netdev *d, unsigned index)
{
	static const uint8_t none[16];
	if (index >= RPWI_GIDS_MAX)
		return -ENOENT;
	return index < d->gid_count && memcmp(d->gid[index].raw, none, sizeof(none)) != 0 ? 0
											  : -EINVAL;
}

static int show_gid_type(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	int rc = gid_state(d, index);
	return rc ? rc : put(f, "RoCE v2\n");
}

static int show_gid_ndev(const struct rpwi_netdev *d, unsigned index, struct file *f)
{
	int rc = gid_state(d, index);
	return rc ? rc : put(f, "%s\n", d->ifname);
}

/* A path that ends in '/' stands for the numbered files of that folder. */
static const struct {
	const char *path;
	show_fn *show;
} files[] = {
	{"node_guid", show_guid},
	{"sys_image_guid", show_guid},
	{"node_type", show_type},
	{"node_desc", show_desc},
	{"fw_ver", show_version},
	{"hw_rev", show_zero_hex},
	{"ports/1/state", show_state},
	{"ports/1/phys_state", show_phys_state},
	{"ports/1/link_layer", show_link_layer},
	{"ports/1/rate", show_rate},
	{"ports/1/lid", show_zero_hex},
	{"ports/1/lid_mask_count", show_zero},
	{"ports/1/sm_lid", show_zero_hex},
	{"ports/1/sm_sl", show_zero},
	{"ports/1/pkeys/", show_pkey},
	{"ports/1/gids/", show_gid},
	{"ports/1/gid_attrs/types/", show_gid_type},
	{"ports/1/gid_attrs/ndevs/", show_gid_ndev},
};

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

/* Is `dir`, without its last slash, a folder above some file of the table? */
static bool is_dir(const char *dir)
{
	size_t len = strlen(dir);
	if (!len)
		return true;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(files); i++)
		if (!strncmp(files[i].path, dir, len) && files[i].path[len] == '/')
			return true;
	return false;
}

static int lookup_file(const struct rpwi_netdev *d, const char *rest, struct file *f)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(files); i++) {
		size_t len = strlen(files[i].path);
		bool numbered = files[i].path[len - 1] == '/';
		if (numbered ? strncmp(rest, files[i].path, len) != 0 || number(rest + len) < 0
			     : strcmp(rest, files[i].path) != 0)
			continue;
		return files[i].show(d, numbered ? (unsigned)number(rest + len) : 0, f);
	}
	return is_dir(rest) ? RPWI_PATH_DIR : -ENOENT;
}

/* A program writes such paths with two slashes together or one at the end as it likes. Bounded
 * copy; false if it does not fit. */
static bool squeeze(const char *from, char *to, size_t size)
{
	size_t n = 0;
	for (; *from; from++) {
		if (*from == '/' && (!n || to[n - 1] == '/'))
			continue;
		if (n + 1 >= size)
			return false;
		to[n++] = *from;
	}
	if (n && to[n - 1] == '/')
		n--;
	to[n] = '\0';
	return true;
}

int rpwi_sysfs_lookup(const char *path, char *buf, size_t *len)
{
	char name[sizeof(((struct rpwi_netdev *)0)->name)], rest[64];
	bool is_char;
	const char *p = device_part(path, &is_char);
	if (equal(path, rdma_cm_dev))
		return RPWI_PATH_RDMA_CM;
	if (equal(path, rdma_cm_abi)) {
		struct file f = {.buf = buf};
		int what = put(&f, "%d\n", RDMA_USER_CM_ABI_VERSION);
		*len = f.len;
		return what;
	}
	size_t name_len = p ? strcspn(p, "/") : 0;
	if (!name_len || name_len >= sizeof(name) || !squeeze(p + name_len, rest, sizeof(rest)))
		return -ENOENT;
	memcpy(name, p, name_len);
	name[name_len] = '\0';

	struct rpwi_netdev *list = NULL;
	int rc = -ENOENT, n = rpwi_netdev_list(&list);
	for (int i = 0; i < n; i++) {
		if (strcmp(list[i].name, name) != 0)
			continue;
		struct file f = {.buf = buf};
		if (is_char)
			rc = *rest ? -ENOTDIR : RPWI_PATH_CHARDEV;
		else
			rc = lookup_file(&list[i], rest, &f);
		*len = f.len;
		break;
	}
	free(list);
	return rc;
}
