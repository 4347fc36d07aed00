/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - see check.h: findings, each kind once, as lines of the report file or as blocks on
 * standard error. Only system calls and snprintf: it is called in any state of the program. */
#include "check/check.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/mapped.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

bool rpwi_check_on;
struct rpwi_check_options rpwi_check_how;
struct rpwi_check_notes rpwi_check_notes;
uint32_t rpwi_check_first_id = 1;
#ifdef RPWI_CHECK_PLAIN
__thread struct rpwi_site rpwi_check_site;
pthread_mutex_t rpwi_check_mutex = PTHREAD_MUTEX_INITIALIZER;
static void shield(void) {}
#else
__thread struct rpwi_site rpwi_check_site __attribute__((tls_model("initial-exec")));
static void shield(void) { rpwi_shield(); }
#endif

enum { AT_END = 8, FRAME_TEXT = 320, FRAMES = RPWI_FINDING_SITES * RPWI_SITE_FRAMES };

struct kind {
	uint64_t hash;
	uint32_t count, told; /* told: what the file says */
};
struct frame_text {
	char module[256];
	uint64_t offset;
};
static struct {
	bool begun;
	pid_t pid;
	uint32_t kinds, findings;
	struct kind kind[RPWI_CHECK_KINDS];
	char program[256], cwd[RPWI_CHECK_PATH];
	const char *unwatched;
	void (*at_end[AT_END])(void);
	struct frame_text frame[FRAMES];
	char line[RPWI_FINDING_LINE], text[RPWI_FINDING_LINE];
} rep; /* under RPWI_LOCK_CHECK, but before there is a second thread */

/* ---- where a call comes from ---- */

struct look_up {
	const uintptr_t *pc;
	struct frame_text *frame;
	unsigned n;
};

static bool look_in(const struct rpwi_mapping *m, void *arg)
{
	const struct look_up *l = arg;
	for (unsigned i = 0; i < l->n; i++)
		/* what is no code was no return address */
		if (l->pc[i] > m->begin && l->pc[i] <= m->end && m->perms[2] == 'x') {
			snprintf(l->frame[i].module, sizeof(l->frame[i].module), "%s",
				m->path ? m->path : "");
			l->frame[i].offset = m->path ? l->pc[i] - m->begin + m->offset : l->pc[i];
		}
	return true;
}

/* `first`: the frames' place in rep.frame. */
static void frames_find(int pid, const uintptr_t *pc, unsigned first, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		rep.frame[first + i] = (struct frame_text){.offset = pc[i]};
	rpwi_mappings_each(pid, look_in, &(struct look_up){pc, rep.frame + first, n});
}

/* ---- output ---- */

static void put(size_t *used, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(size_t *used, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(rep.line + *used, sizeof(rep.line) - *used, fmt, ap);
	va_end(ap);
	*used = RPWI_MIN(*used + (size_t)RPWI_MAX(n, 0), sizeof(rep.line) - 1);
}

/* As a JSON string, with its quotes. */
static void put_string(size_t *used, const char *s)
{
	put(used, "\"");
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '"' || c == '\\')
			put(used, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			put(used, "\\u%04x", c);
		else
			put(used, "%c", c);
	}
	put(used, "\"");
}

/* The file is opened for each line: programs close descriptors that they do not know. */
static void line_write(const char *line, size_t len)
{
	int was = errno;
	shield();
	char path[RPWI_CHECK_PATH * 2 + 16];
	snprintf(path, sizeof(path), "%s%s%s", rpwi_check_how.log[0] == '/' ? "" : rep.cwd,
		rpwi_check_how.log[0] == '/' ? "" : "/", rpwi_check_how.log);
	char *pid = strstr(path, "%p");
	if (pid) {
		char rest[RPWI_CHECK_PATH];
		snprintf(rest, sizeof(rest), "%s", pid + 2);
		snprintf(pid, sizeof(path) - (size_t)(pid - path), "%d%s", (int)rep.pid, rest);
	}
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || rpwi_file_write(fd, line, len) != (ssize_t)len)
		rpwi_error("cannot write the report of ROPEWAY_CHECK to %s: %s", path,
			strerror(errno));
	if (fd >= 0)
		close(fd);
	errno = was;
}

static void line_end(size_t used)
{
	if (used > sizeof(rep.line) - 3) { /* it was cut: no JSON any more */
		used = 0;
		put(&used, "{\"kind\":\"cut\",\"pid\":%d", (int)rep.pid);
	}
	put(&used, "}\n");
	if (*rpwi_check_how.log)
		line_write(rep.line, used);
}

static void begin(void)
{
	size_t used = 0;
	rep.begun = true;
	rep.pid = getpid();
	rep.kinds = rep.findings = 0;
	ssize_t n = readlink("/proc/self/exe", rep.program, sizeof(rep.program) - 1);
	rep.program[RPWI_MAX(n, 0)] = '\0';
	put(&used, "{\"kind\":\"begin\",\"pid\":%d,\"ppid\":%d,\"program\":", (int)rep.pid,
		(int)getppid());
	put_string(&used, rep.program);
	put(&used, ",\"t\":%llu", (unsigned long long)rpwi_now_ns());
	line_end(used);
}

