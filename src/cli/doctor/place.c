/* SPDX-License-Identifier: BSD-3-Clause */
/* place.c - where this process is: its host and namespaces, its addresses; and how that of the peer
 * relates to it. */
#include "cli/doctor/doctor.h"

#include "base/hash.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static const char *const namespaces[] = {"net", "pid", "user"};

/* Of the boot ID no more is told than tells hosts apart. */
static void boot_text(char out[17])
{
	char id[64] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (f && !fgets(id, sizeof(id), f))
		*id = '\0';
	if (f)
		fclose(f);
	unsigned long long h = *id ? rpwi_hash(RPWI_HASH, id, strlen(id)) : 0;
	snprintf(out, 17, "%016llx", h);
}

static json_int_t namespace_of(const char *kind)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	return stat(path, &st) ? 0 : (json_int_t)st.st_ino;
}

json_t *doctor_place(void)
{
	char boot[17];
	boot_text(boot);
	json_t *place = json_pack("{s:s}", "boot", boot);
	for (size_t i = 0; place && i < RPWI_ARRAY_LEN(namespaces); i++)
		json_object_set_new(
			place, namespaces[i], json_integer(namespace_of(namespaces[i])));
	return place;
}

enum doctor_where doctor_where(const json_t *there, char others[DOCTOR_OTHERS_LEN])
{
	char boot[17];
	const char *theirs = json_string_value(json_object_get(there, "boot"));
	size_t n = 0;
	boot_text(boot);
	others[0] = '\0';
	if (!theirs || strspn(boot, "0") == strlen(boot))
		return DOCTOR_NOWHERE;
	if (strcmp(boot, theirs) != 0)
		return DOCTOR_ELSEWHERE;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(namespaces); i++)
		if (json_integer_value(json_object_get(there, namespaces[i])) !=
			namespace_of(namespaces[i]))
			n += (size_t)snprintf(others + n, DOCTOR_OTHERS_LEN - n, "%s%s",
				n ? ", " : "", namespaces[i]);
	return n ? DOCTOR_BESIDE : DOCTOR_SAME_PLACE;
}

/* ---- addresses ---- */

void doctor_map(struct in6_addr *out, const struct in_addr *v4)
{
	memset(out, 0, sizeof(*out));
	memset(out->s6_addr + 10, 0xff, 2);
	memcpy(out->s6_addr + 12, v4, 4);
}

static bool is_v6_of(const struct sockaddr *sa, const struct in6_addr *a)
{
	if (sa->sa_family == AF_INET6)
		return !memcmp(
			&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, a, sizeof(*a));
	return sa->sa_family == AF_INET && IN6_IS_ADDR_V4MAPPED(a) &&
	       !memcmp(&((const struct sockaddr_in *)(const void *)sa)->sin_addr, a->s6_addr + 12,
		       4);
}

static bool parse(const char *text, struct in6_addr *a)
{
	char mapped[80];
	snprintf(mapped, sizeof(mapped), "::ffff:%.60s", text);
	return inet_pton(AF_INET6, text, a) == 1 || inet_pton(AF_INET6, mapped, a) == 1;
}

bool doctor_is_own_address(const char *text)
{
	struct ifaddrs *list = NULL;
	struct in6_addr a;
	bool own = false;
	if (!parse(text, &a) || getifaddrs(&list))
		return true; /* unknown facts are not mentioned */
	for (struct ifaddrs *i = list; i && !own; i = i->ifa_next)
		own = i->ifa_addr && is_v6_of(i->ifa_addr, &a);
	freeifaddrs(list);
	return own;
}

unsigned doctor_interface_mtu(int fd)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} local = {.in6 = {0}};
	socklen_t len = sizeof(local);
	struct ifaddrs *list = NULL;
	struct in6_addr a;
	struct ifreq q = {0};
	if (getsockname(fd, &local.sa, &len) || getifaddrs(&list))
		return 0;
	if (local.sa.sa_family == AF_INET6)
		a = local.in6.sin6_addr;
	else
		doctor_map(&a, &local.in.sin_addr);
	for (struct ifaddrs *i = list; i && !*q.ifr_name; i = i->ifa_next)
		if (i->ifa_addr && is_v6_of(i->ifa_addr, &a))
			snprintf(q.ifr_name, sizeof(q.ifr_name), "%s", i->ifa_name);
	freeifaddrs(list);
	return *q.ifr_name && !ioctl(fd, SIOCGIFMTU, &q) && q.ifr_mtu > 0 ? (unsigned)q.ifr_mtu : 0;
}
