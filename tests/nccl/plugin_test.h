/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin_test.h - the tests of our own plugin, by the file that they are in. */
#ifndef ROPEWAY_TESTS_NCCL_PLUGIN_TEST_H
#define ROPEWAY_TESTS_NCCL_PLUGIN_TEST_H

#include "nccl_pair.h"

#include "nccl/plugin.h" /* the handle's layout, for forging; the bounds */

static const int some_versions[] = {5, 9, 12};

/* a forged handle, so that nothing is wrong with it but what was forged */
void seal(struct plugin_handle *h);

/* comm_test.c */
void strangers_never_become_comms(void **unused);
void close_with_work_in_flight(void **unused);
void close_after_sending(void **unused);
void connect_and_accept_end(void **unused);
void end_before_accept(void **unused);
void several_of_one_listener(void **unused);
void many_comms_take_few_descriptors(void **unused);

/* data_test.c */
void truncation_is_an_error(void **unused);
void groups_in_any_order(void **unused);
void bound_of_requests(void **unused);
void sizes_of_all_kinds(void **unused);
void quiet_sender(void **unused);
void comms_and_threads_at_once(void **unused);

/* helpers_test.c */
void helpers_come_and_go(void **unused);
void who_posts_gets_in(void **unused);
void a_forked_child_ends(void **unused);

#endif
