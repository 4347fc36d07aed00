/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - how two sides get a path: messages over boot, who sends them, and when the next path
 * is tried.
 *
 * The connecting side chooses: it walks its list of transports, of those that both sides' facts
 * allow it makes an endpoint, and says CHOICE (which, why, its handle, its tags). The listening
 * side makes its end and says ANSWER with its handle, or why not. Both bring the path up and say
 * READY; either may say BROKEN, now or any time later: then the connecting side tries the next path
 * (the transport that broke comes last, and is tried again; when all were tried in vain, all are
 * once more after a rest). Words about an earlier attempt are told by its number, and ignored. The
 * control path stays open: its end is the peer's end, and BYE says how many frames were sent, so
 * that all of them are delivered first.
 *
 * Each side chooses a message tag and a control tag at random; they go in CHOICE and ANSWER, which
 * end with a CRC-32. */
#include "msg/choice.h"
#include "msg/connect.h"
#include "msg/endpoint.h"
#include "msg/objects.h"
#include "msg/request.h"
#include "msg/rma.h"
#include "msg/rndv.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

static void deadline_set(rpw_endpoint *ep, uint64_t deadline_ns)
{
	ep->next.deadline_ns = deadline_ns;
	ep->c->timers_next_ns = RPWI_MIN(ep->c->timers_next_ns, deadline_ns);
}

void connect_await_word(rpw_endpoint *ep)
{
	ep->link.fast = false;
	if (ep->bye_heard || ep->gone_heard || ep->state != EP_UP)
		msg_todo(ep, TODO_FAIL);
	else
		deadline_set(ep, rpwi_now_ns() + DRAIN_MS * RPWI_NS_PER_MS);
}

/* What the two ends of a path with a key have in common: from their control connection, for this
 * transport and this try. */
static int path_secret(rpw_endpoint *ep, int i, uint16_t attempt, uint8_t secret[TRAN_SECRET_LEN])
{
	uint8_t context[32] = {0};
	rpwi_put_be16(context, attempt);
	snprintf((char *)context + 2, sizeof(context) - 2, "%s", tran_all[i]->name);
	return boot_export(ep->boot, "EXPORTER-ropeway-path", context, sizeof(context), secret,
		TRAN_SECRET_LEN);
}

static int path_make(rpw_endpoint *ep, int i, uint16_t attempt, uint8_t *handle, size_t *handle_len,
	char *why, size_t why_len)
{
	struct tran *t = msg_tran(ep->c, i, why, why_len);
	if (!t)
		return RPW_ERR_SYSTEM;
	*handle_len = TRAN_HANDLE_MAX;
	uint8_t secret[TRAN_SECRET_LEN];
	bool keyed = boot_has_key(ep->c->boot);
	const struct tran_control control = {.peer = boot_peer(ep->boot),
		.active = ep->active,
		.local = boot_local(ep->boot),
		.secret = keyed ? secret : NULL};
	int rc = keyed ? path_secret(ep, i, attempt, secret) : 0;
	rc = rc ? rc : tran_all[i]->ep_make(t, &control, ep, &ep->link.te, handle, handle_len);
	explicit_bzero(secret, sizeof(secret));
	if (rc) {
		ep->link.te = NULL;
		snprintf(why, why_len, "no endpoint could be made: %s", rpwi_last_error()->text);
		return rc;
	}
	ep->tran = i;
	ep->link.ops = tran_all[i];
	ep->link.breakable = ep->link.ops->caps & TRAN_CAN_BREAK;
	ep->c->t[i].endpoints++;
	return 0;
}

/* A path may take its share of the time that is left, so that there is some for those after it. */
static unsigned path_timeout_ms(rpw_endpoint *ep)
{
	uint64_t now = rpwi_now_ns(),
		 left = ep->next.until_ns > now ? (ep->next.until_ns - now) / RPWI_NS_PER_MS : 0;
	if (ep->next.candidate < ep->next.orders)
		left /= (uint64_t)(ep->next.orders - ep->next.candidate + 1);
	return (unsigned)RPWI_MAX(RPWI_MIN(left, (uint64_t)PATH_MS), (uint64_t)200);
}

