#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Multicast through a Linux bridge that forwards a group only to those who report it (TAP).

  groups.py KARSTD MEMBER

The bridge looks into IGMP and MLD, asks as a router does, and floods nothing.  At two of its ports
there are daemons, one of which sends to a group that a program at the other is in, and at a third
nobody is in it.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
import karst_observe  # noqa: E402
from bed import Daemon, HANG_S, Tap  # noqa: E402
from ports import GROUP, MESSAGES, Member, sh  # noqa: E402

NAMES = ['bridge', 'member', 'sender', 'other']
NETNS = {name: f'karst-g{os.getpid()}-{name}' for name in NAMES}
DEV = 'kveth0'
GROUP6 = 'ff05::4:7'
ADDRESS = {'member': '192.0.2.1', 'sender': '192.0.2.2', 'other': '192.0.2.3'}
# Queries every second.
ASKING = ('mcast_snooping 1 mcast_query_interval 100 '
          'mcast_query_response_interval 50 mcast_startup_query_interval 100').split()
FORGETS_S = 4 # a member that does not answer is forgotten after that, where it matters
QUERIES = 8
SETTLE_S = 1 # a bridge that has started to query floods for as long as answers may take


class Bridge:
    def __init__(self, igmp, mld):
        for name in NETNS.values():
            sh('ip', 'netns', 'add', name)
            sh('ip', '-n', name, 'link', 'set', 'lo', 'up')
            # no waiting for duplicate address detection
            sh('ip', 'netns', 'exec', name, 'sysctl', '-qw',
               'net.ipv6.conf.default.accept_dad=0', 'net.ipv6.conf.all.accept_dad=0')
        bridge = NETNS['bridge']
        sh('ip', '-n', bridge, 'link', 'add', 'br0', 'type', 'bridge', *ASKING,
           'mcast_igmp_version', str(igmp), 'mcast_mld_version', str(mld))
        sh('ip', '-n', bridge, 'link', 'set', 'br0', 'up')
        sh('ip', '-n', bridge, 'link', 'set', 'br0', 'type', 'bridge', 'mcast_querier', '1')
        for name, address in ADDRESS.items():
            sh('ip', '-n', bridge, 'link', 'add', name, 'type', 'veth', 'peer', 'name', DEV,
               'netns', NETNS[name])
            sh('ip', '-n', bridge, 'link', 'set', name, 'master', 'br0', 'up')
            sh('bridge', '-n', bridge, 'link', 'set', 'dev', name, 'mcast_flood', 'off')
            sh('ip', '-n', NETNS[name], 'address', 'add', address + '/24', 'dev', DEV)
            sh('ip', '-n', NETNS[name], 'link', 'set', DEV, 'up')
        time.sleep(SETTLE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in NETNS.values():
            sh('ip', 'netns', 'del', name, check=False)

    def ports_of(self, group):
        """The ports at which the bridge knows members."""
        found = json.loads(sh('bridge', '-j', '-n', NETNS['bridge'], 'mdb', 'show', 'dev', 'br0'))
        return {e['port'] for part in found for e in part.get('mdb', []) if e['grp'] == group}

    def wait(self, group, ports):
        """@return problems: the bridge does not learn that the members of @group are at @ports."""
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            if self.ports_of(group) == ports:
                return []
            time.sleep(0.1)
        return [f'{group} is at {self.ports_of(group)}, not {ports}']

    def forgets(self, after_s):
        """Forgets members that do not answer; from their next answer on."""
        sh('ip', '-n', NETNS['bridge'], 'link', 'set', 'br0', 'type', 'bridge',
           'mcast_membership_interval', str(after_s * 100))

    def frames(self):
        """{port: number of frames that the bridge has sent to it}, at one moment."""
        found = json.loads(sh('ip', '-j', '-s', '-n', NETNS['bridge'], 'link', 'show'))
        return {e['ifname']: e['stats64']['tx']['packets'] for e in found if e['ifname'] in ADDRESS}


def own_port(name):
    """A port that is the engine's: the kernel does not use it."""
    return (f'[port p]\ndevice = net_af_packet0,iface={DEV}\naddresses = {ADDRESS[name]}/24\n'
            'link_local = yes\nmtu = 1500\n')


def kernel_port(driver):
    return lambda name: f'[port p]\ndevice = {DEV}\ndriver = {driver}\n'


def port_row(daemon):
    engine = karst_observe.find_engines(prefix=daemon.name)[0]
    try:
        return next(iter(engine.rows('ports').values()))
    finally:
        engine.telemetry.close()


def start(karstd, folder, what, port, names):
    daemons = {name: Daemon(karstd, folder, '[engine]\nidle = yield\n' + port(name),
                            name=f'{what[:3]}{name}', netns=NETNS[name]) for name in names}
    return daemons, [text for daemon in daemons.values() for text in daemon.start()]


def forwarded(bridge, member, daemons):
    """Messages reach the program that is in the group, and no port without members."""
    listener = Member(member, daemons['member'].socket)
    problems = [f'a member says {line}' for line in [listener.line()] if line != 'ready']
    problems += bridge.wait(GROUP, {'member'})
    if problems:
        listener.close()
        return problems
    before = bridge.frames()
    sender = Member(member, daemons['sender'].socket, 'send')
    problems += [f'the sender says {line}' for line in [sender.line()] if line != 'ready']
    sender.process.stdin.write('go\n')
    sender.process.stdin.flush()
    said = [listener.line() for _ in range(MESSAGES)]
    if said != [f'message {i}' for i in range(MESSAGES)]:
        problems.append(f'heard {said}')
    # queries go to all
    sent = {name: n - before[name] for name, n in bridge.frames().items()}
    if sent['member'] - sent['other'] < MESSAGES / 2:
        problems.append(f'the messages went where nobody is in the group: {sent}')
    sender.close()
    listener.close()
    return problems + bridge.wait(GROUP, set())


def asked(bridge, member, daemon, versions):
    """Queries are answered for as long as a program is in the group: otherwise the bridge would
    have forgotten it."""
    bridge.forgets(FORGETS_S)
    listener = Member(member, daemon.socket)
    six = Member(member, daemon.socket, group=GROUP6)
    problems = [f'a member says {line}' for line in [listener.line(), six.line()]
                if line != 'ready']
    problems += bridge.wait(GROUP, {'member'}) + bridge.wait(GROUP6, {'member'})
    first = port_row(daemon)
    end = time.monotonic() + HANG_S
    row = first
    # a daemon that had no processor for long answers several queries together
    while not problems and (row['mcast_queries'] < first['mcast_queries'] + QUERIES or
                            row['mcast_reports'] < first['mcast_reports'] + 2):
        if time.monotonic() > end:
            problems.append(f'no queries are heard, or there are no answers: {row}')
        time.sleep(0.1)
        row = port_row(daemon)
    problems += bridge.wait(GROUP, {'member'}) + bridge.wait(GROUP6, {'member'})
    if [row['igmp_version'], row['mld_version']] != versions:
        problems.append(f'versions: {row}')
    if row['mcast_bad_queries'] != 0:
        problems.append(f'the queries of a Linux bridge are no good: {row}')
    listener.close()
    six.close()
    return problems + bridge.wait(GROUP, set()) + bridge.wait(GROUP6, set())


def remembered(bridge, member, daemon):
    """A program stays in its groups, whatever happens to the interface."""
    def interface(*words):
        sh('ip', '-n', NETNS['member'], 'link', 'set', DEV, *words)

    bridge.forgets(FORGETS_S)
    listeners = [Member(member, daemon.socket, group=group) for group in (GROUP, GROUP6)]
    problems = [f'a member says {line}' for line in [one.line() for one in listeners]
                if line != 'ready']
    for what, changes in (('down and up, another MAC address',
                           [['down'], ['up'], ['address', '02:00:00:00:07:07']]),
                          ('an MTU without IPv6, for a moment', [['mtu', '1000'], ['mtu', '1500']]),
                          ('an MTU without IPv6', [['mtu', '1000'], [], ['mtu', '1500']])):
        for words in changes:
            if words:
                interface(*words)
            else:
                time.sleep(2)
        time.sleep(FORGETS_S + 2) # what nobody reports any more is forgotten by now
        for group in (GROUP, GROUP6):
            problems = problems or [f'{what}: {p}' for p in bridge.wait(group, {'member'})]
    # a group that is joined while the kernel refuses it
    listeners.pop().close()
    interface('mtu', '1000')
    listeners.append(Member(member, daemon.socket, group=GROUP6))
    problems += [f'joining with that MTU: {line}' for line in [listeners[-1].line()] if line != 'ready']
    problems = problems or daemon.says('does not join group ff05::4:7')
    interface('mtu', '1500')
    problems = problems or bridge.wait(GROUP6, {'member'})
    for one in listeners:
        one.close()
    return problems + bridge.wait(GROUP, set()) + bridge.wait(GROUP6, set())


def reports(tap, karstd, member, folder, what, port, versions):
    with Bridge(*versions) as bridge:
        daemons, problems = start(karstd, folder, what, port, ['member', 'sender'])
        name = f'{what}, IGMP {versions[0]}, MLD {versions[1]}'
        if problems and 'XDP' in ' '.join(problems):
            tap.skip(name, 'this kernel has no AF_XDP on veth')
        else:
            tap.point(f'{name}: forwarded to members alone',
                      problems or forwarded(bridge, member, daemons))
            if port is own_port:
                tap.point(f'{name}: queries are answered',
                          problems or asked(bridge, member, daemons['member'], versions))
            else:
                tap.point(f'{name}: groups outlive changes of the interface',
                          problems or remembered(bridge, member, daemons['member']))
        left = [text for daemon in daemons.values() for text in daemon.stop()]
        if left:
            tap.point(f'{name}: the daemons end', left)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    if os.geteuid() != 0:
        tap.skip('multicast through a bridge', 'network namespaces need root')
        return tap.finish()
    with tempfile.TemporaryDirectory(prefix='karst-groups-') as folder:
        for versions in ([3, 2], [2, 1]):
            reports(tap, argv[1], argv[2], folder, 'own port', own_port, versions)
        reports(tap, argv[1], argv[2], folder, 'af_packet', kernel_port('af_packet'), [3, 2])
        reports(tap, argv[1], argv[2], folder, 'xdp', kernel_port('af_xdp'), [3, 2])
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
