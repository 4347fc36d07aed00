/* SPDX-License-Identifier: BSD-3-Clause */
/* probe.c - does a datagram of a size get to the other side, and one back? With DF set, as RoCE
 * needs it: a packet that does not fit is lost, not cut.
 *
 * A probe has the nonce and then a kind. To a probe of kind 'p' the answer is a short one ('s') and
 * one of the same size ('f'): so it is known which way is too narrow. */
#include "cli/doctor/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "io/helper.h"

enum { HELPER_WAIT_MS = 100, HELPER_TRIES = RPWI_HELPER_STAYS_MS / HELPER_WAIT_MS + 10 };

enum {
	HEAD_BYTES = DOCTOR_NONCE_BYTES + 1 + 2,
	/* behind the head of a short answer, if the probe was as long: port and address (IPv6, or
	 * mapped) from which it came */
	SEEN_BYTES = 2 + 16,
	HOPS_BEGIN = 64, /* what Linux sends with */
	LARGEST = 9000,
	TRIES = 3,
	TRIES_SEARCHING = 2,
	WAIT_MS = 300,
	ROCE_HEADERS = 80
};

#define PORT_WHAT "UDP port 4791"

int doctor_echo_open(struct doctor_echo *e)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(DOCTOR_ROCE_PORT)};
	int both = 0, discover = IPV6_PMTUDISC_PROBE, discover4 = IP_PMTUDISC_PROBE;
	socklen_t len = sizeof(a);

	if (getrandom(e->nonce, sizeof(e->nonce), 0) != sizeof(e->nonce))
		return -EIO;
	e->fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (e->fd < 0)
		return -errno;
	setsockopt(e->fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both));
	setsockopt(e->fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof(discover));
	setsockopt(e->fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover4, sizeof(discover4));
	int rc = bind(e->fd, (struct sockaddr *)&a, sizeof(a));
	/* The helper of programs that have just ended holds it for some seconds more, and for a
	 * moment after its name has gone. */
	bool held = true;
	for (int i = 0; rc && errno == EADDRINUSE && i < HELPER_TRIES && held; i++) {
		const struct timespec ts = {.tv_nsec = HELPER_WAIT_MS * RPWI_NS_PER_MS};
		held = rpwi_helper_is_there();
		nanosleep(&ts, NULL);
		a.sin6_port = htons(DOCTOR_ROCE_PORT);
		rc = bind(e->fd, (struct sockaddr *)&a, sizeof(a));
	}
	a.sin6_port = 0;
	if ((rc && bind(e->fd, (struct sockaddr *)&a, sizeof(a))) ||
		getsockname(e->fd, (struct sockaddr *)&a, &len)) {
		int err = errno;
		doctor_echo_close(e);
		return -err;
	}
	e->port = ntohs(a.sin6_port);
	return 0;
}

void doctor_echo_close(struct doctor_echo *e)
{
	if (e->fd >= 0)
		close(e->fd);
	e->fd = -1;
}

void doctor_echo_answer(const struct doctor_echo *e)
{
	uint8_t bytes[LARGEST];
	struct sockaddr_in6 from;
	socklen_t len = sizeof(from);

	for (int i = 0; i < 64; i++, len = sizeof(from)) {
		ssize_t n =
			recvfrom(e->fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &len);
		if (n < 0)
			return;
		if (n < HEAD_BYTES || memcmp(bytes, e->nonce, DOCTOR_NONCE_BYTES) != 0 ||
			bytes[DOCTOR_NONCE_BYTES] != 'p')
			continue;
		bytes[DOCTOR_NONCE_BYTES] = 's';
		uint8_t kept[SEEN_BYTES];
		size_t more = n >= HEAD_BYTES + SEEN_BYTES ? SEEN_BYTES : 0;
		memcpy(kept, bytes + HEAD_BYTES, more);
		if (more) {
			memcpy(bytes + HEAD_BYTES, &from.sin6_port, 2);
			memcpy(bytes + HEAD_BYTES + 2, &from.sin6_addr, 16);
		}
		sendto(e->fd, bytes, HEAD_BYTES + more, 0, (struct sockaddr *)&from, len);
		memcpy(bytes + HEAD_BYTES, kept, more);
		bytes[DOCTOR_NONCE_BYTES] = 'f';
		sendto(e->fd, bytes, (size_t)n, 0, (struct sockaddr *)&from, len);
	}
}

struct way {
	bool there, back;
	int refused;               /* errno of what ICMP said, of a short probe; 0: silence */
	char by[INET6_ADDRSTRLEN]; /* who said it; "" not known */
	bool has_seen;
	struct sockaddr_in6 seen; /* where the probe came from, as the other side saw it */
	int hops;                 /* routers that the answer passed; -1 not known */
};

