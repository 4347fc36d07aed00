/* fake_rdmacm.c - what the real librdmacm does at start: it lists the devices through its PLT, and so through a preload. */
#include <infiniband/verbs.h>

#undef ibv_get_device_list

__attribute__((visibility("default"))) int fake_rdmacm_count(int *software);
__attribute__((visibility("default"))) int fake_rdmacm_count(int *software)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	*software = 0;
	for (int i = 0; i < n; i++)
		*software += list[i]->name[0] == 'r';
	if (list)
		ibv_free_device_list(list);
	return n;
}
