/* SPDX-License-Identifier: BSD-3-Clause */
/* choice.h - which transports do between two processes, and why. */
#ifndef ROPEWAY_MSG_CHOICE_H
#define ROPEWAY_MSG_CHOICE_H

#include "msg/objects.h"

int choice_index(const char *name, size_t len); /* of tran_all, or -1 */
/* how many, or a status */
int choice_parse(const char *list, int *order, char *why, size_t why_len);
/* what follows "ncclnet:" in it; 0 or a status */
int choice_plugin(const char *list, char *plugin, size_t room, char *why, size_t why_len);
/* Nobody said an order: what imitates a device comes last, since TCP is the faster of the two
 * (docs/decisions/paths.md). */
void choice_order_by_worth(rpw_context *c, int *order, int n);
/* Why not, or "". True: it would do, but in software. */
/* With a key: nobody on the way reads or changes what this transport carries. Without one: true. */
bool choice_protects(const rpw_context *c, int i);
bool choice_wanted(rpw_context *c, int i); /* may an endpoint of this context use it? */
bool choice_why_not(rpw_endpoint *ep, int i, char *why, size_t why_len);
void choice_explain(rpw_endpoint *ep, int chosen); /* in ep->why */
/* to ep->next.reasons: tried in vain */
void choice_reason_add(rpw_endpoint *ep, const char *name, const char *why);

struct tran *msg_tran(rpw_context *c, int i, char *why, size_t why_len);

#endif