/* The error that waits, and who reports it (ip(7), IP_RECVERR). */
static void hear_error(int fd, struct way *w)
{
	union {
		char room[512];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	if (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		struct sock_extended_err e;
		struct sockaddr_in6 from = {0};
		if (c->cmsg_len < CMSG_LEN(sizeof(e)) ||
			(c->cmsg_type != IP_RECVERR && c->cmsg_type != IPV6_RECVERR))
			continue;
		memcpy(&e, CMSG_DATA(c), sizeof(e));
		memcpy(&from, CMSG_DATA(c) + sizeof(e),
			RPWI_MIN(sizeof(from), c->cmsg_len - CMSG_LEN(sizeof(e))));
		if (e.ee_errno == EMSGSIZE || e.ee_origin == SO_EE_ORIGIN_LOCAL)
			continue;
		w->refused = (int)e.ee_errno;
		if (from.sin6_family == AF_INET)
			inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)&from)->sin_addr, w->by,
				sizeof(w->by));
		else
			inet_ntop(AF_INET6, &from.sin6_addr, w->by, sizeof(w->by));
	}
}

/* An answer, and the routers that it passed. */
static ssize_t take(int fd, uint8_t *in, size_t room, struct way *w)
{
	union {
		char bytes[64];
		struct cmsghdr align;
	} control;
	struct iovec iov = {in, room};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
	if (n < 0) {
		hear_error(fd, w);
		return n;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		int left;
		if (c->cmsg_len < CMSG_LEN(sizeof(left)))
			continue;
		memcpy(&left, CMSG_DATA(c), sizeof(left));
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
			(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT))
			w->hops = left <= HOPS_BEGIN ? HOPS_BEGIN - left : -1;
	}
	return n;
}

static int open_to(const char *host, unsigned port, unsigned *headers)
{
	/* what a socket of one family does not know, it refuses */
	static const struct {
		int level, name, value;
	} wanted[] = {{IPPROTO_IP, IP_RECVERR, 1}, {IPPROTO_IP, IP_RECVTTL, 1},
		{IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO}, {IPPROTO_IPV6, IPV6_RECVERR, 1},
		{IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
		{IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO}};
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
	char number[16];

	snprintf(number, sizeof(number), "%u", port);
	if (getaddrinfo(host, number, &hints, &list))
		return -EHOSTUNREACH;
	int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	*headers = list->ai_family == AF_INET6 ? 48 : 28;
	for (size_t i = 0; fd >= 0 && i < RPWI_ARRAY_LEN(wanted); i++)
		setsockopt(fd, wanted[i].level, wanted[i].name, &wanted[i].value, sizeof(int));
	if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen)) {
		close(fd);
		fd = -1;
	}
	int err = fd < 0 ? -errno : fd;
	freeaddrinfo(list);
	return err;
}

/* An answer to a probe of one of those sizes: k + 1 where all of size[k] came back, else 0. */
static unsigned answer_to(
	const uint8_t *in, size_t got, const size_t *size, unsigned n, struct way *w)
{
	const uint8_t *kind = in + DOCTOR_NONCE_BYTES;
	size_t asked = rpwi_get_be16(kind + 1);
	unsigned k = 0;

	while (k < n && size[k] != asked)
		k++;
	if (k == n)
		return 0;
	w->there = true;
	if (*kind == 's' && got >= HEAD_BYTES + SEEN_BYTES) {
		w->has_seen = true;
		memcpy(&w->seen.sin6_port, in + HEAD_BYTES, 2);
		memcpy(&w->seen.sin6_addr, in + HEAD_BYTES + 2, 16);
	}
	return *kind == 'f' && got == asked ? k + 1 : 0;
}

/* Datagrams of n sizes in ascending order, all asked for at once: how many of them, from the first
 * on, come back whole. Several times, since datagrams may be lost for other reasons. */
