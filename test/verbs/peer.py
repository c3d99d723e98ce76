#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""interop-peer, which checks everything that two ends do to each other, over karst:
peer.py KARSTD KARST-RUN INTEROP-PEER (TAP).

Runs all scripts over one engine and some over two; those without errors also in the other direction
and over IPv6.  The first cases check that the program detects errors.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'interop', 'peer'))
sys.dont_write_bytecode = True
import scripts  # noqa: E402
from verbs_bed import HANG_S, free_port, listens, pair, run_all, says  # noqa: E402

LIMIT_S = HANG_S

# Steps whose expectation is wrong: name, step, pattern of the report.
LIES = [
    ('a refusal', 'write:8/badkey', 'ends with REM_ACCESS_ERR .*, not OK'),
    ('none', 'write:8=REM_ACCESS_ERR', 'ends with OK .*, not REM_ACCESS_ERR'),
    ('a byte that changes', 'faa:x1/lost', 'what the other end may reach: . bytes of .* are wrong'),
    ('a message', 'send:8/lost', 'a receive too many: OK, 8 bytes'),
    ('a message of another kind', 'send_inv:0/mw', 'ends with (REM_INV_REQ_ERR|LOC_)'),
    ('a queue pair that is in order', 'read:8/end/up=REM_ACCESS_ERR', 'is in state 6, not 3'),
]
WRONG = [
    (['localhost', 'sned:8'], 'sned:8: unknown operation'),
    (['localhost', 'send:8x129'], 'a count of 1 to 128 is allowed'),
    (['localhost', 'send:8=OKAY'], 'unknown status'),
    (['localhost', 'send:8/later'], 'unknown after the /'),
    (['-m', '1000', 'localhost', 'send:8'], '--mtu takes 256, 512, 1024, 2048, 4096'),
    (['--patience', '1', '--gid', '192.0.2.77', 'file:/dev/null', 'send:8'],
     'no device  has the address 192.0.2.77'),
]


class Lie:
    """Two ends that run such a step.  Some of them wait for an event that never comes, so all cases
    are started at the same time."""

    # Longer than any step that succeeds; the client tells the server.
    PATIENCE_S = 10

    def __init__(self, engine, program, step):
        tcp = str(free_port())
        self.server = engine.program([program, '-p', tcp])
        self.problems = self.server.until(
            lambda: listens(int(tcp), self.server.process.pid), 'listening')
        self.client = engine.program([program, '-p', tcp, '--patience', str(self.PATIENCE_S),
                                      'localhost', step, 'send:1'])

    def end(self, said):
        """Checks that both ends end with status 1 and print what was wrong.  @return problems"""
        problems = self.problems
        for one in (self.client, self.server):
            problems += one.wait(LIMIT_S)
            problems += [] if one.status == 1 else [f'exit status {one.status}, not 1']
            problems += says(one, [said])
        return problems + (self.client.shown() + self.server.shown() if problems else [])


def wrong(engine, program, words, said):
    run = engine.program([program, *words])
    problems = run.wait(LIMIT_S)
    problems += [] if run.status in (1, 2) else [f'exit status {run.status}']
    problems += says(run, [said])
    return problems + (run.shown() if problems else [])


def scripted(tap, engines, program, name, some, more=()):
    for one in some:
        words = scripts.words(one, 'karst', 'localhost', more)
        tap.point(f'{name}: {one.name}',
                  pair(engines, [program], peer=words, says_both=['all is well: '],
                       limit_s=LIMIT_S))


def single(tap, tools, engine, program):
    program = os.path.abspath(program)
    lies = [Lie(engine, program, step) for _, step, _ in LIES]
    for one, (name, _, said) in zip(lies, LIES):
        tap.point(f'not expected, and found: {name}', one.end(said))
    tap.point('nothing is left of them', engine.left())
    for words, said in WRONG:
        tap.point(f'refused: {" ".join(words)}', wrong(engine, program, words, said))
    scripted(tap, [engine], program, 'one engine', scripts.ALL)


def double(tap, tools, engines, program):
    program = os.path.abspath(program)
    # a part of the scripts: one engine has run all, and the suite interop runs them with Linux
    scripted(tap, engines, program, 'two engines', scripts.ALL[::4])
    scripted(tap, engines[::-1], program, 'two engines, the other way, IPv6',
             (scripts.SIZES + scripts.OPERATIONS)[2::4], ['--gid', 'v6'])


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, single, double, more=1))
