/* SPDX-License-Identifier: BSD-3-Clause */
/* file.h - files, in somebody else's program: reading small ones, and growing them, never past
 * RLIMIT_FSIZE, where the kernel would end the process by SIGXFSZ. All else about files is their
 * owners'.
 *
 * The signal is this thread's, and is blocked and taken here; one that was pending before stays.
 *
 * Threads: any. */
#ifndef ROPEWAY_FILE_H
#define ROPEWAY_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* At most `most` bytes of it, or -errno. Nobody is waited for who would have to write them: a pipe
 * gives what is in it. No hooks of the drop-in; signal handlers too. */
ssize_t rpwi_file_read(const char *path, char *to, size_t most);

/* As ftruncate, write and pwrite (the last two the system calls, not hooks of the drop-in, and no
 * thread is canceled there), but EFBIG is all that a limit does. */
int rpwi_file_truncate(int fd, size_t len);
ssize_t rpwi_file_write(int fd, const void *buf, size_t len);
ssize_t rpwi_file_pwrite(int fd, const void *buf, size_t len, off_t at);
uint64_t rpwi_file_limit(void); /* UINT64_MAX: none */

#endif
