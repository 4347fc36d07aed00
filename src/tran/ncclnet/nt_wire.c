/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_wire.c - bytes to facts and back. */
#include "tran/ncclnet/nt_wire.h"

#include <stdio.h>

#include "base/hash.h"

static const uint8_t handle_magic[4] = {'R', 'P', 'N', 'H'}, hello_magic[4] = {'R', 'P', 'N', 'W'};

size_t nt_put_handle(uint8_t *p, const struct nt_handle *h)
{
	memcpy(p, handle_magic, 4);
	rpwi_put_be16(p + 4, NT_VERSION);
	rpwi_put_be16(p + 6, (uint16_t)h->abi);
	rpwi_put_be16(p + 8, (uint16_t)h->bytes);
	memcpy(p + 10, h->name, NT_NAME_LEN);
	memcpy(p + 10 + NT_NAME_LEN, h->nonce, NT_NONCE_LEN);
	size_t at = NT_HANDLE_FIXED;
	for (int i = 0; i < 2; i++, at += h->bytes)
		memcpy(p + at, h->plugin[i], h->bytes);
	rpwi_put_be64(p + at, rpwi_hash(RPWI_HASH, p, at));
	return at + 8;
}

int nt_get_handle(const uint8_t *p, size_t len, struct nt_handle *h, char *why, size_t why_len)
{
	memset(h, 0, sizeof *h);
	if (len < NT_HANDLE_FIXED + 8 || memcmp(p, handle_magic, 4)) {
		snprintf(why, why_len,
			"the peer's handle of %zu bytes is not one of the ncclnet transport", len);
		return -1;
	}
	if (rpwi_get_be16(p + 4) != NT_VERSION) {
		snprintf(why, why_len,
			"the peer's ncclnet transport speaks version %u, this one %u: run the same "
			"ropeway on both sides",
			rpwi_get_be16(p + 4), (unsigned)NT_VERSION);
		return -1;
	}
	h->abi = rpwi_get_be16(p + 6);
	h->bytes = rpwi_get_be16(p + 8);
	if (h->bytes > NCCL_NET_HANDLE_BYTES || len != NT_HANDLE_FIXED + 2 * h->bytes + 8 ||
		rpwi_get_be64(p + len - 8) != rpwi_hash(RPWI_HASH, p, len - 8)) {
		snprintf(why, why_len, "the peer's ncclnet handle of %zu bytes is garbled", len);
		return -1;
	}
	memcpy(h->name, p + 10, NT_NAME_LEN - 1);
	for (char *c = h->name; *c; c++) /* it goes to logs, and so to terminals */
		if (*c < ' ' || *c > '~')
			*c = '?';
	memcpy(h->nonce, p + 10 + NT_NAME_LEN, NT_NONCE_LEN);
	for (int i = 0; i < 2; i++)
		memcpy(h->plugin[i], p + NT_HANDLE_FIXED + (size_t)i * h->bytes, h->bytes);
	return 0;
}

void nt_put_hello(uint8_t *p, unsigned abi, unsigned which, const uint8_t *to, const uint8_t *from)
{
	memcpy(p, hello_magic, 4);
	rpwi_put_be16(p + 4, NT_VERSION);
	rpwi_put_be16(p + 6, (uint16_t)abi);
	rpwi_put_be16(p + 8, (uint16_t)which);
	memcpy(p + 10, to, NT_NONCE_LEN);
	memcpy(p + 10 + NT_NONCE_LEN, from, NT_NONCE_LEN);
}

void nt_put_item(uint8_t *p, const struct nt_item *i)
{
	p[0] = i->kind;
	p[1] = i->answer;
	rpwi_put_be16(p + 2, i->head_len);
	rpwi_put_be32(p + 4, i->id);
	rpwi_put_be64(p + 8, i->len);
}

struct limit {
	uint16_t head_max;
	uint8_t answer_max;
	uint64_t value_max;
	bool carries; /* head_len and len bytes follow */
};

static const char *beyond(const struct limit *l, const struct nt_item *i)
{
	if (i->head_len > l->head_max)
		return "a head longer than any";
	if (i->answer > l->answer_max)
		return "an unknown answer";
	return i->len > l->value_max ? "a length beyond the limit" : NULL;
}

int nt_get_item(const uint8_t *p, size_t left, struct nt_item *i, size_t *more, const char **why)
{
	static const struct limit limits[] = {
		{TRAN_HEAD_MAX, 0, NT_FRAME_MAX, true},
		{0, NT_NO_ACCESS, NT_CHUNK_MAX, false},
		{0, 0, 0, false},
	};
	_Static_assert(RPWI_ARRAY_LEN(limits) == NT_LEAVE - NT_FRAME + 1, "one row for each kind");
	if (left < NT_ITEM_LEN) {
		*why = "a batch that ends within a header";
		return -1;
	}
	*i = (struct nt_item){.kind = p[0],
		.answer = p[1],
		.head_len = rpwi_get_be16(p + 2),
		.id = rpwi_get_be32(p + 4),
		.len = rpwi_get_be64(p + 8)};
	if (i->kind < NT_FRAME || i->kind > NT_LEAVE) {
		*why = "an unknown kind of item";
		return -1;
	}
	const struct limit *l = &limits[i->kind - NT_FRAME];
	*why = beyond(l, i);
	if (*why)
		return -1;
	*more = l->carries ? i->head_len + (size_t)i->len : 0;
	if (*more > left - NT_ITEM_LEN) {
		*why = "an item that goes beyond its batch";
		return -1;
	}
	return 0;
}
