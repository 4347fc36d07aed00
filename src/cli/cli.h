/* SPDX-License-Identifier: BSD-3-Clause */
/* cli.h - what the files of the `ropeway` command share: subcommands, exit statuses, sizes and GIDs
 * as people write them.
 *
 * The command is a verbs program like any other: it is linked with the drop-in, and sees devices
 * through <infiniband/verbs.h>. Only devices.c and run/ ask the layers below, for what a verb has
 * no words for: interfaces, who holds UDP port 4791, what a fault may be.
 */
#ifndef ROPEWAY_CLI_CLI_H
#define ROPEWAY_CLI_CLI_H

#include <infiniband/verbs.h>
#include <limits.h>
#include <netinet/in.h>

#include "base/base.h"

/* Exit statuses; 126 and 127 as env(1) and the shell have them. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_CANNOT_RUN = 126, CLI_NOT_FOUND = 127 };

/* Subcommands: argv[0] is "ropeway <name>", as messages begin. Each returns an exit status. */
int rpwi_cli_check(int argc, char **argv);
int rpwi_cli_demo(int argc, char **argv);
int rpwi_cli_devices(int argc, char **argv);
int rpwi_cli_doctor(int argc, char **argv);
int rpwi_cli_explain(int argc, char **argv);
int rpwi_cli_perf(int argc, char **argv);
int rpwi_cli_plugin(int argc, char **argv);
int rpwi_cli_recv(int argc, char **argv);
int rpwi_cli_run(int argc, char **argv);
int rpwi_cli_send(int argc, char **argv);
int rpwi_cli_top(int argc, char **argv);
/* One of the two processes of a demo; started by rpwi_cli_demo only (demo/peer.c). */
int rpwi_cli_demo_peer(int argc, char **argv);
/* The formatter of a program's explain log; started by the library only (explain/events.c). */
int rpwi_cli_explain_events(int argc, char **argv);

/* ---- fail.c ---- */
/* A file that is too long for the limit (RLIMIT_FSIZE) is an error like a full disk; as before, for
 * a program of somebody else's that is executed. */
