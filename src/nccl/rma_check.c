/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_check.c - the checks of all calls: that a coll comm or a context is ours, and that the table
 * that is called is the one it was made by; and how a peer's end is told. */
#include "nccl/rma.h"

static int check(const void *p, uint64_t magic, int abi, const char *call, const char *what)
{
	const struct {
		uint64_t magic;
		int abi;
	} *head = p;
	if (RPWI_LIKELY(p && head->magic == magic && head->abi == abi))
		return NCCL_SUCCESS;
	if (!p || head->magic != magic) {
		plugin_warn("%s of %s was given %s, which is not a %s of this plugin%s", call,
			PLUGIN_API(abi), RPWI_AT(p), what, p ? " (was it closed already?)" : "");
		return NCCL_INVALID_ARGUMENT;
	}
	plugin_warn("%s of %s was given a %s made by %s: one version's table has to be used "
		    "throughout",
		call, PLUGIN_API(abi), what, PLUGIN_API(head->abi));
	return NCCL_INVALID_USAGE;
}

_Static_assert(offsetof(struct rma_comm, abi) == 8 && offsetof(struct rma_context, abi) == 8,
	"check reads either");

int rma_comm_check(const void *coll, int abi, const char *call)
{
	return check(coll, rma_coll_magic, abi, call, "coll comm");
}

int rma_context_check(void *ctx, int abi, int index, const char *call, struct rma_context **out)
{
	/* v11 and v12 pass a coll comm; their queryLastError passes either */
	bool is_coll = ctx && *(const uint64_t *)ctx == rma_coll_magic;
	int rc = is_coll && rma_names_no_context(abi)
			 ? rma_comm_check(ctx, abi, call)
			 : check(ctx, rma_context_magic, abi, call, "context");
	if (rc)
		return rc;
	struct rma_context *x = is_coll ? ((struct rma_comm *)ctx)->own : ctx;
	if (RPWI_UNLIKELY(index < -1 || index >= x->count)) {
		plugin_warn("%s of %s was given context %d: this one has %d, counted from 0", call,
			PLUGIN_API(abi), index, x->count);
		return NCCL_INVALID_ARGUMENT;
	}
	*out = x;
	return NCCL_SUCCESS;
}

int rma_peer_failed(struct rma_peer *p, int status, const char *doing)
{
	struct rma_comm *c = p->comm;
	if (p->gone && p->status)
		status = p->status; /* why it ended says more than what that did to this request */
	else if (p->gone && status)
		status = RPW_ERR_PEER_GONE;
	if (!c->shut && !c->failed_said)
		plugin_warn("%s rank %d (%s): %s (%s): %s", doing, p->rank, p->name,
			rpw_status_name(status), *p->why ? p->why : rpw_last_error(),
			plugin_advice(status));
	c->failed_said = true;
	c->failed = true;
	return plugin_result(status);
}
