/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.h - a copy for memory that its owner may look at while it is filled.
 *
 * NCCL's kernels poll flags inside a receive buffer (LL128: the last 8 bytes of each 128-byte line
 * say that the first 120 are there), programs of RDMA WRITE poll the last bytes of a message
 * (ib_write_lat, HERD). A NIC writes a message upwards. memcpy promises no order: glibc's writes
 * the first 64 bytes of a long copy last, and the processor's string instruction, which the
 * kernel's copies use, too, was seen to show a later line before an earlier one.
 */
#ifndef ROPEWAY_COPY_H
#define ROPEWAY_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	RPWI_LINE = 128, /* what is shown as a whole */
	RPWI_STRING_AHEAD = 31,
	RPWI_STRING_MIN = 2048,   /* shorter ones glibc copies otherwise */
	RPWI_COPY_WAY_MORE = 128, /* bytes that the buffer of rpwi_copy_way has more */
};

/* memcpy whose bytes become visible upwards, to every thread and process: whoever sees a byte of an
 * aligned block of 16 sees all that lies before the block; who sees a byte of the last 8 of an
 * aligned line, or of the message, sees all before those 8. 8 aligned bytes appear at once, if all
 * of them are in the message. No byte is written twice. Two calls of one thread are in that order,
 * too, so a message may come in pieces; the pieces of two threads are not, so a line is one
 * thread's. 98 GB/s within the L1 cache where memcpy has 130 to 190, 77 and 115 within the L2; the
 * same as memcpy beyond. 8 bytes take 3 ns. */
void rpwi_copy_up(void *dst, const void *src, size_t n);

/* Short copies, 8 bytes at a time and never wider: most of these bytes were just written, by stores
 * of 8 bytes. A load that straddles two of them has to wait until both are in the cache, which in a
 * ring of shared memory is behind the stores to earlier cells, each of which the other core has:
 * the sender then goes no faster than one such line after the other. Nor does the compiler make a
 * string instruction of it, which takes longer than all else for so few bytes. */
static inline void rpwi_copy_8(uint8_t *d, const uint8_t *s)
{
	uint64_t word;
	__builtin_memcpy(&word, s, 8);
	__asm__("" : "+r"(word)); /* not to be merged into wider ones */
	__builtin_memcpy(d, &word, 8);
}

static inline void rpwi_copy_small(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;
	if (n < 8) {
		for (size_t i = 0; i < n; i++)
			d[i] = s[i];
		return;
	}
	for (size_t i = 0; i + 8 < n; i += 8)
		rpwi_copy_8(d + i, s + i);
	rpwi_copy_8(d + n - 8, s + n - 8);
}

/* The string instruction of AMD's Zen 3 and 4 moves 2 to 3 GB/s instead of 40 to 90 where dst is 1
 * to 31 bytes further into its page than src into its own (glibc bug 30994; measured). glibc's
 * memcpy up to 2.38 uses it, and the kernel's copies do, process_vm_readv and recvmsg among them.
 * What malloc maps begins 16 bytes into a page, so a copy there from aligned memory meets it. */
static inline bool rpwi_copy_is_slow(const void *dst, const void *src, size_t n)
{
	return n >= RPWI_STRING_MIN &&
	       (((uintptr_t)dst - (uintptr_t)src) % 4096) - 1 < (uintptr_t)RPWI_STRING_AHEAD;
}

/* memcpy that does without it there. */
static inline void rpwi_copy(void *dst, const void *src, size_t n)
{
	if (__builtin_expect(rpwi_copy_is_slow(dst, src, n), 0))
		rpwi_copy_up(dst, src, n);
	else
		memcpy(dst, src, n);
}

/* Bytes that pass a buffer on their way from src to dst: where in it they do so quickly, within
 * RPWI_COPY_WAY_MORE of its beginning. */
static inline uint8_t *rpwi_copy_way(uint8_t *buffer, const void *dst, const void *src)
{
	uint8_t *end = buffer + RPWI_COPY_WAY_MORE;
	while (buffer < end && (rpwi_copy_is_slow(buffer, src, RPWI_STRING_MIN) ||
				       rpwi_copy_is_slow(dst, buffer, RPWI_STRING_MIN)))
		buffer += RPWI_COPY_WAY_MORE / 2;
	return buffer;
}

/* Of a piece of n bytes to dst, more to come: as much of it as ends with a whole line, so that
 * another thread or stream may go on behind it. n where it does not reach the end of a line. */
static inline size_t rpwi_whole_lines(const void *dst, size_t n)
{
	size_t past = ((uintptr_t)dst + n) % RPWI_LINE;
	return past < n ? n - past : n;
}

#endif
