# SPDX-License-Identifier: BSD-3-Clause
"""Writes the manual pages in man/ from the tables of commands and options, the texts of --help, and the public headers.

  gen_man.py [--root DIR]     man_drift.py fails while a page differs from what this would write

Only what no table knows stands here: what a program is for, examples, files. To look at a page: man -l man/railyard.1
"""

import argparse
import os
import re
import sys

import man_source

DATE = "2026-11-30"  # of the text; a page without one is no good page
SOURCES = {
    "cli": "control/cli/commands.c",
    "cli_main": "control/cli/main.c",
    "daemon": "control/daemon/options.c",
    "perf": "perf/main.c",
    "railyard.h": "include/railyard/railyard.h",
    "types.h": "include/railyard/types.h",
    "ring.h": "include/railyard/ring.h",
    "status.h": "include/railyard/status.h",
    "texts": "control/client/status.c",
    "map": "control/client/railyard.map",
    "meson": "meson.build",
}
HIDDEN = {"print-config-doc"}  # of railyardd: for those who build it
SHARED = ["ry_op_flags", "ry_class"], ["ry_op", "ry_object", "ry_rail_stats", "ry_read_stats", "ry_list_entry"]

# What a command's row has no room for.
MORE = {
    "demo": "It needs no configuration, no daemon and no rights, and leaves nothing behind. Every byte is compared.",
    "rails": "`drain` gives a rail no new work, what is under way finishes; `resume` takes it back. Both last until the daemon ends, and are for root and the daemon's user.",
    "limits": "Without an option it shows them. What is out when a budget is lowered ends as it would have.",
    "faults": "PLAN is text such as `stall:at=1MiB,for=2s`; docs/faults.md has all kinds. The daemon needs `fault_injection: true`.",
    "ls": "A key is shown as it is, if it is UTF-8 without control characters and backslashes; else each byte that is not printable ASCII, and each backslash, as \\xNN. So no two keys look alike.",
    "put": "Where the store has no room, others are evicted, the least recently used first (`store.tier: cache`, the default); of standard input (-) the size is not known before, so that room is made while it arrives, also for an object that turns out not to fit.",
    "get": "It is written to FILE.part and renamed when it is complete and verified; an earlier FILE stays until then.",
    "plan": "With KEY for a stored object, with --size for one that need not exist. Nothing moves.",
    "config-check": "It runs the daemon's own check (railyardd --check), which starts nothing.",
}


def text(s):
    """A line of prose for roff; what is in backquotes is bold."""
    s = s.replace("\\", "\\e").replace("-", "\\-")
    s = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", s)
    return "\\&" + s if s.startswith((".", "'")) else s