static bool path_try(rpw_endpoint *ep, int i)
{
	char why[256];
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t len;
	choice_why_not(ep, i, why, sizeof(why));
	if (*why || path_make(ep, i, (uint16_t)(ep->next.attempt + 1), handle, &len, why,
			    sizeof(why))) {
		choice_reason_add(ep, tran_all[i]->name, why);
		return false;
	}
	choice_explain(ep, i);
	ep->next.attempt++;
	deadline_set(ep, rpwi_now_ns() + path_timeout_ms(ep) * RPWI_NS_PER_MS);
	int rc = say_path(ep, SAY_CHOICE, 0, tran_all[i]->name, ep->why, handle, len);
	if (rc) /* its end is about to be told; with that, or with the deadline, this ends */
		rpwi_debug("%s: a choice of path could not be sent: %s", ep->peer,
			rpw_status_name(rc));
	return true;
}

/* A path broke: was it of any use? One that was there for long was. */
static void fruit_look(rpw_endpoint *ep)
{
	uint64_t tx = ep->link.tx_count - ep->lost.again_tx,
		 rx = ep->link.rx_count - ep->lost.again_rx;
	bool moved = ep->moved || tx != ep->lost.mark_tx || rx != ep->lost.mark_rx ||
		     rpwi_now_ns() - ep->lost.up_ns > FRUITLESS_S * RPWI_NS_PER_S;
	ep->lost.fruitless = moved ? 0 : ep->lost.fruitless + 1;
	ep->moved = false;
	ep->lost.mark_tx = tx;
	ep->lost.mark_rx = rx;
}

/* What is left of a path that is of no use is closed; the connecting side goes on with the next
 * one. */
static void path_abandon(rpw_endpoint *ep)
{
	if (ep_move(ep, EP_PATH_LOST)) {
		ep->c->stat.path_changes++;
		fruit_look(ep);
		ep->lost.agains = 0;
		ep->next.candidate = 0;
		ep->next.rest_ms = 0;
		ep->next.until_ns = rpwi_now_ns() + SILENT_MS * RPWI_NS_PER_MS;
		free(ep->next.reasons);
		ep->next.reasons = NULL;
		for (int k = 0; k < ep->next.orders; k++)
			if (ep->next.order[k] == ep->tran)
				ep->next.first = k + 1;
	}
	connect_path_close(ep);
}

/* Whoever had a path keeps what it owes for as long as the peer waits for the next one: what broke
 * this path may break the next few before they are up. */
static bool rest(rpw_endpoint *ep)
{
	uint64_t now = rpwi_now_ns(), until = now + ep->next.rest_ms * RPWI_NS_PER_MS;
	if (!ep->was_up || until >= ep->next.until_ns)
		return false;
	ep->next.resting = true;
	ep->next.candidate = 0;
	ep->next.rest_ms = ep->next.rest_ms ? RPWI_MIN(2 * ep->next.rest_ms, (unsigned)REST_MS_MOST)
					    : REST_MS_LEAST;
	deadline_set(ep, until);
	return true;
}

/* Does the transport of the path that failed know how to make another that may not? */
static bool does_otherwise(rpw_endpoint *ep)
{
	const struct tran_ops *ops = ep->tran >= 0 ? tran_all[ep->tran] : NULL;
	struct tran *t = ops ? ep->c->t[ep->tran].tran : NULL;
	bool own = t && ops->again && ep->boot && ops->again(t, boot_peer(ep->boot));
	bool again = own || ep->lost.peer_again;
	ep->lost.peer_again = false;
	return again;
}

/* Paths come up, and each breaks before anything moves: more of them would do no better. */
static bool in_vain(rpw_endpoint *ep)
{
	if (ep->lost.fruitless < FRUITLESS_MAX)
		return false;
	char text[600];
	snprintf(text, sizeof(text),
		"%u paths to %s came up and broke before anything moved; the last one by %s: %s",
		ep->lost.fruitless, ep->peer, ep->tran >= 0 ? tran_all[ep->tran]->name : "?",
		text_or(ep->next.last_why, "no reason was given"));
	say_word(ep, SAY_NO_PATH, text);
	ep_fail(ep, &(struct rpwi_error){RPW_ERR_UNREACHABLE, 0, text});
	return true;
}

