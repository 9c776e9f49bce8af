# SPDX-License-Identifier: BSD-3-Clause
"""What the lints share: walking the tree, reporting, and proving that a lint catches what it forbids.

A lint is a function check(root, report) and a list of plants. A plant is a name and the files that break one rule; --self-test
writes a clean tree, expects silence, then writes each plant into a tree of its own, and expects a finding for each.
"""

import argparse
import os
import sys
import tempfile

SKIP = 77  # meson's exit status of a skipped test


class Report:
    def __init__(self):
        self.findings = []
        self.notes = []

    def bad(self, path, line, text):
        self.findings.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")

    def note(self, text):
        self.notes.append(text)


class Skipped(Exception):
    """Raised by a lint that cannot run here; the text says why."""


def files(root, *suffixes):
    """Paths below root, relative, sorted; build trees and hidden folders other than .ci are left out."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f == ".ci" or not (f.startswith((".", "build")) or f == "__pycache__"))
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if not suffixes or name.endswith(suffixes):
                found.append(path)
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def write_tree(root, tree):
    for path, text in tree.items():
        if text is None:  # planted: the file is missing
            continue
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)


def findings_of(check, tree):
    with tempfile.TemporaryDirectory(prefix="ry-lint-") as root:
        write_tree(root, tree)
        report = Report()
        check(root, report)
        return report.findings


def self_test(check, clean, plants):
    n_bad = 0
    noise = findings_of(check, clean)
    if noise:
        n_bad += 1
        print("a clean tree is not silent:", *noise, sep="\n  ")
    for name, tree in plants:
        found = findings_of(check, {**clean, **tree})
        if not found:
            n_bad += 1
        print(f"{'caught' if found else 'MISSED'}: {name}" + (f" ({found[0]})" if found else ""))
    return 1 if n_bad else 0


def run(check, clean, plants):
    """main() of a lint. Exit status 0 clean, 1 findings, 77 cannot run here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--self-test", action="store_true", help="plant violations and expect them to be caught")
    args = parser.parse_args()
    try:
        if args.self_test:
            sys.exit(self_test(check, clean, plants))
        report = Report()
        check(os.path.realpath(args.root), report)
    except Skipped as why:
        print(f"skipped: {why}")
        sys.exit(SKIP)
    for line in report.notes + report.findings:
        print(line)
    print(f"{len(report.findings)} findings")
    sys.exit(1 if report.findings else 0)
