/* SPDX-License-Identifier: BSD-3-Clause */
/* read.c - capture files: pcapng (draft-ietf-opsawg-pcapng) and the older pcap
 * (draft-ietf-opsawg-pcap), of either byte order. Knows blocks, no packets. */
#include "cli/explain/explain.h"

#include <errno.h>
#include <stdlib.h>

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
	FILE *in;
	bool swap; /* written on a machine of the other byte order */
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
	size_t n = fread(head, 1, 8, r->in);
	if (!n)
		return ferror(r->in) ? -EIO : 1;
	if (n < 8)
		return bad(r, "the file ends in the middle of a block");
	uint32_t type = get32(r, head);
	if (type == SHB) {
		if (fread(head + 8, 1, 4, r->in) < 4)
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
	if (fread(r->block, 1, rest, r->in) < rest)
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
	if (fread(head, 1, sizeof(head), r->in) < sizeof(head))
		return bad(r, "the file ends in its header");
	uint32_t link = get32(r, head + 16) & 0xffff;
	for (;;) {
		struct ex_frame f = {.link = link};
		size_t n = fread(rec, 1, sizeof(rec), r->in);
		if (!n)
			return ferror(r->in) ? -EIO : 1;
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
		if (fread(r->block, 1, f.len, r->in) < f.len)
			return bad(r, "the file ends in the middle of a packet");
		f.bytes = r->block;
		if (!r->fn(r->arg, &f))
			return 1;
	}
}

/* ---- either ---- */

static int read_all(struct reader *r, bool *any)
{
	uint8_t magic[4];
	int rc = 0;
	if (fread(magic, 1, sizeof(magic), r->in) < sizeof(magic))
		return ferror(r->in) ? -errno : bad(r, "it is empty");
	uint32_t v = rpwi_get_le32(magic), swapped = __builtin_bswap32(v);
	if (v == MAGIC_US || v == MAGIC_NS || swapped == MAGIC_US || swapped == MAGIC_NS) {
		r->swap = v != MAGIC_US && v != MAGIC_NS;
		*any = true;
		return read_pcap(r, r->swap ? swapped : v);
	}
	if (v != SHB)
		return bad(r, "it is neither a pcapng nor a pcap file");
	if (fseek(r->in, 0, SEEK_SET))
		return -errno;
	while (!rc) {
		rc = read_block(r);
		*any |= !rc;
	}
	return rc;
}

int rpwi_explain_read(const char *path, ex_frame_fn *fn, void *arg, bool *cut, char why[EX_WHY_LEN])
{
	struct reader r = {.in = fopen(path, "rbe"), .fn = fn, .arg = arg, .why = why};
	bool any = false;
	*cut = false;
	why[0] = '\0';
	if (!r.in) {
		int err = errno;
		snprintf(why, EX_WHY_LEN, "%s", strerror(err));
		return -err;
	}
	errno = 0;
	int rc = read_all(&r, &any);
	if (rc < 0 && !*why)
		snprintf(why, EX_WHY_LEN, "%s", strerror(-rc));
	free(r.block);
	free(r.interface);
	fclose(r.in);
	/* What a killed process left ends in the middle: the rest is good. */
	if (rc == -EBADMSG && any) {
		*cut = true;
		return 0;
	}
	return rc < 0 ? rc : 0;
}
