/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - the command.
 *   model --seed N --wire W        one script of one configuration
 *   model --seeds N [--from N]     N scripts, the configurations in turn
 *   model --script FILE...         scripts as text; --folder FOLDER: all that are in it
 *   --ops N  --without states,events,wrong,unreliable  --write FILE  --no-shrink  --times N */
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drive.h"

struct options {
	uint64_t seed, seeds;
	int wire; /* -1: all in turn */
	struct limits limits;
	bool shrink, verbose;
	unsigned times, deadline_s;
	const char *write_to;
	double seconds;
	char **scripts;
	int nscripts;
};

static struct tally sum;
static unsigned runs, skipped_runs, per_wire[WIRES];
static double spent;

static int side_main(char **argv)
{
	struct stat st;
	int fd = atoi(argv[3]);
	if (fstat(fd, &st))
		return 3;
	void *at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return 3;
	close(fd);
	return side_run(at, (unsigned)atoi(argv[2]), !strcmp(argv[4], "again"));
}

static void add(const struct result *r)
{
	sum.ops += r->tally.ops;
	sum.bytes += r->tally.bytes;
	sum.completions += r->tally.completions;
	for (unsigned k = 0; k < CHOICES; k++)
		sum.choice[k] += r->tally.choice[k];
	spent += r->seconds;
	runs++;
}

static void told(
	const struct options *o, const struct script *s, const struct result *r, const char *from)
{
	char name[120];
	printf("FAILED: %s seed %llu wire %s after %.1f s: %s\n", from, (unsigned long long)s->seed,
		wire_names[s->wire], r->seconds, r->why);
	if (!strcmp(from, "script"))
		printf("  again: model --seed %llu --wire %s --ops %u\n",
			(unsigned long long)s->seed, wire_names[s->wire], o->limits.ops);
	fflush(stdout);
	if (!o->shrink)
		return;
	struct result last = *r;
	struct script *small = shrink(s, &o->limits, 120, &last);
	snprintf(name, sizeof(name), "model-%s-%llu.txt", wire_names[s->wire],
		(unsigned long long)s->seed);
	FILE *f = fopen(name, "w");
	if (f) {
		fprintf(f, "# %s\n", last.why);
		script_write(small, f);
		fclose(f);
	}
	printf("  shortened from %u to %u operations: %s (%s)\n", s->nops, small->nops, name,
		last.why);
	if (small->nops <= 12)
		script_write(small, stdout);
	free(small);
}

static bool one(const struct options *o, const struct script *s, const char *from)
{
	struct result r;
	char why[200];
	if (s->wire == WIRE_VETH && !net_make(why, sizeof(why))) {
		printf("SKIPPED: two network namespaces: %s\n", why);
		skipped_runs++;
		return true;
	}
	for (unsigned i = 0; i < o->times; i++) {
		bool ok = drive(s, &o->limits, s->seed * 1000 + i, o->deadline_s, &r);
		add(&r);
		per_wire[s->wire]++;
		if (o->verbose)
			printf("seed %llu wire %s: %.2f s, %llu operations\n",
				(unsigned long long)s->seed, wire_names[s->wire], r.seconds,
				(unsigned long long)r.tally.ops);
		if (!ok) {
			told(o, s, &r, from);
			return false;
		}
	}
	return true;
}

static void summary(void)
{
	printf("%u runs (", runs);
	for (unsigned i = 0; i < WIRES; i++)
		printf("%s%s %u", i ? ", " : "", wire_names[i], per_wire[i]);
	printf(") in %.1f s: %llu operations, %llu completions and %llu bytes compared, %.0f "
	       "operations/s\n",
		spent, (unsigned long long)sum.ops, (unsigned long long)sum.completions,
		(unsigned long long)sum.bytes, (double)sum.ops / spent);
	for (unsigned k = 0; k < CHOICES; k++)
		printf("  allowed choice: %-50s %10llu\n", choice_names[k],
			(unsigned long long)sum.choice[k]);
}

