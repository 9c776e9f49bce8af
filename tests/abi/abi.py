#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The binary interface of librailyard and of the memory it shares with the daemon, against what was recorded.

  abi.py --check LIBRARY    compares with baseline.txt; TAP
  abi.py --record LIBRARY   writes baseline.txt anew, and refuses a break whose version was not raised
  abi.py --self-test        planted changes are caught

Recorded: exported symbols with their versions, prototypes, callback types, sizes and offsets of every public struct,
values of every enumerator and constant. Sizes, offsets and values are what the compiler says, not what the text says.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = os.path.join(HERE, "..", "..", "include")
BASELINE = os.path.join(HERE, "baseline.txt")
HEADERS = ["types.h", "status.h", "ring.h", "railyard.h"]
SHARED = "ring.h"  # what both sides of the shared memory read; the rest is between a program and the library
# Counts that grow with their list, and the versions themselves.
GROWS = re.compile(r"RY_STATUS_MAX_|RY_RING_ABI_(MAJOR|MINOR)")


def source(header):
    with open(os.path.join(INCLUDE, "railyard", header)) as f:
        text = f.read()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    return re.sub(r'static_assert\((?:"[^"]*"|[^";])*\);', " ", text)


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


def structs(text):
    """Name -> list of (field, declaration)."""
    found = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\n\};", text, flags=re.S):
        fields = []
        for declaration in body.split(";"):
            declaration = one_line(declaration)
            if declaration:
                fields.append((re.search(r"(\w+)\s*((\[[^]]*\])*)$", declaration).group(1), declaration))
        found[name] = fields
    return found


def enums(text):
    return {name: re.findall(r"(RY_\w+)\s*=", body) for name, body in re.findall(r"enum (\w+) \{(.*?)\n\};", text, flags=re.S)}


def constants(text):
    return [name for name, value in re.findall(r"^#define (RY_\w+)[ \t]+(\S.*)$", text, flags=re.M) if not value.startswith('"')]


def strings(text):
    return re.findall(r'^#define (RY_\w+)[ \t]+("[^"]*")', text, flags=re.M)


def prototypes(text):
    """Functions and callback types, one line each."""
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{', "", text)
    text = re.sub(r"(struct|enum) \w+ \{.*?\n\};", "", text, flags=re.S)
    lines = [one_line(part) for part in text.split(";")]
    return [line for line in lines if "(" in line]


def program(texts):
    """C that prints what the compiler makes of the headers."""
    out = ["#include <stdio.h>"] + [f"#include <railyard/{h}>" for h in texts] + ["int main(void) {"]
    put = lambda fmt, *args: out.append(f'printf("{fmt}\\n", {", ".join(args)});')
    for header, text in texts.items():
        for name, fields in structs(text).items():
            put(f"{header} struct {name} size %zu align %zu", f"sizeof(struct {name})", f"_Alignof(struct {name})")
            for field, declaration in fields:
                put(f"{header} field {name}.{field} offset %zu size %zu {declaration}",
                    f"offsetof(struct {name}, {field})", f"sizeof(((struct {name} *)0)->{field})")
        for name, words in enums(text).items():
            for word in words:
                put(f"{header} enum {name} {word} %lld", f"(long long){word}")
        for name in constants(text):
            put(f"{header} constant {name} %llu", f"(unsigned long long)({name})")
    return "\n".join(out + ["return 0; }"])


def compiled(texts):
    with tempfile.TemporaryDirectory() as directory:
        c, exe = os.path.join(directory, "abi.c"), os.path.join(directory, "abi")
        with open(c, "w") as f:
            f.write(program(texts))
        subprocess.run([os.environ.get("CC_FOR_ABI", "cc"), "-std=gnu11", "-I", INCLUDE, "-o", exe, c], check=True)
        return subprocess.run([exe], check=True, capture_output=True, text=True).stdout.splitlines()


def current(library):
    texts = {h: source(h) for h in HEADERS}
    lines = compiled(texts)
    for header, text in texts.items():
        lines += [f"{header} string {name} {value}" for name, value in strings(text)]
        lines += [f"{header} prototype {line}" for line in prototypes(text)]
    symbols = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], check=True, capture_output=True, text=True).stdout
    for line in symbols.splitlines():
        kind, name = line.split()[1:3]
        if kind in "TDBRVW":
            lines.append(f"library symbol {name.replace('@@', ' ').replace('@', ' ')}")
    soname = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    lines.append("library soname " + re.search(r"\(SONAME\).*\[(.*)\]", soname).group(1))
    return lines


def gives_result(line):
    """A prototype of a function without a result, as it would read with a status: nobody who is linked looks at it."""
    return line.replace("railyard.h prototype void ry_", "railyard.h prototype enum ry_status ry_")


def version(lines):
    """(ring major, ring minor, soname)."""
    value = lambda pattern: next((m.group(1) for m in (re.search(pattern, line) for line in lines) if m), "0")
    return (int(value(r"RY_RING_ABI_MAJOR (\d+)")), int(value(r"RY_RING_ABI_MINOR (\d+)")), value(r"library soname (\S+)"))


