/* SPDX-License-Identifier: BSD-3-Clause */
/* contract.c - runs the cases of the contract: each in a process of its own, over each transport
 * that can be used here. Told in TAP; `contract --list` says which calls each is about. */
#include "contract.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

const char *contract_transport = "tcp";

static const struct contract_case *const groups[] = {context_cases, connect_cases, request_cases,
	wait_cases, posting_cases, message_cases, object_cases, loan_cases, memory_cases,
	end_cases};
enum { GROUPS = sizeof(groups) / sizeof(*groups), CASE_SECONDS = 100 };

bool transport_is_hosted(void) { return strchr(contract_transport, ':') != NULL; }
const char *transport_name(void)
{
	static char name[16];
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(contract_transport, ":"),
		contract_transport);
	return name;
}

/* ---- checks ---- */

void contract_failed(const char *file, int line, const char *what, long long got, long long want)
{
	printf("# %s:%d: %s", file, line, what);
	if (got != 0 || want != 1)
		printf(" is %lld (%s), not %lld (%s)", got, rpw_status_name((int)got), want,
			rpw_status_name((int)want));
	printf("\n# the last error: %s\n", rpw_last_error());
	fflush(stdout);
	_exit(1); /* what is open is not tidied up: that may be what does not work */
}

void contract_is(const char *file, int line, const char *what, long long got, long long want)
{
	if (got != want)
		contract_failed(file, line, what, got, want);
}

void contract_text(const char *file, int line, const char *text, const char *part)
{
	if (strstr(text, part))
		return;
	printf("# '%s' has no '%s'\n", text, part);
	contract_failed(file, line, "a sentence", 0, 1);
}

void contract_says(const char *file, int line, const char *part)
{
	contract_text(file, line, rpw_last_error(), part);
}

void forget_error(void)
{
	rpw_request *none = NULL;
	rpw_request_cancel(none);
}

/* ---- patterns ---- */

bool pattern_right(const void *buf, size_t len, uint64_t seed)
{
	size_t wrong = pattern_wrong(buf, len, seed);
	if (wrong < len)
		printf("# byte %zu of %zu, which %llu seeded, is wrong\n", wrong, len,
			(unsigned long long)seed);
	return wrong == len;
}

/* ---- pairs ---- */

rpw_context_options options_of(const char *transports)
{
	rpw_context_options o;
	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	o.transports = transports;
	return o;
}

rpw_context *context_open(void)
{
	rpw_context_options o = options_of(contract_transport);
	rpw_context *c = NULL;
	IS(rpw_context_create(&o, &c), RPW_OK);
	CHECK(c != NULL);
	return c;
}

void pair_open(struct pair *p)
{
	rpw_context_options o = options_of(contract_transport);
	pair_open_as(p, &o, NULL);
}

void pair_memory(struct pair *p)
{
	unsigned char packed[RPW_RKEY_BYTES_MAX];
	IS(rpw_memory_allocate(
		   p->b, REGION, RPW_REMOTE_WRITE | RPW_REMOTE_READ | RPW_REMOTE_ATOMIC, &p->m),
		RPW_OK);
	int n = rpw_rkey_pack(p->m, packed, sizeof(packed));
	CHECK(n > 0);
	IS(rpw_rkey_unpack(p->ea, packed, (size_t)n, &p->k), RPW_OK);
	p->region = (unsigned char *)rpw_memory_address(p->m);
}

void settle(struct pair *p)
{
	for (int quiet = 0; quiet < 200;) {
		int n = (p->a ? rpw_context_progress(p->a) : 0) +
			(p->b ? rpw_context_progress(p->b) : 0);
		quiet = n ? 0 : quiet + 1;
		if (!n)
			usleep(50); /* the kernel moves bytes of TCP in its own time */
	}
}

int ended(struct pair *p, int rc, rpw_request *r)
{
	return rc == RPW_IN_PROGRESS ? pair_finish(p, r, NULL) : rc;
}

rpw_statistics statistics_of(rpw_context *c)
{
	rpw_statistics s;
	memset(&s, 0xa5, sizeof(s));
	s.size = sizeof(s);
	IS(rpw_context_statistics(c, &s), RPW_OK);
	return s;
}

rpw_endpoint_information information_of(rpw_endpoint *ep)
{
	rpw_endpoint_information i;
	memset(&i, 0xa5, sizeof(i));
	i.size = sizeof(i);
	IS(rpw_endpoint_info(ep, &i), RPW_OK);
	return i;
}

static void *drive(void *arg)
{
	struct driver *d = (struct driver *)arg;
	while (!__atomic_load_n(&d->stop, __ATOMIC_ACQUIRE))
		if (!rpw_context_progress(d->c))
			usleep(20);
	return NULL;
}

void driver_start(struct driver *d, rpw_context *c)
{
	d->c = c;
	d->stop = 0;
	IS(pthread_create(&d->thread, NULL, drive, d), 0);
}

void driver_stop(struct driver *d)
{
	__atomic_store_n(&d->stop, 1, __ATOMIC_RELEASE);
	IS(pthread_join(d->thread, NULL), 0);
}

/* ---- everything that can be posted ---- */

