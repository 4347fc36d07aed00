/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.c - `ropeway explain`: options, and how captures become a model (explain.h). */
#include "cli/explain/explain.h"
#include "cli/options.h"

#include "base/hash.h"
#include "wire/icrc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ropeway explain"

struct options {
	const char *output, *color;
};
static const char *const when[] = {"always", "never", "auto", NULL};
static const struct cli_option option[] = {
	{"output", 'o', CLI_FILE, "PAGE", "write the page to PAGE (- for standard output)",
		CLI_INTO(struct options, output)},
	{"color", 'c', CLI_CHOICE, "WHEN", "colors on the terminal: always, never or auto",
		.words = when, .preset = "auto", CLI_INTO(struct options, color)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[-o PAGE.html] FILE...",
	.about = "Shows the conversations in captures as a ladder: both sides, each packet as an "
		 "arrow, the states of QPs and connections, and which packets were lost, sent "
		 "again or refused, and why; on the terminal, or as one self-contained page "
		 "(English and Chinese) that explains each packet and state on a "
		 "click.\n\nFILE is pcapng or pcap, by `ropeway run --pcap`, tcpdump, tshark or "
		 "dumpcap, as it is or compressed by gzip; - is standard input. With the captures "
		 "of "
		 "both sides, the times at both ends and the true losses show.",
	.option = option,
	.operands_least = 1,
	.operands_most = EX_FILES_MAX,
	.operand = CLI_OPERAND_CAPTURE,
	.missing = "no capture given",
};

/* ---- reading ---- */

struct ex_pkt *rpwi_explain_add(struct ex_model *m)
{
	if (m->pkts == m->pkts_room) {
		uint32_t room = m->pkts_room ? m->pkts_room * 2 : 256;
		struct ex_pkt *more = realloc(m->pkt, room * sizeof(*more));
		if (!more) {
			m->out_of_memory = true;
			return NULL;
		}
		m->pkt = more;
		m->pkts_room = room;
	}
	struct ex_pkt *k = &m->pkt[m->pkts++];
	*k = (struct ex_pkt){.talk = EX_NO_TALK};
	return k;
}

/* A packet that was not captured as a whole is decoded as if the rest of it were zeros. */
static int decode(const struct ex_datagram *d, struct rpwi_pkt *p)
{
	uint8_t whole[UINT16_MAX + 1];
	if (d->len == d->wire_len)
		return rpwi_pkt_decode(d->payload, d->len, p);
	memset(whole, 0, sizeof(whole));
	memcpy(whole, d->payload, d->len);
	return rpwi_pkt_decode(whole, RPWI_MIN(d->wire_len, (uint32_t)sizeof(whole)), p);
}

static void decode_bth_alone(const struct ex_datagram *d, struct rpwi_pkt *p)
{
	const uint8_t *b = d->payload;
	*p = (struct rpwi_pkt){.opcode = b[0],
		.pkey = rpwi_get_be16(b + 2),
		.dqpn = rpwi_get_be24(b + 5),
		.psn = rpwi_get_be24(b + 9)};
}

/* A congestion notification is a BTH and 16 bytes of zero (IB A17.9.3); a FLUSH has an FETH of 4
 * bytes and a RETH (IB A19), and takes a PSN as a WRITE does. */
static enum ex_foreign foreign(const struct ex_datagram *d, struct rpwi_pkt *p)
{
	enum { CNP = RPWI_SVC_CNP | 1, FLUSH = RPWI_SVC_RC | 0x1c, FETH = 4, RETH = 16 };
	const uint8_t *b = d->payload;
	if (d->len < RPWI_BTH_LEN + 16)
		return EX_NOT_FOREIGN;
	p->becn = b[4] & 0x40;
	p->fecn = b[4] & 0x80;
	p->ackreq = b[8] & 0x80;
	if (b[0] == CNP && d->wire_len == RPWI_BTH_LEN + 16 + RPWI_ICRC_LEN)
		return EX_CNP;
	if (b[0] != FLUSH || d->wire_len != RPWI_BTH_LEN + FETH + RETH + RPWI_ICRC_LEN ||
		d->len < RPWI_BTH_LEN + FETH + RETH)
		return EX_NOT_FOREIGN;
	b += RPWI_BTH_LEN;
	p->imm_be = rpwi_get_be32(b); /* no packet has both */
	p->va = rpwi_get_be64(b + FETH);
	p->rkey = rpwi_get_be32(b + FETH + 8);
	p->dma_len = rpwi_get_be32(b + FETH + 12);
	return EX_FLUSH;
}

/* Headers and ICRC tell two packets apart; the rest is in the ICRC. */
static uint32_t key_of(const struct ex_datagram *d)
{
	uint64_t h = rpwi_hash(RPWI_HASH, d->payload, RPWI_MIN(d->len, (uint32_t)RPWI_HDR_MAX));
	h = rpwi_hash(h, d->flow.src.bytes, 16);
	h = rpwi_hash(h, d->flow.dst.bytes, 16);
	if (d->len == d->wire_len && d->len >= RPWI_ICRC_LEN)
		h = rpwi_hash(h, d->payload + d->len - RPWI_ICRC_LEN, RPWI_ICRC_LEN);
	return (uint32_t)(h ^ h >> 32);
}

static bool keep_bytes(struct ex_pkt *k, const struct ex_datagram *d)
{
	size_t want = ex_is_cm(k) ? (size_t)k->p.hdr_len + RPWI_MAD_LEN : EX_KEEP_BYTES;
	k->raw_len = (uint16_t)RPWI_MIN(want, (size_t)d->len);
	k->raw = malloc(k->raw_len ? k->raw_len : 1);
	if (k->raw)
		memcpy(k->raw, d->payload, k->raw_len);
	return k->raw;
}

struct reading {
	struct ex_model *m;
	uint8_t file;
	uint32_t number;
};

static bool on_frame(void *arg, const struct ex_frame *f)
{
	struct reading *r = arg;
	struct ex_datagram d;
	r->number++;
	if (!rpwi_explain_frame(f, &d)) {
		r->m->other_frames++;
		return true;
	}
	r->m->file_packets[r->file]++;
	if (r->m->pkts >= EX_PACKETS_MAX) {
		r->m->beyond++;
		return true;
	}
	struct ex_pkt *k = rpwi_explain_add(r->m);
	if (!k)
		return false;
	k->time_ns = f->time_ns;
	k->number = r->number;
	k->file = r->file;
	k->direction = (uint8_t)f->direction;
	k->flow = d.flow;
	k->ttl = d.ttl;
	k->tos = d.tos;
	k->ip_id = d.ip_id;
	k->len = d.wire_len;
	k->cut = d.len < d.wire_len;
	k->key = key_of(&d);
	if (decode(&d, &k->p)) {
		decode_bth_alone(&d, &k->p);
		k->undecoded = true;
		k->foreign = foreign(&d, &k->p);
		r->m->undecoded += !k->foreign;
	}
	k->p.payload = NULL;
	uint16_t id = d.ip_id;
	if (!k->cut && d.len >= RPWI_BTH_LEN + RPWI_ICRC_LEN &&
		rpwi_icrc_check(&d.flow, d.payload, d.len, &id) == RPWI_ICRC_BAD)
		k->marks |= EX_BAD_ICRC;
	if (f->comment[0])
		k->comment = strdup(f->comment);
	if (!keep_bytes(k, &d))
		r->m->out_of_memory = true;
	return !r->m->out_of_memory;
}

void rpwi_explain_pkt_free(struct ex_pkt *k)
{
	free(k->raw);
	free(k->comment);
	k->raw = NULL;
	k->comment = NULL;
}

int rpwi_explain_load(struct ex_model *m, char **files, unsigned count)
{
	char why[EX_WHY_LEN];
	m->files = count;
	for (unsigned i = 0; i < count; i++) {
		const char *slash = strrchr(files[i], '/');
		struct reading r = {.m = m, .file = (uint8_t)i};
		m->file_name[i] = !strcmp(files[i], "-") ? "standard input"
				  : slash && slash[1]    ? slash + 1
							 : files[i];
		if (rpwi_explain_read(files[i], on_frame, &r, &m->file_cut[i], why))
			return rpwi_cli_fail(CLI_FAILED, NAME, "cannot read %s: %s", files[i], why);
		if (m->file_cut[i])
			rpwi_cli_fail(0, NAME,
				"warning: %s is damaged after packet %u (%s); what is before it is "
				"shown",
				files[i], r.number, why);
	}
	if (m->out_of_memory)
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	if (!m->pkts)
		return rpwi_cli_fail(CLI_FAILED, NAME,
			"there are no RoCEv2 packets (UDP port %d) in %s%s", RPWI_UDP_PORT,
			files[0], count > 1 ? " and the others" : "");
	if (rpwi_explain_merge(m) || rpwi_explain_talks(m) || rpwi_explain_story(m))
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	return CLI_OK;
}

void rpwi_explain_unload(struct ex_model *m)
{
	for (uint32_t i = 0; i < m->pkts; i++)
		rpwi_explain_pkt_free(&m->pkt[i]);
	for (uint32_t i = 0; i < m->talks; i++) {
		free(m->talk[i].row);
		free(m->talk[i].fold);
	}
	free(m->pkt);
	free(m->talk);
}

/* ---- writing ---- */

static int write_page(const struct ex_model *m, const char *file)
{
	bool to_stdout = !strcmp(file, "-");
	FILE *to = to_stdout ? stdout : fopen(file, "we");
	if (!to)
		return rpwi_cli_fail(
			CLI_FAILED, NAME, "cannot write %s: %s", file, strerror(errno));
	errno = 0;
	int rc = rpwi_explain_html(m, to);
	bool failed = ferror(to) || (to_stdout ? fflush(to) : fclose(to)) || rc;
	if (failed)
		return rpwi_cli_fail(
			CLI_FAILED, NAME, "cannot write %s: %s", file, strerror(rc ? -rc : errno));
	if (!to_stdout)
		fprintf(stderr, NAME ": %u packets in %u conversation%s: %s\n", m->pkts, m->talks,
			m->talks == 1 ? "" : "s", file);
	return CLI_OK;
}

static int write_text(const struct ex_model *m, const struct options *o)
{
	struct winsize w = {0};
	bool tty = isatty(STDOUT_FILENO);
	unsigned width = tty && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 100;
	const char *no_color = getenv("NO_COLOR");
	bool colours = !strcmp(o->color, "always") ||
		       (!strcmp(o->color, "auto") && tty && !(no_color && *no_color));
	return rpwi_explain_text(m, stdout, colours, width) ? CLI_FAILED : CLI_OK;
}

int rpwi_cli_explain(int argc, char **argv)
{
	struct options o = {0};
	struct ex_model m = {0};
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	status = rpwi_explain_load(&m, argv, (unsigned)argc);
	if (!status)
		status = o.output ? write_page(&m, o.output) : write_text(&m, &o);
	rpwi_explain_unload(&m);
	return status;
}