void connect_next_path(rpw_endpoint *ep)
{
	if (ep->state == EP_FAILED || ep->state == EP_BOOT)
		return;
	if (ep->state == EP_UP && ep->path_broken && !ep->link.breakable &&
		ep->next.deadline_ns != RPWI_NEVER)
		return; /* the word on it is on its way */
	if (ep->state == EP_UP && !ep->link.breakable) {
		ep_fail(ep, &(struct rpwi_error){RPW_ERR_PEER_GONE, 0,
				    "the path broke, and its kind cannot be resumed: the peer's "
				    "process has probably ended"});
		return;
	}
	bool was_up = ep->state == EP_UP, again = does_otherwise(ep);
	path_abandon(ep);
	if (!ep->active) {
		char why[480];
		snprintf(why, sizeof(why), "the listening side's end of the path failed%s%s",
			ep->next.last_why[0] ? ": " : "", ep->next.last_why);
		say_broken(ep, again, why);
		ep->next.last_why[0] = 0;
		deadline_set(ep, rpwi_now_ns() + SILENT_MS * RPWI_NS_PER_MS);
		return;
	}
	if (in_vain(ep))
		return;
	if (!was_up && !ep->next.resting && ep->next.attempt && ep->tran >= 0)
		choice_reason_add(ep, tran_all[ep->tran]->name,
			text_or(ep->next.last_why, "it did not come up"));
	ep->next.last_why[0] = 0;
	if (ep->next.resting) { /* what was in the way the last time is told */
		free(ep->next.reasons);
		ep->next.reasons = NULL;
	}
	ep->next.resting = false;
	if (again && !was_up && ep->lost.agains++ < AGAINS_MAX &&
		rpwi_now_ns() < ep->next.until_ns && path_try(ep, ep->tran))
		return;
	while (ep->next.candidate < ep->next.orders && rpwi_now_ns() < ep->next.until_ns)
		if (path_try(ep, ep->next.order[(ep->next.first + ep->next.candidate++) %
						ep->next.orders]))
			return;
	if (rest(ep))
		return;
	char text[1024];
	snprintf(text, sizeof(text),
		"no path to %s: %s (ropeway doctor, here and there, says what prevents it)",
		ep->peer, text_or(ep->next.reasons, "time is up"));
	say_word(ep, SAY_NO_PATH, text);
	ep_fail(ep, &(struct rpwi_error){
			    ep->next.refusal ? ep->next.refusal : RPW_ERR_UNREACHABLE, 0, text});
}

static void resume(rpw_endpoint *ep, uint64_t peer_received)
{
	link_resume(&ep->link, peer_received);
	uint64_t again = ep->link.log_frames;
	/* What the peer already knows as an RTS, it can fetch by the new path only if it is
	 * described for it. Those still in the log are, when they are sent again. */
	rndv_describe_all(ep);
	rpwi_debug("%s: goes on by %s; %llu frames are sent again", ep->peer, ep->link.ops->name,
		(unsigned long long)again);
	/* whose turn it became while there was no path has it now */
	msg_todo(ep, TODO_SEND | TODO_AM);
}

static void path_is_up(rpw_endpoint *ep)
{
	rpw_context *c = ep->c;
	bool first = !ep->was_up;
	if (first && !ep->active && !ep->listener)
		return; /* its listener was just destroyed; the caller knows */
	ep_move(ep, EP_PATH_UP);
	ep->was_up = true;
	ep->lost.up_ns = rpwi_now_ns();
	ep->next.deadline_ns = ep->next.until_ns = RPWI_NEVER;
	size_t most = RPWI_MIN(ep->link.te->limits.frame_max, (size_t)1 << 30);
	ep->eager_max =
		RPWI_MIN(c->eager_option ? c->eager_option : ep->link.te->limits.eager_max, most);
	ep->views_said = ep->peer_views = false;
	ep_keep(&ep->path_text, ep->link.te->path);
	ep_refresh(ep);
	rpwi_info("%s %s by %s (%s), because %s", first ? "connected with" : "goes on with",
		ep->peer, ep->link.ops->name, ep->path_text, text_or(ep->why, "the peer chose it"));
	msg_todo(ep, TODO_SEND);
	if (!first) {
		resume(ep, ep->peer_received);
		return;
	}
	if (ep->connecting) {
		rpw_request *r = ep->connecting;
		ep->connecting = NULL;
		req_complete(r, RPW_OK);
	}
	if (!ep->active) {
		ep->accepted = true;
		c->arriving--;
		ep->listener->fn(ep->listener, ep, ep->listener->arg);
	}
}

