/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - registered memory, and remote keys. A region is registered with each transport of the
 * context when it is packed; the packed key has the description for each, so that it is good for
 * every path that an endpoint may have or get.
 *
 * What guards memory is not the key but the transport (what is registered is what it reaches) and,
 * for atomics as frames, the table of regions. The key's checks are there to refuse by name what is
 * garbled, of another version, or of somebody else. */
#include "msg/choice.h"
#include "msg/ids.h"
#include "msg/objects.h"
#include "msg/pipeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

static int memory_new(rpw_context *c, size_t len, unsigned access, bool has_out, rpw_memory **out)
{
	if (!c)
		return msg_wrong("registering memory", "the context is NULL");
	if (!has_out)
		return msg_wrong("registering memory", "out is NULL");
	if (!len)
		return msg_wrong("registering memory", "the length is 0");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	if (access & ~(unsigned)(RPW_REMOTE_WRITE | RPW_REMOTE_READ | RPW_REMOTE_ATOMIC))
		return rpwi_fail(RPW_ERR_INVALID,
			"registering memory: access 0x%x has other bits than those of RPW_REMOTE_*",
			access);
	rpw_memory *m = calloc(1, sizeof(*m));
	if (!m || !(m->number = ids_add(&c->regions, m))) {
		free(m);
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory to register memory");
	}
	m->c = c;
	m->len = len;
	m->access = access;
	m->secret = msg_random();
	m->owner = m->dmabuf = -1;
	rpwi_list_add_tail(&c->memories, &m->all);
	*out = m;
	return 0;
}

static int memory_of_program(rpw_context *c, void *addr, size_t len, enum rpw_memory_kind kind,
	unsigned access, bool has_out, rpw_memory **out)
{
	if (!addr)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_memory_register: the address is NULL");
	if (kind != RPW_MEMORY_HOST && kind != RPW_MEMORY_CUDA)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_memory_register: %d is no kind of memory: RPW_MEMORY_HOST or "
			"RPW_MEMORY_CUDA",
			(int)kind);
	if (len > UINTPTR_MAX - (uintptr_t)addr)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_memory_register: %zu bytes from %s on reach beyond the address space",
			len, RPWI_AT(addr));
	rpw_memory *m = NULL;
	int rc = memory_new(c, len, access, has_out, &m);
	if (rc)
		return rc;
	m->addr = addr;
	rc = kind == RPW_MEMORY_CUDA ? gpu_of(&c->gpus, addr, len, &m->gpu) : 0;
	if (rc) {
		rpw_memory_destroy(m);
		return rc;
	}
	*out = m;
	return RPW_OK;
}

/* From now on each buffer is looked at. Transports that are in use register it now: the program may
 * have chosen this thread because the CUDA driver can be called in it. */
static void gpu_memory_is_there(rpw_memory *m)
{
	rpw_context *c = m->c;
	RPWI_LIST_EACH (rpw_endpoint, ep, &c->endpoints, all)
		ep->link.fast = false;
	for (int i = 0; i < c->tn; i++)
		if (c->t[i].endpoints)
			direct_memory(m, i);
}

int rpw_memory_register(rpw_context *c, void *addr, size_t len, enum rpw_memory_kind kind,
	unsigned access, rpw_memory **out)
{
	int rc = memory_of_program(c, addr, len, kind, access, out != NULL, out);
	if (!rc && (*out)->gpu)
		gpu_memory_is_there(*out);
	return rc;
}

int rpw_memory_register_dmabuf(rpw_context *c, void *addr, size_t len, int fd, uint64_t offset,
	unsigned access, rpw_memory **out)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_memory_register_dmabuf: descriptor %d cannot be kept: %s", fd,
			strerror(errno));
	int rc = offset > UINT64_MAX - len
			 ? rpwi_fail(RPW_ERR_INVALID,
				   "rpw_memory_register_dmabuf: %zu bytes from offset %llu on", len,
				   (unsigned long long)offset)
			 : memory_of_program(
				   c, addr, len, RPW_MEMORY_CUDA, access, out != NULL, out);
	if (rc) {
		close(own);
		return rc;
	}
	(*out)->dmabuf = own;
	(*out)->dmabuf_offset = offset;
	gpu_memory_is_there(*out);
	return RPW_OK;
}

