/* SPDX-License-Identifier: BSD-3-Clause */
/* pcapng.c - the packet tap: writes what is sent and received to a pcapng file that Wireshark
 * opens, without any privilege.
 *
 * The headers below the BTH are written anew here from the flow, as the kernel has them on the
 * wire: the IP ID, DF, a right IPv4 header checksum, a right UDP checksum (a peer that sends
 * checksum 0, as kernel rxe does, cannot be told from one that does not).
 *
 * ROPEWAY_PCAP=file: %p in it is the process ID. A file that another process is writing is left
 * alone: the ID is put into this one's name. ROPEWAY_PCAP_LIMIT=n: the first n packets go to the
 * file as they come, the last n are kept in memory and written behind them by rpwi_tap_flush, which
 * may be called many times: each rewrites the tail.
 *
 * Threads: any; one lock. After fork a child writes to a file of its own if the name has %p, else
 * nothing. Format: the IETF's draft-ietf-opsawg-pcapng (blocks in 3 and 4), link type 101
 * (LINKTYPE_RAW).
 */
#include "io/io.h"

#include "base/file.h"
#include "base/guard.h"
#include "base/lock.h"
#include "explain/packet.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool rpwi_tap_enabled;

enum {
	BLOCK_SHB = 0x0a0d0d0a,
	BLOCK_IDB = 1,
	BLOCK_EPB = 6,
	BYTE_ORDER_MAGIC = 0x1a2b3c4d,
	LINKTYPE_RAW = 101,
	OPT_END = 0,
	OPT_COMMENT = 1,
	SHB_USERAPPL = 4,
	IF_NAME = 2,
	IF_TSRESOL = 9,
	EPB_FLAGS = 2,
	FLAG_INBOUND = 1,
	FLAG_OUTBOUND = 2, /* epb_flags, bits 0 and 1 */
	BUFFER_LEN = 1 << 18,
	BLOCK_MAX = 1 << 17, /* a block is at most a datagram of 64 KiB, its headers and options */
	WHOLE_MAX = UINT16_MAX,
	LIMIT_MAX = 1000000,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	IP_PROTO_UDP = 17,
	IP_DF = 0x4000,
};
/* so that a killed process leaves all but its last moments */
static const uint64_t FLUSH_AFTER_NS = 50 * RPWI_NS_PER_MS;

struct kept {
	uint64_t time_ns;
	uint32_t flags;
	uint32_t len, cap;
	uint8_t *bytes;
};

static struct tap {
	/* reopen: we are a forked child that has to open its own file first */
	bool initialized, reopen;
	int rc; /* of the initialization */
	int fd;
	char name[4096]; /* as given, %p not replaced */
	uint8_t *buf;    /* BUFFER_LEN for the file, WHOLE_MAX for one packet */
	size_t used;
	uint64_t written_at_ns;
	uint64_t limit, seen; /* limit 0: none */
	struct kept *ring;    /* limit entries, filled from `limit` packets on */
	off_t tail_at;        /* where the tail begins in the file; -1 when there is none yet */
} tap = {.fd = -1, .tail_at = -1}; /* under RPWI_LOCK_TAP */

/* ---- Blocks ---- */

static uint8_t *put32(uint8_t *b, uint32_t v)
{
	rpwi_put_le32(b, v);
	return b + 4;
}

static uint8_t *put_padded(uint8_t *b, const void *data, size_t n)
{
	static const uint8_t zero[4];
	memcpy(b, data, n);
	memcpy(b + n, zero, -n & 3);
	return b + n + (-n & 3);
}

static uint8_t *put_option(uint8_t *b, uint16_t code, const void *data, size_t n)
{
	b = put32(b, code | (uint32_t)n << 16);
	return put_padded(b, data, n);
}

/* Close a block that begins at `start`: end of options, and the length at both ends. */
static uint8_t *end_block(uint8_t *start, uint8_t *b)
{
	b = put32(b, OPT_END);
	uint32_t len = (uint32_t)(b + 4 - start);
	rpwi_put_le32(start + 4, len);
	return put32(b, len);
}

static size_t put_file_header(uint8_t *start)
{
	static const char app[] = "ropeway " ROPEWAY_VERSION, ifname[] = "ropeway";
	static const uint8_t ns = 9; /* 10^-9 s */
	uint8_t *b = put32(start, BLOCK_SHB) + 4;
	b = put32(b, BYTE_ORDER_MAGIC);
	b = put32(b, 1);          /* version 1.0 */
	b = put32(b, UINT32_MAX); /* section length unknown */
	b = put32(b, UINT32_MAX);
	b = put_option(b, SHB_USERAPPL, app, sizeof(app) - 1);
	b = end_block(start, b);
	uint8_t *idb = b;
	b = put32(b, BLOCK_IDB) + 4;
	b = put32(b, LINKTYPE_RAW);
	b = put32(b, 0); /* no snap length */
	b = put_option(b, IF_NAME, ifname, sizeof(ifname) - 1);
	b = put_option(b, IF_TSRESOL, &ns, 1);
	return (size_t)(end_block(idb, b) - start);
}

