/* send.h - `ropeway send`: what it walks through (send.c), and its talk with the receiver (send_talk.c). */
#ifndef ROPEWAY_CLI_SEND_H
#define ROPEWAY_CLI_SEND_H

#include "cli/files.h"
#include "ropeway.h"

#include <sys/stat.h>

enum { SEND_SILENT_MS = 300 * 1000 };

struct sender {
	rpw_context *c;
	rpw_endpoint *ep;
	rpw_request *hearing; /* the receive for the next answer */
	uint8_t control[FILES_MESSAGE_MAX];
	uint8_t *chunk[FILES_WINDOW];
	rpw_request *under_way[FILES_WINDOW];
	uint32_t number;
	bool has_bar, is_quiet;
	uint64_t bytes, resumed, begin_ns, drawn_ns;
	unsigned files, skipped;
	struct files_message heard;
};

/* All: 0, or a negative number when the talk is over; why has been told on stderr. */
int send_begin(struct sender *s, const char *address, unsigned timeout_ms);
/* Of the types without bytes; waits for DONE. */
int send_entry(struct sender *s, enum files_type type, const char *name, const struct stat *st, const char *target);
/* A file that is open. */
int send_file(struct sender *s, const char *name, int fd, const struct stat *st);
int send_end(struct sender *s);
void send_close(struct sender *s);

#endif
