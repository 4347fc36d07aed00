/* SPDX-License-Identifier: BSD-3-Clause */
/* privileged.c - a program that an administrator made set-user-ID: it uses all of ropeway that an
 * environment variable can bend, and says what became of it. users_test.py starts it as another
 * user. */
#include "explain/trace.h"
#include "base/base.h"
#include "io/io.h"
#include "ropeway.h"

#include <stdio.h>
#include <sys/auxv.h>

int main(void)
{
	char byte = 0;
	rpw_context *c = NULL;
	rpw_memory *m = NULL;

	rpwi_tap_init();
	rpwi_explain_init();
	rpwi_explain(RPWI_EXPLAIN_NOTE, "a line");
	int created = rpw_context_create(NULL, &c);
	int registered = created ? created
				 : rpw_memory_register(c, &byte, sizeof(byte), RPW_MEMORY_CUDA,
					   RPW_REMOTE_READ, &m);
	printf("secure %lu, context %d, registered %d: %s\n", getauxval(AT_SECURE), created,
		registered, rpw_last_error());
	if (!registered)
		rpw_memory_destroy(m);
	if (c)
		rpw_context_destroy(c);
	return 0;
}
