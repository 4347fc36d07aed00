/* SPDX-License-Identifier: BSD-3-Clause */
/* narrate.h - the device's part of the account (base/account.h): posts, completions, states, in words. Everything here is called only while rpwi_account_on. */
#ifndef ROPEWAY_DEVICE_NARRATE_H
#define ROPEWAY_DEVICE_NARRATE_H

#include "base/account.h"
#include "device/hca.h"

/* Before the work requests are taken; the lists may be wrong ones. */
void narrate_post_send(const struct dqp *q, const struct ibv_send_wr *wr);
void narrate_post_recv(const struct dqp *q, const struct ibv_recv_wr *wr);
/* Facts of a completion as it is made, and the line of one that the program gets; got 0: a poll in vain. */
void narrate_complete(uint32_t qpn, bool recv, const struct ibv_wc *wc);
void narrate_polled(const struct ibv_wc *wc, int got);
/* The transport moves a QP to ERR by itself: whoever may have seen it happen asks here. The lock is held. */
void narrate_state(const struct dqp *q);
void narrate_modify(const struct dqp *q, enum ibv_qp_state was, const struct ibv_qp_attr *attr, int mask, int rc);

#endif