def plain(lines):
    return {line for line in lines if not GROWS.search(line) and not line.startswith("library soname")}


def compare(before, now):
    """(what is broken, what is new, what to raise). Empty lists: nothing to do."""
    gone, new = sorted(plain(before) - plain(now)), sorted(plain(now) - plain(before))
    was, is_ = version(before), version(now)
    advice = []
    if any(line.startswith(SHARED) for line in gone) and is_[0] == was[0]:
        advice.append("raise RY_RING_ABI_MAJOR in include/railyard/ring.h: an older library would misread the daemon's memory")
    if any(not line.startswith(SHARED) and gives_result(line) not in new for line in gone) and is_[2] == was[2]:
        advice.append("raise soversion in control/client/meson.build: programs that are linked already would break")
    if not gone and any(line.startswith(SHARED) for line in new) and is_[:2] == was[:2]:
        advice.append("raise RY_RING_ABI_MINOR in include/railyard/ring.h: the older side must be able to tell")
    return gone, new, advice


def read_baseline():
    with open(BASELINE) as f:
        return [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]


def check(library):
    before, now = read_baseline(), current(library)
    gone, new, advice = compare(before, now)
    good = not gone and not new and version(before) == version(now)
    for line in gone:
        print(f"# was:  {line}")
    for line in new:
        print(f"# is:   {line}")
    for line in advice:
        print(f"# {line}")
    if not good:
        print("# Undo the change, or raise what is named above; then record it: python3 tests/abi/abi.py --record BUILD/control/client/librailyard.so")
    print(f"{'ok' if good else 'not ok'} 1 - {len(now)} facts of the binary interface are as recorded")
    print("1..1")
    return 0 if good else 1


def record(library):
    now = current(library)
    if os.path.exists(BASELINE):
        _, _, advice = compare(read_baseline(), now)
        if advice:
            print("\n".join(f"abi.py: {line}" for line in advice), file=sys.stderr)
            return 1
    with open(BASELINE, "w") as f:
        f.write("# Written by tests/abi/abi.py --record; do not edit.\n")
        f.write("".join(line + "\n" for line in now))
    return 0


def self_test():
    base = ["ring.h constant RY_RING_ABI_MAJOR 1", "ring.h constant RY_RING_ABI_MINOR 0", "library soname librailyard.so.0",
            "ring.h field ry_sqe.op offset 8 size 1 uint8_t op", "railyard.h field ry_put_opts.flags offset 44 size 4 uint32_t flags",
            "library symbol ry_put RAILYARD_0", "railyard.h prototype void ry_end(int n)", "status.h enum ry_status RY_STATUS_MAX_ 24"]

    def changed(old, new):
        return [line.replace(old, new) for line in base]

    cases = [
        ("nothing changed", base, 0, 0, ""),
        ("a moved field of the shared memory", changed("offset 8", "offset 9"), 1, 1, "RY_RING_ABI_MAJOR"),
        ("a grown option of the library", changed("offset 44 size 4", "offset 48 size 8"), 1, 1, "soversion"),
        ("a function that has a result now", changed("prototype void ry_end", "prototype enum ry_status ry_end"), 1, 1, ""),
        ("a function that has another argument, too", changed("prototype void ry_end(int", "prototype enum ry_status ry_end(long"), 1, 1, "soversion"),
        ("a symbol that is gone", [line for line in base if "symbol" not in line], 1, 0, "soversion"),
        ("a new symbol", base + ["library symbol ry_new RAILYARD_1"], 0, 1, ""),
        ("a new operation", base + ["ring.h enum ry_op RY_OP_NEW 9"], 0, 1, "RY_RING_ABI_MINOR"),
        ("a new status", changed("MAX_ 24", "MAX_ 25") + ["status.h enum ry_status RY_ERR_NEW 24"], 0, 1, ""),
        ("a break with its version raised", changed("offset 8", "offset 9")[1:] + ["ring.h constant RY_RING_ABI_MAJOR 2"], 1, 1, ""),
    ]
    failed = 0
    for i, (name, now, n_gone, n_new, word) in enumerate(cases, 1):
        gone, new, advice = compare(base, now)
        good = len(gone) == n_gone and len(new) == n_new and bool(advice) == bool(word) and all(word in line for line in advice)
        failed += not good
        print(f"{'ok' if good else 'not ok'} {i} - {name}")
    text = source("ring.h")
    fields = structs(text)["ry_sqe"]
    good = len(fields) >= 11 and ("ticket", "uint64_t ticket") in fields and "RY_OP_READ" in enums(text)["ry_op"] and "RY_RING_MAGIC" in constants(text)
    print(f"{'ok' if good else 'not ok'} {len(cases) + 1} - the headers are understood")
    print(f"1..{len(cases) + 1}")
    return 1 if failed or not good else 0


def main():
    if len(sys.argv) == 2 and sys.argv[1] == "--self-test":
        return self_test()
    if len(sys.argv) != 3 or sys.argv[1] not in ("--check", "--record"):
        print(__doc__, file=sys.stderr)
        return 2
    return check(sys.argv[2]) if sys.argv[1] == "--check" else record(sys.argv[2])


sys.exit(main())
