/* SPDX-License-Identifier: BSD-3-Clause */
/* demo.h - what the demo's orchestrator (demo.c) and its two processes (peer.c) say to each
 * other. */
#ifndef ROPEWAY_CLI_DEMO_H
#define ROPEWAY_CLI_DEMO_H

#include "cli/cli.h"

/* Descriptors that a peer finds open: to the orchestrator, to the other peer, and the file. */
enum { DEMO_FD_REPORT = 3, DEMO_FD_PEER = 4, DEMO_FD_FILE = 5 };

/* Peer -> orchestrator, one datagram each on a SOCK_SEQPACKET. */
enum demo_report_type {
	DEMO_STEP,
	DEMO_PROGRESS /* value: bytes done */,
	DEMO_DONE /* value: ns from first post to last completion */,
	DEMO_FAIL
};
struct demo_report {
	uint32_t type;
	uint32_t pad;
	uint64_t value;
	char text[400];
};

/* A transfer whose peers say nothing for this long is given up. A peer's own deadlines are shorter,
 * and tell more. */
#define DEMO_SILENCE_NS (40 * RPWI_NS_PER_S)
#define DEMO_STALL_NS (15 * RPWI_NS_PER_S)

/* ---- file.c ---- */
struct demo_file {
	int fd;
	uint64_t size;
	char name[256]; /* empty: it has no name, and is gone when the last process closes it */
};
/* The first of $TMPDIR, /tmp, /var/tmp that has room for `bytes` and can be written to. NULL with
 * `why` filled. */
const char *rpwi_demo_dir(uint64_t bytes, char *why, size_t why_len);
/* A file of `size` bytes (its blocks reserved, so that a full disk is an error here and not SIGBUS
 * later); named only if `keep_name` is given. 0 or -errno. */
int rpwi_demo_file_make(struct demo_file *f, const char *dir, uint64_t size, const char *keep_name);
void rpwi_demo_file_close(struct demo_file *f);
/* Fill with pseudo-random bytes in which every 8 bytes depend on their position. 0 or -errno. */
int rpwi_demo_file_fill(const struct demo_file *f, uint64_t seed);
/* Compare the first `len` bytes and checksum them. 0; 1 when they differ, *at the first byte that
 * does; or -errno. */
int rpwi_demo_file_compare(const struct demo_file *a, const struct demo_file *b, uint64_t len,
	uint64_t *at, uint32_t *crc_a, uint32_t *crc_b);

#endif
