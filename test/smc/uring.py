# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Programs with an io_uring: what a ring reads and writes stays on TCP, however and whenever the
ring was made; a program that declares that its ring only waits has SMC-R."""
import subprocess

from smcbed import CONF, bed

STATIC = '-static'
# programs of the server and of the client, whether SMC-R must be used, options of karst-run
PAIRS = [
    (('', 'first'), (STATIC, 'calls'), False, []),
    (('', 'later'), (STATIC, 'calls'), False, []),
    ((STATIC, 'first'), (STATIC, 'calls'), False, []),
    (('', 'waits'), (STATIC, 'calls'), False, []),
    ((STATIC, 'first'), ('', 'connect'), False, []),
    (('', 'first'), (STATIC, 'connect'), False, []),
    (('', 'waits'), (STATIC, 'calls'), True, ['--io-uring']),
]


def start(suite, daemon, options, program, port):
    p = subprocess.Popen([suite.run, '--smc', *options, '--socket', daemon.socket,
                          suite.rings + program[0], program[1], str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True)
    suite.programs.append(p)
    return p


def told(p):
    """@return problems: the program does not print that all was well"""
    said, ended = bed.rest(p)
    return [] if ended and said == 'same\n' and p.returncode == 0 else [said.strip() or 'nothing was said']


def pair(suite, daemon, server, client, by_smc, options):
    before, port = suite.count(daemon, 'direct'), bed.free_port()
    s = start(suite, daemon, options, server, port)
    line = s.stdout.readline().strip()
    if line != 'ready':
        return [line]
    c = start(suite, daemon, options, client, port)
    problems = [f'client: {line}' for line in told(c)]
    if problems:
        s.kill() # the server may wait for ever
    problems += [f'server: {line}' for line in told(s)]
    made = suite.count(daemon, 'direct') - before
    return problems + ([] if made == by_smc else [f'{made} connections of SMC-R'])


def refused(suite, daemon):
    """A program with a ring that may use SMC-R only."""
    port = bed.free_port()
    s = start(suite, daemon, ['--require'], ('', 'first'), port)
    said, _ = bed.rest(s)
    problems = [] if said.startswith('listen: ') else [said]
    s = start(suite, daemon, [], ('', 'waits'), port)
    s.stdout.readline()
    c = start(suite, daemon, ['--require'], (STATIC, 'connect'), port)
    said, _ = bed.rest(c)
    s.kill()
    return problems + ([] if said.startswith('connect: ') else [said])


def rings(suite):
    daemon, problems = suite.daemon('rings', CONF)
    suite.tap.point('a daemon for programs with an io_uring', problems)
    for server, client, by_smc, options in PAIRS:
        suite.tap.point('programs with an io_uring: {}{}, {}{}'.format(*reversed(server), *reversed(client))
                        + (', by SMC-R' if by_smc else ''), pair(suite, daemon, server, client, by_smc, options))
    suite.tap.point('with --require they fail', refused(suite, daemon))
    suite.tap.point('it ends', daemon.stop())
