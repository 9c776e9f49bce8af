# SPDX-License-Identifier: BSD-3-Clause
"""Applies one mutation to a tree. A mutation is a text file:

    what: one line that says which mistake this is
    tests: suites, or names of meson tests, of which one must fail
    file: path in the tree
    --- from
    text that occurs exactly once in the file
    --- to
    what replaces it

More blocks of file, from and to may follow. Prints the changed files. A text that is missing or ambiguous is an error.
"""

import argparse
import os
import sys


def parse(path):
    fields, edits, block = {}, [], None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("--- "):
                block = line[4:].strip()
                edits[-1][block] = ""
            elif line.startswith("file: "):
                edits.append({"file": line[6:].strip()})
                block = None
            elif block:
                edits[-1][block] += line
            elif ": " in line and not line.startswith("#"):
                key, value = line.split(": ", 1)
                fields[key] = value.strip()
    return fields, edits


def apply(path, root, write):
    changed = []
    for edit in parse(path)[1]:
        full = os.path.join(root, edit["file"])
        try:
            with open(full, encoding="utf-8") as f:
                text = f.read()
        except OSError as error:
            sys.exit(f"{path}: {error}")
        n = text.count(edit["from"])
        if n != 1:
            sys.exit(f"{path}: the text is {n} times in {edit['file']}")
        if write:
            with open(full, "w", encoding="utf-8") as f:
                f.write(text.replace(edit["from"], edit["to"]))
        changed.append(edit["file"])
    if not changed:
        sys.exit(f"{path}: no change in it")
    return changed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mutation")
    parser.add_argument("root", nargs="?")
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--what", action="store_true")
    parser.add_argument("--tests", action="store_true")
    args = parser.parse_args()
    if args.what or args.tests:
        print(parse(args.mutation)[0]["what" if args.what else "tests"])
        return
    changed = apply(args.mutation, args.root, not args.check)
    if not args.check:
        print(*changed)


if __name__ == "__main__":
    main()
