# SPDX-License-Identifier: BSD-3-Clause
"""The C reference, of the comments of include/ropeway.h: they are its one source.

The header's own form is taken as it is: a comment belongs to what follows it; `/* ---- x ---- ... */` begins a section; "[context]" says who may call;
a line that begins with an argument's name and two spaces tells of it; "Gives" begins what is returned."""
import re

ARGUMENT = re.compile(r"^([a-z_]+(?:, [a-z_]+)*) {2,}(\S.*)$")
HEAD = "Everything is declared in ``<ropeway.h>``; link with ``pkg-config --cflags --libs ropeway``. This page is made from the header's comments."


def text_of(comment):
    lines = [re.sub(r"^\s*\*? ?", "", line.rstrip()) for line in comment.strip().removeprefix("/*").removesuffix("*/").splitlines()]
    return [line.rstrip() for line in lines]


def escaped(text):
    text = re.sub(r"`([^`]+)`", r"``\1``", text.replace("\\", "\\\\").replace("*", "\\*"))
    text = re.sub(r'(?<![\w`"/.])(rpw_\w+)', lambda m: f":c:expr:`{m[1]}`" if m[1] in KNOWN else f"``{m[1]}``", text)
    text = re.sub(r"(?<![\w`])(RPW_\w*[A-Z0-9])(?![\w*])", r"``\1``", text)
    return re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text)  # else a reference


KNOWN = set()


def paragraphs(lines, names=()):
    """reST of a comment: its text, what its arguments are, what it gives."""
    out, fields, field, block = [], [], None, []

    def flush():
        if block:
            out.extend(["", *[escaped(line) for line in block]])
            block.clear()

    in_code = False
    for line in lines:
        argument = ARGUMENT.match(line)
        if argument and all(name in names for name in argument[1].split(", ")):
            flush()
            field = [argument[1], [argument[2]]]
            fields.append(field)
        elif re.match(r"Gives\b", line) or (field and line and not line.startswith("  ")):
            flush()
            field = None
            block.append(line)
            if re.match(r"Gives\b", line):
                block[-1] = line
        elif field and line.startswith("  "):
            field[1].append(line.strip())
        elif line.startswith("    ") and not field:
            if not in_code:
                flush()
                out.extend(["", "::", ""])
            out.append("   " + line)
            in_code = True
            continue
        elif not line:
            flush()
        else:
            block.append(line)
        in_code = False
    flush()
    told = [line for name, text in fields for line in ("", f"``{name}``", "   " + escaped(" ".join(text)))]
    at = next((n for n, line in enumerate(out) if line.startswith("Gives")), len(out) + 1) - 1  # arguments come before what is given
    return out[:at] + told + [""] + out[at:]


def members(body):
    """[(comment, declaration)] of the inside of a struct or an enum."""
    found, comment = [], []
    for part in re.findall(r"/\*.*?\*/|[^/]+", body, re.S):
        if part.startswith("/*"):
            comment = text_of(part)
            continue
        for declaration in re.split(r"[;,](?=\s*(?:\n|$))", part):
            declaration = " ".join(declaration.split())
            if declaration:
                found.append((comment, declaration.rstrip(",;")))
                comment = []
    return found


def directive(kind, signature, comment, names=(), indent=""):
    lines = [f"{indent}.. c:{kind}:: {signature}"]
    body = paragraphs(comment, names)
    return lines + [f"{indent}   {line}".rstrip() for line in ["", *body, ""]]


