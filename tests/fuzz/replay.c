/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.c - runs a fuzz target on files and folders, in any build: the named seeds are a test
 * everywhere. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static unsigned inputs;

static void run_file(const char *name)
{
	FILE *f = fopen(name, "rb");
	if (!f) {
		perror(name);
		exit(1);
	}
	static uint8_t data[1 << 20];
	size_t n = fread(data, 1, sizeof(data), f);
	fclose(f);
	LLVMFuzzerTestOneInput(data, n);
	inputs++;
}

static void run_path(const char *name)
{
	struct stat st;
	char inner[4096];
	if (stat(name, &st) || !S_ISDIR(st.st_mode)) {
		run_file(name);
		return;
	}
	DIR *d = opendir(name);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.') {
			snprintf(inner, sizeof(inner), "%s/%s", name, e->d_name);
			run_file(inner);
		}
	if (d)
		closedir(d);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		run_path(argv[i]);
	printf("%u inputs\n", inputs);
	return inputs ? 0 : 1;
}
