/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma.c - the calls of librdmacm that the checker has to see (check/cm.h): an event is taken and
 * acknowledged, the program disconnects, an id is destroyed. librdmacm counts acknowledgements in
 * its own memory, whose layout is private, and its commands to /dev/infiniband/rdma_cm (src/ucma)
 * tell neither of them nor of the program's call sites.
 *
 * Without --check a call costs one branch, and none of these is on a data path: there is no second
 * library to preload.
 */
#include "preload/next.h"

#include "check/check.h"
#include "check/cm.h"

#include "ucma/ucma.h"

#include <dlfcn.h>

/* How <rdma/rdma_cma.h> begins its public structs; the drop-in is built without librdmacm. */
struct rdma_event_channel;
struct rdma_cm_id {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	struct ibv_qp *qp;
};
struct rdma_cm_event {
	struct rdma_cm_id *id, *listen_id;
	unsigned event;
};
enum { CONNECT_REQUEST = 4 };
int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
int rdma_ack_cm_event(struct rdma_cm_event *event);
int rdma_destroy_id(struct rdma_cm_id *id);
int rdma_disconnect(struct rdma_cm_id *id);

static struct {
	__typeof__(&rdma_get_cm_event) get;
	__typeof__(&rdma_ack_cm_event) ack;
	__typeof__(&rdma_destroy_id) destroy;
	__typeof__(&rdma_disconnect) disconnect;
} calls;

/* Where librdmacm was loaded for one library alone (a Python module's), nothing after the drop-in
 * has it. */
static void *find(const char *name)
{
	void *next = rpwi_next(name);
	void *lib = next ? NULL : dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return next;
	next = dlsym(lib, name);
	dlclose(lib); /* its caller has it */
	return next;
}

/* librdmacm calls itself, too, for rdma_create_ep and its kind: those events are its own. */
static bool is_librdmacms(const void *caller)
{
	Dl_info of;
	return dladdr(caller, &of) && of.dli_fname && strstr(of.dli_fname, "librdmacm.so");
}

/* Two threads that look find the same. */
#define NEXT(member, name) \
	({ \
		if (RPWI_UNLIKELY(!calls.member)) \
			calls.member = (__typeof__(calls.member))find(#name); \
		calls.member; \
	})

/* What librdmacm calls meanwhile has the program's call for its site. */
#define KEEPING_SITE(call) \
	({ \
		bool was = rpwi_check_site_kept; \
		rpwi_check_site_kept = true; \
		int rc = call; \
		rpwi_check_site_kept = was; \
		rc; \
	})

RPWI_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	__typeof__(calls.get) next = NEXT(get, rdma_get_cm_event);
	if (!next)
		return rpwi_minus(ENOSYS);
	if (RPWI_LIKELY(!rpwi_check_on))
		return next(channel, event);
	RPWI_CHECK_HERE();
	int got = KEEPING_SITE(next(channel, event));
	if (got || is_librdmacms(__builtin_return_address(0)))
		return got;
	const struct rdma_cm_event *e = *event;
	/* the listener's count waits for a request's acknowledgement, not the new id's */
	bool request = e->event == CONNECT_REQUEST;
	check_cm_got(e, request ? e->listen_id : e->id, rpwi_ucma_event_name(e->event));
	return 0;
}

RPWI_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	__typeof__(calls.ack) next = NEXT(ack, rdma_ack_cm_event);
	if (!next)
		return rpwi_minus(ENOSYS);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_cm_acked(event); /* before it is freed, and its address another's */
	return next(event);
}

RPWI_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	__typeof__(calls.destroy) next = NEXT(destroy, rdma_destroy_id);
	if (!next)
		return rpwi_minus(ENOSYS);
	if (RPWI_LIKELY(!rpwi_check_on))
		return next(id);
	RPWI_CHECK_HERE();
	check_cm_destroys(id);
	return KEEPING_SITE(next(id));
}

RPWI_EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	__typeof__(calls.disconnect) next = NEXT(disconnect, rdma_disconnect);
	if (!next)
		return rpwi_minus(ENOSYS);
	if (RPWI_LIKELY(!rpwi_check_on))
		return next(id);
	RPWI_CHECK_HERE();
	/* librdmacm moves a QP that it knows to ERR before it tells anyone */
	if (id && id->qp && rpwi_dev_owns_context(id->qp->context))
		rpwi_dev_disconnects(id->qp);
	return KEEPING_SITE(next(id));
}
