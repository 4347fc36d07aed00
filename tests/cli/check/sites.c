/* SPDX-License-Identifier: BSD-3-Clause */
/* sites.c - a call out of an inlined function, in a function, in main. The test looks the lines up
 * by the words behind them. */
#include "record.h"

static inline __attribute__((always_inline)) void ring_put(void)
{
	record(); /* line of ring_put */
	__asm__ volatile("");
}

__attribute__((noinline)) static int send_loop(int n)
{
	ring_put(); /* line of send_loop */
	return n + 1;
}

int main(int argc, char **argv)
{
	volatile int n = send_loop(argc); /* line of main */
	print_report();
	return n < 0;
}
