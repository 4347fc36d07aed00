#!/usr/bin/env python3
"""Makes the page template of `ropeway explain` one C array, and words.json tables in C, so that the command needs no files beside it.

Usage: embed.py EXPLAIN.HTML EXPLAIN.CSS WORDS.JSON EXPLAIN.JS... PAGE.C WORDS.C WORDS.H
"""
import json
import pathlib
import sys


def array(name, text):
    data = text.encode()
    rows = (", ".join(str(byte) for byte in data[at:at + 24]) for at in range(0, len(data), 24))
    body = ",\n\t".join(rows)
    return f"const unsigned char {name}[] = {{\n\t{body}}};\nconst size_t {name}_len = sizeof({name});\n"


def words_in_c(words):
    quoted = lambda row: ", ".join('"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"' for s in row)
    row = lambda key, en, zh: "{" + quoted([key]) + ", {" + quoted([en, zh]) + "}},\n"
    return ("/* Made by embed.py. */\n#include \"cli/explain/explain.h\"\n\nconst struct ex_words rpwi_explain_diagnosis[EX_DIAGNOSES] = {\n"
            + "".join(f"[EX_DIAG_{key.upper()}] = {row(key, *texts)}" for key, texts in words["diagnoses"].items())
            + "};\nconst struct ex_words rpwi_explain_word[] = {\n" + "".join(row(*w) for w in words["words"])
            + "};\nconst unsigned rpwi_explain_words = RPWI_ARRAY_LEN(rpwi_explain_word);\n")


def main():
    page, css, table, *scripts, output, words_c, words_h = sys.argv[1:]
    read = lambda path: pathlib.Path(path).read_text(encoding="utf-8")
    words = json.loads(read(table))
    pathlib.Path(words_c).write_text(words_in_c(words), encoding="utf-8")
    pathlib.Path(words_h).write_text("/* Made by embed.py. */\nenum ex_diagnosis {\n" + "".join(f"\tEX_DIAG_{key.upper()},\n" for key in words["diagnoses"]) + "\tEX_DIAGNOSES\n};\n", encoding="ascii")
    diagnoses = f"const DIAGNOSES = {json.dumps(words['diagnoses'], ensure_ascii=False)};"
    style, script = read(css), "\n".join(['"use strict";', diagnoses, *map(read, scripts)])
    for text, end in ((style, "</style"), (script, "</script")):
        if end in text.lower():
            sys.exit(f"embed.py: {end} inside of what it would end")
    whole = read(page).replace("@@CSS@@", style).replace("@@JS@@", script)
    before, after = whole.split("@@DATA@@")
    pathlib.Path(output).write_text(
        "/* Made by embed.py. */\n#include \"cli/explain/page.h\"\n\n" + array("rpwi_explain_page_head", before) + array("rpwi_explain_page_tail", after), encoding="ascii")


if __name__ == "__main__":
    main()