static unsigned try_sizes(
	int fd, const uint8_t *nonce, const size_t *size, unsigned n, int tries, struct way *w)
{
	uint8_t out[LARGEST] = {0}, in[LARGEST];
	unsigned best = 0, too_long = 0;

	*w = (struct way){.hops = -1};
	memcpy(out, nonce, DOCTOR_NONCE_BYTES);
	out[DOCTOR_NONCE_BYTES] = 'p';
	for (int i = 0; i < tries && best + too_long < n; i++) {
		too_long = 0; /* for the route, as the kernel knows */
		for (unsigned k = best; k < n; k++) {
			rpwi_put_be16(out + DOCTOR_NONCE_BYTES + 1, (uint16_t)size[k]);
			too_long += send(fd, out, size[k], 0) < 0 && errno == EMSGSIZE;
		}
		uint64_t until_ns = rpwi_now_ns() + WAIT_MS * RPWI_NS_PER_MS, now;
		while (best + too_long < n && (now = rpwi_now_ns()) < until_ns) {
			struct pollfd p = {.fd = fd, .events = POLLIN};
			if (poll(&p, 1, (int)((until_ns - now) / RPWI_NS_PER_MS) + 1) < 1)
				break;
			ssize_t got = take(fd, in, sizeof(in), w);
			if (got < HEAD_BYTES || memcmp(in, nonce, DOCTOR_NONCE_BYTES) != 0)
				continue;
			unsigned whole = answer_to(in, (size_t)got, size, n, w);
			best = RPWI_MAX(best, whole);
		}
	}
	w->back = best == n;
	return best;
}

/* The largest datagrams that arrive both ways, of at least `least` bytes (which do) and fewer than
 * `most` (which do not). */
static size_t largest(int fd, const uint8_t *nonce, size_t least, size_t most)
{
	enum { AT_ONCE = 15 };
	struct way w;

	while (most - least > 1) {
		size_t size[AT_ONCE];
		unsigned n = (unsigned)RPWI_MIN((size_t)AT_ONCE, most - least - 1);
		for (unsigned k = 0; k < n; k++)
			size[k] = least + (most - least) * (k + 1) / (n + 1);
		unsigned best = try_sizes(fd, nonce, size, n, TRIES_SEARCHING, &w);
		most = best < n ? size[best] : most;
		least = best ? size[best - 1] : least;
	}
	return least;
}

/* Of the interface: what its RDMA device goes by. The kernel may know that less passes. */
static unsigned mtu_of(int fd)
{
	unsigned mtu = doctor_interface_mtu(fd);
	return mtu < 576 ? 1280 : (unsigned)RPWI_MIN(mtu, LARGEST);
}

unsigned doctor_route_mtu(const char *host)
{
	unsigned headers, mtu = 0;
	int fd = open_to(host, DOCTOR_ROCE_PORT, &headers);

	if (fd >= 0) {
		mtu = mtu_of(fd);
		close(fd);
	}
	return mtu;
}

/* Both sides agree on an MTU of RoCE that fits the interfaces of both, and its packets have up to
 * 80 bytes more: those have to arrive. If they do and longer ones do not, it is others that may
 * hang. */
static void judge_mtu(struct doctor_report *r, int fd, const struct doctor_echo *there,
	unsigned headers, const char *what)
{
	unsigned mtu = mtu_of(fd), both = there->mtu && there->mtu < mtu ? there->mtu : mtu,
		 roce = 4096;
	char remedy[300];

	while (roce > 256 && roce + ROCE_HEADERS > both)
		roce /= 2;
	struct way w;
	if (try_sizes(fd, there->nonce, &(size_t){mtu - headers}, 1, TRIES, &w)) {
		doctor_add(r, DOCTOR_OK, what, NULL,
			"packets of %u bytes arrive, and their answers: RoCE can use an MTU of %u",
			mtu, roce);
		return;
	}
	unsigned most = headers + (unsigned)largest(fd, there->nonce, 64, mtu - headers);
	bool is_enough = most >= roce + ROCE_HEADERS;
	unsigned fitting = roce;
	while (fitting > 256 && fitting + ROCE_HEADERS > most)
		fitting /= 2;
	snprintf(remedy, sizeof(remedy),
		"one MTU for all interfaces and switches between the two: here `ip link set ... "
		"mtu %u`, or more where it is less; or programs with a path MTU of at most %u "
		"(-m %u; messaging finds it by itself)",
		most, fitting, fitting);
	const char *lost = w.there ? "arrive, but their answers do not" : "do not arrive";
	const char *then = is_enough ? "" : ": larger messages hang";
	doctor_add(r, is_enough ? DOCTOR_WARN : DOCTOR_FAIL, what, remedy,
		"packets of %u bytes, as the interface takes, %s; up to %u they do%s", mtu, lost,
		most, then);
}

void doctor_nat(struct doctor_report *r, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	if (r->nat)
		return;
	r->nat = true;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	doctor_add(r, DOCTOR_FAIL, "NAT",
		"for RDMA give the two hosts addresses that reach each other untranslated: a "
		"route, "
		"or a tunnel (WireGuard, VXLAN). Messaging goes by TCP without",
		"%s: addresses or ports are translated between the two, and no RoCE passes that "
		"(its "
		"checksum covers them)",
		text);
}

static void address_text(const struct in6_addr *a, char out[INET6_ADDRSTRLEN])
{
	if (IN6_IS_ADDR_V4MAPPED(a))
		inet_ntop(AF_INET, a->s6_addr + 12, out, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, a, out, INET6_ADDRSTRLEN);
}

