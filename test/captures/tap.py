# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TAP output, and calls of karst-dump, for the test scripts of this folder and its neighbours."""
import json
import subprocess
import sys


class Tap:
    """Counts subtests as they are reported; finish() writes the plan and exits."""

    def __init__(self):
        self.number = 0
        self.failed = 0

    def result(self, name, problems):
        """One subtest: fails if there are problems (a list of texts)."""
        self.number += 1
        self.failed += bool(problems)
        print('%s %d - %s' % ('not ok' if problems else 'ok', self.number, name.replace('#', '')))
        for problem in problems:
            print('# %s: %s' % (name, problem))
        sys.stdout.flush()

    def finish(self):
        print('1..%d' % self.number)
        sys.exit(1 if self.failed else 0)


def skip_all(reason):
    print('1..0 # SKIP %s' % reason)
    sys.exit(0)


def run(dump, *args):
    """Run karst-dump.  @return (exit status, standard output, standard error)."""
    p = subprocess.run([dump, *args], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def run_json(dump, *args):
    """Run karst-dump --json.  @return (exit status, objects per frame, the total, standard
    error)."""
    status, out, err = run(dump, '--json', *args)
    objects = [json.loads(line) for line in out.splitlines()]
    return status, objects[:-1], objects[-1], err
