/* SPDX-License-Identifier: BSD-3-Clause */
/* reach.c - the hooks of the versioned library, where it is not preloaded.
 *
 * Where the program itself is linked with libibverbs, this library comes before the C library and
 * every object's open, write and close are its hooks. Where a module brings it in (Python's
 * extensions, UCX's and libfabric's plugins) the C library came first, and librdmacm would open the
 * kernel's /dev/infiniband/rdma_cm. So in each object that needs libibverbs.so.1 the references to
 * hooked calls are set to the hooks.
 */
#include "preload/loaded.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* Behind this library, or where it came after the C library, in that. */
void *rpwi_next(const char *name)
{
	void *next = dlsym(RTLD_NEXT, name);
	if (!next) {
		void *c_library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
		next = c_library ? dlsym(c_library, name) : NULL;
		dlerror(); /* that it was not there is not the program's business */
	}
	return next;
}

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
static bool is_slot(unsigned long type)
{
	return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
}
#else
static bool is_slot(unsigned long type)
{
	return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
}
#endif

static pthread_mutex_t reach_lock = PTHREAD_MUTEX_INITIALIZER;
static struct link_map self_map;
static struct rpwi_loaded self;

/* A hook of this library: what it exports without a version. */
static void *hook_of(const char *name)
{
	enum { UNVERSIONED = 1 };
	unsigned version = 0;
	void *hook = rpwi_loaded_find(&self_map, &self, name, &version);
	return hook && version <= UNVERSIONED ? hook : NULL;
}

/* References of one table that are not yet the hooks; sets them if told to. */
static unsigned set_slots(const struct link_map *m, const struct rpwi_loaded *o, const void *table,
	size_t len, bool set)
{
	const ElfW(Rela) *r = table, *end = (const void *)((const char *)table + len);
	unsigned found = 0;
	for (; table && r < end; r++) {
		const rpwi_elf_symbol *s = &o->symbols[ELF64_R_SYM(r->r_info)];
		if (!is_slot(ELF64_R_TYPE(r->r_info)) || s->st_shndx != SHN_UNDEF)
			continue;
		void *hook = hook_of(o->strings + s->st_name);
		void **slot = (void **)(m->l_addr + r->r_offset);
		if (!hook || *slot == hook)
			continue;
		found++;
		if (set)
			__atomic_store_n(slot, hook, __ATOMIC_RELEASE);
	}
	return found;
}

static unsigned set_all(const struct link_map *m, const struct rpwi_loaded *o, bool set)
{
	return set_slots(m, o, o->relocations, o->relocations_len, set) +
	       set_slots(m, o, o->plt, o->plt_len, set);
}

/* The part that the loader has made read-only (RELRO) can be written meanwhile. Other threads may
 * run in it. */
static void reach_object(
	const struct link_map *m, const struct rpwi_loaded *o, const ElfW(Phdr) * relro)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = relro ? (m->l_addr + relro->p_vaddr) & ~(page - 1) : 0;
	uintptr_t end = relro ? (m->l_addr + relro->p_vaddr + relro->p_memsz) & ~(page - 1) : 0;
	if (end > start && mprotect((void *)start, end - start, PROT_READ | PROT_WRITE)) {
		rpwi_warn("%s opens the kernel's /dev/infiniband/rdma_cm, since its references "
			  "cannot be changed (mprotect: %s); preload this library instead",
			m->l_name, strerror(errno));
		return;
	}
	set_all(m, o, true);
	if (end > start)
		mprotect((void *)start, end - start, PROT_READ);
}

/* By an address within: patchelf moves the dynamic section. */
static bool is_self(const struct dl_phdr_info *info)
{
	uintptr_t at = (uintptr_t)&self - info->dlpi_addr;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && at - p->p_vaddr < p->p_memsz)
			return true;
	}
	return false;
}

static int reach_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct link_map m = {.l_addr = info->dlpi_addr, .l_name = (char *)info->dlpi_name};
	struct rpwi_loaded o;
	const ElfW(Phdr) *relro = NULL;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			m.l_ld = (void *)(m.l_addr + info->dlpi_phdr[i].p_vaddr);
		else if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
			relro = &info->dlpi_phdr[i];
	}
	if (!m.l_ld || !rpwi_loaded_read(&m, &o))
		return 0;
	if (is_self(info)) {
		self_map = m;
		self = o;
	} else if (self.symbols && rpwi_loaded_needs(&m, &o, "libibverbs.so.1") &&
		   set_all(&m, &o, false)) {
		reach_object(&m, &o, relro);
	}
	return 0;
}

void rpwi_reach(void)
{
	if (rpwi_handed_on())
		return;
	pthread_mutex_lock(&reach_lock);
	if (!self.symbols) /* some that need it come before it */
		dl_iterate_phdr(reach_one, NULL);
	dl_iterate_phdr(reach_one, NULL);
	pthread_mutex_unlock(&reach_lock);
}

#else

void rpwi_reach(void) {}

#endif
