#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Datagrams and multicast while a port changes: datagrams.py KARSTD KARST-RUN PROGRAM (TAP).

A veth pair connects two network namespaces; there is a karstd at each end, and a program with a UD
queue pair that is in groups (datagrams_program.c).  The interface of one end changes as
administrators change it.  After each change a question to a group has to be answered, and questions
by address handles that are older than the change.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

from verbs_bed import Engine, HANG_S, Tap, Tools, VethPair, with_engines

DEV = 'kv0'
CONF = f'[engine]\nidle = sleep\n[port wire]\ndevice = {DEV}\n'
# Of each end: an address of the interface that stays, and those of the programs.
STAYS = ['198.51.100.1', '198.51.100.2']
FAMILIES = {'IPv4': (['192.0.2.1', '192.0.2.2'], 24, ['239.7.7.7', '239.7.7.8']),
            'IPv6': (['2001:db8::1', '2001:db8::2'], 64, ['ff05::7:7', 'ff05::7:8'])}
CHANGES, CHURN = 60, 50
# Datagrams can be lost when a link has just come up: a question is asked as often as this.
ASKED, PATIENCE_S = 20, 1


class Talker:
    """A running datagrams-program, whose input are commands."""

    def __init__(self, engine, program, *words):
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(engine.command([program, *words]), stdin=subprocess.PIPE,
                                        stdout=self.output, stderr=self.output)
        self.at = 0

    def text(self):
        return os.pread(self.output.fileno(), 1 << 22, 0).decode(errors='replace')

    def hears(self, *patterns, limit_s=HANG_S):
        """@return problems: one of these lines is not printed since tell() or mark().  Events come
        from two descriptors, so they have no order."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            text = self.text()[self.at:]
            if all(re.search(f'^{p}$', text, re.MULTILINE) for p in patterns):
                return []
            if self.process.poll() is not None:
                return [f'ended with {self.process.returncode}: {self.text()[self.at:][-500:]}']
            time.sleep(0.005)
        return [f'{patterns} not in: {self.text()[self.at:][-500:]}']

    def mark(self):
        self.at = len(self.text())

    def tell(self, command, *patterns, limit_s=HANG_S):
        self.mark()
        if self.process.poll() is None:
            self.process.stdin.write(command.encode() + b'\n')
            self.process.stdin.flush()
        return self.hears(*patterns, limit_s=limit_s)

    def close(self):
        self.process.kill()
        self.process.wait()


class Bed:
    def __init__(self, wire, engines, program, family):
        self.wire, self.engines = wire, engines
        self.addresses, self.prefix, groups = FAMILIES[family]
        self.number = 0
        self.here, self.there = self.ends = [
            Talker(engine, program, address, *groups)
            for engine, address in zip(engines, self.addresses)]

    def ip(self, words, end=0):
        subprocess.run(['ip', '-n', self.wire.netns[end], *words.split()], check=True)

    def add(self, address):
        prefix, more = (64, ' nodad') if ':' in address else (24, '')
        self.ip(f'addr add {address}/{prefix} dev {DEV}{more}')

    def remove(self, address):
        self.ip(f'addr del {address}/{64 if ":" in address else 24} dev {DEV}')

    def ask(self, end, words):
        """@return problems: a question is not answered."""
        problems = ['never asked']
        for _ in range(ASKED):
            self.number += 1
            problems = self.ends[end].tell(f'{words} {self.number}', f'answer {self.number}',
                                           limit_s=PATIENCE_S)
            if not problems:
                break
        return [f'{words}: {p}' for p in problems]

    def all_ask(self, here='ask 0'):
        return self.ask(0, here) + self.ask(1, 'ask 1') + self.ask(1, 'back')

    def changes(self, change, *events):
        """Changes the interface.  @return problems: the program does not get these events."""
        self.here.mark()
        change()
        return self.here.hears(*events)

    def close(self):
        for end in self.ends:
            end.close()


GID_CHANGE = 'event .* GID table change'
ADDR_CHANGE = 'cm RDMA_CM_EVENT_ADDR_CHANGE'


def resources(engine):
    """@return what may grow in an engine while nothing is left behind"""
    pid = engine.daemon.process.pid
    found = engine.holds()
    found['descriptors'] = len(os.listdir(f'/proc/{pid}/fd'))
    found['groups'] = [port['mcast_groups'] for port in engine.ask(lambda e: e.rows('ports')).values()]
    return found


def until_equal(ask, wanted):
    """@return problems: what ask() returns does not become @wanted."""
    end = time.monotonic() + HANG_S
    while (found := ask()) != wanted:
        if time.monotonic() > end:
            return [f'{found}, was {wanted}']
        time.sleep(0.05)
    return []


def small_changes(tap, name, bed):
    own = bed.addresses[0]
    another = own[:-1] + '9'
    problems = bed.changes(lambda: bed.add(another), GID_CHANGE) + bed.all_ask()
    problems += bed.changes(lambda: bed.remove(another), GID_CHANGE) + bed.all_ask()
    tap.point(f'{name}: another address comes and goes', problems + bed.ask(0, 'back'))
    problems = bed.changes(lambda: bed.ip(f'link set {DEV} address 02:00:00:00:07:07'), ADDR_CHANGE,
                           GID_CHANGE)
    tap.point(f'{name}: another MAC address', problems + bed.all_ask() + bed.ask(0, 'back'))

    def blink():
        bed.ip(f'link set {DEV} down')
        problems = bed.here.hears('event .* port error')
        bed.ip(f'link set {DEV} up')
        return problems
    # the kernel removes IPv6 addresses that are not link-local
    subprocess.run(['ip', 'netns', 'exec', bed.wire.netns[0], 'sysctl', '-qw',
                    f'net.ipv6.conf.{DEV}.keep_addr_on_down=1'], check=True)
    bed.here.mark()
    problems = blink() + bed.here.hears('event .* port active')
    tap.point(f'{name}: down and up', problems + bed.all_ask() + bed.ask(0, 'back'))
    for mtu in (1500, 9000):
        for end in (0, 1):
            bed.ip(f'link set {DEV} mtu {mtu}', end)
        problems += bed.all_ask() + bed.ask(0, 'back')
    tap.point(f'{name}: another MTU', problems)


def without_address(tap, name, bed):
    """The program's address is removed, and others stay."""
    own = bed.addresses[0]
    problems = bed.changes(lambda: bed.remove(own), ADDR_CHANGE, GID_CHANGE)
    # as with Linux's rxe, nothing is sent from it any more
    at = len(bed.there.text())
    failed = 'failed: local QP operation error'
    for words in ('ask 0 4711', 'back 4711'):
        problems += bed.here.tell(words, failed) + bed.here.tell('recover', 'done')
    problems += bed.here.tell('churn 3', 'churned 3, 3 without a handle')
    tap.point(f'{name}: an address goes: older handles send nothing, there are no new ones', problems)
    problems = bed.changes(lambda: bed.add(own), GID_CHANGE)
    problems += bed.all_ask() + bed.ask(0, 'back') + bed.here.tell('fresh 0', 'done') + bed.all_ask()
    if 'asked 4711' in bed.there.text()[at:]:
        problems.append('a datagram has arrived')
    tap.point(f'{name}: the address is back', problems)


