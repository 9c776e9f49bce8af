# SPDX-License-Identifier: BSD-3-Clause
"""docs/errors.md has every status of status.h, by number and name, with the text of status.c, its cause and its remedy; and every exit code."""

import os
import re

import lintlib

PAGE = "docs/errors.md"
STATUS = "include/railyard/status.h"
TEXTS = "control/client/status.c"
# program: header, enum
EXITS = {
    "railyard": ("control/cli/cli.h", "cli_exit"),
    "railyardd": ("control/daemon/options.h", "daemon_exit"),
    "railyard-perf": ("perf/perf.h", "perf_exit"),
}
LEAST = 20  # characters of a cause or a remedy that says something

ENUMERATOR = re.compile(r"^\s*(\w+) = (\d+),", re.M)
TEXT = re.compile(r'\[(RY_\w+)\] = \{"(\w+)",\s*"((?:[^"\\]|\\.)*)"\}')
SECTION = re.compile(r"^### (\d+) `(\w+)`$", re.M)
EXIT_ROW = re.compile(r"^\| ([\w-]+) \| (\d+) \| `(\w+)` \| (.+) \|$", re.M)


def enumerators(text, name):
    """[(name, number)] of an enum."""
    match = re.search(rf"enum {name} \{{(.*?)\}};", text, re.S)
    return [(n, int(v)) for n, v in ENUMERATOR.findall(match.group(1))] if match else []


def statuses(text):
    """number -> name without its prefix."""
    return {v: re.sub(r"^RY_(ERR_)?", "", n) for n, v in enumerators(text, "ry_status") if not n.endswith("_MAX_")}


def paragraph(body, title):
    match = re.search(rf"^\*\*{title}\.\*\* (.+)$", body, re.M)
    return match.group(1) if match else ""


def check_section(report, line, number, name, body, known, texts):
    if known.get(number) != name:
        report.bad(PAGE, line, f"{number} {name} is not in {STATUS}")
        return
    quote = re.search(r"^> (.+)$", body, re.M)
    if not quote or quote.group(1) != texts.get(name):
        report.bad(PAGE, line, f"{name}: the quoted text is not that of {TEXTS}: {texts.get(name)}")
    for title in ("Cause", "Remedy"):
        if len(paragraph(body, title)) < LEAST:
            report.bad(PAGE, line, f"{name}: no {title.lower()}")


def check_statuses(report, page, known, texts):
    parts = SECTION.split(page)
    found = []
    for number, name, body in zip(parts[1::3], parts[2::3], parts[3::3]):
        line = page[: page.index(f"### {number} `{name}`")].count("\n") + 1
        found.append(int(number))
        check_section(report, line, int(number), name, body.split("\n## ")[0], known, texts)
    for number, name in known.items():
        if number not in found:
            report.bad(PAGE, 0, f"status {number} {name} is missing")
    if found != sorted(set(found)):
        report.bad(PAGE, 0, "statuses are not in the order of their numbers, once each")


def check_exits(root, report, page):
    rows = {(program, name): int(code) for program, code, name, _ in EXIT_ROW.findall(page)}
    for program, (header, enum) in EXITS.items():
        codes = dict(enumerators(lintlib.read(root, header), enum))
        if not codes:
            report.bad(header, 0, f"no enum {enum}")
        for name, code in codes.items():
            if rows.pop((program, name), None) != code:
                report.bad(PAGE, 0, f"exit code {code} {name} of {program} is missing or has another number")
    for program, name in rows:
        report.bad(PAGE, 0, f"exit code {name} of {program} does not exist")


def check(root, report):
    for path in (PAGE, STATUS, TEXTS, *(header for header, _ in EXITS.values())):
        if not os.path.isfile(os.path.join(root, path)):
            report.bad(path, 0, "is missing")
            return
    page = lintlib.read(root, PAGE)
    known = statuses(lintlib.read(root, STATUS))
    texts = {name: text.replace('\\"', '"') for _, name, text in TEXT.findall(lintlib.read(root, TEXTS))}
    if not known or len(texts) != len(known):
        report.bad(TEXTS, 0, f"{len(texts)} texts understood of {len(known)} statuses")
    check_statuses(report, page, known, texts)
    check_exits(root, report, page)


HEADER = "enum ry_status {\n\tRY_OK = 0,\n\tRY_ERR_RAIL = 5, /* x */\n\tRY_STATUS_MAX_ = 6,\n};\n"
SOURCE = 'rows[] = {\n\t[RY_OK] = {"OK", "success"},\n\t[RY_ERR_RAIL] = {"RAIL",\n\t\t"a rail failed: retry"},\n};\n'
GOOD = """# Errors

### 0 `OK`

> success

**Cause.** It worked, every byte of it.

**Remedy.** None is needed, go on.

### 5 `RAIL`

> a rail failed: retry

**Cause.** A connection broke in the middle.

**Remedy.** Read again, over other rails.

## Exit codes

| program | code | name | meaning |
|---|---|---|---|
| railyard | 0 | `CLI_OK` | done |
| railyardd | 0 | `EXIT_OK` | done |
| railyard-perf | 0 | `PERF_OK` | done |
"""
CLEAN = {
    PAGE: GOOD,
    STATUS: HEADER,
    TEXTS: SOURCE,
    "control/cli/cli.h": "enum cli_exit {\n\tCLI_OK = 0,\n};\n",
    "control/daemon/options.h": "enum daemon_exit {\n\tEXIT_OK = 0,\n};\n",
    "perf/perf.h": "enum perf_exit {\n\tPERF_OK = 0,\n};\n",
}
PLANTS = [
    ("a status that the page lacks", {STATUS: HEADER.replace("\tRY_STATUS", "\tRY_ERR_NEW = 6,\n\tRY_STATUS"),
                                      TEXTS: SOURCE.replace("};", '\t[RY_ERR_NEW] = {"NEW", "new"},\n};')}),
    ("a status without a text", {TEXTS: SOURCE.replace('"RAIL"', "RAIL")}),
    ("a text that changed", {TEXTS: SOURCE.replace("failed: retry", "failed: wait")}),
    ("a number that changed", {STATUS: HEADER.replace("RAIL = 5", "RAIL = 4")}),
    ("a status that is none", {PAGE: GOOD.replace("### 5 `RAIL`", "### 5 `RAILS`")}),
    ("a status without a cause", {PAGE: GOOD.replace("**Cause.** A connection broke in the middle.\n", "")}),
    ("a remedy that says nothing", {PAGE: GOOD.replace("Read again, over other rails.", "Retry.")}),
    ("a status that is there twice", {PAGE: GOOD.replace("## Exit", GOOD[GOOD.index("### 5"): GOOD.index("## Exit")] + "## Exit")}),
    ("an exit code that the page lacks", {"perf/perf.h": "enum perf_exit {\n\tPERF_OK = 0,\n\tPERF_BAD = 1,\n};\n"}),
    ("an exit code that does not exist", {PAGE: GOOD + "| railyard | 9 | `CLI_NINE` | nine |\n"}),
    ("a page that is missing", {PAGE: None}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
