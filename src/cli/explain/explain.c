/* SPDX-License-Identifier: BSD-3-Clause */
/* explain.c - `ropeway explain`: options, and how captures become a model (explain.h). */
#include "cli/explain/explain.h"
#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ropeway explain"

struct options {
	const char *output, *color;
	bool events;
};
static const char *const when[] = {"always", "never", "auto", NULL};
static const struct cli_option option[] = {
	{"output", 'o', CLI_FILE, "PAGE", "write the page to PAGE (- for standard output)",
		CLI_INTO(struct options, output)},
	{"color", 'c', CLI_CHOICE, "WHEN", "colors on the terminal: always, never or auto",
		.words = when, .preset = "auto", CLI_INTO(struct options, color)},
	{"events", 'e', CLI_FLAG, NULL,
		"FILE has the events of a program, as lines of JSON: print them as `ropeway run "
		"--explain` does",
		CLI_INTO(struct options, events)},
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
	.operand = CLI_OPERAND_FILE,
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
	bool kept = rpwi_explain_packet_of(k, &d);
	r->m->undecoded += k->undecoded && !k->foreign;
	if (f->comment[0])
		k->comment = strdup(f->comment);
	if (!kept)
		r->m->out_of_memory = true;
	return !r->m->out_of_memory;
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
	if (o.events && (argc != 1 || o.output))
		return rpwi_cli_usage(NAME, "--events takes one FILE, and no --output");
	if (o.events)
		return rpwi_explain_events(argv[0]);
	status = rpwi_explain_load(&m, argv, (unsigned)argc);
	if (!status)
		status = o.output ? write_page(&m, o.output) : write_text(&m, &o);
	rpwi_explain_unload(&m);
	return status;
}
