/* SPDX-License-Identifier: BSD-3-Clause */
/* devices.c - `ropeway devices`: what RDMA devices there are, software and real, which GID index to
 * use, and why one cannot be used.
 *
 * What verbs can tell is asked with verbs, for all devices alike. A software device that cannot be
 * opened still has an interface and addresses: those, and the reason, come from io, which verbs has
 * no words for.
 */
#include "base/choice.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "io/io.h"
#include "like/like.h"
#include "preload/refused.h"

#include <errno.h>
#include <jansson.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "ropeway devices"
enum { PORT = 1 };

/* One device, as it is printed. */
struct view {
	char name[64], interface[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
	bool software, usable;
	char reason[RPWI_WHY_LEN + 64]; /* why it is not usable, or what to know about it */
	const char *state;
	unsigned mtu_bytes; /* of the IB path; 0 if unknown */
	unsigned interface_mtu_bytes;
	struct cli_gid gid[CLI_GIDS_MAX];
	int gid_count, gid_index; /* -1: none to use */
};

/* How packets go to processes of this user here. */
struct same_host {
	bool memory, fetches;
	char why[RPWI_WHY_LEN]; /* neither */
};

/* ---- gathering ---- */

static const struct rpwi_netdev *find_netdev(
	const struct rpwi_netdev *list, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(list[i].name, name))
			return &list[i];
	return NULL;
}

static void view_netdev(struct view *v, const struct rpwi_netdev *n)
{
	snprintf(v->interface, sizeof(v->interface), "%s", n->ifname);
	v->interface_mtu_bytes = n->mtu;
	v->state = n->up ? "ACTIVE" : "DOWN";
	for (unsigned i = 0; i < n->gid_count; i++) {
		if (!n->gid[i].addr.family) /* an empty place of the table */
			continue;
		struct cli_gid *g = &v->gid[v->gid_count++];
		*g = (struct cli_gid){
			.index = i, .type = IBV_GID_TYPE_ROCE_V2, .ifindex = (uint32_t)n->ifindex};
		memcpy(g->gid.raw, n->gid[i].raw, sizeof(g->gid.raw));
	}
}

/* Could a program have UDP port 4791 on the address of that GID (ALL_GIDS: on each of the device)
 * now? Opens nothing for good. */
enum { ALL_GIDS = -1 };
static bool port_is_free(const struct rpwi_netdev *n, int only, char *why, size_t why_len)
{
	struct rpwi_steer *steer;

	if (!n->up) {
		rpwi_netdev_why_down(n, why, why_len);
		return false;
	}
	int err = rpwi_steer_open(&steer);
	if (err) {
		snprintf(why, why_len, "no slot of QP numbers is available: %s", strerror(-err));
		if (err == -ENOSPC)
			rpwi_steer_explain_full(why, why_len);
		return false;
	}
	for (unsigned i = 0; !err && i < n->gid_count; i++) {
		struct rpwi_port *port;
		if (!n->gid[i].usable || (only != ALL_GIDS && (int)i != only))
			continue;
		err = rpwi_port_open(steer, &n->gid[i].addr, false, &port, why, why_len);
		if (!err)
			rpwi_port_close(port);
		else if (!why[0])
			snprintf(why, why_len, "UDP port %d: %s", RPWI_UDP_PORT, strerror(-err));
	}
	rpwi_steer_close(steer);
	return !err;
}

/* A ropeway of another user that just starts or ends holds the port for a moment and answers
 * nothing: only what lasts is an error. */
static int wait_for_port(const struct rpwi_netdev *n, char *why, size_t why_len)
{
	struct view v = {0};
	char reason[RPWI_WHY_LEN] = "";

	view_netdev(&v, n);
	int best = rpwi_cli_gid_pick(v.gid, v.gid_count);
	for (int i = 0; i < 10; i++) {
		if (best < 0 || port_is_free(n, best, reason, sizeof(reason)))
			return 0;
		usleep(100 * 1000);
	}
	snprintf(why, why_len, "%s cannot be used: %s", n->name, reason);
	return -EADDRINUSE;
}

