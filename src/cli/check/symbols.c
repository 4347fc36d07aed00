/* SPDX-License-Identifier: BSD-3-Clause */
/* symbols.c - see check.h: from a module and an offset in its file to functions and lines of
 * source, by elfutils' libdw, also where the debug information is in a file of its own
 * (/usr/lib/debug/.build-id). No server is asked for one (debuginfod).
 *
 * A frame is a return address: the call is before it, so it is the byte before it that is looked
 * up.
 */
#include "cli/check/check.h"

#include <stdlib.h>

#ifdef HAVE_LIBDW

#include <dwarf.h>
#include <sys/stat.h>

#include "cli/check/libdw.h"

/* A file that frames stand in. */
struct module {
	struct module *next;
	char *path;
	Dwfl *dwfl;
	Dwfl_Module *mod; /* NULL: it cannot be read */
	bool newer;       /* than the report */
	char remark[512]; /* or "" */
};
struct ck_symbols {
	const struct libdw *dw; /* NULL: there is none */
	time_t written;
	Dwfl_Callbacks callbacks;
	char remark[RPWI_WHY_LEN]; /* why there is none */
	struct module *modules;
};

/* ---- files ---- */

/* Nobody is waited for who would have to write it, as of a pipe. */
static int is_readable(struct module *m, time_t written)
{
	struct stat st;
	if (stat(m->path, &st))
		return -errno;
	m->newer = written && st.st_mtime > written;
	return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

static void open_module(const struct ck_symbols *s, struct module *m)
{
	const struct libdw *dw = s->dw;
	GElf_Addr bias;
	Dwarf_Addr dwarf_bias;
	int rc = is_readable(m, s->written);
	if (!rc) {
		m->dwfl = dw->dwfl_begin(&s->callbacks);
		m->mod = m->dwfl ? dw->dwfl_report_offline(m->dwfl, m->path, m->path, -1) : NULL;
		if (m->dwfl)
			dw->dwfl_report_end(m->dwfl, NULL, NULL);
		if (m->mod && !dw->dwfl_module_getelf(m->mod, &bias))
			m->mod = NULL;
	}
	const char *path = rpwi_ck_short_path(m->path);
	if (!m->mod)
		snprintf(m->remark, sizeof(m->remark), "%s cannot be read: %s", path,
			rc ? strerror(-rc) : dw->dwfl_errmsg(-1));
	else if (m->newer)
		snprintf(m->remark, sizeof(m->remark),
			"%s is newer than the report: functions and lines may be wrong", path);
	else if (!dw->dwfl_module_getdwarf(m->mod, &dwarf_bias))
		snprintf(m->remark, sizeof(m->remark),
			"%s has no debug information, so lines of source are not known (compile "
			"with -g, or install the package with it)",
			path);
}

static struct module *module_of(struct ck_symbols *s, const char *path)
{
	for (struct module *m = s->modules; m; m = m->next)
		if (!strcmp(m->path, path))
			return m;
	struct module *m = calloc(1, sizeof(*m));
	if (!m || !(m->path = strdup(path))) {
		free(m);
		return NULL;
	}
	m->next = s->modules;
	s->modules = m;
	open_module(s, m);
	return m;
}

/* From a place in the file to the address that the linker gave it. */
static bool address_of(const struct libdw *dw, const struct module *m, uint64_t offset,
	uint64_t *address, GElf_Addr *bias)
{
	Elf *elf = dw->dwfl_module_getelf(m->mod, bias);
	size_t n = 0;
	GElf_Phdr ph;
	if (!elf || dw->elf_getphdrnum(elf, &n))
		return false;
	for (size_t i = 0; i < n; i++)
		if (dw->gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_LOAD &&
			offset >= ph.p_offset && offset - ph.p_offset < ph.p_filesz) {
			*address = offset - ph.p_offset + ph.p_vaddr;
			return true;
		}
	return false;
}

/* ---- functions and lines ---- */

/* "/build" and "../src/./x.c": "/src/x.c". */
static char *path_of(const char *folder, const char *file)
{
	bool absolute = file[0] == '/' || !folder;
	char *path = malloc(strlen(file) + (absolute ? 0 : strlen(folder)) + 2);
	if (!path)
		return NULL;
	sprintf(path, "%s%s%s", absolute ? "" : folder, absolute ? "" : "/", file);
	char *to = path;
	for (const char *from = path; *from;) {
		size_t len = strcspn(from + 1, "/") + 1; /* "/part" */
		if (from[0] == '/' && len == 3 && !memcmp(from, "/..", 3) && to > path) {
			do
				to--;
			while (to > path && *to != '/');
		} else if (!(from[0] == '/' && (len == 1 || (len == 2 && from[1] == '.')))) {
			memmove(to, from, len);
			to += len;
		}
		from += len;
	}
	*to = '\0';
	return path;
}

static const char *text_of(const struct libdw *dw, Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attr;
	return dw->dwarf_formstring(dw->dwarf_attr_integrate(die, name, &attr));
}

static char *function_of(const struct libdw *dw, Dwarf_Die *die)
{
	const char *linkage = text_of(dw, die, DW_AT_linkage_name);
	char *name = linkage ? rpwi_ck_demangle(linkage) : NULL;
	if (!name && (linkage = dw->dwarf_diename(die)))
		name = strdup(linkage);
	return name;
}

/* The unit that has the code at an address. Those of clang and rustc are in no table of addresses,
 * which elfutils looks through from 0.191 on only. */
static Dwarf_Die *unit_of(const struct libdw *dw, Dwfl_Module *mod, Dwarf_Addr at, Dwarf_Addr *bias)
{
	Dwarf_Die *cu = dw->dwfl_module_addrdie(mod, at, bias);
	if (cu)
		return cu;
	while ((cu = dw->dwfl_module_nextcu(mod, cu, bias)))
		if (dw->dwarf_haspc(cu, at - *bias) > 0)
			return cu;
	return NULL;
}

/* The innermost function around an address, and what it is inlined into, as DIEs from the inside
 * out, for free(). */
static int scopes_of(
	const struct libdw *dw, Dwfl_Module *mod, Dwarf_Die *cu, Dwarf_Addr pc, Dwarf_Die **scopes)
{
	Dwarf_Die *found = NULL, die;
	Dwarf_Addr bias;
	int n = dw->dwarf_getscopes(cu, pc, &found);
	*scopes = NULL;
	if (n > 0 && dw->dwarf_offdie(dw->dwfl_module_getdwarf(mod, &bias),
			     dw->dwarf_dieoffset(&found[0]), &die))
		n = dw->dwarf_getscopes_die(&die, scopes);
	free(found);
	return *scopes ? n : 0;
}

struct lines {
	const struct libdw *dw;
	Dwarf_Die *cu;
	const char *folder; /* where the compiler ran */
	const char *file;
	unsigned line;
};

static void set_place(struct ck_frame *f, const struct lines *l, char *function)
{
	f->place[f->places++] = (struct ck_place){.function = function,
		.file = l->file ? path_of(l->folder, l->file) : NULL,
		.line = l->file ? l->line : 0};
}

/* From an inlined function to the line that calls it. */
static void go_out(struct lines *l, Dwarf_Die *inlined)
{
	Dwarf_Attribute attr;
	Dwarf_Files *files;
	Dwarf_Word file = 0, line = 0;
	const struct libdw *dw = l->dw;
	dw->dwarf_formudata(dw->dwarf_attr(inlined, DW_AT_call_line, &attr), &line);
	dw->dwarf_formudata(dw->dwarf_attr(inlined, DW_AT_call_file, &attr), &file);
	l->line = (unsigned)line;
	l->file = dw->dwarf_getsrcfiles(l->cu, &files, NULL)
			  ? NULL
			  : dw->dwarf_filesrc(files, file, NULL, NULL);
}

static void find_places(struct lines *l, Dwfl_Module *mod, Dwarf_Addr pc, struct ck_frame *f)
{
	const struct libdw *dw = l->dw;
	Dwarf_Attribute attr;
	Dwarf_Die *scopes;
	int number = 0, n = scopes_of(dw, mod, l->cu, pc, &scopes);
	Dwarf_Line *line = dw->dwarf_getsrc_die(l->cu, pc);
	l->folder = dw->dwarf_formstring(dw->dwarf_attr(l->cu, DW_AT_comp_dir, &attr));
	l->file = line ? dw->dwarf_linesrc(line, NULL, NULL) : NULL;
	if (line && !dw->dwarf_lineno(line, &number))
		l->line = (unsigned)number;
	for (int i = 0; i < n && f->places < CK_INLINED_MAX; i++) {
		int tag = dw->dwarf_tag(&scopes[i]);
		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
			continue;
		set_place(f, l, function_of(dw, &scopes[i]));
		if (tag == DW_TAG_subprogram)
			break;
		go_out(l, &scopes[i]);
	}
	free(scopes);
}

/* Calls that are inlined from the headers of verbs and rdma_cm (ibv_post_send) are calls of the
 * program: it is not their line in the header that people look for. */
static void drop_calls(struct ck_frame *f)
{
	unsigned n = 0;
	for (; n + 1 < f->places; n++) {
		const struct ck_place *p = &f->place[n];
		size_t len = p->file ? strlen(p->file) : 0;
		if (!p->function || len < 2 || strcmp(p->file + len - 2, ".h") != 0 ||
			(strncmp(p->function, "ibv_", 4) != 0 &&
				strncmp(p->function, "rdma_", 5) != 0))
			break;
		free(p->function);
		free(p->file);
	}
	f->places -= n;
	memmove(f->place, f->place + n, f->places * sizeof(f->place[0]));
}

/* By the table of symbols, where there is nothing better. */
static char *symbol_of(const struct libdw *dw, Dwfl_Module *mod, GElf_Addr at)
{
	GElf_Off offset;
	GElf_Sym sym;
	const char *name = dw->dwfl_module_addrinfo(mod, at, &offset, &sym, NULL, NULL, NULL);
	if (!name || !*name || (sym.st_size && offset >= sym.st_size))
		return NULL;
	char *plain = rpwi_ck_demangle(name);
	return plain ? plain : strdup(name);
}

static void symbolize_frame(struct ck_symbols *s, struct ck_frame *f)
{
	const struct libdw *dw = s->dw;
	struct lines l = {.dw = dw};
	Dwarf_Addr bias = 0;
	GElf_Addr elf_bias = 0;
	f->address = f->offset;
	if (!dw) {
		f->remark = s->remark;
		return;
	}
	struct module *m = *f->module ? module_of(s, f->module) : NULL;
	if (!m)
		return;
	f->remark = *m->remark ? m->remark : NULL;
	uint64_t call;
	if (!m->mod || !f->offset || !address_of(dw, m, f->offset - 1, &call, &elf_bias))
		return;
	f->address = call + 1;
	l.cu = unit_of(dw, m->mod, call + elf_bias, &bias);
	if (l.cu)
		find_places(&l, m->mod, call + elf_bias - bias, f);
	drop_calls(f);
	if (!f->places || !f->place[0].function) {
		char *symbol = symbol_of(dw, m->mod, call + elf_bias);
		if (f->places)
			f->place[0].function = symbol;
		else if (symbol)
			set_place(f, &l, symbol);
	}
}

struct ck_symbols *rpwi_ck_symbols_new(time_t written)
{
	struct ck_symbols *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	unsetenv("DEBUGINFOD_URLS");
	s->written = written;
	s->dw = rpwi_libdw(s->remark, sizeof(s->remark));
	if (s->dw)
		s->callbacks = (Dwfl_Callbacks){
			.find_debuginfo = s->dw->dwfl_standard_find_debuginfo,
			.section_address = s->dw->dwfl_offline_section_address,
		};
	return s;
}

void rpwi_ck_symbols_free(struct ck_symbols *s)
{
	for (struct module *m = s ? s->modules : NULL, *next; m; m = next) {
		next = m->next;
		if (m->dwfl)
			s->dw->dwfl_end(m->dwfl);
		free(m->path);
		free(m);
	}
	free(s);
}

#else

struct ck_symbols {
	char unused;
};

static void symbolize_frame(struct ck_symbols *s, struct ck_frame *f)
{
	f->address = f->offset;
	f->remark = "this ropeway was built without elfutils' libdw, so functions and lines of "
		    "source are not shown";
}

struct ck_symbols *rpwi_ck_symbols_new(time_t written)
{
	return calloc(1, sizeof(struct ck_symbols));
}

void rpwi_ck_symbols_free(struct ck_symbols *s) { free(s); }

#endif

static bool is_main(const struct ck_frame *f)
{
	const char *function = f->places ? f->place[f->places - 1].function : NULL;
	return function && !strcmp(function, "main");
}

/* The C library's, whose lines are known where its debug information is. */
static bool calls_main(const struct ck_frame *f)
{
	const char *function = f->places ? f->place[f->places - 1].function : NULL;
	return function && !strncmp(function, "__libc_start", strlen("__libc_start"));
}

/* Who calls main is the same of every program. */
void rpwi_ck_symbolize(struct ck_symbols *s, struct ck_site *site)
{
	for (unsigned f = 0; f < site->frames; f++) {
		symbolize_frame(s, &site->frame[f]);
		if (f && calls_main(&site->frame[f]))
			site->frames = f;
		else if (is_main(&site->frame[f]))
			site->frames = f + 1;
	}
}

void rpwi_ck_symbolize_kind(struct ck_symbols *s, struct ck_kind *k)
{
	for (unsigned i = 0; i < k->sites && !k->symbolized; i++)
		rpwi_ck_symbolize(s, &k->site[i]);
	k->symbolized = true;
}
