/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.h - the registrations that the checker knows, what is in their memory, and who has written
 * into it from outside. The lock is held but for made and gone. */
#ifndef ROPEWAY_CHECK_KEYS_H
#define ROPEWAY_CHECK_KEYS_H

#include <infiniband/verbs.h>

#include "check/check.h"
#include "check/sum.h"

/* Where iova lies in this process. */
void check_mr_made(const struct ibv_mr *mr, const void *addr, uint64_t iova, int access);
void check_mr_gone(uint32_t key);

/* Goes on with *sum over an SGE; false: the key is not known, or the memory not there. */
bool check_key_sum(const struct ibv_sge *sge, uint32_t *sum);
/* A WRITE or an atomic has come in; the newest 256 are kept. */
void check_key_written(uint32_t qpn, uint32_t rkey, uint64_t addr, uint64_t len);
/* Where what `rkey` calls addr lies here; 0: the key is not known. */
uintptr_t check_key_at(uint32_t rkey, uint64_t addr);
/* The QP through which one has reached these SGEs since then; 0: none. */
uint32_t check_key_wrote(const struct ibv_sge *sge, unsigned n, uint64_t since_ns);

#endif
