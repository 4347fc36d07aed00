#!/usr/bin/env python3
"""Makes the page template of `ropeway explain` one C array, so that the command needs no files beside it.

Usage: embed.py EXPLAIN.HTML EXPLAIN.CSS EXPLAIN.JS... OUTPUT.C
"""
import pathlib
import sys


def array(name, text):
    data = text.encode()
    rows = (", ".join(str(byte) for byte in data[at:at + 24]) for at in range(0, len(data), 24))
    body = ",\n\t".join(rows)
    return f"const unsigned char {name}[] = {{\n\t{body}}};\nconst size_t {name}_len = sizeof({name});\n"


def main():
    page, css, *scripts, output = sys.argv[1:]
    read = lambda path: pathlib.Path(path).read_text(encoding="utf-8")
    style, script = read(css), "\n".join(read(path) for path in scripts)
    for text, end in ((style, "</style"), (script, "</script")):
        if end in text.lower():
            sys.exit(f"embed.py: {end} inside of what it would end")
    whole = read(page).replace("@@CSS@@", style).replace("@@JS@@", script)
    before, after = whole.split("@@DATA@@")
    pathlib.Path(output).write_text(
        "/* Made by embed.py. */\n#include \"cli/explain/page.h\"\n\n" + array("rpwi_explain_page_head", before) + array("rpwi_explain_page_tail", after), encoding="ascii")


if __name__ == "__main__":
    main()