/* The peer's frames came before its word that it is ready. */
void connect_peer_talks(rpw_endpoint *ep)
{
	ep->peer_ready = true;
	path_is_up(ep);
}

void connect_ready(void *user, const struct rpwi_error *e)
{
	rpw_endpoint *ep = user;
	if (ep->state != EP_CHOOSING)
		return;
	if (e) {
		snprintf(ep->next.last_why, sizeof(ep->next.last_why), "%s", e->text);
		msg_todo(ep, TODO_PATH);
		return;
	}
	ep->self_ready = true;
	say_word(ep, SAY_READY, "");
	if (ep->peer_ready)
		path_is_up(ep);
}

void connect_trouble(const rpw_endpoint *ep, char *out, size_t room)
{
	*out = 0;
	if (ep->state == EP_BOOT && ep->boot)
		boot_trouble(ep->boot, out, room);
	else if (ep->state == EP_CHOOSING && (ep->next.reasons || ep->next.last_why[0]))
		snprintf(out, room, "no path yet: %.300s%s%.80s", text_or(ep->next.reasons, ""),
			ep->next.reasons && ep->next.last_why[0] ? "; " : "", ep->next.last_why);
}

/* ---- boot's up-calls ---- */

static void boot_accepted(void *user, void *listener_user, struct boot_conn *conn)
{
	rpw_context *c = user;
	rpw_listener *l = listener_user;
	rpw_endpoint *ep = ep_new(c);
	if (!ep) {
		rpwi_warn("no memory for an endpoint; the peer is rejected");
		boot_set_user(conn, NULL);
		boot_close(conn);
		return;
	}
	ep->boot = conn;
	ep->listener = l;
	ep_move(ep, EP_ARRIVES);
	ep_keep(&ep->peer, boot_peer_text(conn));
	boot_set_user(conn, ep);
	deadline_set(ep, rpwi_now_ns() + SILENT_MS * RPWI_NS_PER_MS);
	ep->next.until_ns = rpwi_now_ns() + ARRIVE_MS * RPWI_NS_PER_MS;
	if (c->arriving > ARRIVING_MAX)
		ep_doom(ep, RPW_ERR_LIMIT, "too many peers are connecting at once");
}

static bool boot_is_full(void *user, unsigned coming)
{
	const rpw_context *c = user;
	return c->arriving + coming >= ARRIVING_MAX;
}

static void boot_connected(void *user, const struct rpwi_error *e)
{
	rpw_endpoint *ep = user;
	if (!ep || ep->state != EP_BOOT)
		return;
	if (e) {
		ep->gone_heard = true;
		ep_doom_by(ep, e);
		return;
	}
	ep_keep(&ep->peer, boot_peer_text(ep->boot));
	ep_move(ep, EP_TALKS);
	ep->next.until_ns = RPWI_MAX(ep->next.until_ns, rpwi_now_ns() + RPWI_NS_PER_S);
	msg_todo(ep, TODO_PATH);
}

static void facts_take(rpw_endpoint *ep, const struct say_path *p)
{
	ep->peer_message_tag = p->message_tag;
	ep->peer_control_tag = p->control_tag;
	ep->peer_domain = p->domain;
	ep->peer_received = p->received;
	if (!ep->was_up || (int32_t)(p->credit - ep->link.tx_limit) > 0)
		ep->link.tx_limit = p->credit;
}

