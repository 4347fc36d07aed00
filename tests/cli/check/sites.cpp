// SPDX-License-Identifier: BSD-3-Clause
// sites.cpp - as sites.c, with names that a compiler of C++ mangles.
extern "C" {
#include "record.h"
}

namespace net
{
template <typename T> struct Queue {
	__attribute__((noinline)) int post(T n) const
	{
		record(); // line of post
		return static_cast<int>(n) + 1;
	}
};
} // namespace net

int main(int argc, char **)
{
	net::Queue<int> queue;
	volatile int n = queue.post(argc); // line of main
	print_report();
	return n < 0;
}
