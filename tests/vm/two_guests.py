# SPDX-License-Identifier: BSD-3-Clause
"""What needs two hosts: a store and a reader on guests of their own, whose links are cut, lose, delay and swallow.

    two_guests.py BUILD [GROUP...]    groups: those of GROUPS

Groups that want guests alike share a pair of them, each with daemons of its own. Every fault is first shown to bite, by a counter of the device, of
nftables or of the queue.
"""
import itertools
import os
import sys

import guest
import tap
import vm_death
import vm_hosts
import vm_late
import vm_limits
import vm_links
import vm_soak
import vm_weather

# Name -> (function of (tap, guests, build), options of the guests).
GROUPS = {
    'links': (vm_links.run, {}),
    'weather': (vm_weather.run, {}),
    'late': (vm_late.run, {}),
    'soak': (vm_soak.run, {}),
    'death': (vm_death.run, {}),
    'hosts': (vm_hosts.run, {}),
    'limits': (vm_limits.run, {}),
    'mtu': (vm_weather.run_mtu, {'mtus': ((guest.MTU, guest.MTU), (guest.MTU, 1500))}),
}


def run(t, arguments):
    build, names = os.path.abspath(arguments[0]), arguments[1:] or GROUPS
    for options, alike in itertools.groupby(names, lambda name: GROUPS[name][1]):
        with t.guests('boot', guest.two(**options)) as guests:
            for name in alike:
                t.note(f'group {name}')
                GROUPS[name][0](t, guests, build)


if __name__ == '__main__':
    if len(sys.argv) < 2 or any(name not in GROUPS for name in sys.argv[2:]):
        sys.exit(__doc__)
    tap.main(run)