const char *const posting_names[POSTINGS] = {"rpw_send", "rpw_send_iov", "rpw_send_obj",
	"rpw_am_send", "rpw_endpoint_flush", "rpw_put", "rpw_get", "rpw_put_notify",
	"rpw_fetch_add", "rpw_compare_swap", "rpw_transfer_batch", "rpw_recv", "rpw_recv_iov",
	"rpw_recv_obj"};
unsigned char outgoing[64], incoming[64];
void *incoming_obj;
size_t incoming_obj_len;
uint64_t incoming_word;

bool posting_needs_key(int what) { return what >= PUT && what <= BATCH; }

int post(struct pair *p, int what, rpw_endpoint *ep, rpw_request **req)
{
	struct iovec out[2] = {{outgoing, 24}, {outgoing + 24, 40}},
		     in[2] = {{incoming, 40}, {incoming + 40, 24}};
	rpw_transfer batch[2] = {RPW_TRANSFER_INIT, RPW_TRANSFER_INIT};
	batch[0].buf = outgoing;
	batch[1].buf = incoming;
	batch[1].is_get = true;
	batch[0].key = batch[1].key = p->k;
	batch[0].len = batch[1].len = sizeof(outgoing);
	switch (what) {
	case SEND:
		return rpw_send(ep, outgoing, sizeof(outgoing), 1, req);
	case SEND_IOV:
		return rpw_send_iov(ep, out, 2, 1, req);
	case SEND_OBJ:
		return rpw_send_obj(ep, outgoing, sizeof(outgoing), req);
	case AM_SEND:
		return rpw_am_send(ep, 1, "head", 4, outgoing, sizeof(outgoing), req);
	case FLUSH:
		return rpw_endpoint_flush(ep, req);
	case PUT:
		return rpw_put(ep, outgoing, sizeof(outgoing), p->k, 0, req);
	case GET:
		return rpw_get(ep, incoming, sizeof(incoming), p->k, 0, req);
	case PUT_NOTIFY:
		return rpw_put_notify(ep, outgoing, sizeof(outgoing), p->k, 0, 0x1234, req);
	case FETCH_ADD:
		return rpw_fetch_add(ep, 1, p->k, 512, &incoming_word, req);
	case COMPARE_SWAP:
		return rpw_compare_swap(ep, 0, 0, p->k, 512, &incoming_word, req);
	case BATCH:
		return rpw_transfer_batch(ep, batch, 2, req);
	case RECV:
		return rpw_recv(p->a, ep, incoming, sizeof(incoming), 1, ALL, req);
	case RECV_IOV:
		return rpw_recv_iov(p->a, ep, in, 2, 1, ALL, req);
	default:
		return rpw_recv_obj(p->a, ep, NULL, NULL, &incoming_obj, &incoming_obj_len, req);
	}
}

/* ---- the run ---- */

static bool usable(const char *transport)
{
	rpw_context_options o = options_of(transport);
	rpw_context *c = NULL;
	int rc = rpw_context_create(&o, &c);
	rpw_context_destroy(c);
	return !rc;
}

static int run_case(const struct contract_case *k)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		alarm(CASE_SECONDS);
		k->run();
		exit(0); /* so that a leak is found where the build looks for leaks */
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		printf("# no process for it: %s\n", strerror(errno));
	else if (WIFSIGNALED(status))
		printf("# ended by signal %d (%s)\n", WTERMSIG(status),
			WTERMSIG(status) == SIGALRM ? "it hung" : strsignal(WTERMSIG(status)));
	else
		return WEXITSTATUS(status);
	return 1;
}

static int run_group(const struct contract_case *k, const char *transport, bool first,
	const char *filter, int *number)
{
	int failed = 0;
	for (; k->name; k++) {
		if ((!k->each && !first) || (filter && !strstr(k->name, filter)))
			continue;
		contract_transport = transport;
		int bad = run_case(k);
		failed += bad != 0;
		printf("%s %d - %s %s\n", bad ? "not ok" : "ok", ++*number,
			k->each ? transport : "any", k->name);
	}
	return failed;
}

static void list_cases(void)
{
	for (size_t g = 0; g < GROUPS; g++)
		for (const struct contract_case *k = groups[g]; k->name; k++)
			printf("%s: %s\n", k->name, k->calls);
}

int main(int argc, char **argv)
{
	const char *wanted = getenv("CONTRACT_TRANSPORTS"), *filter = argc > 1 ? argv[1] : NULL;
	char list[100], *rest = NULL;
	int failed = 0, number = 0;
	if (filter && !strcmp(filter, "--list")) {
		list_cases();
		return 0;
	}
	unsetenv("ROPEWAY_TRANSPORT");
	unsetenv("ROPEWAY_KEY_FILE");
	snprintf(list, sizeof(list), "%s", wanted ? wanted : "shm,tcp");
	bool first = true;
	for (char *t = strtok_r(list, ",", &rest); t; t = strtok_r(NULL, ",", &rest)) {
		if (!usable(t)) {
			printf("ok %d - %s # SKIP %s\n", ++number, t, rpw_last_error());
			continue;
		}
		for (size_t g = 0; g < GROUPS; g++)
			failed += run_group(groups[g], t, first, filter, &number);
		first = false;
	}
	printf("1..%d\n", number);
	return failed || !number || first;
}
