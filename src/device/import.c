/* SPDX-License-Identifier: BSD-3-Clause */
/* import.c - contexts, PDs and MRs that are shared by command descriptor (ibv_import_device(3),
 * ibv_import_pd(3), ibv_import_mr(3)).
 *
 * The command descriptor of a context is a sealed memfd that says which process made it and to
 * which group its context belongs. Contexts of one group see each other's PDs and MRs, as all that
 * use one uverbs file do. It works in the process that opened the device, however the descriptor
 * came back to it. To another process this process's keys mean nothing: its memory is not mapped
 * there, and only its own engine answers for it. So there it is refused, with EOPNOTSUPP.
 *
 * As with the kernel, a PD may be deallocated while an import of it exists: then nothing can be
 * made in it any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/hca.h"

/* What the memfd holds. */
struct command_file {
	char magic[16];
	uint64_t process; /* of chance, the same in a forked child, whose memory is a copy */
	uint32_t group;
	char device[64];
};
static const char magic[16] = "ropeway-command";

static uint64_t process_nonce(void)
{
	static uint64_t nonce; /* under the lock */
	while (!nonce)
		nonce = rpwi_random64();
	return nonce;
}

static int command_fd(const struct command_file *f)
{
	int fd = memfd_create("ropeway-uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (write(fd, f, sizeof(*f)) == (ssize_t)sizeof(*f) &&
		!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return fd;
	close(fd);
	return -1;
}

void import_context_init(struct dctx *c)
{
	static uint32_t groups;
	struct command_file f = {0};
	memcpy(f.magic, magic, sizeof(magic));
	hca_lock();
	f.process = process_nonce();
	f.group = c->group = ++groups;
	hca_unlock();
	snprintf(f.device, sizeof(f.device), "%s", c->dev->net.name);
	c->v.context.cmd_fd = command_fd(&f);
}

/* A command descriptor of ours? Anybody's file is read here: nothing of it is believed but the
 * nonce. */
static bool read_command_fd(int fd, struct command_file *f)
{
	struct stat st;
	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(*f) &&
	       pread(fd, f, sizeof(*f), 0) == (ssize_t)sizeof(*f) &&
	       !memcmp(f->magic, magic, sizeof(magic));
}

bool rpwi_dev_owns_cmd_fd(int fd)
{
	struct command_file f;
	return read_command_fd(fd, &f);
}

static struct dev *dev_named(const char *name, size_t room)
{
	for (struct dev *d = dev_first(); d; d = d->next)
		if (!strncmp(d->net.name, name, room))
			return d;
	return NULL;
}

struct ibv_context *rpwi_dev_import_device(int fd)
{
	struct command_file f;
	if (!read_command_fd(fd, &f)) {
		errno = EBADF;
		return NULL;
	}
	hca_lock();
	bool own = f.process == process_nonce();
	struct dev *d = own ? dev_named(f.device, sizeof(f.device)) : NULL;
	hca_unlock();
	if (!d) {
		rpwi_warn("ibv_import_device: expected a command descriptor of this process, got "
			  "another process's: a software device's memory regions are reached in "
			  "their own process alone; let each process register its own");
		errno = EOPNOTSUPP;
		return NULL;
	}
	struct ibv_context *c = rpwi_dev_open_device(&d->ibv);
	if (!c)
		return NULL;
	/* the descriptor is the context's now, and closed with it */
	if (c->cmd_fd >= 0)
		close(c->cmd_fd);
	c->cmd_fd = fd;
	to_dctx(c)->group = f.group;
	return c;
}

/* ---- PDs ---- */

static struct rpwi_list pds = {&pds, &pds};

void import_pd_listed(struct dpd *pd) { rpwi_list_add_tail(&pds, &pd->link); }

bool import_pd_free(struct dpd *pd)
{
	if (pd->parent)
		return true;
	rpwi_list_del(&pd->link);
	pd->dead = pd->imports;
	return !pd->dead;
}

struct ibv_pd *rpwi_dev_import_pd(struct ibv_context *c, uint32_t handle)
{
	struct dpd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->imported = true;
	pd->ibv = (struct ibv_pd){.context = c, .handle = handle};
	hca_lock();
	for (struct rpwi_list *at = pds.next; at != &pds; at = at->next) {
		struct dpd *p = RPWI_CONTAINER_OF(at, struct dpd, link);
		if (p->id == handle && p->group == to_dctx(c)->group)
			pd->parent = p;
	}
	if (pd->parent)
		pd->parent->imports++;
	hca_unlock();
	if (pd->parent)
		return &pd->ibv;
	free(pd);
	errno = ENOENT;
	return NULL;
}

void rpwi_dev_unimport_pd(struct ibv_pd *ibv)
{
	struct dpd *pd = RPWI_CONTAINER_OF(ibv, struct dpd, ibv);
	if (!pd->imported)
		return;
	hca_lock();
	struct dpd *of = pd->parent;
	bool last = !--of->imports && of->dead;
	hca_unlock();
	if (last)
		free(of);
	free(pd);
}

/* ---- MRs ---- */

struct ibv_mr *rpwi_dev_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct dmr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->imported = true;
	hca_lock();
	const struct dkey *k = handle >> 24 ? NULL : mr_place(handle << 8);
	bool found = k && !k->is_mw && k->key >> 8 == handle &&
		     k->pd->group == to_dctx(pd->context)->group;
	if (found) {
		const struct ibv_mr *of = &RPWI_CONTAINER_OF(k, struct dmr, k)->ibv;
		/* the address is not told (ibv_import_mr(3)) */
		mr->ibv = (struct ibv_mr){.context = pd->context,
			.pd = pd,
			.length = of->length,
			.handle = handle,
			.lkey = of->lkey,
			.rkey = of->rkey};
	}
	hca_unlock();
	if (found)
		return &mr->ibv;
	free(mr);
	errno = ENOENT;
	return NULL;
}

void rpwi_dev_unimport_mr(struct ibv_mr *ibv)
{
	struct dmr *mr = RPWI_CONTAINER_OF(ibv, struct dmr, ibv);
	if (mr->imported)
		free(mr);
}
