/* SPDX-License-Identifier: BSD-3-Clause */
/* share.c - see rpwi_share_size in file.h. */
#include "base/base.h"
#include "base/file.h"

#include <errno.h>

static void tell(size_t len)
{
	static bool told;
	int error = errno;
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		rpwi_warn("no memory to share with other processes: it takes a file of %zu bytes, "
			  "and the limit of this process is %llu (RLIMIT_FSIZE). Raise it: ulimit "
			  "-f unlimited. Until then data goes by sockets",
			len, (unsigned long long)rpwi_file_limit());
	errno = error;
}

int rpwi_share_size(int fd, size_t len)
{
	int rc = rpwi_file_truncate(fd, len);
	if (rc && errno == EFBIG)
		tell(len);
	return rc;
}
