/* SPDX-License-Identifier: BSD-3-Clause */
/* libdw.h - elfutils' libdw, opened when the first finding is symbolized: the command starts
 * without it, and runs where it is not installed. The build needs its headers, or does without
 * (meson's option libdw). symbols.c alone uses it.
 */
#ifndef ROPEWAY_CLI_CHECK_LIBDW_H
#define ROPEWAY_CLI_CHECK_LIBDW_H

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include "base/base.h"

#define LIBDW_CALLS(X) \
	X(dwarf_attr) \
	X(dwarf_attr_integrate) \
	X(dwarf_dieoffset) \
	X(dwarf_diename) \
	X(dwarf_filesrc) \
	X(dwarf_formstring) \
	X(dwarf_formudata) \
	X(dwarf_getscopes) \
	X(dwarf_getscopes_die) \
	X(dwarf_getsrc_die) \
	X(dwarf_getsrcfiles) \
	X(dwarf_haspc) \
	X(dwarf_lineno) \
	X(dwarf_linesrc) \
	X(dwarf_offdie) \
	X(dwarf_tag) \
	X(dwfl_begin) \
	X(dwfl_end) \
	X(dwfl_errmsg) \
	X(dwfl_errno) \
	X(dwfl_module_addrdie) \
	X(dwfl_module_addrinfo) \
	X(dwfl_module_getdwarf) \
	X(dwfl_module_getelf) \
	X(dwfl_module_nextcu) \
	X(dwfl_offline_section_address) \
	X(dwfl_report_end) \
	X(dwfl_report_offline) \
	X(dwfl_standard_find_debuginfo)

struct libdw {
#define X(name) __typeof__(name) *name;
	LIBDW_CALLS(X)
#undef X
	/* of libelf, which libdw brings */
	__typeof__(elf_getphdrnum) *elf_getphdrnum;
	__typeof__(gelf_getphdr) *gelf_getphdr;
};

/* The library with all its calls, or NULL and a sentence on what is missing. It stays open. */
const struct libdw *rpwi_libdw(char *why, size_t why_len);

#endif
