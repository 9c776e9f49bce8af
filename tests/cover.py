# SPDX-License-Identifier: BSD-3-Clause
"""What share of lines and branches a build with -Db_coverage=true has run, as TAP: one line a bound, and the files with the most that was never run.

    cover.py TREE BUILD [JOBS]

Every file of control/ and dataplane/ counts, verbs included, although only guests with a device reach the half of it. Branches of assertions do not
count: their other side is our own mistake, and ends the process.
"""

import json
import os
import re
import subprocess
import sys

ASSERTIONS = r".*\b(assert|static_assert|RTE_ASSERT|RTE_VERIFY)\("
# What, least per cent, lines or branches, paths.
BOUNDS = [
    ("lines of control/ and dataplane/", 85, "lines", r"(control|dataplane)/"),
    ("branches of wire", 80, "branches", r"dataplane/wire/"),
    ("branches of rings", 80, "branches", r"dataplane/sync/|control/read/client_rings\.c|control/client/ring\.c|control/health/journal\.h"),
    ("branches of admission", 80, "branches", r"control/read/admit\.c"),
    ("branches of the planner", 80, "branches", r"control/read/plan(_explain)?\.[ch]"),
    ("branches of commit", 80, "branches", r"control/read/(commit|aggregate)\.c"),
]
SHOWN = 12


def gather(tree, build, jobs):
    """path -> (lines run, lines, branches run, branches)"""
    report = os.path.join(build, "coverage.json")
    subprocess.run(["gcovr", "--root", tree, "--filter", os.path.join(tree, "control/"), "--filter", os.path.join(tree, "dataplane/"), "-j", jobs,
                    "--exclude-unreachable-branches", "--exclude-branches-by-pattern", ASSERTIONS, "--json", report,
                    os.path.join(build, "control"), os.path.join(build, "dataplane")], check=True, stdout=subprocess.DEVNULL)
    with open(report, encoding="utf-8") as f:
        files = json.load(f)["files"]
    found = {}
    for entry in files:
        lines = [line for line in entry["lines"] if not line.get("gcovr/noncode")]
        branches = [branch for line in lines for branch in line["branches"]]
        found[entry["file"]] = (sum(line["count"] > 0 for line in lines), len(lines), sum(b["count"] > 0 for b in branches), len(branches))
    return found


def share(found, kind, pattern):
    at = 0 if kind == "lines" else 2
    rows = [row for path, row in found.items() if re.match(pattern, path)]
    n_run, n = sum(row[at] for row in rows), sum(row[at + 1] for row in rows)
    return n_run, n, 100 * n_run / n if n else 0


def main():
    tree, build = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    found = gather(tree, build, sys.argv[3] if len(sys.argv) > 3 else "2")
    n_bad = 0
    for i, (what, least, kind, pattern) in enumerate(BOUNDS, 1):
        n_run, n, percent = share(found, kind, pattern)
        is_good = percent >= least
        n_bad += not is_good
        print(f"{'ok' if is_good else 'not ok'} {i} - {what}: {percent:.1f} % ({n_run} of {n}), at least {least}")
    print(f"1..{len(BOUNDS)}")
    for what, _, kind, pattern in BOUNDS:
        n_run, n, percent = share(found, kind, pattern)
        print(f"# {what}: {percent:.1f} % ({n_run} of {n})")
    worst = sorted(found.items(), key=lambda item: item[1][0] - item[1][1])
    for path, (n_run, n, _, _) in worst[:SHOWN]:
        print(f"# never run: {n - n_run} of {n} lines of {path}")
    sys.exit(n_bad != 0)


if __name__ == "__main__":
    main()
