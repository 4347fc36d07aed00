/* SPDX-License-Identifier: BSD-3-Clause */
/* counters.c - see counters.h.
 *
 * How processes find the segment: among all that the kernel lists, the one that is ours by its
 * maker, mode and size, and that says so in its first bytes. Who finds none makes one, alone: an
 * abstract name is the lock, which the kernel gives back for who is killed. Should there ever be
 * two segments (a stranger had the name), readers add both up.
 */
#include "io/counters.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/io_priv.h"

enum {
	PAGE_MAGIC = 0x72707763,
	PAGE_VERSION = 2,
	PLACE_BYTES = 4096,
	DEVICES_MAX = 10,
	OVERFLOW_UID = 65534,
	MODE = 0600,
};

struct place {
	_Atomic uint64_t socket_inode; /* 0: nobody's */
	uint32_t pid;                  /* as its own PID namespace has it */
	struct rpwi_counters device[DEVICES_MAX];
};
_Static_assert(sizeof(struct place) <= PLACE_BYTES, "a page for each process");

struct memory {
	_Atomic uint32_t magic; /* written last */
	uint32_t version;
	uint64_t netns, netns_dev;
	_Atomic uint64_t used[(RPWI_SLOT_MAX + 64) / 64]; /* places that anybody has had */
	union {
		struct place place;
		uint8_t bytes[PLACE_BYTES];
	} slot[RPWI_SLOT_MAX + 1] __attribute__((aligned(PLACE_BYTES)));
};

static struct memory *memory; /* of all, or NULL */
static uid_t memory_uid;
static struct place alone; /* where there is none */
static struct place *own;
static struct rpwi_counters others; /* devices above DEVICES_MAX */

/* ---- whose ---- */

/* Does every user have a number in this user namespace? Else 65534 is anybody's
 * (user_namespaces(7)). */
static bool nobody_is_one(void)
{
	char text[512], *p = text;
	unsigned long long sum = 0;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof(text) - 1);
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	for (unsigned i = 1;; i++) {
		char *end;
		unsigned long long v = strtoull(p, &end, 10);
		if (end == p)
			break;
		sum += i % 3 ? 0 : v;
		p = end;
	}
	return sum >= UINT32_MAX;
}

static bool is_ours(const struct shmid_ds *s)
{
	uid_t me = geteuid();
	/* an owner may give a segment away; its maker stays */
	return s->shm_perm.cuid == me && s->shm_perm.uid == me &&
	       (s->shm_perm.mode & 0777) == MODE && s->shm_segsz == sizeof(struct memory) &&
	       (me != OVERFLOW_UID || nobody_is_one());
}

static bool netns_here(uint64_t *ino, uint64_t *dev)
{
	struct stat st;
	if (syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/net", &st, 0))
		return false;
	*ino = st.st_ino;
	*dev = st.st_dev;
	return true;
}

/* ---- attaching: what the kernel said of an ID is asked again once it cannot go away ---- */

static struct memory *attach(int id, int flags)
{
	struct shmid_ds s;
	void *at = shmat(id, NULL, flags);
	if (at == (void *)-1)
		return NULL;
	if (!shmctl(id, IPC_STAT, &s) && is_ours(&s))
		return at;
	shmdt(at);
	return NULL;
}

static bool is_of_here(struct memory *m)
{
	uint64_t ino, dev;
	return atomic_load_explicit(&m->magic, memory_order_acquire) == PAGE_MAGIC &&
	       m->version == PAGE_VERSION && netns_here(&ino, &dev) && m->netns == ino &&
	       m->netns_dev == dev;
}

/* The next one in the kernel's list, from *index on; *id is its ID. NULL: there is none. */
static struct memory *next(int *index, int last, int *id, int flags)
{
	struct shmid_ds s;
	while (*index <= last) {
		*id = shmctl((*index)++, SHM_STAT, &s);
		struct memory *m = *id >= 0 && is_ours(&s) ? attach(*id, flags) : NULL;
		if (m && is_of_here(m))
			return m;
		if (m)
			shmdt(m);
	}
	return NULL;
}

static int last_index(void)
{
	struct shm_info info;
	int last = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info);
	return last < 0 ? -errno : last;
}

static struct memory *find(void)
{
	int index = 0, id;
	return next(&index, last_index(), &id, 0);
}

/* ---- making ---- */

/* Of one that was killed between making a segment and marking it for removal. One that somebody in
 * another network namespace makes at this moment looks the same: he makes another. */
static void remove_left_behind(void)
{
	struct shmid_ds s;
	for (int index = 0, last = last_index(); index <= last; index++) {
		int id = shmctl(index, SHM_STAT, &s);
		if (id >= 0 && is_ours(&s) && !s.shm_nattch && !(s.shm_perm.mode & SHM_DEST))
			shmctl(id, IPC_RMID, NULL);
	}
}

static struct memory *make_one(void)
{
	enum { TRIES = 4 };
	uint64_t ino, dev;
	struct memory *m = NULL;
	if (!netns_here(&ino, &dev))
		return NULL;
	for (int i = 0; i < TRIES && !m; i++) {
		int id = shmget(
			IPC_PRIVATE, sizeof(*m), IPC_CREAT | IPC_EXCL | SHM_NORESERVE | MODE);
		if (id < 0)
			return NULL;
		m = attach(id, 0);
		shmctl(id, IPC_RMID, NULL);
	}
	if (!m)
		return NULL;
	m->version = PAGE_VERSION;
	m->netns = ino;
	m->netns_dev = dev;
	atomic_store_explicit(&m->magic, PAGE_MAGIC, memory_order_release);
	return m;
}

