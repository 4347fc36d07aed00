/* SPDX-License-Identifier: BSD-3-Clause */
/* read.c - capture files: pcapng (draft-ietf-opsawg-pcapng) and the older pcap
 * (draft-ietf-opsawg-pcap), of either byte order, also compressed by gzip, and from a pipe. Knows
 * blocks, no packets. */
#include "cli/explain/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

enum {
	SHB = 0x0a0d0d0a,
	IDB = 1,
	OLD_PB = 2,
	SPB = 3,
	EPB = 6,
	MAGIC_NG = 0x1a2b3c4d,
	BLOCK_MAX = 16 << 20,
	BLOCK_MIN = 12,
	FRAME_MAX = 1 << 20,
	INTERFACES_MAX = 4096,
	OPT_COMMENT = 1,
	IF_TSRESOL = 9,
	IF_TSOFFSET = 14,
	EPB_FLAGS = 2,
};
static const uint32_t MAGIC_US = 0xa1b2c3d4, MAGIC_NS = 0xa1b23c4d;

struct interface {
	uint16_t link;
	uint8_t resol; /* as the option has it: 10^-n, or with the top bit 2^-n */
	uint64_t offset_s;
	uint32_t snap;
};

struct reader {
	const char *path;
	gzFile in;           /* of an uncompressed file: the bytes as they are */
	uint8_t begun[4];    /* read already, to see what it is */
	unsigned begun_left; /* of those, not taken yet: the last ones */
	int failed;          /* -errno: reading did */
	bool swap;           /* written on a machine of the other byte order */
	uint8_t *block;
	size_t room;
	struct interface *interface;
	uint32_t interfaces;
	ex_frame_fn *fn;
	void *arg;
	char *why;
};

static uint32_t get32(const struct reader *r, const uint8_t *p)
{
	uint32_t v = rpwi_get_le32(p);
	return r->swap ? __builtin_bswap32(v) : v;
}
static uint16_t get16(const struct reader *r, const uint8_t *p)
{
	uint16_t v = rpwi_get_be16(p);
	return r->swap ? v : __builtin_bswap16(v);
}

static int bad(struct reader *r, const char *what)
{
	snprintf(r->why, EX_WHY_LEN, "%s", what);
	return -EBADMSG;
}

/* As fread of bytes: fewer at the end, or where reading fails. */
static size_t take(struct reader *r, void *to, size_t len)
{
	size_t done = RPWI_MIN((size_t)r->begun_left, len);
	memcpy(to, r->begun + sizeof(r->begun) - r->begun_left, done);
	r->begun_left -= (unsigned)done;
	while (done < len && !r->failed) {
		int n = gzread(r->in, (uint8_t *)to + done, (unsigned)(len - done));
		int how = 0;
		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		gzerror(r->in, &how);
		/* one that was cut off ends as any file does that was */
		if (n < 0 && how != Z_BUF_ERROR)
			r->failed = how == Z_ERRNO && errno ? -errno : -EIO;
		break;
	}
	return done;
}

static bool room_for(struct reader *r, size_t len)
{
	if (len <= r->room)
		return true;
	uint8_t *more = realloc(r->block, len);
	if (!more)
		return false;
	r->block = more;
	r->room = len;
	return true;
}

/* ---- pcapng ---- */

/* One option of a block; false at the end of them, or where they stop making sense. */
static bool next_option(const struct reader *r, const uint8_t **at, const uint8_t *end,
	uint16_t *code, uint16_t *len, const uint8_t **value)
{
	if (end - *at < 4)
		return false;
	*code = get16(r, *at);
	*len = get16(r, *at + 2);
	*value = *at + 4;
	if (!*code || *len > end - *value)
		return false;
	size_t padded = ((size_t)*len + 3) & ~(size_t)3;
	*at = (size_t)(end - *value) < padded ? end : *value + padded;
	return true;
}

