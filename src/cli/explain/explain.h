/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.h - `ropeway explain`: captures read, sorted into conversations, their losses and states
 * worked out, and shown as a ladder; and the events of a program (explain/trace.h), shown as lines.
 *
 * The way of a packet: read.c (pcap, pcapng) -> frame.c (link, IP, UDP) -> merge.c (several
 * captures in one order) -> talk.c (conversations) -> story.c (states, losses, reasons, folds) ->
 * text.c (terminal), or html.c and place.c (page). The way of an event: events.c (socket) ->
 * account.c (columns, folds) and diagnose.c (why). Nothing in a capture is trusted: every length is
 * checked where it is read, and every table is bounded.
 */
#ifndef ROPEWAY_CLI_EXPLAIN_H
#define ROPEWAY_CLI_EXPLAIN_H

#include <stdio.h>
#include <time.h>

#include "cli/cli.h"
#include <cli/explain_words.h> /* made of words.json by embed.py, in the build folder */
#include "explain/log.h"
#include "wire/mad.h"
#include "wire/packet.h"

enum {
	EX_FILES_MAX = 8,
	EX_PACKETS_MAX = 300000, /* read; more are counted */
	EX_TALKS_MAX = 20000,
	/* of each packet, from the BTH on; of a management datagram all of it */
	EX_KEEP_BYTES = RPWI_HDR_MAX,
	EX_WHY_LEN = 240,
};

/* ---- read.c ---- */

enum ex_direction { EX_UNKNOWN, EX_IN, EX_OUT };
struct ex_frame {
	uint64_t time_ns; /* since 1970, or since whatever the file counts from */
	uint32_t link;    /* LINKTYPE_ */
	enum ex_direction direction;
	const uint8_t *bytes;
	uint32_t len, wire_len; /* captured, and as it was on the wire */
	char comment[120];
};
/* False: enough. */
typedef bool ex_frame_fn(void *arg, const struct ex_frame *f);
/* 0, or -errno and `why`. Packets read before an error in the middle of the file has been
 * delivered; `*cut` then says so, and 0 is returned. */
int rpwi_explain_read(
	const char *path, ex_frame_fn *fn, void *arg, bool *cut, char why[EX_WHY_LEN]);

/* ---- frame.c ---- */

struct ex_datagram {
	struct rpwi_flow flow;
	uint16_t ip_id;
	uint8_t ttl, tos;
	const uint8_t *payload; /* of UDP */
	uint32_t len, wire_len;
};
/* False: not RoCEv2 over IPv4 or IPv6. */
bool rpwi_explain_frame(const struct ex_frame *f, struct ex_datagram *out);

/* ---- the model ---- */

enum ex_mark {
	EX_AGAIN = 1 << 0,        /* sent before */
	EX_LOST = 1 << 1,         /* the peer has not got it */
	EX_MAYBE_LOST = 1 << 2,   /* it, or its acknowledgement */
	EX_OUT_OF_ORDER = 1 << 3, /* arrived behind a gap: dropped, to come again */
	EX_NAK = 1 << 4,
	EX_RNR = 1 << 5,
	EX_REFUSED = 1 << 6, /* a SEND that met no receive */
	EX_BAD_ICRC = 1 << 7,
	EX_MALFORMED = 1 << 8,
	EX_TIMEOUT = 1 << 9, /* sent again because nothing was heard */
	EX_GAP = 1 << 10,    /* no packet: PSNs that are not in the capture */
	EX_MARKS = 11,
};
extern const char *const rpwi_explain_mark_name[EX_MARKS]; /* keys: "again" */

/* States as far as packets show them. QP states are those of enum ibv_qp_state with UNKNOWN before
 * them. */
