/* SPDX-License-Identifier: BSD-3-Clause */
/* ask_test.c - questions about processes, and answers (wire/ask.h). */
#include <errno.h>

#include "lib/test.h"
#include "wire/ask.h"

static struct rpwi_ask question(void)
{
	struct rpwi_ask a = {.tid = 0x1122334455667788, .from_slot = 77, .n = RPWI_ASK_SLOTS};
	for (unsigned i = 0; i < a.n; i++)
		a.slot[i] = (uint16_t)(1 + i * 41);
	return a;
}

static void there_and_back(void **state)
{
	struct rpwi_ask a = question(), got;
	uint8_t mad[RPWI_MAD_LEN];
	rpwi_ask_encode(&a, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), 0);
	assert_memory_equal(&got, &a, sizeof(a));
	a.answer = a.by_helper = true;
	a.helper_slot = 4094;
	for (unsigned i = 0; i < sizeof(a.there); i++)
		a.there[i] = (uint8_t)(0xa5 + i);
	rpwi_ask_encode(&a, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), 0);
	assert_memory_equal(&got, &a, sizeof(a));
}

/* Linux's ib_mad returns what no agent takes, as an answer with a status. */
static void a_returned_question_is_no_answer(void **state)
{
	enum { METHOD_AT = 3, STATUS_AT = 4, GET_RESP = 0x81, UNSUPPORTED = 0x0c };
	struct rpwi_ask a = question(), got;
	uint8_t mad[RPWI_MAD_LEN];
	rpwi_ask_encode(&a, mad);
	mad[METHOD_AT] = GET_RESP;
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), -EBADMSG);
	rpwi_put_be16(mad + STATUS_AT, UNSUPPORTED);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), -EBADMSG);
}

static void what_is_out_of_range(void **state)
{
	struct rpwi_ask a = question(), got;
	uint8_t mad[RPWI_MAD_LEN];
	rpwi_ask_encode(&a, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad) - 1, &got), -EPROTONOSUPPORT);
	a.from_slot = 4095;
	rpwi_ask_encode(&a, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), -EBADMSG);
	a = question();
	a.from_slot = 0; /* nowhere to answer to */
	rpwi_ask_encode(&a, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), -EBADMSG);
	a = question();
	a.slot[5] = 4095;
	rpwi_ask_encode(&a, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), -EBADMSG);
	/* another class: a CM message */
	rpwi_cm_encode(&(struct rpwi_cm_msg){.attr = RPWI_CM_DREQ}, mad);
	assert_int_equal(rpwi_ask_decode(mad, sizeof(mad), &got), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(a_returned_question_is_no_answer),
		cmocka_unit_test(what_is_out_of_range),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
