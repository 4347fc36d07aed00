/* SPDX-License-Identifier: BSD-3-Clause */
/* parse_fuzz.c - the small parsers: what the first byte of the input chooses reads the rest.
 * Checked: nothing is read beside it (ASan: it is copied to its exact size), what was accepted is
 * within its bounds and reads the same when it is written again, and what was refused has a reason.
 * Handles are also given to endpoints; no connection leaves this process.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "boot/addr.h"
#include "boot/tls.h"
#include "msg/choice.h"
#include "msg/objects.h"
#include "ropeway.h"
#include "tran/tcp/tcp_priv.h"
#include "tran/verbs/verbs_path.h"

static uint8_t outcome; /* of connect() */

/* In the place of libc's. */
int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	if (to->sa_family == AF_UNIX)
		return (int)syscall(SYS_connect, fd, to, len);
	if (outcome & 1)
		return 0;
	errno = outcome & 2 ? EINPROGRESS : ENETUNREACH;
	return -1;
}

static void reason(void)
{
	if (!strcmp(rpwi_last_error()->text, "nothing yet"))
		fuzz_broken("refused without a reason");
}

static void address(const char *text)
{
	char host[BOOT_HOST_MAX], where[128], plain[128];
	uint16_t port;
	struct boot_addrs found;
	if (boot_addr_split(text, host, &port)) {
		reason();
		return;
	}
	if (strlen(host) >= BOOT_HOST_MAX)
		fuzz_broken("a host beyond its limit");
	boot_addr_numeric(host, port, true, &found);
	for (unsigned i = 0; i < found.n; i++) {
		if (boot_addr_port(&found.at[i]) != port)
			fuzz_broken("another port");
		boot_addr_text(&found.at[i], plain, sizeof(plain), where, sizeof(where));
		boot_addr_set_port(&found.at[i], 1);
	}
}

static void key_file(const uint8_t *p, size_t len)
{
	static int fd = -1;
	char path[64];
	struct boot_key *k = NULL;
	if (fd < 0)
		fd = memfd_create("key", MFD_CLOEXEC);
	if (ftruncate(fd, 0) || pwrite(fd, p, len, 0) != (ssize_t)len ||
		fchmod(fd, len % 16 == 5 ? 0604 : 0600))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (boot_key_load(path, &k))
		reason();
	else if (!k || strcmp(k->file, path))
		fuzz_broken("a key of another file");
	boot_key_free(k);
}

static void transports(const char *text)
{
	int order[TRANSPORTS_MAX];
	char why[64] = "";
	int n = choice_parse(text, order, why, sizeof(why));
	if (n > TRANSPORTS_MAX || (n <= 0 && !why[0]))
		fuzz_broken("a list of transports without an end, or a reason");
}

static void tcp_handle(const uint8_t *p, size_t len)
{
	struct tcp_handle h;
	uint8_t again[TRAN_HANDLE_MAX];
	char why[160] = "";
	if (tcp_get_handle(p, len, &h, why, sizeof(why))) {
		if (!why[0])
			fuzz_broken("refused without a reason");
		return;
	}
	memcpy(again, p, len); /* two bytes that are not used */
	if (tcp_put_handle(again, &h) != len || memcmp(again + 8, p + 8, len - 8))
		fuzz_broken("a tcp handle that is written otherwise than it was read");
}

static void nothing_ready(void *user, const struct rpwi_error *e) { *(int *)user += !e; }
static bool nothing_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	fuzz_broken("a frame from nobody");
	return true;
}
static void nothing_room(void *user) {}
static void nothing_done(void *user, void *cookie, const struct rpwi_error *e)
{
	fuzz_broken("done, but nothing was asked");
}
static void nothing_failed(void *user, const struct rpwi_error *e)
{
	fuzz_broken("failed, but it was not up");
}
static const struct tran_up up = {
	nothing_ready, nothing_frame, NULL, nothing_room, nothing_done, nothing_failed, NULL};

/* To endpoints of tcp and shm, on either side. */
static void start(const struct tran_ops *ops, bool active, const uint8_t *p, size_t len)
{
	struct tran_facts facts = {.transports = "tcp", .address = "192.0.2.1"};
	struct tran *t;
	struct tran_ep *ep;
	uint8_t own[TRAN_HANDLE_MAX];
	size_t own_len;
	int ready = 0;
	if (ops->open(&up, &facts, &t) ||
		ops->ep_make(t, &(struct tran_control){.peer = &facts, .active = active}, &ready,
			&ep, own, &own_len))
		abort();
	if (!ops->ep_start(ep, p, len, 1000)) {
		for (int i = 0; i < 4; i++)
			ops->progress(t);
		if (!ops->ep_start(ep, p, len, 1000))
			fuzz_broken("started twice");
	}
	if (ready)
		fuzz_broken("ready with nobody");
	ops->ep_close(ep);
	ops->progress(t);
	ops->close(t);
}

