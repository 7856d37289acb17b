# SPDX-License-Identifier: Apache-2.0
"""Rules about arrows: which file may include, call or import which, and who owns a name."""

import ast
import os
import re

from sources import C_SOURCE, Finding, code_of, lines_of, rule

LAYER_1 = {"corpus", "plan", "io", "shm", "checkpoint", "cache"}


def module_of(path):
    """Module of a file under engine/: its folder, or `top` for files that join modules of layer
    1."""
    parts = path.split("/")[1:]
    return parts[0] if len(parts) > 1 else "top"


MAY_KNOW = {  # next to itself, base and the public headers
    "client": {"shm"},
    "config": {"corpus", "object"},
    "corpus": {"object"},
    "io": {"object", "cache"},
    "flow": LAYER_1,
    "top": LAYER_1 | {"config"},
    "server": LAYER_1 | {"config", "flow", "top"},
}


def may_include(module, target):
    return target in {module, "base", "public"} | MAY_KNOW.get(module, set())


def includes(files, within="engine/"):
    """(path, line, included path or None) of every #include with quotes."""
    for path, number, line in lines_of(files, *C_SOURCE, within=within):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            name = match.group(1)
            if name.startswith("ringpack/"):
                yield path, number, "include/" + name
            elif "engine/" + name in files:
                yield path, number, "engine/" + name
            else:
                yield path, number, None


@rule({"engine/io/a.c": '#include "plan/plan.h"\n', "engine/plan/plan.h": ""})
def layers(files):
    for path, number, target in includes(files):
        if target is None:
            yield Finding(path, number, "include by the path under engine/ or include/")
            continue
        module = module_of(path)
        known = "public" if target.startswith("include/") else module_of(target)
        if not may_include(module, known):
            yield Finding(path, number, f"module {module} must not know module {known}")
    for path, number, target in includes(files, "include/"):
        if target is None or not target.startswith("include/"):
            yield Finding(path, number, "an installed header includes installed headers only")


def circles_in(arrows):
    """(node, the circle as a list that begins and ends with it) of a graph: node -> its targets."""
    done = set()

    def visit(node, trail):
        if node in trail:
            yield node, [*trail[trail.index(node):], node]
        elif node not in done:
            for target in arrows.get(node, []):
                yield from visit(target, [*trail, node])
            done.add(node)

    for node in sorted(arrows):
        yield from visit(node, [])


PROGRAM = "tools/ringpack/"


def included(files):
    """(path, included path) of every #include with quotes in the engine and the program."""
    for path, _, target in includes(files):
        if target:
            yield path, target
    for path, _, line in lines_of(files, *C_SOURCE, within=PROGRAM):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match and PROGRAM + match[1] in files:
            yield path, PROGRAM + match[1]


@rule({"engine/io/a.h": '#include "io/b.h"\n', "engine/io/b.h": '#include "io/a.h"\n'})
def cycles(files):
    arrows = {}
    for path, target in included(files):
        arrows.setdefault(path, []).append(target)
    for path, circle in circles_in(arrows):
        yield Finding(path, 1, "include cycle: " + " -> ".join(circle))


@rule({PROGRAM + "top/a.c": '#include "plan/b.h"\n', PROGRAM + "plan/b.h": "",
       PROGRAM + "plan/b.c": '#include "top/a.h"\n', PROGRAM + "top/a.h": ""})
def folders(files):
    """Includes go one way between the folders of the program. Files outside of them, such as
    options.c and main.c, are in no folder."""
    arrows = {}
    for path, target in included(files):
        source, target = os.path.dirname(path), os.path.dirname(target)
        if source != target and source.startswith(PROGRAM) and target.startswith(PROGRAM):
            arrows.setdefault(source, set()).add(target)
    for path, circle in circles_in({path: sorted(targets) for path, targets in arrows.items()}):
        yield Finding(path, 1, "circle of folders: " + " -> ".join(circle))


# A function that other files can see, at its definition.
DEFINITION = re.compile(r"^(?:static inline )?(?!static\b|typedef\b)[a-z][\w \t*]*?\b(rp_\w+)"
                        r"\s*\([^;{]*\)\n\{", re.M)
OBJECT = re.compile(r"^(?!static\b|typedef\b|extern\b)[a-z][\w \t*]*?\b(rp_\w+)"
                    r"(?:\[[^\]]*\])*(?: = |;)", re.M)
BODY = re.compile(r"^\{\n.*?^\}", re.M | re.S)


def in_program(path):
    return path.endswith((".c", ".h")) and path.startswith(("engine/", "tools/ringpack"))


def definitions(files, endings=(".c",), pattern=DEFINITION):
    """function -> file that defines it, for the engine and the program."""
    found = {}
    for path, text in files.items():
        if in_program(path) and path.endswith(endings):
            for name in pattern.findall(code_of(text)):
                found[name] = path
    return found


@rule({"engine/io/a.h": "static inline int rp_a(void)\n{\n    return rp_b();\n}\n",
       "engine/shm/b.c": "int rp_b(void)\n{\n    return rp_a();\n}\n"})
