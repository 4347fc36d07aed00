/* SPDX-License-Identifier: BSD-3-Clause */
/* drive.c - see drive.h. */
#include "drive.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double drive_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What one process gets of the wire that the script names. */
static void environment(const struct script *s, unsigned me)
{
	const char *wire = "auto";
	char fault[120];
	unsetenv("ROPEWAY_FAULT");
	switch (s->wire) {
	case WIRE_COPY:
		wire = "copy";
		break;
	case WIRE_FETCH:
		wire = "fetch";
		break;
	case WIRE_UDP:
		wire = "udp";
		break;
	case WIRE_MIXED:
		wire = me % 2 ? "udp" : s->seed % 2 ? "fetch" : "auto";
		break;
	case WIRE_FAULT:
		wire = s->seed % 3 ? "udp" : "auto";
		snprintf(fault, sizeof(fault),
			"drop=0.004,dup=0.004,reorder=0.008,corrupt=0.002,seed=%llu",
			(unsigned long long)(s->seed % 100000 * 8 + me));
		setenv("ROPEWAY_FAULT", fault, 1);
		break;
	default:
		break;
	}
	setenv("ROPEWAY_WIRE", wire, 1);
}

static pid_t start(struct shared *sh, int fd, int err_fd, unsigned me, bool again)
{
	char number[16], file[16];
	pid_t pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	environment(&sh->script, me);
	dup2(err_fd, STDERR_FILENO);
	if (sh->script.wire == WIRE_VETH && !net_enter(me % 2))
		_exit(3);
	snprintf(number, sizeof(number), "%u", me);
	snprintf(file, sizeof(file), "%d", fd);
	execl("/proc/self/exe", "model", "--side", number, file, again ? "again" : "first",
		(char *)NULL);
	_exit(3);
}

static void end_of_process(struct shared *sh, unsigned p)
{
	const struct script *s = &sh->script;
	for (unsigned c = 0; c < s->conns; c++)
		if (s->conn[c].proc[0] == p || s->conn[c].proc[1] == p) {
			atomic_store(&sh->pub[c][0].gone, 1);
			atomic_store(&sh->pub[c][1].gone, 1);
		}
}

static uint64_t moved(const struct shared *sh)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < PROCS_MAX; i++)
		sum += atomic_load(&sh->progress[i]) + atomic_load(&sh->arrived[i]) +
		       __atomic_load_n(&sh->tally[i].completions, __ATOMIC_RELAXED);
	return sum;
}

static void stuck(struct shared *sh, char *why, size_t room)
{
	size_t n = (size_t)snprintf(why, room, "no progress; meetings");
	for (unsigned i = 0; i < sh->script.procs; i++)
		n += (size_t)snprintf(why + n, room - n, " %u", sh->arrived[i]);
	n += (size_t)snprintf(why + n, room - n,
		"; posted, done without error, received, flushed, end has begun, finished:");
	for (unsigned c = 0; c < sh->script.conns; c++)
		for (unsigned k = 0; k < 2; k++)
			n += (size_t)snprintf(why + n, room - n, " %u.%u %u/%u/%u/%u/%u/%u", c, k,
				sh->pub[c][k].posted, sh->pub[c][k].good, sh->pub[c][k].received,
				sh->pub[c][k].flushed, sh->pub[c][k].gone, sh->pub[c][k].finished);
}

/* What the device calls an error is one, even where everything comes right in the end: a lane that
 * is closed, say. What it says of ends that the script brings about is a warning. */
