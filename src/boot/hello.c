/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.c - see hello.h. Every length is checked against what is there and what the field may have;
 * text is plain ASCII, because it is logged. */
#include "boot/hello.h"

static const uint8_t magic[8] = {0x93, 'r', 'o', 'p', 'e', 'w', 'a', 'y'};

enum field_kind { FIELD_BYTES, FIELD_NUMBER, FIELD_TEXT };
static const struct field {
	uint8_t tag, min, max;
	enum field_kind kind;
	size_t offset;
	const char *missing;
} fields[] = {
	{1, 16, 16, FIELD_BYTES, offsetof(struct tran_facts, host_id), "its hello has no host ID"},
	{2, 4, 4, FIELD_NUMBER, offsetof(struct tran_facts, pid), "its hello has no PID"},
	{3, 4, 4, FIELD_NUMBER, offsetof(struct tran_facts, uid), "its hello has no UID"},
	{4, 0, sizeof(((struct tran_facts *)0)->hostname) - 1, FIELD_TEXT,
		offsetof(struct tran_facts, hostname), "its hello has no host name"},
	{5, 0, sizeof(((struct tran_facts *)0)->transports) - 1, FIELD_TEXT,
		offsetof(struct tran_facts, transports), "its hello has no transports"},
};

static bool plain(uint8_t c) { return c > 0x20 && c < 0x7f; }

enum boot_prelude boot_prelude_decode(const uint8_t *p, size_t len, struct boot_prelude_fields *out)
{
	if (memcmp(p, magic, RPWI_MIN(len, sizeof(magic))))
		return BOOT_PRELUDE_STRANGER;
	if (len < BOOT_PRELUDE_LEN)
		return BOOT_PRELUDE_MORE;
	*out = (struct boot_prelude_fields){
		p[8], p[9], rpwi_get_be16(p + 10), rpwi_get_be32(p + 12)};
	/* Another version may say more before it is refused by name: none of it is read. */
	bool others_hello = out->version != BOOT_VERSION && out->kind != BOOT_HELLO_REFUSAL;
	bool good = (out->byte_order == BOOT_LITTLE_ENDIAN || out->byte_order == BOOT_BIG_ENDIAN) &&
		    out->kind >= BOOT_HELLO_CONNECTOR && out->kind <= BOOT_HELLO_REFUSAL &&
		    out->version && (out->body_len <= BOOT_HELLO_BODY_MAX || others_hello);
	return good ? BOOT_PRELUDE_GOOD : BOOT_PRELUDE_BAD;
}

static size_t prelude_encode(enum boot_hello_kind kind, size_t body_len, uint8_t *out)
{
	memcpy(out, magic, sizeof(magic));
	out[8] = BOOT_LITTLE_ENDIAN; /* base.h asserts it */
	out[9] = (uint8_t)kind;
	rpwi_put_be16(out + 10, BOOT_VERSION);
	rpwi_put_be32(out + 12, (uint32_t)body_len);
	return BOOT_PRELUDE_LEN + body_len;
}

static size_t field_encode(const struct field *f, const struct tran_facts *facts, uint8_t *out)
{
	const uint8_t *from = (const uint8_t *)facts + f->offset;
	size_t len = f->kind == FIELD_TEXT ? strnlen((const char *)from, f->max) : f->min;
	uint32_t number;
	out[0] = f->tag;
	out[1] = (uint8_t)len;
	if (f->kind == FIELD_NUMBER) {
		memcpy(&number, from, sizeof(number));
		rpwi_put_be32(out + 2, number);
		return 2 + len;
	}
	for (size_t i = 0; i < len; i++)
		out[2 + i] = f->kind == FIELD_TEXT && !plain(from[i]) ? '?' : from[i];
	return 2 + len;
}

size_t boot_hello_encode(enum boot_hello_kind kind, const struct tran_facts *own, uint8_t *out)
{
	size_t len = 0;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(fields); i++)
		len += field_encode(&fields[i], own, out + BOOT_PRELUDE_LEN + len);
	return prelude_encode(kind, len, out);
}

size_t boot_refusal_encode(enum boot_refusal reason, uint8_t *out)
{
	rpwi_put_be16(out + BOOT_PRELUDE_LEN, (uint16_t)reason);
	return prelude_encode(BOOT_HELLO_REFUSAL, 2, out);
}

static const char *field_decode(
	const struct field *f, const uint8_t *p, size_t len, struct tran_facts *out)
{
	uint8_t *to = (uint8_t *)out + f->offset;
	if (len < f->min || len > f->max)
		return "a field of its hello has a length that it cannot have";
	if (f->kind == FIELD_NUMBER) {
		uint32_t number = rpwi_get_be32(p);
		memcpy(to, &number, sizeof(number));
		return NULL;
	}
	for (size_t i = 0; f->kind == FIELD_TEXT && i < len; i++)
		if (!plain(p[i]))
			return "a name in its hello is no plain text";
	memcpy(to, p, len); /* text: `out` was cleared, and max leaves room for the zero */
	return NULL;
}

int boot_hello_decode(const uint8_t *body, size_t len, struct tran_facts *out, const char **why)
{
	unsigned seen = 0;
	memset(out, 0, sizeof(*out));
	for (size_t at = 0; at < len;) {
		if (len - at < 2 || len - at - 2 < body[at + 1]) {
			*why = "a field of its hello goes beyond the end";
			return -1;
		}
		const uint8_t *p = body + at;
		at += 2 + (size_t)p[1];
		for (size_t i = 0; i < RPWI_ARRAY_LEN(fields); i++) {
			if (p[0] != fields[i].tag)
				continue;
			*why = seen & 1u << i ? "a field of its hello comes twice"
					      : field_decode(&fields[i], p + 2, p[1], out);
			if (*why)
				return -1;
			seen |= 1u << i;
		}
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(fields); i++)
		if (!(seen & 1u << i)) {
			*why = fields[i].missing;
			return -1;
		}
	/* 0 and -1 mean "any process" to kill() and its like: no peer may name itself so. */
	if (out->pid == 0 || out->pid > INT32_MAX) {
		*why = "the PID in its hello is invalid";
		return -1;
	}
	return 0;
}

static const struct protocol {
	const char *name, *begins;
	size_t len;
} protocols[] = {
	{"TLS", "\x16\x03", 2},
	{"TLS", "\x15\x03", 2},
	{"HTTP", "GET ", 4},
	{"HTTP", "POST", 4},
	{"HTTP", "HEAD", 4},
	{"HTTP", "OPTI", 4},
	{"HTTP", "HTTP", 4},
	{"HTTP", "PRI ", 4},
	{"SSH", "SSH-", 4},
	{"SMB", "\x00\x00\x00\x85\xffSMB", 8},
	{"remote desktop", "\x03\x00\x00", 3},
};

const char *boot_protocol_guess(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(protocols); i++)
		if (len >= protocols[i].len && !memcmp(p, protocols[i].begins, protocols[i].len))
			return protocols[i].name;
	return NULL;
}
