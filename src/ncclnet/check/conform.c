/* SPDX-License-Identifier: BSD-3-Clause */
/* conform.c - the properties of a network plugin, in their order. */
#include "ncclnet/check/conform_priv.h"

static const struct conform_case cases[] = {
	{"load", "loads, and has a table of this version", case_load,
		CASE_BARE | CASE_FIRST | CASE_NEEDED, 0, 0, NULL},
	{"name", "its name can be read before init, and stays", case_name, CASE_BARE, 0, 0, NULL},
	{"init", "initializes", case_init, CASE_BARE | CASE_NEEDED, 0, 0, NULL},
	{"table", "every call that NCCL makes unasked is there", case_table, CASE_NEEDED, 0, 0,
		NULL},
	{"devices", "has devices", case_devices, CASE_NEEDED, 0, 0, NULL},
	{"properties", "properties stay in their struct, and make sense", case_properties, 0, 0, 0,
		NULL},
	{"vprops", "virtual devices are made of devices that there are", case_vprops, 0, 9, 0,
		NULL},
	{"handle", "a handle stays within its bytes", case_handle, 0, 0, 0, NULL},
	{"accept", "accept does not wait for a peer", case_accept, 0, 0, 0, NULL},
	{"connect", "connect does not wait for the peer's accept", case_connect, 0, 0, 0, NULL},
	{"handle-copy", "connects by a copy of the handle", case_handle_copy, 0, 0, 0, NULL},
	{"device-handle", "connects without a device handle of the caller", case_device_handle,
		CASE_FRESH | CASE_CRASH_IS_QUIRK, 7, NCCLNET_DEVICE_HANDLE, NULL},
	{"reg", "registers host memory", case_reg, 0, 0, 0, NULL},
	{"reg-bad-type", "refuses memory of a type that it does not have", case_reg_bad, 0, 0, 0,
		NULL},
	{"messages", "messages arrive, both ways", case_messages, 0, 0, 0, NULL},
	{"request", "writes *request whenever it says success; NULL: again", case_request, 0, 0, 0,
		NULL},
	{"zero", "messages of no bytes arrive", case_zero, 0, 0, 0, NULL},
	{"sizes", "test gives the size of what came", case_sizes, 0, 0, 0, NULL},
	{"sizes-null", "test may be given no sizes", case_sizes_null, 0, 0, 0, NULL},
	{"short", "a message may be shorter than its receive", case_short, 0, 0, 0, NULL},
	{"truncation", "a message longer than its receive is an error", case_truncation, CASE_FRESH,
		0, 0, NULL},
	{"patterns", "every byte of large messages arrives", case_patterns, 0, 0, 0, NULL},
	{"order", "messages arrive in their order, done when they are there", case_order, 0, 0, 0,
		NULL},
	{"polled", "a line of 128 bytes arrives before its last 8", case_polled, CASE_FRESH, 0, 0,
		NULL},
	{"group", "the tag finds the slot of a grouped receive", case_group, 0, 5, 0, NULL},
	{"same-tag", "of two slots with one tag the first is filled first", case_same_tag, 0, 5, 0,
		NULL},
	{"under-way", "as many requests under way as NCCL has", case_under_way, 0, 0, 0, NULL},
	{"test-order", "requests may be tested in any order", case_test_order,
		CASE_FRESH | CASE_NEVER_FAILS, 0, NCCLNET_FIFO_TEST, NULL},
	{"flush", "iflush is done at once or later", case_flush, 0, 0, 0, NULL},
	{"comms", "several connections at once", case_comms, 0, 0, 0, NULL},
	{"threads", "a thread for each connection", case_threads, 0, 0, 0, NULL},
	{"reg-thread", "memory is registered by another thread meanwhile", case_reg_thread, 0, 0, 0,
		NULL},
	{"wrong-handle", "an invalid handle is refused", case_wrong_handle, CASE_FRESH, 0, 0, NULL},
	{"mixed", "a handle of another version of the API is refused", case_mixed, CASE_FRESH, 0, 0,
		NULL},
	{"peer-killed", "a peer that is killed is an error, not a hang", case_killed,
		CASE_FRESH | CASE_KILLS, 0, 0, NULL},
	{"close-busy", "closes with requests under way", case_close_busy, CASE_FRESH, 0, 0, NULL},
	{"finalize", "contexts are made and ended", case_finalize, CASE_FRESH, 11, 0, NULL},
	{"reload", "is unloaded and loaded again", case_reload, CASE_FRESH, 0, 0, NULL},
};

/* What every case but the first ones finds done. An init that leaves the table incomplete is
 * `table`'s to say. */
static bool prepare(struct conform *c, unsigned flags)
{
	if (!c->s->n && !side_load(c->s, c->o->path, c->o->abi))
		return false;
	c->abi = c->s->n->abi;
	if (flags & CASE_BARE || c->initialized)
		return true;
	c->initialized = side_init(c->s, c->s->n, &c->s->ctx);
	return c->initialized && side_properties(c->s);
}

static void facts(const struct conform *c, struct conform_facts *out)
{
	if (c->s->n)
		*out = (struct conform_facts){.exported = c->s->n->exported, .abi = c->s->n->abi};
}

const struct conform_list conform_net = {
	.cases = cases, .n = RPWI_ARRAY_LEN(cases), .prepare = prepare, .facts = facts};
