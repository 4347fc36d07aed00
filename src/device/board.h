/* SPDX-License-Identifier: BSD-3-Clause */
/* board.h - what processes of our user on this host may look up without asking us: our registered
 * memory and the state of our QPs. With it, and with the kernel's leave to read our memory
 * (ptrace(2): the same user, no Yama in between), a peer does its RDMA READs by itself, whether
 * this process runs, sleeps or is stopped. Private to device/; the lock is held, but where a peer's
 * is read: there that of the QP will do (hca.h).
 */
#ifndef ROPEWAY_DEVICE_BOARD_H
#define ROPEWAY_DEVICE_BOARD_H

#include "device/hca.h"

/* ---- our own ---- */

/* A new one, of the QPs of that slot, shown with each lane from now on. Without memory for it there
 * is none, and peers ask by packets. */
void board_open(struct rpwi_lanes *lanes, uint16_t slot);
void board_close(void);
void board_left_to_parent(void); /* in a child that gets one of its own */
/* After a fork this process goes on with what it inherited: nobody shall read the parent's copy. */
void board_is_forked(void);
/* In the parent: its child has done so. */
bool board_is_the_childs(void);
void board_key_add(const struct dkey *k);
void board_key_del(const struct dkey *k);
/* What was found on the board a moment ago may still be used, by a process that writes into the
 * memory of this one, which was stopped: waits until it has done so. False: after a second it still
 * has not, since it was stopped itself. */
bool board_writers_end(void);
/* Its state, rights or peer may have changed. */
void board_qp(struct dqp *q);
void board_qp_gone(struct dqp *q);
/* There is one, or its state was set by the program; or it fails, and is in ERR with that. */
void board_qp_is(const struct dqp *q);
void board_qp_fails(const struct dqp *q);

/* ---- a peer's ---- */

/* As rpwi_qp_ops.peer_read: the bytes (without `into` good until the next call for a QP of the same
 * lock), or NULL: by packets. With nothing but the QP's lock, only after board_reaches. */
const uint8_t *board_read(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len, void *into);
/* As rpwi_qp_ops.take_over and those behind it; the HCA's lock is held. */
bool board_take_over(struct rpwi_qp *qp, uint32_t una, uint32_t *from);
bool board_write(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const struct rpwi_iov *parts, unsigned n);
void board_give_over(struct rpwi_qp *qp, uint32_t upto);
/* As rpwi_qp_ops.peer_rejects, of a peer on this host: no such QP, or one that takes no RC packet
 * of ours unless it is made ready anew. */
bool board_rejects(const struct dqp *q);
/* What it shows of a key of the QP's peer; of a full board, or of another host, nothing. */
enum board_tells { BOARD_TELLS_NOTHING, BOARD_TELLS_NONE, BOARD_TELLS_REGION };
enum board_tells board_key_look(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t *iova, uint64_t *len, int *access);
/* Is there a lane, and does the process at its other end show what it has? It only looks. */
bool board_reaches(const struct dqp *q);

#endif