/* The process is another one after a fork. */
static void begin_once(void)
{
	if (RPWI_UNLIKELY(!rep.begun || rep.pid != getpid()))
		begin();
}

static void put_sites(size_t *used, const struct rpwi_finding *f)
{
	bool any = false;
	for (unsigned i = 0; i < RPWI_FINDING_SITES && f->site[i].what; i++) {
		put(used, any ? ",{\"what\":" : ",\"sites\":[{\"what\":");
		any = true;
		put_string(used, f->site[i].what);
		const char *when = i ? rpwi_site_when_name(f->site[i].when) : NULL;
		if (when)
			put(used, ",\"when\":\"%s\"", when);
		put(used, ",\"frames\":[");
		for (unsigned k = 0; k < RPWI_SITE_FRAMES && f->site[i].at.pc[k]; k++) {
			const struct frame_text *t = &rep.frame[i * RPWI_SITE_FRAMES + k];
			if (k && !*t->module)
				break;
			put(used, "%s{\"module\":", k ? "," : "");
			put_string(used, t->module);
			put(used, ",\"offset\":\"0x%llx\"}", (unsigned long long)t->offset);
		}
		put(used, "]}");
	}
	if (any)
		put(used, "]");
}

static void finding_json(const struct rpwi_finding *f, uint32_t id)
{
	const struct rpwi_rule_info *r = &rpwi_rules[f->rule];
	size_t used = 0;
	put(&used, "{\"kind\":\"finding\",\"pid\":%d,\"tid\":%ld,\"t\":%llu,\"id\":%u,\"rule\":",
		(int)rep.pid, syscall(SYS_gettid), (unsigned long long)rpwi_now_ns(), id);
	put_string(&used, r->name);
	put(&used, ",\"number\":%u,\"severity\":\"%s\",\"text\":", r->number,
		rpwi_severity_name(r->severity));
	put_string(&used, f->text);
	if (f->qpn)
		put(&used, ",\"qp\":{\"qpn\":%u,\"type\":\"%s\",\"state\":\"%s\",\"peer_qpn\":%u}",
			f->qpn, f->type ? f->type : "", f->state ? f->state : "", f->peer_qpn);
	if (f->has_wr)
		put(&used, ",\"wr\":{\"id\":\"%llu\",\"op\":\"%s\"}", (unsigned long long)f->wr_id,
			f->op ? f->op : "");
	if (f->has_memory)
		put(&used, ",\"memory\":{\"addr\":\"0x%llx\",\"len\":%llu,\"key\":\"0x%x\"}",
			(unsigned long long)f->addr, (unsigned long long)f->len, f->key);
	if (*f->peer) {
		put(&used, ",\"peer\":");
		put_string(&used, f->peer);
	}
	put_sites(&used, f);
	line_end(used);
}

static void finding_text(const struct rpwi_finding *f, uint32_t count)
{
	static char frame[FRAMES][FRAME_TEXT];
	char objects[320];
	rpwi_finding_objects(f, objects, sizeof(objects));
	struct rpwi_shown s = {.rule = &rpwi_rules[f->rule],
		.text = f->text,
		.peer = *f->peer ? f->peer : NULL,
		.objects = *objects ? objects : NULL,
		.program = rep.program,
		.pid = rep.pid,
		.count = count};
	for (unsigned i = 0; i < RPWI_FINDING_SITES && f->site[i].what; i++) {
		s.site[i].what = f->site[i].what;
		for (unsigned k = 0; k < RPWI_SITE_FRAMES && f->site[i].at.pc[k]; k++) {
			unsigned at = i * RPWI_SITE_FRAMES + k;
			if (k && !*rep.frame[at].module)
				break;
			snprintf(frame[at], sizeof(frame[at]), "%s+0x%llx",
				*rep.frame[at].module ? rep.frame[at].module : "?",
				(unsigned long long)rep.frame[at].offset);
			s.site[i].frame[k] = frame[at];
		}
	}
	bool color = rpwi_check_how.color == RPWI_CHECK_COLOR_ALWAYS ||
		     (rpwi_check_how.color == RPWI_CHECK_COLOR_AUTO && isatty(2));
	size_t n = rpwi_shown_text(&s, color, rpwi_check_how.columns ? rpwi_check_how.columns : 80,
		rep.text, sizeof(rep.text));
	if (rpwi_file_write(2, rep.text, n) != (ssize_t)n)
		return; /* nobody listens */
}

/* ---- findings ---- */

static void again(uint32_t id, struct kind *k)
{
	size_t used = 0;
	k->told = k->count;
	put(&used, "{\"kind\":\"again\",\"pid\":%d,\"id\":%u,\"count\":%u", (int)rep.pid, id,
		k->count);
	line_end(used);
}

