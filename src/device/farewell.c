/* SPDX-License-Identifier: BSD-3-Clause */
/* farewell.c - see farewell.h. */
#include "device/farewell.h"

#include <stdio.h>
#include <unistd.h>

enum {
	TRY_FIRST_NS = 2000000, /* a helper that has just been started needs some ms */
	TRY_MAX_NS = 100000000,
	TRIES_MAX = 24, /* 2 s */
	STARTS_MAX = 8, /* in the life of a process */
};
static const uint64_t LOOK_NS = RPWI_NS_PER_S;

/* Who touches it: `slot` and `off` anybody, the rest the service thread, or nobody else. */
static struct {
	_Atomic bool off;
	_Atomic uint16_t slot;
	int fd;
	unsigned tries, starts;
	uint32_t locals; /* that was reported to it */
	uint64_t due_ns;
	bool inherited;
	bool said; /* that there is none */
} self = {.fd = -1, .due_ns = RPWI_NEVER};

bool farewell_is_helper;

uint16_t farewell_helper_slot(void) { return atomic_load(&self.slot); }

uint64_t farewell_deadline(void)
{
	if (atomic_load_explicit(&self.off, memory_order_relaxed))
		return RPWI_NEVER;
	return ledger_has_news() ? 0 : self.due_ns;
}

void farewell_close(void)
{
	if (self.fd >= 0)
		close(self.fd);
	self.fd = -1;
	self.due_ns = RPWI_NEVER;
	self.tries = self.starts = 0;
	self.locals = 0;
	self.inherited = false;
	self.slot = 0;
	self.off = false;
	ledger_close();
}

void farewell_is_forked(void)
{
	if (self.fd < 0)
		return;
	self.inherited = true;
	self.due_ns = 0;
}

static void give_up(int rc)
{
	atomic_store(&self.off, true);
	if (!self.said)
		rpwi_info("no helper (%s): if this process is killed, peers on other hosts learn "
			  "of it only by asking",
			strerror(-rc));
	self.said = true;
}

static void look_again(uint64_t now_ns)
{
	uint64_t wait =
		RPWI_MIN((uint64_t)TRY_FIRST_NS << RPWI_MIN(self.tries, 6u), (uint64_t)TRY_MAX_NS);
	self.tries++;
	self.due_ns = now_ns + wait;
}

static void find_one(uint64_t now_ns)
{
	int fd = rpwi_helper_connect(), rc;
	if (fd >= 0) {
		rc = rpwi_helper_hello(fd, ledger_fd());
		if (!rc) {
			self.fd = fd;
			self.tries = 0;
			self.locals = ledger_locals();
			self.due_ns = now_ns + LOOK_NS / 20; /* for its slot */
			return;
		}
		close(fd);
		fd = rc;
	}
	if (fd == -EPERM || self.tries > TRIES_MAX) {
		give_up(fd);
		return;
	}
	if (fd == -ECONNREFUSED && self.tries % 8 == 0) {
		rc = self.starts++ < STARTS_MAX ? rpwi_helper_start() : -EAGAIN;
		if (rc) {
			give_up(rc);
			return;
		}
	}
	look_again(now_ns);
}

static void hear_it(uint64_t now_ns)
{
	uint16_t slot = self.slot;
	int rc;
	while ((rc = rpwi_helper_hear(self.fd, &slot)) > 0)
		atomic_store(&self.slot, slot);
	self.due_ns = now_ns + LOOK_NS;
	if (!rc)
		return;
	rpwi_debug("the helper has ended: starting another");
	close(self.fd);
	self.fd = -1;
	self.slot = 0;
	self.due_ns = now_ns;
}

void farewell_tend(uint64_t now_ns)
{
	bool news = ledger_take_news();
	if (ledger_fd() < 0 || atomic_load(&self.off))
		return;
	if (self.fd >= 0) {
		hear_it(now_ns);
		if (self.fd >= 0 && self.inherited) {
			rpwi_helper_hello(self.fd, ledger_fd());
			self.inherited = false;
		} else if (self.fd >= 0 && news && self.locals != ledger_locals()) {
			if (!rpwi_helper_nudge(self.fd))
				self.locals = ledger_locals();
		}
	}
	if (self.fd < 0)
		find_one(now_ns);
}
