/* SPDX-License-Identifier: BSD-3-Clause */
/* base.h - what every layer may use: bounds, time, byte order, the log. Never a protocol, never a
 * socket. */
#ifndef ROPEWAY_BASE_H
#define ROPEWAY_BASE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RPWI_EXPORT __attribute__((visibility("default")))
#define RPWI_LIKELY(x) __builtin_expect(!!(x), 1)
#define RPWI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RPWI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RPWI_MAX(a, b) ((a) > (b) ? (a) : (b))
#define RPWI_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define RPWI_CONTAINER_OF(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

/* As calls of libibverbs and of the C library fail: those that give a number, and an object. */
static inline int rpwi_minus(int error)
{
	errno = error;
	return -1;
}
static inline void *rpwi_none(int error)
{
	errno = error;
	return NULL;
}

/* calloc, of whole lines of a core's cache. */
static inline void *rpwi_alloc_lines(size_t size)
{
	enum { LINE = 64 };
	size_t whole = (size + LINE - 1) & ~(size_t)(LINE - 1);
	void *p = aligned_alloc(LINE, whole);
	return p ? memset(p, 0, whole) : NULL;
}

static inline const char *rpwi_plural(uint64_t n) { return n == 1 ? "" : "s"; }

enum { RPWI_WHY_LEN = 512 }; /* room for a sentence on what failed, why, and what to do */

#define RPWI_NEVER UINT64_MAX /* a deadline that never comes */
#define RPWI_NS_PER_MS 1000000ull
#define RPWI_NS_PER_S 1000000000ull

/* CLOCK_MONOTONIC in ns. Only io, device and programs read the clock; wire and rc take time as an
 * argument. */
static inline uint64_t rpwi_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RPWI_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* For numbers that no other process should draw, too, or that should not come again soon. No
 * secret: it never waits for the kernel to have collected chance (getrandom(2)). */
uint64_t rpwi_random64(void);

/* Big-endian loads and stores at any alignment. */
static inline uint16_t rpwi_get_be16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, 2);
	return __builtin_bswap16(v);
}
static inline uint32_t rpwi_get_be32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return __builtin_bswap32(v);
}
static inline uint64_t rpwi_get_be64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return __builtin_bswap64(v);
}
static inline uint32_t rpwi_get_le32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return v;
}
static inline void rpwi_put_be16(void *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, 2);
}
static inline void rpwi_put_be32(void *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, 4);
}
static inline void rpwi_put_be64(void *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, 8);
}
static inline void rpwi_put_le32(void *p, uint32_t v) { memcpy(p, &v, 4); }
static inline uint32_t rpwi_get_be24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}
static inline void rpwi_put_be24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	"the loads above are written for little-endian machines");

/* An address for people, "0x7f0c4f1fd000" or "NULL", where printf's p has a "(nil)" that says
 * nothing. Valid to the end of the block. */
enum { RPWI_AT_LEN = 2 + 2 * sizeof(void *) + 1 };
const char *rpwi_at(const volatile void *p, char out[RPWI_AT_LEN]);
#define RPWI_AT(p) rpwi_at(p, (char[RPWI_AT_LEN]){""})

/* Log. Level from ROPEWAY_LOG=error|warn|info|debug|trace (default warn), to stderr, one line each:
 * "ropeway: <level>: <text>". printf-style; any thread; async-signal-unsafe. */
enum rpwi_log_level {
	RPWI_LOG_ERROR,
	RPWI_LOG_WARN,
	RPWI_LOG_INFO,
	RPWI_LOG_DEBUG,
	RPWI_LOG_TRACE
};
extern int rpwi_log_level_cached; /* -1 until first asked */
int rpwi_log_level_load(void);
void rpwi_log_write(enum rpwi_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static inline bool rpwi_log_on(enum rpwi_log_level level)
{
	int have = rpwi_log_level_cached;
	return (have < 0 ? rpwi_log_level_load() : have) >= (int)level;
}
#define rpwi_log(level, ...) \
	do { \
		if (RPWI_UNLIKELY(rpwi_log_on(level))) \
			rpwi_log_write(level, __VA_ARGS__); \
	} while (0)
#define rpwi_error(...) rpwi_log(RPWI_LOG_ERROR, __VA_ARGS__)
#define rpwi_warn(...) rpwi_log(RPWI_LOG_WARN, __VA_ARGS__)
#define rpwi_info(...) rpwi_log(RPWI_LOG_INFO, __VA_ARGS__)
#define rpwi_debug(...) rpwi_log(RPWI_LOG_DEBUG, __VA_ARGS__)
#define rpwi_trace(...) rpwi_log(RPWI_LOG_TRACE, __VA_ARGS__)

/* A small intrusive doubly linked list; an unlinked node points to itself. */
struct rpwi_list {
	struct rpwi_list *next, *prev;
};
static inline void rpwi_list_init(struct rpwi_list *l) { l->next = l->prev = l; }
static inline bool rpwi_list_empty(const struct rpwi_list *l) { return l->next == l; }
static inline void rpwi_list_add_tail(struct rpwi_list *l, struct rpwi_list *n)
{
	n->prev = l->prev;
	n->next = l;
	/* A list is initialized before it is used.
	 * NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	l->prev->next = n;
	l->prev = n;
}
static inline void rpwi_list_del(struct rpwi_list *n)
{
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a node is freed after it was taken out */
	n->prev->next = n->next;
	n->next->prev = n->prev;
	rpwi_list_init(n);
}
/* The first of a list that has one, taken out. */
static inline struct rpwi_list *rpwi_list_pop(struct rpwi_list *l)
{
	struct rpwi_list *n = l->next;
	l->next = n->next;
	n->next->prev = l;
	rpwi_list_init(n);
	return n;
}

/* The object around `at`; NULL: it is the head of the list, around which there is none. */
static inline void *rpwi_list_object(
	const struct rpwi_list *at, const struct rpwi_list *list, size_t offset)
{
	return at == list ? NULL : (uint8_t *)(uintptr_t)at - offset;
}

/* Each element in turn; with _SAFE it may leave the list, or be freed, in the body. */
#define RPWI_LIST_EACH(type, it, list, member) \
	for (type *it = rpwi_list_object((list)->next, (list), offsetof(type, member)); it; \
		it = rpwi_list_object(it->member.next, (list), offsetof(type, member)))
#define RPWI_LIST_EACH_SAFE(type, it, after, list, member) \
	for (type *it = rpwi_list_object((list)->next, (list), offsetof(type, member)), *after; \
		it && \
		(after = rpwi_list_object(it->member.next, (list), offsetof(type, member)), true); \
		it = after)

#endif
