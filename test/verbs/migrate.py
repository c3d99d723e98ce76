#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Automatic path migration by verbs programs (rules G): migrate.py KARSTD KARST-RUN PROGRAM (TAP).

Two karstd run in network namespaces of their own, with a router between them.  Each has two
addresses, in two networks.  A path leads from a network of one to a network of the other; the
router can be made to drop the packets of one path.
"""
import os
import subprocess
import sys
import tempfile

from verbs_bed import LOOPBACK, Engine, Tap, Tools, VethPair, with_engines

CONF = '[engine]\nidle = sleep\n[port wire]\ndevice = kv0\n'
# Indexed by path, then by end.
ADDRESS = [('10.71.1.1', '10.72.1.1'), ('10.71.2.1', '10.72.2.1')]
SAYS = 'PATH_MIG'


class Routed(VethPair):
    """Two namespaces like those of VethPair, each with a link to a router in a third namespace."""

    def __init__(self):
        super().__init__()
        self.router = f'karst-verbs-{os.getpid()}-router'
        self.netns.append(self.router)

    def make(self):
        for netns in self.netns:
            self.ip(f'netns add {netns}')
            self.ip(f'-n {netns} link set lo up')
        subprocess.run(['ip', 'netns', 'exec', self.router, 'sysctl', '-qw',
                        'net.ipv4.ip_forward=1', 'net.ipv4.conf.all.rp_filter=0'], check=True)
        for end in range(2):
            netns, there = self.netns[end], f'to{end}'
            self.ip(f'-n {netns} link add kv0 type veth peer name {there} netns {self.router}')
            for dev, of in (('kv0', netns), (there, self.router)):
                self.ip(f'-n {of} link set {dev} addrgenmode none')
                self.ip(f'-n {of} link set {dev} up')
            for path in ADDRESS:
                self.ip(f'-n {netns} addr add {path[end]}/24 dev kv0')
                self.ip(f'-n {self.router} addr add {self.gateway(path[end])}/24 dev {there}')
        for end in range(2):
            for path in ADDRESS:
                self.ip(f'-n {self.netns[end]} route add {path[1 - end]} via '
                        f'{self.gateway(path[end])}')

    @staticmethod
    def gateway(address):
        return address.rpartition('.')[0] + '.254'

    def cut(self, path):
        """Makes the router drop the packets of @path silently."""
        for address in ADDRESS[path]:
            self.ip(f'-n {self.router} route add blackhole {address}')

    def mend(self, path):
        for address in ADDRESS[path]:
            self.ip(f'-n {self.router} route del blackhole {address}')


def addresses(end):
    return [path[end] for path in ADDRESS]


def run(engines, program, socket, how, then=lambda sender: [], receive='receive'):
    """Runs a receiver and a sender.  @then: called with the sender.  @return problems"""
    receiver = engines[1].program([program, receive, socket, *addresses(1)])
    problems = receiver.until(lambda: 'listening' in receiver.text(), 'listening')
    sender = engines[0].program([program, how, socket, *addresses(0)])
    try:
        problems += then(sender)
        for name, end in (('sender', sender), ('receiver', receiver)):
            problems += [f'{name}: {p}' for p in end.wait()]
            if end.status != 0:
                problems.append(f'{name}: exit status {end.status}')
    finally:
        sender.kill()
        receiver.kill()
    sent, got = (end.text().splitlines()[-1:] for end in (sender, receiver))
    if sent != got:
        problems.append(f'sent {sent}, received {got}')
    for engine in engines:
        problems += engine.left()
    return problems + [line for who in (sender, receiver, *engines) for line in who.shown()
                       if problems]


def over_two_paths(tap, wire, engines, program, folder):
    def away(sender):
        problems = sender.until(lambda: 'armed' in sender.text(), 'armed')
        if not problems and SAYS in sender.text():
            problems.append('it has migrated while nothing had happened')
        wire.cut(0)
        return problems

    before = [e.counter('local_ack_timeout_err') for e in engines]
    problems = run(engines, program, f'{folder}/away', 'send', away)
    wire.mend(0)
    if engines[0].counter('local_ack_timeout_err') == before[0]:
        problems.append('there was no timeout')
    tap.point('the path is taken away under traffic', problems)
    tap.point('a program migrates, and back again',
              run(engines, program, f'{folder}/command', 'command'))
    tap.point('the same with a shared receive queue',
              run(engines, program, f'{folder}/shared', 'command', receive='receive-srq'))


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools, program = Tap(), Tools(*argv[1:3]), os.path.abspath(argv[3])
    with tempfile.TemporaryDirectory(prefix='karst-migrate-') as folder:
        loop = Engine(tools, folder, LOOPBACK, 'migcalls')

        def calls():
            run_calls = loop.program([program, 'calls'])
            problems = run_calls.wait()
            if run_calls.status != 0 or 'all right' not in run_calls.text():
                problems += run_calls.shown()
            tap.point('the calls of libibverbs', problems + loop.left())

        with_engines(tap, 'calls', [loop], calls)
        with Routed() as wire:
            engines = [Engine(tools, folder, CONF, f'mig{end}', wire.netns[end])
                       for end in range(2)]
            with_engines(tap, 'two paths', engines,
                         lambda: over_two_paths(tap, wire, engines, program, folder))
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
