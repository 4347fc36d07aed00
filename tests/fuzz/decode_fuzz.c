/* SPDX-License-Identifier: BSD-3-Clause */
/* decode_fuzz.c - any bytes as a UDP payload: nothing outside them is read, and what decodes
 * encodes to the same headers again. */
#include "fuzz.h"

#include <stdlib.h>

#include "wire/icrc.h"

/* Reserved bits are ignored on receive and sent as 0, the M bit is sent as 1 (packet.h). */
static void normalize(uint8_t *hdr, const struct rpwi_pkt *p)
{
	hdr[1] |= 0x40;
	hdr[4] &= 0xc0;
	hdr[8] &= 0x80;
	if (rpwi_pkt_svc(p) == RPWI_SVC_UD)
		hdr[RPWI_BTH_LEN + 4] = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct rpwi_flow flow = {
		.src = {.family = len % 2 ? 4 : 6}, .sport = 0xc000, .dport = RPWI_UDP_PORT};
	struct rpwi_pkt p;
	uint8_t *copy = malloc(len ? len : 1), want[RPWI_HDR_MAX], got[RPWI_HDR_MAX];
	uint16_t id = 0;
	memcpy(copy, data, len);
	int rc = rpwi_pkt_decode(copy, len, &p);
	if ((rpwi_pkt_peek_qpn(copy, len) >= 0) != (len >= RPWI_BTH_LEN))
		fuzz_broken("peek");
	rpwi_icrc_check(&flow, copy, len, &id);
	if (!rc) {
		if (p.payload != copy + p.hdr_len ||
			p.hdr_len + p.payload_len + p.pad + RPWI_ICRC_LEN != len ||
			p.payload_len > RPWI_MTU_MAX)
			fuzz_broken("the parts do not add up");
		if (!strcmp(rpwi_opcode_name(p.opcode), "?"))
			fuzz_broken("decoded, but without a name");
		memcpy(want, copy, p.hdr_len);
		normalize(want, &p);
		if (rpwi_pkt_encode(&p, got) != p.hdr_len || memcmp(want, got, p.hdr_len))
			fuzz_broken("encodes to something else");
		struct rpwi_iov part = {p.payload, p.payload_len};
		id = 0x1234;
		/* The pad counts as zeros when an ICRC is made: set them so, then it has to be
		 * right. */
		memset(copy + p.hdr_len + p.payload_len, 0, p.pad);
		rpwi_put_le32(
			copy + len - 4, rpwi_icrc(&flow, id, copy, p.hdr_len, &part, 1, p.pad));
		if (rpwi_icrc_check(&flow, copy, len, &id) != RPWI_ICRC_OK)
			fuzz_broken("its own ICRC is bad");
	}
	free(copy);
	return 0;
}
