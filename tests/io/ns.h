/* SPDX-License-Identifier: BSD-3-Clause */
/* ns.h - a network namespace of the test's own, with loopback up, made without privilege where the
 * kernel allows it; and small helpers of the io tests. */
#ifndef TESTS_IO_NS_H
#define TESTS_IO_NS_H

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/pattern.h"
#include "lib/test.h"
#include "io/io_priv.h"

static inline bool ns_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* Root keeps its user namespace, so that a test can become another user. Exit 77 (skipped) where
 * none can be made. */
static inline void ns_enter(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];
	if (!unshare(CLONE_NEWNET))
		goto up;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		fprintf(stderr,
			"SKIPPED: no network namespace can be made here (%s): these tests did not "
			"run\n",
			strerror(errno));
		exit(77);
	}
	ns_write("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	ns_write("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	ns_write("/proc/self/gid_map", map);
up:;
	struct ifreq ifr = {.ifr_flags = IFF_UP | IFF_RUNNING};
	strcpy(ifr.ifr_name, "lo");
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr)) {
		fprintf(stderr,
			"SKIPPED: loopback does not come up in a new network namespace (%s)\n",
			strerror(errno));
		exit(77);
	}
	close(fd);
}

static const struct rpwi_addr lo4 = {.family = 4, .bytes = {127, 0, 0, 1}};
static const struct rpwi_addr lo6 = {.family = 6, .bytes = {[15] = 1}};

/* A byte of packet k at offset i of stream `tag`: no two packets alike. */
static inline uint8_t pattern(unsigned tag, unsigned k, size_t i)
{
	return pattern_byte((uint64_t)tag << 32 | k, i);
}

/* One SEND ONLY packet of `len` payload bytes to qpn; the PSN tells which. */
static inline void add_packet(
	struct rpwi_txb *b, uint32_t qpn, uint32_t psn, const void *payload, uint32_t len)
{
	struct rpwi_txpkt *t = &b->pkt[b->npkt++];
	struct rpwi_pkt pkt = {.opcode = RPWI_SVC_RC | RPWI_OP_SEND_ONLY,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = qpn,
		.psn = psn,
		.pad = (uint8_t)((4 - len % 4) % 4),
		.payload_len = len};
	t->hdr_len = (uint16_t)rpwi_pkt_encode(&pkt, t->hdr);
	t->pad = pkt.pad;
	t->payload_len = len;
	t->iov_first = (uint16_t)b->niov;
	t->iov_count = len ? 1 : 0;
	if (len)
		b->iov[b->niov++] = (struct rpwi_iov){payload, len};
}

static inline struct rpwi_av av_to(const struct rpwi_addr *dst, uint8_t hop_limit)
{
	return (struct rpwi_av){.flow = {.src = *dst, .dst = *dst, .dport = RPWI_UDP_PORT},
		.hop_limit = hop_limit,
		.loopback_zone = true};
}

/* Receive, waiting up to a few seconds: how long is never judged, only whether it comes. */
static inline int recv_wait(struct rpwi_port *p, struct rpwi_rx *rx)
{
	for (int i = 0; i < 5000; i++) {
		int rc = rpwi_port_recv(p, rx);
		if (rc)
			return rc;
		if (rpwi_port_deadline(p) <= rpwi_now_ns())
			rpwi_port_timer(p, rpwi_now_ns());
		usleep(1000);
	}
	return 0;
}

#endif
