#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""qperf over karst: qperf.py KARSTD KARST-RUN (TAP).

Without librdmacm, qperf addresses peers only by LID, which RoCE does not have: with every RoCE
device it fails when it connects or creates an address handle.  It must fail here, too, and leave no
object.  With librdmacm, which its RC tests can use, it must work.

Only one test is given a number of messages (-n), because only that test counts them: with -n qperf
sets no timer, so its other tests would never end over any device.  They are given a time.
"""
import re
import sys
import time

from verbs_bed import HANG_S, free_port, listens, run_all

BY_LID = [('rc_bw', 'modify QP to RTR'), ('uc_lat', 'modify QP to RTR'),
          ('ud_bw', 'create address handle')]
MSGS = 200
# (test, minimum number of frames, arguments).  Tests with a time: more than the connection's five.
BY_CM = [('rc_bw', MSGS // 2, '-n', str(MSGS)), *[(test, 6, '-t', '1') for test in (
    'rc_bi_bw', 'rc_lat', 'rc_rdma_read_bw', 'rc_rdma_read_lat', 'rc_rdma_write_bw',
    'rc_rdma_write_lat', 'rc_rdma_write_poll_lat', 'rc_compare_swap_mr', 'rc_fetch_add_mr',
    'ver_rc_compare_swap', 'ver_rc_fetch_add')]]


def client(engine, tcp, words):
    # -to: how long one end waits for the other; 5 s by default
    program = engine.program(['qperf', '-lp', tcp, '-to', str(HANG_S), 'localhost', *words])
    return program, program.wait()


def unlike(engine, tcp, test):
    """Runs the client.  If the server fails first and closes its connection before it has reported
    that, the client prints no reason: then the client is run again."""
    until = time.monotonic() + HANG_S
    while True:
        program, problems = client(engine, tcp, ['-t', '1', test])
        if problems or program.status == 0 or time.monotonic() > until or \
                re.search(r'failed to', program.text()):
            return program, problems


def refused(tap, engine, tcp):
    for test, text in BY_LID:
        program, problems = unlike(engine, tcp, test)
        if f'failed to {text}' not in program.text():
            problems.append(f'it does not say that it failed to {text}')
        problems += engine.left()
        tap.point(f'by LID it is refused: {test}', problems + (program.shown() if problems else []))


def connected(engine, tcp, words):
    """Runs the client.  qperf's server sends its port number before it listens there; a client that
    connects before that is rejected, and is run again."""
    until = time.monotonic() + HANG_S
    while True:
        before = engine.ask(lambda e: e.ask('cm'))['no_service']
        program, problems = client(engine, tcp, words)
        early = 'Event rejected' in program.text() and \
            engine.ask(lambda e: e.ask('cm'))['no_service'] != before
        if problems or not early or time.monotonic() > until:
            return program, problems


def works(tap, engine, tcp):
    for test, frames, *words in BY_CM:
        before = engine.counter('rx_packets')
        program, problems = connected(engine, tcp, ['-cm', '1', *words, test])
        if program.status != 0 or ' = ' not in program.text() or 'mismatch' in program.text():
            problems.append('it failed')
        if engine.counter('rx_packets') - before < frames:
            problems.append('that was not the engine')
        problems += engine.left()
        tap.point(test, problems + (program.shown() if problems else []))


def one(tap, _, engine):
    tcp = str(free_port())
    server = engine.program(['qperf', '-lp', tcp])
    try:
        problems = server.until(lambda: listens(int(tcp)), 'listening')
        tap.point('a server', problems + (server.shown() if problems else []))
        if not problems:
            refused(tap, engine, tcp)
            works(tap, engine, tcp)
    finally:
        server.kill()


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one))
