/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_wire.h - what the programs say to each other, byte by byte, all numbers in network byte
 * order (big-endian). 程序之间的线上格式，逐字节规定，所有数字均为网络字节序（大端）。
 *
 *   a message, by SEND / 用 SEND 传送的消息
 *      0        4         6       8        12
 *      | magic  | version | type  | length | body of `length` bytes ...
 *      MR:   | address (8) | rkey (4) | length (4) |      where the peer may write, or read /
 *                                                         对端可写（读）的内存
 *      DONE: no body: "I have written (read) all that I wanted" / 无正文：“我已写（读）完”
 *      TEXT: 1 to 200 bytes of text / 1 到 200 字节的文本
 *
 *   the hello in the private data of a connection request, its reply or its rejection / 连接请求、
 *   应答或拒绝所带私有数据中的 hello
 *      0        4         6      7        8
 *      | magic  | version | mode | reason |     reason: 0 but in a rejection. These 8 bytes stay
 *                                               the same in every version.
 *
 * Never a raw struct: its padding, its byte order and its size belong to one compiler on one
 * machine. And never believed before it was checked: whoever reaches the port can send anything. /
 * 绝不直接发送结构体；收到的内容在检查之前一概不信。
 */
#ifndef LEARN_PEER_WIRE_H
#define LEARN_PEER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_VERSION = 1,
	WIRE_HEADER_BYTES = 12,
	WIRE_MR_BYTES = 16,
	WIRE_TEXT_BYTES_MAX = 200,
	WIRE_MESSAGE_BYTES_MAX = WIRE_HEADER_BYTES + WIRE_TEXT_BYTES_MAX,
	WIRE_HELLO_BYTES = 8,
	REGION_BYTES = 4096, /* of the memory that is written or read / 被写（读）的内存的大小 */
};

enum wire_type { WIRE_MR = 1, WIRE_DONE, WIRE_TEXT };

struct remote_memory {
	uint64_t address;
	uint32_t rkey, length;
};

struct message {
	enum wire_type type;
	struct remote_memory memory;        /* of an MR / MR 的内容 */
	char text[WIRE_TEXT_BYTES_MAX + 1]; /* of a TEXT: printable, ends with 0 / TEXT 的内容 */
};

/* Why a message is not one of ours. / 消息不合格的原因。 */
enum wire_fault {
	FAULT_NONE,
	FAULT_TOO_SHORT,
	FAULT_MAGIC,
	FAULT_VERSION,
	FAULT_TYPE,
	/* the length it claims is not the length it has, or not that of its type /
	 * 声称的长度与实际或类型不符 */
	FAULT_LENGTH,
	/* the memory it offers is not as large as agreed, or wraps around /
	 * 所给内存大小不符或越界 */
	FAULT_MEMORY,
	FAULT_TEXT,
};
const char *wire_fault_text(enum wire_fault fault); /* to be translated / 待翻译 */

/* Each writes a whole message and returns its length. / 写出整条消息，返回其长度。 */
size_t wire_put_mr(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const struct remote_memory *memory);
size_t wire_put_done(uint8_t out[WIRE_MESSAGE_BYTES_MAX]);
size_t wire_put_text(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const char *text);
enum wire_fault wire_get(const uint8_t *in, size_t bytes, struct message *m);

enum mode { MODE_WRITE = 1, MODE_READ, MODE_TEXT };
enum reason { REASON_NONE, REASON_MODE, REASON_VERSION, REASON_HELLO, REASON_RESOURCES };

struct hello {
	unsigned version; /* of the side that speaks / 发言一方的版本 */
	enum mode mode;
	enum reason reason;
};

const char *mode_name(enum mode mode);
void wire_put_hello(uint8_t out[WIRE_HELLO_BYTES], enum mode mode, enum reason reason);
/* false: not a hello. Its version may be another than ours. / false 表示不是 hello；
 * 其版本可能与我方不同。 */
bool wire_get_hello(const void *in, size_t bytes, struct hello *hello);

#endif
