/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - this process's profile: ROPEWAY_LIKE, read once.
 *
 * The first caller reads it, in a signal handler, too, so memory is mapped, and nobody waits for
 * anybody: two that come at once both read, and the second one's is thrown away.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/file.h"
#include "like/fields.h"

bool rpwi_like_is_name(const char *name) { return like_text(name); }

static int no_such(const char *name, char *why, size_t why_len)
{
	int used = snprintf(why, why_len, "there is no profile '%.64s'; there are", name);
	for (unsigned i = 0; rpwi_like_names[i] && used > 0 && (size_t)used < why_len; i++)
		used += snprintf(why + used, why_len - (size_t)used, "%s %s", i ? "," : "",
			rpwi_like_names[i]);
	if (used > 0 && (size_t)used < why_len)
		snprintf(why + used, why_len - (size_t)used, ", and no such file");
	return -ENOENT;
}

/* `text`: room for RPWI_LIKE_FILE_MAX + 1 bytes. */
static int read_file(const char *path, char *text, struct rpwi_like *out, char *why, size_t why_len)
{
	ssize_t n = rpwi_file_read(path, text, RPWI_LIKE_FILE_MAX + 1);
	if (n == -ENOENT && !strchr(path, '/'))
		return no_such(path, why, why_len);
	if (n < 0) {
		snprintf(why, why_len, "%.256s: %s (a profile was expected: docs/like.md)", path,
			strerror((int)-n));
		return (int)n;
	}
	int at = snprintf(why, why_len, "%.256s:", path);
	size_t used = RPWI_MIN((size_t)RPWI_MAX(at, 0), why_len - 1);
	return rpwi_like_parse(text, (size_t)n, out, why + used, why_len - used);
}

static void name_it(struct rpwi_like *l, const char *name)
{
	const char *slash = strrchr(name, '/');
	snprintf(
		l->name, sizeof(l->name), "%.*s", RPWI_LIKE_NAME_MAX - 1, slash ? slash + 1 : name);
}

static int read_into(const char *name, char *text, struct rpwi_like *out, char *why, size_t why_len)
{
	const char *own = like_text(name);
	int rc = own ? rpwi_like_parse(own, strlen(own), out, why, why_len)
		     : read_file(name, text, out, why, why_len);
	if (!rc)
		name_it(out, name);
	return rc;
}

int rpwi_like_read(const char *name, struct rpwi_like *out, char *why, size_t why_len)
{
	char *text = malloc(RPWI_LIKE_FILE_MAX + 1);
	if (!text) {
		snprintf(why, why_len, "no memory for a profile");
		return -ENOMEM;
	}
	int rc = read_into(name, text, out, why, why_len);
	free(text);
	return rc;
}

/* ---- the process's own ---- */

struct loaded {
	struct rpwi_like like;
	char text[RPWI_LIKE_FILE_MAX + 1];
};
static const struct rpwi_like *_Atomic mine;

static const struct rpwi_like *load(void)
{
	const char *name = secure_getenv("ROPEWAY_LIKE"); /* its errors quote the file */
	struct loaded *l = NULL;
	const struct rpwi_like *made = &rpwi_like_whole, *before = NULL;
	if (name && *name) {
		void *at = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		l = at == MAP_FAILED ? NULL : at;
		made = l ? &l->like : &rpwi_like_whole;
	}
	if (l) {
		char why[sizeof(l->like.wrong) - 16];
		int error = errno;
		l->like = rpwi_like_whole;
		if (read_into(name, l->text, &l->like, why, sizeof(why)))
			snprintf(l->like.wrong, sizeof(l->like.wrong), "ROPEWAY_LIKE: %s", why);
		errno = error;
	}
	if (atomic_compare_exchange_strong(&mine, &before, made))
		return made;
	if (l)
		munmap(l, sizeof(*l));
	return before;
}

const struct rpwi_like *rpwi_like(void)
{
	const struct rpwi_like *l = atomic_load_explicit(&mine, memory_order_acquire);
	return RPWI_LIKELY(l != NULL) ? l : load();
}

bool rpwi_like_beyond(enum rpwi_like_key key, uint64_t asked)
{
	const struct rpwi_like *l = rpwi_like();
	if (RPWI_LIKELY(asked <= l->has[key]))
		return false;
	rpwi_info("%s: %llu was asked for, and the device has %llu%s%s", rpwi_like_key_name(key),
		(unsigned long long)asked, (unsigned long long)l->has[key],
		*l->name ? ", as the profile says: " : "", l->name);
	return true;
}
