#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Memory and wake-ups that idle connections cost.

  idle.py BUILD [--connections N] [--daemons N] [--by-rdma]     (as root)

Each daemon has a server, which waits for all of its connections in one epoll_wait(), and a client
that does the same; one byte was sent in each direction over each connection.  The memory is the
difference of what the kernel charges to their control groups before and after the connections are
made.
"""
import argparse
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smcbed import CONF, bed, run  # noqa: E402

QUIET_S = 1
PAGE = 4096 # the page of a connection: larger mappings are rings


def wakes(pid):
    """@return {name of a thread: number of its voluntary context switches}"""
    found = {}
    for number, text in bed.of_threads(pid, 'status'):
        words = dict(line.split(':\t', 1) for line in text.splitlines() if ':\t' in line)
        found[words['Name'], number] = int(words['voluntary_ctxt_switches'])
    return found


class Idle:
    """@count connections over a daemon of their own."""

    def __init__(self, suite, name, count, by_rdma, older=False):
        self.suite, self.count, self.by_rdma = suite, count, by_rdma
        self.daemon, self.problems = suite.daemon(
            name, CONF + f'max_connections = {3 * count}\n' + ('direct = no\n' if by_rdma else ''),
            older=older)
        self.port = bed.free_port()
        self.programs = {}
        self.program('serve', [])

    def program(self, what, words):
        p = subprocess.Popen([self.suite.run, '--smc', '--socket', self.daemon.socket, self.suite.rate,
                              what, '127.0.0.1', str(self.port), *words], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        self.suite.programs.append(p)
        self.programs[what] = p
        p.stdout.readline()

    def connect(self, held=False):
        """@held: the client waits for go() before it connects."""
        self.program('hold' if held else 'idle', ['1', str(self.count)])

    def go(self):
        p = self.programs['hold']
        p.stdin.write('\n')
        p.stdin.flush()
        p.stdout.readline()

    def pids(self):
        return {'daemon': self.daemon.process.pid,
                **{what: p.pid for what, p in self.programs.items()}}

    def missing(self):
        """@return problems: not all connections exist in the intended mode"""
        totals = self.suite.ask(self.daemon, '/karst/smc')
        have = totals['connected' if self.by_rdma else 'direct']
        return [] if have == self.count * (2 if self.by_rdma else 1) else [totals]

    def wakes(self):
        """@return the wake-ups of the service's thread and of the programs"""
        found = {name: n for name, n in wakes(self.daemon.process.pid).items()
                 if name[0] == 'karst-smc'}
        for p in self.programs.values():
            found.update(wakes(p.pid))
        assert len(found) == 3
        return found


def until_quiet(idles):
    """Waits for a second without wake-ups.  @return problems"""
    began, before = time.monotonic(), None
    while before != [idle.wakes() for idle in idles]:
        if time.monotonic() - began > bed.HANG_S:
            return [f'still waking up: {before}, {[idle.wakes() for idle in idles]}']
        before = [idle.wakes() for idle in idles]
        time.sleep(QUIET_S)
    return []


def maps_rings(idle, wanted):
    """@return problems: the number of ring files that the daemon has mapped is not @wanted"""
    sizes = []
    with open(f'/proc/{idle.daemon.process.pid}/maps', encoding='utf-8', errors='replace') as f:
        for line in f:
            if '/memfd:karst-smc' in line:
                first, last = (int(word, 16) for word in line.split()[0].split('-'))
                sizes.append(last - first)
    have = sum(size > PAGE for size in sizes)
    if not sizes:
        return ['the daemon has mapped no control page']
    return [] if have == wanted else [f'the daemon has mapped the rings of {have}, not {wanted}']


def nobody_wakes(suite, count, by_rdma, older=False):
    idle = Idle(suite, 'quiet' if by_rdma else 'early' if older else 'still', count, by_rdma, older)
    idle.connect()
    problems = idle.problems + idle.missing() + until_quiet([idle])
    rings = 2 * count if by_rdma else 0
    problems += maps_rings(idle, rings)
    suite.ask(idle.daemon, '/karst/smc_connections')
    problems += maps_rings(idle, rings)
    for p in idle.programs.values():
        p.kill()
    problems += idle.daemon.stop()
    suite.tap.point(f'{count} idle connections wake nobody' + (', by RDMA' if by_rdma else '') + (
        ', with an older kernel' if older else ''), problems)


# --- the memory ---

class Group:
    """A control group of version 1 or 2 below that of this process."""

    def __init__(self, name, pids):
        with open('/proc/self/cgroup', encoding='ascii') as f:
            own = {line.split(':')[1]: line.rstrip('\n').split(':', 2)[2] for line in f}
        self.v1 = 'memory' in own
        base = '/sys/fs/cgroup/memory' + own['memory'] if self.v1 else '/sys/fs/cgroup' + own['']
        self.path = os.path.join(base, f'karst-idle-{os.getpid()}-{name}')
        self.parent = base
        os.mkdir(self.path)
        self.pids = pids
        for pid in pids:
            self.enter(self.path, pid)

    @staticmethod
    def enter(path, pid):
        with open(os.path.join(path, 'cgroup.procs'), 'w', encoding='ascii') as f:
            f.write(str(pid))

    def value(self, name):
        with open(os.path.join(self.path, name), encoding='ascii') as f:
            return f.read()

    def bytes(self):
        """@return (the programs' own memory, files in memory, the kernel's memory)"""
        words = dict(line.split() for line in self.value('memory.stat').splitlines())
        if self.v1:
            return int(words['rss']), int(words['shmem']), int(self.value('memory.kmem.usage_in_bytes'))
        return int(words['anon']), int(words['shmem']), int(words['kernel'])

    def remove(self):
        for pid in self.pids:
            try:
                self.enter(self.parent, pid)
            except OSError:
                pass # it has ended
        os.rmdir(self.path)


def measure(suite, args):
    each = args.connections // args.daemons
    idles = [Idle(suite, f'{i}idle', each, args.by_rdma) for i in range(args.daemons)]
    groups = {}
    try:
        for idle in idles:
            idle.connect(held=True)
        for what in idles[0].pids():
            groups[what] = Group(what, [idle.pids()[what] for idle in idles])
        before = {what: group.bytes() for what, group in groups.items()}
        for idle in idles:
            idle.go()
        suite.tap.point(f'{args.connections} connections of {args.daemons} daemons',
                        [p for idle in idles for p in idle.problems + idle.missing()])
        suite.tap.point('nobody wakes', until_quiet(idles))
        print(f'# {"bytes a connection":20} {"own":>8} {"files":>8} {"kernel":>8}')
        for what, group in groups.items():
            cost = [(new - old) / args.connections for new, old in zip(group.bytes(), before[what])]
            print(f'# {what:20} ' + ' '.join(f'{n:8.0f}' for n in cost))
        idle = idles[0]
        for what, pid in idle.pids().items():
            print(f'# {what}: {len(os.listdir(f"/proc/{pid}/fd")) / each:.1f} descriptors a connection')
    finally:
        suite.clean()
        for group in groups.values():
            group.remove()


def main():
    parser = argparse.ArgumentParser(description='What idle connections cost.')
    parser.add_argument('build')
    parser.add_argument('--connections', type=int, default=10000, help='of all daemons together')
    parser.add_argument('--daemons', type=int, default=5, help='each may have so many descriptors')
    parser.add_argument('--by-rdma', action='store_true')
    args = parser.parse_args()
    return run(args.build, lambda suite: measure(suite, args))


if __name__ == '__main__':
    sys.exit(main())
