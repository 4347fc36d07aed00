/* recv_store.h - what `ropeway recv` does on the disk: everything below one directory, and nothing outside of it. */
#ifndef ROPEWAY_CLI_RECV_STORE_H
#define ROPEWAY_CLI_RECV_STORE_H

#include "cli/files.h"

/* A file that is being received. */
struct store_file {
	int parent, fd; /* -1: none. fd is locked, so that two senders cannot write the same file */
	char leaf[FILES_COMPONENT_MAX + 1], part[FILES_COMPONENT_MAX + 1];
	bool is_there; /* fd is the complete file itself, from before */
	uint64_t size, written;
	uint32_t mode;
	struct timespec mtime;
	XXH3_state_t *hash;
};
/* A reason for people, with the name that it is about. */
struct store_why {
	char text[512];
};

/* The directory that everything goes to. Descriptor, or -1 and why. */
int store_open(const char *dir, struct store_why *why);
/* All return 0, or -1 and why. Names are checked here. */
int store_dir(int root, const struct files_message *m, struct store_why *why);
int store_dir_end(int root, const struct files_message *m, struct store_why *why);
int store_link(int root, const struct files_message *m, struct store_why *why);
/* Opens the file, or what is there of it; `have` gets how much, and its checksum. */
int store_file_begin(int root, const struct files_message *m, struct store_file *f, struct files_message *have, struct store_why *why);
/* The bytes come from `from` on: 0, or what store_file_begin said. */
int store_file_start(struct store_file *f, uint64_t from, struct store_why *why);
int store_file_write(struct store_file *f, const void *bytes, size_t len, struct store_why *why);
/* Verified against the sender's checksum, then under its name. */
int store_file_end(struct store_file *f, const uint8_t hash[FILES_HASH_BYTES], struct store_why *why);
/* At any time; what was received stays as a part. */
void store_file_close(struct store_file *f);

#endif
