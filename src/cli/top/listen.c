/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.c - see top.h: `--listen`: HTTP/1.1 for a scraper (RFC 9112), as little of it as that
 * needs: one GET or HEAD a connection, answered and closed.
 *
 * Any process that reaches the port may be hostile. A connection has DEADLINE_MS from its first
 * byte to its last; CLIENTS_MAX are served at a time, and where one more comes, the oldest that has
 * not yet said what it wants makes room. A head has at most HEAD_MAX bytes; a body is not read. A
 * page is made at most every FRESH_MS, however often it is asked for. On a loopback address the
 * Host must be a name of this host, so that no web page in somebody's browser can read it by a name
 * of its own (DNS rebinding).
 */
#include "cli/top/top.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CLIENTS_MAX = 16,
	HEAD_MAX = 4096,
	DEADLINE_MS = 5000,
	FRESH_MS = 200,
	DRAIN_MAX = 1 << 16,
	PAUSE_MS = 100,
};

/* What it does: its head comes, its answer goes, and then what it still sends is thrown away, since
 * closing with bytes unread would take back the answer (RFC 9112, 9.6). */
enum step { FREE, READS, WRITES, DRAINS };
struct client {
	enum step step;
	int fd;
	uint64_t until_ns;
	char head[HEAD_MAX];
	size_t head_len;
	char *answer; /* malloc'ed */
	size_t answer_len, sent, drained;
};

struct server {
	int fd, signals;
	bool loopback, paused; /* paused: no descriptor was left for the next connection */
	int broken;            /* the errno of a wait that failed */
	enum top_level level;
	char *page; /* the last one */
	size_t page_len;
	uint64_t page_ns;
	struct client client[CLIENTS_MAX];
};

/* ---- answers ---- */

static void client_close(struct client *c)
{
	if (c->step != FREE)
		close(c->fd);
	free(c->answer);
	c->answer = NULL;
	c->step = FREE;
}

static void answer(struct client *c, const char *status, const char *type, const char *body,
	size_t len, bool head_only)
{
	FILE *to = open_memstream(&c->answer, &c->answer_len);
	if (!to) {
		client_close(c);
		return;
	}
	fprintf(to,
		"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: "
		"no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n%s\r\n",
		status, type, len, strncmp(status, "405", 3) ? "" : "Allow: GET, HEAD\r\n");
	if (!head_only)
		fwrite(body, 1, len, to);
	bool bad = ferror(to);
	if (fclose(to) || bad) {
		client_close(c);
		return;
	}
	c->step = WRITES;
	c->sent = 0;
}

static void answer_text(struct client *c, const char *status, const char *text, bool head_only)
{
	answer(c, status, "text/plain; charset=utf-8", text, strlen(text), head_only);
}

static int page_now(struct server *s)
{
	struct top_look l;
	char *text = NULL;
	size_t len;
	if (s->page && rpwi_now_ns() - s->page_ns < FRESH_MS * RPWI_NS_PER_MS)
		return 0;
	rpwi_counters_hold();
	int rc = top_look(&l, NULL);
	if (!rc)
		rc = top_page(&l, s->level, &text, &len);
	top_free(&l);
	if (rc)
		return rc;
	free(s->page);
	s->page = text;
	s->page_len = len;
	s->page_ns = rpwi_now_ns();
	return 0;
}

static void answer_page(struct server *s, struct client *c, bool head_only)
{
	if (page_now(s))
		answer_text(
			c, "503 Service Unavailable", "the counters cannot be read\n", head_only);
	else
		answer(c, "200 OK", "text/plain; version=0.0.4; charset=utf-8", s->page,
			s->page_len, head_only);
}

/* ---- requests ---- */

/* The value of a field of the head, its lines ended by zeros: the only one of that name, or NULL;
 * *twice: there are more. */
static const char *field(const char *head, const char *end, const char *name, bool *twice)
{
	const char *found = NULL;
	size_t len = strlen(name);
	*twice = false;
	for (const char *line = head; line < end; line += strlen(line) + 1) {
		if (strncasecmp(line, name, len) != 0 || line[len] != ':')
			continue;
		*twice = found;
		found = line + len + 1;
		found += strspn(found, " \t");
	}
	return found;
}

