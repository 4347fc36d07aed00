/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c - fault injection: decides what is to happen to each packet, reproducibly. Sends nothing,
 * drops nothing itself.
 *
 * The n-th verdict is a function of the seed, the settings and n (and, for the bit to flip, of the
 * packet's length), so a run with the same packets meets the same harm. Each kind draws its own
 * number for every packet: turning one kind on moves none of the others. Not locked: one caller at
 * a time.
 */
#include "io/io.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"

enum fault_kind { FAULT_DROP, FAULT_DUP, FAULT_REORDER, FAULT_CORRUPT, FAULT_KINDS };
static const char *const kind_names[FAULT_KINDS] = {[FAULT_DROP] = "drop",
	[FAULT_DUP] = "dup",
	[FAULT_REORDER] = "reorder",
	[FAULT_CORRUPT] = "corrupt"};

#define ACCEPTED \
	"accepted: drop=P,dup=P,reorder=P,corrupt=P with P from 0 to 1, delay=MS from 0 to " \
	"10000, seed=N"
static const double DELAY_MAX_MS = 10000;
static const uint64_t SEED_DEFAULT = 1;

struct rpwi_fault {
	uint64_t seed, count;
	double probability[FAULT_KINDS];
	uint64_t delay_ns;
};

static bool parse_number(const char *text, double max, double *out)
{
	char *end;
	errno = 0;
	double v = strtod(text, &end);
	if (end == text || *end || errno || !isfinite(v) || v < 0 || v > max)
		return false;
	*out = v;
	return true;
}

static bool parse_seed(const char *text, uint64_t *out)
{
	char *end;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return end != text && !*end && !errno && !strchr(text, '-');
}

const char *const rpwi_fault_names[] = {"drop", "dup", "reorder", "corrupt", "delay", "seed", NULL};

/* One "name=value"; false when either is not known. */
static bool parse_setting(struct rpwi_fault *f, const char *name, const char *value)
{
	double ms;
	if (!strcmp(name, "seed"))
		return parse_seed(value, &f->seed);
	if (!strcmp(name, "delay")) {
		if (!parse_number(value, DELAY_MAX_MS, &ms))
			return false;
		f->delay_ns = (uint64_t)(ms * (double)RPWI_NS_PER_MS);
		return true;
	}
	for (int k = 0; k < FAULT_KINDS; k++)
		if (!strcmp(name, kind_names[k]))
			return parse_number(value, 1, &f->probability[k]);
	return false;
}

int rpwi_fault_parse(const char *spec, struct rpwi_fault **out, char *why, size_t why_len)
{
	*out = NULL;
	struct rpwi_fault *f = calloc(1, sizeof(*f));
	char *copy = strdup(spec), *save = NULL;
	int rc = f && copy ? 0 : -ENOMEM;
	if (rc) {
		snprintf(why, why_len, "out of memory");
	} else {
		f->seed = SEED_DEFAULT;
		for (char *s = strtok_r(copy, ",", &save); s && !rc;
			s = strtok_r(NULL, ",", &save)) {
			char *eq = strchr(s, '=');
			if (eq)
				*eq = 0;
			if (!eq || !parse_setting(f, s, eq + 1)) {
				if (eq)
					*eq = '=';
				snprintf(why, why_len, "\"%s\" is not understood; %s", s, ACCEPTED);
				rc = -EINVAL;
			}
		}
	}
	free(copy);
	if (rc)
		free(f);
	else
		*out = f;
	return rc;
}

void rpwi_fault_free(struct rpwi_fault *f) { free(f); }

/* A number for each (seed, n). */
static uint64_t draw(const struct rpwi_fault *f, unsigned which)
{
	return rpwi_scatter(rpwi_scatter(f->seed + 0x9e3779b97f4a7c15) +
			    (f->count * 8 + which + 1) * 0x9e3779b97f4a7c15);
}

static bool happens(const struct rpwi_fault *f, enum fault_kind kind)
{
	return (double)(draw(f, kind) >> 11) * 0x1p-53 < f->probability[kind];
}

struct rpwi_fault_verdict rpwi_fault_next(struct rpwi_fault *f, size_t packet_len)
{
	struct rpwi_fault_verdict v = {.delay_ns = f->delay_ns};
	if (happens(f, FAULT_DROP)) {
		v.drop = true;
	} else {
		v.dup = happens(f, FAULT_DUP);
		v.hold = happens(f, FAULT_REORDER);
		v.corrupt = packet_len && happens(f, FAULT_CORRUPT);
	}
	if (v.corrupt)
		v.corrupt_bit = (uint32_t)(draw(f, FAULT_KINDS) % (packet_len * 8));
	f->count++;
	return v;
}
