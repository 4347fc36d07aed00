/* SPDX-License-Identifier: BSD-3-Clause */
/* pages.h - whether memory may be registered: a table of counters by a hash of the page. It is read
 * in hooks of free, in any thread and without a lock; it says yes now and then where it is not so.
 */
#ifndef ROPEWAY_CHECK_PAGES_H
#define ROPEWAY_CHECK_PAGES_H

#include "base/base.h"

/* A region begins (n 1) or ends (n -1). The lock is held. */
void check_pages_region(uint64_t addr, uint64_t len, int n);
bool check_pages_hold(uint64_t addr, uint64_t len);

#endif