def code(s):
    """A line that is to be copied."""
    for plain, escaped in (("\\", "\\e"), ("-", "\\-"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti"), ("'", "\\(aq")):
        s = s.replace(plain, escaped)
    return "\\&" + s if s.startswith(".") else s


class Page:
    def __init__(self, name, number, version, made_from):
        self.lines = ['.\\" SPDX-License-Identifier: BSD-3-Clause',
                      f'.\\" Written by tests/lint/gen_man.py from {made_from}; do not edit.',
                      f'.TH {name.upper().replace("-", chr(92) + "-")} {number} {DATE} "railyard {version}" "Railyard"']

    def add(self, *lines):
        self.lines += lines

    def section(self, title):
        self.add(f".SH {title}")

    def sub(self, title):
        self.add(f".SS {title}")

    def prose(self, s):
        """Paragraphs apart from each other by an empty line; lines that begin with "- " are a list."""
        is_first = True
        for paragraph in re.split(r"\n\s*\n|\n(?=- )", s.strip()):
            line = " ".join(paragraph.split())
            if line.startswith("- "):
                self.add(".IP \\(bu 2", text(line[2:]))
            else:
                self.add(*([] if is_first else [".PP"]), text(line))
            is_first = False

    def example(self, s):
        self.add(".PP", ".EX", *(code(line.expandtabs(4)) for line in s.rstrip("\n").split("\n")), ".EE")

    def item(self, term, meaning):
        self.add(".TP", f"\\fB{code(term)}\\fR", text(meaning))

    def items(self, pairs):
        for term, meaning in pairs:
            self.item(term, meaning)

    def options(self, rows, bits):
        for name, _, bit, value, meaning in rows:
            if bit in bits:
                term = f"\\fB\\-\\-{code(name)}\\fR" + (f" \\fI{code(value)}\\fR" if value else "")
                self.add(".TP", term, text(meaning))

    def made(self):
        return "\n".join(self.lines) + "\n"


def default_socket(src):
    return re.search(r'#define RY_SOCKET_DEFAULT "([^"]+)"', src["railyard.h"]).group(1)


def railyard_1(src, version):
    options = man_source.options(src["cli"], "struct option_row cli_options[]")
    commands = man_source.commands(src["cli"])
    helped = man_source.help_text(src["cli_main"], "print_help").replace("%s)", default_socket(src) + ")")
    p = Page("railyard", 1, version, "the tables of control/cli/commands.c")
    p.section("NAME")
    p.add("railyard \\- look at, steer and use a Railyard daemon")
    p.section("SYNOPSIS")
    p.add("\\fBrailyard\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]")
    p.section("DESCRIPTION")
    p.prose("Everything that an operator does with `railyardd`(8) goes through its control socket; objects are read and written through shared memory. "
            "Options may stand before and after the command, as `--name value` or `--name=value`; `--` ends them. Sizes are written like 4MiB or 64KiB, "
            "rates like 125MB/s, times like 5s or 200ms. A key may not be empty and has at most 4096 bytes.")
    p.section("COMMANDS")
    unknown = set(MORE) - {name for name, *_ in commands}
    if unknown:
        raise ValueError(f"gen_man.py tells more of commands that do not exist: {', '.join(sorted(unknown))}")
    for name, arguments, bits, meaning in commands:
        p.sub(f"railyard {code(name)} {code(arguments)}".rstrip())
        p.prose(meaning[0].upper() + meaning[1:] + "." + (" " + MORE[name] if name in MORE else ""))
        p.options(options, bits - {"OPT_SOCKET", "OPT_DEADLINE"})
    p.section("OPTIONS")
    p.prose("These belong to every command that has a use for them:")
    p.options(options, {"OPT_COMMON", "OPT_SOCKET", "OPT_DEADLINE"})
    p.section("EXIT STATUS")
    p.items(man_source.listed(helped, "exit codes"))
    p.section("ENVIRONMENT")
    p.items(man_source.listed(helped, "environment"))
    p.section("ERRORS")
    p.prose("A failed operation is one line on standard error: `railyard: COMMAND: STATUS: cause`; with `--json` one object on standard output, "
            '{"error": {"status", "cause"}}. Every status has its cause and remedy in docs/errors.md, and a line in `librailyard`(3).')
    p.section("EXAMPLES")
    p.example("railyard demo --rail-rate 125MB/s\nrailyard put weights model.bin\nrailyard get weights copy.bin --failover\n"
              "railyard health\nrailyard rails drain rail1\nrailyard reads --failed --last 5 --json")
    docs_section(p)
    p.section("SEE ALSO")
    p.add("\\fBrailyardd\\fR(8), \\fBrailyard\\-perf\\fR(1), \\fBlibrailyard\\fR(3)")
    return p.made()


def docs_section(p):
    p.section("DOCUMENTATION")
    p.prose("What is called docs/ here is installed as share/doc/railyard below the prefix, /usr/local unless it was built with another.")


def railyardd_8(src, version):
    helped = man_source.help_text(src["daemon"], "options_help")
    named = set(re.findall(r"--([\w-]+)", helped))
    missing = set(man_source.long_options(src["daemon"])) - named - HIDDEN
    if missing:
        raise ValueError(f"options without a line in --help: {', '.join(sorted(missing))}")
    p = Page("railyardd", 8, version, "the text of --help in control/daemon/options.c")
    p.section("NAME")
    p.add("railyardd \\- the Railyard dataplane daemon")
    p.section("SYNOPSIS")
    p.add("\\fBrailyardd\\fR [\\fIEAL arguments\\fR] \\fB\\-\\-\\fR \\fB\\-\\-config\\fR \\fIFILE\\fR [\\fB\\-\\-check\\fR | \\fB\\-\\-print\\-config\\fR]")
    p.section("DESCRIPTION")
    p.prose("It reads objects over many NICs at once for the workers of this host (role `reader`), serves objects to readers (role `store`), or both, as its configuration says. "
            "One pinned lcore runs each rail, one more everything else that is decided; they sleep when there is nothing to do.")
    for paragraph in helped.split("\n\n"):
        if paragraph.startswith(("EAL arguments", "Signals")):
            p.add(".PP")
            p.prose(paragraph)
    p.section("OPTIONS")
    for line in helped.splitlines():
        match = re.match(r"^ +((?:-\w, )?--[\w-]+)(?: ([A-Z]+))?  +(.+)$", line)
        if match:
            names, value, meaning = match.groups()
            p.add(".TP", f"\\fB{code(names)}\\fR" + (f" \\fI{value}\\fR" if value else ""), text(meaning))
    p.section("EXIT STATUS")
    p.items(man_source.listed(helped, "exit codes"))
    p.section("FILES")
    p.item("railyardd.service", "a unit of systemd, installed with the daemon; it reads /etc/railyard/railyard.yaml, and EAL arguments from RAILYARD_EAL in /etc/default/railyardd.")
    p.item(default_socket(src), "the control socket, unless `socket` in the configuration says otherwise; mode 0660. A stale one is replaced.")
    p.section("NOTES")
    p.prose("Readiness is told to a service manager (sd_notify) and on standard output; all else goes to standard error, one line an event. TCP rails need no rights at all; "
            "verbs rails need their device files and lockable memory (docs/verbs.md). What is exposed to whom is in docs/security.md, every key of the configuration in docs/config.md.")
    p.section("EXAMPLES")
    p.example("railyardd --config store.yaml --check\nrailyardd -- --config store.yaml\nrailyardd --lcores 2-4 --socket-mem 2048 -- --config reader.yaml")
    docs_section(p)
    p.section("SEE ALSO")
    p.add("\\fBrailyard\\fR(1), \\fBrailyard\\-perf\\fR(1), \\fBlibrailyard\\fR(3)")
    return p.made()


def railyard_perf_1(src, version):
    options = man_source.options(src["perf"], "struct option_row rows[]")
    p = Page("railyard-perf", 1, version, "the tables of perf/main.c")
    p.section("NAME")
    p.add("railyard\\-perf \\- measure Railyard")
    p.section("SYNOPSIS")
    p.add("\\fBrailyard\\-perf\\fR \\fIMODE\\fR [\\fIOPTION\\fR...]")
    p.section("DESCRIPTION")
    p.prose("It starts its own daemons unless told of one that runs, puts an object, reads it, checks every read, and prints a table or, with `--json`, one value. It leaves nothing behind: the object that it puts through a daemon that ran before is deleted at the end, unless it is killed. In the table of `model`, speedup is the rate over that of the first row, scaling the rate over `--bandwidth`, the modelled rate of one rail. "
            "Reads go through the same control loop, rails, leases, verification and commit as those of any client.")
    p.section("MODES")
    for name, bit, meaning in man_source.modes(src["perf"]):
        p.sub(f"railyard\\-perf {code(name)}")
        p.prose(meaning[0].upper() + meaning[1:] + ".")
        p.options(options, {bit})
    p.section("OPTIONS")
    p.prose("These belong to every mode:")
    p.options(options, {"PERF_COMMON"})
    p.section("EXIT STATUS")
    helped = man_source.help_text(src["perf"], "print_help")
    p.items(re.findall(r"(\d) ([a-z ]+?)(?=[,.])", helped[helped.index("Exit codes: "):]))
    p.section("EXAMPLES")
    p.example("railyard-perf model --rails 1,2,3,4,8 --json\nrailyard-perf read --transport tcp --rails 2 --count 30\n"
              "railyard-perf read --socket /run/railyard/railyard.sock --require-rails 2")
    p.section("SEE ALSO")
    p.add("\\fBrailyard\\fR(1), \\fBrailyardd\\fR(8)")
    return p.made()


def declared(p, item):
    if item.kind == "text":
        p.add(".PP")
        p.prose(item.comment)
        return
    p.sub(item.name if item.kind != "struct" else item.code.split("{")[0].strip())
    if item.comment:
        p.prose(item.comment)
    p.example(item.code)


def defines(p, items):
    p.example("\n".join(item.code for item in items if item.kind == "define"))


def librailyard_3(src, version):
    items = man_source.declarations(src["railyard.h"])
    status = [i for i in man_source.declarations(src["status.h"]) if i.kind == "function"]
    functions = {i.name for i in items + status if i.kind == "function"}
    exported = set(man_source.symbols(src["map"]))
    if functions != exported:
        raise ValueError(f"declared or exported, and not both: {', '.join(sorted(functions ^ exported))}")
    p = Page("librailyard", 3, version, "include/railyard/*.h")
    p.section("NAME")
    p.add("librailyard \\- read and write objects through this host's railyardd")
    p.section("SYNOPSIS")
    p.example("#include <railyard/railyard.h>\n\ncc -std=c11 program.c $(pkg-config --cflags --libs railyard)")
    p.section("DESCRIPTION")
    opening = man_source.comment_text(re.findall(r"/\*.*?\*/", src["railyard.h"], re.S)[1])
    p.prose(opening.split("\n", 2)[2] if opening.startswith("librailyard:") else opening)
    handles = [i for i in items if i.code.startswith("struct ") and i.kind == "type"]
    for item in items:
        if item.kind == "banner":
            p.section(item.name.upper())
        elif item.kind != "define":
            if item is handles[0]:
                p.section("HANDLES")
            declared(p, item)
    p.section("STATUSES")
    for item in status:
        declared(p, item)
    p.add(".PP")
    p.prose("Every status has its cause and remedy in docs/errors.md.")
    found = re.findall(r'\[(RY_\w+)\] = \{"\w+",\s*"((?:[^"\\]|\\.)*)"\}', src["texts"])
    numbers = dict(re.findall(r"^\s*(RY_\w+) = (\d+),", src["status.h"], re.M))
    for name, meaning in found:
        p.item(f"{name} ({numbers[name]})", man_source.unescape(meaning))
    p.section("SHARED TYPES AND LIMITS")
    for header, names in zip(("types.h", "ring.h"), SHARED):
        for item in man_source.declarations(src[header]):
            if item.name in names:
                declared(p, item)
    p.sub("constants")
    defines(p, items + man_source.declarations(src["types.h"]))
    p.section("ENVIRONMENT")
    p.item("RAILYARD_SOCKET", f"path of the control socket where `ry_attach_opts.socket_path` is NULL; without it {default_socket(src)}")
    p.section("EXAMPLES")
    p.prose("docs/examples/stream_object.c and docs/examples/read_object.c are whole programs, which the tests compile and run.")
    docs_section(p)
    p.section("SEE ALSO")
    p.add("\\fBrailyard\\fR(1), \\fBrailyardd\\fR(8)")
    return p.made()


PAGES = {"man/railyard.1": railyard_1, "man/railyardd.8": railyardd_8, "man/railyard-perf.1": railyard_perf_1, "man/librailyard.3": librailyard_3}


def version_of(meson):
    return re.search(r"version: '([\d.]+)'", meson).group(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    root = parser.parse_args().root
    src = {}
    for key, path in SOURCES.items():
        with open(os.path.join(root, path), encoding="utf-8") as f:
            src[key] = f.read()
    os.makedirs(os.path.join(root, "man"), exist_ok=True)
    for page, write in PAGES.items():
        try:
            made = write(src, version_of(src["meson"]))
        except ValueError as error:
            sys.exit(f"{page}: {error}")
        with open(os.path.join(root, page), "w", encoding="utf-8") as f:
            f.write(made)


if __name__ == "__main__":
    main()
