/* SPDX-License-Identifier: BSD-3-Clause */
/* files.c - the messages between `ropeway send` and `ropeway recv`, and which names are safe.
 * Pure. */
#include "cli/files/files.h"

#include <errno.h>

size_t files_pack(const struct files_message *m, uint8_t out[FILES_MESSAGE_MAX])
{
	size_t name_len = strlen(m->name), text_len = strlen(m->text);

	rpwi_put_be32(out, FILES_MAGIC);
	rpwi_put_be16(out + 4, FILES_VERSION);
	rpwi_put_be16(out + 6, (uint16_t)m->type);
	rpwi_put_be32(out + 8, m->number);
	rpwi_put_be32(out + 12, m->mode);
	rpwi_put_be64(out + 16, m->size);
	rpwi_put_be64(out + 24, (uint64_t)m->mtime_s);
	rpwi_put_be32(out + 32, m->mtime_ns);
	rpwi_put_be16(out + 36, (uint16_t)name_len);
	rpwi_put_be16(out + 38, (uint16_t)text_len);
	memcpy(out + 40, m->hash, FILES_HASH_BYTES);
	rpwi_put_be64(out + 56, m->data);
	memcpy(out + FILES_HEAD_BYTES, m->name, name_len);
	memcpy(out + FILES_HEAD_BYTES + name_len, m->text, text_len);
	return FILES_HEAD_BYTES + name_len + text_len;
}

/* A refusal is understood in any version, since it is what a peer of another version says. */
static const char *head_check(const uint8_t *b, size_t len, char version[128])
{
	if (len < FILES_HEAD_BYTES || rpwi_get_be32(b) != FILES_MAGIC)
		return "it is not a message of ropeway send or recv";
	if (rpwi_get_be16(b + 4) != FILES_VERSION && rpwi_get_be16(b + 6) != FILES_REFUSED) {
		snprintf(version, 128, "it speaks version %u of the protocol, this side version %d",
			rpwi_get_be16(b + 4), FILES_VERSION);
		return version;
	}
	if (!rpwi_get_be16(b + 6) || rpwi_get_be16(b + 6) >= FILES_TYPES)
		return "its type is unknown";
	if (rpwi_get_be16(b + 36) > FILES_TEXT_MAX || rpwi_get_be16(b + 38) > FILES_TEXT_MAX)
		return "a name in it is longer than 4095 bytes";
	if (len != FILES_HEAD_BYTES + (size_t)rpwi_get_be16(b + 36) + rpwi_get_be16(b + 38))
		return "its length is not what it says";
	if (memchr(b + FILES_HEAD_BYTES, 0, len - FILES_HEAD_BYTES))
		return "there is a zero byte in a name";
	if (rpwi_get_be32(b + 32) >= RPWI_NS_PER_S)
		return "its time has more nanoseconds than a second";
	if (rpwi_get_be32(b + 12) & ~07777u)
		return "its mode is not one of a file, a directory or a link";
	return NULL;
}

int files_unpack(const uint8_t *b, size_t len, struct files_message *m, char *why, size_t why_len)
{
	char version[128];
	const char *wrong = head_check(b, len, version);

	if (wrong) {
		snprintf(why, why_len, "a message of %zu bytes came: %s", len, wrong);
		return -EPROTO;
	}
	size_t name_len = rpwi_get_be16(b + 36), text_len = rpwi_get_be16(b + 38);
	m->type = rpwi_get_be16(b + 6);
	m->number = rpwi_get_be32(b + 8);
	m->mode = rpwi_get_be32(b + 12);
	m->size = rpwi_get_be64(b + 16);
	m->mtime_s = (int64_t)rpwi_get_be64(b + 24);
	m->mtime_ns = rpwi_get_be32(b + 32);
	memcpy(m->hash, b + 40, FILES_HASH_BYTES);
	m->data = rpwi_get_be64(b + 56);
	memcpy(m->name, b + FILES_HEAD_BYTES, name_len);
	m->name[name_len] = '\0';
	memcpy(m->text, b + FILES_HEAD_BYTES + name_len, text_len);
	m->text[text_len] = '\0';
	return 0;
}

static bool is_part(const char *component, size_t len)
{
	size_t part_len = strlen(FILES_PART);

	return len >= part_len && !memcmp(component + len - part_len, FILES_PART, part_len);
}

static const char *component_check(const char *c, size_t len)
{
	if (!len)
		return "it has an empty component";
	if ((len == 1 && c[0] == '.') || (len == 2 && c[0] == '.' && c[1] == '.'))
		return "it has a component . or ..";
	if (len > FILES_COMPONENT_MAX)
		return "it has a component longer than 255 bytes";
	return is_part(c, len) ? "names that end in " FILES_PART " are those of files under way"
			       : NULL;
}

const char *files_name_check(const char *name)
{
	const char *wrong = NULL;

	if (!*name)
		return "it is empty";
	if (*name == '/')
		return "it is absolute";
	/* "." and ".." are told apart from these below. */
	if (*name == '.' && name[1] && name[1] != '/' && strncmp(name, "../", 3) != 0 &&
		strcmp(name, "..") != 0)
		return "it begins with a dot, and such names configure programs: send the "
		       "directory that it is in";
	for (int depth = 1; !wrong; depth++) {
		size_t len = strcspn(name, "/");
		wrong = depth > FILES_DEPTH_MAX ? "it is more than 128 directories deep"
						: component_check(name, len);
		if (!wrong && !name[len])
			return NULL;
		name += len + 1;
	}
	return wrong;
}

const char *files_link_check(const char *name, const char *target)
{
	int depth = 0;

	if (!*target)
		return "its target is empty";
	if (*target == '/')
		return "its target is absolute";
	for (const char *p = name; (p = strchr(p, '/')); p++)
		depth++;
	bool descended = false;
	for (const char *p = target; *p; p += strspn(p, "/")) {
		size_t len = strcspn(p, "/");
		bool up = len == 2 && p[0] == '.' && p[1] == '.';
		if (up && (descended || !depth--))
			return descended
				       ? "its target has .. behind a name, which may lead anywhere"
				       : "its target leaves the directory";
		descended |= !up;
		p += len;
	}
	return NULL;
}
