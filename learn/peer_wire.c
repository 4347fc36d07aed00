/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_wire.c - messages, hellos and regions, to bytes and back. Pure: no call here has an effect
 * but on its arguments. */
#include "common.h"
#include "peer_wire.h"

#define MESSAGE_MAGIC 0x5250574du /* "RPWM" */
#define HELLO_MAGIC 0x52505748u   /* "RPWH" */

/* It goes to a terminal, which takes some bytes for orders. */
static size_t printable(const uint8_t *text, size_t bytes)
{
	size_t n = 0;

	while (n < bytes && text[n] >= 0x20 && text[n] <= 0x7e)
		n++;
	return n;
}

/* ---- messages ---- */

size_t wire_put_mr(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const struct remote_memory *memory)
{
	uint8_t *body = out + HEADER_BYTES;

	put(body, 8, memory->address);
	put(body + 8, 4, memory->rkey);
	put(body + 12, 4, memory->length);
	return put_header(out, MESSAGE_MAGIC, WIRE_VERSION, WIRE_MR, WIRE_MR_BYTES);
}

size_t wire_put_done(uint8_t out[WIRE_MESSAGE_BYTES_MAX])
{
	return put_header(out, MESSAGE_MAGIC, WIRE_VERSION, WIRE_DONE, 0);
}

size_t wire_put_text(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const char *text)
{
	size_t bytes = strnlen(text, WIRE_TEXT_BYTES_MAX);

	memcpy(out + HEADER_BYTES, text, bytes);
	return put_header(out, MESSAGE_MAGIC, WIRE_VERSION, WIRE_TEXT, bytes);
}

static enum wire_fault get_mr(const uint8_t *body, size_t bytes, struct message *m)
{
	if (bytes != WIRE_MR_BYTES)
		return FAULT_LENGTH;
	m->memory = (struct remote_memory){
		get(body, 8), (uint32_t)get(body + 8, 4), (uint32_t)get(body + 12, 4)};
	/* Exactly a region: less could not hold what we write, and more was never agreed on. */
	if (m->memory.length != REGION_BYTES || m->memory.address > UINT64_MAX - REGION_BYTES)
		return FAULT_MEMORY;
	return FAULT_NONE;
}

static enum wire_fault get_text(const uint8_t *body, size_t bytes, struct message *m)
{
	if (bytes < 1 || bytes > WIRE_TEXT_BYTES_MAX)
		return FAULT_LENGTH;
	memcpy(m->text, body, bytes);
	return printable(body, bytes) == bytes ? FAULT_NONE : FAULT_TEXT;
}

enum wire_fault wire_get(const uint8_t *in, size_t bytes, struct message *m)
{
	size_t body_bytes = bytes - HEADER_BYTES;

	*m = (struct message){0};
	if (bytes < HEADER_BYTES)
		return FAULT_TOO_SHORT;
	if (get(in, 4) != MESSAGE_MAGIC)
		return FAULT_MAGIC;
	if (get(in + 4, 2) != WIRE_VERSION)
		return FAULT_VERSION;
	if (get(in + 8, 4) != body_bytes)
		return FAULT_LENGTH;
	m->type = (enum wire_type)get(in + 6, 2);
	switch (m->type) {
	case WIRE_MR:
		return get_mr(in + HEADER_BYTES, body_bytes, m);
	case WIRE_DONE:
		return body_bytes ? FAULT_LENGTH : FAULT_NONE;
	case WIRE_TEXT:
		return get_text(in + HEADER_BYTES, body_bytes, m);
	}
	return FAULT_TYPE;
}

const char *wire_fault_text(enum wire_fault fault)
{
	static const char *const texts[] = {
		[FAULT_NONE] = "it is as it should be",
		[FAULT_TOO_SHORT] = "it is shorter than a header",
		[FAULT_MAGIC] = "it does not begin with the magic number",
		[FAULT_VERSION] = "it has a version that this program does not speak",
		[FAULT_TYPE] = "its type does not exist",
		[FAULT_LENGTH] = "its length is not what it says, or not that of its type",
		[FAULT_MEMORY] =
			"the memory that it offers is not of the size agreed on, or wraps around",
		[FAULT_TEXT] = "its text has characters that are not printable",
	};

	return texts[fault];
}

/* ---- hellos ---- */

const char *mode_name(enum mode mode)
{
	static const char *const names[] = {
		[MODE_WRITE] = "write", [MODE_READ] = "read", [MODE_TEXT] = "send-recv"};

	return mode >= MODE_WRITE && mode <= MODE_TEXT ? names[mode] : "?";
}

void wire_put_hello(uint8_t out[WIRE_HELLO_BYTES], enum mode mode, enum reason reason)
{
	put(out, 4, HELLO_MAGIC);
	put(out + 4, 2, WIRE_VERSION);
	out[6] = (uint8_t)mode;
	out[7] = (uint8_t)reason;
}

bool wire_get_hello(const void *in, size_t bytes, struct hello *hello)
{
	const uint8_t *p = in;

	*hello = (struct hello){0};
	/* More than we sent may come: the CM's messages have private data of fixed sizes, filled up
	 * with zeros (rdma_get_cm_event(3)). */
	if (!p || bytes < WIRE_HELLO_BYTES || get(p, 4) != HELLO_MAGIC)
		return false;
	*hello = (struct hello){(unsigned)get(p + 4, 2), (enum mode)p[6], (enum reason)p[7]};
	return true;
}

/* ---- regions ---- */

enum { SEED_AT = 256, PATTERN_AT = SEED_AT + 8, CHECKSUM_AT = REGION_BYTES - 8 };

/* FNV-1a: short enough to be read here, and it sees every byte. */
static uint64_t checksum_of(const uint8_t *p, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	while (bytes--)
		hash = (hash ^ *p++) * 0x100000001b3ull;
	return hash;
}

uint64_t region_fill(uint8_t region[REGION_BYTES], const char *text, uint64_t seed)
{
	uint64_t checksum;

	memset(region, 0, SEED_AT);
	memcpy(region, text, strnlen(text, SEED_AT - 1));
	put(region + SEED_AT, 8, seed);
	for (int at = PATTERN_AT; at < CHECKSUM_AT; at += 8)
		put(region + at, 8, mix(&seed));
	checksum = checksum_of(region, CHECKSUM_AT);
	put(region + CHECKSUM_AT, 8, checksum);
	return checksum;
}

/* Its text and its seed make a region anew: only if they made this one, too, are all bytes right,
 * the zeros behind the text included. */
bool region_check(const uint8_t region[REGION_BYTES], uint64_t *checksum)
{
	uint8_t again[REGION_BYTES];
	char text[SEED_AT] = "";
	size_t bytes = printable(region, SEED_AT - 1);

	memcpy(text, region, bytes);
	region_fill(again, text, get(region + SEED_AT, 8));
	*checksum = checksum_of(region, CHECKSUM_AT);
	return bytes > 0 && !memcmp(region, again, REGION_BYTES);
}
