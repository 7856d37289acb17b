#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The project's rules that a machine can check, each with a snippet that it must flag.

    tidy.py            check the repository (self-test first); exit 1 if anything is found
    tidy.py RULE...    only these rules
"""

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile

import arrows  # registers its rules
import defects
import words
from sources import C_SOURCE, RULES, Finding, code_lines, code_of, lines_of, read_tree, rule

RULES["defects"] = (defects.check, defects.CONTROL)
RULES["words"] = (words.check, words.CONTROLS)

FILE_LINES = 500
FUNCTION_LINES = 70
PARAMETERS = 6
# The call of the ABI, a callback of libmicrohttpd, and one with two results and a token
MORE_PARAMETERS = ("rp_contract_agree", "serve", "rp_planner_token_resume")
CELL = 110  # characters of a cell in tables of tests/*.md and bench, without names in backticks


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
            # Only the brace of a function is a line of its own in the first column
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


@rule({"engine/a.c": f"int f(int a{', int b' * PARAMETERS})\n{{\n}}\n"})
def parameters(files):
    """Functions of the engine and the program; more arguments are a struct with a name."""
    pattern = re.compile(r"^\w[^\n;{}()=#]*?\b(\w+)\(([^;{}]*?)\)\n\{", re.M)
    for path, text in files.items():
        if path.endswith((".c", ".h")) and path.startswith(("engine/", "tools/ringpack/")):
            code = code_of(text)
            for match in pattern.finditer(code):
                count = re.sub(r"\([^()]*\)", "", match[2]).count(",") + 1
                if count > PARAMETERS and match[1] not in MORE_PARAMETERS:
                    yield Finding(path, code.count("\n", 0, match.start()) + 1,
                                  f"{match[1]} has {count} parameters, at most {PARAMETERS}")


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


# ---- forbidden text -------------------------------------------------------------------

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
def states(files):
    """The states of seats, of engines and of flows are written in one place."""
    owners = {"seat": ("engine/server/seat.c", "tests/unit/test_seat.c"),
              "life": ("engine/server/life.c", "tests/"),
              "flow": ("engine/flow/flow.c", "tests/model/")}
    for path, number, line in code_lines(files, *C_SOURCE):
        found = re.search(r"\b(seat|life|flow)_state\s*(=(?!=)|\+\+|--)", line)
        if found and not path.startswith(owners[found[1]]):
            yield Finding(path, number,
                          f"the state has one writer, {owners[found[1]][0]}: call its functions")


# The parts of struct rp_engine, the files that write them, and the structs that they consist of.
PART_OWNERS = {
    "life": "life shutdown save",
    "loop": "loop",
    "peers": "server connections attach deferred_attach save",
    "stream": "server start probe rejoin attach save live_records kept_records live_corpus",
    "delivery": "server rings rebuild rejoin seat seats connections caching read_mode cause",
    "saving": "server save saver save_contents revalidate start journal",
    "watching": "rate_samples read_mode",
}
PART_OF = {"engine_life": "life", "connection": "peers", "seat": "delivery", "saver": "saving",
           "save_counts": "saving", **{part: part for part in PART_OWNERS}}


@rule({"engine/server/stat.c": "void f(struct rp_seat *it)\n{\n    it->replica = 0;\n}\n"})
def engine_parts(files):
    """A part of the engine is written only by its own files; loop.c makes all descriptors."""
    for path, text in files.items():
        if not path.startswith("engine/server/") or not path.endswith(".c"):
            continue
        pointers = rf"(?<!const )struct rp_({'|'.join(PART_OF)}) \*(\w+)"
        names = {part: part for part in PART_OWNERS}
        names.update((name, PART_OF[kind]) for kind, name in re.findall(pointers, text))
        pattern = re.compile(rf"(?<![*\w.>])(?:engine->)?({'|'.join(names)})(?:->|\.)"
                             r"([\w.\[\]>-]*?)\s*(?:[-+|&]?=(?!=)|\+\+|--)")
        for _, number, line in code_lines({path: text}, ".c"):
            for name, field in pattern.findall(line):
                owners = PART_OWNERS[names[name]].split()
                if os.path.basename(path)[:-2] not in owners and not field.endswith("done_fd"):
                    yield Finding(path, number,
                                  f"{names[name]}.{field} is written by {', '.join(owners)}")


UNFINISHED = ("TO" + "DO", "FIX" + "ME", "HA" + "CK")


@rule({"engine/a.c": f"/* {UNFINISHED[0]}: later */\n"})
def unfinished(files):
    pattern = re.compile(rf"\b(?:{'|'.join(UNFINISHED)})\b")
    for path, number, line in lines_of(files, *C_SOURCE, ".py", ".sh", ".txt", ".md"):
        if pattern.search(line):
            yield Finding(path, number, "finish it, or open an issue for it")


@rule({"engine/a.c": "/* a — see a.h. */\n"})
def heads(files):
    """The head of a file says more than the name of its header."""
    for path, number, line in lines_of(files, *C_SOURCE):
        if number <= 3 and re.match(r"/\* (\S+ — |)([Ss]ee|the \w+ of) [\w.]+ \*/$", line):
            yield Finding(path, number, "say what the file does, or delete the comment")


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


# ---- rules beyond the text ----------------------------------------------------------

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
TOP_FOLDERS += ("config", *arrows.LAYER_1)


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


@rule({"tests/README.md": "| a promise | `python_nowhere` |\n"})
def tests_in_docs(files):
    """Every test that the tables of tests/*.md name is a file."""
    places = {"python": "tests/python/test_%s.py", "cli": "tests/cli/test_%s.sh",
              "test": "tests/unit/test_%s.c"}
    for path, number, line in lines_of(files, ".md", within="tests/"):
        for folder, name in re.findall(r"`(python|cli|test)_(\w+)`", line):
            if line.startswith("|") and places[folder] % name not in files:
                yield Finding(path, number, f"{folder}_{name} is no test")


@rule({"bench/README.md": f"| a goal | {'the reason in a paragraph ' * 5} |\n"})
def short_cells(files):
    """Cells of promises, failures, defects and figures fit on a line; the text has the rest."""
    documents = {p: t for p, t in files.items() if re.match(r"tests/\w+\.md|bench/.*\.md", p)}
    for path, number, line in lines_of(documents, ".md"):
        for cell in line.split(" | ") if line.startswith("|") else ():
            text = re.sub(r"`\w[\w./*-]*`(, )?|\]\([^)]*\)", "", cell).strip("| ")
            if len(text) > CELL:
                yield Finding(path, number, f"a cell of {len(text)} characters, at most {CELL}")


# ---- running ---------------------------------------------------------------------------------


def self_test(names):
    """Every rule flags its own control."""
    failures = 0
    for name in names:
        function, controls = RULES[name]
        if name == "formatting" and not shutil.which("clang-format-14"):
            print("tidy: formatting is not checked: clang-format-14 was not found")
            continue
        controls = controls if isinstance(controls, tuple) else (controls,)
        if not all(list(function(control)) for control in controls):
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
