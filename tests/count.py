# SPDX-License-Identifier: BSD-3-Clause
"""Counts tests truly: what each program says about its own tests, not how many programs ran.

Reads meson's JSON log, or plain TAP with --tap. A Criterion program counts by its Synthesis line, a TAP program by its lines, any other program as
one. A program that failed without a failing test of its own (time-out, crash outside a test) counts one failure more. Prints failures
and skips with their reasons; the last line is "passed failed skipped". With --again, the log of a second run of what had failed: the
second result counts, and what had failed in the first is printed as such. --failed prints the names of programs that failed.
"""

import argparse
import json
import re
import sys

SYNTHESIS = re.compile(r"Synthesis: Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
CRITERION_SKIP = re.compile(r"^\[SKIP\] (\S+?): (.*)$", re.M)
CRITERION_FAIL = re.compile(r"^\[FAIL\] (.*)$", re.M)
TAP = re.compile(r"^(ok|not ok)\b\s*\d*\s*-?\s*(.*)$", re.M)
TAP_SKIP = re.compile(r"^(.*?)\s*#\s*skip\S*\s*(.*)$", re.I)
TAP_PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*skip\S*\s*(.*))?$", re.M | re.I)
OK = ("OK", "EXPECTEDFAIL")


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.lines = []

    def fail(self, text):
        self.failed += 1
        self.lines.append(f"FAILED {text}")

    def skip(self, text):
        self.skipped += 1
        self.lines.append(f"skipped {text}")


def count_criterion(count, name, text):
    for _, passing, failing, _ in SYNTHESIS.findall(text):  # "Failing" includes the crashing ones
        count.passed += int(passing)
        count.failed += int(failing)
    count.lines += [f"FAILED {name}: {line}" for line in CRITERION_FAIL.findall(text)]
    for test, why in CRITERION_SKIP.findall(text):
        count.skip(f"{name}: {test}: {why}")


def count_tap(count, name, text):
    n = 0
    for verdict, what in TAP.findall(text):
        n += 1
        skip = TAP_SKIP.match(what)
        if verdict == "ok" and skip:
            count.skip(f"{name}: {skip.group(1)}: {skip.group(2)}")
        elif verdict == "ok":
            count.passed += 1
        else:
            count.fail(f"{name}: {what}")
    plan = TAP_PLAN.search(text)
    if not plan:
        count.fail(f"{name}: no TAP plan: it did not reach its end")
    elif int(plan.group(1)) != n:
        count.fail(f"{name}: {n} of {plan.group(1)} planned tests reported")
    elif n == 0:
        count.skip(f"{name}: {plan.group(2) or 'no reason given'}")


def count_program(count, name, result, text):
    before = count.failed
    if SYNTHESIS.search(text):
        count_criterion(count, name, text)
    elif TAP.search(text) or TAP_PLAN.search(text):
        count_tap(count, name, text)
    elif result == "SKIP":
        reason = text.strip().splitlines()
        count.skip(f"{name}: {reason[-1] if reason else 'no reason given'}")
        return
    elif result in OK:
        count.passed += 1
        return
    if result not in OK + ("SKIP",) and count.failed == before:
        tail = "".join(f"\n    {line}" for line in text.strip().splitlines()[-8:])
        count.fail(f"{name}: {result}{tail}")


def count_test(count, test):
    text = test.get("stdout", "") + "\n" + test.get("stderr", "")
    count_program(count, test["name"], test["result"], text)


def count_log(count, lines, again=()):
    second = {test["name"]: test for test in map(json.loads, again)}
    for test in map(json.loads, lines):
        if test["name"] in second:
            first = Count()
            count_test(first, test)
            count.lines += [f"ran once more: {line}" for line in first.lines]
        count_test(count, second.get(test["name"], test))


def failed_names(lines):
    return [test["name"].split(" / ")[-1] for test in map(json.loads, lines) if test["result"] not in OK + ("SKIP",)]


def log_of(items):
    return [json.dumps({"name": "t", "result": r, "stdout": o, "stderr": e}) for r, o, e in items]


def numbers(items, again=()):
    count = Count()
    count_log(count, log_of(items), log_of(again))
    return count.passed, count.failed, count.skipped


SELF_TESTS = [
    ([("OK", "", "[====] Synthesis: Tested: 12 | Passing: 12 | Failing: 0 | Crashing: 0 \n")], (12, 0, 0)),
    ([("FAIL", "", "[FAIL] a::b: CRASH!\n[====] Synthesis: Tested: 3 | Passing: 1 | Failing: 2 | Crashing: 1 \n")], (1, 2, 0)),
    ([("OK", "", "[SKIP] a::b: no device\n[====] Synthesis: Tested: 1 | Passing: 1 | Failing: 0 | Crashing: 0 \n")], (1, 0, 1)),
    ([("FAIL", "", "[====] Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0 \n")], (3, 1, 0)),
    ([("FAIL", "1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no veth\n", "")], (1, 1, 1)),
    ([("OK", "ok 1 - a\nok 2 - b\n1..2\n", "")], (2, 0, 0)),
    ([("ERROR", "ok 1 - a\n", "")], (1, 1, 0)),
    ([("FAIL", "1..3\nok 1 - a\nok 2 - b\n", "")], (2, 1, 0)),
    ([("SKIP", "1..0 # SKIP not root\n", "")], (0, 0, 1)),
    ([("TIMEOUT", "", "")], (0, 1, 0)),
    ([("TIMEOUT", "1..2\nok 1 - a\nok 2 - b\n", "")], (2, 1, 0)),
    ([("SKIP", "no device\n", ""), ("OK", "hello", "")], (1, 0, 1)),
]


def self_test():
    n_bad = 0
    for items, want in SELF_TESTS:
        got = numbers(items)
        if got != want:
            n_bad += 1
            print(f"{items}: counted {got}, expected {want}")
    bad, good = ("FAIL", "1..2\nok 1 - a\nnot ok 2 - b\n", ""), ("OK", "1..2\nok 1 - a\nok 2 - b\n", "")
    for first, second, want in ((bad, good, (2, 0, 0)), (bad, bad, (1, 1, 0))):
        n_bad += numbers([first], [second]) != want
    n_bad += failed_names(log_of([bad, good])) != ["t"]
    print(f"{len(SELF_TESTS) + 3} logs, {n_bad} counted wrongly")
    return 1 if n_bad else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("log", nargs="?", help="meson's testlog.json, or TAP with --tap")
    parser.add_argument("--tap", metavar="NAME", help="the log is the TAP output of one program of this name")
    parser.add_argument("--again", metavar="LOG")
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        sys.exit(self_test())
    count = Count()
    with open(args.log, encoding="utf-8", errors="replace") as log:
        if args.failed:
            print(*failed_names(log))
            return
        if args.tap:
            count_tap(count, args.tap, log.read())
        elif args.again:
            with open(args.again, encoding="utf-8", errors="replace") as again:
                count_log(count, log, again)
        else:
            count_log(count, log)
    print(*count.lines, sep="\n", end="\n" if count.lines else "")
    print(count.passed, count.failed, count.skipped)


if __name__ == "__main__":
    main()