int rpw_memory_allocate(rpw_context *c, size_t len, unsigned access, rpw_memory **out)
{
	rpw_memory *m = NULL;
	char why[256];
	int rc = memory_new(c, len, access, out != NULL, &m);
	if (rc)
		return rc;
	for (int i = 0; i < c->tn && !m->addr; i++) {
		struct tran *t = (c->t[i].ops->caps & TRAN_MAPS) && choice_wanted(c, i)
					 ? msg_tran(c, i, why, sizeof(why))
					 : NULL;
		if (!t || c->t[i].ops->mem->alloc(t, len, memory_tran_access(access), &m->mem[i])) {
			m->mem[i] = NULL;
			continue;
		}
		m->mem[i]->kept = true;
		m->addr = m->mem[i]->addr;
		m->owner = i;
	}
	if (!m->addr) {
		void *p =
			mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		m->addr = p == MAP_FAILED ? NULL : p;
		m->allocated = m->addr != NULL;
	}
	if (!m->addr) {
		rpw_memory_destroy(m);
		return rpwi_fail(RPW_ERR_NO_MEMORY, "%zu bytes could not be allocated: %s", len,
			strerror(errno));
	}
	*out = m;
	return RPW_OK;
}

void *rpw_memory_address(const rpw_memory *m) { return m ? m->addr : NULL; }
size_t rpw_memory_length(const rpw_memory *m) { return m ? m->len : 0; }

void rpw_memory_destroy(rpw_memory *m)
{
	if (!m || !msg_is_ours(m->c))
		return; /* in a forked child it goes with its context */
	rpw_context *c = m->c;
	if (m->gpu)
		pipeline_memory_gone(m);
	for (int i = 0; i < c->tn; i++)
		if (m->mem[i] && i != m->owner)
			c->t[i].ops->mem->del(c->t[i].tran, m->mem[i]);
	if (m->owner >= 0)
		c->t[m->owner].ops->mem->del(c->t[m->owner].tran, m->mem[m->owner]);
	if (m->allocated)
		munmap(m->addr, m->len);
	if (m->dmabuf >= 0)
		close(m->dmabuf);
	ids_del(&c->regions, m->number);
	rpwi_list_del(&m->all);
	free(m);
}

/* With each transport that an endpoint of this context may use. Those that cannot are left out of
 * the key. */
static int register_all(rpw_memory *m)
{
	rpw_context *c = m->c;
	char why[256] = "";
	int have = 0;
	for (int i = 0; i < c->tn; i++) {
		if (!m->mem[i] && choice_wanted(c, i)) {
			struct tran *t = msg_tran(c, i, why, sizeof(why));
			int rc = t ? c->t[i].ops->mem->add(t, m->addr, m->len,
					     memory_tran_access(m->access), &m->mem[i])
				   : RPW_ERR_NOT_SUPPORTED;
			if (rc) {
				m->mem[i] = NULL;
				rpwi_debug("%zu bytes at %s are not reachable by %s: %s", m->len,
					RPWI_AT(m->addr), c->t[i].ops->name,
					t ? rpwi_last_error()->text : why);
			} else {
				m->mem[i]->kept = true;
			}
		}
		have += m->mem[i] != NULL;
	}
	return have;
}

int rpw_rkey_pack(const rpw_memory *given, void *out, size_t room)
{
	rpw_memory *m = (rpw_memory *)given;
	if (!m || !out)
		return msg_wrong("rpw_rkey_pack", m ? "out is NULL" : "the memory is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(m->c)))
		return msg_inherited(m->c);
	uint8_t key[RPW_RKEY_BYTES_MAX], *p = key + sizeof(struct rkey_head);
	struct rkey_head h = {.magic = RKEY_MAGIC,
		.version = RKEY_VERSION,
		.access = (uint8_t)m->access,
		.domain = m->c->domain,
		.region = m->number,
		.secret = m->secret,
		.len = m->len};
	if (m->gpu) {
		h.access |= RKEY_DEVICE;
		for (int i = 0; i < m->c->tn; i++)
			m->gpu->exposed |= choice_wanted(m->c, i) && direct_memory(m, i);
	} else if (!register_all(m))
		return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
			"no transport of this context can give peers access to %zu bytes at %s",
			m->len, RPWI_AT(m->addr));
	for (int i = 0; i < m->c->tn; i++) {
		if (!m->mem[i])
			continue;
		const struct tran_desc *d = &m->mem[i]->desc;
		memset(p, 0, 8);
		memcpy(p, m->c->t[i].ops->name, RPWI_MIN(strlen(m->c->t[i].ops->name), (size_t)8));
		p[8] = d->len;
		memcpy(p + 9, d->bytes, d->len);
		p += 9 + d->len;
		h.descs++;
	}
	memcpy(key, &h, sizeof(h));
	uint32_t crc = (uint32_t)crc32(0, key, (uInt)(p - key));
	memcpy(p, &crc, 4);
	size_t n = (size_t)(p - key) + 4;
	if (n > room)
		return rpwi_fail(RPW_ERR_LIMIT,
			"a packed key of %zu bytes does not fit into %zu: give it "
			"RPW_RKEY_BYTES_MAX",
			n, room);
	memcpy(out, key, n);
	return (int)n;
}

