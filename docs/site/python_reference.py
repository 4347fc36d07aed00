# SPDX-License-Identifier: BSD-3-Clause
"""The Python reference: signatures of python/ropeway, from the code and from the stubs of what is C's (_core.pyi), and what is said of each in the first of: its
docstring, the docstring in C (python/core/*.c), its comment."""
import ast
import re

CORE = ("Operation", "Received", "Memory", "RemoteKey")
HEAD = "Made from the signatures and docstrings of the package. The tutorial is :doc:`../docs/python/README`."


def c_docstrings(folder):
    """{(class, method): text} of the tables in C."""
    found = {}
    for path in sorted(folder.glob("*.c")):
        text = path.read_text(encoding="utf-8")
        for table in re.finditer(r"static Py(?:MethodDef|GetSetDef|MemberDef) (\w+?)_(?:methods|getset|members)\[\] = \{(.*?)\n\};", text, re.S):
            for entry in re.finditer(r'\{\s*"(\w+)"((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\}', table[2]):
                words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', entry[2])).replace("\\n", "\n").replace('\\"', '"')
                words = words.split("--\n\n", 1)[-1].strip()
                if words:
                    found[table[1], entry[1]] = words
    return found


def docstring_of(path):
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def comment_of(lines, node):
    """The comment above a definition, or behind it."""
    first = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])]) - 2
    above = []
    while first >= 0 and lines[first].lstrip().startswith("#"):
        above.insert(0, lines[first].lstrip("# \t"))
        first -= 1
    behind = re.search(r"\s# (.*)$", lines[node.end_lineno - 1])
    return " ".join(above) or (behind[1] if behind and "noqa" not in behind[1] else "")


def escaped(text):
    text = re.sub(r"`([^`]+)`", r"``\1``", text.replace("\\", "\\\\").replace("*", "\\*").replace("|", "\\|"))
    return re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text)  # else a reference


def signature(node):
    args = ast.unparse(node.args)
    args = re.sub(r"^(self|cls)(, )?", "", args)
    return f"{node.name}({args})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def body_of(text, indent):
    """reST of a docstring: paragraphs, indented code, and lines that begin with a name and two spaces as definitions."""
    out, code = [""], False
    for paragraph in re.split(r"\n\s*\n", text or ""):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if not lines:
            continue
        if all(line.startswith("    ") for line in lines):
            out += [*([] if code else [indent + "::", ""]), *[indent + line for line in lines], ""]
            code = True
            continue
        code, plain = False, []
        for line in lines:
            named = re.match(r"(\w+) {2,}(\S.*)", line)
            if named:
                out += [indent + escaped(" ".join(plain)), ""] if plain else []
                plain = []
                out += [f"{indent}``{named[1]}``", f"{indent}   {escaped(named[2])}"]
            elif line.startswith("  ") and out[-1].startswith(indent + "   ") and not plain:
                out.append(f"{indent}   {escaped(line.strip())}")
            else:
                if out[-1]:
                    out.append("")
                plain.append(line.strip())
        out += [indent + escaped(" ".join(plain)), ""] if plain else [""]
    return out


