# SPDX-License-Identifier: BSD-3-Clause
"""What needs two hosts: a store and a reader on guests of their own, whose links are cut, lose, delay and swallow.

    two_guests.py BUILD [GROUP...]    groups: those of GROUPS; each boots its own pair of guests

Every fault is first shown to bite, by a counter of the device, of nftables or of the queue.
"""
import sys

import guest
import tap
import vm_links

# Name -> (function of (tap, guests, build), options of the guests).
GROUPS = {
    'links': (vm_links.run, {}),
}


def run(t, arguments):
    build, names = arguments[0], arguments[1:] or GROUPS
    for name in names:
        function, options = GROUPS[name]
        with t.guests(f'{name}: boot', guest.two(**options)) as guests:
            function(t, guests, build)


if __name__ == '__main__':
    if len(sys.argv) < 2 or any(name not in GROUPS for name in sys.argv[2:]):
        sys.exit(__doc__)
    tap.main(run)
