#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Many objects and many threads: many.py KARSTD KARST-RUN LIMITS CROWD (TAP).

Creates as many objects as the device reports (limits.c), in an engine with default limits and in
one with less ring memory; and runs threads that share a context (crowd.c).  Afterwards the engine
must hold no object.  The time that this takes is printed and not checked.
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from verbs_bed import LOOPBACK, Engine, run_all  # noqa: E402

LIMIT_S = 600
# also with fewer keys: the limits that are reported must hold when they are not the default
SMALL = LOOPBACK.replace('[port', 'max_keys = 8192\n[limits]\nring_bytes = 48M\n[port')


def run(tap, engine, name, program):
    """Runs @program and reports its TAP points as this test's."""
    ran = engine.program([os.path.abspath(program)])
    problems = ran.wait(LIMIT_S)
    said = []
    for line in ran.text().splitlines():
        point = re.match(r'(not )?ok \d+ - (.*)', line)
        if point:
            tap.point(f'{name}: {point.group(2)}', (said or ['failed']) if point.group(1) else [])
            said = []
        elif line.startswith('# '):
            said.append(line[2:])
            print(line, flush=True)
    if ran.status != 0 or not re.search(r'^1\.\.\d+$', ran.text(), re.M):
        problems += [f'exit status {ran.status}, and not all cases were run', *said]
    tap.point(f'{name}: all are run, and nothing is left', problems + engine.left())


def cases(tap, tools, engine, limits, crowd):
    run(tap, engine, 'crowd', crowd)
    run(tap, engine, 'limits', limits)
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
        small = Engine(tools, folder, SMALL, name='small')
        problems = small.start()
        tap.point('little ring memory: start', problems)
        if not problems:
            run(tap, small, 'little ring memory', limits)
            tap.point('little ring memory: end', small.stop())


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, cases, more=2))
