/* SPDX-License-Identifier: BSD-3-Clause */
/* recv_store.h - what `ropeway recv` does on the disk: everything below one directory, and nothing
 * outside of it. */
#ifndef ROPEWAY_CLI_RECV_STORE_H
#define ROPEWAY_CLI_RECV_STORE_H

#include "cli/files/files.h"

#include <sys/types.h>

/* The directory that everything goes to, and the rights in it. */
struct store {
	int root;
	bool overwrite; /* what is there may be replaced */
	bool any_links; /* links that lead anywhere may be made; they are not followed */
};
/* The directories that a sender is in, one in the other. */
struct store_dirs {
	char path[FILES_TEXT_MAX + 1]; /* the innermost one; empty: none */
	unsigned depth;
	struct {
		bool is_made; /* by this session: its mode is ours to set */
		dev_t dev;
		ino_t ino;
	} level[FILES_DEPTH_MAX];
};
/* A file that is being received. */
struct store_file {
	int parent, fd; /* -1: none. fd is locked, so that two senders cannot write the same file */
	char name[FILES_TEXT_MAX + 1], leaf[FILES_COMPONENT_MAX + 1], part[FILES_COMPONENT_MAX + 1];
	bool is_there; /* fd is the complete file itself, from before */
	bool is_kept;  /* and stays as it is: only compared */
	bool has_other_names;
	bool is_reading; /* store_file_read is not at its end */
	bool overwrite;
	uint64_t size, there, written; /* of all, from before, up to now, each with holes */
	uint32_t mode;
	struct timespec mtime;
	struct files_sum sum;
};
/* For people, with the name that it is about: why not, or with STORE_OK what could not be kept of
 * it, if anything. */
struct store_why {
	char text[512];
};
enum store_result {
	STORE_REFUSED = -1,
	STORE_OK,
	STORE_KEPT /* what was there stays, it is another */
};

/* 0, or -1 and why. */
int store_open(struct store *s, const char *dir, struct store_why *why);
/* Names are checked in all of these. */
enum store_result store_dir(const struct store *s, struct store_dirs *d,
	const struct files_message *m, struct store_why *why);
enum store_result store_dir_end(const struct store *s, struct store_dirs *d,
	const struct files_message *m, struct store_why *why);
enum store_result store_link(
	const struct store *s, bool any, const struct files_message *m, struct store_why *why);
/* Opens the file, or the part that is there, which store_file_read then reads. */
enum store_result store_file_begin(const struct store *s, const struct files_message *m,
	struct store_file *f, struct store_why *why);
/* A piece of the present part into the sum; is_reading tells whether it was the last. */
enum store_result store_file_read(struct store_file *f, struct store_why *why);
/* The bytes come from `from` on: 0, or f->there. */
enum store_result store_file_start(struct store_file *f, uint64_t from, struct store_why *why);
/* What lies before `offset` and has not come is a hole. */
enum store_result store_file_write(struct store_file *f, uint64_t offset, const void *bytes,
	size_t len, struct store_why *why);
/* Verified against the sender's checksum, then under its name. */
enum store_result store_file_end(
	struct store_file *f, const uint8_t hash[FILES_HASH_BYTES], struct store_why *why);
/* At any time; received bytes stay as a part, if there is a whole chunk of it. */
void store_file_close(struct store_file *f);

#endif