/* What another has made meanwhile, or a new one. */
static struct memory *find_or_make(void)
{
	enum { TRIES = 200, TRY_US = 100 };
	char name[RPWI_NAME_MAX];
	struct memory *m = find();
	int lock = -EADDRINUSE;
	snprintf(name, sizeof(name), "ropeway/%u/counters", rpwi_who_uid());
	for (int i = 0; i < TRIES && !m && lock == -EADDRINUSE; i++) {
		lock = rpwi_name_listen(name);
		m = find();
		if (!m && lock == -EADDRINUSE)
			usleep(TRY_US);
	}
	if (!m) {
		remove_left_behind();
		m = make_one();
	}
	if (lock >= 0)
		close(lock);
	return m;
}

void rpwi_counters_begin(uint16_t slot, uint64_t socket_inode)
{
	/* a child may have gone elsewhere since it inherited it, or become another user */
	if (memory && (!is_of_here(memory) || memory_uid != geteuid())) {
		shmdt(memory);
		memory = NULL;
	}
	if (!memory)
		memory = find_or_make();
	memory_uid = geteuid();
	if (!memory) {
		rpwi_debug("no shared memory for counters (%s): they count this process only",
			strerror(errno));
		own = &alone;
	} else {
		/* dumps are of the program's memory */
		madvise(memory, sizeof(*memory), MADV_DONTDUMP);
		own = &memory->slot[slot].place;
		atomic_fetch_or(&memory->used[slot / 64], 1ull << slot % 64);
	}
	for (unsigned i = 0; i < DEVICES_MAX; i++)
		own->device[i].res = (struct rpwi_resources){0};
	own->pid = (uint32_t)getpid();
	atomic_store(&own->socket_inode, socket_inode);
}

struct rpwi_counters *rpwi_counters_of(const char *device)
{
	for (unsigned i = 0; own && i < DEVICES_MAX; i++) {
		struct rpwi_counters *c = &own->device[i];
		if (!c->device[0])
			/* the last byte stays 0 */
			memcpy(c->device, device, strnlen(device, sizeof(c->device) - 1));
		if (!strncmp(c->device, device, sizeof(c->device)))
			return c;
	}
	return &others;
}

void rpwi_counters_end(void)
{
	for (unsigned i = 0; own && i < DEVICES_MAX; i++)
		own->device[i].res = (struct rpwi_resources){0};
	if (own)
		atomic_store(&own->socket_inode, 0);
	own = NULL;
}

void rpwi_counters_forget(void) { own = NULL; }

/* ---- reading ---- */

struct slots {
	uint64_t inode[RPWI_SLOT_MAX + 1]; /* of the socket that has a slot's name now, or 0 */
};

/* A line of /proc/net/unix: "... state inode @ropeway/slot/N". */
static void take_line(struct slots *s, const char *line)
{
	static const char name[] = " @ropeway/slot/";
	const char *at = strstr(line, name), *from = at;
	if (!at)
		return;
	while (from > line && from[-1] != ' ')
		from--;
	unsigned long slot = strtoul(at + sizeof(name) - 1, NULL, 10);
	if (slot <= RPWI_SLOT_MAX)
		s->inode[slot] = strtoull(from, NULL, 10);
}

static void read_slots(struct slots *s)
{
	char text[4096];
	size_t have = 0;
	ssize_t n;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/net/unix", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && (n = syscall(SYS_read, fd, text + have, sizeof(text) - 1 - have)) > 0) {
		have += (size_t)n;
		text[have] = '\0';
		char *line = text, *end;
		while ((end = strchr(line, '\n'))) {
			*end = '\0';
			take_line(s, line);
			line = end + 1;
		}
		have = strlen(line);
		if (have == sizeof(text) - 1) /* no line is as long */
			have = 0;
		memmove(text, line, have);
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
}

static void add_resources(struct rpwi_resources *sum, const struct rpwi_resources *r)
{
	sum->contexts += r->contexts;
	sum->pds += r->pds;
	sum->mrs += r->mrs;
	sum->cqs += r->cqs;
	sum->qps += r->qps;
	sum->srqs += r->srqs;
}

static void add_place(struct place *p, bool lives, const char *device, struct rpwi_qp_stats *sum,
	struct rpwi_resources *res)
{
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		struct rpwi_counters *c = &p->device[i];
		if (strncmp(c->device, device, sizeof(c->device)) != 0)
			continue;
		rpwi_counts_add(sum, &c->n);
		if (lives)
			add_resources(res, &c->res);
	}
}

int rpwi_counters_sum(const char *device, struct rpwi_qp_stats *sum, struct rpwi_resources *res)
{
	int index = 0, id, last = last_index();
	struct memory *m;
	struct slots *slots = NULL;
	*sum = (struct rpwi_qp_stats){0};
	if (res) {
		*res = (struct rpwi_resources){0};
		void *at = mmap(NULL, sizeof(*slots), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			return -errno;
		slots = at;
		read_slots(slots);
	}
	while ((m = next(&index, last, &id, SHM_RDONLY))) {
		for (unsigned i = 0; i <= RPWI_SLOT_MAX; i++) {
			struct place *p = &m->slot[i].place;
			if (!(atomic_load(&m->used[i / 64]) >> i % 64 & 1))
				continue;
			uint64_t inode = slots ? atomic_load(&p->socket_inode) : 0;
			add_place(p, inode && inode == slots->inode[i], device, sum, res);
		}
		shmdt(m);
	}
	if (slots)
		munmap(slots, sizeof(*slots));
	return last < 0 ? last : 0;
}
