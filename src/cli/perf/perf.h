/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.h - what the files of `ropeway perf` share: a job (one operation, one size, one figure), its
 * outcome, and which side measures.
 *
 * Only include/ropeway.h is measured: nothing here knows how the library does it. Two sides run
 * each job: the client decides and holds the clock, the server answers. A row is what was found
 * about one operation and one size. */
#ifndef ROPEWAY_CLI_PERF_H
#define ROPEWAY_CLI_PERF_H

#include <jansson.h>
#include <sys/types.h>

#include "base/base.h"
#include "cli/options.h"
#include "ropeway.h"

#define PERF_NAME "ropeway perf"

enum perf_op { PERF_TAG, PERF_PUT, PERF_GET, PERF_AM, PERF_LOAN, PERF_VIEW, PERF_OPS };
enum perf_mode { PERF_LAT, PERF_BW, PERF_MODES };
extern const char *const rpwi_perf_op_name[PERF_OPS + 1]; /* up to a NULL */

enum {
	PERF_SIZE_MOST = 1 << 30,
	PERF_WINDOW_MOST = 1024,
	PERF_BUFFERS_MOST = 64,
	PERF_DEADLINE_MS = 20000, /* nothing at all happened for so long: the run has failed */
};

struct perf_job {
	enum perf_op op;
	enum perf_mode mode;
	uint64_t size, n, window, buffers, seed; /* buffers: that most messages take turns with */
	bool verify;                             /* each message, rather than a few */
	bool malloc; /* sends from malloc'ed memory; puts and gets reach such memory */
	bool touch;  /* of tag, view, loan: each byte is written before, and read */
};

/* Seconds; of half a round trip, but of a get a whole one. */
struct perf_latency {
	double least, p50, p90, p99, p999, most, mean;
};

struct perf_row {
	enum perf_op op;
	uint64_t size;
	bool has[PERF_MODES];
	struct perf_latency latency;
	double messages_s;
	uint64_t messages, checked;
};

/* ---- perf.c: what `ropeway plugin bench` has, too ---- */
/* "1.25 us", "3.20 GB/s". Return `out`. */
const char *rpwi_perf_show_seconds(double s, char out[16]);
const char *rpwi_perf_show_rate(double v, const char *unit, char out[24]);

/* ---- client.c and serve.c: both sides of a job ---- */
struct perf_side;
/* The client: connects. `transport` may be NULL. A negative status, told on stderr. */
int rpwi_perf_connect(const char *address, const char *transport, struct perf_side **out);
/* One figure for the row, which takes about `seconds` (n 0) or n messages. */
int rpwi_perf_measure(
	struct perf_side *s, struct perf_job *job, double seconds, struct perf_row *row);
/* How near the two sides are, before anything is measured; half_trip_s 0: not on one host, or it
 * could not be measured. */
struct perf_distance {
	double half_trip_s;
	int core[2]; /* of this side, of the other */
};
int rpwi_perf_distance(struct perf_side *s, struct perf_distance *out);
rpw_endpoint *rpwi_perf_endpoint(struct perf_side *s);
void rpwi_perf_close(struct perf_side *s);
/* The server: writes "port\n" to ready_fd if that is not -1, and answers; `once`: until its first
 * client has gone. An exit status. */
int rpwi_perf_serve(const char *address, const char *transport, bool once, int ready_fd);

/* ---- line.c: a cache line between two processes ---- */
enum { PERF_NONCE_LEN = 16 };
struct perf_line;
/* For a process that gets pid, *fd and nonce, which are to stay as they are until it has taken
 * it. */
struct perf_line *rpwi_perf_line_offer(int *fd, uint8_t nonce[PERF_NONCE_LEN]);
struct perf_line *rpwi_perf_line_take(uint64_t pid, uint64_t fd, const uint8_t *nonce);
void rpwi_perf_line_free(struct perf_line *l);
/* The two sides of it, at the same time. `ask` gives seconds for half a round trip, the median, or
 * 0, and both cores. */
double rpwi_perf_line_ask(struct perf_line *l, int core[2]);
void rpwi_perf_line_answer(struct perf_line *l);

/* ---- bare.c: what the machine itself does ---- */
struct perf_bare {
	double tcp_8_s, tcp_4k_s; /* half a round trip, the median; 0: could not be measured */
};
void rpwi_perf_bare(const int core[2], struct perf_bare *out);
/* The first two cores that this process may use; false: there is one. */
bool rpwi_perf_cores(int core[2]);
void rpwi_perf_pin(int core);
/* A server process of our own, on a core (-1: any): its pid, and its port; or -1. */
pid_t rpwi_perf_spawn(const char *transport, int core, unsigned *port);
void rpwi_perf_reap(pid_t pid);

/* ---- beside.c: the part that beside.py does ---- */
/* The curves of rows as --json has them, as an SVG. An exit status. */
int rpwi_perf_plot(const char *file, const char *title, json_t *rows);
/* Peers' programs beside ours. `asked`: the options, which this call takes. Does not return
 * but for an error. */
int rpwi_perf_against(json_t *asked);

#endif
