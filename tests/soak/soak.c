/* SPDX-License-Identifier: BSD-3-Clause */
/* soak.c - random operations between two or three processes, by a printed seed, while they are
 * stopped, their connections reset, and they themselves killed.
 *
 *   calm     nothing but the operations
 *   faults   sides are stopped for a moment; where a path can break it is broken, and nothing may
 *            be lost: TCP streams are reset or shut down, UDP is blacked out
 *   kills    many short lives: at a random time a side is killed, closes everything in mid-flight,
 *            or has its control path reset; all that is under way ends, the others go on
 *
 * The driver forks the sides, does the harm, and waits for what they say. TESTING.md tells more. */
#include "../io/ns.h"
#include "soak.h"

#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>

struct config config = {.transports = "shm", .sides = 2, .deadline_s = 40, .len_max = LEN_MAX};
struct arena *arena;

static struct {
	double seconds;
	const char *fault, *program;
	bool resets, blackouts, given, shm_apart;
	struct rng rng;
	pid_t pid[SIDES_MAX];
	bool ended[SIDES_MAX];
	unsigned stops, cut_streams, cut_controls, kills, closes, lives, black;
	struct totals all;
} d;

static const char *const mode_names[] = {"calm", "faults", "kills"};
static const struct {
	const char *name, *says; /* what has to be found */
} mutants[MUTANTS] = {
	[MUTANT_NONE] = {"none", ""},
	[MUTANT_CORRUPT] = {"corrupt", " was sent"},
	[MUTANT_LOSE] = {"lose", "never came"},
	[MUTANT_DUPLICATE] = {"duplicate", "came twice"},
	[MUTANT_REORDER] = {"reorder", "to the later receive"},
	[MUTANT_OVERRUN] = {"overrun", " there"},
	[MUTANT_ADD_TWICE] = {"add-twice", "word "},
	[MUTANT_NOTIFY_TWICE] = {"notify-twice", "came twice"},
	[MUTANT_LEAK] = {"leak", "descriptors before the session"},
};

static uint64_t draw(uint64_t below) { return rng_below(&d.rng, below); }
static double now_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool running(unsigned i) { return d.pid[i] && !d.ended[i]; }
static bool all_run(void)
{
	for (unsigned i = 0; i < config.sides; i++)
		if (!running(i) || arena->side[i].stage % STAGES < STAGE_RUN ||
			arena->side[i].stage % STAGES > STAGE_DRAIN)
			return false;
	return true;
}

/* ---- harm ---- */

static void stop(unsigned i)
{
	if (!running(i) || kill(d.pid[i], SIGSTOP))
		return;
	usleep((useconds_t)(1000 * (20 + draw(180))));
	kill(d.pid[i], SIGCONT);
	d.stops++;
}

static void cut(unsigned i, bool control)
{
	int ports[SIDES_MAX];
	unsigned to = 0;
	for (unsigned k = 0; k < config.sides; k++)
		ports[k] = arena->side[k].port;
	int fd = fault_find(d.pid[i], ports, config.sides, control, draw(1 << 20), &to);
	if (fd < 0)
		return;
	if (control)
		arena->cut[i][to] = arena->cut[to][i] = true;
	fault_cut(fd, control ? 1 : draw(1 << 20));
	*(control ? &d.cut_controls : &d.cut_streams) += 1;
}

static void harm_paths(void)
{
	unsigned i = (unsigned)draw(config.sides);
	if (draw(4) == 0)
		stop(i);
	else if (d.resets && all_run())
		for (unsigned n = draw(4) ? 1 : 3; n; n--)
			cut(i, false);
	else if (d.blackouts && all_run() && draw(8) == 0) {
		fault_blackout(d.pid[i], true);
		for (unsigned k = 0; k < 40 && running(i) && !arena->failed; k++)
			usleep(100000);
		fault_blackout(d.pid[i], false);
		d.black++;
	}
}

