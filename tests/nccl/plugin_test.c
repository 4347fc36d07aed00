/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin_test.c - our own NCCL plugin, loaded as NCCL loads it and called through the tables of
 * each version of the API: its promises, one a test. The path of the plugin is the first argument;
 * the rest are names of tests (globs). Both ends are in this process, each with a comm of its
 * own. */

#include "plugin_test.h"

#include <dlfcn.h>
#include <zlib.h>

const char *plugin_path;

/* ---- loading ---- */

static void all_versions(void **unused)
{
	for (int v = 5; v <= 12; v++) {
		struct pair p;
		struct ncclnet_properties props;
		pair_open(&p, v);
		assert_string_equal(ncclnet_name(p.n), "ropeway");
		OK(ncclnet_properties(p.n, 0, &props));
		assert_true(props.ptr_support & NCCL_PTR_HOST);
		assert_int_equal(props.max_recvs, PLUGIN_RECVS_MAX);
		assert_true(props.speed > 0 && props.max_comms > 1000);
		pair_message(&p, 24, 7);
		pair_message(&p, 0, 8);
		pair_message(&p, 3 << 20, 9);
		pair_close(&p);
	}
}

/* NCCL may unload it, and load it again. */
static void unloaded_and_loaded(void **unused)
{
	struct pair p;
	for (int i = 0; i < 3; i++) {
		void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
		assert_non_null(library);
		assert_non_null(dlsym(library, "ncclNetPlugin_v5"));
		assert_null(dlsym(library, "ncclNetPlugin_v4"));
		assert_int_equal(dlclose(library), 0);
	}
	pair_open(&p, 0);
	assert_int_equal(p.n->abi, 12);
	void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
	assert_int_equal(dlclose(library) | dlclose(p.n->library), 0); /* with its thread running */
	pair_message(&p, 100000, 1);
	pair_close(&p);
}

/* ---- handles ---- */

void seal(struct plugin_handle *h)
{
	h->crc = 0;
	h->token = 0;
	h->crc = (uint32_t)crc32(0, (const uint8_t *)h, sizeof(*h));
}

static void handles_refused_by_name(void **unused)
{
	struct pair p;
	char forged[NCCL_NET_HANDLE_BYTES];
	struct plugin_handle h;
	void *comm = NULL;
	pair_load(&p, 9);
	OK(ncclnet_listen(p.n, p.ctx, 0, p.handle, &p.listen_comm));
	for (size_t i = 0; i < sizeof(forged); i++)
		for (int bit = 0; bit < 8; bit++) {
			memcpy(forged, p.handle, sizeof(forged));
			forged[i] ^= (char)(1 << bit);
			REFUSED(ncclnet_connect(p.n, p.ctx, 0, forged, &comm, NULL),
				NCCL_INVALID_ARGUMENT, "garbled");
			assert_null(comm);
		}
	memset(forged, 0, sizeof(forged));
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, forged, &comm, NULL), NCCL_INVALID_ARGUMENT,
		"all zero");
	memcpy(&h, p.handle, sizeof(h));
	memcpy(h.magic, "TCPX-fpn", 8);
	seal(&h);
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL), NCCL_INVALID_ARGUMENT,
		"(TCPX-fpn)");
	memcpy(&h, p.handle, sizeof(h));
	snprintf(h.version, sizeof(h.version), "9.8.7");
	seal(&h);
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL), NCCL_INVALID_USAGE, "9.8.7");
	memcpy(&h, p.handle, sizeof(h));
	h.layout = 2;
	seal(&h);
	REFUSED(ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL), NCCL_INVALID_USAGE, "layout 2");
	/* Right in all but the nonce: an earlier listener had this port. */
	setenv("ROPEWAY_NCCL_TIMEOUT_MS", "60000", 1);
	memcpy(&h, p.handle, sizeof(h));
	h.nonce[3] ^= 1;
	seal(&h);
	int rc = 0;
	for (uint64_t until = pair_deadline(); !rc; pair_breathe(until)) {
		rc = ncclnet_connect(p.n, p.ctx, 0, &h, &comm, NULL);
		assert_null(comm);
		OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
		assert_null(p.recv);
	}
	unsetenv("ROPEWAY_NCCL_TIMEOUT_MS");
	REFUSED(rc, NCCL_REMOTE_ERROR, "not made by this listener");
	/* None of this harmed it. */
	for (uint64_t until = pair_deadline(); !p.send || !p.recv; pair_breathe(until)) {
		if (!p.send)
			OK(ncclnet_connect(p.n, p.ctx, 0, p.handle, &p.send, NULL));
		if (!p.recv)
			OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
	}
	pair_message(&p, 1000, 5);
	pair_close(&p);
}

