/* SPDX-License-Identifier: BSD-3-Clause */
/* launch.c - see launch.h. Reads ELF headers of whatever file the user names: every offset is
 * checked. */
#include "cli/run/launch.h"

#include "base/base.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

struct image {
	const uint8_t *data;
	size_t len;
};

static const void *at(const struct image *m, uint64_t off, uint64_t len)
{
	return off <= m->len && len <= m->len - off ? m->data + off : NULL;
}

static void read_elf(const struct image *m, struct rpwi_launch *out)
{
	const ElfW(Ehdr) *e = at(m, 0, sizeof(*e));
	if (!e || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
		e->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
		return;
	const ElfW(Phdr) *ph = e->e_phentsize == sizeof(*ph)
				       ? at(m, e->e_phoff, (uint64_t)e->e_phnum * sizeof(*ph))
				       : NULL;
	if (!ph || e->e_phoff % _Alignof(ElfW(Phdr)))
		return;
	const char *base = strrchr(out->program, '/');
	bool is_loader = base && (!strncmp(base + 1, "ld-", 3) || !strncmp(base + 1, "ld.so", 5));
	out->is_elf = true;
	out->is_static = !is_loader;
	for (unsigned i = 0; i < e->e_phnum; i++)
		if (ph[i].p_type == PT_INTERP)
			out->is_static = false;
}

/* "#!interpreter argument": the interpreter, or "" (execve(2): the line is cut at 255 bytes). */
static void read_shebang(const struct image *m, char *out, size_t len)
{
	size_t i = 2, n = 0, end = RPWI_MIN(m->len, (size_t)256);
	out[0] = '\0';
	if (m->len < 2 || memcmp(m->data, "#!", 2) != 0)
		return;
	while (i < end && (m->data[i] == ' ' || m->data[i] == '\t'))
		i++;
	for (; i < end && n + 1 < len && !strchr(" \t\n", m->data[i]); i++)
		out[n++] = (char)m->data[i];
	out[n] = '\0';
}

/* Map the file; 0 or -errno. An empty file is one without contents. */
static int map_file(const char *path, struct image *m, struct stat *st)
{
	*m = (struct image){0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = 0;
	if (fstat(fd, st)) {
		rc = -errno;
	} else if (st->st_size > 0) {
		void *p = mmap(NULL, (size_t)st->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED)
			rc = -errno;
		else
			*m = (struct image){p, (size_t)st->st_size};
	}
	close(fd);
	return rc;
}

static int check_executable(const char *path)
{
	struct stat st;
	if (stat(path, &st) || access(path, X_OK))
		return -errno;
	return S_ISREG(st.st_mode) ? 0 : -EACCES;
}

/* As execvp searches: a name with a slash is a path; else each folder of PATH, an empty one being
 * the current. */
static int find_program(const char *name, char *out, size_t len)
{
	int err = -ENOENT;
	if (strchr(name, '/')) {
		if ((size_t)snprintf(out, len, "%s", name) >= len)
			return -ENAMETOOLONG;
		return check_executable(out);
	}
	const char *path = getenv("PATH");
	for (const char *p = path && *path ? path : "/bin:/usr/bin"; p && *name;
		p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
		int n = (int)strcspn(p, ":");
		if ((size_t)snprintf(out, len, "%.*s%s%s", n, p, n ? "/" : "./", name) >= len)
			continue;
		int rc = check_executable(out);
		if (!rc)
			return 0;
		if (rc == -EACCES)
			err = rc;
	}
	return err;
}

int rpwi_launch_inspect(const char *program, struct rpwi_launch *out)
{
	memset(out, 0, sizeof(*out));
	char interpreter[256];
	int rc = find_program(program, out->program, sizeof(out->program));
	/* An interpreter may be a script itself; the kernel follows four (BINPRM_MAX_RECURSION in
	 * fs/exec.c). */
	for (int depth = 0; !rc && depth < 5; depth++) {
		struct image m;
		struct stat st = {0};
		int err = map_file(out->program, &m, &st);
		/* executable, but not to be read: still started, with nothing known of it */
		if (err == -EACCES)
			return 0;
		if (err)
			return err;
		/* A file may be cut short while it is mapped; a process that cuts it short
		 * meanwhile gets SIGBUS, as the kernel would give it. */
		read_shebang(&m, interpreter, sizeof(interpreter));
		if (!interpreter[0]) {
			read_elf(&m, out);
			out->is_privileged =
				st.st_mode & (S_ISUID | S_ISGID) ||
				getxattr(out->program, "security.capability", NULL, 0) > 0;
		}
		if (m.len)
			munmap((void *)(uintptr_t)m.data, m.len);
		if (!interpreter[0])
			return 0;
		memcpy(out->program, interpreter, strlen(interpreter) + 1);
		rc = check_executable(out->program);
	}
	return rc ? rc : -ELOOP;
}

int rpwi_launch_preload(const char *library, const char *have, char *out, size_t len)
{
	have = have ? have : "";
	int n = snprintf(out, len, "%s%s%s", have, *have ? ":" : "", library);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int rpwi_launch_asan_options(const char *have, char *out, size_t len)
{
	/* The runtime takes the last of two: what the user says comes after ours. */
	have = have ? have : "";
	int n = snprintf(out, len, "verify_asan_link_order=0%s%s", *have ? ":" : "", have);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}
