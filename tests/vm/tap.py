# SPDX-License-Identifier: BSD-3-Clause
"""TAP for scenarios in guests: check() prints a line and goes on; an exception in a scenario is a failed check, not the end of the program."""
import contextlib
import sys
import time
import traceback

_started = time.monotonic()


class Tap:
    def __init__(self):
        self.n = 0
        self.n_failed = 0
        self.scenario_name = ''

    def check(self, what, condition, detail=''):
        """One line of TAP; `detail` (text, or a function that makes it) is shown where the condition is false. Returns the condition."""
        self.n += 1
        name = f'{self.scenario_name}: {what}' if self.scenario_name else what
        # '#' would start a directive.
        print(f"{'ok' if condition else 'not ok'} {self.n} - {name.replace('#', 'no. ')}", flush=True)
        if not condition:
            self.n_failed += 1
            self.note(detail() if callable(detail) else detail)
        return bool(condition)

    def equal(self, what, got, want):
        return self.check(what, got == want, f'got {got!r}, expected {want!r}')

    def note(self, text):
        """A comment in the output."""
        for line in str(text).rstrip().splitlines()[-60:]:
            print(f'#   {line}', flush=True)

    @contextlib.contextmanager
    def scenario(self, name, on_failure=None):
        """A part of the run: names its checks. `on_failure` (no arguments) returns text, such as logs, shown when one of them failed."""
        before, n_failed, start = self.scenario_name, self.n_failed, time.monotonic()
        self.scenario_name = name
        print(f'# {name} (at {start - _started:.0f} s)', flush=True)
        try:
            yield self
        except Exception as e:  # pylint: disable=broad-except
            self.check('runs to its end', False, ''.join(traceback.format_exception(type(e), e, e.__traceback__)))
        if self.n_failed > n_failed and on_failure:
            try:
                self.note(on_failure())
            except Exception as e:  # pylint: disable=broad-except
                self.note(f'no logs: {e}')
        self.scenario_name = before

    @contextlib.contextmanager
    def guests(self, name, opened, on_failure=None):
        """A scenario around guests: `with tap.guests('boot', guest.one()) as g`. Guests that do not start are a failed check."""
        with self.scenario(name, on_failure):
            with opened as g:
                self.scenario_name = ''
                yield g

    def finish(self):
        """Prints the plan; returns the exit status. No check at all is a failure too."""
        print(f'1..{self.n}', flush=True)
        return 0 if self.n and not self.n_failed else 1


def main(run):
    """Runs run(tap, arguments) and ends the program."""
    tap = Tap()
    with tap.scenario(''):
        run(tap, sys.argv[1:])
    sys.exit(tap.finish())
