/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_wire.c - messages and hellos, to bytes and back. Pure: no call here has an effect but on its
 * arguments. 消息和 hello 与字节之间的转换。纯函数。
 */
#include <string.h>

#include "language.h"
#include "peer_wire.h"

#define MESSAGE_MAGIC 0x5250574du /* "RPWM" */
#define HELLO_MAGIC 0x52505748u   /* "RPWH" */

/* ---- numbers / 数字 ---- */

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

static void put64(uint8_t *p, uint64_t v)
{
	put32(p, (uint32_t)(v >> 32));
	put32(p + 4, (uint32_t)v);
}

static unsigned get16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }

static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

/* ---- messages / 消息 ---- */

static size_t put_header(uint8_t *out, enum wire_type type, size_t body_bytes)
{
	put32(out, MESSAGE_MAGIC);
	put16(out + 4, WIRE_VERSION);
	put16(out + 6, type);
	put32(out + 8, (uint32_t)body_bytes);
	return WIRE_HEADER_BYTES + body_bytes;
}

size_t wire_put_mr(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const struct remote_memory *memory)
{
	uint8_t *body = out + WIRE_HEADER_BYTES;

	put64(body, memory->address);
	put32(body + 8, memory->rkey);
	put32(body + 12, memory->length);
	return put_header(out, WIRE_MR, WIRE_MR_BYTES);
}

size_t wire_put_done(uint8_t out[WIRE_MESSAGE_BYTES_MAX]) { return put_header(out, WIRE_DONE, 0); }

size_t wire_put_text(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const char *text)
{
	size_t bytes = strnlen(text, WIRE_TEXT_BYTES_MAX);

	memcpy(out + WIRE_HEADER_BYTES, text, bytes);
	return put_header(out, WIRE_TEXT, bytes);
}

static enum wire_fault get_mr(const uint8_t *body, size_t bytes, struct message *m)
{
	if (bytes != WIRE_MR_BYTES)
		return FAULT_LENGTH;
	m->memory.address = get64(body);
	m->memory.rkey = get32(body + 8);
	m->memory.length = get32(body + 12);
	/* Exactly a region: less could not hold what we write, and more was never agreed on. /
	 * 必须恰好是一个区域的大小。 */
	if (m->memory.length != REGION_BYTES || m->memory.address > UINT64_MAX - REGION_BYTES)
		return FAULT_MEMORY;
	return FAULT_NONE;
}

static enum wire_fault get_text(const uint8_t *body, size_t bytes, struct message *m)
{
	if (bytes < 1 || bytes > WIRE_TEXT_BYTES_MAX)
		return FAULT_LENGTH;
	/* It goes to a terminal, which takes some bytes for orders. / 文本将输出到终端，
	 * 某些字节会被终端当作命令。 */
	for (size_t i = 0; i < bytes; i++)
		if (body[i] < 0x20 || body[i] > 0x7e)
			return FAULT_TEXT;
	memcpy(m->text, body, bytes);
	m->text[bytes] = '\0';
	return FAULT_NONE;
}

enum wire_fault wire_get(const uint8_t *in, size_t bytes, struct message *m)
{
	size_t body_bytes;

	*m = (struct message){0};
	if (bytes < WIRE_HEADER_BYTES)
		return FAULT_TOO_SHORT;
	if (get32(in) != MESSAGE_MAGIC)
		return FAULT_MAGIC;
	if (get16(in + 4) != WIRE_VERSION)
		return FAULT_VERSION;
	body_bytes = bytes - WIRE_HEADER_BYTES;
	if (get32(in + 8) != body_bytes)
		return FAULT_LENGTH;
	m->type = (enum wire_type)get16(in + 6);
	switch (m->type) {
	case WIRE_MR:
		return get_mr(in + WIRE_HEADER_BYTES, body_bytes, m);
	case WIRE_DONE:
		return body_bytes ? FAULT_LENGTH : FAULT_NONE;
	case WIRE_TEXT:
		return get_text(in + WIRE_HEADER_BYTES, body_bytes, m);
	}
	return FAULT_TYPE;
}

const char *wire_fault_text(enum wire_fault fault)
{
	static const char *const texts[] = {
		[FAULT_NONE] = N_("it is as it should be"),
		[FAULT_TOO_SHORT] = N_("it is shorter than a header"),
		[FAULT_MAGIC] = N_("it does not begin with the magic number"),
		[FAULT_VERSION] = N_("it has a version that this program does not speak"),
		[FAULT_TYPE] = N_("its type does not exist"),
		[FAULT_LENGTH] = N_("its length is not what it says, or not that of its type"),
		/* NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one sentence on two lines */
		[FAULT_MEMORY] = N_("the memory that it offers is not of the size agreed on, or "
				    "ends beyond the address space"),
		[FAULT_TEXT] = N_("its text has characters that are not printable"),
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
	put32(out, HELLO_MAGIC);
	put16(out + 4, WIRE_VERSION);
	out[6] = (uint8_t)mode;
	out[7] = (uint8_t)reason;
}

bool wire_get_hello(const void *in, size_t bytes, struct hello *hello)
{
	const uint8_t *p = in;

	*hello = (struct hello){0};
	/* More than we sent may come: the CM's messages have private data of fixed sizes, filled up
	 * with zeros (rdma_get_cm_event(3)). 收到的可能比发送的长：CM
	 * 报文中私有数据的长度是固定的，不足处补零。 */
	if (!p || bytes < WIRE_HELLO_BYTES || get32(p) != HELLO_MAGIC)
		return false;
	hello->version = get16(p + 4);
	hello->mode = (enum mode)p[6];
	hello->reason = (enum reason)p[7];
	return true;
}
