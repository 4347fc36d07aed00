/* plugin_check.c - `ropeway plugin check`: options, and how what the conformance run finds is shown. What is tried is ncclnet/conform.c's. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/plugin.h"
#include "ncclnet/conform.h"

#define CHECK_NAME "ropeway plugin check"

enum { COLUMNS = 110, TEXT_AT = 23, SIZE_LEAST = 4096, SIZE_MOST = 1 << 30, MESSAGES_MOST = 100000000 };

struct shown {
	const char *path;
	json_t *root, *lines; /* NULL: for people */
	struct conform_facts facts;
};

/* ---- for people ---- */

/* A paragraph, indented, from a column on. */
static void print_wrapped(const char *text)
{
	size_t room = COLUMNS - TEXT_AT, left = strlen(text);
	while (left) {
		size_t n = left;
		if (n > room) {
			n = room;
			while (n && text[n] != ' ')
				n--;
			n = n ? n : room;
		}
		printf("%*s%.*s\n", TEXT_AT, "", (int)n, text);
		text += n;
		left -= n;
		while (*text == ' ') {
			text++;
			left--;
		}
	}
}

/* "v5 to v9, v11" */
static void list_versions(unsigned exported, char *out, size_t room)
{
	size_t n = 0;
	*out = '\0';
	for (int v = NCCL_NET_V_FIRST; v <= NCCL_NET_V_LAST; v++) {
		int last = v;
		if (!(exported >> v & 1))
			continue;
		while (exported >> (last + 1) & 1)
			last++;
		n += (size_t)snprintf(out + n, room - n, last > v ? "%sv%d to v%d" : "%sv%d", n ? ", " : "", v, last);
		v = last;
	}
}

/* What a release takes: the highest that both know; 0: none. */
static int taken(const struct conform_release *r, unsigned exported)
{
	for (int v = r->last; v >= r->first; v--)
		if (exported >> v & 1)
			return v;
	return 0;
}

static void print_facts(const struct shown *s)
{
	char versions[100], path[500];
	list_versions(s->facts.exported, versions, sizeof(versions));
	printf("%s exports %s; checked is v%d.\n\nNCCL           takes\n", rpwi_cli_printable(s->path, path, sizeof(path)), versions, s->facts.abi);
	for (const struct conform_release *r = conform_releases; r->name; r++) {
		int v = taken(r, s->facts.exported);
		printf(v ? "%-13s  v%d\n" : "%-13s  none: it goes on to its own transports\n", r->name, v);
	}
	putchar('\n');
	fflush(stdout);
}

static void print_line(const struct conform_line *l)
{
	char text[sizeof(l->text)];
	rpwi_cli_printable(l->text, text, sizeof(text));
	bool beside = l->verdict <= CONFORM_SKIP && strlen(l->what) + strlen(text) + TEXT_AT + 3 <= COLUMNS;
	printf("%-6s %-15s %s%s%s%s\n", conform_verdict_name[l->verdict], l->id, l->what, beside && *text ? " (" : "", beside ? text : "",
		beside && *text ? ")" : "");
	if (!beside)
		print_wrapped(text);
	fflush(stdout);
}

/* ---- for programs ---- */

static void keep_facts(struct shown *s)
{
	json_t *exported = json_array(), *releases = json_array();
	for (int v = NCCL_NET_V_FIRST; v <= NCCL_NET_V_LAST; v++)
		if (s->facts.exported >> v & 1)
			json_array_append_new(exported, json_integer(v));
	for (const struct conform_release *r = conform_releases; r->name; r++) {
		int v = taken(r, s->facts.exported);
		json_array_append_new(releases, json_pack("{s:s, s:o}", "nccl", r->name, "abi", v ? json_integer(v) : json_null()));
	}
	json_object_set_new(s->root, "abi", json_integer(s->facts.abi));
	json_object_set_new(s->root, "exported", exported);
	json_object_set_new(s->root, "releases", releases);
}

static void on_facts(void *arg, const struct conform_facts *f)
{
	struct shown *s = arg;
	s->facts = *f;
	if (s->root)
		keep_facts(s);
	else
		print_facts(s);
}

static void on_line(void *arg, const struct conform_line *l)
{
	struct shown *s = arg;
	char text[sizeof(l->text)];
	if (!s->root)
		print_line(l);
	else
		json_array_append_new(s->lines, json_pack("{s:s, s:s, s:s, s:s}", "id", l->id, "property", l->what, "verdict",
							l->verdict == CONFORM_SKIP ? "skip" : conform_verdict_name[l->verdict], "text",
							rpwi_cli_printable(l->text, text, sizeof(text))));
}

/* ---- options ---- */

int rpwi_plugin_check_usage(void)
{
	puts("Usage: " CHECK_NAME " FILE.so [OPTIONS]\n\n"
	     "Does a NCCL network plugin do what NCCL expects of it? Tried between two\n"
	     "processes of this host, one line for each property: pass; quirk, which NCCL or\n"
	     "ropeway live with; or fail. A plugin that crashes or hangs costs a line. The\n"
	     "exit status is 1 if one failed.\n\n"
	     "      --abi vN            this version of the plugin API (default: the highest,\n"
	     "                          as NCCL; FILE.so@vN does the same)\n"
	     "      --timeout SECONDS   for each step (default 5)\n"
	     "      --largest SIZE      of a message (default 64M)\n"
	     "      --messages N        of each size, for the property `polled` (default 100,\n"
	     "                          of large ones 10)\n"
	     "      --device N          of the plugin (default 0)\n"
	     "      --only TEXT         properties whose name has this in it\n"
	     "      --json              print JSON");
	return CLI_OK;
}

