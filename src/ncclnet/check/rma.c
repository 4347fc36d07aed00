/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - the properties of a plugin of one-sided operations, in their order, and what NCCL or RCCL
 * does where one does not hold; which release takes which table. */
#include "ncclnet/check/rma.h"

#include <stdlib.h>

#include "ncclnet/check/rma_priv.h"

#define NCCL_HANGS \
	"a kernel that waits for this signal never ends: NCCL's collective hangs until its " \
	"watchdog ends the job"
#define WRONG_DATA "a collective gives wrong results, and NCCL does not notice"

static const struct conform_case cases[] = {
	{.id = "load",
		.what = "loads, and has such a table",
		.run = case_rma_load,
		.flags = CASE_BARE | CASE_FIRST | CASE_NEEDED,
		.then = "NCCL looks for other tables, and then takes its own backends"},
	{.id = "table",
		.what = "every call that NCCL makes unasked is there",
		.run = case_rma_table,
		.flags = CASE_FIRST | CASE_BARE | CASE_NEEDED,
		.then = "NCCL calls a NULL pointer: the job crashes"},
	{.id = "iflush",
		.what = "iflush is there",
		.run = case_rma_iflush,
		.flags = CASE_BARE | CASE_NCCL_ONLY,
		.abi_least = 13,
		.then = "NCCL calls it after each get: the job crashes; RCCL asks first"},
	{.id = "name",
		.what = "its name can be read before init",
		.run = case_rma_name,
		.flags = CASE_BARE,
		.then = "NCCL prints it, and crashes on NULL"},
	{.id = "init",
		.what = "initializes, once for each communicator",
		.run = case_rma_init,
		.flags = CASE_BARE | CASE_NEEDED,
		.then = "NCCL disables the plugin, for the second communicator if not before"},
	{.id = "devices",
		.what = "has devices",
		.run = case_rma_devices,
		.flags = CASE_NEEDED,
		.then = "NCCL takes the next candidate, in the end its own backends"},
	{.id = "properties",
		.what = "properties stay in their struct, and make sense",
		.run = case_rma_properties,
		.then = "NCCL reads what it did not get, or its stack is overwritten"},
	{.id = "outside",
		.what = "refuses a device that it does not have",
		.run = case_rma_outside,
		.flags = CASE_FRESH | CASE_CRASH_IS_QUIRK,
		.quirk = -1,
		.then = "NCCL asks for no such device"},
	{.id = "type",
		.what = "its device is of a type that this table serves",
		.run = case_rma_type,
		.then = "NCCL's shim refuses the table, and goes on without the plugin"},
	{.id = "listen",
		.what = "a handle stays within its 128 bytes",
		.run = case_rma_listen,
		.then = "NCCL's memory behind the handle is overwritten"},
	{.id = "connect",
		.what = "connects all ranks",
		.run = case_rma_connect,
		.flags = CASE_NEEDED,
		.then = "NCCL's communicator has no RMA and no GIN"},
	{.id = "ranks",
		.what = "connects a part of the ranks, and one alone",
		.run = case_rma_ranks,
		.then = "NCCL fails for communicators of this many nodes"},
	{.id = "rma-properties",
		.what = "getRmaProperties stays in its byte",
		.run = case_rma_claims,
		.abi_least = 16,
		.then = "NCCL's stack is overwritten, or it leaves out flushes that are needed"},
	{.id = "reg",
		.what = "registers host memory, with any flags",
		.run = case_rma_reg,
		.then = "NCCL cannot register the symmetric window or the signals"},
	{.id = "reg-order",
		.what = "the nth registration is that of every rank",
		.run = case_rma_reg_order,
		.then = "a put lands in other memory: " WRONG_DATA},
	{.id = "reg-twice",
		.what = "memory may be registered twice",
		.run = case_rma_reg_twice,
		.then = "NCCL cannot register a window for two communicators or for two uses"},
	{.id = "reg-type",
		.what = "refuses memory of a type that it does not have",
		.run = case_rma_reg_type,
		.flags = CASE_FRESH,
		.then = "NCCL takes the plugin to have memory of GPUs, and copies from addresses "
			"that the CPU cannot read"},
	{.id = "put",
		.what = "puts of all sizes arrive, from all ranks at all",
		.run = case_rma_put,
		.then = WRONG_DATA},
	{.id = "large", .what = "a large put arrives", .run = case_rma_large, .then = WRONG_DATA},
	{.id = "self",
		.what = "a rank puts to itself",
		.run = case_rma_self,
		.then = "NCCL's RMA proxy sends to its own rank as a flush: " NCCL_HANGS},
	{.id = "ends",
		.what = "both ends of a registration can be used",
		.run = case_rma_ends,
		.then = "NCCL's first or last element does not arrive"},
	{.id = "signal-only",
		.what = "a signal needs no payload",
		.run = case_rma_signal_only,
		.then = NCCL_HANGS},
	{.id = "signals",
		.what = "increment adds 1, add adds 64 bits, to their word only",
		.run = case_rma_signals,
		.then = "a kernel goes on too early, or never: wrong results, or a hang"},
	{.id = "signal-window",
		.what = "a signal may be in another registration",
		.run = case_rma_signal_window,
		.then = "with VA signals " NCCL_HANGS},
	{.id = "source",
		.what = "a put that is done has read its source",
		.run = case_rma_source,
		.then = "NCCL reuses the buffer: " WRONG_DATA},
	{.id = "get",
		.what = "a get brings every byte, visible after its flush",
		.run = case_rma_get,
		.abi_least = 13,
		.then = WRONG_DATA},
	{.id = "more",
		.what = "what is said to have followers goes without them",
		.run = case_rma_more,
		.abi_least = 15,
		.then = NCCL_HANGS},
	{.id = "strong",
		.what = "a strong signal comes after all earlier puts",
		.run = case_rma_strong,
		.flags = CASE_LONG,
		.then = WRONG_DATA},
	{.id = "weak",
		.what = "a weak signal comes after its own put",
		.run = case_rma_weak,
		.abi_least = 14,
		.then = WRONG_DATA},
	{.id = "sums",
		.what = "signals of all ranks add up",
		.run = case_rma_sums,
		.then = NCCL_HANGS},
	{.id = "in-flight",
		.what = "32 requests in flight for each receive and peer",
		.run = case_rma_in_flight,
		.then = "NCCL's proxy stops with an error as soon as its ring is full"},
	{.id = "beyond",
		.what = "nothing is read or written past a registration",
		.run = case_rma_beyond,
		.flags = CASE_FRESH | CASE_LONG,
		.then = "an error of the program overwrites memory instead of being reported"},
	{.id = "wrong-rank",
		.what = "refuses a rank that there is not",
		.run = case_rma_wrong_rank,
		.flags = CASE_FRESH | CASE_CRASH_IS_QUIRK,
		.quirk = -1,
		.then = "NCCL asks for no such rank"},
	{.id = "mixed",
		.what = "ranks of two tables refuse each other, or work",
		.run = case_rma_mixed,
		.flags = CASE_FRESH,
		.then = "two releases of NCCL in one job hang instead of an error"},
	{.id = "peer-killed",
		.what = "a rank that is killed is an error on every other",
		.run = case_rma_killed,
		.flags = CASE_FRESH | CASE_KILLS,
		.then = "NCCL waits for ever: ncclCommGetAsyncError says nothing"},
	{.id = "close-busy",
		.what = "closes with requests in flight",
		.run = case_rma_close_busy,
		.flags = CASE_FRESH,
		.then = "ncclCommAbort hangs or crashes"},
	{.id = "dereg-busy",
		.what = "deregisters with requests in flight",
		.run = case_rma_dereg_busy,
		.flags = CASE_FRESH,
		.then = "ncclCommAbort hangs or crashes"},
	{.id = "finalize",
		.what = "instances are made and ended",
		.run = case_rma_finalize,
		.flags = CASE_FRESH,
		.then = "the end of one communicator breaks another, or ncclCommDestroy fails"},
};

