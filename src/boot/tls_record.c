/* tls_record.c - TLS 1.3 records (RFC 8446, 5) once the handshake is over. A GnuTLS session is 19 KB, of which an idle connection needs two keys and two counters; so when the handshake is
 * done GnuTLS is asked for those (as one does to hand a connection to the kernel's TLS), and its session freed. The cipher stays GnuTLS's; it is set up for each record, since between two words
 * of a control path minutes may pass.
 *
 * What is left out: key updates and tickets. No ropeway sends them; whoever does is told by name that it may not, and RECORDS_MAX ends a connection long before a key is used too much (5.5).
 */
#include "boot/tls_priv.h"

#include <errno.h>
#include <gnutls/crypto.h>

#include "ropeway.h"

enum { HEADER = 5, TAG = 16, NONCE = 12, PLAIN_MAX = 16384, SEALED_MAX = PLAIN_MAX + 256, RECORDS_MAX = 1 << 24 };
enum { TYPE_ALERT = 21, TYPE_HANDSHAKE = 22, TYPE_DATA = 23 };
_Static_assert(HEADER + 1 + TAG <= (int)BOOT_TLS_OVERHEAD, "what a message grows by");
_Static_assert(SEALED_MAX <= (int)BOOT_TLS_PLAIN_MAX, "what a record can hold");

static bool direction_take(gnutls_session_t s, bool read, struct boot_tls_direction *d)
{
	gnutls_datum_t mac, iv, key;
	unsigned char seq[8];
	if (gnutls_record_get_state(s, read, &mac, &iv, &key, seq) || iv.size != NONCE || key.size > sizeof(d->key))
		return false;
	memcpy(d->key, key.data, key.size);
	d->key_len = (uint8_t)key.size;
	memcpy(d->iv, iv.data, NONCE);
	d->seq = rpwi_get_be64(seq);
	return true;
}

bool boot_tls_keys_take(gnutls_session_t s, struct boot_tls_keys *k)
{
	k->cipher = gnutls_cipher_get(s);
	return direction_take(s, true, &k->in) && direction_take(s, false, &k->out);
}

static int cipher_open(const struct boot_tls_keys *k, const struct boot_tls_direction *d, gnutls_aead_cipher_hd_t *out)
{
	gnutls_datum_t key = {(unsigned char *)d->key, d->key_len};
	return gnutls_aead_cipher_init(out, k->cipher, &key) ? -ENOMEM : 0;
}

/* 5.3: the record's number, in the last bytes of the IV. */
static void nonce_of(const struct boot_tls_direction *d, uint8_t nonce[NONCE])
{
	memcpy(nonce, d->iv, NONCE);
	for (unsigned i = 0; i < 8; i++)
		nonce[NONCE - 1 - i] ^= (uint8_t)(d->seq >> 8 * i);
}

static int seal(struct boot_tls_keys *k, uint8_t type, const void *p, size_t len, uint8_t *out, size_t *out_len)
{
	uint8_t nonce[NONCE], plain[BOOT_TLS_SEND_MAX + 1];
	size_t sealed = len + 1 + TAG, room = sealed;
	gnutls_aead_cipher_hd_t cipher;
	if (len > BOOT_TLS_SEND_MAX || k->out.seq >= RECORDS_MAX)
		return -EMSGSIZE;
	int rc = cipher_open(k, &k->out, &cipher);
	if (rc)
		return rc;
	memcpy(plain, p, len);
	plain[len] = type;
	memcpy(out, (uint8_t[HEADER]){TYPE_DATA, 3, 3, (uint8_t)(sealed >> 8), (uint8_t)sealed}, HEADER);
	nonce_of(&k->out, nonce);
	rc = gnutls_aead_cipher_encrypt(cipher, nonce, NONCE, out, HEADER, TAG, plain, len + 1, out + HEADER, &room) || room != sealed ? -ENOMEM : 0;
	gnutls_aead_cipher_deinit(cipher);
	k->out.seq++;
	*out_len = HEADER + sealed;
	return rc;
}

static int put(struct boot_conn *c, struct boot_tls_keys *k, uint8_t type, const void *p, size_t len)
{
	uint8_t record[BOOT_TLS_SEND_MAX + BOOT_TLS_OVERHEAD];
	size_t n;
	int rc = seal(k, type, p, len, record, &n);
	return rc ? rc : boot_conn_put(c, record, n);
}

int boot_tls_record_send(struct boot_conn *c, struct boot_tls_keys *k, const void *p, size_t len) { return put(c, k, TYPE_DATA, p, len); }

void boot_tls_record_bye(struct boot_conn *c, struct boot_tls_keys *k) { put(c, k, TYPE_ALERT, (uint8_t[]){GNUTLS_AL_WARNING, GNUTLS_A_CLOSE_NOTIFY}, 2); }

ssize_t boot_tls_record_need(const uint8_t *p, size_t len)
{
	if (len < HEADER)
		return HEADER;
	size_t sealed = rpwi_get_be16(p + 3);
	/* What type a record has says its content; outside they are all data. */
	return p[0] == TYPE_DATA && p[1] == 3 && p[2] == 3 && sealed > TAG && sealed <= SEALED_MAX ? (ssize_t)(HEADER + sealed) : -1;
}

/* 5.2, 5.4: the type is the last byte that is not zero. */
static int opened(struct boot_conn *c, uint8_t *plain, size_t n)
{
	while (n && !plain[n - 1])
		n--;
	if (!n)
		return -EBADMSG;
	uint8_t type = plain[--n];
	if (type == TYPE_DATA)
		boot_conn_take(c, plain, n);
	else if (type == TYPE_ALERT && n == 2 && plain[1] == GNUTLS_A_CLOSE_NOTIFY)
		boot_conn_lost(c, 0);
	else if (type == TYPE_ALERT && n == 2)
		boot_conn_broken(c, RPW_ERR_PROTOCOL, "TLS alert: %s", gnutls_alert_get_name(plain[1]) ?: "of an unknown kind");
	else
		boot_conn_broken(c, RPW_ERR_PROTOCOL, "TLS: a %s, which ropeway does not send",
			type == TYPE_HANDSHAKE ? "key update or ticket" : "record of an unknown kind");
	return 0;
}

int boot_tls_record_take(struct boot_conn *c, struct boot_tls_keys *k, const uint8_t *record, size_t len)
{
	uint8_t nonce[NONCE], plain[BOOT_TLS_PLAIN_MAX];
	size_t n = sizeof(plain);
	gnutls_aead_cipher_hd_t cipher;
	if (k->in.seq >= RECORDS_MAX)
		return -EOVERFLOW;
	int rc = cipher_open(k, &k->in, &cipher);
	if (rc)
		return rc;
	nonce_of(&k->in, nonce);
	rc = gnutls_aead_cipher_decrypt(cipher, nonce, NONCE, record, HEADER, TAG, record + HEADER, len - HEADER, plain, &n) ? -EBADMSG : 0;
	gnutls_aead_cipher_deinit(cipher);
	k->in.seq++;
	return rc ? rc : opened(c, plain, n);
}
