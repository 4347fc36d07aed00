/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_fake.h - the network under the device (src/io), played by a target: what comes, what goes,
 * who else lives on this host and what he has claimed. */
#ifndef ROPEWAY_GSI_FAKE_H
#define ROPEWAY_GSI_FAKE_H

#include "fuzz.h"
#include "io/io.h"

enum { FAKE_SLOT = 0x123, FAKE_SERVICES = 4, FAKE_PORTS_MAX = 64, FAKE_OTHERS = 4 };
static const uint64_t fake_service = 0x1064000; /* of these, the first FAKE_SERVICES */

struct fake_batch {
	struct rpwi_flow flow;
	uint8_t *data; /* malloc'ed; NULL: none */
	size_t len, seg_len;
};
extern struct gsi_fake {
	bool address_gone, port_taken, send_fails;
	unsigned ports_open;
	struct fake_batch to_port, handed;    /* what comes next */
	uint8_t *read;                        /* what came last: freed when the next is asked for */
	uint8_t slots_exist, slots_reachable; /* a bit for each of FAKE_SLOT + 1.. */
	uint8_t services_elsewhere;           /* a bit for each service */
	uint8_t claimed_here, claimed_all;
} fake;

bool fake_is_local(const struct rpwi_addr *a);
/* What the target looks at. */
void fake_sent(
	const struct rpwi_av *av, const struct rpwi_addr *from, const uint8_t *bytes, size_t len);
void fake_handed_over(const uint8_t *seg, size_t len, uint32_t qpn);
void fake_handed_over_service(const uint8_t *seg, size_t len, uint64_t service_id);

#endif
