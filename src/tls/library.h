/* SPDX-License-Identifier: BSD-3-Clause */
/* library.h - GnuTLS, opened when the first key of a process is used. Programs without a key do not
 * load it, and start without it; its fixes come with the system's library. Where it is not there, a
 * key is an error before anything is sent.
 */
#ifndef ROPEWAY_TLS_LIBRARY_H
#define ROPEWAY_TLS_LIBRARY_H

#include <gnutls/gnutls.h>

#include "base/base.h"

#define TLS_CALLS(X) \
	X(gnutls_alert_get) \
	X(gnutls_alert_get_name) \
	X(gnutls_alert_send_appropriate) \
	X(gnutls_auth_get_type) \
	X(gnutls_bye) \
	X(gnutls_credentials_set) \
	X(gnutls_deinit) \
	X(gnutls_error_is_fatal) \
	X(gnutls_handshake) \
	X(gnutls_handshake_set_max_packet_length) \
	X(gnutls_init) \
	X(gnutls_malloc) \
	X(gnutls_prf_rfc5705) \
	X(gnutls_priority_deinit) \
	X(gnutls_priority_init) \
	X(gnutls_priority_set) \
	X(gnutls_protocol_get_version) \
	X(gnutls_psk_allocate_client_credentials) \
	X(gnutls_psk_allocate_server_credentials) \
	X(gnutls_psk_free_client_credentials) \
	X(gnutls_psk_free_server_credentials) \
	X(gnutls_psk_set_client_credentials) \
	X(gnutls_psk_set_server_credentials_function) \
	X(gnutls_record_check_pending) \
	X(gnutls_record_recv) \
	X(gnutls_record_send) \
	X(gnutls_session_get_ptr) \
	X(gnutls_session_set_ptr) \
	X(gnutls_strerror) \
	X(gnutls_transport_set_errno) \
	X(gnutls_transport_set_ptr) \
	X(gnutls_transport_set_pull_function) \
	X(gnutls_transport_set_pull_timeout_function) \
	X(gnutls_transport_set_push_function)

/* gnutls_malloc is a variable, and here its address. */
struct tls_library {
#define X(name) __typeof__(name) *name;
	TLS_CALLS(X)
#undef X
};

/* Filled by tls_open alone. */
extern struct tls_library tls_gnutls;

#endif