int rpwi_cli_device_usable(const char *name, char *why, size_t why_len)
{
	struct rpwi_netdev *netdevs = NULL;
	int num = 0, ret = -ENODEV;

	struct ibv_device **list = ibv_get_device_list(&num);
	for (int i = 0; i < num; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ret = 0;
	if (list)
		ibv_free_device_list(list);
	why[0] = '\0';
	if (ret)
		snprintf(why, why_len, "there is no device '%s'; `ropeway devices` lists them",
			name);
	int count = rpwi_netdev_list(&netdevs, NULL);
	const struct rpwi_netdev *netdev = find_netdev(netdevs, count, name);
	if (!ret && netdev)
		ret = wait_for_port(netdev, why, why_len);
	free(netdevs);
	return ret;
}

/* What a program would see after opening it. */
static void view_opened(struct view *v, struct ibv_device *dev)
{
	struct ibv_context *ctx = ibv_open_device(dev);
	struct ibv_port_attr port;

	if (!ctx) {
		v->usable = false;
		if (!v->reason[0])
			snprintf(v->reason, sizeof(v->reason), "cannot be opened: %s",
				strerror(errno));
		return;
	}
	int err = ibv_query_port(ctx, PORT, &port);
	if (err) {
		v->usable = false;
		snprintf(v->reason, sizeof(v->reason), "port %d cannot be queried: %s", PORT,
			strerror(err));
	} else {
		v->state = rpwi_cli_port_state(port.state);
		v->mtu_bytes = rpwi_cli_mtu_bytes(port.active_mtu);
		v->usable = port.state == IBV_PORT_ACTIVE;
		if (!v->usable)
			snprintf(v->reason, sizeof(v->reason), "its port is %s", v->state);
	}
	int count = rpwi_cli_gid_table(ctx, PORT, v->gid);
	v->gid_count = RPWI_MAX(count, 0);
	ibv_close_device(ctx);
}

static void view_finish(struct view *v)
{
	char text[CLI_GID_LEN];
	int best = rpwi_cli_gid_pick(v->gid, v->gid_count);

	v->gid_index = best < 0 ? -1 : (int)v->gid[best].index;
	if (best < 0) {
		if (v->usable)
			snprintf(v->reason, sizeof(v->reason),
				"it has no GID: its interface has no address");
		v->usable = false;
		return;
	}
	if (!v->interface[0] && v->gid[best].ifindex &&
		!if_indextoname(v->gid[best].ifindex, v->interface))
		v->interface[0] = '\0';
	rpwi_cli_gid_text(&v->gid[best].gid, text);
	snprintf(v->address, sizeof(v->address), "%s",
		rpwi_cli_gid_is_ipv4(&v->gid[best].gid) ? text + strlen("::ffff:") : text);
}

struct reals {
	char name[CLI_TRIED_MAX][64]; /* hidden ones */
	unsigned hidden;
	struct cli_tried tried[CLI_TRIED_MAX];
	int tries; /* 0: nothing was tried */
	bool broken;
};

static bool is_unsafe(const struct reals *r, const char *name)
{
	for (int i = 0; i < r->tries; i++)
		if (r->tried[i].unsafe && !strcmp(r->tried[i].name, name))
			return true;
	return false;
}

static void view_fill(struct view *v, struct ibv_device *dev, const struct rpwi_netdev *netdevs,
	int count, const struct reals *reals)
{
	*v = (struct view){.state = "UNKNOWN"};
	snprintf(v->name, sizeof(v->name), "%s", ibv_get_device_name(dev));
	const struct rpwi_netdev *netdev = find_netdev(netdevs, count, v->name);
	v->software = netdev;
	if (netdev)
		view_netdev(v, netdev);
	v->usable = !netdev || port_is_free(netdev, ALL_GIDS, v->reason, sizeof(v->reason));
	if (v->usable && !is_unsafe(reals, v->name))
		view_opened(v, dev);
	view_finish(v);
}

static struct same_host same_host(void)
{
	struct same_host h = {.memory = rpwi_wire_wanted(NULL) != RPWI_WIRE_UDP};

	if (h.memory)
		h.fetches = rpwi_lanes_may_fetch(h.why, sizeof(h.why));
	else
		snprintf(h.why, sizeof(h.why), "ROPEWAY_WIRE=udp");
	return h;
}

/* ---- real devices ---- */

/* Programs see none that the list hides, and neither does this one. */
static bool is_real(struct ibv_device *dev)
{
	return !rpwi_choice_is_ours(ibv_get_device_name(dev));
}

/* Nor does this process list them then. */
static void leave_out_reals(const char *why)
{
	fprintf(stderr, NAME ": real devices are left out, since %s\n", why);
	rpwi_choice_add("software");
}

/* Not by this process: one may be hidden because its driver crashes. */
static void find_hidden(struct reals *r)
{
	struct cli_tried all[CLI_TRIED_MAX];
	char why[RPWI_WHY_LEN];

	if (!rpwi_choice_hides_any())
		return;
	int n = rpwi_cli_reals(all, why, sizeof(why));
	if (n < 0)
		leave_out_reals(why);
	for (int i = 0; i < n; i++)
		if (rpwi_choice_hides(all[i].name))
			memcpy(r->name[r->hidden++], all[i].name, sizeof(r->name[0]));
}

static void view_tried(struct view *v, struct reals *r)
{
	for (int i = 0; i < r->tries; i++) {
		if (r->tried[i].works || strcmp(r->tried[i].name, v->name) != 0)
			continue;
		v->usable = false;
		r->broken = true;
		snprintf(v->reason, sizeof(v->reason), "it cannot make a queue pair: %s",
			r->tried[i].why);
	}
}

static void why_hidden(char *why, size_t len)
{
	snprintf(why, len, "ROPEWAY_DEVICES=%.128s hides it; `first` in its place shows it",
		rpwi_choice());
}

void rpwi_cli_software_first(struct ibv_device **list, int count)
{
	int at = 0;
	for (int i = 0; i < count; i++) {
		struct ibv_device *d = list[i];
		if (is_real(d))
			continue;
		memmove(&list[at + 1], &list[at], (size_t)(i - at) * sizeof(*list));
		list[at++] = d;
	}
}

/* ---- for people ---- */

static const char *gid_note(const struct view *v, const struct cli_gid *g)
{
	if ((int)g->index == v->gid_index)
		return v->usable ? "  <- use this one" : "";
	return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)g->gid.raw) ? "  link-local" : "";
}