static size_t put_packet(uint8_t *start, uint64_t time_ns, uint32_t flags, const uint8_t *bytes,
	uint32_t len, const char *comment)
{
	uint8_t *b = put32(start, BLOCK_EPB) + 4;
	b = put32(b, 0); /* the interface */
	b = put32(b, (uint32_t)(time_ns >> 32));
	b = put32(b, (uint32_t)time_ns);
	b = put32(b, len);
	b = put32(b, len);
	b = put_padded(b, bytes, len);
	b = put_option(b, EPB_FLAGS, &flags, 4);
	if (comment)
		b = put_option(b, OPT_COMMENT, comment, strlen(comment));
	return (size_t)(end_block(start, b) - start);
}

/* ---- The file ---- */

static void give_up(const char *what)
{
	rpwi_warn("capture stopped: %s: %s", what, strerror(errno));
	if (tap.fd >= 0)
		close(tap.fd);
	tap.fd = -1;
	tap.used = 0;
	rpwi_tap_enabled = rpwi_explain_on;
}

static void write_buffer(void)
{
	size_t done = 0;
	while (done < tap.used) {
		ssize_t n = rpwi_file_write(tap.fd, tap.buf + done, tap.used - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			give_up("the file cannot be written");
			return;
		}
		done += (size_t)n;
	}
	tap.used = 0;
	tap.written_at_ns = rpwi_now_ns();
}

/* "x.pcapng" -> "x.1234.pcapng" */
static void name_with_pid(char *out, size_t len, const char *name)
{
	const char *slash = strrchr(name, '/'), *file = slash ? slash + 1 : name;
	const char *dot = strrchr(file, '.');
	int stem = dot && dot != file ? (int)(dot - name) : (int)strlen(name);
	snprintf(out, len, "%.*s.%d%s", stem, name, (int)getpid(), name + stem);
}

static void expand_name(char *out, size_t len, const char *name)
{
	size_t n = 0;
	for (; *name && n + 16 < len; name++) {
		if (name[0] == '%' && name[1] == 'p') {
			n += (size_t)snprintf(out + n, len - n, "%d", (int)getpid());
			name++;
		} else {
			out[n++] = *name;
		}
	}
	out[n] = 0;
}

/* Open and lock: two processes with one name must not write over each other. -EWOULDBLOCK when
 * another has it. */
