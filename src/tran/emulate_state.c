/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate_state.c - what a transport and an endpoint have of the emulation (emulate_priv.h). */
#include "tran/emulate_priv.h"

#include <stdlib.h>

int emulate_open(struct tran *t)
{
	t->emulated = calloc(1, sizeof(*t->emulated));
	if (!t->emulated)
		return tran_no_memory(t, "remote memory");
	t->emulated->pid = getpid();
	rpwi_list_init(&t->emulated->kept);
	return 0;
}

void emulate_close(struct tran *t)
{
	if (!t->emulated)
		return;
	rpwi_slots_fini(&t->emulated->regions);
	while (t->emulated->kept_count) {
		t->emulated->kept_count--;
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&t->emulated->kept), struct op, waiting));
	}
	free(t->emulated->bounce);
	free(t->emulated);
	t->emulated = NULL;
}

struct emulated_ep *emulate_of(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	if (RPWI_LIKELY(e != NULL) || !(e = calloc(1, sizeof(*e))))
		return e;
	e->ep = ep;
	struct rpwi_list *lists[] = {&e->waiting[0], &e->waiting[1], &e->gets, &e->ordered,
		&e->by_hand, &e->owed, &e->nobody.waiting, &e->nobody.posted};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(e->serve); i++) {
		rpwi_list_init(&e->serve[i].owed);
		rpwi_list_init(&e->serve[i].moving);
	}
	e->nobody.chunks = 1;
	e->nobody.m.kind = EMULATED_GET;
	return ep->emulated = e;
}
