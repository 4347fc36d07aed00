/* SPDX-License-Identifier: BSD-3-Clause */
/* sha256.h - SHA-256 (FIPS 180-4) of a short buffer, for host IDs: no library is needed to say who
 * this host is. Not for keys: its time depends on nothing, but it wipes nothing either. */
#ifndef ROPEWAY_BOOT_SHA256_H
#define ROPEWAY_BOOT_SHA256_H

#include <stddef.h>
#include <stdint.h>

void boot_sha256(const void *data, size_t len, uint8_t out[32]);

#endif
