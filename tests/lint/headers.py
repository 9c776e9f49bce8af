# SPDX-License-Identifier: BSD-3-Clause
"""Every header compiles alone, as C (gnu11) and as C++17, with each compiler that is installed; those of tests as C only.

Public headers are also compiled as plain C11 without any library's flags: that is all that a client has.
"""

import concurrent.futures
import os
import shutil
import subprocess
import tempfile

import lintlib

LIBRARIES = ("libdpdk", "libxxhash", "jansson", "libcyaml", "criterion")
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Werror", "-fsyntax-only"]
C_COMPILERS = ("gcc", "clang")
CXX_COMPILERS = ("g++", "clang++")


def library_flags():
    flags = []
    for name in LIBRARIES:
        done = subprocess.run(["pkg-config", "--cflags", name], capture_output=True, text=True)
        # Foreign headers are not ours to judge.
        flags += [f.replace("-I", "-isystem", 1) if f.startswith("-I") else f for f in done.stdout.split()]
    return flags


def jobs(root, header):
    """Command lines that compile one header alone."""
    c = [shutil.which(name) for name in C_COMPILERS if shutil.which(name)]
    cxx = [shutil.which(name) for name in CXX_COMPILERS if shutil.which(name)]
    if not c or not cxx:
        raise lintlib.Skipped("no C or no C++ compiler")
    is_public = header.startswith("include/")
    includes = ["-Iinclude"] if is_public else ["-Iinclude", "-Idataplane", "-Icontrol", "-Itests/support"]
    foreign = [] if is_public else library_flags()
    common = WARNINGS + includes + foreign + ["-I", os.path.dirname(header)]
    for compiler in c:
        yield [compiler, "-x", "c", "-std=gnu11", "-D_GNU_SOURCE", *common]
        if is_public:
            yield [compiler, "-x", "c", "-std=c11", "-pedantic", *common]
    for compiler in cxx if not header.startswith("tests/") else []:
        yield [compiler, "-x", "c++", "-std=c++17", "-D_GNU_SOURCE", *common]


def compile_alone(root, header, command):
    # A source that includes the header, because compiling a header itself warns about its pragma-like parts.
    with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
        source.write(f'#include "{os.path.join(root, header)}"\n')
        source.flush()
        done = subprocess.run([*command, source.name], cwd=root, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
    return f"{os.path.basename(command[0])} {command[3]}: {first}"


def check(root, report):
    work = [(h, j) for h in lintlib.files(root, ".h") for j in jobs(root, h)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda w: (w[0], compile_alone(root, *w)), work)
        for header, error in results:
            if error:
                report.bad(header, 0, error)
    report.note(f"{len(work)} compilations")


CLEAN = {
    "include/railyard/a.h": "#include <stdint.h>\nint ry_a(uint32_t n);\n",
    "dataplane/mem/mem.h": '#include <railyard/a.h>\n#include <rte_ring.h>\nstatic inline int mem(void)\n{\n\treturn ry_a(1);\n}\n',
}
PLANTS = [
    ("a header that needs another one first", {"control/x.h": "uint32_t f(void);\n"}),
    ("a header that is no C++", {"control/x.h": "static inline int *f(void *p)\n{\n\treturn p;\n}\n"}),
    ("a header that is no C", {"control/x.h": "class x;\n"}),
    ("a public header that is GNU C only", {"include/railyard/x.h": "static inline int f(int a)\n{\n\treturn a ?: 1;\n}\n"}),
    ("a public header that needs DPDK", {"include/railyard/x.h": '#include "mem/mem.h"\n'}),
]

if __name__ == "__main__":
    lintlib.run(check, CLEAN, PLANTS)
