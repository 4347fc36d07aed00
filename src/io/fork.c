/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c - a fork's child leaves what its parent shares alone. */
#include "io/io_priv.h"

void rpwi_io_atfork_child(void)
{
	for (struct rpwi_port *p = rpwi_ports.first, *next; p; p = next) {
		next = rpwi_port_next(p);
		rpwi_port_forget(p);
	}
	rpwi_ports.first = NULL; /* the next one to be opened for the same address is a new one */
	rpwi_steer_forget();
}
