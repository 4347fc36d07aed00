/* SPDX-License-Identifier: BSD-3-Clause */
/* port_list.c - the ports of this process, and what a port has, for the files below port.c. */
#include "io/port_priv.h"

struct io_port_list rpwi_ports;

int rpwi_port_rx_fd(const struct rpwi_port *p) { return p->bound ? p->rx_fd : -1; }
const struct rpwi_addr *rpwi_port_local(const struct rpwi_port *p) { return &p->local; }
struct rpwi_port *rpwi_port_next(const struct rpwi_port *p) { return p->next; }
struct rpwi_group *rpwi_port_group(const struct rpwi_port *p) { return p->group; }

bool rpwi_ports_receive(void)
{
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
		if (rpwi_port_rx_fd(p) >= 0)
			return true;
	return false;
}
