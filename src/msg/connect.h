/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.h - the control path: its messages, how a path comes and goes. */
#ifndef ROPEWAY_MSG_CONNECT_H
#define ROPEWAY_MSG_CONNECT_H

#include "msg/objects.h"

/* say.c: over the control path */
int say_word(rpw_endpoint *ep, enum boot_type type, const char *text);
int say_path(rpw_endpoint *ep, enum boot_type type, int status, const char *name, const char *text,
	const uint8_t *handle, size_t handle_len);
void say_broken(rpw_endpoint *ep, bool again, const char *why);
void say_bye(rpw_endpoint *ep, const char *why);

/* end.c */
void connect_path_close(rpw_endpoint *ep);

/* connect.c */
extern const struct boot_up connect_boot_up;
void connect_next_path(rpw_endpoint *ep);
void connect_cancel(rpw_request *r);
/* rpw_endpoint_shutdown of this side: done, failed or canceled */
void connect_shutdown_over(rpw_endpoint *ep);
void connect_ready(void *user, const struct rpwi_error *e);
void connect_peer_talks(rpw_endpoint *ep);
void connect_timers(rpw_context *c, uint64_t now_ns);
/* A path that cannot break has ended, and the control path has not said why yet: it will in a
 * moment, and what a goodbye says may complete what waits. */
void connect_await_word(rpw_endpoint *ep);
/* connecting is under way: the obstacle so far, or "" */
void connect_trouble(const rpw_endpoint *ep, char *out, size_t room);

#endif
