/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.h - one engine of the communication manager, and a peer that is the test's own hand. Time is
 * a number. */
#ifndef TESTS_CM_PEER_H
#define TESTS_CM_PEER_H

#include "lib/test.h"

#include <errno.h>

#include "cm/cm.h"

enum { SENT_MAX = 64, EVENTS_MAX = 64, PREFIX = 0x0ab };
#define SECOND RPWI_NS_PER_S

extern struct rpwi_cm *cm;
extern uint64_t now;
extern unsigned pool_used;           /* connections that `request` gave out */
extern struct rpwi_cm_conn mine;     /* what the test connects with */
extern struct rpwi_cm_conn *passive; /* the last that came */
extern struct rpwi_cm_msg sent[SENT_MAX];
extern struct rpwi_cm_path sent_path[SENT_MAX];
extern unsigned nsent, sent_total;
struct told {
	struct rpwi_cm_conn *conn;
	struct rpwi_cm_event ev;
	uint8_t pdata[256];
	enum rpwi_cm_state state; /* of the connection, inside the callback */
};
extern struct told event[EVENTS_MAX];
extern unsigned nevent, nincoming, nmoved;
extern uint16_t refuse; /* what `request` says; 0: accept */
extern bool destroy_in_event, reply_in_incoming;
extern uint32_t random_next;
extern const uint64_t *due_first; /* when set: conn->user points to when its event is due */

extern const uint8_t our_guid[8], their_guid[8];
extern const struct rpwi_addr our_addr, their_addr;
extern const uint64_t service;
extern const struct rpwi_cm_param our_param;
extern const struct rpwi_cm_ops ops;

/* Before and after each test; `again` is both. */
int peer_begin(void **state);
int peer_end(void **state);
void again(void);
#define TEST(f) cmocka_unit_test_setup_teardown(f, peer_begin, peer_end)

uint32_t op_random(void *user);

/* ---- the peer ---- */

enum { THEIR_ID = 0x77000123, THEIR_QPN = 0x0d0e0f };
#define THEIR_TID 0xfeed0000beefull

void rx_from(const struct rpwi_addr *from, const struct rpwi_cm_msg *m);
void rx(const struct rpwi_cm_msg *m);
struct rpwi_cm_msg a_req(uint32_t id, uint32_t qpn);
/* a message of the peer within the connection c */
struct rpwi_cm_msg within(const struct rpwi_cm_conn *c, uint16_t attr);
void rx_attr(const struct rpwi_cm_conn *c, uint16_t attr);
void rx_sidr_req(uint32_t id);
int connect_with(struct rpwi_cm_conn *c, uint32_t qpn);
int sidr_ask(struct rpwi_cm_conn *c, unsigned timeout_ms, unsigned retries);

/* Bring a new connection into a state, on the side asked for; what led there is forgotten. */
struct rpwi_cm_conn *bring(enum rpwi_cm_state to, bool from_passive);
void run_until(uint64_t end_ns);

/* ---- everything that can happen to a connection ---- */

enum { ACTIVE, PASSIVE, SIDES };
enum input { /* above the attributes */
	IN_ACCEPT = 0x40,
	IN_ESTABLISH,
	IN_COMM_ESTABLISHED,
	IN_REJECT,
	IN_DISCONNECT,
	IN_SIDR_REPLY,
	IN_CONNECT,
	IN_SIDR_ASK,
	IN_GONE,
	IN_DESTROY,
	IN_REJ_STALE,
	INPUTS,
};

int feed(struct rpwi_cm_conn *c, int input); /* a call's result; 0 for what gives none */

#define S(x) RPWI_CM_##x
#define E(x) RPWI_CM_EV_##x

#endif
