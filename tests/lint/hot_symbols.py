# SPDX-License-Identifier: BSD-3-Clause
"""Hot objects call only what tests/lint/hot_symbols.allow names.

`nm` lists what each object of the hot archive leaves undefined; what another hot object defines is fine. The allow list has sections
named after objects (shell patterns); [*] holds for all. Some names can never be allowed: memory, locks, logs, clocks.
"""

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

import lintlib

# Never in a hot object, whatever the list says.
NEVER = ("malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "rte_malloc*", "rte_zmalloc*", "rte_free", "mmap", "munmap",
         "pthread_mutex_*", "pthread_rwlock_*", "pthread_cond_*", "pthread_spin_*", "sem_*", "*printf", "*printf_chk", "puts", "putchar", "fputs", "fwrite",
         "clock_gettime", "gettimeofday", "time", "syslog", "*syslog_chk", "rte_log", "rte_vlog", "write", "read", "open*", "ioctl", "nanosleep",
         "usleep", "sleep", "poll", "select", "getenv", "strerror*")
# What compilers add by themselves, sanitizers included.
COMPILER = ("__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_", "__asan_*", "__ubsan_*", "__tls_get_addr", "__gcov_*", "__sanitizer_*")


def parse_allow(text):
    """[(object pattern, set of symbol patterns)]"""
    sections = [("*", set())]
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        header = re.fullmatch(r"\[(.+)\]", line)
        if header:
            sections.append((header.group(1), set()))
        else:
            sections[-1][1].add(line)
    return sections


def objects(archive):
    """{object: (undefined symbols, defined symbols)}"""
    done = subprocess.run(["nm", "-A", archive], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nm {archive}: {done.stderr.strip()}")
    table = {}
    for line in done.stdout.splitlines():
        match = re.match(r"^.*[:/]([^:/]+\.o):\s*[0-9a-f]*\s+(\w) (\S+)$", line)
        if not match:
            continue
        name, kind, symbol = match.groups()
        undefined, defined = table.setdefault(name, (set(), set()))
        (undefined if kind in "Uvw" else defined).add(symbol)
    return table


def matches(symbol, patterns):
    return any(fnmatch.fnmatchcase(symbol, p) for p in patterns)


def check_archive(archive, allow_text, report):
    sections = parse_allow(allow_text)
    table = objects(archive)
    own = set().union(*(defined for _, defined in table.values())) if table else set()
    used = set()
    for name, (undefined, _) in sorted(table.items()):
        for symbol in sorted(undefined - own):
            allowed = [(p, s) for p, s in sections if fnmatch.fnmatchcase(name, p) and matches(symbol, s)]
            used.update((p, q) for p, s in allowed for q in s if fnmatch.fnmatchcase(symbol, q))
            if matches(symbol, NEVER):
                report.bad(name, 0, f"{symbol}: never in a hot object")
            elif not allowed and not matches(symbol, COMPILER):
                report.bad(name, 0, f"{symbol}: not in the allow list")
    report.note(f"{len(table)} hot objects")
    if not table:
        report.bad(archive, 0, "no hot object: nothing was checked")
    for pattern, symbols in sections:
        for symbol in sorted(symbols):
            if (pattern, symbol) not in used:
                report.note(f"note: [{pattern}] {symbol} is allowed and not used")


ALLOW = "[*]\nmemcpy\nmemset\n[*tcp_hot*]\nsendmsg\n"
CLEAN_SOURCE = "#include <string.h>\nvoid f(char *a, char *b, unsigned n);\nvoid f(char *a, char *b, unsigned n)\n{\n\tmemcpy(a, b, n);\n}\n"
SENDMSG = "#include <sys/socket.h>\nlong g(int fd, struct msghdr *m);\nlong g(int fd, struct msghdr *m)\n{\n\treturn sendmsg(fd, m, 0);\n}\n"


def call(include, code):
    return f"#include <{include}>\nvoid g(void *p);\nvoid g(void *p)\n{{\n\t{code}\n}}\n"


PLANTS = [
    ("malloc", "x_hot.c", call("stdlib.h", "*(void **)p = malloc(7);"), ALLOW),
    ("malloc although the list allows it", "x_hot.c", call("stdlib.h", "*(void **)p = malloc(7);"), ALLOW + "[*]\nmalloc\n"),
    ("free", "x_hot.c", call("stdlib.h", "free(p);"), ALLOW),
    ("a lock", "x_hot.c", call("pthread.h", "pthread_mutex_lock(p);"), ALLOW),
    ("printf", "x_hot.c", call("stdio.h", 'printf("%p", p);'), ALLOW),
    ("a clock call", "x_hot.c", call("time.h", "clock_gettime(CLOCK_MONOTONIC, p);"), ALLOW),
    ("syslog", "x_hot.c", call("syslog.h", 'syslog(LOG_INFO, "%p", p);'), ALLOW),
    ("write", "x_hot.c", call("unistd.h", "if (write(1, p, 1))\n\t\treturn;"), ALLOW),
    ("sendmsg in an object whose section does not have it", "mock_hot.c", SENDMSG, ALLOW),
]


def archive_of(folder, name, source):
    lintlib.write_tree(folder, {"src/clean.c": CLEAN_SOURCE, "src/" + name: source})
    made = []
    for file in ("clean.c", name):
        made.append(f"{folder}/{file}.o")
        subprocess.run(["cc", "-O2", "-c", f"{folder}/src/{file}", "-o", made[-1]], check=True)
    archive = f"{folder}/libhot.a"
    subprocess.run(["ar", "rcs", archive, *made], check=True)
    return archive


def findings(name, source, allow):
    with tempfile.TemporaryDirectory(prefix="ry-lint-") as folder:
        report = lintlib.Report()
        check_archive(archive_of(folder, name, source), allow, report)
        return report.findings


def self_test():
    n_bad = 0
    clean = findings("tcp_hot.c", SENDMSG, ALLOW)
    if clean:
        n_bad += 1
        print("a clean archive is not silent:", *clean)
    for what, name, source, allow in PLANTS:
        found = findings(name, source, allow)
        n_bad += not found
        print(f"{'caught' if found else 'MISSED'}: {what}", *found[:1])
    return 1 if n_bad else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("archive", nargs="?", help="libryhot.a")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        sys.exit(self_test())
    allow = lintlib.read(os.path.dirname(os.path.abspath(__file__)), "hot_symbols.allow")
    report = lintlib.Report()
    check_archive(args.archive, allow, report)
    for line in report.notes + report.findings:
        print(line)
    print(f"{len(report.findings)} findings")
    sys.exit(1 if report.findings else 0)


if __name__ == "__main__":
    main()
