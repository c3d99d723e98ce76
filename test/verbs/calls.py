#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Calls of libibverbs over a karstd: calls.py KARSTD KARST-RUN VERBS-CALLS (TAP).

Runs the cases of calls.c; afterwards the engine must hold no object of the program.
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from verbs_bed import LOOPBACK, Engine, run_all  # noqa: E402

LIMIT_S = 240


def relay(tap, mode, run):
    """Reports the TAP points of @run as this test's.  @return problems of the run as a whole."""
    said = []
    for line in run.text().splitlines():
        point = re.match(r'(not )?ok \d+ - (.*)', line)
        if point:
            tap.point(f'{mode}: {point.group(2)}', (said or ['failed']) if point.group(1) else [])
            said = []
        else:
            said.append(line.removeprefix('# '))
    problems = [] if run.status == 0 else [f'exit status {run.status}']
    if not re.search(r'^1\.\.\d+$', run.text(), re.M):
        problems += ['not all cases were run', *run.shown()]
    return problems


def the_end(tap, tools, program):
    """Kills an engine, which only this case uses, while the program runs."""
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
        engine = Engine(tools, folder, LOOPBACK, name='end')
        problems = engine.start()
        if not problems:
            run = engine.program([program, '--end'])
            problems = run.until(lambda: '# ready' in run.text(), 'ready')
            engine.daemon.kill()
            problems += run.wait(LIMIT_S)
            problems += relay(tap, 'kill', run)
        tap.point('kill: it has ended well', problems)


def cases(tap, tools, engine, program):
    program = os.path.abspath(program)
    for mode in ('ns', 'env'):
        run = engine.program([program], mode)
        problems = run.wait(LIMIT_S) + relay(tap, mode, run) + engine.left()
        tap.point(f'{mode}: all are run, and nothing is left', problems)
    the_end(tap, tools, program)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, cases, more=1))
