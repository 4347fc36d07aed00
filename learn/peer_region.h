/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_region.h - the content of the 4 KiB that are written or read: it proves by itself that it
 * arrived whole. 被写（读）的 4 KiB 的内容：它自己就能证明是否完整到达。
 *
 *      0                 256        264                        4088       4096
 *      | text, then 0s   | seed (8) | pattern made of the seed | checksum of all before it (8) |
 */
#ifndef LEARN_PEER_REGION_H
#define LEARN_PEER_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "peer_wire.h"

/* Fill a region; `seed` is another one each time. Returns the checksum. / 填写区域；每次使用不同的
 * seed；返回校验和。 */
uint64_t region_fill(uint8_t region[REGION_BYTES], const char *text, uint64_t seed);
/* Does it hold what some region_fill() wrote, each byte of it? *checksum is what it was computed to
 * be. / 检查每一个字节。 */
bool region_check(const uint8_t region[REGION_BYTES], uint64_t *checksum);
/* The text of a region that was checked. / 已检查过的区域中的文本。 */
const char *region_text(const uint8_t region[REGION_BYTES]);
/* A number that no other run draws. / 每次运行都不同的随机数。 */
uint64_t region_seed(void);

#endif