static bool folder(struct options *o, const char *name)
{
	static char *paths[1000];
	glob_t found;
	char pattern[500];
	snprintf(pattern, sizeof(pattern), "%s/*.txt", name);
	if (glob(pattern, 0, NULL, &found))
		return false; /* a folder without any replays nothing, which is a mistake */
	for (size_t i = 0; i < found.gl_pathc && i < sizeof(paths) / sizeof(paths[0]); i++)
		paths[o->nscripts++] = found.gl_pathv[i];
	o->scripts = paths;
	return true;
}

static bool without(struct limits *l, const char *words)
{
	l->states = !strstr(words, "states");
	l->events = !strstr(words, "events");
	l->wrong = !strstr(words, "wrong");
	l->unreliable = !strstr(words, "unreliable");
	return true;
}

static bool parse(struct options *o, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
		if (!strcmp(a, "--no-shrink")) {
			o->shrink = false;
			continue;
		}
		if (!strcmp(a, "--verbose")) {
			o->verbose = true;
			continue;
		}
		if (!v)
			return false;
		i++;
		if (!strcmp(a, "--seed"))
			o->seed = strtoull(v, NULL, 0), o->seeds = 1;
		else if (!strcmp(a, "--seeds"))
			o->seeds = strtoull(v, NULL, 0);
		else if (!strcmp(a, "--from"))
			o->seed = strtoull(v, NULL, 0);
		else if (!strcmp(a, "--ops"))
			o->limits.ops = (uint32_t)strtoul(v, NULL, 0);
		else if (!strcmp(a, "--times"))
			o->times = (unsigned)strtoul(v, NULL, 0);
		else if (!strcmp(a, "--deadline")) /* without progress */
			o->deadline_s = (unsigned)strtoul(v, NULL, 0);
		else if (!strcmp(a, "--seconds"))
			o->seconds = strtod(v, NULL);
		else if (!strcmp(a, "--write"))
			o->write_to = v;
		else if (!strcmp(a, "--without"))
			without(&o->limits, v);
		else if (!strcmp(a, "--folder")) {
			if (!folder(o, v))
				return false;
		} else if (!strcmp(a, "--script")) {
			o->scripts = &argv[i];
			o->nscripts = argc - i;
			return true;
		} else if (!strcmp(a, "--wire")) {
			for (o->wire = 0; o->wire < WIRES && strcmp(wire_names[o->wire], v);)
				o->wire++;
			if (o->wire == WIRES)
				return false;
		} else {
			return false;
		}
	}
	return o->seeds || o->nscripts;
}

int main(int argc, char **argv)
{
	setenv("ROPEWAY_DEVICES", "all", 1); /* rpw_lo is on every machine */
	struct options o = {.wire = -1,
		.shrink = true,
		.times = 1,
		.deadline_s = 60,
		.limits = {.ops = 6000,
			.states = true,
			.events = true,
			.wrong = true,
			.unreliable = true}};
	bool ok = true;
	if (argc == 5 && !strcmp(argv[1], "--side"))
		return side_main(argv);
	if (!parse(&o, argc, argv)) {
		fprintf(stderr, "usage: model --seed N --wire W | --seeds N [--from N] | --script "
				"FILE... [--ops N] [--times N] [--seconds S] [--without WORDS] "
				"[--write FILE] [--no-shrink]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < o.nscripts; i++) {
		struct script *s = script_read(o.scripts[i]);
		ok &= one(&o, s, o.scripts[i]);
		free(s);
	}
	double until = drive_now() + (o.seconds ? o.seconds : 1e9);
	for (uint64_t k = 0; k < o.seeds && drive_now() < until; k++) {
		enum wire wire = o.wire >= 0 ? (enum wire)o.wire : (enum wire)(k % WIRES);
		struct script *s = gen_script(o.seed + k, wire, &o.limits);
		if (o.write_to) {
			FILE *f = fopen(o.write_to, "w");
			if (!f)
				return 2;
			script_write(s, f);
			fclose(f);
			return 0;
		}
		ok &= one(&o, s, "script");
		free(s);
		if (!ok && o.seconds)
			break;
	}
	summary();
	return ok ? 0 : 1;
}
