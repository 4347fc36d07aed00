/* SPDX-License-Identifier: BSD-3-Clause */
/* files.h - what `ropeway send` and `ropeway recv` share: the messages between them, which names
 * are safe, and the checksum.
 *
 * The sender says what it has, one entry after the other, and waits for each answer: HELLO, then
 * DIR ... DIR_END around what is in a directory, LINK, and for a file FILE -> HAVE (how much of it
 * the receiver has from before, and its checksum) -> START (from where) -> the bytes -> END (the
 * checksum of all of it) -> DONE; BYE at the end. Where a file of that name and size is there and
 * must not be replaced, COMPARE stands for HAVE: no checksum of it is told, the sender's (START at
 * the end, END) decides. KEPT stands for any DONE, HAVE or COMPARE: the present file stays, and
 * why; the next entry is due. STILL, from both sides and at any time, has no answer: I am reading a
 * long file. DONE comes when the file has its name, so the sender never reports a file before.
 *
 * Messages are tagged ones with FILES_TAG_CONTROL. The bytes of files are messages with
 * FILES_TAG_DATA, up to FILES_CHUNK bytes and then their offset in the file (8 bytes), which rises:
 * what lies between them is a hole. A receiver that does not want to go on says REFUSED and why, at
 * any time. Nothing that a peer says is believed: see files_unpack, files_name_check,
 * files_link_check.
 */
#ifndef ROPEWAY_CLI_FILES_H
#define ROPEWAY_CLI_FILES_H

#include "cli/cli.h"

#include <stdio.h>
#include <xxhash.h>

enum {
	FILES_VERSION = 2,
	FILES_CHUNK = 1 << 20,
	FILES_OFFSET_BYTES = 8,
	FILES_WINDOW = 8,      /* chunks under way */
	FILES_TEXT_MAX = 4095, /* a path, or the target of a link */
	FILES_COMPONENT_MAX = 255,
	FILES_DEPTH_MAX = 128,
	FILES_HEAD_BYTES = 64,
	FILES_MESSAGE_MAX = FILES_HEAD_BYTES + 2 * FILES_TEXT_MAX,
	FILES_HASH_BYTES = 16,
	FILES_STILL_MS = 3000,
	/* mode of HELLO: links that lead anywhere will come; of READY: they are taken */
	FILES_WANTS_LINKS = 1,
	/* so long both sides look for more before they sleep: to sleep and be woken takes longer
	 * than a piece of a chunk */
	FILES_SPIN_NS = 30000,
};
#define FILES_MAGIC 0x52505746u /* "RPWF" */
#define FILES_TAG_CONTROL (1ull << 63)
#define FILES_TAG_DATA 0ull
#define FILES_PORT "7477"
/* What a file is called until all of it is there and verified. Nothing with such a name can be
 * sent. */
#define FILES_PART ".ropeway-part"

enum files_type {
	FILES_HELLO = 1, /* mode */
	FILES_READY,     /* mode */
	FILES_DIR,       /* name, mode */
	FILES_DIR_END,   /* name, mode, mtime */
	FILES_LINK,      /* name, mtime, text: its target */
	/* name, mode, mtime, size, number; data: bytes of it that are not holes, about */
	FILES_FILE,
	FILES_HAVE,    /* size, hash */
	FILES_START,   /* size: from where on the bytes come */
	FILES_END,     /* hash of the whole file; data: bytes that were sent */
	FILES_DONE,    /* text: what could not be kept of it, if anything */
	FILES_REFUSED, /* text: why. Of any version */
	FILES_BYE,
	FILES_COMPARE, /* size */
	FILES_KEPT,    /* text: why */
	FILES_STILL,
	FILES_TYPES
};

/* As it is on the wire, big-endian: magic 4, version 2, type 2, number 4, mode 4, size 8, mtime_s
 * 8, mtime_ns 4, name_len 2, text_len 2, hash 16, data 8; then name and text. */
struct files_message {
	enum files_type type;
	uint32_t number, mode;
	uint64_t size, data;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint8_t hash[FILES_HASH_BYTES];
	char name[FILES_TEXT_MAX + 1], text[FILES_TEXT_MAX + 1];
};

/* Never 0: to divide by. */
static inline double files_seconds_since(uint64_t begin_ns)
{
	return (double)RPWI_MAX(rpwi_now_ns() - begin_ns, 1ull) / 1e9;
}

/* ---- files.c ---- */
/* Its length in `out`. Name and text are as long as they may be at most. */
size_t files_pack(const struct files_message *m, uint8_t out[FILES_MESSAGE_MAX]);
/* 0; or -EPROTO and `why`, at least 200 bytes, for what is no message of this version. */
int files_unpack(
	const uint8_t *bytes, size_t len, struct files_message *m, char *why, size_t why_len);
/* NULL if a path that a peer sent may be made below a directory, else what is wrong with it. */
const char *files_name_check(const char *name);
/* The same for a link there: relative, ".." only at its beginning and never above the directory.
 * Then it stays inside, whatever it leads through, if all other links do. */
const char *files_link_check(const char *name, const char *target);

/* ---- sum.c ---- */
struct files_sum {
	XXH3_state_t *all, *chunk, *end; /* NULL: it is closed */
	uint64_t at;                     /* so many bytes are in it */
};
/* 0 or -ENOMEM. */
int files_sum_open(struct files_sum *s);
void files_sum_reset(struct files_sum *s);
void files_sum_bytes(struct files_sum *s, const void *bytes, size_t len);
void files_sum_hole(struct files_sum *s, uint64_t len);
/* A file, from where the sum is; reads about `budget` bytes at most. 0: up to `until`; 1: not yet;
 * or -errno, -ENODATA if the file is shorter. */
int files_sum_file(struct files_sum *s, int fd, uint64_t until, uint64_t budget);
/* Of its contents; more may follow. */
void files_sum_end(const struct files_sum *s, uint8_t hash[FILES_HASH_BYTES]);
void files_sum_close(struct files_sum *s);
/* The next bytes at or after `at` that are not a hole: `*from` up to `*until`; `*from` is `size` if
 * there are none. All are data where a file system cannot tell. */
void files_data_next(int fd, uint64_t at, uint64_t size, uint64_t *from, uint64_t *until);

#endif
