# SPDX-License-Identifier: BSD-3-Clause
"""Text: an SPDX line in each source file, no paths of one machine, no leftovers, no trailing white space."""

import re

import lintlib

SPDX = "SPDX-License-Identifier: BSD-3-Clause"
SOURCES = (".c", ".h", ".def", ".py", ".sh", ".yaml", ".yml", "meson.build", "meson_options.txt", ".ci/run", ".supp", ".allow", ".mut", ".pml")
ALL = SOURCES + (".md", ".txt", ".in", ".service", "LICENSE")
MACHINE_PATH = re.compile(r"(?<![\w.$}/*])/(home|root|work|Users|mnt)/\w")
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SELF = "tests/lint/text.py"  # names what it forbids


def check_line(path, n, line, report):
    if line != line.rstrip():
        report.bad(path, n, "trailing white space")
    if path == SELF:
        return
    if MACHINE_PATH.search(line):
        report.bad(path, n, "a path of one machine")
    match = LEFTOVER.search(line)
    if match:
        report.bad(path, n, f"leftover: {match.group(0)}")


def check(root, report):
    for path in lintlib.files(root, *ALL):
        text = lintlib.read(root, path)
        lines = text.splitlines()
        if path.endswith(SOURCES) and SPDX not in "\n".join(lines[:2]):
            report.bad(path, 1, f"no line '{SPDX}'")
        if text and not text.endswith("\n"):
            report.bad(path, len(lines), "no newline at the end")
        if text.endswith("\n\n"):
            report.bad(path, len(lines), "empty line at the end")
        for n, line in enumerate(lines, 1):
            check_line(path, n, line, report)


HEAD = f"/* {SPDX} */\n"
CLEAN = {"control/a.c": HEAD + "int x; /* promptly */\n", "run.sh": f"#!/bin/sh\n# {SPDX}\n", "docs/a.md": "text, $HOME/x\n"}
PLANTS = [
    ("no SPDX line", {"control/x.c": "int x;\n"}),
    ("a script without SPDX line", {"x.sh": "#!/bin/sh\ntrue\n"}),
    ("a machine's path", {"docs/x.md": "see /home/someone/tree\n"}),
    ("a machine's path in code", {"control/x.c": HEAD + 'const char *p = "/root/x";\n'}),
    ("a leftover", {"control/x.c": HEAD + "/* TODO: later */\n"}),
    ("trailing white space", {"control/x.c": HEAD + "int x; \n"}),
    ("no newline at the end", {"control/x.c": HEAD + "int x;"}),
    ("empty lines at the end", {"control/x.c": HEAD + "int x;\n\n"}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
