/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_boot.c - the control path in memory: connections between two contexts of this process,
 * messages in order. */
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "boot/boot.h"
#include "ropeway.h"

struct message {
	struct rpwi_list link;
	unsigned type;
	size_t len;
	uint8_t data[];
};
struct boot_conn {
	struct rpwi_list all, in;
	struct boot *b;
	struct boot_listener *arrived_at;
	struct boot_conn *peer;
	void *user;
	struct tran_facts facts;
	bool told, gone, killed;
	int port;
};
struct boot_listener {
	struct rpwi_list all;
	struct boot *b;
	void *user;
	int port;
};
struct boot {
	struct rpwi_list conns;
	const struct boot_up *up;
	void *user;
	struct tran_facts own;
	int fd;
};
static struct rpwi_list listeners = {&listeners, &listeners};
static int ports = 1000;
static struct boot_conn *last_accepted;

void boot_own_facts(struct tran_facts *f)
{
	memset(f, 0, sizeof(*f));
	memset(f->host_id, 7, sizeof(f->host_id));
	f->pid = (uint32_t)getpid();
	strcpy(f->hostname, "fakehost");
}

int boot_new(const struct boot_up *up, void *user, const struct tran_facts *own,
	const char *key_file, struct boot **out)
{
	struct boot *b = calloc(1, sizeof(*b));
	*b = (struct boot){.up = up, .user = user, .own = *own, .fd = epoll_create1(EPOLL_CLOEXEC)};
	rpwi_list_init(&b->conns);
	*out = b;
	return 0;
}
void boot_free(struct boot *b)
{
	assert(rpwi_list_empty(&b->conns));
	close(b->fd);
	free(b);
}
int boot_fd(struct boot *b) { return b->fd; }
uint64_t boot_deadline(const struct boot *b) { return 0; }
uint64_t boot_strangers(const struct boot *b) { return 3; }
bool boot_has_key(const struct boot *b) { return false; }
int boot_export(const struct boot_conn *c, const char *label, const void *context,
	size_t context_len, uint8_t *out, size_t len)
{
	return rpwi_fail(RPW_ERR_INVALID, "no key");
}

int boot_listen(
	struct boot *b, const char *address, void *listener_user, struct boot_listener **out)
{
	struct boot_listener *l = calloc(1, sizeof(*l));
	*l = (struct boot_listener){.b = b, .user = listener_user, .port = ++ports};
	rpwi_list_add_tail(&listeners, &l->all);
	*out = l;
	return 0;
}
int boot_listener_port(const struct boot_listener *l) { return l->port; }
int boot_listener_contact(const struct boot_listener *l, char *out, size_t room)
{
	return snprintf(out, room, "127.0.0.1:%d", l->port);
}
void boot_listener_free(struct boot_listener *l)
{
	rpwi_list_del(&l->all);
	free(l);
}

static struct boot_conn *conn_new(struct boot *b)
{
	struct boot_conn *c = calloc(1, sizeof(*c));
	c->b = b;
	rpwi_list_init(&c->in);
	rpwi_list_add_tail(&b->conns, &c->all);
	return c;
}

int boot_connect(struct boot *b, const char *address, unsigned timeout_ms, void *conn_user,
	struct boot_conn **out)
{
	const char *colon = strrchr(address, ':');
	if (!colon)
		return rpwi_fail(RPW_ERR_INVALID, "no port in \"%s\"", address);
	struct boot_conn *c = conn_new(b);
	c->user = conn_user;
	c->port = atoi(colon + 1);
	*out = c;
	return 0;
}
void boot_set_user(struct boot_conn *c, void *conn_user) { c->user = conn_user; }
const struct tran_facts *boot_peer(const struct boot_conn *c) { return &c->facts; }
void boot_connect_once(struct boot_conn *c) {}
void boot_connect_refused(struct boot_conn *c, unsigned ms) {}
void boot_trouble(const struct boot_conn *c, char *out, size_t room) { *out = 0; }
const char *boot_local(const struct boot_conn *c) { return ""; }
const char *boot_peer_text(const struct boot_conn *c) { return "fakehost:1 memory"; }

int boot_send(struct boot_conn *c, unsigned type, const void *data, size_t len)
{
	if (!c->peer)
		return RPW_ERR_PEER_GONE;
	struct message *m = malloc(sizeof(*m) + len);
	*m = (struct message){.type = type, .len = len};
	memcpy(m->data, data, len);
	rpwi_list_add_tail(&c->peer->in, &m->link);
	return 0;
}

void fake_say(bool to_listener, unsigned type, const void *data, unsigned len)
{
	struct boot_conn *c = last_accepted ? last_accepted->peer : NULL;
	if (c)
		boot_send(to_listener ? c : last_accepted, type, data, len);
}

void boot_close(struct boot_conn *c)
{
	if (last_accepted == c)
		last_accepted = NULL;
	if (c->peer) {
		c->peer->gone = true;
		c->peer->peer = NULL;
	}
	while (!rpwi_list_empty(&c->in)) {
		struct rpwi_list *n = c->in.next;
		rpwi_list_del(n);
		free(RPWI_CONTAINER_OF(n, struct message, link));
	}
	rpwi_list_del(&c->all);
	free(c);
}

static void dial(struct boot_conn *c)
{
	for (struct rpwi_list *n = listeners.next; n != &listeners; n = n->next) {
		struct boot_listener *l = RPWI_CONTAINER_OF(n, struct boot_listener, all);
		if (l->port != c->port)
			continue;
		if (l->b->up->is_full && l->b->up->is_full(l->b->user, 0)) {
			c->told = false; /* it waits */
			return;
		}
		struct boot_conn *p = conn_new(l->b);
		p->told = true;
		p->peer = c;
		c->peer = p;
		c->facts = p->b->own;
		p->facts = c->b->own;
		last_accepted = p;
		l->b->up->accepted(l->b->user, l->user, p);
		c->b->up->connected(c->user, NULL);
		return;
	}
	c->gone = true;
	c->b->up->connected(
		c->user, &(struct rpwi_error){RPW_ERR_UNREACHABLE, 0, "nobody listens there"});
}

static unsigned conn_progress(struct boot_conn *c)
{
	unsigned n = 0;
	if (!c->told) {
		c->told = true;
		dial(c);
		return c->told;
	}
	while (!rpwi_list_empty(&c->in)) {
		struct message *m = RPWI_CONTAINER_OF(c->in.next, struct message, link);
		rpwi_list_del(&m->link);
		c->b->up->message(c->user, m->type, m->data, m->len);
		free(m);
		n++;
	}
	if (c->gone && !c->killed) {
		c->killed = true;
		c->b->up->gone(c->user, &(struct rpwi_error){RPW_ERR_PEER_GONE, 0, "closed"});
		n++;
	}
	return n;
}

unsigned boot_progress(struct boot *b)
{
	unsigned n = 0;
	for (struct rpwi_list *l = b->conns.next; l != &b->conns; l = l->next)
		n += conn_progress(RPWI_CONTAINER_OF(l, struct boot_conn, all));
	return n;
}
