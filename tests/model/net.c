/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - two network namespaces of the test's own, with a pair of veth between them: two hosts. */
#include "drive.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const net_device[2] = {"rpw_mdl0", "rpw_mdl1"};
static int net_fd[2] = {-1, -1};

static bool command(const char *text)
{
	int status = system(text);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

bool net_enter(unsigned which) { return !setns(net_fd[which], CLONE_NEWNET); }

bool net_make(char *why, size_t room)
{
	char text[300];
	int own;
	if (net_fd[0] >= 0)
		return true;
	own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < 2; i++) {
		if (unshare(CLONE_NEWNET)) {
			snprintf(why, room, "no network namespace can be made: %m");
			return false;
		}
		net_fd[i] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (!command("ip link set lo up"))
			goto failed;
	}
	/* here is the second; the other end goes into the first */
	snprintf(text, sizeof(text),
		"ip link add mdl1 type veth peer name mdl0 && "
		"ip link set mdl0 netns /proc/%d/fd/%d && "
		"ip addr add 10.77.0.2/24 dev mdl1 && ip addr add fd77::2/64 dev mdl1 nodad && "
		"ip link set mdl1 up",
		getpid(), net_fd[0]);
	if (!command(text) || setns(net_fd[0], CLONE_NEWNET) ||
		!command("ip addr add 10.77.0.1/24 dev mdl0 && ip addr add fd77::1/64 dev mdl0 "
			 "nodad && ip link set mdl0 up"))
		goto failed;
	if (setns(own, CLONE_NEWNET))
		abort();
	close(own);
	return true;
failed:
	snprintf(why, room, "the commands of ip(8) that connect two namespaces failed");
	if (setns(own, CLONE_NEWNET))
		abort();
	close(own);
	net_fd[0] = net_fd[1] = -1;
	return false;
}
