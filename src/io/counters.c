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
	PAGE_VERSION = 3,
	DEVICES_MAX = 10,
	ROWS_MAX = 4096,
	OVERFLOW_UID = 65534,
	MODE = 0600,
};

struct place {
	_Atomic uint64_t socket_inode; /* 0: nobody's */
	uint32_t pid;                  /* as its own PID namespace has it */
	struct rpwi_counters device[DEVICES_MAX];
} __attribute__((aligned(64)));

struct row {
	struct rpwi_counters_qp qp;
} __attribute__((aligned(64)));

struct memory {
	_Atomic uint32_t magic; /* written last */
	uint32_t version;
	uint64_t netns, netns_dev;
	_Atomic uint64_t used[(RPWI_SLOT_MAX + 64) / 64]; /* places that anybody has had */
	_Atomic uint32_t rows_used;                       /* so many rows, from the first */
	_Atomic uint32_t rows_freed;                      /* how often one was */
	struct place place[RPWI_SLOT_MAX + 1];
	struct row row[ROWS_MAX];
};

static struct memory *memory; /* of all, or NULL */
static uid_t memory_uid;
static struct place alone; /* where there is none */
static struct place *own;
static uint16_t own_slot;
static struct rpwi_counters others; /* devices above DEVICES_MAX */
/* Rows before `from` were taken when this process looked; and where all were, rows_freed then. */
static struct {
	uint32_t from, full_at;
	bool full;
} rows;

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
		own = &memory->place[slot];
		atomic_fetch_or(&memory->used[slot / 64], 1ull << slot % 64);
	}
	own_slot = slot;
	rows.from = 0;
	rows.full = false;
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		own->device[i].res = (struct rpwi_resources){0};
		own->device[i].before = own->device[i].n;
	}
	own->pid = (uint32_t)getpid();
	atomic_store(&own->socket_inode, socket_inode);
}

void rpwi_counters_is_forked(void)
{
	if (own)
		own->pid = (uint32_t)getpid();
}

