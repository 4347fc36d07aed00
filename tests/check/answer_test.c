/* SPDX-License-Identifier: BSD-3-Clause */
/* An answer that comes into the buffer of its question before the question is acknowledged: the
 * order of the two is the transport's, so it cannot be planted. The peer had the question if all of
 * it was sent; if not, what is sent is no more what was posted. */
#include "lib/test.h"

#include "check/check.h"
#include "check/keys.h"
#include "check/queue.h"

#include <unistd.h>

enum { KEY = 0x10000100, QPN = 0x100, LEN = 64 };
static char report[] = "/tmp/ropeway-check-answer-XXXXXX";
static struct rpwi_qp transport = {.qpn = QPN, .type = IBV_QPT_RC};
static struct ibv_qp qp = {.qp_num = QPN, .qp_type = IBV_QPT_RC};
static uint8_t memory[4096];

static unsigned found(void)
{
	char line[RPWI_FINDING_LINE];
	unsigned n = 0;
	FILE *f = fopen(report, "re");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "\"buffer-changed\"") || strstr(line, "\"again\"");
	if (f)
		fclose(f);
	return n;
}

/* Posts a question, gets an answer, gets the acknowledgement. */
static void ask(uint64_t id, bool early, bool answered)
{
	struct ibv_sge sge = {(uintptr_t)memory, LEN, KEY};
	struct ibv_send_wr wr = {.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc = {.wr_id = id, .qp_num = QPN, .opcode = IBV_WC_SEND};
	check_sends_end(check_sends_begin(&qp, &wr), NULL, 0);
	memory[7]++;
	if (answered) {
		assert_true(rpwi_check_lock());
		check_key_received(QPN, KEY, sge.addr, LEN, early);
		rpwi_check_unlock();
	}
	check_completes(&transport, false, &wc);
	check_polled(NULL, &wc, 1);
}

static void an_answer_after_all_was_sent_is_no_change(void **state)
{
	ask(1, false, true);
	assert_int_equal(found(), 0);
}

static void an_answer_before_that_is_one(void **state)
{
	ask(2, true, true);
	assert_int_equal(found(), 1);
}

static void and_so_is_what_the_program_writes(void **state)
{
	ask(3, false, false);
	assert_int_equal(found(), 2); /* the same kind, again */
}

static int begin(void **state)
{
	char spec[64];
	int fd = mkstemp(report);
	struct ibv_mr mr = {.lkey = KEY, .length = sizeof(memory)};
	struct ibv_qp_cap cap = {.max_recv_wr = 1, .max_send_wr = 8, .max_send_sge = 1};
	if (fd < 0)
		return -1;
	close(fd);
	snprintf(spec, sizeof(spec), "buffer-changed:log=%s", report);
	setenv("ROPEWAY_CHECK", spec, 1);
	rpwi_check_init();
	check_mr_made(&mr, memory, (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE);
	check_qp_made(&qp, &transport, &cap, &cap);
	return rpwi_check_on ? 0 : -1;
}

static int end(void **state) { return unlink(report); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_after_all_was_sent_is_no_change),
		cmocka_unit_test(an_answer_before_that_is_one),
		cmocka_unit_test(and_so_is_what_the_program_writes),
	};
	return cmocka_run_group_tests_name("check answers", tests, begin, end);
}
