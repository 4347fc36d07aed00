/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_half.h - both sides of tran_tcp in one process, for the tests of what is special to it; or
 * one side, and a bare socket that knows the nonce. */
#ifndef TESTS_TRAN_TCP_HALF_H
#define TESTS_TRAN_TCP_HALF_H

#include "lib/test.h"
#include "pair.h"
#include "tran/tcp/tcp_priv.h"

enum { DEADLINE_S = 60, LARGE = 3 << 20 };

struct op {
	bool done;
	int status;
};
struct half {
	struct tran *t;
	struct tran_ep *ep;
	bool ready, room;
	unsigned failures, frames;
	int status;
	char why[300];
	uint64_t seed;
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t handle_len;
};
extern struct half side[2]; /* 0 connects, 1 listens */
/* of long frames: where the next one belongs, how often that was asked, how many came, where the
 * last one was */
extern uint8_t *long_place;
extern unsigned long_asked, long_came;
extern const uint8_t *long_body;

#define UNTIL(x) \
	do { \
		uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S; \
		while (!(x)) { \
			progress(); \
			if (rpwi_now_ns() > end_ns) \
				fail_msg("never: %s", #x); \
		} \
	} while (0)

size_t nth_len(unsigned n);
void *mapped(size_t len);
void progress(void);
struct tcp *tcp(int i);
struct tcp_ep *ep(int i);
void make(int i);
void start(int i, unsigned timeout_ms);
void connect_both(void);
void close_both(void);
int setup(void **state);
int teardown(void **state);
bool send_nth(int from, unsigned n); /* fill_nth, then send_filled */
void fill_nth(int from, unsigned n);
bool send_filled(int from, unsigned n);
int bare_connect(uint16_t port);
bool was_closed(int fd);
void send_header(int fd, struct tcp_header h, const void *more, size_t more_len);
struct tcp_header hear_header(int fd);
void say_attach(int fd, int to, uint32_t claim);
int bare_peer(void);

#endif
