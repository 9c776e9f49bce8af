# SPDX-License-Identifier: BSD-3-Clause
"""Every C file is as clang-format leaves it. Other versions of clang-format disagree in details, so only version 14 counts."""

import os
import re
import shutil
import subprocess

import lintlib

VERSION = "14"


def tool():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path and re.search(rf"version {VERSION}\.", subprocess.run([path, "--version"], capture_output=True, text=True).stdout):
            return path
    raise lintlib.Skipped(f"clang-format {VERSION} is not installed (deploy/install-deps.sh --tests)")


def check(root, report):
    paths = lintlib.files(root, ".c", ".h")
    done = subprocess.run([tool(), "--dry-run", "--Werror", *paths], cwd=root, capture_output=True, text=True)
    places = {}
    for line in done.stderr.splitlines():
        match = re.match(r"^(\S+?):(\d+):\d+: error: ", line)
        if match:
            places.setdefault(match.group(1), []).append(match.group(2))
    for path, lines in places.items():
        report.bad(path, lines[0], f"clang-format would change {len(lines)} places from here on")
    if done.returncode and not report.findings:
        report.bad("clang-format", 0, done.stderr.strip())


STYLE = lintlib.read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."), ".clang-format")
CLEAN = {".clang-format": STYLE, "control/a.c": "int f(int a)\n{\n\treturn a;\n}\n"}
PLANTS = [
    ("spaces for tabs", {"control/x.c": "int f(int a)\n{\n    return a;\n}\n"}),
    ("a brace on the wrong line", {"control/x.c": "int f(int a) {\n\treturn a;\n}\n"}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