enum { OPT_ABI = 256, OPT_TIMEOUT, OPT_LARGEST, OPT_MESSAGES, OPT_DEVICE, OPT_ONLY, OPT_JSON };

static int parse_value(struct conform_options *o, int opt, const char *v)
{
	uint64_t bytes = 0;
	double n = 0;
	int rc;
	switch (opt) {
	case OPT_ABI:
		return rpwi_plugin_abi(v, &o->abi);
	case OPT_TIMEOUT:
		rc = rpwi_plugin_number(v, 0.1, 3600, &n);
		o->timeout_ms = (unsigned)(n * 1000);
		return rc;
	case OPT_LARGEST:
		rc = rpwi_cli_parse_size(v, &bytes);
		o->size_most = bytes;
		return rc || bytes < SIZE_LEAST || bytes > SIZE_MOST ? -EINVAL : 0;
	case OPT_MESSAGES:
		rc = rpwi_plugin_number(v, 1, MESSAGES_MOST, &n);
		o->messages = (unsigned)n;
		return rc;
	case OPT_DEVICE:
		rc = rpwi_plugin_number(v, 0, 1023, &n);
		o->device = (int)n;
		return rc;
	case OPT_ONLY:
		o->only = v;
		return 0;
	}
	return -EINVAL;
}

static int parse(struct conform_options *o, bool *json, const char **file, int argc, char **argv)
{
	static const struct option longs[] = {
		{"abi", required_argument, NULL, OPT_ABI},
		{"timeout", required_argument, NULL, OPT_TIMEOUT},
		{"largest", required_argument, NULL, OPT_LARGEST},
		{"messages", required_argument, NULL, OPT_MESSAGES},
		{"device", required_argument, NULL, OPT_DEVICE},
		{"only", required_argument, NULL, OPT_ONLY},
		{"json", no_argument, NULL, OPT_JSON},
		{"help", no_argument, NULL, 'h'},
		{},
	};
	int opt, at;
	while (at = -1, (opt = getopt_long(argc, argv, "h", longs, &at)) >= 0) {
		if (opt == '?')
			return rpwi_cli_usage(CHECK_NAME);
		if (opt == 'h')
			return rpwi_plugin_check_usage(), -1;
		if (opt == OPT_JSON)
			*json = true;
		else if (parse_value(o, opt, optarg)) {
			rpwi_cli_fail(CLI_USAGE, CHECK_NAME, "'%s' is no value for --%s", optarg, longs[at].name);
			return rpwi_cli_usage(CHECK_NAME);
		}
	}
	*file = optind < argc ? argv[optind++] : NULL;
	if (!*file || optind < argc) {
		rpwi_cli_fail(CLI_USAGE, CHECK_NAME, *file ? "'%s' is one too many" : "the plugin to check is expected, as in ./libnccl-net-ropeway.so%s",
			*file ? argv[optind] : "");
		return rpwi_cli_usage(CHECK_NAME);
	}
	return 0;
}

static bool any_id_has(const char *text)
{
	for (unsigned i = 0; conform_id(i, NULL); i++)
		if (strstr(conform_id(i, NULL), text))
			return true;
	return false;
}

static void finish(struct shown *s, const unsigned count[CONFORM_VERDICTS])
{
	if (!s->root) {
		printf("\n%u pass, %u quirk%s, %u fail", count[CONFORM_PASS], count[CONFORM_QUIRK], count[CONFORM_QUIRK] == 1 ? "" : "s", count[CONFORM_FAIL]);
		printf(count[CONFORM_SKIP] ? ", %u not for this plugin\n" : "\n", count[CONFORM_SKIP]);
		return;
	}
	for (int v = 0; v < CONFORM_VERDICTS; v++)
		json_object_set_new(s->root, v == CONFORM_SKIP ? "skip" : conform_verdict_name[v], json_integer(count[v]));
	json_object_set(s->root, "lines", s->lines);
	json_dumpf(s->root, stdout, JSON_INDENT(1));
	putchar('\n');
}

int rpwi_plugin_check(int argc, char **argv)
{
	struct shown s = {0};
	struct conform_options o = {.timeout_ms = CONFORM_TIMEOUT_MS, .size_most = CONFORM_SIZE_MOST, .facts = on_facts, .line = on_line, .arg = &s};
	unsigned count[CONFORM_VERDICTS];
	char why[400], path[512];
	bool json = false;
	int abi, rc = parse(&o, &json, &s.path, argc, argv);
	if (rc)
		return rc < 0 ? CLI_OK : rc;
	if (ncclnet_parse(s.path, path, sizeof(path), &abi, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, CHECK_NAME, "%s", why);
	if (o.only && !any_id_has(o.only))
		return rpwi_cli_fail(CLI_USAGE, CHECK_NAME, "no property has '%s' in its name", o.only);
	o.path = s.path = path;
	o.abi = abi ? abi : o.abi;
	if (json) {
		s.root = json_pack("{s:s}", "path", path);
		s.lines = json_array();
	}
	rc = conform_run(&o, count, why, sizeof(why));
	if (!rc)
		finish(&s, count);
	json_decref(s.lines);
	json_decref(s.root);
	if (rc)
		return rpwi_cli_fail(CLI_FAILED, CHECK_NAME, "%s", why);
	return count[CONFORM_FAIL] ? CLI_FAILED : CLI_OK;
}
