/* SPDX-License-Identifier: BSD-3-Clause */
/* asan_program.c - a verbs program built with ASan. "overflow" and "null" as an argument: it errs,
 * and ASan must say so, also with a device open. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	int n = 0;
	setenv("ROPEWAY_DEVICES", "all", 1); /* rpw_lo is on every machine */
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;
	char path[300], line[32] = "";
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rpw_lo"))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!c)
		return 2;
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/types/1", c->device->ibdev_path);
	FILE *f = fopen(path, "r");
	if (!f || !fgets(line, sizeof(line), f))
		return 3;
	fclose(f);
	printf("%s", line);
	fflush(stdout);
	if (system("ls / >/dev/null"))
		return 4;
	volatile size_t beyond = 8; /* so that no compiler sees it coming */
	volatile char *p = malloc(beyond);
	if (argc > 1 && !strcmp(argv[1], "overflow"))
		p[beyond] = 1;
	free((void *)p);
	volatile char *volatile nowhere = NULL;
	if (argc > 1 && !strcmp(argv[1], "null"))
		*nowhere = 1;
	return ibv_close_device(c);
}