static void print_view(const struct view *v)
{
	char text[CLI_GID_LEN];

	printf("%s: %s device", v->name, v->software ? "software" : "real");
	if (v->interface[0])
		printf(" on %s", v->interface);
	if (v->address[0])
		printf(", %s", v->address);
	printf(", %s", v->state);
	if (v->mtu_bytes)
		printf(", MTU %u", v->mtu_bytes);
	if (v->interface_mtu_bytes)
		printf(" (%s: %u)", v->interface, v->interface_mtu_bytes);
	putchar('\n');
	if (!v->usable)
		printf("    CANNOT BE USED: %s\n", v->reason);
	for (int i = 0; i < v->gid_count; i++)
		printf("    GID %-2u %-39s %s%s\n", v->gid[i].index,
			rpwi_cli_gid_text(&v->gid[i].gid, text), rpwi_cli_gid_type(v->gid[i].type),
			gid_note(v, &v->gid[i]));
}

/* What a peer on this host may expect; whether it is of this user shows when the two meet. */
static void print_same_host(const struct same_host *h)
{
	if (!h->memory)
		puts("\nPeers on this host: UDP (ROPEWAY_WIRE=udp).");
	else if (h->fetches)
		puts("\nPeers on this host (same user): shared memory; large payloads fetched "
		     "directly.");
	else
		printf("\nPeers on this host (same user): shared memory; payloads copied, since "
		       "%s.\n",
			h->why);
}