static void said(int err_fd, const struct script *s, struct result *r)
{
	const char *keep = getenv("MODEL_KEEP");
	static char text[65536];
	ssize_t n = pread(err_fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	char *at = strstr(text, "ropeway: error");
	if (!at)
		at = strstr(text, "ERROR: AddressSanitizer");
	if (!at)
		at = strstr(text, "WARNING: ThreadSanitizer");
	if (!at)
		at = strstr(text, "runtime error:");
	if (at || (!r->ok && !*r->why)) {
		at = at ? at : text;
		char *end = strchr(at, '\n');
		if (end && !strstr(at, "Sanitizer"))
			*end = 0;
		size_t have = r->ok ? 0 : strlen(r->why);
		r->ok = false;
		snprintf(r->why + have, sizeof(r->why) - have, "%s%.1000s", have ? "; " : "", at);
	}
	if (!r->ok && keep) { /* a folder for all that the processes said */
		char name[300], piece[4096];
		snprintf(name, sizeof(name), "%s/%s-%llu.err", keep, wire_names[s->wire],
			(unsigned long long)s->seed);
		FILE *f = fopen(name, "w");
		off_t at_byte = 0;
		while (f && (n = pread(err_fd, piece, sizeof(piece), at_byte)) > 0) {
			fwrite(piece, 1, (size_t)n, f);
			at_byte += n;
		}
		if (f)
			fclose(f);
	}
}

static void pause_us(unsigned us)
{
	struct timespec t = {0, us * 1000L};
	nanosleep(&t, NULL);
}

bool drive(const struct script *s, const struct limits *l, uint64_t salt, unsigned deadline_s,
	struct result *r)
{
	size_t size = sizeof(struct shared) + s->nops * sizeof(s->op[0]);
	int fd = memfd_create("model", 0), err_fd = memfd_create("model-stderr", MFD_CLOEXEC),
	    status;
	pid_t pid[PROCS_MAX] = {0};
	unsigned left = s->procs;
	struct rng rng = {salt};
	double began = drive_now(), last_moved = began;
	uint64_t last = 0;
	*r = (struct result){.ok = true};
	if (fd < 0 || err_fd < 0 || ftruncate(fd, (off_t)size))
		abort();
	struct shared *sh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (sh == MAP_FAILED)
		abort();
	memcpy(&sh->script, s, sizeof(*s) + s->nops * sizeof(s->op[0]));
	sh->limits = *l;
	sh->salt = salt;
	sh->lossy = s->wire == WIRE_FAULT;
	sh->doubles = s->wire == WIRE_FAULT;
	sh->sockets = s->wire >= WIRE_UDP;
	for (unsigned i = 0; i < s->procs; i++) {
		strcpy(sh->device[i], s->wire == WIRE_VETH ? net_device[i % 2] : "rpw_lo");
		pid[i] = start(sh, fd, err_fd, i, false);
	}
	while (left && r->ok) {
		pause_us(300);
		for (unsigned i = 0; i < s->procs; i++) {
			if (atomic_load(&sh->armed_stop[i])) {
				atomic_store(&sh->armed_stop[i], 0);
				pause_us(rng_below(&rng, 2000));
				kill(pid[i], SIGSTOP);
				pause_us(500 + rng_below(&rng, 20000));
				kill(pid[i], SIGCONT);
			}
			if (atomic_load(&sh->armed_kill[i])) {
				atomic_store(&sh->armed_kill[i], 0);
				pause_us(rng_below(&rng, 2000));
				kill(pid[i], SIGKILL);
				waitpid(pid[i], &status, 0);
				if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
					break; /* it had failed */
				end_of_process(sh, i);
				pid[i] = start(sh, fd, err_fd, i, true);
			}
			if (!pid[i] || waitpid(pid[i], &status, WNOHANG) != pid[i])
				continue;
			pid[i] = 0;
			left--;
			if (!WIFEXITED(status) || WEXITSTATUS(status)) {
				r->ok = false;
				snprintf(r->why, sizeof(r->why), "process %u: %s %d (round %u)", i,
					WIFSIGNALED(status) ? "died of signal" : "ended with",
					WIFSIGNALED(status) ? WTERMSIG(status)
							    : WEXITSTATUS(status),
					sh->round[i]);
			}
		}
		uint64_t now = moved(sh);
		if (now != last)
			last = now, last_moved = drive_now();
		if (r->ok && drive_now() - last_moved > deadline_s) {
			r->ok = false;
			stuck(sh, r->why, sizeof(r->why));
			if (getenv("MODEL_STAY"))
				for (;;)
					pause();
		}
	}
	for (unsigned i = 0; i < 1000 && atomic_load(&sh->failed) == 1; i++)
		pause_us(1000);
	if (atomic_load(&sh->failed) == 2)
		snprintf(r->why, sizeof(r->why), "%s", sh->why);
	for (unsigned i = 0; i < s->procs; i++)
		if (pid[i]) {
			kill(pid[i], SIGKILL);
			waitpid(pid[i], &status, 0);
		}
	for (unsigned i = 0; i < s->procs; i++) {
		r->tally.ops += sh->tally[i].ops;
		r->tally.bytes += sh->tally[i].bytes;
		r->tally.completions += sh->tally[i].completions;
		for (unsigned k = 0; k < CHOICES; k++)
			r->tally.choice[k] += sh->tally[i].choice[k];
	}
	said(err_fd, s, r);
	close(err_fd);
	r->seconds = drive_now() - began;
	munmap(sh, size);
	close(fd);
	return r->ok;
}
