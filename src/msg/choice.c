/* SPDX-License-Identifier: BSD-3-Clause */
/* choice.c - which transports there are, which of them do between two processes, in which order,
 * and the words for it: why this one, why not the others. */
#include "msg/choice.h"
#include "msg/endpoint.h"
#include "msg/objects.h"

#include <stdio.h>

struct text {
	char s[1024];
};
static void text_add(struct text *t, const char *sep, const char *name, const char *what)
{
	size_t n = strlen(t->s);
	const char *colon = *name && *what ? ": " : "";
	snprintf(t->s + n, sizeof(t->s) - n, "%s%s%s%s", n ? sep : "", name, colon, what);
}

int choice_index(const char *name, size_t len)
{
	for (int i = 0; tran_all[i] && i < TRANSPORTS_MAX; i++)
		if (strlen(tran_all[i]->name) == len && !memcmp(tran_all[i]->name, name, len))
			return i;
	return -1;
}

/* Of one entry of a list, up to its comma or space: a plugin's path may have spaces. */
static size_t entry_len(const char *entry, size_t name_len)
{
	size_t len = name_len + strcspn(entry + name_len, entry[name_len] == ':' ? "," : ", ");
	while (len > name_len && entry[len - 1] == ' ')
		len--;
	return len;
}

int choice_parse(const char *list, int *order, char *why, size_t why_len)
{
	int n = 0;
	if (!list || !*list) {
		for (int i = 0; i < TRANSPORTS_MAX && tran_all[i]; i++)
			if (!(tran_all[i]->caps & TRAN_BY_NAME))
				order[n++] = i;
		return n;
	}
	struct text known = {""};
	for (int i = 0; tran_all[i]; i++) {
		char form[32];
		snprintf(form, sizeof(form), "%s%s", tran_all[i]->name,
			tran_all[i]->caps & TRAN_BY_NAME ? ":PLUGIN" : "");
		text_add(&known, ", ", form, "");
	}
	for (const char *p = list; *p;) {
		size_t name_len = strcspn(p, ":, "), len = entry_len(p, name_len);
		int i = choice_index(p, name_len);
		if (len && (i < 0 || (name_len < len && !(tran_all[i]->caps & TRAN_BY_NAME)))) {
			snprintf(why, why_len,
				"there is no transport '%.*s' in \"%.80s\": this ropeway has %.80s",
				(int)RPWI_MIN(len, (size_t)40), p, list, known.s);
			return RPW_ERR_INVALID;
		}
		bool twice = false;
		for (int k = 0; k < n; k++)
			twice |= order[k] == i;
		if (len && !twice)
			order[n++] = i;
		p += len + (p[len] ? 1 : 0);
	}
	if (!n) {
		snprintf(why, why_len,
			"the list of transports \"%.80s\" is empty: this ropeway has %.80s", list,
			known.s);
		return RPW_ERR_INVALID;
	}
	return n;
}

int choice_plugin(const char *list, char *plugin, size_t room, char *why, size_t why_len)
{
	*plugin = 0;
	for (const char *p = list ? list : ""; *p;) {
		size_t name_len = strcspn(p, ":, "), len = entry_len(p, name_len);
		const char *what = p + name_len + 1;
		size_t what_len = len > name_len ? len - name_len - 1 : 0;
		if (what_len >= room) {
			snprintf(why, why_len,
				"\"%.40s...\" is too long: at most %zu bytes may follow the colon",
				p, room - 1);
			return RPW_ERR_INVALID;
		}
		if (what_len && *plugin &&
			(strlen(plugin) != what_len || memcmp(plugin, what, what_len) != 0)) {
			snprintf(why, why_len,
				"two plugins are named in \"%.160s\": one context hosts one", list);
			return RPW_ERR_INVALID;
		}
		if (what_len) {
			memcpy(plugin, what, what_len);
			plugin[what_len] = 0;
		}
		p += len + (p[len] ? 1 : 0);
	}
	return 0;
}

void choice_order_by_worth(rpw_context *c, int *order, int n)
{
	int last[TRANSPORTS_MAX], lasts = 0, firsts = 0;
	char why[256];
	for (int k = 0; k < n; k++) {
		if (tran_all[order[k]]->usable(&c->own, NULL, why, sizeof(why)) > 0)
			last[lasts++] = order[k];
		else
			order[firsts++] = order[k];
	}
	memcpy(order + firsts, last, (size_t)lasts * sizeof(*order));
}

