/* SPDX-License-Identifier: BSD-3-Clause */
/* refused_test.c - what the device lacks is refused with EOPNOTSUPP, and the log says so at level
 * info, once for each kind, whatever the number of threads and calls. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { THREADS = 4, CALLS = 500, ROOM = 65536 };

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct ibv_qp *qp;

static void begin(void)
{
	c = pair_open_loopback();
	pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr sa = {.attr = {16, 1, 0}};
	srq = ibv_create_srq(pd, &sa);
	struct ibv_qp_init_attr qa = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC};
	qa.cap.max_send_wr = qa.cap.max_send_sge = 1;
	qp = ibv_create_qp(pd, &qa);
	assert_non_null(qp);
}

#define REFUSED(call) \
	do { \
		errno = 0; \
		assert_null((void *)(uintptr_t)(call)); \
		assert_int_equal(errno, EOPNOTSUPP); \
	} while (0)
#define REFUSED_BY_NUMBER(call) \
	do { \
		errno = 0; \
		assert_int_equal(call, EOPNOTSUPP); \
		assert_int_equal(errno, EOPNOTSUPP); \
	} while (0)

static void refuse_all(void)
{
	struct ibv_alloc_dm_attr dm = {.length = 64};
	struct ibv_xrcd_init_attr xrcd = {0};
	struct ibv_qp_open_attr open = {0};
	struct ibv_flow_attr flow = {0};
	struct ibv_flow_action_esp_attr esp = {0};
	struct ibv_wq_init_attr wq = {0};
	struct ibv_rwq_ind_table_init_attr table = {0};
	struct ibv_counters_init_attr counters = {0};
	struct ibv_qp_rate_limit_attr rate = {0};
	struct ibv_ops_wr op = {0}, *bad = NULL;
	struct ibv_ece ece = {0};
	uint32_t number;
	REFUSED(ibv_alloc_dm(c, &dm));
	REFUSED(ibv_import_dm(c, 1));
	REFUSED(ibv_open_xrcd(c, &xrcd));
	REFUSED(ibv_open_qp(c, &open));
	REFUSED_BY_NUMBER(ibv_get_srq_num(srq, &number));
	REFUSED(ibv_create_flow(qp, &flow));
	REFUSED(ibv_create_flow_action_esp(c, &esp));
	REFUSED(ibv_create_wq(c, &wq));
	REFUSED(ibv_create_rwq_ind_table(c, &table));
	REFUSED(ibv_create_counters(c, &counters));
	REFUSED_BY_NUMBER(ibv_modify_qp_rate_limit(qp, &rate));
	REFUSED_BY_NUMBER(ibv_post_srq_ops(srq, &op, &bad));
	assert_ptr_equal(bad, &op);
	REFUSED_BY_NUMBER(ibv_query_ece(qp, &ece));
	REFUSED_BY_NUMBER(ibv_set_ece(qp, &ece));
}

static void *refuse_often(void *arg)
{
	for (int i = 0; i < CALLS; i++)
		refuse_all();
	return NULL;
}

static unsigned lines_with(const char *text, const char *what)
{
	unsigned n = 0;
	for (const char *at = text; (at = strstr(at, what)); at++)
		n++;
	return n;
}

static void the_log_names_each_kind_once(void **state)
{
	static char text[ROOM];
	int err = dup(STDERR_FILENO), log[2]; /* a pipe: lines of two threads stay whole */
	pthread_t thread[THREADS];
	begin();
	assert_int_equal(pipe(log), 0);
	dup2(log[1], STDERR_FILENO);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, refuse_often, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	dup2(err, STDERR_FILENO);
	assert_true(read(log[0], text, ROOM - 1) > 0);
	static const char *const lacks[] = {"no device memory;", "no XRC;", "no flow steering;",
		"no receive queues without a queue pair;", "no flow counters;",
		"no rate limits of a queue pair;", "no tag matching;",
		"no enhanced connection establishment;"};
	for (unsigned i = 0; i < sizeof(lacks) / sizeof(*lacks); i++)
		assert_int_equal(lines_with(text, lacks[i]), 1);
	assert_int_equal(lines_with(text, "is refused"), sizeof(lacks) / sizeof(*lacks));
	assert_non_null(strstr(text, "ropeway: info: ibv_"));
}

static void without_info_the_log_says_nothing(void **state)
{
	char text[64] = "";
	FILE *quiet = popen("ROPEWAY_LOG=warn /proc/$PPID/exe quiet 2>&1", "r");
	assert_non_null(quiet);
	size_t n = fread(text, 1, sizeof(text) - 1, quiet);
	assert_int_equal(pclose(quiet), 0);
	assert_string_equal(text, "");
	assert_int_equal(n, 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		begin();
		refuse_all();
		return 0;
	}
	setenv("ROPEWAY_LOG", "info", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_log_names_each_kind_once),
		cmocka_unit_test(without_info_the_log_says_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