enum ex_cm {
	EX_CM_NONE,
	EX_CM_REQ_SENT,
	EX_CM_REQ_RCVD,
	EX_CM_REP_SENT,
	EX_CM_REP_RCVD,
	EX_CM_ESTABLISHED,
	EX_CM_DREQ_SENT,
	EX_CM_DREQ_RCVD,
	EX_CM_TIMEWAIT,
	EX_CM_REJECTED,
	EX_CM_STATES
};
enum ex_qp { EX_QP_NONE, EX_QP_INIT, EX_QP_RTR, EX_QP_RTS, EX_QP_ERR, EX_QP_STATES };
extern const char *const rpwi_explain_cm_name[EX_CM_STATES],
	*const rpwi_explain_qp_name[EX_QP_STATES];
struct ex_state {
	uint8_t cm, qp;
};

enum { EX_NO_TALK = UINT32_MAX };
struct ex_pkt {
	uint64_t time_ns, seen_ns; /* seen_ns: at the receiver, from its own capture; 0 */
	uint64_t moved_ns;         /* by so much its stamp was too late to be true */
	uint32_t number;           /* in its file, from 1: as Wireshark counts */
	uint32_t seen_number;      /* likewise, in the receiver's */
	uint8_t file, seen_file, direction;
	uint8_t side; /* 0: from talk->end[0] */
	uint8_t ttl, tos;
	bool undecoded, cut; /* cut: not captured as a whole */
	/* of an undecoded one: what NICs send and the device knows nothing of */
	enum ex_foreign { EX_NOT_FOREIGN, EX_CNP, EX_FLUSH } foreign;
	uint16_t ip_id;
	uint16_t marks;
	struct ex_state state[2]; /* after it */
	uint32_t talk;
	struct rpwi_flow flow;
	struct rpwi_pkt p; /* payload: NULL */
	uint32_t len;      /* UDP payload, as on the wire */
	uint32_t key;      /* of the bytes: the same packet in another capture has the same */
	uint8_t *raw;      /* EX_KEEP_BYTES, or a whole management datagram */
	uint16_t raw_len;
	const char *why; /* key of the reason why it was sent, NULL: what its kind says */
	uint32_t gap_to; /* EX_GAP: PSNs p.psn .. gap_to */
	char *comment;
};
static inline bool ex_is_cm(const struct ex_pkt *k)
{
	return !k->undecoded && k->p.dqpn == RPWI_GSI_QPN && rpwi_pkt_svc(&k->p) == RPWI_SVC_UD;
}
/* Does it ask the other QP for something, in the order of PSNs? */
static inline bool ex_is_request(const struct ex_pkt *k)
{
	return k->foreign ? k->foreign == EX_FLUSH : rpwi_op_is_request(rpwi_pkt_op(&k->p));
}
/* False where it is no message of the connection manager. */
bool rpwi_explain_cm(const struct ex_pkt *k, struct rpwi_cm_msg *m);

struct ex_end {
	struct rpwi_addr addr;
	uint32_t qpn, comm_id;
	bool has_qpn, has_comm_id;
	uint64_t packets, bytes, messages, resent, naks, rnrs, lost;
};
enum ex_kind { EX_RC, EX_UC, EX_UD, EX_SIDR, EX_OTHER };
struct ex_talk {
	enum ex_kind kind;
	bool has_cm, paired;
	struct ex_end end[2]; /* 0: the active side, or who sent first */
	uint16_t port;        /* of the service ID */
	uint8_t port_space;
	uint32_t first_psn[2];
	bool has_psn[2];
	uint32_t mtu;
	uint32_t *row; /* indices of packets, in time */
	uint32_t rows, rows_room;
	/* the story */
	const char *outcome; /* key */
	unsigned outcome_number;
	uint8_t outcome_side;
	uint32_t diagnoses; /* bits of enum ex_diagnosis */
	uint32_t cm_retries;
	struct ex_fold *fold;
	uint32_t folds;
};
/* enum ex_diagnosis, in the order of words.json, in which they are shown. Those of a program
 * (diagnose.c) come from its facts, those of a capture (story.c) from its packets; what both can
 * say has one entry: English and Chinese. */
