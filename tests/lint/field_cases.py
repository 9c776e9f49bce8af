# SPDX-License-Identifier: BSD-3-Clause
"""docs/field-cases.md: every case is there with its report, every test that it names exists, and every program of tests is one that is run."""

import os
import re

import lintlib

PAGE = "docs/field-cases.md"
# The numbers of the collection; those between them were put together with others.
CASES = [1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55,
         56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74]
NOT_YET = "operations: not yet"
ROW = re.compile(r"^\| B(\d+) \| (.*) \| (.*) \| (.*) \| (.*) \|$")
REPORT = re.compile(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+\)")
TEST = re.compile(r"`([\w/]+\.(?:c|sh|py)): ([^`]+)`")


def has_test(path, text, name):
    if path.endswith(".c"):
        return re.search(rf"^(Parameterized)?Test\(\w+, {re.escape(name)}\b", text, re.M)
    if path.endswith(".py"):
        return re.search(rf"^def {re.escape(name)}\(", text, re.M)
    return re.search(rf'^\s*(timed )?(check\w*( \d+)?|ok|refuses|starts) "{re.escape(name)}"', text, re.M)


def is_run(root, path):
    """Whether meson runs this program, or a program that meson runs imports it."""
    folder, name = os.path.split(os.path.join("tests", path))
    stem = os.path.splitext(name)[0]
    meson = lintlib.read(root, os.path.join(folder, "meson.build"))
    if name.endswith(".py"):
        runners = [f for f in re.findall(r"'(\w+)':", meson) if os.path.isfile(os.path.join(root, folder, f + ".py"))]
        return any(re.search(rf"^import {stem}$", lintlib.read(root, os.path.join(folder, f + ".py")), re.M) for f in runners)
    short = re.sub(r"^test_(fault_)?", "", stem)
    return any(f"'{s}'" in meson for s in (stem, short, f"{stem}.c"))


def check_test(root, report, line, path, name):
    if not os.path.isfile(os.path.join(root, "tests", path)):
        report.bad(PAGE, line, f"there is no tests/{path}")
    elif not has_test(path, lintlib.read(root, os.path.join("tests", path)), name):
        report.bad(PAGE, line, f"tests/{path} has no test '{name}'")
    elif not is_run(root, path):
        report.bad(PAGE, line, f"no meson.build runs tests/{path}")


def check_row(root, report, line, cells):
    reports, right, tests, still_open = cells
    if not REPORT.search(reports):
        report.bad(PAGE, line, "no link to a report")
    if len(right) < 20:
        report.bad(PAGE, line, "does not say what is right")
    found = TEST.findall(tests)
    if len(found) != tests.count("`") // 2 or (not found and NOT_YET not in still_open):
        report.bad(PAGE, line, f"no test, or one that cannot be read; without any it says '{NOT_YET}'")
    for path, name in found:
        check_test(root, report, line, path, name)


def check(root, report):
    if not os.path.isfile(os.path.join(root, PAGE)):
        report.bad(PAGE, 0, "is missing")
        return
    seen = []
    for line, text in enumerate(lintlib.read(root, PAGE).splitlines(), 1):
        match = ROW.match(text)
        if match:
            seen.append(int(match.group(1)))
            check_row(root, report, line, match.groups()[1:])
        elif text.startswith("| B"):
            report.bad(PAGE, line, "a row that cannot be read")
    for number in CASES:
        if seen.count(number) != 1:
            report.bad(PAGE, 0, f"case B{number} is there {seen.count(number)} times")
    for number in sorted(set(seen) - set(CASES)):
        report.bad(PAGE, 0, f"B{number} is no case")


def row(number, tests, still_open=""):
    return f"| B{number} | [a/b#1](https://github.com/a/b/issues/1) | what is right, in a short line | {tests} | {still_open} |\n"


GOOD = "# Cases\n\n" + row(1, "`unit/test_a.c: works`<br>`smoke/b.sh: it is so`") + row(2, "`vm/vm_c.py: case`") \
    + row(4, "", NOT_YET) + "".join(row(n, "`unit/test_a.c: works`") for n in CASES[3:])
CLEAN = {
    PAGE: GOOD,
    "tests/unit/test_a.c": "Test(a, works)\n{\n}\n",
    "tests/unit/meson.build": "unit_tests = [\n    'a',\n]\n",
    "tests/smoke/b.sh": '\tcheck_status 2 "it is so" true\n',
    "tests/smoke/meson.build": "smoke_cases = ['b']\n",
    "tests/vm/vm_c.py": "def case(t):\n    pass\n",
    "tests/vm/one.py": "import vm_c\n",
    "tests/vm/meson.build": "vm_groups = {\n    'one': ['c'],\n}\n",
}
PLANTS = [
    ("a case that is missing", {PAGE: GOOD.replace(row(74, "`unit/test_a.c: works`"), "")}),
    ("a case that is there twice", {PAGE: GOOD + row(74, "`unit/test_a.c: works`")}),
    ("a case that is none", {PAGE: GOOD + row(75, "`unit/test_a.c: works`")}),
    ("a test that does not exist", {"tests/unit/test_a.c": "Test(a, worked)\n{\n}\n"}),
    ("a test that is only called so in a comment", {"tests/unit/test_a.c": "/* Test(a, works) */\n"}),
    ("a line of a script that does not exist", {"tests/smoke/b.sh": 'check "it was so" true\n'}),
    ("a function that does not exist", {"tests/vm/vm_c.py": "def cases(t):\n    pass\n"}),
    ("a file that does not exist", {"tests/unit/test_a.c": None}),
    ("a program that nobody runs", {"tests/unit/meson.build": "unit_tests = [\n    'b',\n]\n"}),
    ("a Python file that nobody imports", {"tests/vm/one.py": "import vm_d\n"}),
    ("a case without a test", {PAGE: GOOD.replace(NOT_YET, "later")}),
    ("a case without a report", {PAGE: GOOD.replace("https://github.com/a/b/issues/1", "https://example.org", 1)}),
    ("a case that does not say what is right", {PAGE: GOOD.replace("what is right, in a short line", "it works", 1)}),
    ("a row that cannot be read", {PAGE: GOOD.replace("| B2 |", "| B2", 1)}),
    ("a page that is missing", {PAGE: None}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
