/* SPDX-License-Identifier: BSD-3-Clause */
/* script_test.c - the language of fault scripts: what is read, and every mistake with its place. */
#include <errno.h>
#include <infiniband/verbs.h>

#include "lib/test.h"
#include "fault/fault.h"
#include "wire/mad.h"
#include "wire/packet.h"

static const struct rpwi_script_who me = {.name = "me", .rank = 1};

static struct rpwi_script *read_script(const char *text)
{
	char why[RPWI_WHY_LEN] = "";
	struct rpwi_script *s;
	if (rpwi_script_parse(text, strlen(text), &me, &s, why, sizeof(why))) {
		print_error("%s: %s\n", text, why);
		fail();
	}
	return s;
}

static struct rpwi_rule one(const char *text)
{
	struct rpwi_script *s = read_script(text);
	assert_int_equal(s->nrules, 1);
	struct rpwi_rule r = s->rule[0];
	free(s);
	return r;
}

static void lines_are_read(void **state)
{
	struct rpwi_rule r = one("  reg_mr 3: ENOMEM   # the third\n");
	assert_int_equal(r.subject, RPWI_SUBJ_CALL);
	assert_int_equal(r.detail, RPWI_CALL_REG_MR);
	assert_int_equal(r.which, RPWI_WHICH_RANGE);
	assert_true(r.first == 3 && r.last == 3);
	assert_true(r.act == RPWI_ACT_FAIL && r.value == ENOMEM);
	assert_string_equal(r.text, "reg_mr 3: ENOMEM");
	r = one("ibv_create_qp every 5: ENOSPC");
	assert_true(r.detail == RPWI_CALL_CREATE_QP && r.which == RPWI_WHICH_EVERY && r.first == 5);
	r = one("modify_qp RTR 2: EINVAL");
	assert_true(r.detail == RPWI_CALL_MODIFY_QP && r.state == IBV_QPS_RTR && r.first == 2);
	r = one("qp 5 at byte 10^6: status IBV_WC_REM_ACCESS_ERR");
	assert_true(r.subject == RPWI_SUBJ_SEND && r.qp == 5 && r.which == RPWI_WHICH_BYTE);
	assert_true(r.first == 1000000 && r.act == RPWI_ACT_STATUS);
	assert_int_equal(r.value, IBV_WC_REM_ACCESS_ERR);
	r = one("at 2 s: port down 200 ms");
	assert_true(r.subject == RPWI_SUBJ_TIME && r.after_ns == 2 * RPWI_NS_PER_S);
	assert_true(r.act == RPWI_ACT_PORT_DOWN && r.ns == 200 * RPWI_NS_PER_MS);
	r = one("at 0.5s: peer silent");
	assert_true(r.after_ns == RPWI_NS_PER_S / 2 && r.ns == RPWI_NEVER);
	r = one("packet sent 100..110: drop");
	assert_true(r.subject == RPWI_SUBJ_TX && r.detail == RPWI_ANY);
	assert_true(r.first == 100 && r.last == 110 && r.act == RPWI_ACT_DROP);
	r = one("packet received ACK qp 2 7..: dup");
	assert_true(r.subject == RPWI_SUBJ_RX && r.detail == RPWI_OP_ACK && r.qp == 2);
	assert_true(r.first == 7 && r.last == UINT64_MAX && r.act == RPWI_ACT_DUP);
	r = one("packet sent chance 0.01 after 1 min until 2min: delay 5 ms");
	assert_true(r.which == RPWI_WHICH_CHANCE && r.chance > 0.009 && r.chance < 0.011);
	assert_true(r.after_ns == 60 * RPWI_NS_PER_S && r.until_ns == 120 * RPWI_NS_PER_S);
	r = one("cm REP 1: lose");
	assert_true(r.subject == RPWI_SUBJ_CM_TX && r.detail == RPWI_CM_REP);
	r = one("cm REQ received: reject stale_conn");
	assert_true(r.subject == RPWI_SUBJ_CM_RX && r.act == RPWI_ACT_REJECT);
	assert_int_equal(r.value, RPWI_REJ_STALE_CONN);
	assert_int_equal(one("cm REQ: reject 28").value, 28);
	r = one("completion recv 5: late 3 s");
	assert_true(r.subject == RPWI_SUBJ_COMPLETION && r.detail == 1 && r.act == RPWI_ACT_LATE);
	r = one("rdma_connect 1: event UNREACHABLE");
	assert_true(r.act == RPWI_ACT_CM_EVENT && r.detail == RPWI_CALL_CM_CONNECT);
	r = one("rdma_connect 1: event PORT_ERR");
	assert_true(r.act == RPWI_ACT_EVENT && r.value == IBV_EVENT_PORT_ERR);
	r = one("at 1 s cq 2: cq overrun");
	assert_true(r.act == RPWI_ACT_EVENT && r.value == IBV_EVENT_CQ_ERR && r.cq == 2);
	r = one("send at byte 64K: qp fatal");
	assert_true(r.first == 65536 && r.value == IBV_EVENT_QP_FATAL);
}

