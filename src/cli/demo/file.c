/* SPDX-License-Identifier: BSD-3-Clause */
/* file.c - the file that the demo moves: made of non-repeating data, and compared afterwards. */
#include "cli/demo/demo.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CHUNK = 4 << 20 };

static bool dir_fits(const char *dir, uint64_t bytes, char *why, size_t why_len)
{
	struct statvfs fs;
	char need[CLI_SIZE_LEN], have[CLI_SIZE_LEN];

	if (access(dir, W_OK | X_OK) || statvfs(dir, &fs)) {
		snprintf(why, why_len, "cannot write to %s: %s", dir, strerror(errno));
		return false;
	}
	uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	/* 1% and 16 MiB for the file system's own needs, and so as not to take a machine's last
	 * block. */
	if (free_bytes >= bytes + bytes / 100 + (16u << 20))
		return true;
	snprintf(why, why_len, "%s has %s free; %s are needed for the file and its copy", dir,
		rpwi_cli_size(free_bytes, have), rpwi_cli_size(bytes, need));
	return false;
}

const char *rpwi_demo_dir(uint64_t bytes, char *why, size_t why_len)
{
	const char *candidates[] = {getenv("TMPDIR"), "/tmp", "/var/tmp"};

	for (size_t i = 0; i < RPWI_ARRAY_LEN(candidates); i++)
		if (candidates[i] && *candidates[i] && dir_fits(candidates[i], bytes, why, why_len))
			return candidates[i];
	return NULL;
}

/* O_TMPFILE is not known to every file system; a name that lives for a moment does as well. */
static int open_nameless(const char *dir)
{
	char path[4096];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "%s/ropeway-demo-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

int rpwi_demo_file_make(struct demo_file *f, const char *dir, uint64_t size, const char *keep_name)
{
	*f = (struct demo_file){.fd = -1, .size = size};
	if (keep_name) {
		snprintf(f->name, sizeof(f->name), "%s/%s", dir, keep_name);
		f->fd = open(f->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	} else {
		f->fd = open_nameless(dir);
	}
	if (f->fd < 0)
		return -errno;
	int err = posix_fallocate(f->fd, 0, (off_t)size);
	if (!err)
		return 0;
	if (f->name[0])
		unlink(f->name);
	rpwi_demo_file_close(f);
	return -err;
}

void rpwi_demo_file_close(struct demo_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

/* The finalizer of splitmix64 over a counter: any position can be computed alone, and no two words
 * of a file are the same (the finalizer is a bijection). */
static uint64_t word_at(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static int write_all(int fd, const void *buf, size_t len, uint64_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, buf, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf = (const char *)buf + n;
		len -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

int rpwi_demo_file_fill(const struct demo_file *f, uint64_t seed)
{
	uint64_t *buf = malloc(CHUNK);
	int ret = buf ? 0 : -ENOMEM;

	for (uint64_t at = 0; !ret && at < f->size; at += CHUNK) {
		for (size_t i = 0; i < CHUNK / sizeof(*buf); i++)
			buf[i] = word_at(seed, at / sizeof(*buf) + i);
		ret = write_all(f->fd, buf, RPWI_MIN((uint64_t)CHUNK, f->size - at), at);
	}
	free(buf);
	return ret;
}

static uint64_t first_difference(const uint8_t *a, const uint8_t *b, uint64_t len)
{
	uint64_t i = 0;

	while (i < len && a[i] == b[i])
		i++;
	return i;
}

int rpwi_demo_file_compare(const struct demo_file *a, const struct demo_file *b, uint64_t len,
	uint64_t *at, uint32_t *crc_a, uint32_t *crc_b)
{
	void *ma = mmap(NULL, len, PROT_READ, MAP_SHARED, a->fd, 0);
	void *mb = mmap(NULL, len, PROT_READ, MAP_SHARED, b->fd, 0);
	int ret = ma == MAP_FAILED || mb == MAP_FAILED ? -errno : 0;

	*crc_a = *crc_b = 0;
	for (uint64_t off = 0; ret >= 0 && off < len; off += CHUNK) {
		uint64_t n = RPWI_MIN((uint64_t)CHUNK, len - off);
		const uint8_t *pa = (const uint8_t *)ma + off, *pb = (const uint8_t *)mb + off;
		*crc_a = crc32_gzip_refl(*crc_a, pa, n);
		*crc_b = crc32_gzip_refl(*crc_b, pb, n);
		if (!ret && memcmp(pa, pb, n) != 0) {
			*at = off + first_difference(pa, pb, n);
			ret = 1;
		}
	}
	if (ma != MAP_FAILED)
		munmap(ma, len);
	if (mb != MAP_FAILED)
		munmap(mb, len);
	return ret;
}
