/* recv.c - `ropeway recv`: listens, and lets senders put files below one directory. */
#include "cli/recv.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway recv"

struct options {
	const char *listen, *key_file, *dir;
	bool once, quiet;
};

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg) { recv_session_begin(arg, ep); }

static int serve(struct receiver *r, bool once)
{
	struct pollfd p = {.fd = rpw_context_fd(r->c), .events = POLLIN};
	uint64_t moved_ns = 0;

	while (!once || !(r->good + r->bad)) {
		uint64_t now_ns = rpwi_now_ns();
		if (rpw_progress(r->c) > 0) {
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

static int run(const struct options *o)
{
	rpw_context_options co = {.size = sizeof(co), .key_file = o->key_file};
	struct receiver r = {.quiet = o->quiet};
	struct store_why why;
	rpw_listener *l;

	r.root = store_open(o->dir, &why);
	if (r.root < 0)
		return rpwi_cli_fail(CLI_FAILED, NAME, "%s", why.text);
	if (rpw_context_create(&co, &r.c) < 0)
		return rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
	int status = CLI_FAILED;
	if (rpw_listener_create(r.c, o->listen, accepted, &r, &l) < 0) {
		rpwi_cli_fail(CLI_FAILED, NAME, "%s", rpw_last_error());
	} else {
		printf("listening on port %d for files to %s\n", rpw_listener_port(l), o->dir);
		if (!o->key_file && !getenv("ROPEWAY_KEY_FILE"))
			printf("without --key-file, everybody who reaches that port can put files there\n");
		fflush(stdout);
		status = serve(&r, o->once);
	}
	recv_session_end_all(&r);
	rpw_context_destroy(r.c);
	close(r.root);
	return status;
}

static void print_help(void)
{
	printf("Usage: ropeway recv [OPTIONS] [DIR]\n\n"
	       "Receives files and directories of `ropeway send` into DIR (the current one\n"
	       "unless given), from any number of senders. Nothing outside of DIR is touched,\n"
	       "whatever a sender says.\n\n"
	       "  -l, --listen ADDRESS  host:port, or :port on all addresses; :%d unless\n"
	       "                        given; :0 is any free port\n"
	       "  -k, --key-file FILE   only senders with the same key; bytes of the control\n"
	       "                        connection are encrypted\n"
	       "  -1, --once            end after the first sender: exit status 0 if all of its\n"
	       "                        files are here\n"
	       "  -q, --quiet           no line for each sender\n\n"
	       "A file has the name NAME%s until all of it is there and its checksum\n"
	       "is right. After a broken connection, sending it again goes on where it stopped.\n",
		FILES_PORT, FILES_PART);
}

static const struct option long_options[] = {{"help", no_argument, NULL, 'h'}, {"key-file", required_argument, NULL, 'k'},
	{"listen", required_argument, NULL, 'l'}, {"once", no_argument, NULL, '1'}, {"quiet", no_argument, NULL, 'q'}, {NULL, 0, NULL, 0}};

int rpwi_cli_recv(int argc, char **argv)
{
	char listen[32];
	struct options o = {.listen = listen, .dir = "."};
	int c;

	snprintf(listen, sizeof(listen), ":%d", FILES_PORT);
	while ((c = getopt_long(argc, argv, "hk:l:1q", long_options, NULL)) != -1) {
		switch (c) {
		case 'h':
			print_help();
			return CLI_OK;
		case 'k':
			o.key_file = optarg;
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
	return run(&o);
}
