#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The project's rules that a machine can check, each with a snippet that it must flag.

    tidy.py            check the repository (self-test first); exit 1 if anything is found
    tidy.py RULE...    only these rules
"""

import ast
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import defects

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
Finding = defects.Finding
# name -> (function(files) -> findings, control: {path: text} that must be flagged)
RULES = {"defects": (defects.check, defects.CONTROL)}

FILE_LINES = 500
FUNCTION_LINES = 70
C_SOURCE = (".c", ".h", ".cc")


def rule(control):
    """Register a rule together with files in which it must find something."""

    def register(function):
        RULES[function.__name__] = (function, control)
        return function

    return register


def read_tree():
    """path -> text of every file that git tracks or would track."""
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode == 0:
        paths = [p for p in listed.stdout.split("\0") if p]
    else:  # an unpacked archive
        paths = [os.path.relpath(p, ROOT) for p in glob.glob(f"{ROOT}/**", recursive=True)]
        paths = [p for p in paths if not p.startswith("build/")]
    files = {}
    for path in sorted(paths):
        try:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                files[path] = file.read()
        except (UnicodeDecodeError, IsADirectoryError, FileNotFoundError):
            continue  # golden binaries
    return files


def lines_of(files, *endings, within=""):
    for path, text in files.items():
        if path.endswith(endings) and path.startswith(within):
            for number, line in enumerate(text.split("\n"), 1):
                yield path, number, line


def blank_out(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text):
    """C without comments and literals; lines keep their numbers."""
    tokens = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(tokens, blank_out, text, flags=re.S)


def code_lines(files, *endings):
    coded = {p: code_of(t) for p, t in files.items() if p.endswith(endings)}
    return lines_of(coded, *endings)


# ---- who may know whom -----------------------------------------------------------------------

LAYER_1 = {"corpus", "plan", "io", "shm", "checkpoint", "cache"}


def module_of(path):
    """Module of a file under engine/: its folder, or `top` for what joins modules of layer 1."""
    parts = path.split("/")[1:]
    return parts[0] if len(parts) > 1 else "top"


MAY_KNOW = {  # beside itself, base and the public headers
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


@rule({"engine/io/a.h": '#include "io/b.h"\n', "engine/io/b.h": '#include "io/a.h"\n'})
def cycles(files):
    arrows = {}
    for path, _, target in includes(files):
        if target:
            arrows.setdefault(path, []).append(target)
    done = set()

    def visit(path, trail):
        if path in trail:
            circle = [*trail[trail.index(path):], path]
            yield Finding(path, 1, "include cycle: " + " -> ".join(circle))
        elif path not in done:
            for target in arrows.get(path, []):
                yield from visit(target, [*trail, path])
            done.add(path)

    for path in sorted(arrows):
        yield from visit(path, [])


# A function that other files can see, at its definition.
DEFINITION = re.compile(r"^(?!static\b|typedef\b)[a-z][\w \t*]*?\b(rp_\w+)\s*\([^;{]*\)\n\{", re.M)


def folder_of(path):
    return os.path.dirname(path) if path.startswith(("engine/", "tools/ringpack")) else None


def definitions(files):
    """function -> file that defines it, for the engine and the program."""
    found = {}
    for path, text in files.items():
        if path.endswith(".c") and folder_of(path):
            for name in DEFINITION.findall(code_of(text)):
                found[name] = path
    return found


@rule({"engine/server/a.c": "int rp_a(void)\n{\n    return rp_b();\n}\n",
       "engine/server/b.c": "int rp_b(void)\n{\n    return rp_a();\n}\n"})
def one_way(files):
    """Calls among the files of a folder go one way: no file calls one that calls it."""
    owner = definitions(files)
    calls = {}
    for path, text in files.items():
        if path.endswith(".c") and folder_of(path):
            names = set(re.findall(r"(?<!struct )(?<!enum )\b(rp_\w+)\b", code_of(text)))
            calls[path] = sorted({owner[n] for n in names if n in owner and owner[n] != path
                                  and folder_of(owner[n]) == folder_of(path)})
    done = set()

    def visit(path, trail):
        if path in trail:
            circle = [*trail[trail.index(path):], path]
            yield Finding(path, 1, "circle of calls: " + " -> ".join(map(os.path.basename, circle)))
        elif path not in done:
            for target in calls[path]:
                yield from visit(target, [*trail, path])
            done.add(path)

    for path in sorted(calls):
        yield from visit(path, [])


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
    for path, number, line in lines_of(files, *C_SOURCE):
        for header, place in DOORS.items():
            included = re.match(rf"\s*#\s*include\s+<{re.escape(header)}", line)
            if included and not path.startswith((place, "tests/")):
                yield Finding(path, number, f"<{header}> is included in {place} only")


@rule({"engine/io/lonely.h": "/* nobody */\n"})
def used_headers(files):
    included = {os.path.basename(name)
                for _, _, line in lines_of(files, *C_SOURCE)
                for name in re.findall(r'#\s*include\s+["<]([^">]+)', line)}
    for path in files:
        if path.endswith(".h") and os.path.basename(path) not in included:
            yield Finding(path, 1, "no file includes this header")


# ---- size and shape --------------------------------------------------------------------------


@rule({"engine/a.c": "\n" * (FILE_LINES + 1)})
def file_size(files):
    for path, text in files.items():
        count = text.count("\n")
        if path.endswith((*C_SOURCE, ".py", ".sh")) and count > FILE_LINES:
            yield Finding(path, count, f"{count} lines: a file has at most {FILE_LINES}")


@rule({"engine/a.c": "int f(void)\n{\n" + "    f();\n" * FUNCTION_LINES + "}\n"})
def function_size(files):
    for path, text in files.items():
        if path.endswith(C_SOURCE):
            # The brace of a function, and nothing else, stands alone in the first column
            for match in re.finditer(r"^\{\n(.*?)^\}", code_of(text), flags=re.S | re.M):
                count = match.group(1).count("\n") + 3
                line = text.count("\n", 0, match.start())
                if count > FUNCTION_LINES:
                    yield Finding(path, line, f"a function of {count} lines")
        elif path.endswith(".py"):
            try:
                nodes = ast.walk(ast.parse(text))
            except SyntaxError as error:
                yield Finding(path, error.lineno, f"not Python: {error.msg}")
                continue
            for node in nodes:
                if isinstance(node, ast.FunctionDef):
                    count = node.end_lineno - node.lineno + 1
                    if count > FUNCTION_LINES:
                        yield Finding(path, node.lineno, f"a function of {count} lines")


def column_limit(files):
    return int(re.search(r"^ColumnLimit: (\d+)", files[".clang-format"], flags=re.M).group(1))


@rule({"engine/a.c": "x" * 101 + "\n", ".clang-format": "ColumnLimit: 100\n"})
def line_length(files):
    limit = column_limit(files)
    for path, number, line in lines_of(files, *C_SOURCE, ".py", ".sh", "CMakeLists.txt"):
        if len(line) > limit:
            yield Finding(path, number, f"{len(line)} columns: a line has at most {limit}")


@rule({"engine/a.c": "int  f( void ) {return 0;}\n", ".clang-format": "BasedOnStyle: LLVM\n"})
def formatting(files):
    formatter = shutil.which("clang-format-14")
    if not formatter:
        return  # other versions disagree about details
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, files, (*C_SOURCE, ".clang-format"))
        names = [p for p in files if p.endswith(C_SOURCE)]
        command = [formatter, "--dry-run", *names]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr
    places = re.findall(r"^(\S+?):(\d+):\d+: warning: code should be", output, re.M)
    for path, number in dict(reversed(places)).items():
        yield Finding(path, int(number), f"run tools/format {path}")


# ---- what is never written -------------------------------------------------------------------

BANNED = {
    "strcpy": "snprintf", "strcat": "snprintf", "sprintf": "snprintf", "vsprintf": "vsnprintf",
    "gets": "fgets", "strtok": "strsep",
    "rand": "your own generator", "srand": "your own seed", "random": "your own generator",
    "assert": "RP_ASSERT", "alloca": "the heap", "tmpnam": "mkstemp", "mktemp": "mkstemp",
    "asctime": "strftime", "ctime": "strftime",
}


@rule({"engine/a.c": "void f(char *a)\n{\n    strcpy(a, a);\n}\n"})
def banned_calls(files):
    pattern = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
    for path, number, line in code_lines(files, *C_SOURCE):
        for name in [] if path.startswith("tests/") else pattern.findall(line):
            yield Finding(path, number, f"{name}() is not used here: use {BANNED[name]}")


@rule({"engine/a.c": "extern int elsewhere;\n"})
def extern(files):
    for path, number, line in code_lines(files, ".c"):
        if re.match(r"\s*extern\b", line):
            yield Finding(path, number, "declare it in the header of its module")


@rule({"engine/a.c": "int helper(void)\n{\n}\n"})
def prefix(files):
    """Names that other files can see begin with rp_."""
    pattern = re.compile(r"^(?!static\b|typedef\b)[a-z][\w \t*]*?\b(\w+)\s*\([^;{]*\)\n\{", re.M)
    for path, text in files.items():
        if path.endswith(".c") and path.startswith(("engine/", "tools/ringpack/")):
            code = code_of(text)
            for match in pattern.finditer(code):
                if not match.group(1).startswith("rp_") and match.group(1) != "main":
                    yield Finding(path, code.count("\n", 0, match.start()) + 1,
                                  f"{match.group(1)}: make it static, or begin it with rp_")


@rule({"engine/server/attach.c": "void f(void)\n{\n    seat->seat_state = RP_SEAT_VACANT;\n}\n"})
def seat_states(files):
    """The state of a seat is written in one place."""
    owner = ("engine/server/seat.c", "tests/unit/test_seat.c")
    for path, number, line in code_lines(files, *C_SOURCE):
        if path not in owner and re.search(r"\bseat_state\s*(=(?!=)|\+\+|--)", line):
            yield Finding(path, number, "call rp_seat_transition: the state has one writer")


UNFINISHED = ("TO" + "DO", "FIX" + "ME", "HA" + "CK")


@rule({"engine/a.c": f"/* {UNFINISHED[0]}: later */\n"})
def unfinished(files):
    pattern = re.compile(rf"\b(?:{'|'.join(UNFINISHED)})\b")
    for path, number, line in lines_of(files, *C_SOURCE, ".py", ".sh", ".txt", ".md"):
        if pattern.search(line):
            yield Finding(path, number, "finish it, or open an issue for it")


@rule({"engine/a.c": "int f(void) __attribute__((weak));\n"})
def weak(files):
    for path, number, line in code_lines(files, *C_SOURCE):
        if re.search(r"__attribute__\s*\(\(\s*weak", line):
            yield Finding(path, number, "no weak symbols: what is declared exists")


@rule({"engine/a.c": "int f;\n"})
def licence(files):
    for path, text in files.items():
        script = text.startswith("#!")
        if path.endswith((*C_SOURCE, ".py", ".sh", "CMakeLists.txt", ".toml")) or script:
            lines = text.split("\n")
            if "SPDX-License-Identifier: Apache-2.0" not in lines[1 if script else 0]:
                yield Finding(path, 1, "the first line names the licence (SPDX)")


@rule({"engine/io/a.c": "/* PAIRS lonely-barrier */\n"})
def barriers(files):
    """A barrier has a partner, and both name the pair."""
    sites = {}
    for path, number, line in lines_of(files, ".c", ".h", within="engine/"):
        for name in re.findall(r'(?<!")\bPAIRS:? ([a-z][a-z-]*[a-z])\b', line):
            finding = Finding(path, number, f"the barrier {name} has no partner")
            sites.setdefault(name, []).append(finding)
    for found in sites.values():
        if len(found) < 2:
            yield found[0]


# ---- what must hold beyond the text ----------------------------------------------------------

LANGUAGES = (("c", "gnu11", "gcc"), ("c++", "gnu++17", "g++"))


def write_files(folder, files, endings):
    for path, text in files.items():
        if path.endswith(endings):
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                file.write(text)


@rule({"engine/base/a.h": "static inline size_t f(void) { return 0; }\n"})
def headers_stand_alone(files):
    """Every header compiles on its own, as C and as C++."""
    headers = [p for p in files if p.endswith(".h") and p.startswith(("engine/", "include/"))]
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, files, (".h",))
        for language, standard, compiler in LANGUAGES:
            if not shutil.which(compiler):
                continue
            command = [compiler, "-fsyntax-only", f"-std={standard}", "-D_GNU_SOURCE", "-Iengine",
                       "-Iinclude", "-x", language, *headers]
            output = subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr
            errors = re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error: (.*)$", output, re.M)
            for path, (number, text) in {p: (n, t) for p, n, t in reversed(errors)}.items():
                yield Finding(path, int(number), f"as {language}: {text}")


TOP_FOLDERS = ("engine", "include", "tools", "tests", "bench", "base", "flow", "ringpack")
TOP_FOLDERS += ("config", *LAYER_1)


@rule({"README.md": "Start with `engine/nowhere.c`.\n"})
def paths_in_docs(files):
    """Every path that the documents name exists; * stands for any."""
    pattern = re.compile(r"(?<![\w./~-])((?:%s)/[\w./*-]*[\w*])" % "|".join(TOP_FOLDERS))
    everything = set(files)
    for path in files:
        while "/" in path:
            path = os.path.dirname(path)
            everything.add(path)
    for path, number, line in lines_of(files, ".md"):
        for name in pattern.findall(line):
            near = os.path.normpath(os.path.join(os.path.dirname(path), name))
            places = {name, f"engine/{name}", f"include/{name}", near}
            if not places & everything and not any(fnmatch.filter(everything, p) for p in places):
                yield Finding(path, number, f"{name} does not exist")


# ---- running ---------------------------------------------------------------------------------


def self_test(names):
    """Every rule finds what it must in its own control."""
    failures = 0
    for name in names:
        function, control = RULES[name]
        if name == "formatting" and not shutil.which("clang-format-14"):
            print("tidy: formatting is not checked: clang-format-14 was not found")
            continue
        if not list(function(control)):
            print(f"tidy: the rule {name} does not flag its own control")
            failures += 1
    return failures


def main():
    names = sys.argv[1:] or list(RULES)
    unknown = [name for name in names if name not in RULES]
    if unknown:
        print(f"tidy: no rule {unknown[0]}; there are: {', '.join(RULES)}")
        return 2
    failures = self_test(names)
    files = read_tree()
    for name in names:
        for finding in RULES[name][0](files):
            print(f"{finding.path}:{finding.line}: {name}: {finding.text}")
            failures += 1
    print(f"tidy: {len(names)} rules, {len(files)} files, {failures} findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
