/* SPDX-License-Identifier: BSD-3-Clause */
/* sum.c - the checksum of a file, and where its holes are.
 *
 * XXH3-128 of the chunks of FILES_CHUNK bytes: over the number and the checksum of each, and the
 * length at the end. Chunks of zeros are left out: a hole costs nothing, however long, and it does
 * not matter whether zeros are a hole or written. Both sides have the same sum of the same bytes,
 * on any file system.
 */
#include "cli/files/files.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t zeros[64 << 10];

/* The checksum of a chunk of zeros, once it was needed. */
static struct {
	XXH128_hash_t hash;
	bool is_known;
} zero_chunk;

static bool is_of_zeros(const XXH128_hash_t *h)
{
	if (!zero_chunk.is_known) {
		XXH3_state_t *state = XXH3_createState();
		if (!state)
			return false; /* on both sides, or the sums differ: nothing worse */
		XXH3_128bits_reset(state);
		for (size_t at = 0; at < FILES_CHUNK; at += sizeof(zeros))
			XXH3_128bits_update(state, zeros, sizeof(zeros));
		zero_chunk.hash = XXH3_128bits_digest(state);
		XXH3_freeState(state);
		zero_chunk.is_known = true;
	}
	return XXH128_isEqual(*h, zero_chunk.hash);
}

int files_sum_open(struct files_sum *s)
{
	*s = (struct files_sum){
		.all = XXH3_createState(), .chunk = XXH3_createState(), .end = XXH3_createState()};
	if (!s->all || !s->chunk || !s->end) {
		files_sum_close(s);
		return -ENOMEM;
	}
	files_sum_reset(s);
	return 0;
}

void files_sum_reset(struct files_sum *s)
{
	XXH3_128bits_reset(s->all);
	XXH3_128bits_reset(s->chunk);
	s->at = 0;
}

void files_sum_close(struct files_sum *s)
{
	XXH3_freeState(s->all);
	XXH3_freeState(s->chunk);
	XXH3_freeState(s->end);
	*s = (struct files_sum){0};
}

static void chunk_into(XXH3_state_t *to, uint64_t index, XXH128_hash_t h)
{
	uint8_t number[8];
	XXH128_canonical_t c;

	rpwi_put_be64(number, index);
	XXH128_canonicalFromHash(&c, h);
	XXH3_128bits_update(to, number, sizeof(number));
	XXH3_128bits_update(to, c.digest, sizeof(c.digest));
}

static void whole_chunk(struct files_sum *s, XXH128_hash_t h)
{
	if (!is_of_zeros(&h))
		chunk_into(s->all, s->at / FILES_CHUNK, h);
}

void files_sum_bytes(struct files_sum *s, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	while (len) {
		size_t fill = s->at % FILES_CHUNK, step = RPWI_MIN(len, (size_t)FILES_CHUNK - fill);
		if (step == FILES_CHUNK) {
			whole_chunk(s, XXH3_128bits(p, step));
		} else {
			XXH3_128bits_update(s->chunk, p, step);
			if (fill + step == FILES_CHUNK) {
				whole_chunk(s, XXH3_128bits_digest(s->chunk));
				XXH3_128bits_reset(s->chunk);
			}
		}
		s->at += step;
		p += step;
		len -= step;
	}
}

void files_sum_hole(struct files_sum *s, uint64_t len)
{
	while (len) {
		uint64_t fill = s->at % FILES_CHUNK,
			 step = RPWI_MIN(
				 RPWI_MIN(len, FILES_CHUNK - fill), (uint64_t)sizeof(zeros));
		if (!fill && len >= FILES_CHUNK) {
			step = len - len % FILES_CHUNK;
			s->at += step;
		} else {
			files_sum_bytes(s, zeros, (size_t)step);
		}
		len -= step;
	}
}

void files_sum_end(const struct files_sum *s, uint8_t hash[FILES_HASH_BYTES])
{
	XXH128_canonical_t c;
	uint8_t length[8];

	XXH3_copyState(s->end, s->all);
	if (s->at % FILES_CHUNK)
		chunk_into(s->end, s->at / FILES_CHUNK, XXH3_128bits_digest(s->chunk));
	rpwi_put_be64(length, s->at);
	XXH3_128bits_update(s->end, length, sizeof(length));
	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(s->end));
	memcpy(hash, c.digest, FILES_HASH_BYTES);
}

void files_data_next(int fd, uint64_t at, uint64_t size, uint64_t *from, uint64_t *until)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;

	*from = errno == ENXIO ? size : at;
	if (data >= 0)
		*from = RPWI_MIN((uint64_t)data, size);
	hole = *from < size ? lseek(fd, (off_t)*from, SEEK_HOLE) : -1;
	*until = hole > (off_t)*from ? RPWI_MIN((uint64_t)hole, size) : size;
}

int files_sum_file(struct files_sum *s, int fd, uint64_t until, uint64_t budget)
{
	enum { STEP = 1 << 20 };
	uint8_t *buf = malloc(STEP);
	uint64_t from, end = s->at;
	struct stat st;
	int ret = buf ? 0 : -ENOMEM;

	if (!ret && fstat(fd, &st))
		ret = -errno;
	if (!ret && (uint64_t)st.st_size < until)
		ret = -ENODATA;
	while (!ret && s->at < until && budget) {
		if (s->at == end) {
			files_data_next(fd, s->at, until, &from, &end);
			files_sum_hole(s, from - s->at);
			continue;
		}
		ssize_t n = pread(fd, buf, RPWI_MIN((uint64_t)STEP - s->at % STEP, end - s->at),
			(off_t)s->at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			ret = n ? -errno : -ENODATA;
		else
			files_sum_bytes(s, buf, (size_t)n);
		budget -= n > 0 ? RPWI_MIN((uint64_t)n, budget) : 0;
	}
	free(buf);
	return ret ? ret : s->at < until;
}
