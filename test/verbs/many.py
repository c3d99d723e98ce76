#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Many objects and many threads: many.py KARSTD KARST-RUN LIMITS CROWD (TAP).

As many objects as the device tells can be had (limits.c), of a usual engine and of one with less
ring memory; and threads that share a context (crowd.c).  Afterwards nothing is left in the engine.
How long it took is told, and judged by nobody.
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from verbs_bed import LOOPBACK, Engine, run_all  # noqa: E402

LIMIT_S = 600
# and fewer keys: what can be had is what is told, also when that is not the default
SMALL = LOOPBACK.replace('[port', 'max_keys = 8192\n[limits]\nring_bytes = 48M\n[port')


def run(tap, engine, name, program):
    """The points of @program are ours."""
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
