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
TWO_PORTS = ('[engine]\nidle = sleep\n[port p]\ndevice = loopback\naddresses = {}/8\n'
             '[port q]\ndevice = loopback\naddresses = 127.0.0.9/8\n')


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


def ports(tap, tools, program):
    """Changes the addresses of one of two ports while the program waits for events."""
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
        engine = Engine(tools, folder, TWO_PORTS.format('127.0.0.1'), name='ports')
        problems = engine.start()
        if not problems:
            run = engine.program([program, '--ports'])
            problems = run.until(lambda: '# ready' in run.text(), 'ready')
            for n, address in enumerate(('127.0.0.2', '127.0.0.1')):
                problems += engine.daemon.reload(TWO_PORTS.format(address))
                problems += run.until(lambda n=n: f'# told {n}' in run.text(), 'told')
            problems += run.wait(LIMIT_S)
            problems += relay(tap, 'ports', run) + engine.stop()
        tap.point('ports: it has ended well', problems)


def cases(tap, tools, engine, program):
    program = os.path.abspath(program)
    for mode in ('ns', 'env'):
        run = engine.program([program], mode)
        problems = run.wait(LIMIT_S) + relay(tap, mode, run) + engine.left()
        tap.point(f'{mode}: all are run, and nothing is left', problems)
    ports(tap, tools, program)
    the_end(tap, tools, program)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, cases, more=1))
