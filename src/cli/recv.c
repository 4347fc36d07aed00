/* recv.c - `ropeway recv`: listens, and lets senders put files below one directory. */
#include "cli/recv.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
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
		if (rpw_progress(r->c) > 0 || more) {
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
		printf("listening on port %d%s for files to %s\n", port, o->has_key ? "" : " of 127.0.0.1", o->dir);
	else
		printf("listening on port %d (%s) for files to %s\n", port, o->listen, o->dir);
	if (!o->has_key && !o->listen)
		printf("no key: every user of this host can %s there. For other hosts, give a key\n(--key-file), or an address (--listen)\n", what);
	else if (!o->has_key)
		printf("no key: whoever reaches that port can %s there\n", what);
	else if (o->overwrite)
		printf("whoever has the key can %s there\n", what);
	fflush(stdout);
}

static int run(const struct options *o)
{
	rpw_context_options co = {.size = sizeof(co), .key_file = o->key_file};
	struct receiver r = {.quiet = o->quiet, .store = {.overwrite = o->overwrite, .any_links = o->links}};
	char listen[32];
	struct store_why why;
	rpw_listener *l;

	signal(SIGXFSZ, SIG_IGN); /* a file that is too long for `ulimit -f` is an error like a full disk */
	snprintf(listen, sizeof(listen), "%s:%d", o->has_key ? "" : "127.0.0.1", FILES_PORT);
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
		status = serve(&r, o->once);
	}
	recv_session_end_all(&r);
	rpw_context_destroy(r.c);
	close(r.store.root);
	return status;
}

static void print_help(void)
{
	printf("Usage: ropeway recv [OPTIONS] [DIR]\n\n"
	       "Receives files and directories of `ropeway send` into DIR (the current one\n"
	       "unless given), from any number of senders. Whatever a sender says, nothing\n"
	       "outside of DIR is touched, no file that is there is replaced (an identical one\n"
	       "counts as received), no directory that is there changes its mode, and no name\n"
	       "directly in DIR begins with a dot.\n\n"
	       "  -l, --listen ADDRESS  host:port, or :port on all addresses; :0 is any free\n"
	       "                        port. Unless given, port %d: of 127.0.0.1 without a\n"
	       "                        key, which only this host reaches; of all addresses\n"
	       "                        with one\n"
	       "  -k, --key-file FILE   only senders with the same key; names, contents and\n"
	       "                        checksums are encrypted\n"
	       "  -w, --overwrite       replace files that are there by others of their names\n"
	       "  -L, --links           take symbolic links that lead anywhere, of senders with\n"
	       "                        --links. They are never followed\n"
	       "  -1, --once            end after the first sender: exit status 0 if all of its\n"
	       "                        files are here\n"
	       "  -q, --quiet           print errors only\n\n"
	       "A file has the name NAME%s until all of it is there and its checksum\n"
	       "is right. After a broken connection, sending it again goes on where it stopped.\n",
		FILES_PORT, FILES_PART);
}

static const struct option long_options[] = {{"help", no_argument, NULL, 'h'}, {"key-file", required_argument, NULL, 'k'}, {"links", no_argument, NULL, 'L'},
	{"listen", required_argument, NULL, 'l'}, {"once", no_argument, NULL, '1'}, {"overwrite", no_argument, NULL, 'w'}, {"quiet", no_argument, NULL, 'q'},
	{NULL, 0, NULL, 0}};

int rpwi_cli_recv(int argc, char **argv)
{
	struct options o = {.dir = "."};
	int c;

	while ((c = getopt_long(argc, argv, "hk:Ll:1qw", long_options, NULL)) != -1) {
		switch (c) {
		case 'h':
			print_help();
			return CLI_OK;
		case 'k':
			o.key_file = optarg;
			break;
		case 'L':
			o.links = true;
			break;
		case 'l':
			o.listen = optarg;
			break;
		case '1':
			o.once = true;
			break;
		case 'q':
			o.quiet = true;
			break;
		case 'w':
			o.overwrite = true;
			break;
		default:
			return rpwi_cli_usage(NAME);
		}
	}
	if (optind < argc)
		o.dir = argv[optind++];
	if (optind < argc) {
		rpwi_cli_fail(CLI_USAGE, NAME, "unexpected argument '%s': one directory is enough", argv[optind]);
		return rpwi_cli_usage(NAME);
	}
	const char *key_of_environment = getenv("ROPEWAY_KEY_FILE");
	o.has_key = o.key_file || (key_of_environment && *key_of_environment);
	return run(&o);
}
