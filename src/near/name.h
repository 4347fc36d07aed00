/* SPDX-License-Identifier: BSD-3-Clause */
/* name.h - the abstract Unix names by which ropeway processes of one network namespace find each
 * other (unix(7)). The kernel frees a name when the last descriptor goes: nothing of a killed
 * process is left to be cleaned up, and no mount namespace or environment variable hides a name
 * from anyone in the network namespace.
 *
 * A name proves nothing: anyone may bind any of them. So behind each is a listener, whoever
 * connects asks the kernel whose it is (who.h), and messages go over that connection. A stranger
 * who takes a name denies it to us; he gets nothing. */
#ifndef ROPEWAY_NEAR_NAME_H
#define ROPEWAY_NEAR_NAME_H

#include "near/who.h"

enum { RPWI_NAME_MAX = 108, RPWI_NAME_BACKLOG = 4096 };

/* A listener of that name, SEQPACKET and non-blocking, for the caller to close; -EADDRINUSE:
 * another has it; or another -errno. */
int rpwi_name_listen(const char *name);
/* A connection to whoever listens there, for the caller to close; -ECONNREFUSED: nobody does;
 * -EAGAIN: its queue is full (`who` is told then, too). */
int rpwi_name_connect(const char *name, struct rpwi_who *who);

#endif
