/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_wire.h - the bytes of tran_ncclnet: the handle that boot carries, the hello on each comm, and
 * the contents of a batch. Pure: encode, decode, check.
 *
 * All numbers are big-endian.
 *
 *   handle  "RPNH" version abi bytes name[64] nonce[16] two handles of the plugin, each of `bytes`;
 *           FNV-1a of all that   the first is of frames, the second of bulk data
 *   hello   "RPNW" version abi which nonce[16] nonce[16]   to whom, from whom; the first message on
 *                                                          each comm
 *   batch   length number, then items: a header of 16 bytes and what its kind says. One message of
 *           the comm for frames
 *     frame   head body
 *     bulk    id: what it is, by a frame before it (tran/emulate.h); len bytes follow on the comm
 *             for bulk data, behind those announced before. Answer 1: its memory is gone, len is 0,
 *             and nothing follows
 *     leave   nothing comes after it. Answered by leave, unless that has been said
 */
#ifndef ROPEWAY_TRAN_NCCLNET_NT_WIRE_H
#define ROPEWAY_TRAN_NCCLNET_NT_WIRE_H

#include "ncclnet/abi/net.h"
#include "tran/tran.h"

enum {
	NT_VERSION = 2,
	NT_NAME_LEN = 64,
	NT_NONCE_LEN = 16,
	NT_HANDLE_FIXED = 4 + 2 + 2 + 2 + NT_NAME_LEN + NT_NONCE_LEN,
	NT_HANDLE_MAX = NT_HANDLE_FIXED + 2 * NCCL_NET_HANDLE_BYTES + 8,
	NT_HELLO_LEN = 4 + 2 + 2 + 2 + 2 * NT_NONCE_LEN,
	NT_BATCH_LEN = 8,
	NT_ITEM_LEN = 16,
	NT_FRAME_MAX = 64 * 1024,
	/* puts and gets up to this go with the frames: a copy on each side, but no message of their
	 * own */
	NT_HERE_MAX = 8 * 1024,
	NT_CHUNK_MAX = TRAN_BULK_LEN_MAX, /* one message of bulk data */
	NT_SLOT_LEN = 68 * 1024,
};
_Static_assert((int)NT_HANDLE_MAX <= (int)TRAN_HANDLE_MAX, "a handle fits");
_Static_assert(NT_SLOT_LEN >= NT_BATCH_LEN + NT_ITEM_LEN + TRAN_HEAD_MAX + NT_FRAME_MAX,
	"the largest frame fits");

enum nt_kind {
	NT_FRAME = 0xb1,
	NT_BULK,
	NT_LEAVE,
};

enum nt_answer_kind { NT_OK = 0, NT_NO_ACCESS = 1 };

struct nt_item {
	uint8_t kind;
	uint8_t answer;
	uint16_t head_len;
	uint32_t id;
	uint64_t len;
};

struct nt_handle {
	unsigned abi;
	size_t bytes;
	char name[NT_NAME_LEN];
	uint8_t nonce[NT_NONCE_LEN];
	uint8_t plugin[2][NCCL_NET_HANDLE_BYTES];
};

size_t nt_put_handle(uint8_t *p, const struct nt_handle *h);
/* 0, or -1 with a sentence. */
int nt_get_handle(const uint8_t *p, size_t len, struct nt_handle *h, char *why, size_t why_len);
void nt_put_hello(uint8_t *p, unsigned abi, unsigned which, const uint8_t *to, const uint8_t *from);

void nt_put_item(uint8_t *p, const struct nt_item *i);
/* The header of an item, and how many bytes follow it; 0, or -1 with *why: nothing like this comes
 * from a peer that keeps to the rules. */
int nt_get_item(const uint8_t *p, size_t left, struct nt_item *i, size_t *more, const char **why);

#endif