static void print_hidden(const struct rpwi_netdev *n)
{
	char why[RPWI_WHY_LEN];

	rpwi_netdev_why_hidden(n, why, sizeof(why));
	printf("%s: software device on %s, hidden from programs\n    %s\n", n->name, n->ifname,
		why);
}

static void print_reals(const struct reals *r)
{
	char why[RPWI_WHY_LEN];

	why_hidden(why, sizeof(why));
	for (unsigned i = 0; i < r->hidden; i++)
		printf("%s: real device, hidden from programs\n    %s\n", r->name[i], why);
	if (r->broken)
		puts("\n`ropeway run --devices auto` hides the real devices that cannot make a "
		     "queue "
		     "pair.");
}

static void print_refused(void)
{
	enum { COLUMNS = 100 };
	struct ropeway_refused r;
	char *rest, *name;
	int at = 0;

	if (ropeway_refused(0, &r))
		fputs("\nrdma-core's calls that the software device refuses (`ropeway doctor` "
		      "says what to use instead):",
			stdout);
	for (unsigned n = 0; ropeway_refused(n, &r); n++)
		for (name = strtok_r(r.calls, ", ", &rest); name;
			name = strtok_r(NULL, ", ", &rest)) {
			bool begins = !at || at + (int)strlen(name) + 3 > COLUMNS;
			const char *after = at ? "," : "", *before = " ";
			at += 2 + (int)strlen(name);
			if (begins) {
				before = "\n    ";
				at = 4 + (int)strlen(name);
			}
			printf("%s%s%s", after, before, name);
		}
	if (at)
		puts("");
}

/* A profile only narrows: what the device that it is of has beyond this one. */
static void print_like(const struct rpwi_like *l)
{
	char more[512];
	bool any = false;

	printf("\nLike %s%s%s: programs see no more of these devices than it has.\n", l->name,
		*l->about ? ", " : "", l->about);
	for (int key = 0; key < RPWI_LIKE_KEYS; key++) {
		if (!rpwi_like_more(l, (enum rpwi_like_key)key, more, sizeof(more)))
			continue;
		if (!any)
			puts("What it has beyond them:");
		any = true;
		printf("    %-26s %s\n", rpwi_like_key_name((enum rpwi_like_key)key), more);
	}
	if (!any)
		puts("It has nothing beyond them.");
}

static void print_text(const struct view *views, int count, const struct rpwi_netdev *hidden,
	unsigned hidden_count, const struct same_host *h, const struct reals *r)
{
	const struct view *first = NULL;

	for (int i = 0; i < count; i++) {
		print_view(&views[i]);
		if (!first && views[i].usable && views[i].software)
			first = &views[i];
	}
	for (unsigned i = 0; i < hidden_count; i++)
		print_hidden(&hidden[i]);
	print_reals(r);
	if (first) {
		print_same_host(h);
		print_refused();
	}
	if (*rpwi_like()->name)
		print_like(rpwi_like());
	if (!count && !hidden_count)
		puts("There is no device: no interface is up with an address (loopback is enough: "
		     "ip link set lo up).");
	const char *like = getenv("ROPEWAY_LIKE");
	if (first)
		printf("\nFor example:  ropeway run%s%s -- ibv_rc_pingpong -d %s -g %d\n",
			like && *like ? " --like " : "", like ? like : "", first->name,
			first->gid_index);
}

/* ---- for programs ---- */

static json_t *json_or_null(const char *text) { return *text ? json_string(text) : json_null(); }
static json_t *json_positive(unsigned n) { return n ? json_integer(n) : json_null(); }

