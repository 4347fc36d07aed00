/* SPDX-License-Identifier: BSD-3-Clause */
/* stamp_test.c - a capture says that a packet was sent before it can have arrived. The calls that
 * send are this test's own: they send, note the time, and only then return. */
#include "ns.h"

#include <sys/syscall.h>

enum { CALLS_MAX = 64, PACKETS_MAX = 64 };
/* by the wall clock: not later than this the receiver had it */
static uint64_t arrived_ns[CALLS_MAX];
static unsigned calls;

static long noted(long rc)
{
	assert_true(calls < CALLS_MAX);
	arrived_ns[calls++] = rpwi_tap_clock_ns();
	usleep(2000);
	if (rc < 0) {
		errno = (int)-rc;
		return -1;
	}
	return rc;
}

static long sys(long rc) { return rc < 0 ? -errno : rc; }

ssize_t sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *to,
	socklen_t to_len)
{
	return noted(sys(syscall(SYS_sendto, fd, data, len, flags, to, to_len)));
}
ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return noted(sys(syscall(SYS_sendmsg, fd, m, flags)));
}
int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	return (int)noted(sys(syscall(SYS_sendmmsg, fd, m, n, flags)));
}

/* The times of the packets in the capture: enhanced packet blocks of pcapng. */
static unsigned stamps(const char *path, uint64_t *at)
{
	static uint8_t file[1 << 20];
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	size_t len = fread(file, 1, sizeof(file), f), n = 0;
	fclose(f);
	for (size_t b = 0; b + 12 <= len; b += rpwi_get_le32(file + b + 4)) {
		if (rpwi_get_le32(file + b) != 6)
			continue;
		assert_true(n < PACKETS_MAX);
		at[n++] =
			(uint64_t)rpwi_get_le32(file + b + 12) << 32 | rpwi_get_le32(file + b + 16);
	}
	return (unsigned)n;
}

static struct rpwi_txb txb;

/* Sends a batch; as many packets of each call as `per_call` says. */
static void check(struct rpwi_port *p, const char *path, const uint32_t *lens, unsigned n,
	const unsigned *per_call)
{
	static uint8_t mem[PACKETS_MAX * 4096];
	struct rpwi_av av = av_to(&lo4, 1);
	uint64_t at[PACKETS_MAX];
	unsigned sent, before = stamps(path, at), k = before;
	rpwi_txb_reset(&txb);
	txb.av = &av;
	for (unsigned i = 0; i < n; i++)
		add_packet(&txb, 5, i, mem, lens[i]);
	calls = 0;
	assert_int_equal(rpwi_port_send(p, &txb, &sent), 0);
	rpwi_tap_flush();
	assert_int_equal(stamps(path, at), before + n);
	for (unsigned c = 0; c < calls; c++)
		for (unsigned i = 0; i < per_call[c]; i++, k++)
			assert_true(at[k] <= arrived_ns[c]);
	assert_int_equal(k, before + n);
}

static void a_packet_is_stamped_before_it_can_arrive(void **state)
{
	char path[] = "/tmp/ropeway-stamp-XXXXXX", why[256];
	struct rpwi_steer *steer;
	struct rpwi_port *p;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	setenv("ROPEWAY_PCAP", path, 1);
	assert_int_equal(rpwi_steer_open(&steer), 0);
	assert_int_equal(rpwi_port_open(steer, &lo4, false, &p, why, sizeof(why)), 0);
	check(p, path, (uint32_t[]){100}, 1, (unsigned[]){1});
	check(p, path, (uint32_t[]){1000, 1000, 1000, 7}, 4, (unsigned[]){4});
	check(p, path, (uint32_t[]){10, 1000, 1000, 2000}, 4, (unsigned[]){4});
	rpwi_port_close(p);
	/* each packet by itself, in a call of its own */
	setenv("ROPEWAY_FAULT", "drop=0.000001,seed=1", 1);
	assert_int_equal(rpwi_port_open(steer, &lo4, false, &p, why, sizeof(why)), 0);
	check(p, path, (uint32_t[]){100, 200, 300}, 3, (unsigned[]){1, 1, 1});
	rpwi_port_close(p);
	rpwi_steer_close(steer);
	unlink(path);
}

int main(void)
{
	ns_enter();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_is_stamped_before_it_can_arrive)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
