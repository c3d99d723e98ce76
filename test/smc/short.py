# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""If many short connections are made to one peer, most of them stay on TCP
(drivers/sockets/peers.c).  The program decides by its clock whether there are many in a second;
here that clock is slow or fast."""
import os
import subprocess

from prog_short import GROWN, SEEN
from smcbed import CONF, Program, RateServer

ROW, EACH = 128, 16  # as in peers.c
COUNT = 600  # connections
SLOW, FAST = {'SMC_CLOCK': '0.0001'}, {'SMC_CLOCK': '100000'}


def tried(count):
    """@return how many of @count short connections are made by SMC-R"""
    return min(count, ROW) + max(count - ROW, 0) // EACH


def clocked(suite, clock):
    return dict(os.environ, LD_PRELOAD=suite.clock, **clock)


def made(suite, one, clock, words):
    """Runs a client that makes COUNT connections.  @return (how many of them used SMC-R,
    problems)"""
    server, before = RateServer(suite, one), suite.count(one, 'opened')
    c = subprocess.run([suite.run, '--smc', *words, '--socket', one.socket, suite.rate, 'connect',
                        '127.0.0.1', server.port, '1', str(COUNT)], stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True, env=clocked(suite, clock), check=False)
    server.ends()
    problems = [] if c.returncode == 0 else [c.stderr]
    return (suite.count(one, 'opened') - before) // 2, problems # each connection has two ends


def point(suite, one, name, clock, words, wanted):
    n, problems = made(suite, one, clock, words)
    suite.tap.point(name, problems + ([] if n == wanted else [f'{n} by SMC-R, not {wanted}']))


def grows(suite, one):
    """Makes so many short connections that most stay on TCP, and then long ones: the first of these
    that uses SMC-R ends that state."""
    server, before = RateServer(suite, one), suite.count(one, 'opened')
    short = ROW + EACH * 4
    p = Program(suite, one, 'short.client_grows', '127.0.0.1', int(server.port), short,
                env=clocked(suite, SLOW))
    said, problems = p.ends()
    server.ends()
    n, wanted = (suite.count(one, 'opened') - before) // 2, tried(short) + GROWN - (EACH - 1)
    suite.tap.point('until the connections are longer', problems + (
        [] if said == 'done' else [said]) + ([] if n == wanted else [f'{n} by SMC-R, not {wanted}']))


def unseen(suite, one):
    """A program that has for some time connected only to peers with SMC-R does not check whether
    the next peer supports it (SEEN_ROW in drivers/sockets/sock.c), and connects to one that does
    not."""
    server, plain, before = RateServer(suite, one), RateServer(suite), suite.count(one, 'opened')
    smc = [suite.run, '--smc', '--short', 'smc', '--socket', one.socket]
    problems = []
    for words in smc, [], smc:
        c = subprocess.run([*words, suite.rate, 'connect', '127.0.0.1', server.port, '1', str(SEEN)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        problems += [] if c.returncode == 0 else [c.stderr]
    n = (suite.count(one, 'opened') - before) // 2
    suite.tap.point('a server that has had clients that can, and has one that cannot', problems + (
        [] if n == 2 * SEEN else [f'{n} by SMC-R, not {2 * SEEN}']))
    said, problems = Program(suite, one, 'short.client_changes', '127.0.0.1', int(server.port),
                             int(plain.port)).ends()
    n = (suite.count(one, 'opened') - before) // 2 - n
    suite.tap.point('a client of such servers, with one that cannot', problems + (
        [] if said == 'done' else [said]) + ([] if n == SEEN else [f'{n} by SMC-R, not {SEEN}']))
    server.ends()
    plain.ends()


def shorts(suite):
    one, problems = suite.daemon('short', CONF)
    suite.tap.point('a daemon for short connections', problems)
    before = suite.count(one, 'short_on_tcp')
    point(suite, one, 'many short connections in a second: few are tried by SMC-R', SLOW, (), tried(COUNT))
    # connections after the last one over SMC-R are reported with the next one
    told, wanted = suite.count(one, 'short_on_tcp') - before, (COUNT - ROW) // EACH * (EACH - 1)
    suite.tap.point('how many were not is counted', [] if told == wanted else [f'{told}, not {wanted}'])
    point(suite, one, 'the same in many seconds: all are', FAST, (), COUNT)
    point(suite, one, '--short smc: all are', SLOW, ('--short', 'smc'), COUNT)
    point(suite, one, '--require: all are', SLOW, ('--require',), COUNT)
    grows(suite, one)
    unseen(suite, one)
    suite.tap.point('it ends', one.stop())
