/* SPDX-License-Identifier: BSD-3-Clause */
/* send.h - `ropeway send`: what it walks through (send.c), and its talk with the receiver
 * (send_talk.c). */
#ifndef ROPEWAY_CLI_SEND_H
#define ROPEWAY_CLI_SEND_H

#include "cli/files/files.h"
#include "ropeway.h"

#include <sys/stat.h>

enum { SEND_SILENT_MS = 300 * 1000 };

struct sender {
	rpw_context *c;
	rpw_endpoint *ep;
	rpw_request *hearing; /* the receive for the next answer */
	uint8_t control[FILES_MESSAGE_MAX], packed[FILES_MESSAGE_MAX]; /* heard, said */
	uint8_t *chunk[FILES_WINDOW];
	rpw_request *under_way[FILES_WINDOW];
	uint32_t number;
	bool has_bar, any_links;
	uint64_t bytes, compared, begin_ns, drawn_ns, still_ns;
	unsigned files, skipped, notes;
	struct files_message heard;
	char transport[32], why[600]; /* of the path that the bytes took */
};

/* All: 0, or a negative number when the talk is over; why has been told on stderr. */
/* What is not as it was, but there: a line each, for the first few. */
void send_note(struct sender *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int send_begin(struct sender *s, const char *address, unsigned timeout_ms);
/* Of the types without bytes; waits for DONE or KEPT. */
int send_entry(struct sender *s, enum files_type type, const char *name, const struct stat *st,
	const char *target);
/* What is left out is told, and makes the exit status 1; the rest is sent. Returns 0. */
int send_skip(struct sender *s, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A file that is open. */
int send_file(struct sender *s, const char *name, int fd, const struct stat *st);
int send_end(struct sender *s);
void send_close(struct sender *s);

#endif