static json_t *view_json(const struct view *v)
{
	json_t *gids = json_array();
	char text[CLI_GID_LEN];

	for (int i = 0; i < v->gid_count; i++)
		json_array_append_new(
			gids, json_pack("{s:i, s:s, s:s}", "index", (int)v->gid[i].index, "gid",
				      rpwi_cli_gid_text(&v->gid[i].gid, text), "type",
				      rpwi_cli_gid_type(v->gid[i].type)));
	const char *kind = v->software ? "software" : "hardware";
	json_t *index = v->gid_index < 0 ? json_null() : json_integer(v->gid_index);
	json_t *reason = json_or_null(v->usable ? "" : v->reason);
	return json_pack("{s:s, s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "name", v->name,
		"kind", kind, "interface", json_or_null(v->interface), "address",
		json_or_null(v->address), "state", v->state, "mtu", json_positive(v->mtu_bytes),
		"interface_mtu", json_positive(v->interface_mtu_bytes), "gids", gids, "gid_index",
		index, "usable", (int)v->usable, "reason", reason);
}

static json_t *hidden_json(const struct rpwi_netdev *n)
{
	char why[RPWI_WHY_LEN];

	rpwi_netdev_why_hidden(n, why, sizeof(why));
	return json_pack("{s:s, s:s, s:s}", "name", n->name, "interface", n->ifname, "reason", why);
}

static json_t *real_json(const char *name)
{
	char why[RPWI_WHY_LEN];

	why_hidden(why, sizeof(why));
	return json_pack("{s:s, s:n, s:s}", "name", name, "interface", "reason", why);
}

static json_t *refused_json(void)
{
	json_t *refused = json_array();
	struct ropeway_refused r;

	for (unsigned n = 0; ropeway_refused(n, &r); n++)
		json_array_append_new(refused, json_pack("{s:s, s:s, s:s}", "lacks", r.lacks,
						       "calls", r.calls, "instead", r.instead));
	return refused;
}

static json_t *like_json(const struct rpwi_like *l)
{
	json_t *beyond = json_object();
	char more[512];

	for (int key = 0; key < RPWI_LIKE_KEYS; key++)
		if (rpwi_like_more(l, (enum rpwi_like_key)key, more, sizeof(more)))
			json_object_set_new(beyond, rpwi_like_key_name((enum rpwi_like_key)key),
				json_string(more));
	return json_pack("{s:s, s:o, s:o}", "name", l->name, "about", json_or_null(l->about),
		"beyond", beyond);
}

static int print_json(const struct view *views, int count, const struct rpwi_netdev *hidden,
	unsigned hidden_count, const struct same_host *h, const struct reals *r)
{
	json_t *devices = json_array(), *unseen = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(devices, view_json(&views[i]));
	for (unsigned i = 0; i < hidden_count; i++)
		json_array_append_new(unseen, hidden_json(&hidden[i]));
	for (unsigned i = 0; i < r->hidden; i++)
		json_array_append_new(unseen, real_json(r->name[i]));
	json_t *same = json_pack("{s:s, s:b, s:o}", "way", h->memory ? "memory" : "udp", "fetches",
		(int)h->fetches, "reason", json_or_null(h->why));
	json_t *like = *rpwi_like()->name ? like_json(rpwi_like()) : json_null();
	json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:o}", "devices", devices, "hidden", unseen,
		"same_host", same, "refused", refused_json(), "like", like);
	return rpwi_cli_json(NAME, root, JSON_INDENT(2));
}

/* ---- options ---- */

