/* SPDX-License-Identifier: BSD-3-Clause */
/* The window of a peer process. */
#include "wire_pair.h"

static void the_window_shrinks_on_loss_and_grows_again(void **state)
{
	struct rpwi_cc cc;
	rpwi_cc_init(&cc, 64, 64);
	rpwi_cc_on_send(&cc, 64);
	rpwi_cc_on_rtt(&cc, 100000);
	rpwi_cc_on_loss(&cc, 1000000);
	assert_int_equal(cc.cwnd, 32);
	rpwi_cc_on_loss(&cc, 1050000); /* the same round trip */
	assert_int_equal(cc.cwnd, 32);
	rpwi_cc_on_loss(&cc, 1200000);
	assert_int_equal(cc.cwnd, 16);
	assert_int_equal(rpwi_cc_room(&cc), 0);
	rpwi_cc_on_ack(&cc, 50, 1300000);
	assert_true(cc.cwnd > 16 && cc.cwnd <= 20); /* additive */
	for (uint64_t t = 2000000; t < 4000000; t += 500000)
		rpwi_cc_on_loss(&cc, t);
	assert_int_equal(cc.cwnd, 4); /* the least */
	assert_int_equal(cc.inflight, 14);
	rpwi_cc_on_forget(&cc, 14);
	for (int k = 0; k < 1000; k++) {
		uint32_t room = rpwi_cc_room(&cc);
		rpwi_cc_on_send(&cc, room);
		rpwi_cc_on_ack(&cc, room, 5000000);
	}
	assert_int_equal(cc.cwnd, 64);
	assert_int_equal(cc.inflight, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_window_shrinks_on_loss_and_grows_again),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