static bool counts_right(rpw_endpoint *ep, const struct say_path *p)
{
	if (p->received <= ep->link.tx_count && p->received >= ep->link.acked &&
		p->received - ep->link.acked <= ep->link.log_frames + (ep->was_up ? 0 : UINT32_MAX))
		return true;
	ep_breach(ep, "it says that %llu frames came; %llu were sent, %llu of them acknowledged",
		(unsigned long long)p->received, (unsigned long long)ep->link.tx_count,
		(unsigned long long)ep->link.acked);
	return false;
}

/* The connecting side wants this path; our end of it, or why not. */
static void on_choice(
	rpw_endpoint *ep, const struct say_path *p, const char *text, const uint8_t *handle)
{
	if (ep->active || (ep->state == EP_UP && !ep->link.breakable)) {
		ep_breach(ep, "it chose a path out of turn");
		return;
	}
	path_abandon(ep);
	ep->next.attempt = p->attempt;
	if (!counts_right(ep, p))
		return;
	facts_take(ep, p);
	deadline_set(ep, ep->was_up ? rpwi_now_ns() + SILENT_MS * RPWI_NS_PER_MS
				    : RPWI_MIN(rpwi_now_ns() + SILENT_MS * RPWI_NS_PER_MS,
					      ep->next.until_ns));
	char why[256] = "";
	uint8_t own[TRAN_HANDLE_MAX];
	size_t own_len = 0;
	int status = RPW_ERR_REFUSED, i = choice_index(p->transport, strlen(p->transport));
	if (!ep->listener && !ep->accepted)
		snprintf(why, sizeof(why), "the listener is closing");
	else if (!ep->link.window && !credit_open(&ep->link)) {
		status = RPW_ERR_LIMIT;
		snprintf(why, sizeof(why),
			"no room for one more endpoint in unexpected_bytes_max (%zu bytes)",
			ep->c->unexpected_max);
	} else if (i < 0)
		snprintf(why, sizeof(why), "no such transport here: %s", p->transport);
	else {
		choice_why_not(ep, i, why, sizeof(why));
		if (!*why)
			status =
				path_make(ep, i, ep->next.attempt, own, &own_len, why, sizeof(why));
	}
	if (*why) {
		say_path(ep, SAY_ANSWER, status, p->transport, why, NULL, 0);
		return;
	}
	ep_keep(&ep->why, text);
	if (say_path(ep, SAY_ANSWER, 0, p->transport, "", own, own_len)) {
		msg_todo(ep, TODO_PATH);
		return;
	}
	int rc = ep->link.ops->ep_start(ep->link.te, handle, p->handle_len, PATH_MS);
	if (rc)
		msg_todo(ep, TODO_PATH);
}

static void on_answer(
	rpw_endpoint *ep, const struct say_path *p, const char *text, const uint8_t *handle)
{
	if (!ep->active || ep->state != EP_CHOOSING || p->attempt != ep->next.attempt ||
		!ep->link.te)
		return; /* late */
	if (p->status) {
		snprintf(ep->next.last_why, sizeof(ep->next.last_why), "the peer refused: %.200s",
			text);
		ep->next.refusal = p->status == RPW_ERR_LIMIT || p->status == RPW_ERR_REFUSED
					   ? RPW_ERR_REFUSED
					   : 0;
		msg_todo(ep, TODO_PATH);
		return;
	}
	if (!counts_right(ep, p))
		return;
	facts_take(ep, p);
	int rc = ep->link.ops->ep_start(ep->link.te, handle, p->handle_len, path_timeout_ms(ep));
	if (rc) {
		snprintf(ep->next.last_why, sizeof(ep->next.last_why),
			"the peer's handle cannot be used: %.300s", rpwi_last_error()->text);
		msg_todo(ep, TODO_PATH);
	}
}