static bool peer_is_here(const rpw_endpoint *ep)
{
	return !memcmp(
		boot_peer(ep->boot)->host_id, ep->c->own.host_id, sizeof(ep->c->own.host_id));
}

bool choice_protects(const rpw_context *c, int i)
{
	return !boot_has_key(c->boot) || (tran_all[i]->caps & (TRAN_SEALS | TRAN_GUARDED));
}

bool choice_why_not(rpw_endpoint *ep, int i, char *why, size_t why_len)
{
	const struct tran_facts *peer = boot_peer(ep->boot);
	*why = 0;
	if (!tran_lists(ep->c->transports, tran_all[i]->name))
		snprintf(why, why_len, "not usable on this side");
	else if (!tran_lists(peer->transports, tran_all[i]->name))
		snprintf(why, why_len, "the peer has only %.60s", peer->transports);
	else if ((tran_all[i]->caps & TRAN_SAME_HOST) && !peer_is_here(ep))
		/* The facts tell no more: `ropeway doctor` does. */
		snprintf(why, why_len,
			!strcmp(peer->hostname, ep->c->own.hostname)
				? "the peer is on another host of the same name (%.60s), or in "
				  "another "
				  "network or PID namespace of this one"
				: "the peer is on another host (%.60s)",
			peer->hostname);
	else if (!choice_protects(ep->c, i))
		snprintf(why, why_len, "the endpoint has a key, and %s carries bytes in the clear",
			tran_all[i]->name);
	else {
		int rc = tran_all[i]->usable(&ep->c->own, peer, why, why_len);
		if (rc < 0 && !*why)
			snprintf(why, why_len, "not usable between these two");
		return rc > 0;
	}
	return false;
}

static const struct {
	const char *name, *because;
} reasons_table[] = {
	{"shm", "same host: shared memory is the fastest"},
	{"verbs", "an RDMA device reaches the peer"},
	{"tcp", "TCP reaches the peer"},
	{"ncclnet", "both sides name this network plugin"},
};

void choice_explain(rpw_endpoint *ep, int chosen)
{
	struct text t = {""};
	char why[256];
	if (ep->next.orders == 1)
		snprintf(t.s, sizeof(t.s), "only %s was asked for", tran_all[chosen]->name);
	else {
		const char *because = "it was the first that came up";
		for (size_t i = 0; i < RPWI_ARRAY_LEN(reasons_table); i++)
			if (!strcmp(reasons_table[i].name, tran_all[chosen]->name))
				because = reasons_table[i].because;
		text_add(&t, "", "", because);
	}
	for (int k = 0; k < ep->next.orders; k++) {
		int i = ep->next.order[k];
		if (i == chosen)
			continue;
		bool in_software = choice_why_not(ep, i, why, sizeof(why));
		const char *would = in_software ? "would do, in software" : "would do";
		text_add(&t, "; ", tran_all[i]->name, text_or(why, would));
	}
	if (boot_has_key(ep->c->boot))
		text_add(&t, "; ", "",
			tran_all[chosen]->caps & TRAN_SEALS
				? "sealed by the key of both sides (TLS 1.3)"
				: "the key admits, the kernel guards: it does not leave the host");
	if (ep->next.attempt && ep->next.reasons && *ep->next.reasons)
		text_add(&t, "; tried before: ", "", ep->next.reasons);
	ep_keep(&ep->why, t.s);
}

void choice_reason_add(rpw_endpoint *ep, const char *name, const char *why)
{
	struct text t = {""};
	if (ep->next.reasons)
		snprintf(t.s, sizeof(t.s), "%s", ep->next.reasons);
	text_add(&t, "; ", name, why);
	ep_keep(&ep->next.reasons, t.s);
}

struct tran *msg_tran(rpw_context *c, int i, char *why, size_t why_len)
{
	if (c->t[i].tran)
		return c->t[i].tran;
	int rc = c->t[i].ops->open(&c->up, &c->own, &c->t[i].tran);
	if (rc) {
		c->t[i].tran = NULL;
		snprintf(why, why_len, "it could not be opened: %s", rpwi_last_error()->text);
	}
	return c->t[i].tran;
}

bool choice_wanted(rpw_context *c, int i)
{
	int order[TRANSPORTS_MAX];
	char why[128];
	if (!strstr(c->transports, c->t[i].ops->name))
		return false;
	int n = choice_parse(c->listed, order, why, sizeof(why));
	for (int k = 0; k < n; k++)
		if (order[k] == i)
			return true;
	return false;
}
