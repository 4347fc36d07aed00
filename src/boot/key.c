/* SPDX-License-Identifier: BSD-3-Clause */
/* key.c - the file with the pre-shared key. */
#include "boot/tls.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"

enum { LINE_MAX_BYTES = 512, HEX_DIGITS_MIN = 32, TEXT_MIN = 16 };
#define HOW_TO_MAKE_ONE "make one with: (umask 077; openssl rand -hex 32 > FILE)"

static int open_checked(const char *file)
{
	struct stat st;
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return rpwi_fail(RPW_ERR_SYSTEM, "key file %s cannot be read: %s; " HOW_TO_MAKE_ONE,
			file, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return rpwi_fail(RPW_ERR_INVALID, "key file %s is not a regular file", file);
	}
	/* A key that others know is none. The group may read it: that is how services are given
	 * secrets. */
	if (st.st_mode & (S_IRWXO | S_IWGRP)) {
		close(fd);
		return rpwi_fail(RPW_ERR_INVALID,
			"key file %s can be read by users other than its owner, or written by its "
			"group "
			"(mode %04o): chmod 600 %s",
			file, st.st_mode & 07777, file);
	}
	return fd;
}

/* The bytes of the key, decoded in place; their number, or enum rpw_status. */
static int parse(const char *file, char *text, size_t len)
{
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	for (size_t i = 0; i < len; i++)
		if (!isprint((unsigned char)text[i]))
			return rpwi_fail(RPW_ERR_INVALID,
				"key file %s has more than one line, or something that is no "
				"text; " HOW_TO_MAKE_ONE,
				file);
	text[len] = 0;
	if (len >= HEX_DIGITS_MIN && len % 2 == 0 &&
		strspn(text, "0123456789abcdefABCDEF") == len) {
		for (size_t i = 0; i < len / 2; i++) {
			char two[3] = {text[2 * i], text[2 * i + 1], 0};
			text[i] = (char)strtoul(two, NULL, 16);
		}
		return (int)(len / 2);
	}
	if (len < TEXT_MIN)
		return rpwi_fail(RPW_ERR_INVALID,
			"the key in %s is too short to be one: %zu characters, %d are the "
			"least; " HOW_TO_MAKE_ONE,
			file, len, TEXT_MIN);
	return (int)len;
}

/* Before the key is read, and before there is a socket: without TLS nothing is sent. */
static int need_tls(const char *file)
{
	char why[TLS_WHY_MAX];
	if (!tls_open(why, sizeof(why)))
		return 0;
	return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
		"key file %s cannot be used: a key needs the library GnuTLS, and %s; install it "
		"(Debian, Ubuntu: libgnutls30; Fedora: gnutls)",
		file, why);
}

int boot_key_load(const char *file, struct boot_key **out)
{
	char text[LINE_MAX_BYTES + 1];
	int rc = need_tls(file);
	if (rc)
		return rc;
	int fd = open_checked(file);
	if (fd < 0)
		return fd;
	ssize_t n = read(fd, text, sizeof(text));
	int err = errno;
	close(fd);
	if (n < 0)
		return rpwi_fail(
			RPW_ERR_SYSTEM, "key file %s cannot be read: %s", file, strerror(err));
	if (n > LINE_MAX_BYTES)
		return rpwi_fail(RPW_ERR_INVALID,
			"key file %s has more than %d bytes: that is no key; " HOW_TO_MAKE_ONE,
			file, LINE_MAX_BYTES);
	rc = parse(file, text, (size_t)n);
	if (rc > 0) {
		struct boot_key *k = calloc(1, sizeof(*k) + strlen(file) + 1);
		if (k) {
			strcpy(k->file, file);
			k->len = (size_t)rc;
			memcpy(k->bytes, text, k->len);
		}
		rc = 0;
		if (!k || tls_domain_new(&k->tls)) {
			boot_key_free(k);
			k = NULL;
			rc = rpwi_fail(RPW_ERR_NO_MEMORY, "key file %s: no memory", file);
		}
		*out = k;
	}
	explicit_bzero(text, sizeof(text));
	return rc;
}

void boot_key_free(struct boot_key *k)
{
	if (!k)
		return;
	tls_domain_free(k->tls);
	explicit_bzero(k->bytes, sizeof(k->bytes));
	free(k);
}
