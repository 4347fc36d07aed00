/* SPDX-License-Identifier: BSD-3-Clause */
/* slot_test.c - a packet for the owner of a slot on this host goes to that process, whatever the
 * port group's program says. */
#include "steer_kit.h"

#include <linux/filter.h>

/* A message that is not repeated (a rejection) must not wait at a process that ends: whatever the
 * group's program says, it goes to its owner alone. */
static void for_a_slot_no_other_member_is_asked(void **state)
{
	enum { MEMBERS = 3, LEN = 256 };
	uint8_t data[LEN];
	unsigned sent;
	open_self(&lo4);
	spawn(1, &lo4);
	spawn(2, &lo4);
	until_steered(2, &lo4);
	kill(members[2].pid, SIGSTOP);
	struct rpwi_av av = av_to(&lo4, 1);
	for (uint32_t k = 0; k < MEMBERS; k++) {
		/* all packets to one member, in turn: the stopped one is among them */
		struct sock_filter choose = BPF_STMT(BPF_RET | BPF_K, k);
		struct sock_fprog program = {.len = 1, .filter = &choose};
		assert_int_equal(setsockopt(rpwi_port_fd(port), SOL_SOCKET,
					 SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)),
			0);
		for (uint32_t i = 0; i < LEN; i++)
			data[i] = pattern(members[1].slot, k, i);
		rpwi_txb_reset(txb);
		txb->av = &av;
		add_packet(txb, qpn_of(&members[1]), k, data, LEN);
		assert_int_equal(rpwi_port_send_to_slot(port, txb, members[1].slot, &sent), 0);
		assert_int_equal(sent, 1);
	}
	end_kid(2, SIGKILL);
	expect_all(1, 1, MEMBERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(for_a_slot_no_other_member_is_asked, reap),
	};
	ns_enter();
	members = mmap(NULL, KIDS * sizeof(*members), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	txb = calloc(1, sizeof(*txb));
	return members == MAP_FAILED || !txb ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
