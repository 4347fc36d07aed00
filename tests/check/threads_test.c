/* SPDX-License-Identifier: BSD-3-Clause */
/* The checker in several threads: findings of one kind are counted exactly, sites are a thread's
 * own, and memory that threads free while requests are in flight is found. For ThreadSanitizer,
 * which cannot run under a preload. */
#include "lib/test.h"

#include "check/check.h"
#include "check/freed.h"
#include "check/hooks.h"
#include "check/keys.h"
#include "check/overlap.h"

#include <pthread.h>
#include <unistd.h>

/* Those of libropeway-check.so.0: what is lost is said by hand. */
RPWI_EXPORT struct rpwi_check_hooks ropeway_check_hooks = {.free = (void *)free};

enum { THREADS = 4, ROUNDS = 2048, DEPTH = 8, LEN = 4096, KEY = 0x10000100, QPN = 0x100 };
static char report[] = "/tmp/ropeway-check-threads-XXXXXX";

static struct worker {
	pthread_t thread;
	unsigned number;
	struct rpwi_qp transport;
	struct ibv_qp qp;
	uint8_t *memory;
	bool mixed; /* a site that was another thread's */
} worker[THREADS];

static void on_all(void *(*run)(void *arg))
{
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&worker[i].thread, NULL, run, &worker[i]), 0);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
}

/* The last number behind `key` in lines with all of `word`; the lines are counted. */
static unsigned long in_report(const char *word, const char *key, unsigned *lines)
{
	char line[RPWI_FINDING_LINE];
	unsigned long last = 0;
	FILE *f = fopen(report, "re");
	assert_non_null(f);
	for (*lines = 0; fgets(line, sizeof(line), f);) {
		const char *at = strstr(line, word) ? strstr(line, key) : NULL;
		assert_int_equal(line[strlen(line) - 2], '}'); /* no line is cut or mixed */
		if (!at)
			continue;
		last = strtoul(at + strlen(key), NULL, 0);
		++*lines;
	}
	fclose(f);
	return last;
}

static void *reports(void *arg)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (!rpwi_check_lock())
			return NULL;
		struct rpwi_finding f = {
			.rule = RPWI_RULE_LEAK, .site[0] = {.what = "here", .at.pc = {1 + i % 4}}};
		snprintf(f.text, sizeof(f.text), "of a thread");
		rpwi_check_report(&f);
		rpwi_check_unlock();
	}
	return NULL;
}

static void findings_are_counted_exactly(void **state)
{
	unsigned lines;
	on_all(reports);
	in_report("\"rule\":\"leak\"", "\"pid\":", &lines);
	assert_int_equal(lines, 4); /* kinds */
	/* a power of two, so that it stands there before the end of the process */
	assert_int_equal(in_report("\"again\"", "\"count\":", &lines), THREADS * ROUNDS / 4);
}

static void *notes_sites(void *arg)
{
	struct worker *w = arg;
	for (uintptr_t i = 0; i < ROUNDS; i++) {
		const void *pc = (const void *)((i + 1) * THREADS + w->number + 4096);
		rpwi_check_site_note(pc, __builtin_frame_address(0));
		w->mixed |= rpwi_check_site.pc[0] != (uintptr_t)pc;
	}
	return NULL;
}

static void a_site_is_its_threads_own(void **state)
{
	on_all(notes_sites);
	for (unsigned i = 0; i < THREADS; i++)
		assert_false(worker[i].mixed);
}

static void *frees(void *arg)
{
	struct worker *w = arg;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_sge sge = {(uintptr_t)w->memory + i % DEPTH * LEN, LEN, KEY + w->number};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
		struct ibv_wc wc = {.wr_id = i, .qp_num = w->qp.qp_num, .opcode = IBV_WC_RECV};
		rpwi_check_site_note(
			(const void *)(uintptr_t)(8192 + w->number), __builtin_frame_address(0));
		check_recvs_begin(&w->qp, &wr);
		check_recvs_end(&w->qp, NULL);
		if (i % 2)
			ropeway_check_hooks.lost((const void *)(uintptr_t)sge.addr, LEN, RPWI_FREED,
				(const void *)(uintptr_t)4096);
		check_completes(&w->transport, true, &wc);
		check_polled(NULL, &wc, 1);
	}
	return NULL;
}

static void memory_that_is_freed_under_a_request_is_found(void **state)
{
	unsigned lines;
	for (unsigned i = 0; i < THREADS; i++) {
		struct worker *w = &worker[i];
		struct ibv_mr mr = {.lkey = KEY + i, .length = DEPTH * LEN};
		struct ibv_qp_cap cap = {.max_recv_wr = DEPTH, .max_send_wr = 1, .max_recv_sge = 1};
		w->memory = calloc(DEPTH, LEN);
		assert_non_null(w->memory);
		w->transport = (struct rpwi_qp){.qpn = QPN + i, .type = IBV_QPT_RC};
		w->qp = (struct ibv_qp){.qp_num = QPN + i, .qp_type = IBV_QPT_RC};
		check_mr_made(&mr, w->memory, (uintptr_t)w->memory, IBV_ACCESS_LOCAL_WRITE);
		check_qp_made(&w->qp, &w->transport, &cap, &cap);
	}
	on_all(frees);
	/* A note waits for one that another thread has begun before it, and comes too late then. */
	in_report("\"rule\":\"memory-freed\"", "\"pid\":", &lines);
	assert_in_range(lines, 1, THREADS);
	assert_in_range(in_report("\"again\"", "\"count\":", &lines), 2, THREADS * ROUNDS / 2);
	for (unsigned i = 0; i < THREADS; i++) {
		check_qp_gone(&worker[i].qp);
		check_mr_gone(KEY + i);
		free(worker[i].memory);
	}
	assert_int_equal(rpwi_check_in_flight, 0);
}

static int begin(void **state)
{
	char spec[64];
	int fd = mkstemp(report);
	if (fd < 0)
		return -1;
	close(fd);
	snprintf(spec, sizeof(spec), "all:log=%s", report);
	setenv("ROPEWAY_CHECK", spec, 1);
	rpwi_check_init();
	check_freed_init();
	for (unsigned i = 0; i < THREADS; i++)
		worker[i].number = i;
	return rpwi_check_on ? rpwi_check_sites_init() : -1;
}

static int end(void **state) { return unlink(report); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(findings_are_counted_exactly),
		cmocka_unit_test(a_site_is_its_threads_own),
		cmocka_unit_test(memory_that_is_freed_under_a_request_is_found),
	};
	return cmocka_run_group_tests_name("check threads", tests, begin, end);
}
