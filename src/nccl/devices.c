/* SPDX-License-Identifier: BSD-3-Clause */
/* devices.c - what NCCL sees as devices: one for each network interface that can be used, with the
 * RDMA devices that serve it; and virtual ones, several used as one. Found once. */
#include "nccl/plugin.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPEED_UNKNOWN = 10000, LIST_MAX = 32, GIDS_MAX = 256 };

/* ---- NCCL's lists: "eth,ib0", "=eth0", "^docker,lo"; a port after a colon ---- */

struct pattern {
	bool exclude, exact;
	int n;
	struct {
		char name[64];
		int port; /* -1: any */
	} entry[LIST_MAX];
};

static void pattern_parse(struct pattern *p, const char *text)
{
	memset(p, 0, sizeof(*p));
	for (; *text == '^' || *text == '='; text++) {
		p->exclude |= *text == '^';
		p->exact |= *text == '=';
	}
	while (*text && p->n < LIST_MAX) {
		size_t len = strcspn(text, ","), name = strcspn(text, ":,");
		snprintf(p->entry[p->n].name, sizeof(p->entry[0].name), "%.*s",
			(int)RPWI_MIN(name, (size_t)63), text);
		p->entry[p->n].port = text[name] == ':' ? atoi(text + name + 1) : -1;
		p->n += name > 0;
		text += len + (text[len] == ',');
	}
}

static bool pattern_has(const struct pattern *p, const char *name, int port)
{
	bool found = false;
	for (int i = 0; i < p->n && !found; i++) {
		const char *want = p->entry[i].name;
		bool same = p->exact ? !strcmp(name, want) : !strncmp(name, want, strlen(want));
		found = same && (p->entry[i].port < 0 || port < 0 || port == p->entry[i].port);
	}
	return found != p->exclude;
}

/* ---- the table ---- */

static struct {
	pthread_mutex_t lock;
	bool found;
	_Atomic int n;
	int real;
	struct plugin_device device[PLUGIN_DEVICES_MAX];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int read_int(const char *path)
{
	int v = -1;
	FILE *f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &v) != 1)
		v = -1;
	fclose(f);
	return v;
}

/* ---- RDMA devices: those of this interface; those that NCCL_IB_HCA names, if the interface has
 * none (an Ethernet interface to find each other, InfiniBand for the data); or ropeway's software
 * device ---- */

/* Does one of the port's addresses belong to the interface? RoCE:
 * /sys/class/infiniband/DEV/ports/P/gid_attrs/ndevs/I. */
static bool port_serves(const char *rdma, const char *port, const char *ifname)
{
	char path[PATH_MAX], line[64];
	bool serves = false;
	for (int i = 0; i < GIDS_MAX && !serves; i++) {
		snprintf(path, sizeof(path),
			"/sys/class/infiniband/%.64s/ports/%.8s/gid_attrs/ndevs/%d", rdma, port, i);
		FILE *f = fopen(path, "re");
		if (!f)
			break;
		if (fscanf(f, "%63s", line) == 1) /* a GID that is not in use cannot be read */
			serves = !strcmp(line, ifname);
		fclose(f);
	}
	return serves;
}

/* Mbit/s of the device's allowed ports; 0: none of them serves the interface (NULL: any). "100
 * Gb/sec (4X EDR)" */
static int rdma_serves(const char *rdma, const char *ifname, const struct pattern *hca)
{
	char path[PATH_MAX];
	int speed = 0;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/device/net/%.32s", rdma,
		ifname ? ifname : "");
	bool of_nic = ifname && !access(path, F_OK);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/ports", rdma);
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.' || (hca->n && !pattern_has(hca, rdma, atoi(e->d_name))) ||
			(ifname && !of_nic && !port_serves(rdma, e->d_name, ifname)))
			continue;
		snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/ports/%.8s/rate", rdma,
			e->d_name);
		speed += RPWI_MAX(read_int(path), 1) * 1000;
	}
	if (d)
		closedir(d);
	return speed;
}

