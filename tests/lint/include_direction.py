# SPDX-License-Identifier: BSD-3-Clause
"""Includes point one way: include <- dataplane <- control, and private headers stay in their folder.

control never sees dataplane/hot nor another folder's *_priv.h. The client side (cli, client, and what the tools share: launch, rpc) sees
only include/ and itself; the library sees neither launch nor rpc. No file includes a .c file.
"""

import os
import re

import lintlib

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
BASES = ("include", "dataplane", "control", "perf", "tests", "tests/support")
CLIENT_SIDE = ("control/cli", "control/client", "control/launch", "control/rpc")
SHARED_BY_TOOLS = ("control/launch", "control/rpc")
FOREIGN = ("rte_", "infiniband/", "rdma/")  # headers that a client must not need


def resolve(root, path, name):
    """The tree's path of an included file, None when it is not in the tree."""
    own = os.path.dirname(path)
    for base in (own,) + BASES:
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def top(path):
    return path.split("/", 1)[0]


def inside(path, *folders):
    return any(path.startswith(f + "/") for f in folders)


def wrong(path, target):
    """Why `path` must not include `target` of the tree; None when it may."""
    here, there = top(path), top(target)
    folder = os.path.dirname(target)
    if target.endswith(".c"):
        return "a .c file is included"
    if here == "tests":
        return None  # white-box tests may look inside
    if target.endswith("_priv.h") and os.path.dirname(path) != folder:
        return f"private header of {folder}"
    if there == "tests":
        return "tests are seen by tests only"
    if inside(path, *CLIENT_SIDE):
        shared = not inside(path, "control/client") and folder in SHARED_BY_TOOLS
        is_fine = there == "include" or folder == os.path.dirname(path) or shared
        return None if is_fine else "the client side sees only include/ and its own folder"
    if here == "include" and there != "include":
        return "include/ sees only itself"
    if here == "dataplane" and there not in ("dataplane", "include"):
        return "dataplane never sees " + there
    if here in ("control", "perf") and inside(target, "dataplane/hot"):
        return f"{here} never sees dataplane/hot"
    if here == "control" and there == "perf":
        return "control never sees perf"
    return None


def check_file(root, path, report):
    for n, line in enumerate(lintlib.read(root, path).splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        target = resolve(root, path, name)
        if not target:
            if quote == '"':
                report.bad(path, n, f'"{name}" is not in the tree; foreign headers are included with <>')
            elif name.startswith(FOREIGN) and (inside(path, "include", *CLIENT_SIDE)):
                report.bad(path, n, f"<{name}>: clients need neither DPDK nor verbs")
            continue
        why = wrong(path, target)
        if why:
            report.bad(path, n, f"{name}: {why}")


def check(root, report):
    for path in lintlib.files(root, ".c", ".h", ".def"):
        check_file(root, path, report)


CLEAN = {
    "include/railyard/a.h": "#include <stdint.h>\n",
    "dataplane/hot/rail.h": '#include "mem/mem.h"\n#include <railyard/a.h>\n',
    "dataplane/mem/mem.h": "",
    "dataplane/mem/mem_priv.h": "",
    "dataplane/mem/mem.c": '#include "mem/mem.h"\n#include "mem/mem_priv.h"\n#include <rte_ring.h>\n',
    "dataplane/rail/rail.c": '#include "hot/rail.h"\n',
    "control/read/read.c": '#include "mem/mem.h"\n',
    "control/daemon/daemon.h": "",
    "control/launch/launch.h": "",
    "control/cli/cli.h": "",
    "control/cli/cli.c": '#include "cli.h"\n#include "launch/launch.h"\n#include <railyard/a.h>\n',
}
PLANTS = [
    ("dataplane includes control", {"dataplane/mem/x.c": '#include "daemon/daemon.h"\n'}),
    ("control includes hot", {"control/read/x.c": '#include "hot/rail.h"\n'}),
    ("perf includes hot", {"perf/x.c": '#include "hot/rail.h"\n'}),
    ("a private header of another folder", {"control/read/x.c": '#include "mem/mem_priv.h"\n'}),
    ("the CLI includes the dataplane", {"control/cli/x.c": '#include "mem/mem.h"\n'}),
    ("the client library includes the daemon", {"control/client/x.c": '#include "daemon/daemon.h"\n'}),
    ("the client library includes the launcher", {"control/client/x.c": '#include "launch/launch.h"\n'}),
    ("the client library includes DPDK", {"control/client/x.c": "#include <rte_ring.h>\n"}),
    ("a public header includes the dataplane", {"include/railyard/x.h": '#include "mem/mem.h"\n'}),
    ("a .c file is included", {"tests/unit/x.c": '#include "mem/mem.c"\n'}),
    ("a header that does not exist", {"control/read/x.c": '#include "nowhere.h"\n'}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