/* The kind that it is; NULL: there are more than that. */
static struct kind *kind_of(const struct rpwi_finding *f)
{
	uint64_t h = rpwi_mix(0, (uint64_t)f->rule + 1);
	for (unsigned i = 0; i < RPWI_FINDING_SITES && f->site[i].what; i++)
		h = rpwi_mix(h, f->site[i].at.pc[0]);
	for (uint32_t i = 0; i < rep.kinds; i++)
		if (rep.kind[i].hash == h)
			return &rep.kind[i];
	if (rep.kinds == RPWI_CHECK_KINDS) {
		rep.unwatched = "there were more than 256 kinds of findings in one process";
		return NULL;
	}
	rep.kind[rep.kinds] = (struct kind){.hash = h};
	return &rep.kind[rep.kinds++];
}

static void end_line(void)
{
	size_t used = 0;
	for (uint32_t i = 0; i < rep.kinds; i++)
		if (rep.kind[i].count != rep.kind[i].told)
			again(i + rpwi_check_first_id, &rep.kind[i]);
	put(&used, "{\"kind\":\"end\",\"pid\":%d,\"t\":%llu,\"findings\":%u,\"unwatched\":",
		(int)rep.pid, (unsigned long long)rpwi_now_ns(), rep.findings);
	put_string(&used, rep.unwatched ? rep.unwatched : "");
	line_end(used);
}

void rpwi_check_report(struct rpwi_finding *f)
{
	if (!rpwi_check_wants(f->rule))
		return;
	begin_once();
	struct kind *k = kind_of(f);
	if (!k)
		return;
	uint32_t id = (uint32_t)(k - rep.kind) + rpwi_check_first_id;
	if (++k->count > 1) {
		if (!(k->count & (k->count - 1)))
			again(id, k);
		return;
	}
	k->told = 1;
	shield();
	for (unsigned i = 0; i < RPWI_FINDING_SITES && f->site[i].what; i++)
		frames_find(
			f->site[i].pid, f->site[i].at.pc, i * RPWI_SITE_FRAMES, RPWI_SITE_FRAMES);
	bool counts = rpwi_rules[f->rule].severity != RPWI_SEVERITY_NOTE;
	rep.findings += counts;
	if (*rpwi_check_how.log)
		finding_json(f, id);
	else
		finding_text(f, k->count);
	if (rpwi_check_how.halt && counts) {
		end_line();
		_exit(rpwi_check_how.exitcode);
	}
}

void rpwi_check_say(struct rpwi_finding *f, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	rpwi_check_report(f);
}

void rpwi_check_event(const char *what, uint32_t qpn, uint32_t peer_qpn, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	if (!*rpwi_check_how.log)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	begin_once();
	struct rpwi_finding f = {.site[0] = {.what = "called here", .at = rpwi_check_site}};
	bool has_site = rpwi_check_site.pc[0];
	if (has_site)
		frames_find(0, rpwi_check_site.pc, 0, RPWI_SITE_FRAMES);
	size_t used = 0;
	put(&used, "{\"kind\":\"event\",\"pid\":%d,\"t\":%llu,\"what\":", (int)rep.pid,
		(unsigned long long)rpwi_now_ns());
	put_string(&used, what);
	put(&used, ",\"qpn\":%u,\"peer_qpn\":%u,\"text\":", qpn, peer_qpn);
	put_string(&used, text);
	if (has_site)
		put_sites(&used, &f);
	line_end(used);
}

void rpwi_check_begins(void)
{
	if (!rpwi_check_lock())
		return;
	begin_once();
	rpwi_check_unlock();
}

void rpwi_check_unwatched(const char *why) { rep.unwatched = why; }

/* ---- begin and end ---- */

void rpwi_check_at_end(void (*fn)(void))
{
	for (unsigned i = 0; i < AT_END; i++) {
		if (rep.at_end[i] == fn)
			return;
		if (!rep.at_end[i]) {
			rep.at_end[i] = fn;
			return;
		}
	}
}

__attribute__((destructor)) static void ends(void)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	for (unsigned i = 0; i < AT_END && rep.at_end[i]; i++)
		rep.at_end[i]();
	if (rep.begun && rep.pid == getpid())
		end_line();
	rpwi_check_unlock();
}

void rpwi_check_init(void)
{
	const char *spec = secure_getenv("ROPEWAY_CHECK");
	char why[RPWI_WHY_LEN];
	if (rpwi_check_on || !spec || !strcmp(spec, "0"))
		return;
	if (rpwi_check_options_read(spec, &rpwi_check_how, why, sizeof(why))) {
		rpwi_error("ROPEWAY_CHECK: %s: nothing is checked", why);
		return;
	}
	if (!getcwd(rep.cwd, sizeof(rep.cwd)))
		rep.cwd[0] = '\0';
	rpwi_check_on = true;
}