/* ---- one version throughout ---- */

static void versions_do_not_mix(void **unused)
{
	struct pair p7, p5;
	char handle[NCCL_NET_HANDLE_BYTES], data[16] = "x";
	void *comm = NULL, *request = NULL, *mhandle = NULL, *pointer = data;
	size_t size = sizeof(data);
	int tag = 1, done = 0;
	pair_open(&p7, 7);
	pair_load(&p5, 5);
	OK(ncclnet_listen(p7.n, p7.ctx, 0, handle, &comm));
	void *listen_comm = comm;
	REFUSED(ncclnet_connect(p5.n, p5.ctx, 0, handle, &comm, NULL), NCCL_INVALID_USAGE,
		"v7, and given to connect of v5");
	assert_null(comm);
	REFUSED(ncclnet_accept(p5.n, listen_comm, &comm, NULL), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_isend(p5.n, p7.send, data, size, tag, NULL, &request), NCCL_INVALID_USAGE,
		"v7");
	REFUSED(ncclnet_irecv(p5.n, p7.recv, 1, &pointer, &size, &tag, &mhandle, &request),
		NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_reg(p5.n, p7.recv, data, size, NCCL_PTR_HOST, &mhandle), NCCL_INVALID_USAGE,
		"v7");
	request = pair_isend(&p7, data, size, tag);
	REFUSED(ncclnet_test(p5.n, request, &done, NULL), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_close_send(p5.n, p7.send), NCCL_INVALID_USAGE, "v7");
	REFUSED(ncclnet_close_listen(p5.n, listen_comm), NCCL_INVALID_USAGE, "v7");
	/* Kinds do not mix either. */
	REFUSED(ncclnet_isend(p7.n, p7.recv, data, size, tag, NULL, &request),
		NCCL_INVALID_ARGUMENT, "receive comm");
	REFUSED(ncclnet_irecv(p7.n, p7.send, 1, &pointer, &size, &tag, &mhandle, &request),
		NCCL_INVALID_ARGUMENT, "send comm");
	REFUSED(ncclnet_close_recv(p7.n, p7.listen_comm), NCCL_INVALID_ARGUMENT, "listen comm");
	REFUSED(ncclnet_isend(p7.n, NULL, data, size, tag, NULL, &request), NCCL_INVALID_ARGUMENT,
		"not a comm");
	OK(ncclnet_close_listen(p7.n, listen_comm));
	pair_message(&p7, 500, 2);
	pair_close(&p5);
	pair_close(&p7);
}

