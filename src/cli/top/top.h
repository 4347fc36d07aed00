/* SPDX-License-Identifier: BSD-3-Clause */
/* top.h - what the files of `ropeway top` share: devices, processes and QPs with what they have
 * counted (look.c), shown on a terminal (screen.c, keys and the terminal itself in term.c), as
 * text (table.c), as JSON (json.c), or as a page for Prometheus (page.c), which goes to a file
 * (file.c) or to clients by HTTP (listen.c).
 *
 * The numbers are those of the device's files (io/counters.h): nothing is asked of the processes,
 * and they notice nothing. One thread.
 */
#ifndef ROPEWAY_CLI_TOP_H
#define ROPEWAY_CLI_TOP_H

#include "io/counters.h"

#include "cli/cli.h"

#include <stdio.h>

#define TOP_NAME "ropeway top"

enum top_level { TOP_DEVICES, TOP_PROCESSES, TOP_QPS, TOP_LEVELS };
extern const char *const top_level_name[TOP_LEVELS + 1]; /* "device", ... and a NULL */

/* What is shown of the counters, by which rows can be sorted. */
enum top_figure {
	TOP_OUT,   /* work requests completed */
	TOP_IN,    /* receives filled */
	TOP_TX,    /* bytes of payload */
	TOP_RX,    /* likewise */
	TOP_RETRY, /* how often data was sent again */
	TOP_RNR,   /* RNR NAKs, sent and received */
	TOP_ERROR, /* work requests that failed, and packets that were refused */
	TOP_FIGURES,
};
uint64_t top_figure(const struct rpwi_qp_stats *n, enum top_figure f);
uint64_t top_work_requests(const struct rpwi_qp_stats *n);
uint64_t top_bad_packets(const struct rpwi_qp_stats *n);

enum { TOP_COMM_LEN = 16 + 1 };
/* A device, a process on a device, or a QP. What its level does not have is 0. */
struct top_row {
	enum top_level level;
	char device[32];
	bool up;            /* device */
	unsigned processes; /* device */
	uint64_t qps;       /* device, process */
	uint32_t pid;       /* process, QP */
	uint16_t slot;      /* likewise: of the process, and of no other */
	uint64_t socket_inode;
	char comm[TOP_COMM_LEN]; /* "?": /proc does not show that process here */
	uint32_t qpn, peer_qpn;
	uint8_t type, state, peer[16];
	struct rpwi_qp_stats n;
	double rate[TOP_FIGURES]; /* a second, since the look before */
	bool grew[TOP_FIGURES];
};

struct top_look {
	struct top_row *row;
	unsigned n, cap;
	uint64_t at_ns;
	double seconds; /* since the look before; 0: there was none */
};
/* As it is now; `before` (may be NULL) gives rates and names. 0 or -errno. End it with top_free. */
int top_look(struct top_look *l, const struct top_look *before);
void top_free(struct top_look *l);

enum top_sort {
	TOP_BY_NAME,
	TOP_BY_MESSAGES,
	TOP_BY_BYTES,
	TOP_BY_RETRIES,
	TOP_BY_RNR,
	TOP_BY_ERRORS
};
struct top_order {
	enum top_sort by;
	bool reverse;
};
/* The rows of a level, sorted: pointers into the look, *n of them, malloc'ed; NULL: no memory. */
const struct top_row **top_rows(
	const struct top_look *l, enum top_level level, struct top_order order, unsigned *n);

/* ---- table.c ---- */
/* "1.23k", at most 5 columns. Returns `out`. */
enum { TOP_NUMBER_LEN = 16 };
const char *top_number(double v, char out[TOP_NUMBER_LEN]);
/* A line without its end, at most `columns` wide: titles, or a row's. Counts that have grown
 * since the look before are between the two texts of `marks`, which may be NULL. */
struct top_marks {
	const char *begin, *end;
};
void top_titles(FILE *to, enum top_level level, unsigned columns);
void top_line(FILE *to, const struct top_row *r, unsigned columns, const struct top_marks *marks);
/* All of it, as `--once` prints it. */
int top_print(const struct top_look *l, enum top_level level);

/* ---- json.c, page.c ---- */
int top_print_json(const struct top_look *l);
/* The exposition format of Prometheus, down to a level. *text is malloc'ed. 0 or -ENOMEM. */
int top_page(const struct top_look *l, enum top_level level, char **text, size_t *len);

/* ---- what runs until it is told to end; an exit status ---- */
struct top_options {
	bool once, json, allow_remote;
	double interval_s;
	const char *view, *listen, *file;
};
int top_screen(enum top_level level, double interval_s);
int top_listen(const struct top_options *o, enum top_level level);
int top_file(const struct top_options *o, enum top_level level);

/* ---- term.c: the terminal, which is given back as it was however this process ends ---- */
/* 0 or -errno. */
int top_term_open(void);
void top_term_close(void);
void top_term_size(unsigned *columns, unsigned *lines);
/* Another process has made the terminal non-blocking, and it is full: waits until it is not. False:
 * a signal says that this process ends. */
bool top_term_room(void);
/* A key or an event within that time. */
enum top_key {
	TOP_KEY_NONE = 0,    /* the time is over */
	TOP_KEY_END = -1,    /* a signal says so, or the terminal is gone */
	TOP_KEY_REDRAW = -2, /* another size; or it goes on after a stop */
	TOP_KEY_UP = -3,
	TOP_KEY_DOWN = -4,
	TOP_KEY_PAGE_UP = -5,
	TOP_KEY_PAGE_DOWN = -6,
	TOP_KEY_OTHER = -7, /* one without a meaning */
};
int top_term_key(uint64_t timeout_ns);
/* The signal for which to end, or 0. */
int top_term_signal(void);

#endif
