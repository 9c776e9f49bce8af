# SPDX-License-Identifier: BSD-3-Clause
"""Docs keep up: the pages of metrics and control methods are what gen_docs.py writes, and every path that a page names exists."""

import os
import re

import gen_docs
import lintlib

PATH = re.compile(r"`((?:include|dataplane|control|tests|perf|deploy|docs|examples|\.ci)/[\w./-]*\w)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def check_page(root, report, page, table, write):
    for path in (table, page):
        if not os.path.isfile(os.path.join(root, path)):
            report.bad(path, 0, "is missing")
            return
    try:
        want = write(lintlib.read(root, table)).splitlines()
    except ValueError as error:
        report.bad(table, 0, str(error))
        return
    have = lintlib.read(root, page).splitlines()
    if have == want:
        return
    differs = [n for n, (a, b) in enumerate(zip(have, want)) if a != b]
    at = differs[0] if differs else min(len(have), len(want))
    report.bad(page, at + 1, f"is not what {table} says; run tests/lint/gen_docs.py")


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
    for page, (table, write) in gen_docs.PAGES.items():
        check_page(root, report, page, table, write)
    check_paths(root, report)


METRICS_DEF = '#define RAIL_METRICS(X) \\\n\tX(rx_bytes, counter, bytes, "help")\n#define CONTROL_METRICS(X) \\\n\tX(reads, gauge, count, "help")\n#define CONN_METRICS(X) \\\n\tX(seen, counter, count, "help")\n'
METHODS_DEF = '#define RY_METHODS(X) \\\n\tX(1, status, any, "help")\n#define RY_METHOD_PARAMS(X) \\\n\tX(status, max, uint, optional, 1, 9, "help")\n'
CLEAN = {
    gen_docs.METRICS: METRICS_DEF,
    gen_docs.METHODS: METHODS_DEF,
    "docs/metrics.md": gen_docs.metrics_page(METRICS_DEF),
    "docs/control-api.md": gen_docs.methods_page(METHODS_DEF),
    "tests/lint/gen_docs.py": "the pages name it\n",
    "docs/errors.md": "and this\n",
    "docs/security.md": "and this\n",
    "include/railyard/ring.h": "and this\n",
    "README.md": "see `dataplane/stats/metrics.def` and [the API](docs/control-api.md)\n",
}
MORE = '"help") \\\n\tX('
PLANTS = [
    ("a metric that the page lacks", {gen_docs.METRICS: METRICS_DEF.replace('"help")\n#', MORE + 'new_one, gauge, count, "h")\n#')}),
    ("a method that the page lacks", {gen_docs.METHODS: METHODS_DEF.replace('"help")\n#', MORE + '2, fresh, any, "h")\n#')}),
    ("a parameter whose limit changed", {gen_docs.METHODS: METHODS_DEF.replace("1, 9,", "1, 10,")}),
    ("a permission that changed", {gen_docs.METHODS: METHODS_DEF.replace("status, any", "status, admin")}),
    ("a page with a row too much", {"docs/metrics.md": gen_docs.metrics_page(METRICS_DEF) + "| `gone` | rail | gauge | count | h |\n"}),
    ("a page that is missing", {"docs/metrics.md": None}),
    ("a table that is missing", {gen_docs.METHODS: None}),
    ("a table that cannot be read", {gen_docs.METRICS: "nothing\n"}),
    ("a row that cannot be read", {gen_docs.METRICS: METRICS_DEF.replace("gauge, count", "gauge")}),
    ("a path that does not exist", {"docs/x.md": "see `control/read/nowhere.c`\n"}),
    ("a link that leads nowhere", {"README.md": "see [this](docs/nowhere.md)\n"}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
