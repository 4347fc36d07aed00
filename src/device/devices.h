/* SPDX-License-Identifier: BSD-3-Clause */
/* devices.h - the list of devices, what they say of themselves, and their async events.
 * Private to device/. */
#ifndef ROPEWAY_DEVICE_DEVICES_H
#define ROPEWAY_DEVICE_DEVICES_H

#include "device/hca.h"

/* events.c */
void dev_event(struct dctx *c, const struct ibv_async_event *ev);
/* an object goes away: its events that nobody took go too */
void dev_events_forget(struct dctx *c, const void *object);

/* devices.c */
/* Reads the list of devices anew: how many programs see, or -errno. *out, if asked for, is those.
 * RPWI_LOCK_DEVICES is held, and the HCA's, under which devices' addresses are read. */
int dev_list_read(struct ibv_device ***out);
void dev_list_renew(void);   /* the same. No lock is held */
struct dev *dev_first(void); /* all that were ever seen, in that order. The lock is held */

/* refresh.c */
void dev_refresh(void); /* addresses changed: read the list anew, raise events. No lock is held */

/* query.c */
int dev_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *a, size_t size);
int dev_query_port_ops(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len);
int dev_query_rt_values(struct ibv_context *c, struct ibv_values_ex *v);
enum ibv_mtu dev_mtu(const struct dev *d);
enum ibv_mtu dev_mtu_most(void); /* of any interface */

#endif
