/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.c - a buffer that grows by what is added to it, and no further. It never bounds what is
 * added: its callers do. It takes no lock: a buffer belongs to its connection.
 */
#include "boot/boot_priv.h"

#include <errno.h>
#include <stdlib.h>

int boot_bytes_add(struct boot_bytes *b, const void *p, size_t len)
{
	if (b->room - b->len < len) {
		uint8_t *more = realloc(b->p, b->len + len);
		if (!more)
			return -ENOMEM;
		b->p = more;
		b->room = b->len + len;
	}
	memcpy(b->p + b->len, p, len);
	b->len += len;
	return 0;
}

void boot_bytes_free(struct boot_bytes *b)
{
	free(b->p);
	*b = (struct boot_bytes){0};
}