int rpwi_counters_hold(void)
{
	if (!memory)
		memory = find_or_make();
	memory_uid = geteuid();
	return memory ? 0 : -errno;
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

/* ---- who lives ---- */

struct slots {
	/* of the socket of the process that has the place, if it has the slot's name now; or 0 */
	uint64_t inode[RPWI_SLOT_MAX + 1];
};

static bool is_used(const struct memory *m, unsigned slot)
{
	return atomic_load(&m->used[slot / 64]) >> slot % 64 & 1;
}

/* A line of /proc/net/unix: "... state inode @ropeway/slot/N". Any user's socket may have a name
 * that looks like that, with spaces and ends of lines in it; so a line only confirms what the place
 * says, and hides nobody. */
static void take_line(struct slots *s, const struct memory *m, const char *line)
{
	static const char name[] = " @ropeway/slot/";
	const char *at = strstr(line, name), *from = at;
	if (!at)
		return;
	while (from > line && from[-1] != ' ')
		from--;
	unsigned long slot = strtoul(at + sizeof(name) - 1, NULL, 10);
	uint64_t inode = strtoull(from, NULL, 10);
	if (slot <= RPWI_SLOT_MAX && is_used(m, (unsigned)slot) &&
		inode == atomic_load(&m->place[slot].socket_inode))
		s->inode[slot] = inode;
}

static void read_slots(struct slots *s, const struct memory *m)
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
			take_line(s, m, line);
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

static struct slots *slots_now(const struct memory *m)
{
	void *at = mmap(NULL, sizeof(struct slots), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	read_slots(at, m);
	return at;
}

/* ---- rows ---- */

bool rpwi_counters_is_own(uint64_t socket_inode)
{
	return own && socket_inode == atomic_load(&own->socket_inode);
}

static bool row_is_for(const struct rpwi_counters_qp *r, const char *device)
{
	return !r->device[0] || !strncmp(r->device, device, sizeof(r->device));
}

/* A free one, of that device or nobody's yet, from the index on; now it is ours. */
static struct rpwi_counters_qp *row_take(const char *device, uint32_t from)
{
	uint64_t me = atomic_load_explicit(&own->socket_inode, memory_order_relaxed);
	uint32_t of_another = ROWS_MAX; /* the first free one of another device */
	for (uint32_t i = from; i < ROWS_MAX; i++) {
		struct rpwi_counters_qp *r = &memory->row[i].qp;
		uint64_t free = 0;
		if (atomic_load(&r->owner))
			continue;
		if (!row_is_for(r, device)) {
			of_another = RPWI_MIN(of_another, i);
			continue;
		}
		if (!atomic_compare_exchange_strong(&r->owner, &free, me))
			continue;
		if (!row_is_for(r, device)) { /* another has had it meanwhile */
			atomic_store(&r->owner, 0);
			continue;
		}
		uint32_t used = atomic_load(&memory->rows_used);
		while (used < i + 1 &&
			!atomic_compare_exchange_weak(&memory->rows_used, &used, i + 1))
			;
		rows.from = RPWI_MIN(of_another, i + 1);
		return r;
	}
	return NULL;
}

static void change_begin(struct rpwi_counters_qp *r)
{
	/* odd already: its former owner was killed in the middle */
	atomic_store(&r->turn, atomic_load(&r->turn) | 1);
}
static void change_end(struct rpwi_counters_qp *r) { atomic_fetch_add(&r->turn, 1); }

static bool has_socket(const struct slots *s, uint64_t inode)
{
	for (unsigned i = 0; i <= RPWI_SLOT_MAX; i++)
		if (s->inode[i] == inode)
			return true;
	return false;
}

/* Frees rows of processes that have ended, once all are taken. Owners are read before the
 * names of sockets: a process that has taken a row by then has its name already. */
static void rows_of_the_dead(void)
{
	uint64_t *owner = mmap(NULL, ROWS_MAX * sizeof(*owner), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)owner == MAP_FAILED)
		return;
	for (uint32_t i = 0; i < ROWS_MAX; i++)
		owner[i] = atomic_load(&memory->row[i].qp.owner);
	struct slots *slots = slots_now(memory);
	for (uint32_t i = 0; slots && i < ROWS_MAX; i++)
		if (owner[i] && !has_socket(slots, owner[i]) &&
			atomic_compare_exchange_strong(&memory->row[i].qp.owner, &owner[i], 0))
			atomic_fetch_add(&memory->rows_freed, 1);
	if (slots)
		munmap(slots, sizeof(*slots));
	munmap(owner, ROWS_MAX * sizeof(*owner));
}

struct rpwi_counters_qp *rpwi_counters_qp_begin(const char *device, uint32_t qpn, uint8_t type)
{
	if (!own || own == &alone || !atomic_load(&own->socket_inode))
		return NULL;
	uint32_t freed = atomic_load(&memory->rows_freed);
	if (rows.full && rows.full_at == freed)
		return NULL;
	struct rpwi_counters_qp *r = row_take(device, rows.from);
	if (!r && rows.from)
		r = row_take(device, 0);
	if (!r) {
		rows_of_the_dead();
		r = row_take(device, 0);
	}
	rows.full = !r;
	rows.full_at = freed;
	if (!r)
		return NULL;
	change_begin(r);
	if (!r->device[0])
		/* the last byte stays 0 */
		memcpy(r->device, device, strnlen(device, sizeof(r->device) - 1));
	r->before = r->n;
	r->slot = own_slot;
	r->qpn = qpn;
	r->type = type;
	r->state = 0;
	r->peer_qpn = 0;
	change_end(r);
	return r;
}

void rpwi_counters_qp_peer(struct rpwi_counters_qp *r, const uint8_t gid[16], uint32_t qpn)
{
	change_begin(r);
	memcpy(r->peer, gid, sizeof(r->peer));
	r->peer_qpn = qpn;
	change_end(r);
}

static void row_free(struct rpwi_counters_qp *r)
{
	atomic_store(&r->owner, 0);
	atomic_fetch_add(&memory->rows_freed, 1);
}

void rpwi_counters_qp_end(struct rpwi_counters *of, struct rpwi_counters_qp *r)
{
	struct rpwi_qp_stats none = {0}, its = {0};
	uint32_t index = (uint32_t)(RPWI_CONTAINER_OF(r, struct row, qp) - memory->row);
	rpwi_counts_add_since(&its, &r->n, &r->before);
	row_free(r);
	rpwi_counts_add_since(&of->before, &none, &its);
	rows.from = RPWI_MIN(rows.from, index);
}

void rpwi_counters_end(void)
{
	/* of QPs that were never destroyed */
	uint64_t me = own ? atomic_load(&own->socket_inode) : 0;
	for (uint32_t i = 0; me && own != &alone && i < atomic_load(&memory->rows_used); i++)
		if (atomic_load(&memory->row[i].qp.owner) == me)
			row_free(&memory->row[i].qp);
	for (unsigned i = 0; own && i < DEVICES_MAX; i++)
		own->device[i].res = (struct rpwi_resources){0};
	if (own)
		atomic_store(&own->socket_inode, 0);
	own = NULL;
}

void rpwi_counters_forget(void) { own = NULL; }

/* ---- reading ---- */

static void add_resources(struct rpwi_resources *sum, const struct rpwi_resources *r)
{
	sum->contexts += r->contexts;
	sum->pds += r->pds;
	sum->mrs += r->mrs;
	sum->cqs += r->cqs;
	sum->qps += r->qps;
	sum->srqs += r->srqs;
}

static void add_rows(struct memory *m, const char *device, struct rpwi_qp_stats *sum)
{
	uint32_t n = RPWI_MIN(atomic_load(&m->rows_used), (uint32_t)ROWS_MAX);
	for (uint32_t i = 0; i < n; i++)
		if (!strncmp(m->row[i].qp.device, device, sizeof(m->row[i].qp.device)))
			rpwi_counts_add(sum, &m->row[i].qp.n);
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
	int index = 0, id, rc = 0, last = last_index();
	struct memory *m;
	*sum = (struct rpwi_qp_stats){0};
	if (res)
		*res = (struct rpwi_resources){0};
	while (!rc && (m = next(&index, last, &id, SHM_RDONLY))) {
		struct slots *slots = res ? slots_now(m) : NULL;
		rc = res && !slots ? -errno : 0;
		for (unsigned i = 0; !rc && i <= RPWI_SLOT_MAX; i++)
			if (is_used(m, i))
				add_place(&m->place[i], slots && slots->inode[i], device, sum, res);
		add_rows(m, device, sum);
		if (slots)
			munmap(slots, sizeof(*slots));
		shmdt(m);
	}
	return last < 0 ? last : rc;
}

/* ---- one by one ---- */

static bool walk_place(
	struct place *p, unsigned slot, uint64_t inode, rpwi_counters_visit *visit, void *arg)
{
	struct rpwi_counters_part c = {
		.slot = (uint16_t)slot, .pid = p->pid, .socket_inode = inode};
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		struct rpwi_counters *d = &p->device[i];
		if (!d->device[0])
			continue;
		memcpy(c.device, d->device, sizeof(c.device) - 1);
		c.contexts = d->res.contexts;
		c.qps = d->res.qps;
		c.n = (struct rpwi_qp_stats){0};
		rpwi_counts_add_since(&c.n, &d->n, &d->before);
		if (!visit(arg, &c))
			return false;
	}
	return true;
}

