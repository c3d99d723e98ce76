# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Buffers of connections over RDMA that programs keep for their next ones
(app/karstd/smc_spare.c)."""
import os
import signal
import time

from smcbed import CONF, Program, bed

ROUNDS = 5
MANY, EACH = 40, 32  # simultaneous connections, and of how many of them a program keeps the buffers
SPARES, FREE = 128, 1024  # limits of buffers, and pages, that all programs keep
PAGES, FEW = 200, 8  # of simultaneous connections, which have a page at both ends
SETTLE_S = 30


class Kept:
    """A daemon, a server, and the port at which it answers."""

    def __init__(self, suite, name, conf='direct = no\n'):
        self.suite = suite
        self.daemon, self.problems = suite.daemon(name, CONF + conf)
        self.port = bed.free_port()
        self.server = self.program('server_keeps')

    def program(self, what, n=0, line=True, port=0):
        p = Program(self.suite, self.daemon, 'kept.' + what, '127.0.0.1', port or self.port, n, require=True)
        if line:
            p.said = p.line()
        return p

    def quiet(self, programs, kept=None):
        """Waits until no connection is left, @programs programs and @kept buffers.  @return the
        counters then"""
        began = time.monotonic()
        while True:
            n = self.suite.ask(self.daemon, '/karst/smc')
            if n['connections'] == 0 and n['programs'] == programs and kept in (None, n['buffers_kept']):
                return n
            if time.monotonic() - began > bed.HANG_S:
                return dict(n, hangs=True)
            time.sleep(0.01)

    def hangs(self, programs, kept=None):
        """@return problems: quiet() does not reach that state"""
        n = self.quiet(programs, kept)
        return [n] if 'hangs' in n else []

    def point(self, name, program, said, n, wanted):
        """Reports a point: the output of @program and the counters have to be as expected."""
        found = {key: n.get(key) for key in wanted}
        self.suite.tap.point(name, ([] if program.said == said else [program.said]) + (
            [] if found == wanted and 'hangs' not in n else [f'{found}, not {wanted}', n]))

    def end(self, program):
        program.process.send_signal(signal.SIGUSR1)
        return program.ends()[1]


def in_a_row(k):
    """@return the program that made the connections, which still runs"""
    c = k.program('client_keeps', ROUNDS)
    for i in range(ROUNDS):
        n = k.quiet(2)
        k.point(f'connection {i + 1} of a program leaves a buffer at both ends', c, 'ended found', n,
                {'opened': 2 * (i + 1), 'connected': 2 * (i + 1)})
        if n['buffers_kept'] < 2:
            k.suite.tap.point('they are kept', [n])
        if i + 1 < ROUNDS:
            c.process.send_signal(signal.SIGUSR1)
            c.said = c.line()
    # a peer that was silent for a second is asked again whether it has the key
    again = n['rmb_reused'] + n['rkey_asked']
    k.suite.tap.point('the next one has it, with its key', [] if again == 2 * (ROUNDS - 1) else [n])
    return c


def kept(suite):
    k = Kept(suite, 'kept')
    suite.tap.point('a daemon, whose connections go by RDMA', k.problems)
    c = in_a_row(k)
    p = k.program('client_looks')
    n = suite.ask(k.daemon, '/karst/smc')
    k.point('another program does not get it, nor sees what was in it', p, 'nothing', n,
            {'connections': 2})
    problems = k.end(p)
    suite.tap.point('it ends', problems + k.hangs(2))
    p = k.program('client_resets')
    k.point('a reset', p, 'reset', k.quiet(3), {})
    k.end(p)
    p = k.program('client_dies', line=False)
    problems = p.ends(-signal.SIGKILL)[1]
    suite.tap.point('a program that is killed', problems + k.hangs(2))
    p = k.program('client_forks')
    problems = [line for line in [p.said] if line != 'ended']
    k.quiet(3)
    p.process.send_signal(signal.SIGUSR1)
    problems += [line for line in [p.line()] if line != 'nothing']
    suite.tap.point('of a program whose child may have it, none is used again',
                    problems + k.end(p) + k.hangs(2))
    p = k.program('client_many', MANY)
    suite.tap.point(f'{MANY} connections at once', [] if p.said == 'opened' else [p.said])
    p.process.send_signal(signal.SIGUSR1)
    p.said = p.line()
    n = k.quiet(3)
    k.point('all of them end', p, 'closed', n, {})
    suite.tap.point('a program keeps only some', [] if n['buffers_kept'] <= 3 * EACH else [n])
    k.end(p)
    k.end(c)
    k.server.process.kill()
    suite.tap.point('all of them are gone', k.hangs(0, 0))
    suite.tap.point('it ends', k.daemon.stop())


def kept_for_a_while(suite):
    k = Kept(suite, 'while', 'direct = no\ngroup_idle_s = 1\n')
    suite.tap.point('a daemon that keeps nothing for long', k.problems)
    c = k.program('client_keeps', 2)
    k.point('what nobody wants goes after a while', c, 'ended found', k.quiet(2, 0), {'buffers_kept': 0})
    c.process.send_signal(signal.SIGUSR1)
    c.said = c.line()
    k.point('and a connection after that has another one', c, 'ended found', k.quiet(2), {'connected': 4})
    k.end(c)
    k.server.process.kill()
    suite.tap.point('it ends', k.daemon.stop())


def share(suite, name, conf, programs, each, key, most):
    """A user whose programs keep as much as they may leaves room for other users."""
    os.chmod(suite.folder, 0o755)
    k = Kept(suite, name, conf + '[socket]\nmode = 0666\n')
    suite.tap.point('a daemon for all users', k.problems)
    port = bed.free_port()
    others = [k.program('server_of_others', port=port)]
    others += [k.program('client_of_others', each, port=port) for _ in range(programs)]
    problems = [p.said for p in others[1:] if p.said != 'closed']
    n = k.quiet(2 + programs)
    began = time.monotonic()
    while n[key] > most and time.monotonic() - began < SETTLE_S: # keys that are being deleted also count
        time.sleep(0.01)
        n = suite.ask(k.daemon, '/karst/smc')
    suite.tap.point(f'{key}: a user has three quarters at most',
                    problems + ([] if most // 2 < n[key] <= most else [n]))
    c = k.program('client_tells', FEW)
    more = k.quiet(3 + programs)
    suite.tap.point('and another one keeps some as well', ([] if c.said == 'closed' else [c.said]) + (
        [] if more[key] >= n[key] + FEW // 2 else [n, more]))
    for p in others + [c, k.server]:
        p.process.kill()
    suite.tap.point('all of them are gone', k.hangs(0, 0))
    suite.tap.point('it ends', k.daemon.stop())


def shares(suite):
    share(suite, 'spares', 'direct = no\n', 7, EACH, 'buffers_kept', SPARES * 3 // 4)
    share(suite, 'pages', 'max_connections = 4096\n', 3, PAGES, 'pages_kept', FREE * 3 // 4)
