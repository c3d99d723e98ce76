# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The TAP output of test scripts."""
import sys


class Tap:
    """Numbers the TAP points; the problems of a point are lines of text."""

    def __init__(self):
        self.number = 0
        self.failed = 0

    def point(self, name, problems):
        self.number += 1
        self.failed += bool(problems)
        print(f'{"not ok" if problems else "ok"} {self.number} - {name}'.replace('#', ''))
        for problem in problems:
            for line in str(problem).splitlines():
                print(f'# {line}')
        sys.stdout.flush()

    def skip(self, name, reason):
        self.number += 1
        print(f'ok {self.number} - {name} # SKIP {reason}')
        sys.stdout.flush()

    def note(self, text):
        print(f'# {text}')
        sys.stdout.flush()

    def finish(self):
        """@return the exit status"""
        print(f'1..{self.number}')
        return 1 if self.failed else 0


def each(checks):
    """Runs checks, given by their names; each returns its problems.  @return the exit status"""
    tap = Tap()
    for name, check in checks.items():
        tap.point(name, check())
    return tap.finish()