/* Does the other side see our datagrams come from where we send them? */
static void judge_source(struct doctor_report *r, int fd, const struct way *w)
{
	struct sockaddr_in6 own = {0};
	socklen_t len = sizeof(own);
	char here[INET6_ADDRSTRLEN] = "?", there[INET6_ADDRSTRLEN] = "?";

	if (!w->has_seen || getsockname(fd, (struct sockaddr *)&own, &len))
		return;
	if (own.sin6_family == AF_INET) {
		struct in_addr v4 = ((struct sockaddr_in *)(void *)&own)->sin_addr;
		doctor_map(&own.sin6_addr, &v4);
	}
	if (!memcmp(&own.sin6_addr, &w->seen.sin6_addr, 16) && own.sin6_port == w->seen.sin6_port)
		return;
	address_text(&own.sin6_addr, here);
	address_text(&w->seen.sin6_addr, there);
	doctor_nat(r, "a datagram from %s port %u arrives as one from %s port %u", here,
		ntohs(own.sin6_port), there, ntohs(w->seen.sin6_port));
}

static void judge_hops(struct doctor_report *r, const struct way *w, const char *host)
{
	if (w->hops > 0)
		doctor_add(r, DOCTOR_OK, "routers", NULL,
			"%d lie%s between here and %s: packets need a hop limit of %d or more; a "
			"connection has its route's, a datagram that of its address handle",
			w->hops, w->hops == 1 ? "s" : "", host, w->hops + 1);
}

static void judge_port(struct doctor_report *r, const char *host, bool is_roce, const struct way *w,
	const char *what)
{
	bool answered = w->back;
	char remedy[300];

	snprintf(remedy, sizeof(remedy),
		"let UDP port 4791 in at %.64s and pass in the firewalls between (`nft list "
		"ruleset`, security groups of a cloud)",
		host);
	if (is_roce && answered)
		doctor_add(r, DOCTOR_OK, what, NULL, "reachable at %s", host);
	else if (is_roce && w->refused) {
		snprintf(remedy, sizeof(remedy),
			"let UDP port 4791 of %.64s pass at %s (`nft list ruleset` there, security "
			"groups of a cloud)",
			host, *w->by ? w->by : "the host that refuses it");
		doctor_add(r, DOCTOR_FAIL, what, remedy,
			"a datagram to %s is refused%s%s (%s): verbs cannot be used", host,
			*w->by ? " by " : "", w->by, strerror(w->refused));
	} else if (is_roce)
		doctor_add(r, DOCTOR_FAIL, what, remedy,
			"a datagram to %s gets no answer: verbs cannot be used", host);
	else
		doctor_add(r, DOCTOR_WARN, what,
			"if verbs is wanted: `ss -uanp sport = :4791` there says who; end that "
			"program",
			"another program at %s has it", host);
}

void doctor_probe(
	struct doctor_report *r, const char *host, const struct doctor_echo *there, bool back)
{
	const char *port_what = back ? PORT_WHAT " back" : PORT_WHAT;
	const char *mtu_what = back ? "MTU back" : "MTU";
	bool is_roce = there->port == DOCTOR_ROCE_PORT;
	unsigned headers;
	int fd = open_to(host, there->port, &headers);

	if (fd < 0) {
		doctor_add(r, DOCTOR_FAIL, port_what, "check the route to it: `ip route get`",
			"no socket to %s: %s", host, strerror(-fd));
		return;
	}
	struct way w;
	try_sizes(fd, there->nonce, &(size_t){64}, 1, TRIES, &w);
	judge_source(r, fd, &w);
	judge_port(r, host, is_roce, &w, port_what);
	if (!back)
		judge_hops(r, &w, host);
	if (w.back)
		judge_mtu(r, fd, there, headers, mtu_what);
	else
		doctor_add(r, DOCTOR_WARN, mtu_what,
			is_roce ? "as for " PORT_WHAT : "let UDP pass between the two",
			"not known: UDP port %u at %s does not answer", there->port, host);
	close(fd);
}

void doctor_port_is_proven(struct doctor_report *r)
{
	for (unsigned i = 0; i < r->count; i++) {
		struct doctor_verdict *v = &r->verdict[i];
		if (v->side != DOCTOR_BETWEEN || v->level == DOCTOR_OK ||
			strncmp(v->what, PORT_WHAT, strlen(PORT_WHAT)) != 0)
			continue;
		v->level = DOCTOR_OK;
		v->remedy[0] = '\0';
		snprintf(v->text, sizeof(v->text), "a path over verbs uses it");
	}
}
