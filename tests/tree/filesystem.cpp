/* SPDX-License-Identifier: BSD-3-Clause */
/* filesystem.cpp - what C++ sees of a device: names below it, one a line; then a file; then where it is. */
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace fs = std::filesystem;

int main(int argc, char **argv)
{
	const fs::path dir = argc > 1 ? argv[1] : "";
	for (const auto &e : fs::recursive_directory_iterator(dir))
		std::cout << (e.is_symlink() ? 'l' : e.is_directory() ? 'd' : '-') << ' '
			  << e.path().lexically_relative(dir).string() << '\n';
	std::string guid;
	std::ifstream(dir / "node_guid") >> guid;
	std::cout << "guid " << guid << "\npath " << fs::canonical(dir).string() << "\nlink "
		  << fs::read_symlink(dir).string() << '\n';
	fs::current_path(dir / "ports");
	std::cout << "cwd " << fs::current_path().string() << ' ' << fs::exists("1/state") << '\n';
}
