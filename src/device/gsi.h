/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi.h - QP 1 of the software HCA: the general services interface, over which the communication
 * manager speaks; and what rdma_cm has to know of devices.
 *
 * There is one CM engine for each process. Everything here, and every rpwi_cm_* call on that
 * engine, happens under the HCA's lock: rpwi_gsi_lock. The ops callbacks that rpwi_gsi_attach
 * registers are called with that lock held, by whatever thread makes progress; they must not
 * block.
 */
#ifndef ROPEWAY_DEVICE_GSI_H
#define ROPEWAY_DEVICE_GSI_H

#include "cm/cm.h"
#include "device/device.h"

void rpwi_gsi_lock(void);
void rpwi_gsi_unlock(void);
uint64_t rpwi_gsi_now(void); /* ns, the clock of all deadlines */

/* The parts of cm_ops that are not the network's; `send` and `random` are done here. Called with
 * `user` NULL. Once for each process, before anything else. */
struct rpwi_gsi_user {
	struct rpwi_cm_conn *(*request)(void *user, const struct rpwi_cm_path *path,
		const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason);
	void (*incoming)(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_msg *m);
	void (*event)(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_event *ev);
	/* Addresses or links changed (dev_refresh): a wildcard listener may have to open a port
	 * more. The lock is held. May be NULL. */
	void (*addresses_changed)(void *user);
	/* When it wants to be called (RPWI_NEVER: not), and that this time has come. The lock is
	 * held. */
	uint64_t (*deadline)(void *user);
	void (*timer)(void *user, uint64_t now_ns);
};
void rpwi_gsi_attach(const struct rpwi_gsi_user *u);

/* The lock is held for all that follow. */

/* The engine, with the service thread running and a reference on the HCA; the first call makes it.
 * 0 or -errno. Balanced by rpwi_gsi_put. The engine and its ports stay as long as a device is
 * open. */
int rpwi_gsi_get(struct rpwi_cm **out);
void rpwi_gsi_put(void);

/* The device that has `local` among its usable addresses, its GID index and GID, the path MTU
 * towards `remote` (enum ibv_mtu); 0 or -EADDRNOTAVAIL. For an address of a loopback interface
 * whose device programs do not see it is another device, by an address of its own: the data of both
 * ends go by that. */
struct rpwi_gsi_local {
	struct ibv_device *device;
	bool stands_in;
	uint64_t guid; /* network order */
	int index;     /* as rpwi_dev_get_index */
	unsigned gid_index;
	uint8_t gid[16];
	uint8_t mtu;
	int ifindex;
};
int rpwi_gsi_local(const struct rpwi_addr *local, struct rpwi_gsi_local *out);
/* The GID by which `remote` is known (IPv4-mapped, or itself). */
void rpwi_gsi_gid(const struct rpwi_addr *a, uint8_t gid[16]);
/* The address of a GID, without a scope. */
struct rpwi_addr rpwi_gsi_addr(const uint8_t gid[16]);
/* All usable local addresses, at most max. */
unsigned rpwi_gsi_addresses(struct rpwi_addr *out, unsigned max);

/* UDP port 4791 of a local address, so that MADs can be sent from it and arrive: reference and
 * release. `why` (RPWI_WHY_LEN bytes) as rpwi_port_open. 0 or -errno. */
int rpwi_gsi_port_get(const struct rpwi_addr *local, char *why, size_t why_len);
void rpwi_gsi_port_put(const struct rpwi_addr *local);

/* Claim a service ID for this network namespace, on one local address or (family 0) on all:
 * requests that land at another process of this host are handed over to the claimant. 0;
 * -EADDRINUSE when another process, or another claim of this one, has it; -EADDRNOTAVAIL when it is
 * claimed on all addresses and asked for on one, or the other way round. The claim is released by
 * unclaim, or by the kernel when the process ends. */
int rpwi_gsi_claim(uint64_t service_id, const struct rpwi_addr *addr);
void rpwi_gsi_unclaim(uint64_t service_id, const struct rpwi_addr *addr);

/* mcast.c: be a member of a multicast group on an interface until leave is called as often. 0 or
 * -errno, with the reason in the log. */
int rpwi_gsi_mcast_join(const struct rpwi_addr *group, int ifindex);
void rpwi_gsi_mcast_leave(const struct rpwi_addr *group, int ifindex);

/* Wake whoever sleeps on deadlines: after rpwi_cm_* calls of the program that may have set an
 * earlier one. */
void rpwi_gsi_kick(void);

#endif
