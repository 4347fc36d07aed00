/* SPDX-License-Identifier: BSD-3-Clause */
/* next.h - the calls that hooks stand in front of, each looked up when its hook first goes on. One
 * table for all of them: no lock and no thread memory, since hooks run before constructors, in
 * signal handlers and in children of fork. Two threads that look up one call find the same.
 */
#ifndef ROPEWAY_PRELOAD_NEXT_H
#define ROPEWAY_PRELOAD_NEXT_H

#include "preload/preload.h"

extern __attribute__((visibility("hidden"))) struct rpwi_next_calls {
	void *access, *bind, *bsd_signal, *chdir, *close, *closedir, *connect, *copy_file_range,
		*creat, *creat64, *dirfd, *dup, *dup2, *dup3, *eaccess, *euidaccess, *faccessat,
		*fchdir, *fcntl, *fcntl64, *fdopendir, *fopen, *fopen64, *freopen, *freopen64,
		*fstat, *fstat64, *fstatat, *fstatat64, *fstatfs, *fstatfs64, *fstatvfs,
		*fstatvfs64, *__fxstat, *__fxstat64, *__fxstatat, *__fxstatat64,
		*get_current_dir_name, *getcwd, *__getcwd_chk, *getdents64, *getpeername,
		*getsockname, *getsockopt, *getwd, *getxattr, *glob, *glob64, *lgetxattr,
		*listxattr, *llistxattr, *lstat, *lstat64, *__lxstat, *__lxstat64, *open, *open64,
		*__open64_2, *__open_2, *openat, *openat64, *__openat64_2, *__openat_2, *opendir,
		*pthread_sigmask, *read, *__read_chk, *readdir, *readdir64, *readdir64_r,
		*readdir_r, *readlink, *__readlink_chk, *readlinkat, *__readlinkat_chk, *realpath,
		*__realpath_chk, *recvfrom, *__recvfrom_chk, *recvmmsg, *recvmsg, *rewinddir,
		*scandir, *scandir64, *scandirat, *scandirat64, *seekdir, *send, *sendmmsg,
		*sendmsg, *sendto, *setsockopt, *sigaction, *signal, *sigprocmask, *sigset, *socket,
		*ssignal, *stat, *stat64, *statfs, *statfs64, *statvfs, *statvfs64, *statx,
		*__sysv_signal, *sysv_signal, *telldir, *write, *writev, *__xstat, *__xstat64;
} rpwi_next_calls;

/* What follows `hook`, the hook of the call `name`; NULL if nothing after this library has it. */
#define RPWI_NEXT(hook, name) \
	({ \
		if (RPWI_UNLIKELY(!rpwi_next_calls.name)) \
			rpwi_next_calls.name = rpwi_next(#name); \
		(__typeof__(hook) *)rpwi_next_calls.name; \
	})

/* The head of a hook, whose body follows. The assembler's name alone is the public one: open, fopen
 * and stat have too many declarations (large files, fortification, macros, old glibc's __xstat). */
#define RPWI_HOOK(result, hook, name, params) \
	RPWI_EXPORT result hook params __asm__(#name); \
	result hook params

/* A hook that goes on unless `found`, which sets rc, says that rc is the answer. */
#define RPWI_HOOK_UNLESS(result, hook, name, params, args, found) \
	RPWI_HOOK(result, hook, name, params) \
	{ \
		result rc = -1; \
		if (found) \
			return rc; \
		__typeof__(hook) *next = RPWI_NEXT(hook, name); \
		return next ? next args : rpwi_minus(ENOSYS); \
	}

#endif