static void seeds_and_processes(void **state)
{
	struct rpwi_script *s = read_script("# nothing\n\n \t\r\nseed 42");
	assert_true(s->seed == 42 && s->nrules == 0);
	free(s);
	s = read_script("alloc_pd: EIO\nprocess you\nalloc_pd: EIO\nprocess me\nreg_mr: EIO\n"
			"process rank 1\ncreate_cq: EIO\nprocess rank 0\ncreate_cq: EIO\n"
			"process all\ncreate_ah: EIO");
	assert_int_equal(s->nrules, 4);
	const unsigned lines[] = {1, 5, 7, 11};
	for (int i = 0; i < 4; i++)
		assert_int_equal(s->rule[i].line, lines[i]);
	free(s);
}

static void mistakes_have_a_place(void **state)
{
	static const struct {
		const char *text, *why; /* how it begins, and (after a |) what it says, too */
	} rows[] = {
		{"reg_mr 3 ENOMEM", "1:10: |not 'ENOMEM'"},
		{"reg_mr 3:", "1:10: |the line ends"},
		{"reg_mr 3: ENOMOM", "1:11: |did you mean ENOMEM?"},
		{"\n\n  reg_mx 3: EIO", "3:3: |did you mean reg_mr?"},
		{"frobnicate: EIO", "1:1: |expected 'at TIME', a call"},
		{"reg_mr 0: EIO", "1:8: |counted from 1"},
		{"reg_mr every 000: EIO", "1:14: |counted from 1"},
		{"send qp 0K: qp error", "1:9: |counted from 1"},
		{"reg_mr 5..3: EIO", "1:8: |ends before it begins"},
		{"reg_mr 5..x: EIO", "1:8: |as in 3, 3..5 or 3.."},
		{"reg_mr 3 every 2: EIO", "1:16: |selects only once"},
		{"reg_mr 99999999999999999999: EIO", "1:8: |a number"},
		{"reg_mr at byte 3: EIO", "1:17: |only sends and packets"},
		{"reg_mr: drop", "1:9: |an errno (ENOMEM), take TIME, event"},
		{"reg_mr: EIO EIO", "1:13: |the end of the line"},
		{"send 1: EIO", "1:9: |status STATUS"},
		{"send 1: status SUCCESS", "1:16: |a status"},
		{"send 1: status REM_ACESS_ERR", "1:16: |did you mean REM_"},
		{"packet 3: drop", "1:8: |'sent' or 'received'"},
		{"packet sent chance 1.5: drop", "1:20: |from 0 to 1"},
		{"packet sent 1: nak RNR", "1:16: |drop, dup"},
		{"packet received 1: nak BUSY", "1:24: |RNR, INV_REQ"},
		{"packet sent: delay", "1:19: |a time"},
		{"packet sent: delay 5 parsecs", "1:22: |a time"},
		{"packet sent: delay 25 h", "1:23: |a time"},
		{"packet sent: delay 2000 min", "1:25: |a time"},
		{"cm HELLO: lose", "1:4: |REQ, MRA"},
		{"cm REP: reject 3", "1:17: |only a REQ"},
		{"at 2 s: reg_mr", "1:9: |what happens: event NAME"},
		{"at 2 s 3: port down", "1:8: |qp, cq or srq"},
		{"at noon: port down", "1:4: |a time"},
		{"at 2 s: event QP_FATAL", "1:23: |of which QP?"},
		{"at 2 s: event CQ_ERR", "1:21: |of which CQ?"},
		{"at 2 s: event SRQ_ERR", "1:22: |of which SRQ?"},
		{"at 2 s: event WQ_FATAL", "1:15: |an event"},
		{"reg_mr qp 2: EIO", "1:17: |qp N is for"},
		{"send cq 2: status FATAL_ERR", "1:28: |cq N is for"},
		{"send after 2 s until 1 s: qp error", "1:35: |ends before it begins"},
		{"seed x", "1:6: |as in seed 7"},
		{"seed 1\nseed 2", "2:6: |one seed"},
		{"process", "1:8: |a program's name"},
		{"process rank x", "1:14: |a rank"},
		/* of other processes too */
		{"process other\nreg_mr: EWHAT", "2:9: |an errno"},
		{"reg_mr \x01: EIO", "1:8: |not printable"},
		{"reg_mr 3: ENOMEM\xc3\xa4", "1:11: |not printable"},
		{"aaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaa: EIO",
			"1:1: |63 characters"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		char why[RPWI_WHY_LEN] = "";
		struct rpwi_script *s;
		const char *says = strchr(rows[i].why, '|');
		assert_int_equal(rpwi_script_parse(rows[i].text, strlen(rows[i].text), &me, &s, why,
					 sizeof(why)),
			-EINVAL);
		assert_null(s);
		if (strncmp(why, rows[i].why, (size_t)(says - rows[i].why)) != 0 ||
			!strstr(why, says + 1)) {
			print_error("%s\n  says: %s\n  not:  %s\n", rows[i].text, why, rows[i].why);
			fail();
		}
	}
}

static void it_is_bounded(void **state)
{
	static char text[RPWI_SCRIPT_BYTES_MAX + 2];
	char why[RPWI_WHY_LEN];
	struct rpwi_script *s;
	memset(text, '\n', sizeof(text));
	assert_int_equal(
		rpwi_script_parse(text, RPWI_SCRIPT_BYTES_MAX, &me, &s, why, sizeof(why)), 0);
	free(s);
	assert_int_equal(
		rpwi_script_parse(text, RPWI_SCRIPT_BYTES_MAX + 1, &me, &s, why, sizeof(why)),
		-EINVAL);
	size_t n = 0;
	for (int i = 0; i <= RPWI_SCRIPT_RULES_MAX; i++)
		n += (size_t)sprintf(text + n, "send: qp error\n");
	assert_int_equal(rpwi_script_parse(text, n, &me, &s, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "513:15: more than 512 faults"));
	assert_int_equal(rpwi_script_load("/no/such", &me, &s, why, sizeof(why)), -ENOENT);
	assert_non_null(strstr(why, "/no/such: No such file"));
}

static void files_are_told_apart(void **state)
{
	assert_false(rpwi_script_is_file("drop=0.01,seed=7"));
	assert_false(rpwi_script_is_file(""));
	assert_false(rpwi_script_is_file("lose=1"));
	assert_true(rpwi_script_is_file("faults.txt"));
	assert_true(rpwi_script_is_file("./a=b"));
	assert_true(rpwi_script_is_file("/etc/drop=1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_read),
		cmocka_unit_test(seeds_and_processes),
		cmocka_unit_test(mistakes_have_a_place),
		cmocka_unit_test(it_is_bounded),
		cmocka_unit_test(files_are_told_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
