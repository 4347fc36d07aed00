/* doctor_probe.c - does a datagram of a size get to the other side, and one back? With DF set, as RoCE needs it: a packet that does not fit is lost, not cut.
 *
 * A probe has the nonce and then a kind. To a probe of kind 'p' the answer is a short one ('s') and one of the same size ('f'): so it is known which way is too narrow. */
#include "cli/doctor.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HEAD_BYTES = DOCTOR_NONCE_BYTES + 1 + 2, LARGEST = 9000, TRIES = 3, WAIT_MS = 300, ROCE_HEADERS = 80 };

int doctor_echo_open(unsigned port, unsigned *got)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int both = 0, discover = IPV6_PMTUDISC_PROBE, discover4 = IP_PMTUDISC_PROBE, fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof(a);

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both));
	setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof(discover));
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover4, sizeof(discover4));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a))) {
		a.sin6_port = 0;
		if (bind(fd, (struct sockaddr *)&a, sizeof(a))) {
			int err = errno;
			close(fd);
			return -err;
		}
	}
	getsockname(fd, (struct sockaddr *)&a, &len);
	*got = ntohs(a.sin6_port);
	return fd;
}

void doctor_echo(int fd, const uint8_t nonce[DOCTOR_NONCE_BYTES])
{
	uint8_t bytes[LARGEST];
	struct sockaddr_in6 from;
	socklen_t len = sizeof(from);

	for (int i = 0; i < 64; i++, len = sizeof(from)) {
		ssize_t n = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &len);
		if (n < 0)
			return;
		if (n < HEAD_BYTES || memcmp(bytes, nonce, DOCTOR_NONCE_BYTES) != 0 || bytes[DOCTOR_NONCE_BYTES] != 'p')
			continue;
		bytes[DOCTOR_NONCE_BYTES] = 's';
		sendto(fd, bytes, HEAD_BYTES, 0, (struct sockaddr *)&from, len);
		bytes[DOCTOR_NONCE_BYTES] = 'f';
		sendto(fd, bytes, (size_t)n, 0, (struct sockaddr *)&from, len);
	}
}

struct way {
	bool there, back;
};

/* Several times, since datagrams may be lost for other reasons. */
static struct way try_size(int fd, const uint8_t *nonce, size_t size)
{
	uint8_t out[LARGEST] = {0}, in[LARGEST];
	struct way w = {false, false};

	memcpy(out, nonce, DOCTOR_NONCE_BYTES);
	out[DOCTOR_NONCE_BYTES] = 'p';
	rpwi_put_be16(out + DOCTOR_NONCE_BYTES + 1, (uint16_t)size);
	for (int i = 0; i < TRIES && !w.back; i++) {
		if (send(fd, out, size, 0) < 0 && errno == EMSGSIZE)
			return w;
		uint64_t until_ns = rpwi_now_ns() + WAIT_MS * RPWI_NS_PER_MS, now;
		while (!w.back && (now = rpwi_now_ns()) < until_ns) {
			struct pollfd p = {.fd = fd, .events = POLLIN};
			if (poll(&p, 1, (int)((until_ns - now) / RPWI_NS_PER_MS) + 1) < 1)
				break;
			ssize_t n = recv(fd, in, sizeof(in), MSG_DONTWAIT);
			if (n < HEAD_BYTES || memcmp(in, nonce, DOCTOR_NONCE_BYTES) != 0 || rpwi_get_be16(in + DOCTOR_NONCE_BYTES + 1) != size)
				continue;
			w.there = true;
			w.back |= in[DOCTOR_NONCE_BYTES] == 'f' && (size_t)n == size;
		}
	}
	return w;
}

static int open_to(const char *host, unsigned port, unsigned *headers)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
	int discover = IP_PMTUDISC_DO, discover6 = IPV6_PMTUDISC_DO;
	char number[16];

	snprintf(number, sizeof(number), "%u", port);
	if (getaddrinfo(host, number, &hints, &list))
		return -EHOSTUNREACH;
	int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	*headers = list->ai_family == AF_INET6 ? 48 : 28;
	if (fd >= 0) {
		if (list->ai_family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover6, sizeof(discover6));
		else
			setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover));
		if (connect(fd, list->ai_addr, list->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
	}
	int err = fd < 0 ? -errno : fd;
	freeaddrinfo(list);
	return err;
}

static void judge_mtu(struct doctor_report *r, int fd, const uint8_t *nonce, unsigned headers)
{
	int mtu = 0;
	socklen_t len = sizeof(mtu);
	unsigned roce = 4096;

	if (getsockopt(fd, headers == 48 ? IPPROTO_IPV6 : IPPROTO_IP, headers == 48 ? IPV6_MTU : IP_MTU, &mtu, &len) || mtu < 576)
		mtu = 1280;
	mtu = RPWI_MIN(mtu, LARGEST);
	while (roce > 256 && roce + ROCE_HEADERS > (unsigned)mtu)
		roce /= 2;
	struct way w = try_size(fd, nonce, (size_t)mtu - headers);
	if (w.there && w.back) {
		doctor_add(r, DOCTOR_OK, "MTU", NULL, "packets of %d bytes arrive both ways: RoCE can use an MTU of %u", mtu, roce);
		return;
	}
	doctor_add(r, DOCTOR_FAIL, "MTU",
		"set the interfaces of both sides to what every link between them carries (`ip link set ... mtu N`), jumbo frames in the switches too",
		"packets of %d bytes, which this side's route takes, do not arrive %s: larger messages hang", mtu, w.there ? "on the way back" : "at the peer");
}

void doctor_probe(struct doctor_report *r, const char *host, unsigned port, const uint8_t nonce[DOCTOR_NONCE_BYTES])
{
	unsigned headers;
	int fd = open_to(host, port, &headers);
	char what[64];

	snprintf(what, sizeof(what), "UDP port %u", port);
	if (fd < 0) {
		doctor_add(r, DOCTOR_FAIL, what, "check the route to it", "no socket to %s: %s", host, strerror(-fd));
		return;
	}
	struct way w = try_size(fd, nonce, 64);
	if (!w.back)
		doctor_add(r, DOCTOR_FAIL, what, "let UDP port 4791 pass in the firewalls of both sides, and between them",
			"a small datagram got no answer from %s", host);
	else
		doctor_add(r, DOCTOR_OK, what, NULL, "reachable at %s%s", host,
			port == 4791 ? "" : " (4791 is in use there, so another one was tried in its place)");
	if (w.back)
		judge_mtu(r, fd, nonce, headers);
	close(fd);
}
