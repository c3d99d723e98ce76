#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Measures how long a connection through queue pairs takes whose link group exists, compared with
TCP.

  reused.py BUILD [--against BUILD] [--rounds N] [--connections N] [--user] [--place PLACE]     (as root)

One client of smc-rate (rate.c) makes connections one after the other, to a server that waits in
epoll_wait(): over one karstd with direct = no, and between two network namespaces with a karstd
each, which are connected by a veth pair.  A round consists of TCP, the build, and the other build
if there is one, in turn.  The output has, for each, the median and the lower decile of the time
from connect() to the echoed byte, connections a second, and processor time of karstd; at the end
medians of these, and of the ratio of the build's decile to TCP's in the same round.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smcbed import CONF, Suite, bed, ip, run  # noqa: E402

ONE, NEAR, FAR = '127.0.0.1', '10.94.0.1', '10.94.0.2'
PLACES = ('one', 'veth')
ENGINE = '[engine]\nidle = sleep\n'
OPEN = '[socket]\nmode = 0666\n' + CONF # [smc] is last, so that lines can be appended
PORT = '[port p]\ndevice = {}\n'
TCP_TIMES = 10 # factor for the number of connections
OTHERS = '65533' # another user


class Bed:
    """A build, with the means to start its daemons and programs."""

    def __init__(self, suite, name, place, netns, user):
        self.suite, self.name, self.place = suite, name, place
        self.inside = ['ip', 'netns', 'exec', netns] if place == 'veth' else []
        self.netns = netns
        self.user = ['setpriv', '--reuid', OTHERS, '--clear-groups'] if user else []
        self.address = NEAR if place == 'veth' else ONE

    def daemons(self):
        """@return the daemons of the server and of the client, which may be one"""
        if self.place == 'one':
            one, problems = self.suite.daemon(f'one{self.name}', ENGINE + OPEN + 'direct = no\n')
            both = one, one
        else:
            near, problems = self.suite.daemon(f'near{self.name}', ENGINE + PORT.format('near') + OPEN)
            far, more = self.suite.daemon(f'far{self.name}', ENGINE + PORT.format('far') + OPEN, self.netns)
            both, problems = (near, far), problems + more
        if problems:
            raise SystemExit('\n'.join(problems))
        return both

    def program(self, daemon, words):
        smc = [self.suite.run, '--smc', '--short', 'smc', '--require', '--socket', daemon.socket] if daemon else []
        return [*self.user, *smc, self.suite.rate, *words]

    def measure(self, near, far, count):
        """@return (median us, decile us, connections a second) of @count connections; without
        daemons they use TCP"""
        port = str(bed.free_port())
        server = subprocess.Popen(self.program(near, ['serve', self.address, port]),
                                  stdout=subprocess.PIPE, text=True)
        self.suite.programs.append(server)
        server.stdout.readline()
        client = self.inside + self.program(far, ['connect', self.address, port, '1', str(count)])
        said = subprocess.run(client, stdout=subprocess.PIPE, text=True, check=True).stdout
        server.kill()
        server.wait()
        words = re.search(r': (\d+) connections/s.*median (\d+) us, a tenth below (\d+) us', said)
        rate, median, decile = (int(word) for word in words.groups())
        return median, decile, rate

    def smc(self, count):
        """@return the same, and the processor time of karstd for each connection, in us"""
        near, far = self.daemons()
        both = {near, far}
        self.measure(near, far, count // 10 + 1) # this creates the group
        began, reused = sum(bed.cpu_s(d.process.pid) for d in both), self.suite.count(far, 'rmb_reused')
        found = self.measure(near, far, count)
        spent = sum(bed.cpu_s(d.process.pid) for d in both) - began
        problems = [] if self.suite.count(far, 'rmb_reused') > reused else ['no buffer is used again']
        for d in both:
            problems += d.stop()
        if problems:
            raise SystemExit('\n'.join(problems))
        return *found, round(spent * 1e6 / count)


def measure(place, beds, args):
    print(f'# {place}: median us (lower decile; connections a second; us of karstd for each)')
    rows = []
    for _ in range(args.rounds):
        row = {'TCP': (*beds[0].measure(None, None, TCP_TIMES * args.connections), 0)}
        row.update((one.name, one.smc(args.connections)) for one in beds)
        print('# ' + ', '.join(f'{name} {n[0]} ({n[1]}; {n[2]}; {n[3]})' for name, n in row.items()), flush=True)
        rows.append(row)
    for name in rows[0]:
        n = [statistics.median(row[name][i] for row in rows) for i in range(4)]
        times = statistics.median(row[name][1] / row['TCP'][1] for row in rows)
        print(f'# {place}, {name}: {n[0]:.0f} ({n[1]:.0f}; {n[2]:.0f}; {n[3]:.0f}), {times:.1f} times TCP\'s decile')


def both_places(suite, args, netns):
    suites = {'build': suite}
    os.chmod(suite.folder, 0o755)
    if args.against is not None:
        folder = os.path.join(suite.folder, 'against')
        os.mkdir(folder)
        suites['against'] = Suite(os.path.abspath(args.against), folder)
        suites['against'].rate = suite.rate
    ip('link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'far', 'netns', netns)
    ip('addr', 'add', NEAR + '/24', 'dev', 'near')
    ip('link', 'set', 'near', 'up')
    ip('-n', netns, 'addr', 'add', FAR + '/24', 'dev', 'far')
    ip('-n', netns, 'link', 'set', 'far', 'up')
    for place in args.place:
        measure(place, [Bed(one, name, place, netns, args.user) for name, one in suites.items()], args)


def main():
    parser = argparse.ArgumentParser(description='Connections of a link group that is there.')
    parser.add_argument('build')
    parser.add_argument('--against', help='another build')
    parser.add_argument('--rounds', type=int, default=8)
    parser.add_argument('--connections', type=int, default=1000, help='of a round')
    parser.add_argument('--user', action='store_true', help='the programs are those of a user')
    parser.add_argument('--place', choices=PLACES, action='append', help='not both')
    args = parser.parse_args()
    args.place = args.place or PLACES
    netns = f'karst-reused-{os.getpid()}'
    subprocess.run(['ip', 'netns', 'add', netns], check=True)
    try:
        ip('-n', netns, 'link', 'set', 'lo', 'up')
        return run(args.build, lambda suite: both_places(suite, args, netns))
    finally:
        subprocess.run(['ip', 'netns', 'del', netns], check=False)


if __name__ == '__main__':
    sys.exit(main())
