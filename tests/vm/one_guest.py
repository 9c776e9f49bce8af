# SPDX-License-Identifier: BSD-3-Clause
"""What one guest with both ends of two rails can show.

    one_guest.py BUILD [GROUP...]    groups: those of GROUPS; each is a boot of its own

Link faults are not among it: packets of a device to itself never reach its network device, so they would show nothing.
"""
import os
import sys

import guest
import tap
import vm_conform
import vm_data
import vm_demo
import vm_ends
import vm_quarantine
import vm_setup

# Name -> (function of (tap, guest, build), options of the guest).
GROUPS = {
    'conform': (vm_conform.run, {}),
    'data': (vm_data.run, {}),
    'ends': (vm_ends.run, {}),
    'quarantine': (vm_quarantine.run, {}),
    'setup': (vm_setup.run, {}),
    'demo': (vm_demo.run, {}),
}


def run(t, arguments):
    build, names = os.path.abspath(arguments[0]), arguments[1:] or GROUPS
    for name in names:
        function, options = GROUPS[name]
        with t.guests(f'{name}: boot', guest.one(**options)) as g:
            function(t, g, build)


if __name__ == '__main__':
    if len(sys.argv) < 2 or any(name not in GROUPS for name in sys.argv[2:]):
        sys.exit(__doc__)
    tap.main(run)
