/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_cm.c - see fuzz_cm.h. */
#include "fuzz_cm.h"

void fuzz_cm_fill(struct rpwi_cm_msg *m, const struct rpwi_cm_conn *c, uint8_t own)
{
	m->tid = own & 0x40 ? 1 : own % 8u;
	m->local_comm_id = c && c->remote_id ? c->remote_id : 1 + own % 8u;
	m->remote_comm_id = c ? c->local_id : 0;
	switch (m->attr) {
	case RPWI_CM_REQ:
		m->local_comm_id = 1 + own % 8u;
		m->remote_comm_id = 0;
		m->req.service_id = 0x1064000;
		m->req.qpn = 0x200 + own / 8u % 8u;
		m->req.path_mtu = 3;
		m->req.max_cm_retries = 3;
		m->req.local_cm_response_timeout = own & 31;
		m->req.primary.local_ack_timeout = own & 31;
		break;
	case RPWI_CM_REP:
		m->rep.qpn = 0x200 + own / 8u % 8u;
		break;
	case RPWI_CM_MRA:
		m->mra.msg_mraed = c && c->passive;
		m->mra.service_timeout = own & 31;
		break;
	case RPWI_CM_REJ:
		m->rej.reason = own;
		break;
	case RPWI_CM_DREQ:
		m->dreq.remote_qpn = c ? c->local.qpn : 0;
		break;
	case RPWI_CM_SIDR_REQ:
		m->local_comm_id = 1 + own % 8u;
		break;
	case RPWI_CM_SIDR_REP:
		m->local_comm_id = c ? c->local_id : 0;
		break;
	default:
		break;
	}
}
