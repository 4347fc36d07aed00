/* text.c - sizes as people write them. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Twice it, and a little more, is still a number of bytes. */
#define SIZE_MAX_BYTES (1ull << 60)

static const struct {
	const char *suffix;
	unsigned shift;
} units[] = {
	{"", 0},
	{"B", 0},
	{"K", 10},
	{"KiB", 10},
	{"M", 20},
	{"MiB", 20},
	{"G", 30},
	{"GiB", 30},
	{"T", 40},
	{"TiB", 40},
};

int rpwi_cli_parse_size(const char *text, uint64_t *bytes)
{
	char *end;

	if (text[0] < '0' || text[0] > '9') /* strtoull would take blanks and a minus sign */
		return -EINVAL;
	errno = 0;
	uint64_t n = strtoull(text, &end, 10);
	if (errno || !n)
		return -EINVAL;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(units); i++) {
		if (strcasecmp(end, units[i].suffix) != 0)
			continue;
		if (n > SIZE_MAX_BYTES >> units[i].shift)
			return -EINVAL;
		*bytes = n << units[i].shift;
		return 0;
	}
	return -EINVAL;
}

const char *rpwi_cli_size(uint64_t bytes, char out[CLI_SIZE_LEN])
{
	static const struct {
		const char *name;
		unsigned shift;
	} scale[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

	for (size_t i = 0; i < RPWI_ARRAY_LEN(scale); i++) {
		uint64_t unit = 1ull << scale[i].shift;
		if (bytes < unit)
			continue;
		if (bytes % unit == 0)
			snprintf(out, CLI_SIZE_LEN, "%" PRIu64 " %s", bytes / unit, scale[i].name);
		else
			snprintf(out, CLI_SIZE_LEN, "%.2f %s", (double)bytes / (double)unit, scale[i].name);
		return out;
	}
	snprintf(out, CLI_SIZE_LEN, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
	return out;
}
