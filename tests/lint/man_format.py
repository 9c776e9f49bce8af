# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages are formatted without a warning, by groff with all of its warnings on, and have the sections that a reader looks for."""

import os
import re
import shutil
import subprocess

import lintlib

PAGE = re.compile(r"^man/[\w-]+\.(\d)$")
NEEDED = {"1": ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"),
          "3": ("NAME", "SYNOPSIS", "DESCRIPTION", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"),
          "8": ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "SEE ALSO")}


def tool():
    groff = shutil.which("groff")
    if not groff:
        raise lintlib.Skipped("groff is not installed (deploy/install-deps.sh --tests)")
    return groff


def check_page(root, report, groff, page, number):
    text = lintlib.read(root, page)
    for title in NEEDED.get(number, ()):
        if not re.search(rf"^\.SH {title}$", text, re.M):
            report.bad(page, 0, f"no section {title}")
    done = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-z", page], cwd=root, capture_output=True, text=True, timeout=60)
    for line in done.stderr.splitlines():
        match = re.match(r"^(?:troff|groff|\S*): ?(?:<standard input>|\S+?):(\d+): (.*)$", line)
        report.bad(page, match.group(1) if match else 0, match.group(2) if match else line)
    if done.returncode and not done.stderr:
        report.bad(page, 0, f"groff ended with {done.returncode}")


def check(root, report):
    groff = tool()
    pages = [path for path in lintlib.files(root) if os.path.dirname(path) == "man" and PAGE.match(path)]
    if not pages:
        report.bad("man", 0, "no pages")
    for page in pages:
        check_page(root, report, groff, page, PAGE.match(page).group(1))


GOOD = '.TH A 8 2026-01-01 "a 1" "A"\n' + "".join(f".SH {title}\nwords\n" for title in NEEDED["8"])
CLEAN = {"man/a.8": GOOD}
PLANTS = [
    ("a request that does not exist", {"man/a.8": GOOD + ".XYZ what\n"}),
    ("an escape that is none", {"man/a.8": GOOD + "a path C:\\Qx\n"}),
    ("a character that does not exist", {"man/a.8": GOOD + "\\[no-such-thing] \\(zz\n"}),
    ("a section that is missing", {"man/a.8": GOOD.replace(".SH FILES\nwords\n", "")}),
    ("no page at all", {"man/a.8": None, "man/readme": "x\n"}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