static void on_bye(rpw_endpoint *ep, const struct say_word *w, const char *text)
{
	bool orderly = w->flags & SAY_ORDERLY;
	int status = ep->was_up ? RPW_ERR_PEER_GONE : RPW_ERR_REFUSED;
	const char *how = orderly ? " in order, nothing more comes from it" : "";
	rpwi_error_say(&ep->error, status, "peer %s closed the endpoint%s%s%.300s", ep->peer, how,
		*text ? ": " : "", text);
	/* Who shuts down takes on, and acknowledges by the data path, which may be faster than its
	 * goodbye. */
	uint64_t came = orderly ? RPWI_MAX(w->received, ep->link.acked) : w->received;
	if (came > ep->link.tx_count || came < ep->link.acked) {
		ep_breach(ep,
			"its goodbye says that %llu frames came; %llu were sent, %llu of them "
			"acknowledged",
			(unsigned long long)w->received, (unsigned long long)ep->link.tx_count,
			(unsigned long long)ep->link.acked);
		return;
	}
	link_acknowledged(&ep->link, came);
	rma_flush_bye(ep, came);
	/* Both shut down, and what this side posted is still on its way: the peer waits for that.
	 * Its next goodbye is its program's last word. */
	if (orderly && ep->shutting && !ep->peer_shut) {
		ep->peer_shut = true;
		return;
	}
	ep->orderly = orderly && ep->was_up;
	ep->bye_heard = true;
	ep->peer_sent = w->sent;
	if (ep->state == EP_UP && ep->link.rx_count < w->sent && !ep->path_broken)
		deadline_set(ep, rpwi_now_ns() + DRAIN_MS * RPWI_NS_PER_MS);
	else
		msg_todo(ep, TODO_FAIL);
}

void connect_shutdown_over(rpw_endpoint *ep)
{
	ep->shutting = false;
	if (!ep->peer_shut || ep->state == EP_FAILED || ep->bye_heard || ep->gone_heard)
		return;
	ep->orderly = ep->bye_heard = true;
	msg_todo(ep, TODO_FAIL);
}

static void on_word(rpw_endpoint *ep, unsigned type, const struct say_word *w, const char *text)
{
	if (type == SAY_BYE) {
		on_bye(ep, w, text);
		return;
	}
	if (type == SAY_NO_PATH) {
		ep_doom(ep, RPW_ERR_UNREACHABLE, "%s", text);
		return;
	}
	if (w->attempt != ep->next.attempt)
		return; /* about an earlier path */
	if (type == SAY_READY && ep->state == EP_CHOOSING) {
		ep->peer_ready = true;
		if (ep->self_ready)
			path_is_up(ep);
	} else if (type == SAY_BROKEN && ep->active && !ep->next.resting) {
		/* Our own reason comes first: the peer's may be no more than that ours has reached
		 * it. */
		size_t n = strlen(ep->next.last_why);
		snprintf(ep->next.last_why + n, sizeof(ep->next.last_why) - n, "%s%.300s",
			n ? "; the peer: " : "", text);
		ep->lost.peer_again = w->flags & SAY_AGAIN;
		msg_todo(ep, TODO_PATH);
	}
}

static unsigned flags_of(unsigned type)
{
	if (type == SAY_BYE)
		return SAY_ORDERLY;
	return type == SAY_BROKEN ? SAY_AGAIN : 0;
}

static void boot_message(void *user, unsigned type, const uint8_t *m, size_t n)
{
	rpw_endpoint *ep = user;
	if (!ep || ep->state == EP_FAILED || (ep->todo & (TODO_FAIL | TODO_CLOSE)))
		return;
	bool path = type == SAY_CHOICE || type == SAY_ANSWER;
	size_t head = path ? sizeof(struct say_path) : sizeof(struct say_word);
	uint32_t crc = 0;
	if (n >= head + 4)
		memcpy(&crc, m + n - 4, 4);
	if (type < SAY_CHOICE || type > SAY_BYE || n < head + 4 ||
		crc != (uint32_t)crc32(0, m, (uInt)(n - 4))) {
		ep_breach(ep, "a control message (type %u, %zu bytes) that is garbled", type, n);
		return;
	}
	struct say_path p = {0};
	struct say_word w = {0};
	memcpy(path ? (void *)&p : (void *)&w, m, head);
	size_t text_len = path ? p.text_len : w.text_len;
	size_t handle_len = path ? p.handle_len : 0;
	unsigned version = path ? p.version : w.version;
	if (version != SAY_VERSION || w.flags & ~flags_of(type) ||
		head + text_len + handle_len + 4 != n || text_len > 1000 ||
		handle_len > TRAN_HANDLE_MAX || p.transport[sizeof(p.transport) - 1]) {
		ep_breach(ep, "a control message of version %u (this side speaks %d), %zu bytes",
			version, SAY_VERSION, n);
		return;
	}
	char text[1001];
	memcpy(text, m + head, text_len);
	text[text_len] = 0;
	/* it goes to logs, and so to terminals, where also bytes over 0x7f may be controls */
	for (char *s = text; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s > '~')
			*s = '?';
	if (type == SAY_CHOICE)
		on_choice(ep, &p, text, m + head + text_len);
	else if (type == SAY_ANSWER)
		on_answer(ep, &p, text, m + head + text_len);
	else
		on_word(ep, type, &w, text);
}

