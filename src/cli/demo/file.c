/* SPDX-License-Identifier: BSD-3-Clause */
/* file.c - the file that the demo moves: made of non-repeating data. */
#include "cli/demo/demo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"

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
	*f = (struct demo_file){.fd = -1, .map = MAP_FAILED, .size = size};
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
		f->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (!err && f->map == MAP_FAILED)
		err = errno;
	if (!err)
		return 0;
	if (f->name[0])
		unlink(f->name);
	rpwi_demo_file_close(f);
	return -err;
}

void rpwi_demo_file_close(struct demo_file *f)
{
	if (f->fd < 0)
		return;
	if (f->map != MAP_FAILED)
		munmap(f->map, f->size);
	close(f->fd);
	f->fd = -1;
}

/* Of a counter: no two words of a file are the same (rpwi_scatter is a bijection). */
void rpwi_demo_file_fill(const struct demo_file *f, uint64_t seed)
{
	for (uint64_t at = 0; at < f->size; at += 8) {
		uint64_t word = rpwi_scatter(seed + (at / 8 + 1) * 0x9e3779b97f4a7c15ull);
		memcpy(f->map + at, &word, RPWI_MIN(f->size - at, (uint64_t)8));
	}
}
