/* SPDX-License-Identifier: BSD-3-Clause */
/* walk_fuzz.c - random paths, from random descriptors, through src/tree, which is built with ASan
 * here: walk_fuzz [SEED [COUNT]]. What is found is canonical and found again. */
#include "lib/rng.h"
#include "tree/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct rng rng;
static unsigned pick(unsigned n) { return (unsigned)rng_below(&rng, n); }

static const char *const parts[] = {"/", "//", ".", "..", "/sys", "/sys/class/infiniband/",
	"rpw_lo", "device", "subsystem", "ports", "1", "gids", "0", "15", "16", "gid_attrs/types",
	"node_guid", "power", "/sys/class/infiniband_verbs", "infiniband", "uverbs1000001",
	"/dev/infiniband/", "rdma_cm", "/sys/class/misc/rdma_cm",
	"/sys/devices/virtual/ropeway/rpw_lo:00.0", "/sys/class/net/lo/device/infiniband/",
	"/proc/self/fd/", "net", "lo", "%n", "#", "\x01", "x"};

static size_t make(char *path, size_t size)
{
	size_t n = 0, count = pick(12);
	path[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		const char *part = parts[pick(RPWI_ARRAY_LEN(parts))];
		n += (size_t)snprintf(path + n, size - n, "%s%s", part, pick(3) ? "/" : "");
		if (n + 64 >= size)
			break;
	}
	if (n && !pick(4))
		path[pick((unsigned)n)] = (char)(1 + pick(255));
	if (!pick(50)) { /* long ones */
		size_t more = pick((unsigned)(size - n - 1));
		memset(path + n, 'a' + (int)pick(26), more);
		path[n += more] = '\0';
	}
	return n;
}

static void die(const char *why, const char *path)
{
	fprintf(stderr, "walk_fuzz: %s: %s\n", why, path);
	abort();
}

int main(int argc, char **argv)
{
	static char path[8192];
	char token[RPWI_TREE_PATH_MAX], text[RPWI_SYSFS_FILE_MAX], shown[8400];
	rng.state = argc > 1 ? strtoull(argv[1], NULL, 0) : rpwi_random64();
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 5000, found_ours = 0;
	printf("walk_fuzz: seed 0x%llx, %lu paths\n", (unsigned long long)rng.state, count);
	int dirs[] = {AT_FDCWD, -1, 1 << 20, open("/sys/class", O_RDONLY | O_DIRECTORY),
		rpwi_token_open("/sys/class/infiniband", NULL, 0, 0),
		rpwi_token_open("/sys/class/infiniband/rpw_lo/ports/1", NULL, 0, O_CLOEXEC),
		rpwi_token_open("/sys/none", NULL, 0, 0)};
	for (unsigned long i = 0; i < count; i++) {
		struct rpwi_place p, again;
		size_t len = 0;
		make(path, sizeof(path));
		int dir = dirs[pick(RPWI_ARRAY_LEN(dirs))];
		rpwi_maybe_at(dir, path);
		int rc = rpwi_place_find(&p, dir, path, (int)pick(4));
		if (rc == RPWI_OURS) {
			found_ours++;
			if (p.path[0] != '/' || strstr(p.path, "//") || strstr(p.path, "/../"))
				die("not canonical", p.path);
			struct stat st;
			rpwi_ours_stat(&p, &st);
			if (p.node.kind == RPWI_NODE_FILE)
				rpwi_tree_show(&p.node, text, &len);
			if (p.node.kind == RPWI_NODE_LINK &&
				rpwi_tree_target(&p.node, p.path, text, 1 + pick(300)) < -4095)
				die("target", p.path);
			if (rpwi_place_find(&again, AT_FDCWD, p.path, RPWI_NOFOLLOW) != RPWI_OURS ||
				again.node.kind != p.node.kind || strcmp(again.path, p.path) != 0)
				die("not found again", p.path);
			rpwi_place_done(&again);
		}
		rpwi_place_done(&p);
		rpwi_place_is_merged(&p, dir, path);
		rpwi_place_done(&p);
		snprintf(shown, sizeof(shown), "%s%s%s",
			pick(2) ? "/memfd:ropeway:" : "/tmp/.ropeway-cwd.", path,
			pick(3) ? " (deleted)" : "");
		if (rpwi_token_path(shown, token) && !rpwi_is_below_sys(token))
			die("a token elsewhere", token);
	}
	printf("walk_fuzz: %lu of them ours\n", found_ours);
	return found_ours > count / 100 ? 0 : 1;
}