static void boot_gone(void *user, const struct rpwi_error *e)
{
	rpw_endpoint *ep = user;
	if (!ep || ep->state == EP_FAILED)
		return;
	ep->gone_heard = true;
	if (ep->bye_heard || ep->todo & TODO_FAIL)
		return; /* the reason is known */
	rpwi_error_say(&ep->error, e->status, "the control path to %s ended: %.300s",
		text_or(ep->peer, "the peer"), e->text);
	/* What it had sent before is taken first. */
	if (ep->state == EP_UP && !ep->path_broken)
		deadline_set(ep, rpwi_now_ns() + 5 * RPWI_NS_PER_MS);
	else
		msg_todo(ep, TODO_FAIL);
}

const struct boot_up connect_boot_up = {
	boot_accepted, boot_connected, boot_message, boot_gone, boot_is_full};

void connect_cancel(rpw_request *r) { ep_doom(r->ep, RPW_ERR_CANCELED, "connecting was canceled"); }

/* ---- deadlines ---- */

static void deadline_passed(rpw_endpoint *ep)
{
	ep->next.deadline_ns = RPWI_NEVER;
	if (ep->bye_heard || ep->gone_heard || (ep->state == EP_UP && ep->path_broken))
		msg_todo(ep, TODO_FAIL);
	else if (ep->state == EP_CHOOSING && ep->active) {
		snprintf(ep->next.last_why, sizeof(ep->next.last_why), "it was not up in time");
		msg_todo(ep, TODO_PATH);
	} else if (ep->state == EP_CHOOSING)
		ep_doom(ep, RPW_ERR_TIMEOUT, "the peer connected and chose no path");
}

void connect_timers(rpw_context *c, uint64_t now_ns)
{
	uint64_t next = RPWI_NEVER;
	RPWI_LIST_EACH (rpw_endpoint, ep, &c->endpoints, all) {
		if (now_ns >= ep->next.deadline_ns)
			deadline_passed(ep);
		next = RPWI_MIN(next, ep->next.deadline_ns);
	}
	c->timers_next_ns = next;
}

/* ---- the calls ---- */

