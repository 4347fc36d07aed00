/* SPDX-License-Identifier: BSD-3-Clause */
/* recv.c - `ropeway recv`: listens, and lets senders put files below one directory. */
#include "cli/files/recv.h"
#include "cli/options.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway recv"

struct options {
	const char *listen, *key_file, *dir;
	bool has_key, once, quiet, overwrite, links;
};

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg) { recv_session_begin(arg, ep); }

static int serve(struct receiver *r, bool once)
{
	struct pollfd p = {.fd = rpw_context_fd(r->c), .events = POLLIN};
	uint64_t moved_ns = 0;

	while (!once || !(r->good + r->bad)) {
		uint64_t now_ns = rpwi_now_ns();
		bool more = recv_session_work(r, now_ns);
		if (rpw_context_progress(r->c) > 0 || more) {
			moved_ns = now_ns;
			continue;
		}
		if (now_ns - moved_ns < FILES_SPIN_NS)
			continue;
		int rc = rpw_context_arm(r->c);
		if (rc < 0)
			return rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
		if (rc == RPW_OK && poll(&p, 1, 1000) < 0 && errno != EINTR)
			return rpwi_cli_fail(CLI_FAILED, NAME, "poll: %s", strerror(errno));
		recv_session_timers(r, rpwi_now_ns());
	}
	return r->bad ? CLI_FAILED : CLI_OK;
}

/* Who can reach it, and what they may do. */
static void print_start(const struct options *o, int port)
{
	const char *what = o->overwrite ? "add and replace files" : "add files, and replace none";

	if (!o->listen)
		printf("listening on port %d%s for files to %s\n", port,
			o->has_key ? "" : " of 127.0.0.1", o->dir);
	else
		printf("listening on port %d (%s) for files to %s\n", port, o->listen, o->dir);
	if (!o->has_key && !o->listen)
		printf("no key: every user of this host can %s there. For other hosts, give a "
		       "key\n(--key-file), or an address (--listen)\n",
			what);
	else if (!o->has_key)
		printf("no key: any program that reaches that port can %s there\n", what);
	else if (o->overwrite)
		printf("any sender with the key can %s there\n", what);
	fflush(stdout);
}

static int run(const struct options *o)
{
	rpw_context_options co = {.size = sizeof(co), .key_file = o->key_file};
	struct receiver r = {
		.quiet = o->quiet, .store = {.overwrite = o->overwrite, .any_links = o->links}};
	char listen[32];
	struct store_why why;
	rpw_listener *l;

	snprintf(listen, sizeof(listen), "%s:" FILES_PORT, o->has_key ? "" : "127.0.0.1");
	if (store_open(&r.store, o->dir, &why))
		return rpwi_cli_fail(CLI_FAILED, NAME, "%s", why.text);
	if (rpw_context_create(&co, &r.c) < 0)
		return rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
	int status = CLI_FAILED;
	if (rpw_listener_create(r.c, o->listen ? o->listen : listen, accepted, &r, &l) < 0) {
		rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
	} else {
		if (!o->quiet)
			print_start(o, rpw_listener_port(l));
		rpwi_cli_when_stopped(NAME, "stopped: what has arrived is kept in NAME" FILES_PART
					    " until its sender sends it again");
		status = serve(&r, o->once);
	}
	recv_session_end_all(&r);
	rpw_context_destroy(r.c);
	close(r.store.root);
	return status;
}

static const struct cli_option option[] = {
	{"listen", 'l', CLI_ADDRESS, "ADDRESS",
		"host:port, or :port on all addresses; :0 is any free port (default: "
		"port " FILES_PORT ", without a key on 127.0.0.1, which only this host reaches; "
		"with one on all addresses)",
		CLI_INTO(struct options, listen)},
	{"key-file", 'k', CLI_FILE, "FILE",
		"only senders with the same key; names, contents and checksums are encrypted",
		CLI_INTO(struct options, key_file)},
	{"overwrite", 'w', CLI_FLAG, NULL, "replace existing files of the same name",
		CLI_INTO(struct options, overwrite)},
	{"links", 'L', CLI_FLAG, NULL,
		"accept symbolic links that lead anywhere, from senders with --links; they are "
		"never followed",
		CLI_INTO(struct options, links)},
	{"once", '1', CLI_FLAG, NULL,
		"exit after the first sender: exit status 0 if all of its files are here",
		CLI_INTO(struct options, once)},
	{"quiet", 'q', CLI_FLAG, NULL, "print errors only", CLI_INTO(struct options, quiet)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[OPTIONS] [DIR]",
	.about = "Receives files and directories from `ropeway send` into DIR (default: the "
		 "current directory), from any number of senders. Whatever a sender "
		 "sends, nothing outside of DIR is touched, no existing file is replaced (an "
		 "identical one counts as received), existing directories keep their mode, "
		 "and no name directly in DIR may begin with a dot.",
	.option = option,
	.after = "A file has the name NAME" FILES_PART
		 " until it is complete and its checksum is right. After a broken connection, "
		 "sending it again continues where it stopped.",
	.operands_most = 1,
	.operand = CLI_OPERAND_FOLDER,
};

int rpwi_cli_recv(int argc, char **argv)
{
	struct options o = {0};
	int status = cli_options_parse(&command, &o, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	o.dir = argc ? argv[0] : ".";
	const char *key_of_environment = getenv("ROPEWAY_KEY_FILE");
	o.has_key = o.key_file || (key_of_environment && *key_of_environment);
	return run(&o);
}
