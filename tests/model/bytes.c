/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.c - see bytes.h. */
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

const char *const choice_names[CHOICES] = {
	[CH_CUT] = "requests executed but never completed",
	[CH_CUT_WITHIN] = "a WRITE cut between packets",
	[CH_SINK_EARLY] = "bytes of a READ that never completed",
	[CH_RX_EARLY] = "bytes of a SEND whose receive never completed",
	[CH_RX_STALE] = "bytes fetched from a QP that was gone",
	[CH_FLUSH_PEER] = "flushed after the peer had ended",
	[CH_RETRY_EXC] = "retries exceeded after the peer had ended",
	[CH_UC_LOST] = "UC messages lost",
	[CH_UC_WRITE] = "UC WRITEs lost",
	[CH_UC_PARTLY] = "UC SENDs in part",
	[CH_UD_LOST] = "datagrams lost",
	[CH_UD_ORDER] = "UD, UC: messages out of order",
	[CH_UD_TWICE] = "UD, UC: messages twice",
	[CH_AFTER_END] = "completions polled after their QP was destroyed",
	[CH_SRQ_LOST] = "receives of a SRQ lost with a QP",
};

static void *memory(size_t n)
{
	void *at = calloc(1, n);
	if (!at)
		abort();
	return at;
}

void image_make(struct image *im)
{
	im->tx = memory(TX_LEN);
	im->sink = memory(SINK_LEN);
	im->tgt = memory(TGT_LEN);
	im->msg = memory(MSG_MAX + 64);
	memset(im->sink, BLANK, SINK_LEN);
}

void image_round(struct image *im, const struct stream *st)
{
	pattern_fill(im->tx, st->tx_len, st->seed);
	memset(im->sink, BLANK, st->sink_used + 64 < SINK_LEN ? st->sink_used + 64 : SINK_LEN);
}

void image_target(struct image *im, uint64_t seed) { pattern_fill(im->tgt, TGT_LEN, seed); }

void image_payload(struct image *im, const struct stream *st, const struct step *p)
{
	struct piece pieces[SGE_MAX];
	const uint8_t *from = p->flags & F_SINK ? im->sink : im->tx;
	uint8_t *to = im->msg;
	unsigned n = plan_gather(st, p, pieces);
	for (unsigned i = 0; i < n; i++) {
		memcpy(to, from + pieces[i].at, pieces[i].len);
		to += pieces[i].len;
	}
}

bool image_apply(struct image *im, const struct stream *st, struct step *p)
{
	struct piece pieces[SGE_MAX];
	uint64_t was, now;
	if (kind_has_payload(p->kind)) {
		image_payload(im, st, p);
		if (!kind_is_send(p->kind))
			memcpy(im->tgt + p->to, im->msg, p->len);
		return true;
	}
	if (p->kind == K_READ) {
		const uint8_t *from = im->tgt + p->to;
		unsigned n = plan_scatter(p, pieces);
		for (unsigned i = 0; i < n; i++) {
			memcpy(im->sink + pieces[i].at, from, pieces[i].len);
			from += pieces[i].len;
		}
	} else if (kind_is_atomic(p->kind)) {
		memcpy(&was, im->tgt + p->to, 8);
		memcpy(im->sink + p->sink_at, &was, 8);
		now = p->kind == K_ADD ? was + p->cut : p->cut % 2 ? rng_mix(p->cut) : was;
		p->compare = p->cut % 2 ? was : ~was;
		memcpy(im->tgt + p->to, &now, 8);
	}
	return false;
}

int bytes_mixed(const uint8_t *at, const uint8_t *old, const uint8_t *new_, uint32_t len,
	uint32_t mtu, uint8_t stale)
{
	int got = 1;
	for (uint32_t k = 0; k < len; k += mtu) {
		uint32_t n = len - k < mtu ? len - k : mtu;
		if (!memcmp(at + k, old + k, n))
			continue;
		if (!memcmp(at + k, new_ + k, n)) {
			got = got > 2 ? got : 2;
			continue;
		}
		if (!stale)
			return 0;
		for (uint32_t i = k; i < k + n; i++)
			if (at[i] != stale && at[i] != old[i] && at[i] != new_[i])
				return 0;
		got = 3;
	}
	return got;
}

bool bytes_same(const char *what, const uint8_t *is, const uint8_t *should, size_t n, char *why,
	size_t room)
{
	if (!memcmp(is, should, n))
		return true;
	size_t first = 0, bad = 0, last = 0;
	for (size_t i = 0; i < n; i++)
		if (is[i] != should[i]) {
			if (!bad++)
				first = i;
			last = i;
		}
	snprintf(why, room,
		"%s: %zu bytes of %zu differ, between %zu and %zu: the first is %02x, not %02x",
		what, bad, n, first, last, is[first], should[first]);
	return false;
}

bool bytes_all(
	const char *what, const uint8_t *is, uint8_t should, size_t n, char *why, size_t room)
{
	if (!n || (is[0] == should && !memcmp(is, is + 1, n - 1)))
		return true;
	size_t first = n, bad = 0, last = 0;
	for (size_t i = 0; i < n; i++)
		if (is[i] != should) {
			if (!bad++)
				first = i;
			last = i;
		}
	snprintf(why, room,
		"%s: %zu bytes of %zu were changed, between %zu and %zu: the first is %02x, not "
		"%02x",
		what, bad, n, first, last, is[first], should);
	return false;
}
