/* SPDX-License-Identifier: BSD-3-Clause */
/* facts.c - who this process is: the host ID is equal in two processes that see the same kernel,
 * network and processes. */
#include "boot/boot.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot/sha256.h"

/* A boot ID is one of the kernel: two containers on it share it, but neither loopback nor PIDs.
 * What cannot be read is replaced by chance: then no other process counts as being here. */
struct host {
	char boot_id[40];
	uint64_t network_ns, pid_ns;
};

static uint64_t inode(const char *path)
{
	struct stat st;
	return stat(path, &st) ? rpwi_random64() : st.st_ino;
}

static void boot_id(char *out, size_t len)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, len);
	if (fd >= 0)
		close(fd);
	if (n < 36 && getrandom(out, len, GRND_NONBLOCK) < 0)
		snprintf(out, len, "%d %llu", getpid(), (unsigned long long)rpwi_now_ns());
}

void boot_own_facts(struct tran_facts *out)
{
	struct host host = {
		.network_ns = inode("/proc/self/ns/net"), .pid_ns = inode("/proc/self/ns/pid")};
	uint8_t hash[32];
	boot_id(host.boot_id, sizeof(host.boot_id));
	boot_sha256(&host, sizeof(host), hash);
	memset(out, 0, sizeof(*out));
	memcpy(out->host_id, hash, sizeof(out->host_id));
	out->pid = (uint32_t)getpid();
	out->uid = (uint32_t)geteuid();
	if (gethostname(out->hostname, sizeof(out->hostname)) || !out->hostname[0])
		snprintf(out->hostname, sizeof(out->hostname), "unnamed");
	out->hostname[sizeof(out->hostname) - 1] = 0;
}