struct options {
	bool json, try;
	const char *like;
};
static const struct cli_option option[] = {
	{"json", 'j', CLI_FLAG, NULL,
		"print an object whose `devices` have name, kind (software, hardware), interface, "
		"address, state, mtu, interface_mtu, gids (index, gid, type), "
		"gid_index, usable, reason; whose `hidden` are those that programs do not see: "
		"name, interface, reason; whose `same_host` has way (memory, udp), fetches, "
		"reason; whose `refused` are rdma-core's calls that the software device refuses: "
		"lacks, calls, instead; and whose `like` (or null) has name, about, beyond",
		CLI_INTO(struct options, json)},
	{"try", 't', CLI_FLAG, NULL,
		"also try to make a queue pair on each real device, in another process and for at "
		"most 2 s: some list themselves and cannot",
		CLI_INTO(struct options, try)},
	{"like", 0, CLI_TEXT, "NAME|FILE",
		"as with `ropeway run --like`, and also list what the device that the profile is "
		"of "
		"has beyond these: efa-limits, mlx5, rxe, thunderbolt, or FILE (docs/like.md)",
		.words = rpwi_like_names, CLI_INTO(struct options, like)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[--json] [--try] [--like NAME|FILE]",
	.about = "Lists the RDMA devices of this machine, software and real: interface, address, "
		 "state, MTU, GIDs, the GID index to give to programs (-g, "
		 "-x), and why a device cannot be used, or is hidden (ROPEWAY_DEVICES chooses). "
		 "Then the calls of the installed rdma-core that the software device refuses.",
	.option = option,
};

/* Of --try. */
static void try_reals(struct reals *r)
{
	char why[RPWI_WHY_LEN];

	r->tries = rpwi_cli_try(r->tried, why, sizeof(why));
	if (r->tries >= 0)
		return;
	leave_out_reals(why);
}

static int list_devices(const struct options *o)
{
	struct rpwi_netdev *netdevs = NULL;
	struct reals *reals = calloc(1, sizeof(*reals));
	int num = 0, status = CLI_OK;

	if (!reals)
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	if (o->try)
		try_reals(reals);
	if (reals->tries >= 0)
		find_hidden(reals);
	struct ibv_device **list = ibv_get_device_list(&num);
	if (!list) {
		free(reals);
		return rpwi_cli_fail(CLI_FAILED, NAME, "cannot list devices: %s", strerror(errno));
	}
	rpwi_cli_software_first(list, num);
	unsigned all = 0;
	int netdev_count = rpwi_netdev_list(&netdevs, &all); /* < 0: none is known */
	unsigned shown = (unsigned)RPWI_MAX(netdev_count, 0);
	const struct rpwi_netdev *hidden = netdevs ? netdevs + shown : NULL;
	unsigned hidden_count = netdevs ? all - shown : 0;
	struct view *views = calloc((size_t)num + 1, sizeof(*views));
	for (int i = 0; views && i < num; i++) {
		view_fill(&views[i], list[i], netdevs, netdev_count, reals);
		view_tried(&views[i], reals);
	}
	struct same_host h = same_host();
	if (!views)
		status = rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	else if (o->json)
		status = print_json(views, num, hidden, hidden_count, &h, reals);
	else
		print_text(views, num, hidden, hidden_count, &h, reals);
	free(views);
	free(netdevs);
	free(reals);
	ibv_free_device_list(list);
	return status;
}

int rpwi_cli_device_names(void)
{
	struct rpwi_netdev *devs = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);
	unsigned all = 0;

	rpwi_netdev_list(&devs, &all);
	for (unsigned i = 0; devs && i < all; i++)
		puts(devs[i].name);
	for (struct ibv_device **d = list; d && *d; d++)
		if (!rpwi_choice_is_ours(ibv_get_device_name(*d)))
			puts(ibv_get_device_name(*d));
	free(devs);
	if (list)
		ibv_free_device_list(list);
	return CLI_OK;
}

int rpwi_cli_devices(int argc, char **argv)
{
	struct options o = {0};
	int status = cli_options_parse(&command, &o, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	if (o.like) {
		struct rpwi_like like;
		char why[RPWI_WHY_LEN];
		if (rpwi_like_read(o.like, &like, why, sizeof(why)))
			return cli_options_invalid(&command, "like", o.like, why);
		setenv("ROPEWAY_LIKE", o.like, 1);
	}
	if (*rpwi_like()->wrong)
		return rpwi_cli_fail(CLI_USAGE, NAME, "%s", rpwi_like()->wrong);
	return list_devices(&o);
}