def again_and_again(tap, name, bed):
    """Nothing is left behind by many changes, handles and memberships."""
    another = bed.addresses[0][:-1] + '9'
    first = [f'churned {CHURN}, 0 without a handle']
    problems = bed.here.tell(f'churn {CHURN}', *first)
    before = [resources(engine) for engine in bed.engines]
    for i in range(CHANGES):
        if problems:
            break
        problems += bed.changes(lambda: bed.add(another), GID_CHANGE)
        problems += bed.there.tell(f'churn {CHURN}', *first) + bed.here.tell(f'churn {CHURN}', *first)
        problems += bed.changes(lambda: bed.remove(another), GID_CHANGE)
    problems = problems or until_equal(lambda: [resources(engine) for engine in bed.engines], before)
    tap.point(f'{name}: {CHANGES} changes of addresses, {2 * CHANGES * CHURN} handles and '
              'memberships: nothing is left', problems + bed.all_ask())


def away(tap, name, bed):
    """The interface moves to another network namespace, and the program frees all it has."""
    problems = bed.changes(lambda: bed.ip(f'link set {DEV} netns {bed.wire.netns[1]} name kv1'),
                           'event .* port error', 'event .* local catastrophic error',
                           'cm RDMA_CM_EVENT_DEVICE_REMOVAL')
    problems += bed.here.tell('churn 3', 'churned 3, 3 without a handle')
    tap.point(f'{name}: the interface is away: DEVICE_REMOVAL', problems)
    problems = [p for end in bed.ends for p in end.tell('end', 'ended')]
    problems += [f'exit status {end.process.wait()}' for end in bed.ends if end.process.wait() != 0]
    tap.point(f'{name}: all can be freed', problems + [p for e in bed.engines for p in e.left()])


def family(tap, tools, program, name, folder):
    with VethPair(*(f'{address}/24' for address in STAYS)) as wire:
        bed = None
        engines = [Engine(tools, folder, CONF, f'dg{end}{name[-1]}', wire.netns[end])
                   for end in range(2)]
        for end, address in enumerate(FAMILIES[name][0]):
            subprocess.run(['ip', '-n', wire.netns[end], 'addr', 'add',
                            f'{address}/{FAMILIES[name][1]}', 'dev', DEV,
                            *(['nodad'] if ':' in address else [])], check=True)

        def cases():
            nonlocal bed
            bed = Bed(wire, engines, program, name)
            problems = [p for end in bed.ends for p in end.hears('ready')]
            tap.point(f'{name}: questions and answers',
                      problems or bed.all_ask() + bed.ask(0, 'back'))
            for case in (small_changes, without_address, again_and_again, away):
                case(tap, name, bed)

        try:
            with_engines(tap, name, engines, cases)
        finally:
            if bed is not None:
                bed.close()


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:3])
    for name in FAMILIES:
        with tempfile.TemporaryDirectory(prefix='karst-datagrams-') as folder:
            family(tap, tools, os.path.abspath(argv[3]), name, folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