class Module:
    def __init__(self, *sources, c=None):
        self.lines = "\n".join(path.read_text(encoding="utf-8") for path in sources).splitlines()
        self.tree = ast.parse("\n".join(self.lines))
        self.c = c or {}
        listed = [node.value for node in self.tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
        self.public = {name for names in listed for name in ast.literal_eval(names)}

    def of(self, *kinds):
        return [node for node in self.tree.body if isinstance(node, kinds) and (node.name in self.public or not self.public)]

    def classes(self):
        return self.of(ast.ClassDef)

    def functions(self):
        return self.of(ast.FunctionDef, ast.AsyncFunctionDef)

    def words(self, node, *owner):
        return ast.get_docstring(node) or (self.c.get((owner[0].lower(), node.name)) if owner else None) or comment_of(self.lines, node)

    def members(self, node, seen, base=None):
        """reST of a class's public members; overloads under one head."""
        out = []
        for inner in node.body:
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and not inner.name.startswith("_"):
                if (inner.name, "overload") in seen or (inner.name in seen and not is_overload(inner)):
                    continue
                same = [other for other in node.body if getattr(other, "name", None) == inner.name]
                if is_overload(inner):
                    seen.add((inner.name, "overload"))
                seen.add(inner.name)
                if is_property(inner):
                    out += [f"   .. py:property:: {inner.name}", *([f"      :type: {ast.unparse(inner.returns)}"] if inner.returns else [])]
                else:
                    kind = "      :async:" if isinstance(inner, ast.AsyncFunctionDef) else None
                    overloads = [other for other in same if is_overload(other)]
                    heads = [signature(other) for other in overloads or same if not is_property(other)]
                    out += [f"   .. py:method:: {heads[0]}", *[" " * 18 + head for head in heads[1:]], *([kind] if kind else [])]
                out += body_of(next(filter(None, (self.words(other, node.name) for other in same)), ""), "      ")
            elif isinstance(inner, ast.AnnAssign) and not inner.target.id.startswith("_") and inner.target.id not in seen:
                seen.add(inner.target.id)
                out += [f"   .. py:attribute:: {inner.target.id}", f"      :type: {ast.unparse(inner.annotation)}", *body_of(comment_of(self.lines, inner), "      ")]
            elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Attribute):  # a method of the base under another name
                name, of_base = inner.targets[0].id, next(other for other in base[1].body if getattr(other, "name", "") == inner.value.attr)
                seen.add(name)
                out += [f"   .. py:method:: {name}{signature(of_base).removeprefix(of_base.name)}", *body_of(base[0].words(of_base, node.name), "      ")]
            elif isinstance(inner, ast.Assign) and not inner.targets[0].id.startswith("_"):
                out += [f"   .. py:attribute:: {inner.targets[0].id}", f"      :value: {ast.unparse(inner.value)}", ""]
        return out

    def klass(self, node, base=None):
        """reST of a class, with the members of a base of another module."""
        init = next((inner for inner in node.body if getattr(inner, "name", "") == "__init__"), None) or (base and next((inner for inner in base[1].body if getattr(inner, "name", "") == "__init__"), None))
        args = re.sub(r"^[^(]*|( -> .*)$", "", signature(init)) if init and "BaseException" not in ast.unparse(init) else ""
        args = "" if args.startswith("(context: ") else args  # a context makes them
        bases = [ast.unparse(b) for b in node.bases if ast.unparse(b) in ("IntEnum", "IntFlag", "Exception", "TimeoutError", "Error")]
        out = [f".. py:class:: {node.name}{args}", "", *([f"   Bases: {', '.join(f'``{b}``' for b in bases)}", ""] if bases else [])]
        seen = set()
        text = self.words(node) or (base and base[0].words(base[1]))
        out += body_of(text, "   ") + self.members(node, seen, base)
        if base:
            out += base[0].members(base[1], seen)
        return out + [""]


def is_property(node):
    return any(ast.unparse(d) == "property" for d in node.decorator_list)


def is_overload(node):
    return any(ast.unparse(d) == "overload" for d in node.decorator_list)


def reference(python):
    """reST of the whole reference. python: the folder of that name."""
    place = python / "ropeway"
    core = Module(place / "_core.pyi", c=c_docstrings(python / "core"))
    aio = Module(place / "__init__.py", place / "_errors.py", place / "_aio.py")
    blocking = Module(place / "blocking.py")
    of_core = {node.name: node for node in core.classes()}
    out = ["Python reference", "================", "", HEAD, ""]
    for title, name, module in (("ropeway", "ropeway", aio), ("ropeway.blocking", "ropeway.blocking", blocking)):
        out += [title, "-" * len(title), "", f".. py:module:: {name}", "", *body_of(docstring_of(place / ("__init__.py" if module is aio else "blocking.py")), "")]
        for node in module.functions():
            out += [f".. py:function:: {signature(node)}", *(["   :async:"] if isinstance(node, ast.AsyncFunctionDef) else []), *body_of(module.words(node), "   ")]
        for node in module.classes():
            base = of_core.get(node.name) if any(ast.unparse(b).startswith("core.") for b in node.bases) else None
            out += module.klass(node, (core, base) if base else None)
        if module is aio:
            for name in CORE:
                out += core.klass(of_core[name])
    return "\n".join(out) + "\n"