static int read_interface(struct reader *r, const uint8_t *body, size_t len)
{
	const uint8_t *at = body + 8, *end = body + len, *value;
	uint16_t code, n;
	if (len < 8)
		return bad(r, "an interface description that is too short");
	if (r->interfaces == INTERFACES_MAX)
		return bad(r, "more interfaces than any capture has");
	struct interface *more = realloc(r->interface, (r->interfaces + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	r->interface = more;
	struct interface *i = &more[r->interfaces++];
	*i = (struct interface){.link = get16(r, body), .resol = 6, .snap = get32(r, body + 4)};
	while (next_option(r, &at, end, &code, &n, &value)) {
		if (code == IF_TSRESOL && n >= 1)
			i->resol = value[0];
		else if (code == IF_TSOFFSET && n >= 8)
			i->offset_s = r->swap ? rpwi_get_be64(value)
					      : __builtin_bswap64(rpwi_get_be64(value));
	}
	return 0;
}

static uint64_t to_ns(const struct interface *i, uint64_t t)
{
	unsigned n = i->resol & 0x7f;
	uint64_t ns;
	if (i->resol & 0x80) {
		ns = n < 64 ? (uint64_t)((unsigned __int128)t * RPWI_NS_PER_S >> n) : 0;
	} else {
		ns = t;
		for (; n < 9; n++)
			ns *= 10;
		for (; n > 9; n--)
			ns /= 10;
	}
	return ns + i->offset_s * RPWI_NS_PER_S;
}

static void read_options(
	const struct reader *r, struct ex_frame *f, const uint8_t *at, const uint8_t *end)
{
	const uint8_t *value;
	uint16_t code, n;
	while (next_option(r, &at, end, &code, &n, &value)) {
		if (code == EPB_FLAGS && n >= 4) {
			uint32_t bits = get32(r, value) & 3;
			f->direction = bits == 1 ? EX_IN : bits == 2 ? EX_OUT : EX_UNKNOWN;
		} else if (code == OPT_COMMENT && n) {
			size_t have = RPWI_MIN((size_t)n, sizeof(f->comment) - 1);
			memcpy(f->comment, value, have);
			f->comment[have] = '\0';
		}
	}
}

/* The packet blocks: where each has its interface, time, lengths and bytes. 1: enough, 0, or
 * -errno. */
static int read_packet(struct reader *r, uint32_t type, const uint8_t *body, size_t len)
{
	size_t head = type == SPB ? 4 : 20;
	struct ex_frame f = {0};
	if (len < head)
		return bad(r, "a packet block that is too short");
	uint32_t id = type == EPB ? get32(r, body) : type == OLD_PB ? get16(r, body) : 0;
	if (id >= r->interfaces)
		return bad(r, "a packet of an interface that was not described");
	const struct interface *i = &r->interface[id];
	f.link = i->link;
	f.wire_len = get32(r, body + (type == SPB ? 0 : 16));
	f.len = type == SPB ? RPWI_MIN(f.wire_len, i->snap ? i->snap : f.wire_len)
			    : get32(r, body + 12);
	if (type == SPB)
		f.len = (uint32_t)RPWI_MIN((size_t)f.len, len - head);
	else
		f.time_ns = to_ns(i, (uint64_t)get32(r, body + 4) << 32 | get32(r, body + 8));
	if (f.len > len - head)
		return bad(r, "a packet that is longer than its block");
	f.bytes = body + head;
	f.wire_len = RPWI_MAX(f.wire_len, f.len);
	size_t padded = ((size_t)f.len + 3) & ~(size_t)3;
	if (type == EPB && padded < len - head)
		read_options(r, &f, body + head + padded, body + len);
	return r->fn(r->arg, &f) ? 0 : 1;
}

/* A section header decides the byte order, and forgets the interfaces of the section before. */
static int read_section(struct reader *r, const uint8_t *magic)
{
	uint32_t v = rpwi_get_le32(magic);
	if (v != MAGIC_NG && __builtin_bswap32(v) != MAGIC_NG)
		return bad(r, "a section header without its magic number");
	r->swap = v != MAGIC_NG;
	r->interfaces = 0;
	return 0;
}

/* 1 at the end of the file, 0, or -errno. */
static int read_block(struct reader *r)
{
	uint8_t head[12];
	size_t n = take(r, head, 8);
	if (!n)
		return r->failed ? r->failed : 1;
	if (n < 8)
		return bad(r, "the file ends in the middle of a block");
	uint32_t type = get32(r, head);
	if (type == SHB) {
		if (take(r, head + 8, 4) < 4)
			return bad(r, "the file ends in the middle of a block");
		int rc = read_section(r, head + 8);
		if (rc)
			return rc;
	}
	uint32_t len = get32(r, head + 4), had = type == SHB ? 12 : 8;
	if (len < BLOCK_MIN || len % 4 || len > BLOCK_MAX || len < had + 4)
		return bad(r, "a block with an impossible length");
	size_t rest = len - had;
	if (!room_for(r, rest))
		return -ENOMEM;
	if (take(r, r->block, rest) < rest)
		return bad(r, "the file ends in the middle of a block");
	if (get32(r, r->block + rest - 4) != len)
		return bad(r, "a block whose two lengths differ");
	if (type == IDB)
		return read_interface(r, r->block, rest - 4);
	if (type == EPB || type == SPB || type == OLD_PB)
		return read_packet(r, type, r->block, rest - 4);
	return 0; /* names, statistics, whatever else: not for us */
}

/* ---- pcap ---- */

static int read_pcap(struct reader *r, uint32_t magic)
{
	uint8_t head[20], rec[16];
	bool ns = magic == MAGIC_NS;
	if (take(r, head, sizeof(head)) < sizeof(head))
		return bad(r, "the file ends in its header");
	uint32_t link = get32(r, head + 16) & 0xffff;
	for (;;) {
		struct ex_frame f = {.link = link};
		size_t n = take(r, rec, sizeof(rec));
		if (!n)
			return r->failed ? r->failed : 1;
		if (n < sizeof(rec))
			return bad(r, "the file ends in the middle of a packet");
		f.time_ns = get32(r, rec) * RPWI_NS_PER_S +
			    (uint64_t)get32(r, rec + 4) * (ns ? 1 : 1000);
		f.len = get32(r, rec + 8);
		f.wire_len = get32(r, rec + 12);
		if (f.len > FRAME_MAX)
			return bad(r, "a packet with an impossible length");
		f.wire_len = RPWI_MAX(f.wire_len, f.len);
		if (!room_for(r, f.len ? f.len : 1))
			return -ENOMEM;
		if (take(r, r->block, f.len) < f.len)
			return bad(r, "the file ends in the middle of a packet");
		f.bytes = r->block;
		if (!r->fn(r->arg, &f))
			return 1;
	}
}

/* ---- either ---- */

/* What a stock program decompresses is not decompressed here. */
static int bad_kind(struct reader *r, const uint8_t magic[4])
{
	static const struct {
		const char *name, *cat;
		uint8_t magic[4];
		size_t len;
	} kinds[] = {
		{"zstd", "zstdcat", {0x28, 0xb5, 0x2f, 0xfd}, 4},
		{"xz", "xzcat", {0xfd, '7', 'z', 'X'}, 4},
		{"bzip2", "bzcat", {'B', 'Z', 'h'}, 3},
		{"lz4", "lz4cat", {0x04, 0x22, 0x4d, 0x18}, 4},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(kinds); i++) {
		if (memcmp(magic, kinds[i].magic, kinds[i].len) != 0)
			continue;
		snprintf(r->why, EX_WHY_LEN, "it is compressed by %s: `%s %s | ropeway explain -`",
			kinds[i].name, kinds[i].cat, strcmp(r->path, "-") ? r->path : "FILE");
		return -EBADMSG;
	}
	return bad(r, "it is neither a pcapng nor a pcap file, nor one compressed by gzip");
}

static int read_all(struct reader *r, bool *any)
{
	uint8_t magic[4];
	int rc = 0;
	if (take(r, magic, sizeof(magic)) < sizeof(magic))
		return r->failed ? r->failed : bad(r, "it is empty");
	uint32_t v = rpwi_get_le32(magic), swapped = __builtin_bswap32(v);
	if (v == MAGIC_US || v == MAGIC_NS || swapped == MAGIC_US || swapped == MAGIC_NS) {
		r->swap = v != MAGIC_US && v != MAGIC_NS;
		*any = true;
		return read_pcap(r, r->swap ? swapped : v);
	}
	if (v != SHB)
		return bad_kind(r, magic);
	memcpy(r->begun, magic, sizeof(magic));
	r->begun_left = sizeof(magic);
	while (!rc) {
		rc = read_block(r);
		*any |= !rc;
	}
	return rc;
}

int rpwi_explain_read(const char *path, ex_frame_fn *fn, void *arg, bool *cut, char why[EX_WHY_LEN])
{
	struct reader r = {.path = path, .fn = fn, .arg = arg, .why = why};
	bool any = false;
	*cut = false;
	why[0] = '\0';
	int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC)
				   : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
	r.in = fd < 0 ? NULL : gzdopen(fd, "rb");
	if (!r.in) {
		int err = fd < 0 ? errno : ENOMEM;
		if (fd >= 0)
			close(fd);
		snprintf(why, EX_WHY_LEN, "%s", strerror(err));
		return -err;
	}
	errno = 0;
	int rc = read_all(&r, &any);
	if (rc < 0 && !*why)
		snprintf(why, EX_WHY_LEN, "%s", strerror(-rc));
	free(r.block);
	free(r.interface);
	gzclose(r.in);
	/* What a killed process left ends in the middle: the rest is good. */
	if (rc == -EBADMSG && any) {
		*cut = true;
		return 0;
	}
	return rc < 0 ? rc : 0;
}
