#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-perf --op connect: connect.py KARST-PERF KARSTD (TAP).

Connections over an engine of its own and over a karstd, some thousands each.  What is judged: that
every one is made and ended at both ends, that private data are those of the connection, and that
what is printed agrees with itself.  No figure is judged.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon, Tap  # noqa: E402

TIMEOUT_S = 240
MANY = 4000
ENGINE = """[engine]
idle = yield
max_qps = 300
max_cm_ids = 1024
[port p]
device = loopback
addresses = 10.55.0.1/24, 2001:db8:55::1/64
"""


def check(found, number, mode, lossy=False):
    """Problems of an object."""
    problems = []
    for name in ('lost', 'verify_errors', 'errors'):
        if found[name]:
            problems.append(f'{name} is {found[name]}')
    if found['mode'] != mode:
        problems.append(f'mode is {found["mode"]}')
    if number is not None and found['connections'] != number:
        problems.append(f'{found["connections"]} connections of {number}')
    for end in ('client', 'server'):
        for what in ('begun', 'established', 'ended'):
            more = found[end][what] - found['connections']
            # After a loss a request may arrive twice, and one of the two belongs to no connection;
            # and a side that gets the disconnect before the last message of the setup sees only the
            # disconnect (C1).
            allowed = lossy and end == 'server' and (
                (what == 'begun' and more > 0) or (what == 'established' and more < 0))
            if more != 0 and not allowed:
                problems.append(f'{end}: {what} {found[end][what]}')
    for name in ('connect_ns', 'disconnect_ns'):
        values = [found[name][key] for key in ('p50', 'p99', 'p999', 'max')]
        if values != sorted(values) or values[0] <= 0:
            problems.append(f'{name} is {found[name]}')
    rate = found['connections'] / found['seconds']
    if abs(rate - found['per_second']) > 0.01 * rate:
        problems.append(f'per_second is {found["per_second"]}, and not {rate}')
    return problems


class Connect(Tap):
    """Runs of one program."""

    def __init__(self, program):
        super().__init__()
        self.program = program

    def run(self, args):
        try:
            return subprocess.run([self.program, *args.split()], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as e:
            return subprocess.CompletedProcess(e.cmd, 'timeout', '', f'not in {TIMEOUT_S} s')

    def measure(self, name, args, number, mode='embedded', more=None, lossy=False):
        """@more(object): further problems."""
        args = f'--op connect --json {args}'
        run = self.run(args if number is None else f'{args} --iters {number}')
        problems = [] if run.returncode == 0 else [f'exit status {run.returncode}']
        try:
            found = json.loads(run.stdout)
            problems += check(found, number, mode, lossy)
            problems += more(found) if more else []
        except ValueError:
            problems.append(f'not JSON: {run.stdout}')
        if problems:
            problems += [run.stderr[-1500:], f'karst-perf {args}']
        self.point(name, problems)

    def refused(self, args, status, word):
        run = self.run(args)
        problems = [] if run.returncode == status else [f'exit status {run.returncode}']
        if word not in run.stderr or run.stdout:
            problems.append(f'"{word}" is not in {run.stderr!r}, on stdout {run.stdout!r}')
        self.point(f'refused: {args}', problems)


def embedded(tap):
    # more than the maximum of queue pairs, and of identifiers in time-wait: C1, none may be
    # mistaken for another
    tap.measure('with queue pairs', '', MANY, more=lambda o: [] if o['queue_pairs'] else ['none'])
    tap.measure('without', '--no-qps', 5 * MANY,
                more=lambda o: ['there are some'] if o['queue_pairs'] else [])
    tap.measure('one at a time', '--conns 1', 300)
    # more at once than may wait in a busy engine, whose messages are datagrams: some may be lost
    tap.measure('a thousand at a time', '--conns 1000', MANY, lossy=True)
    tap.measure('for a while', '--duration 0.2', None)
    tap.measure('with losses', '--no-qps --loss 0.02 --conns 200', 600, lossy=True)
    run = tap.run('--op connect --iters 50')
    tap.point('a table', [] if run.returncode == 0 and 'connect     64     50' in run.stdout else [
        f'exit status {run.returncode}', run.stdout, run.stderr])


def over_karstd(tap, karstd, folder):
    daemon = Daemon(karstd, folder, ENGINE, name='connect')
    problems = daemon.start()
    tap.point('a karstd starts', problems)
    if not problems:
        for name, args in (('IPv4', ''), ('IPv6', '--gid-index 1')):
            tap.measure(f'over karstd, {name}', f'--connect {daemon.socket} {args}', MANY // 2,
                        'attached')
        # fewer queue pairs than the engine has, but more than half for each end
        run = tap.run(f'--op connect --json --connect {daemon.socket} --conns 400 --iters 400')
        problems = [] if run.returncode == 1 and 'limit of 300' in run.stderr else [
            f'exit status {run.returncode}', run.stderr]
        if not json.loads(run.stdout)['errors']:
            problems.append('no error is counted')
        tap.point('over karstd, more than it may have', problems)
        tap.measure('over karstd, after that', f'--connect {daemon.socket}', 100, 'attached')
        tap.point('it ends', daemon.stop())
    tap.measure('--daemon', f'--daemon --karstd {karstd} --no-qps', MANY, 'daemon')


REFUSED = [
    ('--op connect,write', 'connect'), ('--op connect --conns 0', '--conns'),
    ('--op connect --size 64', '--size'), ('--op connect --lat', '--lat'),
    ('--op write --conns 5', '--conns'), ('--no-qps', '--no-qps'),
    ('--op connect --connect /nowhere --server', '--server'),
    ('--op connect --lcores 2', '--lcores'),
]


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Connect(argv[1])
    embedded(tap)
    with tempfile.TemporaryDirectory(prefix='karst-connect-') as folder:
        over_karstd(tap, argv[2], folder)
    for args, word in REFUSED:
        tap.refused(args, 2, word)
    tap.refused('--op connect --connect /nowhere', 1, '/nowhere')
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
