/* SPDX-License-Identifier: BSD-3-Clause */
/* common.h - what all the educational programs share: options, the clock, and numbers as bytes.
 * Nothing here knows RDMA. */
#ifndef LEARN_COMMON_H
#define LEARN_COMMON_H

#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What went wrong and what to do, in one line to stderr; and the end of the program. */
#define die(...) errx(EXIT_FAILURE, __VA_ARGS__)

/* ---- options ---- */

struct program {
	unsigned bit; /* in `programs` of a flag */
	const char *name, *words, *purpose;
};

/* An option or an argument of a program: parsing, errors and help are made from these. */
struct flag {
	unsigned programs; /* those that have it */
	char letter;       /* 0: an argument without a dash, in the order of the table */
	const char *name, *help;
	/* One of these is set by it. */
	bool *yes;
	const char **text;
	unsigned *number, min, max;
	bool required;
};

/* `flags` ends with a row without a name. --help, --version and errors end the program. */
void options_parse(const struct program *p, const struct flag *flags, int argc, char **argv);

/* The addresses of a host, for TCP or rdma_cm. */
struct addrinfo *addresses_of(const char *host, unsigned port);

/* ---- clock, errors ---- */

uint64_t now_ms(void); /* monotonic: a clock that nobody sets back */
/* Verbs return an errno; some libraries set errno and return -1. Afterwards it is in errno. */
bool succeeded(int rc);

/* ---- numbers in network byte order (big-endian), and at random ----
 * Byte by byte it does not matter how this machine orders them, nor how a struct is padded. */

void put(uint8_t *out, unsigned bytes, uint64_t number);
uint64_t get(const uint8_t *in, unsigned bytes);
/* The header of each message, by TCP or by SEND: magic (4), version (2), kind (2), length of the
 * body (4). Returns the length of both. */
enum { HEADER_BYTES = 12 };
size_t put_header(uint8_t *out, uint32_t magic, unsigned version, unsigned kind, size_t body_bytes);
/* splitmix64: one step of a well-mixed sequence. */
uint64_t mix(uint64_t *state);
uint64_t random_number(void); /* another one in each run */

#endif
