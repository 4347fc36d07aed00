/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_choice.c - NCCL takes the first RMA table that has a device, before its own backends. So ours
 * has none where another backend would be better, or where ropeway does not carry the rest. */
#include "nccl/rma.h"

#include <dlfcn.h>
#include <stdlib.h>

int rma_init(int abi, nccl_logger log, void **instance)
{
	*instance = NULL;
	plugin_log_to(log);
	struct plugin_ctx *c = plugin_ctx_new(abi);
	*instance = c;
	return c ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

/* "ropeway" among the names of a list: by itself, or within the name of a file. */
static bool names_us(const char *variable)
{
	const char *list = getenv(variable);
	return list && strstr(list, "ropeway");
}

static bool has_direct_nic(void)
{
	for (int i = 0; i < plugin_devices(); i++)
		if (plugin_ptr_support(plugin_device(i)) & NCCL_PTR_CUDA)
			return true;
	return false;
}

/* Why not; NULL: it is. */
static const char *not_chosen(void)
{
	const char *forced = getenv("ROPEWAY_RMA");
	if (forced && *forced)
		return strcmp(forced, "0") ? NULL : "ROPEWAY_RMA=0";
	if (names_us("NCCL_RMA_PLUGIN") || names_us("NCCL_GIN_PLUGIN"))
		return NULL;
	if (!plugin_net_in_use())
		return "NCCL does not use ropeway's network plugin; ROPEWAY_RMA=1, or "
		       "NCCL_RMA_PLUGIN=ropeway, chooses it anyway";
	if (has_direct_nic())
		return "a NIC here reaches the memory of GPUs by itself, which NCCL's own backend "
		       "uses; ROPEWAY_RMA=1 chooses ropeway anyway";
	return NULL;
}

int rma_devices(int abi, int *ndev)
{
	const char *why = not_chosen();
	*ndev = why ? 0 : plugin_devices();
	if (why)
		plugin_info("%s: no device: %s", PLUGIN_API(abi), why);
	else
		plugin_info("%s: version %s, %d device%s", PLUGIN_API(abi), ROPEWAY_VERSION, *ndev,
			rpwi_plural((uint64_t)*ndev));
	return NCCL_SUCCESS;
}

/* Memory of GPUs needs no device that reaches it: it is staged. */
static bool has_driver(void)
{
	const char *other = secure_getenv("ROPEWAY_CUDA_LIBRARY");
	void *driver = dlopen(other && *other ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (driver)
		dlclose(driver);
	return driver != NULL;
}

static struct {
	pthread_mutex_t lock;
	bool asked, has;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

int rma_ptr_support(void)
{
	pthread_mutex_lock(&driver.lock);
	if (!driver.asked)
		driver.has = has_driver();
	driver.asked = true;
	bool has = driver.has;
	pthread_mutex_unlock(&driver.lock);
	return NCCL_PTR_HOST | (has ? NCCL_PTR_CUDA : 0);
}
