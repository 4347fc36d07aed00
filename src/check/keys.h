/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.h - the registrations that the checker knows, the contents of their memory, and the QPs that
 * have written into it from outside. The lock is held but for made and gone. */
#ifndef ROPEWAY_CHECK_KEYS_H
#define ROPEWAY_CHECK_KEYS_H

#include <infiniband/verbs.h>

#include "check/check.h"
#include "check/sum.h"

/* A parent domain or an import is the PD that it is made of; of the device. */
extern const struct ibv_pd *(*check_pd_root)(const struct ibv_pd *pd);

/* Where iova lies in this process. */
void check_mr_made(const struct ibv_mr *mr, const void *addr, uint64_t iova, int access);
/* The newest CHECK_GONE of them are kept, with their sites. */
enum { CHECK_GONE = 4096 };
void check_key_gone(uint32_t key); /* of check_mr_gone */
/* A window had that key. `at`: of the call that took it, or NULL. */
void check_window_gone(uint32_t key, const struct rpwi_site *at);

/* Where an SGE lies in this process; NULL: not in a region that is known. */
const uint8_t *check_key_memory(const struct ibv_sge *s);
/* Goes on with *sum over an SGE; false: the key is not known, or the memory not there. */
bool check_key_sum(const struct ibv_sge *sge, uint32_t *sum);
/* A WRITE or an atomic has come in; of these, and of messages, the newest 256 are kept. */
void check_key_written(uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len);
/* A message has come into a receive. `early`: the QP has requests that were not yet sent. */
void check_key_received(uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len, bool early);
/* Where what `rkey` calls addr lies here; 0: the key is not known. */
uintptr_t check_key_at(uint32_t rkey, uint64_t addr);
/* The QP through which one has reached these SGEs since then; 0: none. Of messages `early` is said:
 * the first that came early, else any. */
uint32_t check_key_wrote(const struct ibv_sge *sge, unsigned n, uint64_t since_ns);
uint32_t check_key_got(const struct ibv_sge *sge, unsigned n, uint64_t since_ns, bool *early);

/* ---- why a key does not do (access.c) ---- */

/* An access that was refused. */
struct check_access {
	const struct ibv_pd *pd; /* of the QP or SRQ; NULL: not known */
	uint32_t key;
	int access; /* IBV_ACCESS_*; 0: a local read */
	uint64_t addr, len;
	uint64_t since_ns; /* when its request was posted here; 0: it is the peer's */
	bool remote;
};
/* A region as it is said of: the peer's, or one of ours. */
struct check_region {
	const struct ibv_pd *pd; /* NULL: not known */
	uint64_t iova, len;
	int access;
};
/* The rule that is broken, and a sentence; false: none. */
bool check_region_judge(
	const struct check_access *a, const struct check_region *r, struct rpwi_finding *f);
/* The same, of a key of this process, with the sites where it was registered or deregistered. */
bool check_key_judge(const struct check_access *a, struct rpwi_finding *f);

/* A key, or one that is no more. The lock is held. */
struct check_key {
	struct check_region region;
	uint64_t addr;
	uintptr_t made; /* return address */
	struct rpwi_site gone;
	uint64_t gone_ns; /* 0: it lives */
	bool window;      /* gone: it was a memory window's */
};
bool check_key_look(uint32_t key, struct check_key *out);
/* How many there are, and one of them. */
uint32_t check_keys_count(struct check_key *one);

/* ---- the pages that a region has lost (freed.c) ---- */

/* All regions that have bytes of [addr, addr + len): `fn` gets the place of their loss. */
void check_keys_each(uint64_t addr, uint64_t len,
	void (*fn)(uint32_t key, uint32_t *loss, void *arg), void *arg);
/* Of a key; 0: nothing, or there is no such key. *at: where the SGE lies. */
uint32_t check_key_loss(uint32_t key, uint64_t iova, uint64_t *at);

#endif
