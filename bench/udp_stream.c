/* SPDX-License-Identifier: BSD-3-Clause */
/* udp_stream.c - how fast this machine moves UDP from one process to another when the processes do
 * nothing else.
 *
 * One sender, one receiver, connected sockets. Datagrams have the size that a MIDDLE packet of the
 * given MTU has on the wire (BTH + payload + ICRC), sent as GSO batches as large as UDP allows and
 * received with GRO. No CRC, no protocol, no placement: source and destination are one batch long
 * and stay in cache. Only payload bytes are counted.
 *
 * A full socket drops, and dropped bytes were not moved, so the receiver limits the sender: it
 * publishes the bytes it has taken in a shared page, and the sender keeps at most a window of
 * batches beyond that. A shared counter costs one cache line, where an acknowledging datagram would
 * cost a system call on each side and make the reference easier to reach. The first 8 bytes of each
 * batch are its number; the receiver checks them, so a loss is an error, not a figure.
 */
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "bench.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { UDP_BYTES_MAX = 65507, SEGMENTS_MAX = 64, STALL_S = 5 };

struct shared {
	/* written by the receiver, on the wire's count */
	_Alignas(128) _Atomic uint64_t taken_bytes;
	_Alignas(128) _Atomic uint64_t sent_bytes; /* written once by the sender, when it is done */
	_Alignas(128) _Atomic int ready;
	uint64_t payload_bytes, elapsed_ns;
};

struct plan {
	unsigned mtu, segment, batch, window, source;
	uint64_t run_ns;
	bool block;
	int cpu[2];
};

static int open_socket(const struct sockaddr_in *self)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), size = 1 << 30;

	if (fd < 0)
		die("socket");
	/* An ordinary user's limit: rmem_max and wmem_max, not the FORCE variants. */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	if (bind(fd, (const struct sockaddr *)self, sizeof *self) < 0)
		die("bind");
	return fd;
}

static void join(int fd, int other)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;

	if (getsockname(other, (struct sockaddr *)&peer, &len) < 0 ||
		connect(fd, (struct sockaddr *)&peer, len) < 0)
		die("connect");
}

static void send_all(int fd, const struct plan *p, struct shared *sh)
{
	unsigned span = p->source > p->batch ? p->source / p->batch * p->batch : p->batch, at = 0;
	uint64_t limit = (uint64_t)p->window * p->batch, sent = 0, number = 0, end;
	uint8_t *data = malloc(span);

	if (!data)
		die("malloc");
	for (unsigned i = 0; i < span; i++)
		data[i] = (uint8_t)(i * 167 + (i >> 8));
	while (!atomic_load(&sh->ready))
		relax();
	end = now_ns() + p->run_ns;
	while (now_ns() < end) {
		uint64_t waited = 0;

		while (sent - atomic_load_explicit(&sh->taken_bytes, memory_order_acquire) >=
			limit) {
			relax();
			if (!(++waited & 0xfffff) && now_ns() > end + STALL_S * 1000000000ull) {
				fprintf(stderr,
					"udp_stream: the receiver took nothing for %d s: a batch "
					"was lost; try a smaller -w\n",
					STALL_S);
				exit(1);
			}
		}
		memcpy(data + at, &number, sizeof number);
		if (send(fd, data + at, p->batch, 0) != (ssize_t)p->batch)
			die("send");
		number++;
		sent += p->batch;
		at = at + p->batch >= span ? 0 : at + p->batch;
	}
	atomic_store(&sh->sent_bytes, sent);
	free(data);
}

static void check_number(const uint8_t *data, uint64_t *expected)
{
	uint64_t number;

	memcpy(&number, data, sizeof number);
	if (number == *expected) {
		++*expected;
		return;
	}
	fprintf(stderr, "udp_stream: batch %llu arrived where %llu was due\n",
		(unsigned long long)number, (unsigned long long)*expected);
	exit(1);
}