static int key_parse(rpw_rkey *k, const uint8_t *packed, size_t len, const struct rkey_head *h)
{
	const uint8_t *p = packed + sizeof(*h), *end = packed + len - 4;
	for (unsigned i = 0; i < h->descs; i++) {
		if (end - p < 9 || p[8] >= TRAN_DESC_MAX || end - p < 9 + p[8])
			return rpwi_fail(RPW_ERR_PROTOCOL,
				"a remote key whose description %u of %u does not fit into its %zu "
				"bytes",
				i + 1, h->descs, len);
		for (int t = 0; t < k->ep->c->tn; t++)
			if (!strncmp(k->ep->c->t[t].ops->name, (const char *)p, 8)) {
				k->has[t] = true;
				k->desc[t] = (struct tran_desc){.len = p[8]};
				memcpy(k->desc[t].bytes, p + 9, p[8]);
			}
		p += 9 + p[8];
	}
	return p == end ? 0
			: rpwi_fail(RPW_ERR_PROTOCOL, "a remote key with %zu bytes too many",
				  (size_t)(end - p));
}

int rpw_rkey_unpack(rpw_endpoint *ep, const void *packed, size_t len, rpw_rkey **out)
{
	if (!ep)
		return msg_wrong("rpw_rkey_unpack", "the endpoint is NULL");
	if (!packed)
		return msg_wrong("rpw_rkey_unpack", "the packed key is NULL");
	if (!out)
		return msg_wrong("rpw_rkey_unpack", "out is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	struct rkey_head h;
	if (len < sizeof(h) + 4 || len > RPW_RKEY_BYTES_MAX)
		return rpwi_fail(RPW_ERR_PROTOCOL, "a remote key of %zu bytes: they have %zu to %d",
			len, sizeof(h) + 4, RPW_RKEY_BYTES_MAX);
	memcpy(&h, packed, sizeof(h));
	if (h.magic != RKEY_MAGIC)
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"these %zu bytes are no remote key: they begin with 0x%08x", len, h.magic);
	if (h.version != RKEY_VERSION)
		return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
			"a remote key of version %u; this side reads version %d: use the same "
			"ropeway on both",
			h.version, RKEY_VERSION);
	uint32_t crc;
	memcpy(&crc, (const uint8_t *)packed + len - 4, 4);
	if (crc != (uint32_t)crc32(0, packed, (uInt)(len - 4)))
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"the remote key for %s is garbled: its checksum is 0x%08x, its %zu bytes "
			"have 0x%08x; let the peer pack it anew",
			ep->peer, crc, len, (uint32_t)crc32(0, packed, (uInt)(len - 4)));
	if (!ep->was_up)
		return rpwi_fail(RPW_ERR_INVALID, "the endpoint is not connected yet: wait for its "
						  "connect request, then unpack");
	if (h.domain != ep->peer_domain)
		return rpwi_fail(RPW_ERR_ACCESS,
			"the remote key is not of memory that %s has: it was packed by another "
			"context; use what this peer packed",
			ep->peer);
	rpw_rkey *k = calloc(1, sizeof(*k));
	if (!k)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a remote key");
	k->ep = ep;
	k->region = h.region;
	k->secret = h.secret;
	k->len = h.len;
	k->access = h.access & ~(unsigned)RKEY_DEVICE;
	k->device = h.access & RKEY_DEVICE;
	int rc = key_parse(k, packed, len, &h);
	if (rc) {
		free(k);
		return rc;
	}
	*out = k;
	return RPW_OK;
}

void rpw_rkey_destroy(rpw_rkey *k) { free(k); }
