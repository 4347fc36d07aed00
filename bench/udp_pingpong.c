/* SPDX-License-Identifier: BSD-3-Clause */
/* udp_pingpong.c - half the round trip of a small datagram between two processes that poll their
 * sockets and do nothing else.
 *
 * -s is the datagram's length: 8 for the bare payload, 24 for an 8-byte SEND as it is on the wire
 * (BTH + 8 + ICRC), 40 for a WRITE. -u leaves the sockets unconnected (sendto, recvfrom), as a
 * device that serves any peer has them; connected is the faster and the reference.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "bench.h"

enum { LENGTH_MAX = 1024, DEADLINE_S = 60 };

struct end {
	int fd;
	bool connected;
	struct sockaddr_in peer;
};

struct plan {
	unsigned iterations, warm_up, length;
	bool unconnected;
	int cpu[2];
};

static void send_one(const struct end *e, const void *data, size_t len)
{
	ssize_t n = e->connected ? send(e->fd, data, len, MSG_DONTWAIT)
				 : sendto(e->fd, data, len, MSG_DONTWAIT,
					   (const struct sockaddr *)&e->peer, sizeof e->peer);

	if (n != (ssize_t)len)
		die("send");
}

static void receive_one(const struct end *e, void *data, size_t len)
{
	struct sockaddr_in from;
	socklen_t from_len = sizeof from;
	ssize_t n;

	do
		n = e->connected ? recv(e->fd, data, LENGTH_MAX, MSG_DONTWAIT)
				 : recvfrom(e->fd, data, LENGTH_MAX, MSG_DONTWAIT,
					   (struct sockaddr *)&from, &from_len);
	while (n < 0 && errno == EAGAIN);
	if (n != (ssize_t)len)
		die("recv");
}

static void answer(const struct end *e, const struct plan *p)
{
	uint8_t data[LENGTH_MAX];

	for (unsigned i = 0; i < p->warm_up + p->iterations; i++) {
		receive_one(e, data, p->length);
		send_one(e, data, p->length);
	}
}

static void ask(const struct end *e, const struct plan *p, uint64_t *round_ns)
{
	uint8_t out[LENGTH_MAX] = {0}, in[LENGTH_MAX];
	uint64_t before = now_ns();

	for (unsigned i = 0; i < p->warm_up + p->iterations; i++) {
		uint64_t after;

		memcpy(out, &i, sizeof i);
		send_one(e, out, p->length);
		receive_one(e, in, p->length);
		if (memcmp(out, in, p->length)) {
			fprintf(stderr, "udp_pingpong: the answer is not what was sent\n");
			exit(1);
		}
		after = now_ns();
		if (i >= p->warm_up)
			round_ns[i - p->warm_up] = after - before;
		before = after; /* back to back, as perftest counts: the time between two sends */
	}
}

static void open_ends(struct end ends[2], bool connected)
{
	struct sockaddr_in self = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof self;

	for (int i = 0; i < 2; i++) {
		ends[i].connected = connected;
		ends[i].fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (ends[i].fd < 0 || bind(ends[i].fd, (struct sockaddr *)&self, sizeof self) < 0)
			die("socket");
		if (getsockname(ends[i].fd, (struct sockaddr *)&ends[1 - i].peer, &len) < 0)
			die("getsockname");
	}
	for (int i = 0; connected && i < 2; i++)
		if (connect(ends[i].fd, (struct sockaddr *)&ends[i].peer, sizeof self) < 0)
			die("connect");
}

static void parse(int argc, char **argv, struct plan *p)
{
	static const char usage[] =
		"[-n iterations] [-s datagram bytes] [-u: unconnected] [-c asking "
		"core,answering core]";

	*p = (struct plan){.iterations = 20000, .length = 8, .cpu = {-1, -1}};
	const struct flag flags[] = {{'n', NUMBER, &p->iterations}, {'s', NUMBER, &p->length},
		{'u', FLAG, &p->unconnected}, {'c', CPUS, p->cpu}, {0}};
	take_flags(argc, argv, flags, usage);
	need_usage(
		p->iterations && p->length >= sizeof(unsigned) && p->length <= LENGTH_MAX, usage);
	p->warm_up = p->iterations / 10;
}

int main(int argc, char **argv)
{
	struct end ends[2];
	struct plan p;

	parse(argc, argv, &p);
	open_ends(ends, !p.unconnected);
	uint64_t *round_ns = calloc(p.iterations, sizeof *round_ns);
	if (!round_ns)
		die("calloc");
	pid_t other = child(p.cpu[1]);
	alarm(DEADLINE_S);
	if (!other) {
		answer(&ends[1], &p);
		_exit(0);
	}
	pin(p.cpu[0]);
	ask(&ends[0], &p, round_ns);
	join_child(other);
	qsort(round_ns, p.iterations, sizeof *round_ns, compare_u64);
	printf("{\"name\": \"udp_pingpong\", \"datagram_bytes\": %u, \"connected\": %s, "
	       "\"iterations\": %u, \"median_us\": %.3f, \"p99_us\": %.3f}\n",
		p.length, p.unconnected ? "false" : "true", p.iterations,
		(double)round_ns[p.iterations / 2] / 2000.0,
		(double)round_ns[(uint64_t)p.iterations * 99 / 100] / 2000.0);
	free(round_ns);
	return 0;
}
