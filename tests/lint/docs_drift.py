# SPDX-License-Identifier: BSD-3-Clause
"""Docs keep up: every metric and every control method is described, and every path of the tree that a page names exists."""

import os
import re

import lintlib

METRIC = re.compile(r"^\s*X\((\w+),\s*(?:counter|gauge)", re.M)
METHOD = re.compile(r"^\s*X\(\d+,\s*(\w+),", re.M)
PATH = re.compile(r"`((?:include|dataplane|control|tests|perf|deploy|docs|examples|\.ci)/[\w./-]*\w)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")




def check_table(root, report, table, pattern, pages, what):
    """Every row of an X-macro table is named, in backticks, by one of the pages that exist."""
    existing = [p for p in pages if os.path.isfile(os.path.join(root, p))]
    if not os.path.isfile(os.path.join(root, table)) or not existing:
        report.note(f"note: no {table} or none of {', '.join(pages)} yet")
        return
    text = "\n".join(lintlib.read(root, p) for p in existing)
    rows = pattern.findall(lintlib.read(root, table))
    if not rows:
        report.bad(table, 0, f"no {what} found: the lint's pattern is wrong")
    for row in rows:
        if not re.search(rf"`(ry_)?(\w+_)?{re.escape(row)}\b", text):
            report.bad(existing[0], 0, f"{what} {row} of {table} is not described")


def check_paths(root, report):
    for page in lintlib.files(root, ".md"):
        for n, line in enumerate(lintlib.read(root, page).splitlines(), 1):
            for path in PATH.findall(line):
                if not os.path.exists(os.path.join(root, path)):
                    report.bad(page, n, f"{path} does not exist")
            for path in LINK.findall(line):
                if not os.path.exists(os.path.join(root, os.path.dirname(page), path)):
                    report.bad(page, n, f"link to {path}, which does not exist")


def check(root, report):
    check_table(root, report, "dataplane/stats/metrics.def", METRIC, ("docs/metrics.md",), "metric")
    check_table(root, report, "include/railyard/methods.def", METHOD, ("docs/control-api.md", "docs/control.md", "docs/api.md"), "method")
    check_paths(root, report)


CLEAN = {
    "dataplane/stats/metrics.def": '\tX(rx_bytes, counter, bytes, "help")\n',
    "include/railyard/methods.def": 'X(1, status, any, "help")\n',
    "docs/metrics.md": "`rx_bytes`: see `dataplane/stats/metrics.def` and [the API](api.md)\n",
    "docs/api.md": "`status` answers\n",
}
PLANTS = [
    ("a metric that no page describes", {"dataplane/stats/metrics.def": '\tX(rx_bytes, counter, bytes, "h")\n\tX(new_one, gauge, count, "h")\n'}),
    ("a method that no page describes", {"include/railyard/methods.def": 'X(1, status, any, "help")\nX(2, fresh, any, "help")\n'}),
    ("a table that the lint cannot read", {"dataplane/stats/metrics.def": "nothing\n"}),
    ("a path that does not exist", {"docs/x.md": "see `control/read/nowhere.c`\n"}),
    ("a link that leads nowhere", {"README.md": "see [this](docs/nowhere.md)\n"}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