static int open_locked(const char *name)
{
	struct stat st;
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	bool regular = !fstat(fd, &st) && S_ISREG(st.st_mode);
	if (regular && (flock(fd, LOCK_EX | LOCK_NB) || ftruncate(fd, 0))) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static int open_file(void)
{
	char name[sizeof(tap.name) + 16], other[sizeof(name) + 16];
	const char *opened = name;
	expand_name(name, sizeof(name), tap.name);
	int fd = open_locked(name);
	if (fd == -EWOULDBLOCK) {
		name_with_pid(other, sizeof(other), name);
		fd = open_locked(other);
		opened = other;
	}
	if (fd < 0) {
		rpwi_error("ROPEWAY_PCAP: cannot write %s: %s", opened, strerror(-fd));
		return fd;
	}
	if (opened == other)
		rpwi_warn(
			"capture: another process is writing %s, this one writes %s", name, other);
	rpwi_info("capture: writing %s", opened);
	tap.fd = fd;
	tap.seen = 0;
	tap.tail_at = -1;
	tap.used = put_file_header(tap.buf);
	write_buffer();
	return tap.fd < 0 ? -EIO : 0;
}

static void append_packet(
	uint64_t time_ns, uint32_t flags, const uint8_t *bytes, uint32_t len, const char *comment)
{
	if (tap.used + BLOCK_MAX > BUFFER_LEN)
		write_buffer();
	if (tap.fd >= 0)
		tap.used += put_packet(tap.buf + tap.used, time_ns, flags, bytes, len, comment);
}

static void keep(uint64_t time_ns, uint32_t flags, const uint8_t *bytes, uint32_t len)
{
	struct kept *k = &tap.ring[tap.seen % tap.limit];
	if (k->cap < len) {
		uint8_t *more = realloc(k->bytes, len);
		if (!more) {
			k->len = 0;
			return;
		}
		k->bytes = more;
		k->cap = len;
	}
	memcpy(k->bytes, bytes, len);
	k->len = len;
	k->time_ns = time_ns;
	k->flags = flags;
}

/* The last packets behind the first ones, over an older tail if there is one. */
static void write_tail(void)
{
	uint64_t after_first = tap.seen - tap.limit, kept = RPWI_MIN(after_first, tap.limit),
		 left_out = after_first - kept;
	char comment[96];
	if (tap.tail_at < 0)
		tap.tail_at = lseek(tap.fd, 0, SEEK_CUR);
	else if (lseek(tap.fd, tap.tail_at, SEEK_SET) < 0 || ftruncate(tap.fd, tap.tail_at))
		return give_up("the last packets cannot be written again");
	snprintf(comment, sizeof(comment),
		"%llu packets before this one were left out (ROPEWAY_PCAP_LIMIT)",
		(unsigned long long)left_out);
	for (uint64_t n = tap.seen - kept; n < tap.seen && tap.fd >= 0; n++) {
		const struct kept *k = &tap.ring[n % tap.limit];
		if (k->len)
			append_packet(k->time_ns, k->flags, k->bytes, k->len,
				left_out && n == tap.seen - kept ? comment : NULL);
	}
	if (tap.fd >= 0)
		write_buffer();
}

static void flush_locked(void)
{
	if (tap.fd < 0)
		return;
	write_buffer();
	if (tap.fd >= 0 && tap.limit && tap.seen > tap.limit)
		write_tail();
}

void rpwi_tap_flush(void)
{
	if (rpwi_fork_broken)
		return;
	rpwi_lock(RPWI_LOCK_TAP);
	flush_locked();
	rpwi_unlock(RPWI_LOCK_TAP);
}

/* ---- Packets ---- */

/* Ones' complement sum of big-endian words (RFC 1071), added up as little-endian ones, which only
 * swaps the result's bytes. */
static uint64_t sum_words(uint64_t sum, const uint8_t *b, size_t n)
{
	for (; n >= 4; b += 4, n -= 4)
		sum += rpwi_get_le32(b);
	uint8_t rest[4] = {0};
	memcpy(rest, b, n);
	return sum + rpwi_get_le32(rest);
}

static uint16_t fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static size_t put_ip(uint8_t *b, const struct rpwi_flow *f, uint16_t ip_id, uint8_t ttl,
	uint8_t tos, size_t udp_len)
{
	if (f->src.family == 6) {
		rpwi_put_be32(b, 6u << 28 | (uint32_t)tos << 20);
		rpwi_put_be16(b + 4, (uint16_t)udp_len);
		b[6] = IP_PROTO_UDP;
		b[7] = ttl;
		memcpy(b + 8, f->src.bytes, 16);
		memcpy(b + 24, f->dst.bytes, 16);
		return IPV6_LEN;
	}
	b[0] = 0x45;
	b[1] = tos;
	rpwi_put_be16(b + 2, (uint16_t)(IPV4_LEN + udp_len));
	rpwi_put_be16(b + 4, ip_id);
	rpwi_put_be16(b + 6, IP_DF);
	b[8] = ttl;
	b[9] = IP_PROTO_UDP;
	memset(b + 10, 0, 2);
	memcpy(b + 12, f->src.bytes, 4);
	memcpy(b + 16, f->dst.bytes, 4);
	uint16_t sum = fold(sum_words(0, b, IPV4_LEN));
	memcpy(b + 10, &sum, 2);
	return IPV4_LEN;
}

/* RFC 768, RFC 8200 section 8.1. */
static void put_udp_checksum(uint8_t *udp, size_t udp_len, const struct rpwi_flow *f)
{
	size_t addr_len = f->src.family == 6 ? 16 : 4;
	uint8_t tail[4] = {0, IP_PROTO_UDP, (uint8_t)(udp_len >> 8), (uint8_t)udp_len};
	memset(udp + 6, 0, 2);
	uint64_t sum = sum_words(0, f->src.bytes, addr_len);
	sum = sum_words(sum, f->dst.bytes, addr_len);
	sum = sum_words(sum, tail, 4);
	uint16_t folded = fold(sum_words(sum, udp, udp_len));
	if (!folded)
		folded = 0xffff;
	memcpy(udp + 6, &folded, 2);
}

/* The whole packet from its parts into b; 0 when a part is not mapped (then it was not sent
 * either). */
static size_t put_whole(uint8_t *b, size_t room, const struct rpwi_flow *f, uint16_t ip_id,
	uint8_t ttl, uint8_t tos, const struct rpwi_iov *parts, unsigned nparts)
{
	size_t at = (f->src.family == 6 ? IPV6_LEN : IPV4_LEN) + UDP_LEN;
	uint8_t *udp = b + at - UDP_LEN;
	for (unsigned i = 0; i < nparts; i++) {
		if (parts[i].len > room - at ||
			rpwi_guard_copy(b + at, parts[i].base, parts[i].len))
			return 0;
		at += parts[i].len;
	}
	size_t udp_len = (size_t)(b + at - udp);
	put_ip(b, f, ip_id, ttl, tos, udp_len);
	rpwi_put_be16(udp, f->sport);
	rpwi_put_be16(udp + 2, f->dport);
	rpwi_put_be16(udp + 4, (uint16_t)udp_len);
	put_udp_checksum(udp, udp_len, f);
	return at;
}

uint64_t rpwi_tap_clock_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * RPWI_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void record(uint64_t time_ns, uint32_t flags, const uint8_t *bytes, uint32_t len)
{
	if (tap.reopen) {
		tap.reopen = false;
		if (open_file())
			rpwi_tap_enabled = rpwi_explain_on;
	}
	if (tap.fd < 0)
		return;
	uint64_t now_ns = rpwi_now_ns();
	if (!tap.limit || tap.seen < tap.limit)
		append_packet(time_ns, flags, bytes, len, NULL);
	else
		keep(time_ns, flags, bytes, len);
	tap.seen++;
	if (tap.used && now_ns - tap.written_at_ns >= FLUSH_AFTER_NS)
		write_buffer();
}

void rpwi_tap(const struct rpwi_flow *flow, uint16_t ip_id, uint8_t ttl, uint8_t tos,
	uint64_t sent_ns, const struct rpwi_iov *parts, unsigned nparts)
{
	bool outbound = sent_ns;
	if (!rpwi_tap_enabled)
		return;
	if (rpwi_explain_on && nparts == 1)
		rpwi_explain_packet(flow, outbound ? RPWI_EXPLAIN_TX : RPWI_EXPLAIN_RX,
			parts[0].base, parts[0].len);
	if (!tap.buf) /* nothing but the account wanted it */
		return;
	uint8_t *whole = tap.buf + BUFFER_LEN;
	rpwi_lock(RPWI_LOCK_TAP);
	size_t n = put_whole(whole, WHOLE_MAX, flow, ip_id, ttl, tos, parts, nparts);
	if (n && outbound)
		record(sent_ns, FLAG_OUTBOUND, whole, (uint32_t)n);
	else if (n)
		record(rpwi_tap_clock_ns(), FLAG_INBOUND, whole, (uint32_t)n);
	rpwi_unlock(RPWI_LOCK_TAP);
}

/* ---- Set-up, fork, exit ---- */

static void after_fork_child(void)
{
	if (rpwi_fork_broken) {
		rpwi_tap_enabled = false;
		rpwi_fork_mute(tap.fd);
		return;
	}
	/* What is buffered is the parent's to write. The descriptor shares the parent's lock and
	 * offset: only close it. */
	if (tap.fd >= 0)
		close(tap.fd);
	tap.fd = -1;
	tap.used = 0;
	tap.seen = 0;
	tap.reopen = rpwi_tap_enabled && strstr(tap.name, "%p");
	rpwi_tap_enabled = tap.reopen || rpwi_explain_on;
}

static int parse_limit(const char *text)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (end == text || *end || errno || strchr(text, '-') || !n || n > LIMIT_MAX) {
		rpwi_error("ROPEWAY_PCAP_LIMIT: \"%s\" is not a number of packets from 1 to %d",
			text, LIMIT_MAX);
		return -EINVAL;
	}
	tap.limit = n;
	tap.ring = calloc(n, sizeof(*tap.ring));
	return tap.ring ? 0 : -ENOMEM;
}

static int init_locked(void)
{
	const char *name = secure_getenv("ROPEWAY_PCAP"),
		   *limit = secure_getenv("ROPEWAY_PCAP_LIMIT");
	rpwi_tap_enabled = rpwi_explain_on;
	if (!name || !*name)
		return 0;
	if (strlen(name) >= sizeof(tap.name))
		return -ENAMETOOLONG;
	strcpy(tap.name, name);
	int rc = limit && *limit ? parse_limit(limit) : 0;
	if (rc)
		return rc;
	tap.buf = malloc(BUFFER_LEN + WHOLE_MAX);
	if (!tap.buf)
		return -ENOMEM;
	rc = open_file();
	if (rc)
		return rc;
	rc = rpwi_fork_watch(after_fork_child);
	if (!rc && atexit(rpwi_tap_flush))
		rc = -ENOMEM;
	rpwi_tap_enabled = !rc || rpwi_explain_on;
	return rc;
}

int rpwi_tap_init(void)
{
	rpwi_lock(RPWI_LOCK_TAP);
	if (!tap.initialized) {
		tap.initialized = true;
		tap.rc = init_locked();
	}
	int rc = tap.rc;
	rpwi_unlock(RPWI_LOCK_TAP);
	return rc;
}