static void facts(const struct conform *c, struct conform_facts *out)
{
	if (!c->rma || !c->rma->r.n.table)
		return;
	*out = (struct conform_facts){.exported = c->rma->r.exported, .abi = c->rma->r.n.abi};
	for (int i = 0; ncclnet_rma_table_name((unsigned)i); i++) {
		const char *name = ncclnet_rma_table_name((unsigned)i);
		if (c->rma->r.n.gin == (*name == 'G') && atoi(strchr(name, 'v') + 1) == out->abi)
			out->rma = i;
	}
}

const struct conform_list conform_rma = {
	.cases = cases, .n = RPWI_ARRAY_LEN(cases), .prepare = rma_prepare, .facts = facts};

/* ---- releases ---- */

const struct conform_rma_release conform_rma_release[] = {
	{"2.28.7 to 2.29.3", {"GIN v11"}, true},
	{"2.29.7", {"GIN v12", "GIN v11"}, false},
	{"2.30.3, 2.30.4", {"GIN v13", "GIN v12", "GIN v11"}, false},
	{"2.30.7", {"RMA v14", "RMA v13", "GIN v13"}, false},
	{"2.31.2", {"RMA v15", "RMA v14", "RMA v13", "GIN v13"}, false},
	{"2.32.3", {"RMA v16", "RMA v15", "RMA v14", "RMA v13", "GIN v13"}, false},
	{NULL, {NULL}, false},
};

int conform_rma_taken(const struct conform_rma_release *release, unsigned exported)
{
	for (const char *const *t = release->tables; *t; t++)
		for (unsigned i = 0; ncclnet_rma_table_name(i); i++)
			if (exported >> i & 1 && !strcmp(*t, ncclnet_rma_table_name(i)))
				return (int)i;
	return -1;
}
