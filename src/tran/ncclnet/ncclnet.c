/* SPDX-License-Identifier: BSD-3-Clause */
/* ncclnet.c - tran_ncclnet: frames and remote memory over somebody's NCCL network plugin, of any
 * version of its API from v4 to v12. The table of operations, progress, and sleeping.
 *
 * It is used where it is asked for by name: ROPEWAY_TRANSPORT=ncclnet:PATH[@vN] (or in the options
 * of the context); both sides name the same plugin and version. One version is chosen when the
 * plugin is loaded, and its table is the only one ever called (ncclnet/host/host.h). What plugins
 * do beside their API is in ncclnet/host/quirks.c, with what is done about it here.
 *
 * An endpoint has four comms: one in each direction for frames, one in each direction for bulk
 * data. On that for frames, messages from and to registered slots; receives are always posted
 * (nt_frame.c). On that for bulk data, messages straight from and to the memory that was registered
 * or named, in the order in which their sender announced them as frames (nt_bulk.c): to match first
 * to first is all that a plugin need do, and nothing is copied. Plugins have no descriptor to sleep
 * on: who sleeps looks again after a while, the sooner the less time has passed since something
 * happened.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/born.h"
#include "tran/ncclnet/nt_priv.h"

enum {
	LOOK_LEAST_NS = 20 * 1000,
	LOOK_MOST_NS = 1000 * 1000,
	LOOK_IDLE_NS = 10 * 1000 * 1000, /* after IDLE_S of nothing */
	IDLE_S = 10,
	LOOK_SHARE = 16, /* of the time since something happened */
};

static int usable(
	const struct tran_facts *own, const struct tran_facts *peer, char *why, size_t why_len)
{
	if (!own->plugin[0]) {
		snprintf(why, why_len,
			"no network plugin was named: ncclnet:PATH[@vN], as in "
			"ncclnet:/usr/lib/libnccl-net.so@v8");
		return RPW_ERR_NOT_SUPPORTED;
	}
	const struct nt_load *l = nt_load_get(own->plugin);
	if (!l) {
		snprintf(why, why_len, "no memory to load the plugin");
		return RPW_ERR_NO_MEMORY;
	}
	if (!l->err)
		return 0;
	snprintf(why, why_len, "%s", l->why);
	return rpwi_status_of_errno(-l->err);
}

static int nt_open(const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	const struct nt_load *l = nt_load_get(own->plugin);
	if (l && l->err)
		return rpwi_fail(rpwi_status_of_errno(-l->err), "ncclnet: %s", l->why);
	struct nt *t = l ? calloc(1, sizeof *t) : NULL;
	if (!t)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "ncclnet: no memory for the transport");
	t->base = (struct tran){.ops = &tran_ncclnet, .up = up, .polled = own->polled};
	t->load = l;
	int err = emulate_open(&t->base);
	if (err) {
		free(t);
		return err;
	}
	rpwi_list_init(&t->eps);
	rpwi_list_init(&t->leaving);
	rpwi_list_init(&t->failing);
	t->active_ns = rpwi_now_ns();
	*out = &t->base;
	return 0;
}

static void leave_progress(struct nt *t, uint64_t now_ns)
{
	RPWI_LIST_EACH_SAFE (struct nt_ep, ep, next, &t->leaving, link)
		nt_ep_leave_progress(ep, now_ns);
}

/* ---- the end: what the peer has not taken yet goes on for a while, without the program that has
 * closed ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t none;
	unsigned n;
	uint64_t born;
} lingering = {.lock = PTHREAD_MUTEX_INITIALIZER, .none = PTHREAD_COND_INITIALIZER};

static void linger_end(struct nt *t)
{
	uint64_t until_ns = rpwi_now_ns() + NT_CLOSE_MS * RPWI_NS_PER_MS;
	while (!rpwi_list_empty(&t->leaving)) {
		uint64_t now_ns = rpwi_now_ns();
		leave_progress(t, now_ns >= until_ns ? RPWI_NEVER : now_ns);
		if (!rpwi_list_empty(&t->leaving))
			usleep(20);
	}
	emulate_close(&t->base);
	free(t);
}

static void *linger(void *arg)
{
	linger_end(arg);
	pthread_mutex_lock(&lingering.lock);
	if (!--lingering.n)
		pthread_cond_broadcast(&lingering.none);
	pthread_mutex_unlock(&lingering.lock);
	return NULL;
}

/* A program that ends waits for it here, as it would wait in the kernel for a socket that lingers.
 * A forked child has none of these threads. */
__attribute__((destructor)) void nt_linger_wait(void)
{
	pthread_mutex_lock(&lingering.lock);
	while (lingering.n && rpwi_is_ours(lingering.born))
		pthread_cond_wait(&lingering.none, &lingering.lock);
	pthread_mutex_unlock(&lingering.lock);
}

static bool linger_begin(struct nt *t)
{
	pthread_t thread;
	pthread_mutex_lock(&lingering.lock);
	lingering.born = rpwi_born();
	lingering.n++;
	bool begun = !pthread_create(&thread, NULL, linger, t);
	if (begun)
		pthread_detach(thread);
	else
		lingering.n--;
	pthread_mutex_unlock(&lingering.lock);
	return begun;
}

static void nt_close(struct tran *tran)
{
	struct nt *t = nt_of(tran);
	leave_progress(t, rpwi_now_ns());
	if (rpwi_list_empty(&t->leaving) || !linger_begin(t))
		linger_end(t);
}

/* ---- progress ---- */

static unsigned nt_progress(struct tran *tran)
{
	struct nt *t = nt_of(tran);
	unsigned n = 0;
	for (struct rpwi_list *l = t->eps.next; l != &t->eps; l = t->cursor) {
		t->cursor = l->next;
		n += nt_ep_progress(RPWI_CONTAINER_OF(l, struct nt_ep, link));
	}
	t->cursor = NULL;
	if (RPWI_UNLIKELY(!rpwi_list_empty(&t->leaving)))
		leave_progress(t, rpwi_now_ns());
	if (RPWI_UNLIKELY(!rpwi_list_empty(&t->failing)))
		nt_ep_report(t);
	if (n)
		t->active_ns = rpwi_now_ns();
	return n;
}

static int nt_arm(struct tran *tran, int *fd, uint64_t *deadline_ns)
{
	struct nt *t = nt_of(tran);
	if (!rpwi_list_empty(&t->failing))
		return 1;
	if (rpwi_list_empty(&t->eps) && rpwi_list_empty(&t->leaving))
		return 0;
	uint64_t now_ns = rpwi_now_ns(), idle_ns = now_ns - t->active_ns;
	uint64_t next_ns =
		idle_ns > IDLE_S * RPWI_NS_PER_S
			? LOOK_IDLE_NS
			: RPWI_MAX(RPWI_MIN(idle_ns / LOOK_SHARE, (uint64_t)LOOK_MOST_NS),
				  (uint64_t)LOOK_LEAST_NS);
	*deadline_ns = RPWI_MIN(*deadline_ns, now_ns + next_ns);
	return 0;
}

const struct tran_ops tran_ncclnet = {
	.name = "ncclnet",
	.caps = TRAN_CAN_BREAK | TRAN_BY_NAME,
	.usable = usable,
	.open = nt_open,
	.close = nt_close,
	.progress = nt_progress,
	.arm = nt_arm,
	.ep_make = nt_ep_make,
	.ep_start = nt_ep_start,
	.ep_close = nt_ep_close,
	.send = nt_send,
	.mem = &emulated_mem,
	.rma = &emulated_rma,
	.bulk = &nt_bulk_ops,
	.breach = nt_ep_breach,
};