static void rdma_add(struct plugin_device *dev, const char *ifname, const struct pattern *hca)
{
	int speed = 0;
	DIR *d = opendir("/sys/class/infiniband");
	for (struct dirent *e; d && (e = readdir(d));) {
		size_t at = strlen(dev->rdma);
		int own = e->d_name[0] == '.' ? 0 : rdma_serves(e->d_name, ifname, hca);
		if (own && at + strlen(e->d_name) + 2 < sizeof(dev->rdma))
			snprintf(dev->rdma + at, sizeof(dev->rdma) - at, "%s%s", at ? "," : "",
				e->d_name);
		speed += own;
	}
	if (d)
		closedir(d);
	dev->speed = RPWI_MAX(dev->speed, speed);
}

static void rdma_find(struct plugin_device *dev, const char *ifname)
{
	const char *list = getenv("NCCL_IB_HCA"), *disable = getenv("NCCL_IB_DISABLE");
	char software[48];
	struct pattern hca;
	pattern_parse(&hca, list ? list : "");
	snprintf(software, sizeof(software), "rpw_%.40s", ifname);
	dev->no_rdma = disable && *disable && strcmp(disable, "0") != 0;
	if (dev->no_rdma)
		return;
	rdma_add(dev, ifname, &hca);
	if (*dev->rdma || !hca.n)
		return;
	rdma_add(dev, NULL, &hca);
	dev->no_rdma = !*dev->rdma && !pattern_has(&hca, software, 1);
	if (!*dev->rdma && !dev->no_rdma)
		snprintf(dev->rdma, sizeof(dev->rdma), "%s", software);
}

static void device_fill(struct plugin_device *d, int index, const struct ifaddrs *a)
{
	char path[PATH_MAX];
	snprintf(d->name, sizeof(d->name), "%s", a->ifa_name);
	d->v6 = a->ifa_addr->sa_family == AF_INET6;
	d->loopback = a->ifa_flags & IFF_LOOPBACK;
	const void *addr =
		d->v6 ? (const void *)&((const struct sockaddr_in6 *)a->ifa_addr)->sin6_addr
		      : &((const struct sockaddr_in *)a->ifa_addr)->sin_addr;
	inet_ntop(a->ifa_addr->sa_family, addr, d->address, sizeof(d->address));
	snprintf(path, sizeof(path), "/sys/class/net/%.32s/device", a->ifa_name);
	d->pci_path = realpath(path, NULL);
	snprintf(path, sizeof(path), "/sys/class/net/%.32s/speed", a->ifa_name);
	d->speed = read_int(path);
	if (d->speed <= 0)
		d->speed = SPEED_UNKNOWN;
	d->guid = (uint64_t)if_nametoindex(a->ifa_name) << 8 | (unsigned)index;
	rdma_find(d, a->ifa_name);
	d->parts = (struct nccl_net_vdevice_v12){.ndevs = 1, .devs = {index}};
}

static bool known(const char *ifname)
{
	for (int i = 0; i < table.n; i++)
		if (!strcmp(table.device[i].name, ifname))
			return true;
	return false;
}

/* IPv4 is taken first where no family is asked for; link-local IPv6 never: the peer cannot know the
 * scope. */
static bool address_good(const struct ifaddrs *a, int family)
{
	if (!a->ifa_addr || a->ifa_addr->sa_family != family || !(a->ifa_flags & IFF_UP) ||
		!(a->ifa_flags & IFF_RUNNING))
		return false;
	return family == AF_INET ||
	       !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a->ifa_addr)->sin6_addr);
}