static void harm_once(void)
{
	unsigned i = (unsigned)draw(config.sides), what = (unsigned)draw(10);
	arena->stop = true;
	if (what < 5) {
		unsigned n = config.sides > 2 && draw(5) == 0 ? 2 : 1;
		for (; n; n--, i = (i + 1) % config.sides) {
			arena->side[i].dying = true;
			kill(d.pid[i], SIGKILL);
			d.kills++;
		}
	} else if (what < 8) {
		arena->side[i].please_close = true;
		d.closes++;
	} else if (all_run())
		cut(i ? i : config.sides - 1, true);
}

/* ---- a life ---- */

static void life_begin(void)
{
	memset(arena, 0, sizeof(*arena));
	memset(d.pid, 0, sizeof(d.pid));
	memset(d.ended, 0, sizeof(d.ended));
	fflush(NULL);
	for (unsigned i = 0; i < config.sides; i++) {
		d.pid[i] = fork();
		if (d.pid[i] < 0) {
			perror("fork");
			exit(1);
		}
		if (!d.pid[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			exit(side_run(i));
		}
	}
}

/* Who has ended, and how. */
static unsigned reap(void)
{
	unsigned left = 0;
	for (unsigned i = 0; i < config.sides; i++) {
		int status;
		if (running(i) && waitpid(d.pid[i], &status, WNOHANG) == d.pid[i]) {
			d.ended[i] = true;
			bool well = WIFEXITED(status)
					    ? !WEXITSTATUS(status)
					    : WTERMSIG(status) == SIGKILL && arena->side[i].dying;
			if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
				exit(77);
			if (!well &&
				!(WIFEXITED(status) && WEXITSTATUS(status) == 2 && arena->failed))
				fprintf(stderr, "soak: side %u ended with %s %d\n", i,
					WIFEXITED(status) ? "exit status" : "signal",
					WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
			if (!well)
				arena->failed = true;
		}
		left += running(i);
	}
	return left;
}

static void watch(uint64_t beat[SIDES_MAX], double since[SIDES_MAX])
{
	for (unsigned i = 0; i < config.sides; i++) {
		if (beat[i] != arena->side[i].heartbeat || !running(i)) {
			beat[i] = arena->side[i].heartbeat;
			since[i] = now_s();
		} else if (now_s() - since[i] > config.deadline_s + 20) {
			fprintf(stderr, "soak: side %u has not come back from a call for %u s\n", i,
				config.deadline_s + 20);
			arena->failed = true;
			kill(d.pid[i], SIGABRT);
			since[i] = now_s();
		}
	}
}

static void add_totals(void)
{
	for (unsigned i = 0; i < config.sides; i++) {
		const _Atomic uint64_t *from = (const _Atomic uint64_t *)&arena->side[i].totals;
		_Atomic uint64_t *to = (_Atomic uint64_t *)&d.all;
		for (size_t k = 0; k < sizeof(d.all) / sizeof(*to); k++)
			to[k] += from[k];
	}
}

static void live(double until)
{
	uint64_t beat[SIDES_MAX] = {0};
	double since[SIDES_MAX],
		hurt = now_s() +
		       0.001 * (double)(config.mode == MODE_KILLS ? draw(700) : 100 + draw(200)),
		failed = 0;
	life_begin();
	for (unsigned i = 0; i < SIDES_MAX; i++)
		since[i] = now_s();
	while (reap()) {
		usleep(1000);
		double now = now_s();
		watch(beat, since);
		if (arena->failed && !failed)
			failed = now;
		if (failed && now > failed + 5)
			for (unsigned i = 0; i < config.sides; i++)
				if (running(i))
					kill(d.pid[i], SIGKILL);
		if (now > until)
			arena->stop = true;
		if (config.mode == MODE_CALM || now < hurt || arena->failed)
			continue;
		if (config.mode == MODE_FAULTS) {
			harm_paths();
			hurt = now_s() + 0.001 * (double)(10 + draw(300));
		} else {
			harm_once();
			hurt = now + 1e9;
		}
	}
	add_totals();
	d.lives++;
}

/* A /dev/shm of the soak's own: what is in it afterwards, it has left there. */
static void shared_files_apart(void)
{
	d.shm_apart = !unshare(CLONE_NEWNS) &&
		      !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
		      !mount("soak", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL);
	if (!d.shm_apart)
		printf("soak: nobody looks whether files are left in /dev/shm: %s\n",
			strerror(errno));
}

static unsigned shared_files(void)
{
	unsigned n = 0;
	DIR *dir = d.shm_apart ? opendir("/dev/shm") : NULL;
	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

/* ---- the command ---- */

static void repeat_line(FILE *f)
{
	fprintf(f,
		"soak: repeat with: %s --transport %s --mode %s --sides %u --seed %llu --life %llu "
		"--seconds %g%s%s%s%s%s\n",
		d.program, config.transports, mode_names[config.mode], config.sides,
		(unsigned long long)config.seed, (unsigned long long)config.life, d.seconds,
		config.rings ? " --rings" : "", d.fault ? " --fault " : "", d.fault ? d.fault : "",
		d.blackouts ? " --blackouts" : "", d.resets ? " --resets" : "");
}

static int soak(void)
{
	uint64_t first = config.life;
	double until = now_s() + d.seconds;
	do {
		d.rng.state = rng_mix2(config.seed, config.life) + 13;
		live(until);
		config.life++;
	} while (config.mode == MODE_KILLS && !arena->failed && now_s() < until);
	config.life--;
	if (!arena->failed && shared_files()) {
		fprintf(stderr, "soak: %u files are left in /dev/shm\n", shared_files());
		arena->failed = true;
	}
	const struct totals *t = &d.all;
#define N(x) (unsigned long long)t->x
	printf("soak: %s %s%s seed %llu lives %llu..%llu: %llu operations, %.3f GB; %llu messages, "
	       "%llu objects, %llu active messages, %llu puts, %llu "
	       "notified, %llu gets, %llu batches, "
	       "%llu atomics, %llu flushes, %llu fences; %llu canceled, %llu truncated; %llu "
	       "sessions, %llu rounds; %u stops, %u streams cut (%llu changes of "
	       "path), %u blackouts, %u kills, "
	       "%u closes, %u control paths cut, %llu endpoints ended; %llu late wake-ups: %s\n",
		config.transports, mode_names[config.mode], config.rings ? " rings" : "",
		(unsigned long long)config.seed, (unsigned long long)first,
		(unsigned long long)config.life, N(operations), (double)t->bytes / 1e9, N(messages),
		N(objects), N(ams), N(puts), N(notifies), N(gets), N(batches), N(atomics),
		N(flushes), N(fences), N(canceled), N(truncated), N(sessions), N(rounds), d.stops,
		d.cut_streams, N(path_changes), d.black, d.kills, d.closes, d.cut_controls,
		N(endings), N(late_wakes), arena->failed ? "FAILED" : "good");
	if (arena->failed)
		repeat_line(stderr);
	return arena->failed ? 1 : 0;
}

/* Each way to misbehave, in a run of its own: it has to be found, and by the check that is for
 * it. */
static int all_mutants(void)
{
	int missed = 0;
	for (config.mutant = MUTANT_NONE + 1; config.mutant < MUTANTS; config.mutant++) {
		static char text[64 << 10];
		size_t n = 0;
		int out[2], status = 0;
		if (pipe(out))
			return 1;
		fflush(NULL);
		pid_t pid = fork();
		if (!pid) {
			dup2(out[1], 1);
			dup2(out[1], 2);
			close(out[0]);
			close(out[1]);
			exit(soak());
		}
		close(out[1]);
		for (ssize_t got; n < sizeof(text) - 1 &&
				  (got = read(out[0], text + n, sizeof(text) - 1 - n)) > 0;)
			n += (size_t)got;
		text[n] = 0;
		close(out[0]);
		waitpid(pid, &status, 0);
		bool found = WIFEXITED(status) && WEXITSTATUS(status) == 1 &&
			     strstr(text, mutants[config.mutant].says) &&
			     strstr(text, "repeat with");
		printf("soak: a side that does \"%s\" is %s\n", mutants[config.mutant].name,
			found ? "found" : "NOT found; this was printed:");
		if (!found)
			printf("%s", text);
		missed += !found;
	}
	return missed ? 1 : 0;
}

static const struct option options[] = {{"transport", 1, NULL, 't'}, {"mode", 1, NULL, 'm'},
	{"sides", 1, NULL, 'n'}, {"seed", 1, NULL, 's'}, {"life", 1, NULL, 'l'},
	{"seconds", 1, NULL, 'S'}, {"rings", 0, NULL, 'r'}, {"fault", 1, NULL, 'f'},
	{"resets", 0, NULL, 'R'}, {"blackouts", 0, NULL, 'b'}, {"len-max", 1, NULL, 'L'},
	{"deadline", 1, NULL, 'd'}, {"mutant", 1, NULL, 'M'}, {"mutants", 0, NULL, 'a'},
	{"help", 0, NULL, 'h'}, {0}};

static int usage(void)
{
	fprintf(stderr,
		"usage: soak [--transport LIST] [--mode calm|faults|kills] [--sides 2|3] "
		"[--seconds S] [--seed N] [--life N]\n"
		"            [--rings] [--resets] [--blackouts] [--fault SPEC] [--len-max N] "
		"[--deadline S] [--mutant NAME | --mutants]\n"
		"TESTING.md tells what each is for; without --seed one is drawn, and printed.\n");
	return 2;
}

static bool choose(const char *name, int opt)
{
	if (opt == 'm')
		for (unsigned i = 0; i < 3; i++)
			if (!strcmp(mode_names[i], name))
				return config.mode = (enum mode)i, true;
	if (opt == 'M')
		for (unsigned i = 0; i < MUTANTS; i++)
			if (!strcmp(mutants[i].name, name))
				return config.mutant = (enum mutant)i, true;
	return false;
}

int main(int argc, char **argv)
{
	bool every = false;
	d.seconds = 5;
	d.program = argv[0];
	for (int opt; (opt = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (opt) {
		case 't':
			config.transports = optarg;
			break;
		case 'm':
		case 'M':
			if (!choose(optarg, opt))
				return usage();
			break;
		case 'n':
			config.sides = (unsigned)atoi(optarg);
			break;
		case 's':
			config.seed = strtoull(optarg, NULL, 0);
			d.given = true;
			break;
		case 'l':
			config.life = strtoull(optarg, NULL, 0);
			break;
		case 'S':
			d.seconds = atof(optarg);
			break;
		case 'r':
			config.rings = true;
			break;
		case 'f':
			d.fault = optarg;
			break;
		case 'R':
			d.resets = true;
			break;
		case 'b':
			d.blackouts = true;
			setenv("ROPEWAY_WIRE", "udp", 1); /* memory has no firewall */
			break;
		case 'L':
			config.len_max = strtoull(optarg, NULL, 0);
			break;
		case 'd':
			config.deadline_s = (unsigned)atoi(optarg);
			break;
		case 'a':
			every = true;
			break;
		default:
			return usage();
		}
	}
	if (config.sides < 2 || config.sides > SIDES_MAX || config.len_max > LEN_MAX ||
		!config.len_max)
		return usage();
	if (!d.given)
		config.seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
	ns_enter();
	shared_files_apart();
	if (d.fault)
		setenv("ROPEWAY_FAULT", d.fault, 1);
	arena = mmap(
		NULL, sizeof(*arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED)
		return 1;
	printf("soak: seed %llu\n", (unsigned long long)config.seed);
	return every ? all_mutants() : soak();
}
