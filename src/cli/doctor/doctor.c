/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c - `ropeway doctor`: diagnoses this machine, or the path to another: what prevents fast
 * transfers, and what to do about it. */
#include "cli/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME "ropeway doctor"

/* Of one side, those of a level. any: a line has been printed. */
static void print_side(const struct doctor_report *r, enum doctor_side side,
	enum doctor_level level, int width, bool *any)
{
	static const char *const before_host[] = {[DOCTOR_HERE] = "this machine",
		[DOCTOR_THERE] = "",
		[DOCTOR_BETWEEN] = "this machine and "};
	const char *host = side == DOCTOR_HERE ? "" : r->host;
	bool headed = !r->host; /* where there is one machine, nobody asks which it is */

	for (unsigned i = 0; i < r->count; i++) {
		const struct doctor_verdict *v = &r->verdict[i];
		if (v->side != side || v->level != level)
			continue;
		if (!headed)
			printf("%s%s%s:\n", *any ? "\n" : "", before_host[side], host);
		headed = *any = true;
		printf("%-4s  %-*s  %s\n", doctor_level_name[v->level], width, v->what, v->text);
		if (v->remedy[0])
			printf("      %-*s  remedy: %s\n", width, "", v->remedy);
	}
}

static void print_text(const struct doctor_report *r)
{
	unsigned warnings = 0, failures = 0;
	bool any = false;
	int width = 0;

	for (unsigned i = 0; i < r->count; i++) {
		warnings += r->verdict[i].level == DOCTOR_WARN;
		failures += r->verdict[i].level == DOCTOR_FAIL;
		width = RPWI_MAX(width, (int)strlen(r->verdict[i].what));
	}
	/* What fails is read first; of that, what lies between the two, which was asked about. */
	for (int level = DOCTOR_FAIL; level > DOCTOR_OK; level--)
		for (int side = DOCTOR_BETWEEN; side >= DOCTOR_HERE; side--)
			print_side(
				r, (enum doctor_side)side, (enum doctor_level)level, width, &any);
	for (int side = DOCTOR_HERE; side <= DOCTOR_BETWEEN; side++)
		print_side(r, (enum doctor_side)side, DOCTOR_OK, width, &any);
	printf("%s%u verdict%s, %u warning%s, %u failure%s\n", r->host ? "\n" : "", r->count,
		rpwi_cli_plural(r->count), warnings, rpwi_cli_plural(warnings), failures,
		rpwi_cli_plural(failures));
}

static int finish(const struct doctor_report *r, bool json)
{
	if (json) {
		json_t *root = json_pack(
			"{s:s, s:o}", "version", rpw_version(), "verdicts", doctor_json(r));
		if (rpwi_cli_json(NAME, root, JSON_INDENT(2)))
			return CLI_FAILED;
	} else {
		print_text(r);
	}
	for (unsigned i = 0; i < r->count; i++)
		if (r->verdict[i].level == DOCTOR_FAIL)
			return CLI_FAILED;
	return CLI_OK;
}

static int examine(const char *peer, const char *key_file, bool json)
{
	struct doctor_report *r = calloc(1, sizeof(*r));
	char host[CLI_HOST_LEN], address[CLI_ADDRESS_LEN];

	if (peer && rpwi_cli_address(peer, DOCTOR_PORT_TEXT, host, address)) {
		free(r);
		return rpwi_cli_usage(NAME, "invalid peer '%s': expected HOST or HOST:PORT", peer);
	}
	if (!r)
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	doctor_local(r);
	r->host = peer ? host : NULL;
	if (peer)
		doctor_peer(r, address, key_file);
	int status = finish(r, json);
	free(r);
	return status;
}

struct options {
	const char *key_file, *listen;
	bool json, serve, once;
};
static const struct cli_option option[] = {
	{"json", 'j', CLI_FLAG, NULL,
		"print an object: version, verdicts (verdict, side, what, text, remedy)",
		CLI_INTO(struct options, json)},
	{"key-file", 'k', CLI_FILE, "FILE", "the pre-shared key of both sides",
		CLI_INTO(struct options, key_file)},
	{"serve", 's', CLI_FLAG, NULL, "be the peer that another doctor examines",
		CLI_INTO(struct options, serve)},
	{"listen", 'l', CLI_ADDRESS, "ADDRESS",
		"listen at HOST:PORT or :PORT (default :" DOCTOR_PORT_TEXT ")",
		CLI_INTO(struct options, listen)},
	{"once", '1', CLI_FLAG, NULL, "exit after the first client",
		CLI_INTO(struct options, once)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[--json] [--key-file FILE] [PEER[:PORT]]\n--serve [--once] [--listen ADDRESS] "
		 "[--key-file FILE]",
	.about = "Checks this machine, and with PEER the path to a `ropeway doctor --serve` "
		 "there and back. Each check prints a line: ok, warn or FAIL, with the "
		 "remedy. It checks devices and GIDs, locked memory, socket buffers, single-copy "
		 "shared memory, transports and versions; with PEER also its TCP port, "
		 "UDP port 4791 and the MTU, both ways.",
	.option = option,
	.after = "Exit status 1 if there was a FAIL.",
	.operands_most = 1,
	.operand = CLI_OPERAND_HOST,
};

int rpwi_cli_doctor(int argc, char **argv)
{
	struct options o = {0};
	/* It looks whether others can have port 4791: no helper of its own shall hold it. */
	setenv("ROPEWAY_HELPER", "0", 1);
	int status = cli_options_parse(&command, &o, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	if (o.serve ? argc || o.json : o.listen || o.once)
		return rpwi_cli_usage(NAME,
			"--serve takes no PEER and no --json; --listen and --once need --serve");
	if (o.serve)
		return doctor_serve(o.listen ? o.listen : ":" DOCTOR_PORT_TEXT, o.key_file, o.once);
	return examine(argv[0], o.key_file, o.json);
}