static bool is_own_host(const char *host)
{
	char name[CLI_HOST_LEN], address[CLI_ADDRESS_LEN];
	struct in_addr v4;
	struct in6_addr v6;
	if (rpwi_cli_address(host, "80", name, address))
		return false;
	if (inet_pton(AF_INET, name, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
	if (inet_pton(AF_INET6, name, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return !strcasecmp(name, "localhost");
}

/* Ends the lines by zeros; the number of the version's second digit, or -1: it is no request.
 * *target is what is asked for, *method by what. */
static int parse(char *head, char *end, char **method, char **target)
{
	for (char *p = head; p < end; p++) {
		if (*p == '\0')
			return -1;
		if (*p == '\n')
			*p = '\0';
		else if (*p == '\r' && p[1] == '\n')
			*p = '\0';
	}
	*method = head;
	*target = strchr(head, ' ');
	if (!*target || *target == head)
		return -1;
	*(*target)++ = '\0';
	char *version = strchr(*target, ' ');
	if (!version || version == *target)
		return -1;
	*version++ = '\0';
	if (strncmp(version, "HTTP/1.", 7) != 0 || version[7] < '0' || version[7] > '9' ||
		version[8])
		return -1;
	return version[7] - '0';
}

static void serve(struct server *s, struct client *c, char *end)
{
	static const char page[] = "ropeway top: GET /metrics\n";
	char *method, *target;
	bool twice = false;
	int version = parse(c->head, end, &method, &target);
	/* the request line is three texts now: fields begin behind the last */
	const char *fields = version < 0 ? end : strchr(target + strlen(target) + 1, '\0') + 1;
	const char *host = field(fields, end, "Host", &twice);
	bool head_only = version >= 0 && !strcmp(method, "HEAD");
	if (version < 0 || twice || (version > 0 && !host)) {
		answer_text(c, "400 Bad Request", "this is no request of HTTP/1.1\n", false);
	} else if (s->loopback && host && !is_own_host(host)) {
		answer_text(c, "421 Misdirected Request",
			"Host must be localhost, 127.x.x.x or [::1]\n", head_only);
	} else if (strcmp(method, "GET") != 0 && !head_only) {
		answer_text(c, "405 Method Not Allowed", "only GET and HEAD\n", false);
	} else {
		target[strcspn(target, "?")] = '\0';
		if (!strcmp(target, "/metrics"))
			answer_page(s, c, head_only);
		else if (!strcmp(target, "/"))
			answer_text(c, "200 OK", page, head_only);
		else
			answer_text(c, "404 Not Found", page, head_only);
	}
}

static void client_reads(struct server *s, struct client *c)
{
	ssize_t n = recv(c->fd, c->head + c->head_len, sizeof(c->head) - 1 - c->head_len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(c);
		return;
	}
	c->head_len += (size_t)n;
	c->head[c->head_len] = '\0';
	char *end = memmem(c->head, c->head_len, "\r\n\r\n", 4);
	if (!end)
		end = memmem(c->head, c->head_len, "\n\n", 2);
	if (end)
		serve(s, c, end + 1);
	else if (c->head_len == sizeof(c->head) - 1)
		answer_text(c, "431 Request Header Fields Too Large", "a head has at most 4 KiB\n",
			false);
}

static void client_writes(struct client *c)
{
	ssize_t n = send(
		c->fd, c->answer + c->sent, c->answer_len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		client_close(c);
		return;
	}
	c->sent += n > 0 ? (size_t)n : 0;
	if (c->sent < c->answer_len)
		return;
	shutdown(c->fd, SHUT_WR);
	c->step = DRAINS;
}

static void client_drains(struct client *c)
{
	char rest[4096];
	ssize_t n = recv(c->fd, rest, sizeof(rest), 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->drained += n > 0 ? (size_t)n : 0;
	if (n <= 0 || c->drained > DRAIN_MAX)
		client_close(c);
}

/* ---- connections ---- */

static struct client *room(struct server *s)
{
	struct client *oldest = NULL;
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &s->client[i];
		if (c->step == FREE)
			return c;
		if (c->step != WRITES && (!oldest || c->until_ns < oldest->until_ns))
			oldest = c;
	}
	if (oldest)
		client_close(oldest);
	return oldest;
}

static void accept_one(struct server *s)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *c = fd < 0 ? NULL : room(s);
	s->paused = fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
	if (!c) {
		if (fd >= 0)
			close(fd); /* all are being answered, and each has a deadline */
		return;
	}
	c->step = READS;
	c->fd = fd;
	c->until_ns = rpwi_now_ns() + DEADLINE_MS * RPWI_NS_PER_MS;
	c->head_len = c->drained = 0;
}

static void client_goes_on(struct server *s, struct client *c)
{
	if (c->step == READS)
		client_reads(s, c);
	else if (c->step == DRAINS)
		client_drains(c);
	if (c->step == WRITES)
		client_writes(c);
}

/* One wait, and what it brings. False: a signal says that it is over, or it cannot wait. */
static bool turn(struct server *s)
{
	struct pollfd p[2 + CLIENTS_MAX] = {{.fd = s->signals, .events = POLLIN},
		{.fd = s->paused ? -1 : s->fd, .events = POLLIN}};
	uint64_t now_ns = rpwi_now_ns(),
		 next_ns = s->paused ? now_ns + PAUSE_MS * RPWI_NS_PER_MS : RPWI_NEVER;
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &s->client[i];
		if (c->step != FREE && c->until_ns <= now_ns)
			client_close(c);
		bool used = c->step != FREE;
		p[2 + i].fd = used ? c->fd : -1;
		p[2 + i].events = c->step == WRITES ? POLLOUT : POLLIN;
		if (used)
			next_ns = RPWI_MIN(next_ns, c->until_ns);
	}
	int ms = next_ns == RPWI_NEVER ? -1 : (int)((next_ns - now_ns) / RPWI_NS_PER_MS) + 1;
	s->paused = false;
	if (poll(p, RPWI_ARRAY_LEN(p), ms) < 0 && errno != EINTR)
		s->broken = errno;
	if (p[0].revents || s->broken)
		return false;
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (p[2 + i].fd >= 0 && p[2 + i].revents)
			client_goes_on(s, &s->client[i]);
	if (p[1].revents)
		accept_one(s);
	return true;
}

/* ---- the port ---- */

static bool is_loopback(const struct sockaddr *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;
	if (a->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int fail(const char *at, const char *why)
{
	return rpwi_cli_fail(CLI_FAILED, TOP_NAME, "cannot listen at %s: %s", at, why);
}

static int resolve(const char *at, struct addrinfo **found)
{
	char host[CLI_HOST_LEN], address[CLI_ADDRESS_LEN];
	const struct addrinfo hints = {
		.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
	const char *port = strrchr(at, ':') + 1;
	bool any = at[0] == ':';
	if (!any && rpwi_cli_address(at, "0", host, address))
		return fail(at, "this is no address");
	int rc = getaddrinfo(any ? NULL : host, port, &hints, found);
	return rc ? fail(at, gai_strerror(rc)) : CLI_OK;
}

static int open_at(struct server *s, const char *at, bool allow_remote)
{
	struct addrinfo *a = NULL;
	const int on = 1;
	int status = resolve(at, &a);
	if (status || !a)
		return status;
	s->loopback = is_loopback(a->ai_addr);
	if (!s->loopback && !allow_remote) {
		freeaddrinfo(a);
		return rpwi_cli_usage(TOP_NAME,
			"--listen %s is no loopback address: others could read what your processes "
			"do. Use 127.0.0.1:PORT, or add --allow-remote",
			at);
	}
	s->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0 || setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		bind(s->fd, a->ai_addr, a->ai_addrlen) || listen(s->fd, CLIENTS_MAX))
		status = fail(at, strerror(errno));
	freeaddrinfo(a);
	return status;
}

static void say_where(const struct server *s)
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	char host[INET6_ADDRSTRLEN] = "", port[8] = "";
	getsockname(s->fd, (struct sockaddr *)&a, &len);
	getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
		NI_NUMERICHOST | NI_NUMERICSERV);
	printf(a.ss_family == AF_INET6 ? "http://[%s]:%s/metrics\n" : "http://%s:%s/metrics\n",
		host, port);
	fflush(stdout);
}

int top_listen(const struct top_options *o, enum top_level level)
{
	struct server *s = calloc(1, sizeof(*s));
	sigset_t ends;
	if (!s)
		return rpwi_cli_fail(CLI_FAILED, TOP_NAME, "out of memory");
	s->fd = -1;
	s->level = level;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	s->signals = signalfd(-1, &ends, SFD_CLOEXEC);
	int status = s->signals < 0 ? rpwi_cli_fail(CLI_FAILED, TOP_NAME, "signalfd: %m")
				    : open_at(s, o->listen, o->allow_remote);
	if (!status) {
		rpwi_counters_hold();
		say_where(s);
		while (turn(s))
			;
		if (s->broken)
			status = fail(o->listen, strerror(s->broken));
	}
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		client_close(&s->client[i]);
	if (s->fd >= 0)
		close(s->fd);
	if (s->signals >= 0)
		close(s->signals);
	free(s->page);
	free(s);
	return status;
}
