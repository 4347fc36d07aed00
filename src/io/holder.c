/* SPDX-License-Identifier: BSD-3-Clause */
/* holder.c - who has UDP port 4791, from /proc/net/udp{,6} (proc(5)) and the descriptors of the
 * processes that we may look at. Reads only. */
#include "io/io_priv.h"
#include "base/lock.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct udp_entry {
	uint8_t bytes[16];
	unsigned words; /* 1: IPv4, 4: IPv6 */
	unsigned port;
	uid_t uid;
	unsigned long inode;
};

/* "  12: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711
 *    ...": address words as the CPU has them. */
static bool parse_line(const char *line, struct udp_entry *e)
{
	char addr[33];
	unsigned uid;
	if (sscanf(line,
		    " %*d: %32[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %*x %*x:%*x %*x:%*x %*x %u %*d %lu",
		    addr, &e->port, &uid, &e->inode) != 4)
		return false;
	size_t digits = strlen(addr);
	if (digits != 8 && digits != 32)
		return false;
	e->uid = uid;
	e->words = (unsigned)digits / 8;
	memset(e->bytes, 0, sizeof(e->bytes));
	for (unsigned i = 0; i < e->words; i++) {
		char word[9] = {0};
		memcpy(word, addr + i * 8, 8);
		uint32_t v = (uint32_t)strtoul(word, NULL, 16);
		memcpy(e->bytes + i * 4, &v, 4);
	}
	return true;
}

static bool is_wildcard(const struct udp_entry *e)
{
	static const uint8_t zero[16];
	return !memcmp(e->bytes, zero, 16);
}

static void note(const struct rpwi_addr *a, const struct udp_entry *e, struct io_holder *h)
{
	if (e->port != RPWI_UDP_PORT)
		return;
	bool same = e->words == (a->family == 4 ? 1 : 4) && !memcmp(e->bytes, a->bytes, 16);
	if (same)
		h->sockets++;
	else if (is_wildcard(e))
		h->wildcard = true;
	else
		return;
	if (same || !h->sockets) {
		h->uid = e->uid;
		h->inode = e->inode;
	}
}

static int scan(const char *path, const struct rpwi_addr *a, struct io_holder *h)
{
	char line[512];
	struct udp_entry e;
	FILE *f = fopen(path, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f))
		if (parse_line(line, &e))
			note(a, &e, h);
	fclose(f);
	return 0;
}

int rpwi_holder_find(const struct rpwi_addr *a, struct io_holder *h)
{
	rpwi_shield();
	memset(h, 0, sizeof(*h));
	/* A socket bound to [::] may hold the IPv4 port too. */
	int rc = scan("/proc/net/udp", a, h), rc6 = scan("/proc/net/udp6", a, h);
	return a->family == 4 ? rc : rc6;
}

bool rpwi_holder_has_socket(const char *pid, unsigned long inode)
{
	char path[288], want[48], got[48];
	bool found = false;
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	int want_len = snprintf(want, sizeof(want), "socket:[%lu]", inode);
	DIR *d = opendir(path);
	for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, got, sizeof(got));
		found = n == want_len && !memcmp(want, got, (size_t)n);
	}
	if (d)
		closedir(d);
	return found;
}

/* From /proc/net/unix, which lists the abstract names of this network namespace to any user; whose
 * they are, their listeners' connections tell. */
bool rpwi_holder_find_user(uid_t uid, struct rpwi_who *who)
{
	rpwi_shield();
	enum { LOOKED_AT_MAX = 1024 };
	char line[512];
	bool found = false;
	unsigned looked_at = 0;
	FILE *f = fopen("/proc/net/unix", "re");
	while (f && !found && looked_at < LOOKED_AT_MAX && fgets(line, sizeof(line), f)) {
		char *at = strstr(line, " @ropeway/slot/");
		if (!at || !strstr(line, " 00010000 "))
			continue;
		at[strcspn(at, "\n")] = 0;
		looked_at++;
		int fd = rpwi_name_connect(at + 2, who);
		found = fd >= 0 && who->uid == uid;
		if (fd >= 0)
			close(fd);
	}
	if (f)
		fclose(f);
	return found;
}

/* "name (pid 4711)" of a process that has the socket open; false when none is visible to us. */
static bool find_process(unsigned long inode, char *text, size_t len)
{
	char path[288], comm[32] = "?";
	bool found = false;
	DIR *d = inode ? opendir("/proc") : NULL;
	for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' ||
			!rpwi_holder_has_socket(e->d_name, inode))
			continue;
		found = true;
		snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
		FILE *f = fopen(path, "re");
		if (f && fgets(comm, sizeof(comm), f))
			comm[strcspn(comm, "\n")] = 0;
		if (f)
			fclose(f);
		snprintf(text, len, "%s (pid %.16s)", comm, e->d_name);
	}
	if (d)
		closedir(d);
	return found;
}

#define OWN_NAMESPACE "a network namespace of your own (`unshare -rn`, then `ip link set lo up`)"

void rpwi_holder_explain(const struct rpwi_addr *a, char *why, size_t why_len)
{
	rpwi_shield();
	struct io_holder h;
	struct rpwi_who ropeway;
	char addr[IO_ADDR_TEXT], program[64], text[RPWI_WHO_TEXT];
	rpwi_addr_text(a, addr);
	if (rpwi_holder_find(a, &h) || (!h.sockets && !h.wildcard))
		snprintf(why, why_len,
			"UDP port %d of %s is in use, and /proc/net does not show by whom: see `ss "
			"-ulnp`",
			RPWI_UDP_PORT, addr);
	else if (h.sockets && !rpwi_who_is_us(h.uid) && rpwi_holder_find_user(h.uid, &ropeway))
		snprintf(why, why_len,
			"UDP port %d of %s is held by another user's ropeway (%s), and one user's "
			"packets do not go through another user's process: use " OWN_NAMESPACE
			", or, if that user may read and change your packets, set "
			"ROPEWAY_SHARE_PORT=1",
			RPWI_UDP_PORT, addr, rpwi_who_text(&ropeway, text));
	else if (find_process(h.inode, program, sizeof(program)))
		snprintf(why, why_len,
			"UDP port %d of %s is held by %s of user %u, which is not ropeway: end it, "
			"or use " OWN_NAMESPACE,
			RPWI_UDP_PORT, addr, program, h.uid);
	else if (!h.uid && !access("/sys/module/rdma_rxe", F_OK))
		snprintf(why, why_len,
			"UDP port %d of %s is held by the kernel's rdma_rxe: unload it (`rmmod "
			"rdma_rxe`), or use its device, or another network namespace",
			RPWI_UDP_PORT, addr);
	else
		snprintf(why, why_len,
			"UDP port %d of %s is held by a socket of user %u (inode %lu) that is not "
			"ropeway's: see `ss -ulnp` as root, or use " OWN_NAMESPACE,
			RPWI_UDP_PORT, addr, h.uid, h.inode);
}