static void find_matching(const struct ifaddrs *all, const char *list)
{
	static const int both[] = {AF_INET, AF_INET6};
	const char *wanted = getenv("NCCL_SOCKET_FAMILY");
	struct pattern p;
	pattern_parse(&p, list);
	for (int k = 0; k < 2; k++) {
		if (wanted && ((!strcmp(wanted, "AF_INET") && both[k] != AF_INET) ||
				      (!strcmp(wanted, "AF_INET6") && both[k] != AF_INET6)))
			continue;
		for (const struct ifaddrs *a = all; a && table.n < PLUGIN_DEVICES_MAX / 2;
			a = a->ifa_next) {
			if (!address_good(a, both[k]) || !pattern_has(&p, a->ifa_name, -1) ||
				known(a->ifa_name))
				continue;
			device_fill(&table.device[table.n], table.n, a);
			table.n++;
		}
	}
}

/* In NCCL's order of preference; the requested one is taken, or nothing. */
static void find_all(void)
{
	static const char *const choices[] = {"^docker,lo,virbr", "docker", "lo", "virbr"};
	const char *asked = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all = NULL;
	if (getifaddrs(&all)) {
		plugin_warn("the network interfaces cannot be listed");
		return;
	}
	if (asked && *asked)
		find_matching(all, asked);
	for (size_t i = 0; !(asked && *asked) && i < RPWI_ARRAY_LEN(choices) && !table.n; i++)
		find_matching(all, choices[i]);
	freeifaddrs(all);
	if (!table.n && asked && *asked)
		plugin_warn("no network interface can be used (NCCL_SOCKET_IFNAME=%s): one that is "
			    "up and has an address is needed",
			asked);
	else if (!table.n)
		plugin_warn("no network interface can be used: one that is up and has an address "
			    "is needed");
}

int plugin_devices(void)
{
	pthread_mutex_lock(&table.lock);
	if (!table.found)
		find_all();
	if (!table.found)
		table.real = table.n;
	table.found = true;
	pthread_mutex_unlock(&table.lock);
	return table.n;
}

const struct plugin_device *plugin_device(int dev)
{
	return dev >= 0 && dev < plugin_devices() ? &table.device[dev] : NULL;
}

/* ---- virtual devices ---- */

static void join(struct plugin_device *v, const struct plugin_device *d, bool first)
{
	size_t at = strlen(v->name), r = strlen(v->rdma);
	snprintf(v->name + at, sizeof(v->name) - at, "%s%s", first ? "" : "+", d->name);
	if (*d->rdma)
		snprintf(v->rdma + r, sizeof(v->rdma) - r, "%s%s", r ? "," : "", d->rdma);
	v->speed += d->speed;
}

int plugin_join(int *dev, int n, const int *devs)
{
	*dev = -1;
	int real = (plugin_devices(), table.real);
	if (n < 1 || n > PLUGIN_VDEVICE_MAX || !devs) {
		plugin_warn("makeVDevice was given %d devices: 1 to %d can be used as one", n,
			PLUGIN_VDEVICE_MAX);
		return NCCL_INVALID_ARGUMENT;
	}
	for (int i = 0; i < n; i++)
		if (devs[i] < 0 || devs[i] >= real) {
			plugin_warn("makeVDevice was given device %d: there are %d, counted from 0",
				devs[i], real);
			return NCCL_INVALID_ARGUMENT;
		}
	pthread_mutex_lock(&table.lock);
	int at = table.n;
	if (at < PLUGIN_DEVICES_MAX) {
		struct plugin_device v = table.device[devs[0]];
		v.name[0] = v.rdma[0] = 0;
		v.speed = 0;
		v.guid |= (uint64_t)(at + 1) << 32;
		v.parts.ndevs = n;
		for (int i = 0; i < n; i++) {
			v.parts.devs[i] = devs[i];
			join(&v, &table.device[devs[i]], i == 0);
		}
		table.device[at] = v;
		*dev = at;
		table.n++;
	}
	pthread_mutex_unlock(&table.lock);
	if (at < PLUGIN_DEVICES_MAX)
		return NCCL_SUCCESS;
	plugin_warn("there are %d devices already, and no room for one more", at);
	return NCCL_SYSTEM_ERROR;
}
