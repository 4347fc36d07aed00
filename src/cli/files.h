/* files.h - what `ropeway send` and `ropeway recv` share: the messages between them, which names are safe, and the checksum.
 *
 * The sender says what it has, one entry after the other, and waits for each answer: HELLO, then DIR ... DIR_END around what is in a directory, LINK, and for a file
 * FILE -> HAVE (how much of it the receiver has from before, and its checksum) -> START (from where) -> the bytes -> END (the checksum of all of it) -> DONE; BYE at the end.
 * Messages are tagged ones with FILES_TAG_CONTROL. The bytes of file number n are messages with tag n, of FILES_CHUNK bytes each, the last one shorter.
 * A receiver that does not want to go on says REFUSED and why, at any time. Nothing that a peer says is believed: see files_unpack, files_name_check, files_link_check.
 */
#ifndef ROPEWAY_CLI_FILES_H
#define ROPEWAY_CLI_FILES_H

#include "cli/cli.h"

#include <stdio.h>
#include <xxhash.h>

enum {
	FILES_VERSION = 1,
	FILES_PORT = 7477,
	FILES_CHUNK = 1 << 20,
	FILES_WINDOW = 8,      /* chunks under way */
	FILES_TEXT_MAX = 4095, /* a path, or the target of a link */
	FILES_COMPONENT_MAX = 255,
	FILES_DEPTH_MAX = 128,
	FILES_HEAD_BYTES = 56,
	FILES_MESSAGE_MAX = FILES_HEAD_BYTES + 2 * FILES_TEXT_MAX,
	FILES_HASH_BYTES = 16,
	FILES_SPIN_NS = 30000, /* so long both sides look for more before they sleep: to sleep and be woken takes longer than a piece of a chunk */
};
#define FILES_MAGIC 0x52505746u /* "RPWF" */
#define FILES_TAG_CONTROL (1ull << 63)
/* What a file is called until all of it is there and verified. Nothing with such a name can be sent. */
#define FILES_PART ".ropeway-part"

enum files_type {
	FILES_HELLO = 1, /* number: entries, size: bytes that will come: for the progress bar */
	FILES_READY,
	FILES_DIR,     /* name, mode */
	FILES_DIR_END, /* name, mode, mtime */
	FILES_LINK,    /* name, mtime, text: its target */
	FILES_FILE,    /* name, mode, mtime, size, number */
	FILES_HAVE,    /* size, hash */
	FILES_START,   /* size: from where on the bytes come */
	FILES_END,     /* hash of the whole file */
	FILES_DONE,
	FILES_REFUSED, /* text: why. Of any version */
	FILES_BYE,
	FILES_TYPES
};

/* As it is on the wire, big-endian: magic 4, version 2, type 2, number 4, mode 4, size 8, mtime_s 8, mtime_ns 4, name_len 2, text_len 2, hash 16; then name and text. */
struct files_message {
	enum files_type type;
	uint32_t number, mode;
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint8_t hash[FILES_HASH_BYTES];
	char name[FILES_TEXT_MAX + 1], text[FILES_TEXT_MAX + 1];
};

/* ---- files.c ---- */
/* Its length in `out`. Name and text are as long as they may be at most. */
size_t files_pack(const struct files_message *m, uint8_t out[FILES_MESSAGE_MAX]);
/* 0; or -EPROTO and `why`, at least 200 bytes, for what is no message of this version. */
int files_unpack(const uint8_t *bytes, size_t len, struct files_message *m, char *why, size_t why_len);
/* NULL if a path that a peer sent may be made below a directory, else what is wrong with it. */
const char *files_name_check(const char *name);
/* The same for a link there: relative, ".." only at its beginning and never above the directory. Then it stays inside, whatever it leads through, if all other links do. */
const char *files_link_check(const char *name, const char *target);
/* The first `len` bytes of a file into a checksum. 0 or -errno; -ENODATA if it is shorter. */
int files_hash_prefix(int fd, uint64_t len, XXH3_state_t *state);
void files_hash_end(const XXH3_state_t *state, uint8_t hash[FILES_HASH_BYTES]);

#endif