void rpwi_cli_file_limit_is_error(void);
void rpwi_cli_file_limit_as_before(void);
/* One line to stderr, "ropeway <command>: ...", and the exit status to return. */
int rpwi_cli_fail(int status, const char *command, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for wrong arguments, with a second line that points at --help. Returns CLI_USAGE. */
int rpwi_cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What the command says on stderr when SIGINT or SIGTERM ends it: replaces what it would have said.
 * A child says nothing of it. Not thread-safe. */
void rpwi_cli_when_stopped(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* And what it prints before, on stdout: the caller keeps it up to the next call. */
void rpwi_cli_when_stopped_print(const char *result);
/* What was to be done is done: then nothing is said. */
void rpwi_cli_stop_is_late(void);

/* ---- find.c ---- */
/* The path of a file in one of two places, as seen from the folder of this program. 0 or -errno. */
int rpwi_cli_find(const char *const places[2], const char *name, char path[PATH_MAX]);

/* ---- json.c ---- */
/* Prints what json_dumpf makes of an object, which it takes, with these flags and a newline.
 * CLI_OK; or CLI_FAILED, and on stderr that there is none. */
struct json_t;
int rpwi_cli_json(const char *command, struct json_t *root, size_t flags);

/* ---- devices.c ---- */
/* 0 if a program could open the device and, if it is a software one, have its UDP port, within a
 * second; else -errno, and `why` is a line for people. */
int rpwi_cli_device_usable(const char *name, char *why, size_t why_len);

/* `ropeway completion devices`: the name of each device on a line, of software ones also where they
 * are hidden from programs. An exit status. */
int rpwi_cli_device_names(void);
/* Brings the software devices of a list to its front: the order under `ropeway run`. */
void rpwi_cli_software_first(struct ibv_device **list, int count);

/* ---- try.c ---- */
enum { CLI_TRIED_MAX = 32 };
struct cli_tried {
	char name[64], why[128]; /* why: of one that does not work */
	bool works;
	bool unsafe; /* its driver crashed or did not answer in time: nobody is to open it */
};
/* The names of the real devices of this machine, also of those that ROPEWAY_DEVICES hides: another
 * process lists them, for at most 2 s, since their drivers may crash or wait for ever. How many
 * there are; or -errno and why: they cannot even be listed. */
int rpwi_cli_reals(struct cli_tried tried[CLI_TRIED_MAX], char *why, size_t why_len);
/* The same, and then tries to make a queue pair on each, in other processes and for at most 2 s
 * more. */
int rpwi_cli_try(struct cli_tried tried[CLI_TRIED_MAX], char *why, size_t why_len);

/* ---- run/run.c ---- */
/* 0, or -errno and `why` if the spec of --fault or ROPEWAY_FAULT is none, and no script either. */
int rpwi_cli_check_fault(const char *spec, char *why, size_t why_len);

/* ---- text.c ---- */
/* "64", "8M", "1GiB", "2T" (powers of 1024). 0, or -EINVAL for anything else, 0 bytes and overflow
 * included. */
int rpwi_cli_parse_size(const char *text, uint64_t *bytes);
/* "1 GiB", "8 MiB", "12345 bytes": exact if it can be, else with two decimals. Returns `out`. */
enum { CLI_SIZE_LEN = 32 };
const char *rpwi_cli_size(uint64_t bytes, char out[CLI_SIZE_LEN]);
/* "s" behind a noun of which there are n; "" of one. */
const char *rpwi_cli_plural(uint64_t n);
/* "host", "host:port", "[v6]", "[v6]:port", "v6": the host alone, and what rpw_endpoint_create
 * takes, with `port` where the text has none. 0, or -EINVAL for what is no such text. */
enum { CLI_HOST_LEN = 256, CLI_ADDRESS_LEN = 300 };
int rpwi_cli_address(
	const char *text, const char *port, char host[CLI_HOST_LEN], char address[CLI_ADDRESS_LEN]);
/* The numeric address of what the library calls a peer, "host:pid address:port". 0, or -EINVAL and
 * an empty one. */
int rpwi_cli_peer_address(const char *peer, char address[64]);
/* What others wrote, for a terminal or a log: UTF-8 as it is; '?' for what is none, for control
 * characters (C0, DEL and C1, which has an escape of one character), and for those that turn the
 * direction of writing. Cut, if need be, between characters. `out` may be `text`. Returns it. */
const char *rpwi_cli_printable(const char *text, char *out, size_t out_len);
/* A word of a command that a user may copy to a shell: in quotes where it needs some. Returns
 * `out`; "..." where that is too short. */
const char *rpwi_cli_shell_word(const char *word, char *out, size_t out_len);
/* The same, cut to what fits into so many columns of a terminal, the end by "..." if need be.
 * Returns the columns that it takes. */
unsigned rpwi_cli_columns(const char *text, char *out, size_t out_len, unsigned columns);

/* ---- port.c ---- */
enum { CLI_GIDS_MAX = 64, CLI_GID_LEN = INET6_ADDRSTRLEN };
struct cli_gid {
	union ibv_gid gid;
	uint32_t index, type; /* enum ibv_gid_type */
	uint32_t ifindex;
};
/* The GID table of a port, without its empty entries. Count, or -errno. */
int rpwi_cli_gid_table(struct ibv_context *ctx, uint8_t port, struct cli_gid gids[CLI_GIDS_MAX]);
/* Which entry a program should use: the first RoCE v2 one that is an IPv4 address, else a routable
 * IPv6 one, else any. A position in gids, or -1 when there is none. */
int rpwi_cli_gid_pick(const struct cli_gid *gids, int count);
const char *rpwi_cli_gid_text(const union ibv_gid *gid, char out[CLI_GID_LEN]);
const char *rpwi_cli_gid_type(uint32_t type);
bool rpwi_cli_gid_is_ipv4(const union ibv_gid *gid);
/* As ibv_devinfo says it, without PORT_: "ACTIVE". */
const char *rpwi_cli_port_state(enum ibv_port_state state);
/* 256 .. 4096 for an enum ibv_mtu, 0 for none. */
unsigned rpwi_cli_mtu_bytes(enum ibv_mtu mtu);

#endif
