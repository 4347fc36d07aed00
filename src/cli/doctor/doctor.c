/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c - `ropeway doctor`: diagnoses this machine, or the path to another: what prevents fast
 * transfers, and what to do about it. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway doctor"

static const char *const level_names[] = {
	[DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "FAIL"};

static const char *const side_names[] = {
	[DOCTOR_HERE] = "local", [DOCTOR_THERE] = "peer", [DOCTOR_BETWEEN] = "between"};

void doctor_add(struct doctor_report *r, enum doctor_level level, const char *what,
	const char *remedy, const char *fmt, ...)
{
	struct doctor_verdict *v = &r->verdict[r->count];
	va_list ap;

	if (r->count == DOCTOR_VERDICTS_MAX)
		return;
	r->count++;
	*v = (struct doctor_verdict){.level = level, .side = r->side};
	/* a peer may have said any of the three */
	rpwi_cli_printable(what, v->what, sizeof(v->what));
	rpwi_cli_printable(remedy ? remedy : "", v->remedy, sizeof(v->remedy));
	va_start(ap, fmt);
	vsnprintf(v->text, sizeof(v->text), fmt, ap);
	va_end(ap);
	rpwi_cli_printable(v->text, v->text, sizeof(v->text));
}

json_t *doctor_json(const struct doctor_report *r)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < r->count; i++) {
		const struct doctor_verdict *v = &r->verdict[i];
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:s, s:s, s:o}", "verdict", level_names[v->level],
				"side", side_names[v->side], "what", v->what, "text", v->text,
				"remedy", v->remedy[0] ? json_string(v->remedy) : json_null()));
	}
	return list;
}

int doctor_take_json(struct doctor_report *r, const json_t *verdicts)
{
	const char *level, *what, *text;
	json_t *remedy, *v;
	size_t i;

	if (!json_is_array(verdicts))
		return -1;
	json_array_foreach(verdicts, i, v)
	{
		if (json_unpack(v, "{s:s, s:s, s:s, s:o}", "verdict", &level, "what", &what, "text",
			    &text, "remedy", &remedy))
			return -1;
		int n = 0;
		while (n < (int)RPWI_ARRAY_LEN(level_names) && strcmp(level_names[n], level) != 0)
			n++;
		if (n == (int)RPWI_ARRAY_LEN(level_names) || r->count == DOCTOR_VERDICTS_MAX)
			return -1;
		doctor_add(r, n, what, json_string_value(remedy), "%s", text);
	}
	return 0;
}

const char *doctor_last_error(char out[DOCTOR_ERROR_LEN])
{
	snprintf(out, DOCTOR_ERROR_LEN, "%s", rpw_last_error());
	char *advice = strstr(out, " (ropeway doctor");
	if (advice)
		*advice = '\0';
	return out;
}

/* Of one side, those of a level. */
static void print_side(
	const struct doctor_report *r, enum doctor_side side, enum doctor_level level, int width)
{
	static bool any;        /* a line has been printed */
	bool headed = !r->host; /* where there is one machine, nobody asks which it is */

	for (unsigned i = 0; i < r->count; i++) {
		const struct doctor_verdict *v = &r->verdict[i];
		if (v->side != side || v->level != level)
			continue;
		if (!headed)
			printf("%s%s%s:\n", any ? "\n" : "",
				side == DOCTOR_HERE    ? "this machine"
				: side == DOCTOR_THERE ? ""
						       : "this machine and ",
				side == DOCTOR_HERE ? "" : r->host);
		headed = any = true;
		printf("%-4s  %-*s  %s\n", level_names[v->level], width, v->what, v->text);
		if (v->remedy[0])
			printf("      %-*s  remedy: %s\n", width, "", v->remedy);
	}
}

static void print_text(const struct doctor_report *r)
{
	unsigned warnings = 0, failures = 0;
	int width = 0;

	for (unsigned i = 0; i < r->count; i++) {
		warnings += r->verdict[i].level == DOCTOR_WARN;
		failures += r->verdict[i].level == DOCTOR_FAIL;
		width = RPWI_MAX(width, (int)strlen(r->verdict[i].what));
	}
	/* What fails is read first; of that, what lies between the two, which was asked about. */
	for (int level = DOCTOR_FAIL; level > DOCTOR_OK; level--)
		for (int side = DOCTOR_BETWEEN; side >= DOCTOR_HERE; side--)
			print_side(r, (enum doctor_side)side, (enum doctor_level)level, width);
	for (int side = DOCTOR_HERE; side <= DOCTOR_BETWEEN; side++)
		print_side(r, (enum doctor_side)side, DOCTOR_OK, width);
	printf("%s%u verdict%s, %u warning%s, %u failure%s\n", r->host ? "\n" : "", r->count,
		r->count == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s", failures,
		failures == 1 ? "" : "s");
}

static int finish(const struct doctor_report *r, bool json)
{
	if (json) {
		json_t *root = json_pack(
			"{s:s, s:o}", "version", rpw_version(), "verdicts", doctor_json(r));
		int err = root ? json_dumpf(root, stdout, JSON_INDENT(2)) : -1;
		putchar('\n');
		json_decref(root);
		if (err)
			return rpwi_cli_fail(CLI_FAILED, NAME, "cannot write JSON");
	} else {
		print_text(r);
	}
	for (unsigned i = 0; i < r->count; i++)
		if (r->verdict[i].level == DOCTOR_FAIL)
			return CLI_FAILED;
	return CLI_OK;
}

/* "host", "host:port", "[v6]", "[v6]:port", "v6": the host alone, and what rpw_endpoint_create
 * takes. */
static int split(const char *peer, char host[256], char address[300])
{
	const char *end = *peer == '[' ? strchr(peer, ']') : NULL, *colon = strchr(peer, ':');
	bool is_bare_v6 = *peer != '[' && colon && strchr(colon + 1, ':');

	if (*peer == '[' && !end)
		return -1;
	const char *port = end                    ? (end[1] == ':' ? end + 2 : NULL)
			   : colon && !is_bare_v6 ? colon + 1
						  : NULL;
	size_t len = end                    ? (size_t)(end - peer - 1)
		     : colon && !is_bare_v6 ? (size_t)(colon - peer)
					    : strlen(peer);
	if (!len || len >= 256)
		return -1;
	snprintf(host, 256, "%.*s", (int)len, peer + (end ? 1 : 0));
	bool brackets = strchr(host, ':');
	snprintf(address, 300, "%s%s%s:%.15s", brackets ? "[" : "", host, brackets ? "]" : "",
		port ? port : DOCTOR_PORT_TEXT);
	return 0;
}

static int examine(const char *peer, const char *key_file, bool json)
{
	struct doctor_report *r = calloc(1, sizeof(*r));
	char host[256], address[300];

	if (peer && split(peer, host, address)) {
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
	return o.serve ? doctor_serve(
				 o.listen ? o.listen : ":" DOCTOR_PORT_TEXT, o.key_file, o.once)
		       : examine(argv[0], o.key_file, o.json);
}