/* False: it changes all the time, or its owner was killed while it changed it. */
static bool row_read(struct rpwi_counters_qp *r, struct rpwi_counters_part *c)
{
	enum { TRIES = 8 };
	for (unsigned i = 0; i < TRIES; i++) {
		uint32_t turn = atomic_load_explicit(&r->turn, memory_order_acquire);
		*c = (struct rpwi_counters_part){.slot = r->slot,
			.socket_inode = atomic_load(&r->owner),
			.qpn = r->qpn,
			.peer_qpn = r->peer_qpn,
			.type = r->type,
			.state = r->state};
		memcpy(c->device, r->device, sizeof(c->device) - 1);
		memcpy(c->peer, r->peer, sizeof(c->peer));
		rpwi_counts_add_since(&c->n, &r->n, &r->before);
		atomic_thread_fence(memory_order_acquire);
		if (!(turn & 1) && atomic_load_explicit(&r->turn, memory_order_relaxed) == turn)
			return c->qpn && c->slot <= RPWI_SLOT_MAX;
	}
	return false;
}

static bool walk_memory(
	struct memory *m, const struct slots *slots, rpwi_counters_visit *visit, void *arg)
{
	uint32_t n = RPWI_MIN(atomic_load(&m->rows_used), (uint32_t)ROWS_MAX);
	struct rpwi_counters_part c;
	for (unsigned i = 0; i <= RPWI_SLOT_MAX; i++) {
		uint64_t inode = slots->inode[i];
		if (inode && !walk_place(&m->place[i], i, inode, visit, arg))
			return false;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct rpwi_counters_qp *r = &m->row[i].qp;
		if (!atomic_load(&r->owner) || !row_read(r, &c) ||
			c.socket_inode != slots->inode[c.slot])
			continue;
		c.pid = m->place[c.slot].pid;
		if (!visit(arg, &c))
			return false;
	}
	return true;
}

int rpwi_counters_walk(rpwi_counters_visit *visit, void *arg)
{
	int index = 0, id, rc = 0, last = last_index();
	struct memory *m;
	bool more = true;
	while (more && (m = next(&index, last, &id, SHM_RDONLY))) {
		struct slots *slots = slots_now(m);
		rc = slots ? 0 : -errno;
		more = slots && walk_memory(m, slots, visit, arg);
		if (slots)
			munmap(slots, sizeof(*slots));
		shmdt(m);
	}
	return last < 0 ? last : rc;
}
