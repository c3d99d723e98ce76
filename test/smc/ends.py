# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Connections that end before the daemon notices."""
import signal
import time

from smcbed import Program, bed


def states(pid):
    """@return the states of its threads: T is stopped, S sleeps.  Threads may end meanwhile, or all
    of them."""
    return {text.rpartition(') ')[2][0] for _, text in bed.of_threads(pid, 'stat')}


def waits_until(process, state):
    """Waits until all threads of @process are in @state, or the process has ended."""
    began = time.monotonic()
    while process.poll() is None and states(process.pid) != {state}:
        if time.monotonic() - began > bed.HANG_S:
            return [f'process {process.pid} is in states {states(process.pid)}, not {state}']
        time.sleep(0.001)
    return []


def at_once(suite, one):
    """A writer notices that the peer has closed, however late the daemon does: the daemon is
    stopped when that happens."""
    p = Program(suite, one, 'ends.both_ends', '127.0.0.1', bed.free_port())
    problems = [line for line in [p.line()] if line != 'ready']
    said = []
    for _ in range(2):
        problems += [line for line in [p.line()] if line != 'read']
        bed.halt(one.process)
        p.process.send_signal(signal.SIGUSR1)
        problems += [line for line in [p.line()] if line != 'closed']
        problems += waits_until(p.process, 'S') # until it waits for an answer
        one.send(signal.SIGCONT)
        said.append(p.line())
    suite.tap.point('who writes hears at once that the peer has closed', problems + p.ends()[1] + (
        [] if said == ['BrokenPipeError', 'ConnectionResetError'] else said))


def nothing(suite, one):
    p = Program(suite, one, 'ends.writes_nothing', '127.0.0.1', bed.free_port())
    p.line()
    said, problems = p.ends()
    suite.tap.point('a write of no bytes to a peer that has closed is none', problems + (
        [] if said == '0 1' else [said]))