def one_way(files):
    """Calls go one way: no file calls one that calls it, or uses a table of it. A header and its .c
    count as one file."""
    found = {**definitions(files, pattern=OBJECT), **definitions(files, (".c", ".h"))}
    unit_of = {name: os.path.splitext(path)[0] for name, path in found.items()}
    calls = {}
    for path, text in files.items():
        if in_program(path):
            unit, code = os.path.splitext(path)[0], code_of(text)
            if path.endswith(".h"):  # a prototype is no call
                code = "".join(BODY.findall(code))
            names = re.findall(r"(?<!struct )(?<!enum )\b(rp_\w+)\b", code)
            calls.setdefault(unit, set()).update(unit_of.get(name, unit) for name in names)
    arrows = {unit: sorted(targets - {unit}) for unit, targets in calls.items()}
    for unit, circle in circles_in(arrows):
        yield Finding(unit + ".c", 1, "circle of calls: " + " -> ".join(circle))


PACKAGE = "tools/python/ringpack/"
# A Loader makes itself one for torch on request; only then may torch be imported.
MAY_RETURN = {(PACKAGE + "loader.py", PACKAGE + name) for name in ("_torch.py", "_device.py")}


def imported_by(path, tree):
    """Files of the package that a file of it imports, also in functions; not if only for types."""
    for node in tree.body if isinstance(tree, ast.Module) else ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path
            for _ in range(node.level):
                folder = os.path.dirname(folder)
            base = os.path.join(folder, *(node.module or "").split("."))
            for place in [base, *(os.path.join(base, name.name) for name in node.names)]:
                yield from (place.rstrip("/") + end for end in (".py", "/__init__.py"))
        yield from imported_by(path, node)


@rule({PACKAGE + "a.py": "from .b import run\n",
       PACKAGE + "b.py": "def run():\n    from .a import walk\n"})
def imports(files):
    """Imports of the Python package go one way, those inside of functions too."""
    arrows = {}
    for path, text in files.items():
        if path.startswith(PACKAGE) and path.endswith(".py"):
            found = set(imported_by(path, ast.parse(text))) & set(files)
            arrows[path] = sorted(to for to in found - {path} if (path, to) not in MAY_RETURN)
    for path, circle in circles_in(arrows):
        yield Finding(path, 1, "circle of imports: " + " -> ".join(circle))


@rule({"engine/io/a.h": "/* a.h — a list. Private to a.c. */\n",
       "engine/io/b.c": '#include "io/a.h"\n'})
def private(files):
    """A header whose head says `Private to X, Y` is included only by X and Y: files or folders."""
    owners = {}
    for path, text in files.items():
        head = re.search(r"Private to (.*?\w)\.(?:\s|$)", re.sub(r"\s*\n \* ?", " ", text[:2000]))
        if path.endswith(".h") and head:
            owners[path] = re.findall(r"[\w/]+\.[ch]\b|(?:engine|tools|tests)/[\w/]+", head[1])
    for path, number, target in [*includes(files), *includes(files, "tools/")]:
        if target in owners and not any(
                path.startswith(owner + "/") or path.endswith("/" + owner)
                for owner in owners[target]):
            yield Finding(path, number, f"{target} is private to {', '.join(owners[target])}")


def module_name(path):
    return path.split("/")[1] if path.startswith("engine/") else "the program"


@rule({"engine/io/a.c": "int rp_wood_cut(void)\n{\n}\n",
       "engine/shm/b.c": "int rp_wood_burn(void)\n{\n}\n"})
def one_owner(files):
    """The first word of a function's name belongs to one module; installed names are apart."""
    first = {}
    public = {name for path, text in files.items() if path.startswith("include/")
              for name in re.findall(r"\b(rp_\w+)\s*\(", text)}
    for name, path in sorted(definitions(files).items(), key=lambda item: item[1]):
        if name.count("_") == 1 or name in public:
            continue
        word, owner = name.split("_")[1], module_name(path)
        other = first.setdefault(word, (owner, path, name))
        if other[0] != owner:
            yield Finding(path, 1, f"{name}: the prefix rp_{word}_ is that of {other[1]}")


@rule({"engine/io/a.h": "struct rp_a {\n};\n", "engine/shm/b.h": "struct rp_a {\n};\n"})
def one_layout(files):
    """A struct tag names one struct."""
    first = {}
    for path, text in files.items():
        if path.endswith((".c", ".h")) and path.startswith(("engine/", "tools/", "include/")):
            code = code_of(text)
            for match in re.finditer(r"^struct (rp_\w+) \{", code, re.M):
                other = first.setdefault(match.group(1), path)
                if other != path:
                    yield Finding(path, code.count("\n", 0, match.start()) + 1,
                                  f"struct {match.group(1)} is another one in {other}")


DOORS = {
    "liburing.h": "engine/io/",
    "xxhash.h": "engine/base/hash",
    "yaml.h": "engine/config/",
    "linux/futex.h": "engine/shm/wait.c",
    "Random123/": "engine/plan/",
    "cmocka.h": "tests/",
}  # tests may look behind a door


@rule({"engine/flow/a.c": "#include <liburing.h>\n"})
def doors(files):
    included = re.compile(r"\s*#\s*include\s+<(.*)")
    for path, number, line in lines_of(files, *C_SOURCE):
        name = included.match(line)
        for header, place in DOORS.items() if name else ():
            if name[1].startswith(header) and not path.startswith((place, "tests/")):
                yield Finding(path, number, f"<{header}> is included in {place} only")


@rule({"engine/io/lonely.h": "/* nobody */\n"})
def used_headers(files):
    included = {os.path.basename(name)
                for _, _, line in lines_of(files, *C_SOURCE)
                for name in re.findall(r'#\s*include\s+["<]([^">]+)', line)}
    for path in files:
        if path.endswith(".h") and os.path.basename(path) not in included:
            yield Finding(path, 1, "no file includes this header")