static void verbs_handle(const uint8_t *p, size_t len)
{
	struct verbs_offer a, b;
	uint8_t again[TRAN_HANDLE_MAX];
	if (rpwi_verbs_offer_read(&a, p, len)) {
		reason();
		return;
	}
	size_t n = rpwi_verbs_offer_write(&a, again, sizeof(again));
	if (n != len || rpwi_verbs_offer_read(&b, again, n))
		fuzz_broken("a verbs handle that is not read as it was written");
}

static uint32_t u32(struct fuzz_input *in)
{
	uint32_t hi = fuzz_u16(in);
	return hi << 16 | fuzz_u16(in);
}

static void offer_make(struct fuzz_input *in, struct verbs_offer *o)
{
	memset(o, 0, sizeof(*o));
	o->window = 16;
	o->ports = 1 + fuzz_u8(in) % VERBS_PORTS_MAX;
	for (unsigned i = 0; i < o->ports; i++) {
		struct verbs_port *t = &o->port[i];
		uint8_t b = fuzz_u8(in);
		*t = (struct verbs_port){.dev = (uint8_t)(i % VERBS_PLANES_MAX),
			.mtu = (uint8_t)(1 + b % 5),
			.gids = (uint8_t)(b >> 3 & 3),
			.ethernet = b & 0x20,
			.mbps = u32(in) >> (b >> 6) * 8,
			.name = "d"};
		for (unsigned g = 0; g < t->gids; g++) {
			uint8_t c = fuzz_u8(in);
			t->gid[g] = (struct verbs_gid){.type = (uint8_t)(c % VERBS_GID_TYPES),
				.index = (uint8_t)g,
				.prefix = c & 0x40 ? 24 : 0};
			if (c & 4)
				t->gid[g].raw[10] = t->gid[g].raw[11] = 0xff;
			else
				t->gid[g].raw[0] = c & 8 ? 0xfe : 0x20;
			t->gid[g].raw[1] = c & 8 ? 0x80 : 1;
			t->gid[g].raw[12] = c & 16 ? 127 : 10;
			t->gid[g].raw[15] = c & 32 ? 1 : 2;
			if (c & 4)
				t->gid[g].raw[1] = 0;
		}
		if (b & 0x40 && t->gids)
			memcpy(o->sees, t->gid[0].raw, 16);
	}
}

/* Both sides choose the same pair, whatever was offered. */
static void verbs_choice(struct fuzz_input *in)
{
	static struct verbs_offer a, b;
	struct verbs_choice x, y;
	bool same_host = fuzz_u8(in) & 1;
	offer_make(in, &a);
	offer_make(in, &b);
	bool one = rpwi_verbs_choose(&a, &b, true, same_host, &x),
	     two = rpwi_verbs_choose(&b, &a, false, same_host, &y);
	if (one != two || (one && (x.own_port != y.peer_port || x.own_gid != y.peer_gid ||
					  x.peer_port != y.own_port || x.peer_gid != y.own_gid)))
		fuzz_broken("the two sides choose different paths");
	if (one && (x.own_port >= a.ports || x.own_gid >= a.port[x.own_port].gids ||
			   x.peer_port >= b.ports || x.peer_gid >= b.port[x.peer_port].gids))
		fuzz_broken("a choice that was not offered");
}

static void fix_check(uint8_t *p, size_t len)
{
	if (len < 32)
		return;
	memset(p + 28, 0, 4);
	rpwi_put_le32(p + 28, rpwi_verbs_check(p, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = {data, len};
	uint8_t what = fuzz_u8(&in);
	outcome = what >> 6;
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	rpwi_fail(RPW_ERR_SYSTEM, "nothing yet");
	uint8_t *exact = malloc(in.left ? in.left : 1);
	char *text = strndup((const char *)in.p, in.left);
	memcpy(exact, in.p, in.left);
	switch (what % 10) {
	case 0:
		address(text);
		break;
	case 1:
		key_file(exact, in.left);
		break;
	case 2:
		transports(text);
		break;
	case 3:
		tcp_handle(exact, in.left);
		break;
	case 4:
		verbs_handle(exact, in.left);
		break;
	case 5:
		fix_check(exact, in.left);
		verbs_handle(exact, in.left);
		break;
	case 6:
		verbs_choice(&in);
		break;
	case 7:
		start(&tran_tcp, true, exact, in.left);
		break;
	case 8:
		start(&tran_tcp, false, exact, in.left);
		break;
	default:
		start(&tran_shm, true, exact, in.left);
	}
	free(exact);
	free(text);
	return 0;
}