struct ex_words {
	const char *key, *text[2];
};
enum ex_language { EX_ENGLISH, EX_CHINESE };
extern const struct ex_words rpwi_explain_diagnosis[EX_DIAGNOSES];
/* Concepts, in the order in which they are looked for in a line; the key is a word of it. */
extern const struct ex_words rpwi_explain_word[];
extern const unsigned rpwi_explain_words;

/* Rows from..to of a talk (positions, not packets) are shown as one line until they are
 * unfolded. */
struct ex_fold {
	uint32_t from, to;
};

struct ex_model {
	unsigned files;
	const char *file_name[EX_FILES_MAX];
	uint32_t file_packets[EX_FILES_MAX];
	bool file_cut[EX_FILES_MAX];
	int64_t file_shift_ns[EX_FILES_MAX]; /* its clock was moved forward by so much */
	struct ex_pkt *pkt;
	uint32_t pkts, pkts_room;
	/* not RoCEv2; over EX_PACKETS_MAX; RoCEv2 that could not be read */
	uint64_t other_frames, beyond, undecoded;
	struct ex_talk *talk;
	uint32_t talks, talks_room;
	uint64_t start_ns, moved; /* moved: packets whose stamps were */
	bool out_of_memory;
};

void rpwi_explain_pkt_free(struct ex_pkt *k); /* what it holds */
/* explain.c: captures become the whole model. An exit status, said to the user if it is not CLI_OK.
 * It is to be unloaded in any case. */
int rpwi_explain_load(struct ex_model *m, char **files, unsigned count);
void rpwi_explain_unload(struct ex_model *m);
/* merge.c: puts m->pkt, as read, in its order. 0 or -ENOMEM. */
int rpwi_explain_merge(struct ex_model *m);
/* talk.c: from m->pkt in time to m->talk with their rows. 0 or -ENOMEM. */
int rpwi_explain_talks(struct ex_model *m);
/* story.c: fills marks, states, reasons, counts, outcomes, folds. May add packets of mark EX_GAP. 0
 * or -ENOMEM. */
int rpwi_explain_story(struct ex_model *m);
/* a zeroed one at the end; NULL: no memory. Pointers to others are no longer good */
struct ex_pkt *rpwi_explain_add(struct ex_model *m);
int rpwi_explain_add_row(struct ex_talk *t, uint32_t pkt);

/* fields.c: "RC SEND_ONLY", "CM REQ", and what a reader looks for first: "PSN 17, 64 bytes". */
const char *rpwi_explain_label(const struct ex_pkt *k, char out[64]);
const char *rpwi_explain_detail(const struct ex_pkt *k, char out[160]);
const char *rpwi_explain_addr(const struct rpwi_addr *a, char out[CLI_GID_LEN]);
/* Every header field: group ("BTH"), key ("psn"), value. */
typedef void ex_field_fn(void *arg, const char *group, const char *key, const char *value);
void rpwi_explain_fields(const struct ex_pkt *k, ex_field_fn *fn, void *arg);

/* place.c: the bytes of a field, counted from the BTH. Length 0: they were not kept. */
struct ex_place {
	unsigned at, len;
};
struct ex_place rpwi_explain_place(const struct ex_pkt *k, const char *group, const char *key);

/* diagnose.c: what follows from the facts of one QP: bits of enum ex_diagnosis. */
uint32_t rpwi_explain_diagnose(const struct rpwi_explain_facts *f);

/* account.c: the events of one process, as lines in columns on *to. NULL: no memory. */
struct ex_account;
struct ex_account *rpwi_explain_account(FILE *to, struct rpwi_explain_log *log);
/* The lines that the program has put. */
void rpwi_explain_account_show(struct ex_account *a);
/* The summary; frees it. */
void rpwi_explain_account_end(struct ex_account *a);

/* text.c, html.c. 0 or -errno. */
int rpwi_explain_text(const struct ex_model *m, FILE *to, bool colours, unsigned width);
int rpwi_explain_html(const struct ex_model *m, FILE *to);

#endif
