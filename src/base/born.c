/* SPDX-License-Identifier: BSD-3-Clause */
/* born.c - which process this is, for the price of a load: a number in a page that the kernel wipes
 * in a forked child (also in one that pthread_atfork does not hear of), and gives anew to the first
 * who asks there. So numbers grow from parent to child, and an object made before a fork is known
 * to be the parent's. Where the kernel does not wipe (before 4.14), pthread_atfork does. */
#include "base/born.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t nowhere;
uint64_t *rpwi_born_at = &nowhere;
static uint64_t count; /* not wiped: a child goes on counting */
static pthread_once_t page_once = PTHREAD_ONCE_INIT;

static void wipe(void) { __atomic_store_n(rpwi_born_at, 0, __ATOMIC_RELAXED); }

static void page_make(void)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED && !madvise(page, len, MADV_WIPEONFORK)) {
		rpwi_born_at = page;
		return;
	}
	if (page != MAP_FAILED)
		munmap(page, len);
	pthread_atfork(NULL, NULL, wipe);
}

uint64_t rpwi_born(void)
{
	pthread_once(&page_once, page_make);
	uint64_t now = __atomic_load_n(rpwi_born_at, __ATOMIC_RELAXED);
	if (now)
		return now;
	uint64_t next = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
	return __atomic_compare_exchange_n(
		       rpwi_born_at, &now, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
		       ? next
		       : now;
}
