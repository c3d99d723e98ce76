#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Calls of libibverbs over a karstd: calls.py KARSTD KARST-RUN VERBS-CALLS (TAP).

The cases are those of calls.c; afterwards nothing must be left in the engine.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from verbs_bed import run_all  # noqa: E402

LIMIT_S = 240


def cases(tap, _tools, engine, program):
    for mode in ('ns', 'env'):
        run = engine.program([os.path.abspath(program)], mode)
        problems = run.wait(LIMIT_S)
        said = []
        for line in run.text().splitlines():
            point = re.match(r'(not )?ok \d+ - (.*)', line)
            if point:
                tap.point(f'{mode}: {point.group(2)}', (said or ['failed']) if point.group(1) else [])
                said = []
            else:
                said.append(line.removeprefix('# '))
        problems += engine.left()
        if run.status != 0:
            problems.append(f'exit status {run.status}')
        if not re.search(r'^1\.\.\d+$', run.text(), re.M):
            problems += ['not all cases were run', *run.shown()]
        tap.point(f'{mode}: all are run, and nothing is left', problems)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, cases, more=1))