static void memory_types(void **unused)
{
	struct pair p;
	char data[64];
	void *mhandle = NULL;
	struct ncclnet_properties props;
	pair_open(&p, 8);
	OK(ncclnet_properties(p.n, 0, &props));
	OK(ncclnet_reg(p.n, p.send, data, sizeof(data), NCCL_PTR_HOST, &mhandle));
	assert_non_null(mhandle);
	REFUSED(ncclnet_dereg(p.n, p.recv, mhandle), NCCL_INVALID_ARGUMENT, "deregMr");
	OK(ncclnet_dereg(p.n, p.send, mhandle));
	static const int wrong[] = {0, 3, 7, 8, -1};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		IN_CASE("row", i);
		char word[64];
		snprintf(word, sizeof(word), "unknown memory type %d", wrong[i]);
		REFUSED(ncclnet_reg(p.n, p.send, data, sizeof(data), wrong[i], &mhandle),
			NCCL_INVALID_ARGUMENT, word);
		assert_null(mhandle);
	}
	if (!(props.ptr_support & NCCL_PTR_CUDA))
		REFUSED(ncclnet_reg(p.n, p.send, data, sizeof(data), NCCL_PTR_CUDA, &mhandle),
			NCCL_INVALID_ARGUMENT, "ptrSupport");
	/* left for close */
	OK(ncclnet_reg(p.n, p.recv, data, sizeof(data), NCCL_PTR_HOST, &mhandle));
	pair_close(&p);
}

/* ---- devices ---- */

static void virtual_device(void **unused)
{
	struct pair p;
	struct ncclnet_properties props;
	struct nccl_net_vdevice_v12 one = {.ndevs = 1}, wrong = {.ndevs = 1, .devs = {999}},
				    none = {0};
	int dev = -1;
	pair_load(&p, 12);
	REFUSED(ncclnet_make_vdevice(p.n, &dev, &wrong), NCCL_INVALID_ARGUMENT, "device 999");
	REFUSED(ncclnet_make_vdevice(p.n, &dev, &none), NCCL_INVALID_ARGUMENT, "1 to 8");
	OK(ncclnet_make_vdevice(p.n, &dev, &one));
	assert_true(dev >= 1);
	OK(ncclnet_properties(p.n, dev, &props));
	assert_int_equal(props.v_props.ndevs, 1);
	assert_int_equal(props.v_props.devs[0], 0);
	REFUSED(ncclnet_properties(p.n, dev + 1, &props), NCCL_INVALID_ARGUMENT, "no device");
	REFUSED(ncclnet_listen(p.n, p.ctx, -1, p.handle, &p.listen_comm), NCCL_INVALID_ARGUMENT,
		"no device -1");
	assert_null(p.listen_comm);
	OK(ncclnet_listen(p.n, p.ctx, dev, p.handle, &p.listen_comm));
	for (uint64_t until = pair_deadline(); !p.send || !p.recv; pair_breathe(until)) {
		if (!p.send)
			OK(ncclnet_connect(p.n, p.ctx, dev, p.handle, &p.send, NULL));
		if (!p.recv)
			OK(ncclnet_accept(p.n, p.listen_comm, &p.recv, NULL));
	}
	pair_message(&p, 100000, 1);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_versions),
		cmocka_unit_test(unloaded_and_loaded),
		cmocka_unit_test(handles_refused_by_name),
		cmocka_unit_test(versions_do_not_mix),
		cmocka_unit_test(memory_types),
		cmocka_unit_test(strangers_never_become_comms),
		cmocka_unit_test(truncation_is_an_error),
		cmocka_unit_test(groups_in_any_order),
		cmocka_unit_test(bound_of_requests),
		cmocka_unit_test(sizes_of_all_kinds),
		cmocka_unit_test(quiet_sender),
		cmocka_unit_test(close_with_work_in_flight),
		cmocka_unit_test(close_after_sending),
		cmocka_unit_test(connect_and_accept_end),
		cmocka_unit_test(end_before_accept),
		cmocka_unit_test(several_of_one_listener),
		cmocka_unit_test(many_comms_take_few_descriptors),
		cmocka_unit_test(virtual_device),
		cmocka_unit_test(helpers_come_and_go),
		cmocka_unit_test(who_posts_gets_in),
		cmocka_unit_test(a_forked_child_ends),
		cmocka_unit_test(comms_and_threads_at_once),
	};
	return pair_main(argc, argv, tests, RPWI_ARRAY_LEN(tests));
}
