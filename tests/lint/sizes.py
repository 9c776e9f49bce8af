# SPDX-License-Identifier: BSD-3-Clause
"""Sizes: files at most 600 lines, hot files 250, functions 80; prints the median length of a function.

A table or a flat dispatch switch may be longer when the function says so with the comment "flat table".
"""

import os
import re
import statistics

import lintlib

FILE_MAX = 600
HOT_MAX = 250
FUNCTION_MAX = 80
EXEMPT = "/* flat table */"


def is_hot(path):
    stem = os.path.splitext(os.path.basename(path))[0]
    return path.endswith((".c", ".h")) and (path.startswith("dataplane/hot/") or stem.endswith("_hot"))


def functions(lines):
    """(first line, last line, name) of each function; relies on clang-format's brace alone in column 0."""
    for n, line in enumerate(lines):
        if line != "{" or n == 0 or not lines[n - 1].rstrip().endswith(")"):
            continue
        first = n - 1
        while first > 0 and lines[first - 1].strip() and not re.match(r"^([}#/]| \*|\s*\*/)|.*[;}]$", lines[first - 1]):
            first -= 1
        last = next((k for k in range(n, len(lines)) if lines[k] == "}"), len(lines) - 1)
        name = re.search(r"(\w+)\s*\(", " ".join(lines[first:n]))
        yield first, last, name.group(1) if name else "?"


def check(root, report):
    lengths = []
    for path in lintlib.files(root, ".c", ".h", ".def", ".sh", ".py"):
        lines = lintlib.read(root, path).splitlines()
        limit = HOT_MAX if is_hot(path) else FILE_MAX
        if len(lines) > limit:
            report.bad(path, 0, f"{len(lines)} lines, at most {limit}: split by stage")
        if not path.endswith((".c", ".h")):
            continue
        for first, last, name in functions(lines):
            length = last - first + 1
            lengths.append(length)
            if length > FUNCTION_MAX and EXEMPT not in "\n".join(lines[max(0, first - 1):last]):
                report.bad(path, first + 1, f"{name}() has {length} lines, at most {FUNCTION_MAX}")
    if lengths:
        report.note(f"{len(lengths)} functions, median {statistics.median(lengths):g} lines, longest {max(lengths)}")


def function(n_lines, body="\tx++;\n"):
    return "static int f(int a,\n\tint b)\n{\n" + body * (n_lines - 4) + "}\n"


CLEAN = {
    "dataplane/hot/a.c": "int x;\n" * 250,
    "control/read/b.c": function(80) + "\n" + "int x;\n" * 500,
    "control/read/table.c": function(120, "\tx++;\n").replace("{\n", "{\n\t/* flat table */\n", 1),
}
PLANTS = [
    ("a file of 601 lines", {"control/read/x.c": "int x;\n" * 601}),
    ("a hot file of 251 lines", {"dataplane/hot/x.h": "int x;\n" * 251}),
    ("a *_hot.c of 251 lines", {"dataplane/transport/tcp/tcp_hot.c": "int x;\n" * 251}),
    ("a function of 81 lines", {"control/read/x.c": function(81)}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
