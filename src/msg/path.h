/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h - what transports call. */
#ifndef ROPEWAY_MSG_PATH_H
#define ROPEWAY_MSG_PATH_H

#include "msg/objects.h"

void *path_up_place(void *user, const void *head, size_t head_len, size_t body_len);
bool path_up_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len);
void path_up_room(void *user);
void path_up_failed(void *user, const struct rpwi_error *e);
void path_work(rpw_endpoint *ep);
extern const struct link_up path_link_up;

#endif
