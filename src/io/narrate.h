/* SPDX-License-Identifier: BSD-3-Clause */
/* narrate.h - packets in words, for the account (base/account.h): "RC SEND_ONLY PSN 17, 64 bytes", "CM ConnectRequest (REQ) port 7471, ...". */
#ifndef ROPEWAY_IO_NARRATE_H
#define ROPEWAY_IO_NARRATE_H

#include "base/account.h"
#include "wire/packet.h"

/* One packet, from the BTH to the ICRC: kind RPWI_ACC_TX, RPWI_ACC_RX or RPWI_ACC_LOST. Called where it is captured, under the lock over io. */
void rpwi_io_narrate(const struct rpwi_flow *flow, enum rpwi_account_kind kind, const uint8_t *data, size_t len);

#endif