def one(code, comment):
    """reST of one declaration."""
    code = code.strip().rstrip(";")
    flat = re.sub(r"/\*.*?\*/", " ", code, flags=re.S)
    flat = " ".join(flat.split())
    lines = list(comment)
    if not flat or flat.startswith(("#", 'extern "C"', "}")):
        return []
    caller = re.match(r"\[([^\]]+)\] ?(.*)", lines[0]) if lines else None
    if caller:
        lines[0] = caller[2]
    struct = re.match(r"(?s)typedef struct \{(.*)\} (\w+)$", code)
    enum = re.match(r"(?s)enum ?(\w*) ?\{(.*)\}$", code)
    if struct:
        out = directive("struct", struct[2], lines)
        for note, member in members(struct[1]):
            names = re.match(r"(.*?)(\**\w+(?:, \w+)*)$", member)
            for name in names[2].split(", "):
                out += directive("member", names[1] + name, note, indent="   ")
                note = []
        return out
    if enum:
        out = directive("enum", enum[1], lines) if enum[1] else [""] + paragraphs(lines) + [""]
        for note, value in members(enum[2]):
            for name in value.split(", "):
                if enum[1]:
                    out += directive("enumerator", name, note, indent="   ")
                else:
                    out += directive("macro", name.partition(" = ")[0], ["Is " + name.partition(" = ")[2] + ". " + " ".join(note)])
        return out
    function = re.match(r"RPW_API (.*)$", flat)
    if function:
        names = re.findall(r"(\w+)(?=[,)])", flat[flat.index("("):])
        out = directive("function", function[1], lines, names)
        if caller:
            out[2:2] = ["", f"   *Called from: {caller[1]}.*", ""]
        return out
    callback = re.match(r"typedef (.*)\(\*(\w+)\)\((.*)\)$", flat)
    if callback:
        return directive("type", f"{callback[1]}(*{callback[2]})({callback[3]})", lines)
    opaque = re.match(r"typedef struct \w+ (\w+)$", flat)
    if opaque:
        return directive("type", opaque[1], lines)
    raise ValueError(f"include/ropeway.h: this page does not know what this is: {flat}")


def reference(header):
    """reST of the whole header."""
    KNOWN.update({name for found in re.findall(r"\b(rpw_\w+)\(|\} (rpw_\w+);|struct (rpw_\w+) |\(\*(rpw_\w+)\)|enum (rpw_\w+) ", header) for name in found if name})
    top = re.search(r"/\* ropeway\.h.*?\*/", header, re.S)
    head = text_of(top[0])
    head[0] = re.sub(r"^ropeway\.h - ", "", head[0])
    head[0] = head[0][0].upper() + head[0][1:]
    out = ["C reference", "===========", "", HEAD]
    for paragraph in "\n".join(head).split("\n\n"):
        lines = paragraph.splitlines()
        rows = [re.match(r"  (\[[^\]]+\]) +(.*)", line) for line in lines]
        plain = [line for line, row in zip(lines, rows) if not row]
        cut = next((n for n, row in enumerate(rows) if row), len(lines))
        out += ["", *map(escaped, lines[:cut])]
        if any(rows):
            out += [""] + [f"- ``{row[1]}``: {escaped(row[2])}" for row in rows if row]
            out += ["", *map(escaped, [line for line in plain if line not in lines[:cut]])]
    rest = header[top.end():]
    rest = re.sub(r"(?m)^#(?:.*\\\n)*.*$", "", rest)
    rest = re.sub(r'(?m)^extern "C" \{$|^\}$', "", rest)
    comment, at = [], 0
    # A comment, or a declaration up to its semicolon outside of braces.
    for part in re.finditer(r"(?s)\s*(/\*.*?\*/)|\s*((?:[^;{}/]|/(?!\*))*(?:\{(?:[^{}])*\})?[^;{}]*;)", rest):
        if part[1]:
            section = re.match(r"(?s)/\* ---- (.*?) ----(.*)\*/$", part[1])
            if section:
                title, _, more = section[1].replace("\n", " ").partition(": ")
                title = title[0].upper() + title[1:]
                out += ["", title, "-" * len(title), ""]
                if more:
                    out += [escaped(" ".join(re.sub(r"\*", "", more).split())), ""]
                out += paragraphs(text_of("/*" + section[2] + "*/")) + [""]
                comment = []
            else:
                comment = text_of(part[1])
        else:
            out += [""] + one(part[2], comment)
            comment = []
    return "\n".join(out) + "\n"