static void receive_all(int fd, const struct plan *p, struct shared *sh)
{
	uint8_t data[1 << 16];
	struct timeval tick = {.tv_usec = 100000};
	uint64_t taken = 0, expected = 0, first_ns = 0, last_ns = 0, first_bytes = 0;
	int flags = p->block ? 0 : MSG_DONTWAIT;

	memset(data, 1, sizeof data);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof tick) < 0)
		die("SO_RCVTIMEO");
	atomic_store(&sh->ready, 1);
	for (;;) {
		ssize_t n = recv(fd, data, sizeof data, flags);

		if (n < 0) {
			uint64_t all = atomic_load(&sh->sent_bytes);

			if (errno != EAGAIN)
				die("recv");
			if (all && taken == all)
				break;
			relax();
			continue;
		}
		/* A link may split or merge batches; loopback hands each over whole, and there the
		 * number is checked. */
		if ((uint64_t)n == p->batch && taken % p->batch == 0)
			check_number(data, &expected);
		taken += (uint64_t)n;
		atomic_store_explicit(&sh->taken_bytes, taken, memory_order_release);
		last_ns = now_ns();
		if (!first_ns) {
			first_ns = last_ns;
			first_bytes = taken;
		}
	}
	sh->payload_bytes = (taken - first_bytes) / p->segment * p->mtu;
	sh->elapsed_ns = last_ns - first_ns;
}

static void parse(int argc, char **argv, struct plan *p)
{
	static const char usage[] =
		"[-m mtu] [-t seconds] [-w batches in flight] [-s source bytes] "
		"[-c sender core,receiver core] [-B: block, do not poll]";

	*p = (struct plan){.mtu = 4096, .window = 3, .run_ns = 1000000000ull, .cpu = {-1, -1}};
	const struct flag flags[] = {{'m', NUMBER, &p->mtu}, {'t', DURATION, &p->run_ns},
		{'w', NUMBER, &p->window}, {'s', NUMBER, &p->source}, {'c', CPUS, p->cpu},
		{'B', FLAG, &p->block}, {0}};
	take_flags(argc, argv, flags, usage);
	need_usage(p->mtu >= 48 && p->mtu <= 32768 && p->window && p->run_ns, usage);
	p->segment = p->mtu + WIRE_HEAD_BYTES;
	p->batch = UDP_BYTES_MAX / p->segment < SEGMENTS_MAX ? UDP_BYTES_MAX / p->segment
							     : SEGMENTS_MAX;
	p->batch *= p->segment;
}

int main(int argc, char **argv)
{
	struct sockaddr_in any_port = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int tx, rx, on = 1, segment;
	struct plan p;

	parse(argc, argv, &p);
	struct shared *sh = memory(sizeof *sh, MAP_SHARED);
	tx = open_socket(&any_port);
	rx = open_socket(&any_port);
	join(tx, rx);
	join(rx, tx);
	segment = (int)p.segment;
	if (setsockopt(tx, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) < 0 ||
		setsockopt(rx, IPPROTO_UDP, UDP_GRO, &on, sizeof on) < 0)
		die("UDP_SEGMENT or UDP_GRO");

	pid_t sender = child(p.cpu[0]);
	if (!sender) {
		send_all(tx, &p, sh);
		_exit(0);
	}
	pin(p.cpu[1]);
	signal(SIGALRM, SIG_DFL); /* a sender that died would leave the receiver polling for ever */
	alarm((unsigned)(p.run_ns / 1000000000ull) + 2 * STALL_S);
	receive_all(rx, &p, sh);
	join_child(sender);
	printf("{\"name\": \"udp_stream\", \"mtu\": %u, \"segment_bytes\": %u, \"batch_bytes\": "
	       "%u, \"payload_bytes\": %llu, \"seconds\": %.6f, \"mib_per_s\": "
	       "%.2f}\n",
		p.mtu, p.segment, p.batch, (unsigned long long)sh->payload_bytes,
		(double)sh->elapsed_ns / 1e9,
		(double)sh->payload_bytes / 1048576.0 / ((double)sh->elapsed_ns / 1e9));
	return 0;
}