int rpw_listener_create(
	rpw_context *c, const char *address, rpw_accept_fn fn, void *arg, rpw_listener **out)
{
	if (!c)
		return msg_wrong("rpw_listener_create", "the context is NULL");
	if (!address)
		return msg_wrong("rpw_listener_create", "the address is NULL");
	if (!fn)
		return msg_wrong("rpw_listener_create", "the callback is NULL");
	if (!out)
		return msg_wrong("rpw_listener_create", "out is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	rpw_listener *l = calloc(1, sizeof(*l));
	if (!l)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a listener");
	*l = (rpw_listener){.c = c, .fn = fn, .arg = arg};
	int rc = boot_listen(c->boot, address, l, &l->boot);
	if (rc) {
		free(l);
		return rc;
	}
	rpwi_list_add_tail(&c->listeners, &l->all);
	c->stat.listeners++;
	*out = l;
	return RPW_OK;
}

int rpw_listener_port(const rpw_listener *l)
{
	return l ? boot_listener_port(l->boot)
		 : rpwi_fail(RPW_ERR_INVALID, "rpw_listener_port: the listener is NULL");
}

int rpw_listener_address(const rpw_listener *l, char *out, size_t room)
{
	if (!l || !out)
		return msg_wrong(
			"rpw_listener_address", l ? "out is NULL" : "the listener is NULL");
	return RPWI_LIKELY(msg_is_ours(l->c)) ? boot_listener_contact(l->boot, out, room)
					      : msg_inherited(l->c);
}

void rpw_listener_destroy(rpw_listener *l)
{
	if (!l || !msg_is_ours(l->c))
		return; /* in a forked child it goes with its context */
	rpw_context *c = l->c;
	RPWI_LIST_EACH (rpw_endpoint, ep, &c->endpoints, all) {
		if (ep->listener != l)
			continue;
		ep->listener = NULL;
		if (!ep->accepted && ep->state != EP_FAILED)
			ep_doom(ep, RPW_ERR_REFUSED, "the listener is closing");
	}
	boot_listener_free(l->boot);
	rpwi_list_del(&l->all);
	c->stat.listeners--;
	free(l);
}

static int connect_begin(rpw_endpoint *ep, const char *address, const rpw_endpoint_options *o)
{
	char why[256], plugin[sizeof(ep->c->own.plugin)];
	const char *list = o->transports ? o->transports : ep->c->listed;
	ep->next.orders = choice_parse(list, ep->next.order, why, sizeof(why));
	int rc = ep->next.orders < 0
			 ? ep->next.orders
			 : choice_plugin(list, plugin, sizeof(plugin), why, sizeof(why));
	if (rc < 0)
		return rpwi_fail(rc, "%s", why);
	if (*plugin && strcmp(plugin, ep->c->own.plugin) != 0)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_endpoint_create asks for the network plugin %.100s, and the context "
			"hosts %.100s: name it in the options of the context",
			plugin, *ep->c->own.plugin ? ep->c->own.plugin : "none");
	if (!list || !*list)
		choice_order_by_worth(ep->c, ep->next.order, ep->next.orders);
	if (!credit_open(&ep->link))
		return rpwi_fail(RPW_ERR_LIMIT,
			"no room for one more endpoint in unexpected_bytes_max (%zu bytes): raise "
			"it",
			ep->c->unexpected_max);
	unsigned ms = o->timeout_ms ? o->timeout_ms : CONNECT_MS;
	ep->next.until_ns = rpwi_now_ns() + ms * RPWI_NS_PER_MS;
	rc = boot_connect(ep->c->boot, address, ms, ep, &ep->boot);
	if (rc)
		return rc;
	ep_keep(&ep->peer, boot_peer_text(ep->boot));
	if (o->once)
		boot_connect_once(ep->boot);
	boot_connect_refused(ep->boot, o->refused_ms);
	return 0;
}

int rpw_endpoint_create(rpw_context *c, const char *address, const rpw_endpoint_options *given,
	rpw_endpoint **out, rpw_request **req)
{
	if (!c)
		return msg_wrong("rpw_endpoint_create", "the context is NULL");
	if (!address)
		return msg_wrong("rpw_endpoint_create", "the address is NULL");
	if (!out)
		return msg_wrong("rpw_endpoint_create", "out is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	rpw_endpoint_options o = {0};
	if (given) {
		if (given->size < sizeof(size_t))
			return rpwi_fail(RPW_ERR_INVALID,
				"rpw_endpoint_options.size is %zu: set it to "
				"sizeof(rpw_endpoint_options)",
				given->size);
		memcpy(&o, given, RPWI_MIN(given->size, sizeof(o)));
	}
	rpw_endpoint *ep = ep_new(c);
	rpw_request *r = ep ? req_new(c, ep, REQ_CONNECT, req != NULL) : NULL;
	if (!r) {
		if (ep) {
			ep_move(ep, EP_ENDS);
			ep_free(ep);
		}
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for an endpoint");
	}
	ep->active = true;
	ep_move(ep, EP_DIALS);
	int rc = connect_begin(ep, address, &o);
	if (rc < 0) {
		ep_move(ep, EP_ENDS);
		req_drop(r);
		ep_free(ep);
		return rc;
	}
	ep->connecting = r;
	*out = ep;
	if (req)
		*req = r;
	return RPW_IN_PROGRESS;
}
