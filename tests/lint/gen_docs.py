# SPDX-License-Identifier: BSD-3-Clause
"""Writes the pages that are tables of the code: docs/metrics.md and docs/control-api.md.

  gen_docs.py [--root DIR]     docs_drift.py fails while a page differs from what this would write
"""

import argparse
import os
import re
import sys

METRICS = "dataplane/stats/metrics.def"
METHODS = "include/railyard/methods.def"
STRING = r'"((?:[^"\\]|\\.)*)"'
METRIC = re.compile(r"\bX\(\s*(\w+),\s*(\w+),\s*(\w+),\s*" + STRING + r"\s*\)")
METHOD = re.compile(r"\bX\(\s*(\d+),\s*(\w+),\s*(\w+),\s*" + STRING + r"\s*\)")
PARAM = re.compile(r"\bX\(\s*(\w+),\s*(\w+),\s*(\w+),\s*(\w+),\s*(\w+),\s*(\w+),\s*" + STRING + r"\s*\)")

METRICS_HEAD = """\
# Metrics

Every counter and gauge of a node, as the control method `metrics` gives them; with `describe` it also says kind, unit and meaning. Rows marked *rail*
exist once for each rail and are written by its lcore, rows marked *control* and *conn* once for the node. A counter only grows, from 0 at the start of
the daemon; all are 64 bits wide. `railyard rails --json` shows those of rails (`counters`); all of them come from
`printf '%s\\n' '{"id":1,"method":"hello","params":{"version":1}}' '{"id":2,"method":"metrics"}' | nc -U -q 1 /run/railyard/railyard.sock` (netcat-openbsd). This page is written by `tests/lint/gen_docs.py` from `dataplane/stats/metrics.def`.

| name | of | kind | unit | meaning |
|---|---|---|---|---|
"""

METHODS_HEAD = """\
# Control API

Newline-delimited JSON-RPC 2.0 over the daemon's Unix socket (`socket:` in the configuration): one request a line, one answer a line. `hello` comes first on
every connection. A refusal has a code, the status by name, and a text that says what to do. `help` gives the same list as this page,
which is written by `tests/lint/gen_docs.py` from `include/railyard/methods.def`. `nc -U` is that of the package netcat-openbsd; netcat-traditional has no `-U`.

```
$ nc -U /run/railyard/railyard.sock
{"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"version": 1}}
{"jsonrpc":"2.0","id":1,"result":{"version":1,"node":"reader-1","daemon_version":"0.1.0"}}
{"jsonrpc": "2.0", "id": 2, "method": "rail_drain", "params": {"rail": "rial0"}}
{"jsonrpc":"2.0","id":2,"error":{"code":-32023,"message":"'rial0' is no rail of this node; did you mean 'rail0'?","data":{"status":"INVALID"}}}
```

A line has at most 64 KiB, and the next request of a connection is looked at when the one before was answered. A request without `id` is a notification (JSON-RPC 2.0): done and
not answered, in error neither; `attach` without `id` is not done, because its descriptors come with the answer. A refusal has the code -32000 - status ([errors.md](errors.md)), or JSON-RPC's own where the line is no request. The
descriptors of `attach` are, in this order: ring, read arena, put arena, the eventfd that wakes the daemon, the socket that wakes the client; what is in the ring, and how both wake, is told in
`include/railyard/ring.h`. When all places for connections are taken, one that nothing is asked on is told LIMIT and closed for a new one ([security.md](security.md)).

Permission *any*: whoever may connect; *admin*: root, or the user that the daemon runs as. An unknown parameter, or a value out of its range, is refused.

## Methods

| id | method | permission | what it does |
|---|---|---|---|
"""

PARAMS_HEAD = """
## Parameters

A method that is not listed takes none. Ranges are those of the value, for a text those of its length in bytes.

| method | parameter | kind | need | range | meaning |
|---|---|---|---|---|---|
"""


def section(text, name):
    """The rows of one X-macro: from its #define to the first line that does not go on."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if re.match(rf"#define {name}\(X\)", line)]
    if len(starts) != 1:
        raise ValueError(f"{len(starts)} definitions of {name}")
    body = []
    for line in lines[starts[0]:]:
        body.append(line.rstrip("\\"))
        if not line.endswith("\\"):
            break
    return "\n".join(body[1:])


def rows_of(text, name, pattern):
    body = section(text, name)
    rows = pattern.findall(body)
    if not rows or len(rows) != len(re.findall(r"\bX\(", body)):
        raise ValueError(f"{len(rows)} rows of {name} understood, of {len(re.findall(r'X[(]', body))}")
    return rows


def cell(text):
    return text.replace('\\"', '"').replace("|", "\\|")


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def metrics_page(text):
    page = METRICS_HEAD
    for of, name in (("rail", "RAIL_METRICS"), ("control", "CONTROL_METRICS"), ("conn", "CONN_METRICS")):
        for field, kind, unit, meaning in rows_of(text, name, METRIC):
            page += row(f"`{field}`", of, kind, unit, cell(meaning))
    return page


def range_of(kind, least, most):
    if kind == "boolean":
        return "true or false"
    return f"from {least}" if most == "INT64_MAX" else f"{least} to {most}"


def methods_page(text):
    page = METHODS_HEAD
    for number, name, permission, meaning in rows_of(text, "RY_METHODS", METHOD):
        page += row(number, f"`{name}`", permission, cell(meaning))
    page += PARAMS_HEAD
    for method, name, kind, need, least, most, meaning in rows_of(text, "RY_METHOD_PARAMS", PARAM):
        page += row(f"`{method}`", f"`{name}`", kind, need, range_of(kind, least, most), cell(meaning))
    return page


# page: the table that it comes from, and how
PAGES = {"docs/metrics.md": (METRICS, metrics_page), "docs/control-api.md": (METHODS, methods_page)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    root = parser.parse_args().root
    for page, (table, write) in PAGES.items():
        with open(os.path.join(root, table), encoding="utf-8") as f:
            text = f.read()
        try:
            made = write(text)
        except ValueError as error:
            sys.exit(f"{table}: {error}")
        with open(os.path.join(root, page), "w", encoding="utf-8") as f:
            f.write(made)


if __name__ == "__main__":
    main()
