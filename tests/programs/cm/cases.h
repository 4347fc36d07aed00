/* SPDX-License-Identifier: BSD-3-Clause */
/* cases.h - the two sides of every case; what each shows is told in main.c's table (cases.c). */
#ifndef TESTS_PROGRAMS_CM_CASES_H
#define TESTS_PROGRAMS_CM_CASES_H

#include "side.h"

/* life.c: connections that come about, and end. */
void client_closes_server(struct side *s), client_closes_client(struct side *s);
void server_closes_server(struct side *s), server_closes_client(struct side *s);
void both_close_server(struct side *s), both_close_client(struct side *s);
void migrate_server(struct side *s), migrate_client(struct side *s);
void wildcard_server(struct side *s), wildcard_client(struct side *s);
void epoll_server(struct side *s), epoll_client(struct side *s);
void fork_server(struct side *s), fork_client(struct side *s);
void within_server(struct side *s), within_client(struct side *s);
void timewait_server(struct side *s), timewait_client(struct side *s);

/* parameters.c: what each side gives and learns. */
void parameters_server(struct side *s), parameters_client(struct side *s);
void no_parameters_server(struct side *s), no_parameters_client(struct side *s);
void request_data_server(struct side *s), request_data_client(struct side *s);
void reply_data_server(struct side *s), reply_data_client(struct side *s);

/* own_qp.c: queue pairs made outside. */
void own_qp_server(struct side *s), own_qp_client(struct side *s);
void early_data_server(struct side *s), early_data_client(struct side *s);

/* many.c: many connections. */
void cycles_server(struct side *s), cycles_client(struct side *s);
void at_once_server(struct side *s), at_once_client(struct side *s);

/* synchronous.c: the synchronous calls. */
void endpoints_server(struct side *s), endpoints_client(struct side *s);

/* refuse.c: connections that do not, and calls that fail. */
void no_listener_server(struct side *s), no_listener_client(struct side *s);
void no_route_server(struct side *s), no_route_client(struct side *s);
void port_taken_server(struct side *s), port_taken_client(struct side *s);
void port_any_server(struct side *s), port_any_client(struct side *s);
void port_range_server(struct side *s), port_range_client(struct side *s);
void reuse_server(struct side *s), reuse_client(struct side *s);
void never_accepts_server(struct side *s), never_accepts_client(struct side *s);
void reject_data_server(struct side *s), reject_data_client(struct side *s);
void reject_reply_server(struct side *s), reject_reply_client(struct side *s);
void reject_ece_server(struct side *s), reject_ece_client(struct side *s);
void backlog_server(struct side *s), backlog_client(struct side *s);
void listener_goes_server(struct side *s), listener_goes_client(struct side *s);
void client_goes_server(struct side *s), client_goes_client(struct side *s);
void wrong_state_server(struct side *s), wrong_state_client(struct side *s);
void options_server(struct side *s), options_client(struct side *s);
void multicast_server(struct side *s), multicast_client(struct side *s);
void multicast_traffic_server(struct side *s), multicast_traffic_client(struct side *s);

/* datagram.c: the UDP port space. */
void ud_server(struct side *s), ud_client(struct side *s);
void ud_reject_server(struct side *s), ud_reject_client(struct side *s);
void ud_no_listener_server(struct side *s), ud_no_listener_client(struct side *s);

/* death.c: one side is killed, or exits, at a step. */
void server_dies_listening_server(struct side *s), server_dies_listening_client(struct side *s);
void server_dies_asked_server(struct side *s), server_dies_asked_client(struct side *s);
void server_dies_unseen_server(struct side *s), server_dies_unseen_client(struct side *s);
void server_dies_accepted_server(struct side *s), server_dies_accepted_client(struct side *s);
void server_dies_connected_server(struct side *s), server_dies_connected_client(struct side *s);
void client_dies_asking_server(struct side *s), client_dies_asking_client(struct side *s);
void client_dies_answered_server(struct side *s), client_dies_answered_client(struct side *s);
void client_dies_connected_server(struct side *s), client_dies_connected_client(struct side *s);
void client_dies_closing_server(struct side *s), client_dies_closing_client(struct side *s);
void server_exits_server(struct side *s), server_exits_client(struct side *s);
void client_exits_server(struct side *s), client_exits_client(struct side *s);

#endif
