# SPDX-License-Identifier: BSD-3-Clause
"""Names in pages are names of the code: commands of railyard and their options, options of the daemon, configuration keys, RY_ and ry_ names."""

import os
import re

import lintlib
import man_source

CLI, DAEMON, PERF = "control/cli/commands.c", "control/daemon/options.c", "perf/main.c"
KEYS = "control/daemon/config_keys.def"
SECTIONS = {"NODE": "", "READER": "reader", "STORE": "store", "HEALTH": "health", "TIMEOUT": "timeouts"}
ALWAYS = {"OPT_COMMON"}
SKIPPED = ("docs/design-notes.md", "CHANGELOG.md")  # they speak of what was, too

QUOTED = re.compile(r"`([^`\n]+)`")
KEY = re.compile(r"^(reader|store|health|timeouts)\.([a-z_]+)")
NAME = re.compile(r"\b(RY_[A-Z0-9_]+[A-Z0-9]|ry_[a-z0-9_]+[a-z0-9])\b(?!\*)")


def keys_of(text):
    """{(section, key)}"""
    found = set()
    for part in re.split(r"^#define CONFIG_", text, flags=re.M)[1:]:
        name = part[: part.index("_KEYS")]
        if name in SECTIONS:
            found |= {(SECTIONS[name], key) for key in re.findall(r"\bX\((\w+),", part)}
    return found


class Words:
    def __init__(self, root):
        cli, perf = lintlib.read(root, CLI), lintlib.read(root, PERF)
        bits = {name: bit for name, _, bit, _, _ in man_source.options(cli, "struct option_row cli_options[]")}
        self.commands = {name: {o for o, bit in bits.items() if bit in words | ALWAYS} for name, _, words, _ in man_source.commands(cli)}
        self.daemon = set(man_source.long_options(lintlib.read(root, DAEMON)))
        self.modes = {name for name, _, _ in man_source.modes(perf)}
        self.perf = {name for name, *_ in man_source.options(perf, "struct option_row rows[]")}
        self.keys = keys_of(lintlib.read(root, KEYS))
        self.names = {name for path in lintlib.files(root, ".h", ".def") for name in NAME.findall(lintlib.read(root, path))}


def options_in(words):
    return [w[2:].split("=")[0].rstrip(",") for w in words if re.match(r"^--[a-z]", w)]


def check_command(report, words, page, n, line):
    """A command line: `railyard CMD ...`, `railyardd ... -- ...`, `railyard-perf MODE ...`."""
    program, rest = os.path.basename(line.split()[0]), line.split()[1:]
    if program == "railyard" and "--" not in rest:
        named = [w for w in rest if re.fullmatch(r"[a-z][a-z-]+", w)]
        command = next((w for w in named if w in words.commands), None)
        if rest and named and named[0] == rest[0] and command != rest[0]:
            report.bad(page, n, f"railyard has no command {rest[0]}")
        known = words.commands.get(command, set().union(*words.commands.values()))
    elif program == "railyardd":
        rest = rest[rest.index("--") + 1:] if "--" in rest else rest
        known = words.daemon
    elif program == "railyard-perf":
        if rest and re.fullmatch(r"[a-z]+", rest[0]) and rest[0] not in words.modes:
            report.bad(page, n, f"railyard-perf has no mode {rest[0]}")
        known = words.perf
    else:
        return
    for option in options_in(rest):
        if option not in known:
            report.bad(page, n, f"{program} {rest[0]}: there is no --{option}")


def check_page(report, words, page, text):
    is_fenced = False
    for n, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
            continue
        for quoted in [line.strip().split("#")[0]] if is_fenced else QUOTED.findall(line):
            if re.match(r"^(build\S*/)?railyard(d|-perf)? ", quoted):
                check_command(report, words, page, n, quoted)
            match = KEY.match(quoted)
            if match and not is_fenced and match.group(2) != "yaml" and match.groups() not in words.keys:
                report.bad(page, n, f"there is no key {match.group(0)}")
            for name in NAME.findall(quoted):
                if name not in words.names and not any(known.startswith(name) for known in words.names):
                    report.bad(page, n, f"{name} is in no header")


def check(root, report):
    try:
        words = Words(root)
    except (OSError, ValueError) as error:
        report.bad(CLI, 0, f"cannot be read: {error}")
        return
    for page in lintlib.files(root, ".md"):
        if page not in SKIPPED:
            check_page(report, words, page, lintlib.read(root, page))


CLEAN = {
    CLI: 'const struct option_row cli_options[] = {\n\t{"json", OPTION_FLAG, OPT_COMMON, FIELD(a), "", "b"},\n\t{"ttl", OPTION_TEXT, OPT_PUT, FIELD(a), "", "b"},\n};\n'
    'const struct command commands[] = {\n\t{"put", "KEY", 1, 1, OPT_PUT, cmd_put, "b"},\n\t{"ls", "", 0, 0, OPT_LS, cmd_ls, "b"},\n\t{0},\n};\n',
    DAEMON: 'known[] = {\n\t{"config", required_argument, NULL, \'c\'},\n};\n',
    PERF: 'const struct option_row rows[] = {\n\t{"count", OPTION_COUNT, PERF_COMMON, FIELD(a), "N", "b"},\n};\n'
    'static const struct mode modes[] = {\n\t{"read", PERF_READ, mode_read, "b"},\n\t{0},\n};\n',
    KEYS: '#define CONFIG_READER_KEYS(X) \\\n\tX(inflight, a, bytes, "1", "1", "1", limits, "b")\n',
    "include/railyard/a.h": "#define RY_A 1\nvoid ry_read(void);\n",
    "docs/a.md": "`railyard put KEY --ttl 4s --json`, `railyard ls`, `railyardd --lcores 2 -- --config FILE`, `railyard-perf read --count 3`, `reader.inflight`,\n"
    "`RY_A`, `ry_read()`\n\n```\nrailyard put k v --ttl=3s   # --gone\n```\n",
}
PLANTS = [
    ("a command that does not exist", {"docs/x.md": "see `railyard metrics`\n"}),
    ("an option that does not exist", {"docs/x.md": "see `railyard put KEY --gone`\n"}),
    ("an option of another command", {"docs/x.md": "see `railyard ls --ttl 3s`\n"}),
    ("an option in an example", {"docs/x.md": "```\nrailyard ls --all\n```\n"}),
    ("an option that the daemon has not", {"docs/x.md": "see `railyardd -- --conf FILE`\n"}),
    ("a mode that does not exist", {"docs/x.md": "see `railyard-perf write`\n"}),
    ("an option that perf has not", {"docs/x.md": "see `railyard-perf read --counts 3`\n"}),
    ("a key that does not exist", {"docs/x.md": "raise `reader.inflght`\n"}),
    ("a constant that does not exist", {"docs/x.md": "`RY_F_GONE`\n"}),
    ("a function that does not exist", {"docs/x.md": "call `ry_write()`\n"}),
    ("a table that cannot be read", {CLI: "nothing\n"}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
