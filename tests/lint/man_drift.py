# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages keep up: each is what gen_man.py writes from tables, --help and headers, and is installed.

gen_man.py itself refuses a function that is declared and not exported (or the other way round), an option that --help lacks, and a table
that it does not understand as a whole; here that is a finding.
"""

import os

import gen_man
import lintlib

INSTALLED = "man/meson.build"


def check_page(root, report, page, write, src, version):
    try:
        want = write(src, version).splitlines()
    except (ValueError, AttributeError, KeyError) as error:
        report.bad(page, 0, f"cannot be written: {error}")
        return
    if not os.path.isfile(os.path.join(root, page)):
        report.bad(page, 0, "is missing; run tests/lint/gen_man.py")
        return
    have = lintlib.read(root, page).splitlines()
    if have != want:
        differs = [n for n, (a, b) in enumerate(zip(have, want)) if a != b]
        report.bad(page, (differs[0] if differs else min(len(have), len(want))) + 1, "is not what the sources say; run tests/lint/gen_man.py")


def check(root, report):
    missing = [path for path in gen_man.SOURCES.values() if not os.path.isfile(os.path.join(root, path))]
    for path in missing:
        report.bad(path, 0, "is missing")
    if missing:
        return
    src = {key: lintlib.read(root, path) for key, path in gen_man.SOURCES.items()}
    meson = lintlib.read(root, INSTALLED) if os.path.isfile(os.path.join(root, INSTALLED)) else ""
    for page, write in gen_man.PAGES.items():
        check_page(root, report, page, write, src, gen_man.version_of(src["meson"]))
        if f"'{os.path.basename(page)}'" not in meson:
            report.bad(INSTALLED, 0, f"does not install {page}")


def clean_tree():
    """The tree of the project itself, as far as pages are made of it: plants change one thing each."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    paths = [*gen_man.SOURCES.values(), *gen_man.PAGES, INSTALLED]
    return {path: lintlib.read(root, path) if os.path.isfile(os.path.join(root, path)) else "" for path in paths}


CLEAN = clean_tree()


def changed(key, old, new):
    """One change; where the text has gone the tree stays clean, and the plant is reported as missed."""
    path = gen_man.SOURCES.get(key, key)
    return {path: CLEAN[path].replace(old, new, 1)}


PLANTS = [
    ("a command that the page lacks", changed("cli", "\t{0},\n};", '\t{"fresh", "", 0, 0, REMOTE, cmd_fresh, "new"},\n\t{0},\n};')),
    ("a command that was renamed", changed("cli", '{"stat",', '{"stats",')),
    ("a command that takes one more option", changed("cli", "0, 1, REMOTE, cmd_ls", "0, 1, REMOTE | OPT_RANGE, cmd_ls")),
    ("an option that the page lacks", changed("cli", '\t{"ttl",', '\t{"new", OPTION_FLAG, OPT_PUT, FIELD(is_new), "", "new"},\n\t{"ttl",')),
    ("a row that cannot be read", changed("cli", "FIELD(ttl_ns)", "offsetof(struct cli, ttl_ns)")),
    ("an exit code that changed", changed("cli_main", "  4  no such object", "  5  no such object")),
    ("an option of the daemon without a line in its help", changed("daemon", '\t\t{"help", no_arg', '\t\t{"new", no_argument, NULL, \'n\'},\n\t\t{"help", no_arg')),
    ("a line of the daemon's help that changed", changed("daemon", "check the configuration, print", "check the file, print")),
    ("a mode that the page lacks", changed("perf", "\t{0},\n};", '\t{"fresh", PERF_READ, mode_fresh, "new"},\n\t{0},\n};')),
    ("a default that changed", changed("perf", "(default 64MiB)", "(default 32MiB)")),
    ("a function that the page lacks", changed("railyard.h", "void ry_detach(", "void ry_new(void);\nvoid ry_detach(")),
    ("a function that is not exported", changed("map", "\t\try_detach;\n", "")),
    ("an exported name that nobody declares", changed("map", "\t\try_detach;\n", "\t\try_detach;\n\t\try_secret;\n")),
    ("a comment that changed", changed("railyard.h", "NULL is allowed.", "NULL is not allowed.")),
    ("a field that is new", changed("railyard.h", "\tuint64_t client_id;\n", "\tuint64_t client_id;\n\tuint64_t age_ns;\n")),
    ("a limit that changed", changed("types.h", "RY_KEY_MAX_BYTES 4096u", "RY_KEY_MAX_BYTES 8192u")),
    ("a text of a status that changed", changed("texts", "no such object", "no object")),
    ("a page of an older version", changed("meson", "version: '", "version: '9.")),
    ("a page that was edited", changed("man/railyard.1", "no progress bar", "no progress bars")),
    ("a page that is missing", {"man/railyardd.8": None}),
    ("a page that is not installed", changed(INSTALLED, "'railyardd.8'", "'other.8'")),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
