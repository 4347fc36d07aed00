#!/usr/bin/env python3
"""Makes the profiles one C file, so that a preloaded library reads no file for them. Comments, where the sources are, stay behind.

Usage: embed.py NAME.profile... OUT.C
"""
import pathlib
import sys


def lines(text):
    kept = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return [line for line in kept if line]


def main():
    *profiles, output = map(pathlib.Path, sys.argv[1:])
    names = [path.stem for path in profiles]
    quoted = lambda line: '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'
    body = "".join(f'\t{{"{path.stem}",\n' + "\n".join("\t\t" + quoted(line) for line in lines(path.read_text(encoding="ascii"))) + "},\n" for path in profiles)
    output.write_text('/* Made by embed.py. */\n#include "like/fields.h"\n\nstatic const struct {\n\tconst char *name, *text;\n} profile[] = {\n' + body + "};\n"
                      + "const char *const rpwi_like_names[] = {" + "".join(f'"{name}", ' for name in names) + "NULL};\n\n"
                      + "const char *like_text(const char *name)\n{\n\tfor (size_t i = 0; i < RPWI_ARRAY_LEN(profile); i++)\n"
                      + "\t\tif (!strcmp(profile[i].name, name))\n\t\t\treturn profile[i].text;\n\treturn NULL;\n}\n", encoding="ascii")


if __name__ == "__main__":
    main()
