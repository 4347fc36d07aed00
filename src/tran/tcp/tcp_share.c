/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_share.c - what all of a transport share: buffers, random numbers, the next deadline. It knows
 * no endpoint and no stream, and calls no other file of tran_tcp. It takes no lock: a transport is
 * used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <sys/mman.h>
#include <sys/random.h>

/* Mapped, not malloc'ed: memory not kept goes back to the system at once. */
uint8_t *tcp_buffer_get(struct tcp *t)
{
	if (t->buffer_count)
		return t->buffer[--t->buffer_count];
	void *b = mmap(
		NULL, TCP_BUFFER_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return b == MAP_FAILED ? NULL : b;
}

void tcp_buffer_put(struct tcp *t, uint8_t *b)
{
	if (b && t->buffer_count < TCP_BUFFERS_KEPT)
		t->buffer[t->buffer_count++] = b;
	else if (b)
		munmap(b, TCP_BUFFER_LEN);
}

uint64_t tcp_random(struct tcp *t)
{
	/* at most 256 bytes come whole */
	while (!t->random_left)
		if (getrandom(t->random, sizeof t->random, 0) == (ssize_t)sizeof t->random)
			t->random_left = RPWI_ARRAY_LEN(t->random);
	return t->random[--t->random_left];
}

void tcp_deadline_lower(struct tcp *t, uint64_t ns)
{
	t->deadline_ns = RPWI_MIN(t->deadline_ns, ns);
}
