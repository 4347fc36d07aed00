// header.cc - ropeway.h as C++ sees it: compiled with all warnings, linked with the library.
#include <ropeway.h>

#include <cstring>

int main()
{
	rpw_context_options o = {};
	o.size = sizeof(o);
	rpw_context *c = nullptr;
	if (rpw_context_create(&o, &c) != RPW_OK)
		return 1;
	rpw_statistics s = {};
	s.size = sizeof(s);
	int rc = rpw_context_statistics(c, &s);
	rpw_context_destroy(c);
	return rc != RPW_OK || std::strcmp(rpw_status_name(RPW_ERR_LIMIT), "RPW_ERR_LIMIT") != 0;
}
