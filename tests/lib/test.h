/* SPDX-License-Identifier: BSD-3-Clause */
/* test.h - what a C test begins with: cmocka, and failures that say their case. */
#ifndef TESTS_LIB_TEST_H
#define TESTS_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/say.h"

#endif
