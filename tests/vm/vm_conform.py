# SPDX-License-Identifier: BSD-3-Clause
"""The conformance suite of the verbs transport (tests/conform/conform_verbs.c) on rxe0."""
import re

N_TESTS = 24
NEEDS_NIC = {'write_outside_its_window_is_refused'}  # rxe compares with the region's bounds only


def run(t, g, build):
    with t.scenario('conform', lambda: g.run('dmesg | tail -20').output):
        result = g.run(f'RY_VERBS_ADDRESS=10.77.0.1 {build}/tests/conform/conform_verbs --jobs 1 --tap', 300)
        rows = re.findall(r'^(ok|not ok) - conform_verbs::(\w+)(.*)$', result.output, re.M)
        for verdict, name, rest in rows:
            if name in NEEDS_NIC:
                t.note(f'{name}: not shown here, needs an RDMA NIC')
            else:
                t.check(name.replace('_', ' '), verdict == 'ok' and 'SKIP' not in rest, result.output[-1500:])
        t.equal('every test ran', len(rows), N_TESTS)
