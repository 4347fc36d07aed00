/* SPDX-License-Identifier: BSD-3-Clause */
/* remedy.c - from what a failure says to what helps against it. One status has many causes: it is
 * the sentence that tells them apart. */
#include "cli/doctor/doctor.h"

#define NO_NAMES \
	"give this host a name service that answers: a `nameserver` in /etc/resolv.conf that it " \
	"reaches (`getent hosts NAME` asks it), or the name in /etc/hosts; or give the peer's " \
	"address instead of its name"

static const struct {
	const char *said; /* somewhere in the sentence; the first that is decides */
	const char *remedy;
} remedies[] = {
	{"is too short to be one",
		"both sides need the same key: `(umask 077; openssl rand -hex 32 > "
		"FILE)`, and copy that file"},
	{"can be read by users other", "`chmod 600` the key file"},
	{"key file ",
		"both sides need the same key file: `(umask 077; openssl rand -hex 32 > FILE)`"},
	{"there is no host of this name",
		"give its address, or enter the name in DNS or /etc/hosts"},
	{"does this host reach its name service", NO_NAMES},
	{"its name service does not answer", NO_NAMES},
	{"Network is unreachable",
		"give this host a route to it: `ip route get ADDRESS` says which "
		"there is, `ip route add` makes one"},
	{"No route to host", "is that host up, and on the network where the route leads (`ip route "
			     "get ADDRESS`)? A firewall may say this, too"},
	{"Connection refused", "start `ropeway doctor --serve` there, at this port"},
	{"a firewall that drops",
		"start `ropeway doctor --serve` there, and let that TCP port pass "
		"in the firewalls of both sides and between them"},
	{"Too many open files",
		"`ulimit -n` says how many descriptors a process may have: 1024 are "
		"enough"},
	{"File too large", "raise the limit of the size of files, which counts for shared memory, "
			   "too: `ulimit -f unlimited`"},
	{"memfd_create",
		"let processes call memfd_create (a container's seccomp profile may forbid "
		"it)"},
	{"no slot of QP numbers is available: Operation not permitted",
		"let processes call memfd_create (a container's seccomp profile may forbid it)"},
	{"no slot of QP numbers is available: Function not implemented",
		"let processes call memfd_create (a container's seccomp profile may forbid it)"},
	{"Cannot allocate memory", "check `ulimit -v`, and the memory limit of the control group"},
	{"has no carrier", "connect the cable, or bring up the other end of the link: the switch's "
			   "port, the veth's peer, a member of the bridge or bond"},
	{"is down: ip link", "`ip link set ... up`"},
};

const char *doctor_remedy_of(const char *said, const char *otherwise)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(remedies); i++)
		if (strstr(said, remedies[i].said))
			return remedies[i].remedy;
	return otherwise;
}
