#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Events of unmodified programs when ports and addresses change: changes.py KARSTD KARST-RUN (TAP).

A veth pair connects two network namespaces; there is a karstd at each end.  One of them has two
lcores and also a loopback port, whose programs must not be affected.  The test changes the
interface as administrators do; ibv_asyncwatch and rping print the events that they get.
"""
import functools
import re
import subprocess
import sys
import tempfile

from rdmacm import listens
from verbs_bed import Engine, Tap, Tools, VethPair, exit_status

ADDRESS = ['192.0.2.1', '192.0.2.2']
ANOTHER = '192.0.2.9'
SIX = '2001:db8::9'
DEV = 'kv0'
CONF = ('[engine]\nidle = sleep\nlcores = 0,1\n[port wire]\ndevice = kv0\n'
        '[port loop]\ndevice = loopback\naddresses = 127.0.0.1/8\n')
PEER = '[engine]\nidle = sleep\n[port wire]\ndevice = kv0\n'


class Bed:
    def __init__(self, wire, engines):
        self.wire, self.engines = wire, engines
        self.here = engines[0]

    def ip(self, words, end=0, check=True):
        subprocess.run(['ip', '-n', self.wire.netns[end], *words.split()], check=check)

    def add_veth(self):
        """Creates the veth pair again; the new interfaces have other indices."""
        self.ip(f'link add {DEV} mtu 9000 type veth peer name {DEV} netns {self.wire.netns[1]}')
        for end, address in enumerate(ADDRESS):
            self.dress(end, address)

    def dress(self, end, address):
        self.ip(f'link set {DEV} addrgenmode none mtu 9000', end)
        self.ip(f'addr add {address}/24 dev {DEV}', end)
        self.ip(f'link set {DEV} up', end)

    def says(self, text, since):
        return self.here.daemon.says(text, since)

    def both_say(self, text, since):
        return [p for engine, at in zip(self.engines, since) for p in engine.daemon.says(text, at)]

    def said(self):
        return len(self.here.daemon.text())

    def both_said(self):
        return [len(engine.daemon.text()) for engine in self.engines]

    def traffic(self):
        """Runs rping, with an rdma_cm connection, between the namespaces.  @return problems"""
        server = self.engines[1].program(['rping', '-s', '-C', '10', '-v', '-a', ADDRESS[1]])
        problems = listens(self.engines[1], server)
        client = self.here.program(['rping', '-c', '-C', '10', '-v', '-a', ADDRESS[1]])
        problems += client.wait()
        if exit_status(client) != 0:
            problems.append(f'client: exit status {client.status}')
            server.kill()
        problems += server.wait()
        if exit_status(server) != 0:
            problems.append(f'server: exit status {server.status}')
        return problems + [line for who in (server, client, *self.engines)
                           for line in who.shown() if problems]


class Heard:
    """Programs at one port that print the events that they get."""

    def __init__(self, bed, device='karst0', address=ADDRESS[0]):
        self.watch = bed.here.program(['ibv_asyncwatch', '-d', device])
        self.at = 0
        self.server = bed.here.program(['stdbuf', '-oL', 'rping', '-s', '-d', '-a', address])
        self.problems = self.watch.until(lambda: 'async event FD' in self.watch.text(), 'watching')
        self.problems += self.server.until(lambda: 'rdma_listen' in self.server.text(), 'listening')

    def event(self, *names):
        """@return problems: verbs programs do not get all of these events in this order."""
        pattern = re.compile('.*?'.join(f'IBV_EVENT_{name} ' for name in names), re.DOTALL)
        problems = self.watch.until(lambda: pattern.search(self.watch.text(), self.at),
                                    f'told of {" and ".join(names)}')
        found = pattern.search(self.watch.text(), self.at)
        self.at = found.end() if found else self.at
        return problems + (self.watch.shown() if problems else [])

    def cm(self, text):
        """@return problems: programs of rdma_cm do not get this event."""
        problems = self.server.until(lambda: text in self.server.text(), f'told of {text}')
        return problems + (self.server.shown() if problems else [])

    def silent(self):
        """@return problems: the programs have got an event."""
        return [f'heard what is no concern of theirs: {p.text()}' for p, text in
                ((self.watch, 'event_type'), (self.server, 'EVENT'), (self.server, 'removal'))
                if text in p.text()]

    def close(self):
        for program in (self.watch, self.server):
            program.kill()


def active_mtu(bed):
    run = bed.here.program(['ibv_devinfo', '-d', 'karst0'])
    problems = run.wait()
    found = re.search(r'active_mtu:\s+(\d+)', run.text())
    return int(found.group(1)) if found and not problems else f'{problems} {run.text()}'


def link(tap, bed, heard):
    bed.ip(f'link set {DEV} down')
    problems = heard.event('PORT_ERR')
    bed.ip(f'link set {DEV} up')
    tap.point('an interface goes down and up: PORT_ERR, PORT_ACTIVE',
              problems + heard.event('PORT_ACTIVE') + bed.traffic())


def gids(bed):
    """@return {index of the GID: IPv4 address}"""
    run = bed.here.program(['ibv_devinfo', '-v', '-d', 'karst0'])
    problems = run.wait()
    return problems or {int(n): ip for n, ip in
                        re.findall(r'GID\[ *(\d+)\]:\s+::ffff:([\d.]+)', run.text())}


def indices(bed, heard):
    """@return problems: the index of an address changes when others are added or removed."""
    problems = []
    last = ADDRESS[0]
    for words, want in (('add 192.0.2.21', {0: last, 1: '192.0.2.21'}),
                        ('add 198.51.100.1', {0: last, 1: '192.0.2.21', 2: '198.51.100.1'}),
                        ('del 192.0.2.21', {0: last, 2: '198.51.100.1'}),
                        ('add 203.0.113.1', {0: last, 1: '203.0.113.1', 2: '198.51.100.1'}),
                        ('del 198.51.100.1', {0: last, 1: '203.0.113.1'}),
                        ('del 203.0.113.1', {0: last})):
        bed.ip(f'addr {words}/24 dev {DEV}')
        problems += heard.event('GID_CHANGE')
        found = gids(bed)
        problems += [f'{words}: {found}, not {want}'] if found != want else []
    return problems


def crowded(bed, heard):
    """@return problems: an address in use gives way to others, of which there are too many."""
    bed.ip(f'addr add {SIX}/64 dev {DEV} nodad')
    problems = heard.event('GID_CHANGE')
    user, since = Heard(bed, address=SIX), bed.said()
    for i in range(30, 48):
        bed.ip(f'addr add 192.0.2.{i}/24 dev {DEV}')
    problems += user.problems + bed.says('has more than 16 addresses: 4 are not used', since)
    problems += [user.server.text()] if 'ADDR_CHANGE' in user.server.text() else []
    for i in range(30, 48):
        bed.ip(f'addr del 192.0.2.{i}/24 dev {DEV}')
    bed.ip(f'addr del {SIX}/64 dev {DEV}')
    problems += user.cm('ADDR_CHANGE')
    user.close()
    problems += heard.watch.until(lambda: gids(bed) == {0: ADDRESS[0]}, 'as before')
    heard.at = len(heard.watch.text())
    return problems


def addresses(tap, bed, heard):
    bed.ip(f'addr add {ANOTHER}/24 dev {DEV}')
    tap.point('an address comes: GID_CHANGE', heard.event('GID_CHANGE'))
    other = Heard(bed, address=ANOTHER)
    bed.ip(f'addr del {ANOTHER}/24 dev {DEV}')
    tap.point('an address goes: GID_CHANGE; who listens on it hears ADDR_CHANGE',
              other.problems + heard.event('GID_CHANGE') + other.cm('RDMA_CM_EVENT_ADDR_CHANGE'))
    tap.point('who listens on another address does not', [
        heard.server.text()] if 'ADDR_CHANGE' in heard.server.text() else [])
    other.close()
    tap.point('an address keeps the index of its GID', indices(bed, heard))
    bed.ip(f'addr add {ANOTHER}/24 dev {DEV} label {DEV}:1')
    problems = heard.event('GID_CHANGE') # within a second, or not at all
    found = gids(bed)
    bed.ip(f'addr del {ANOTHER}/24 dev {DEV}')
    tap.point('an address with a label is one of the interface',
              problems + ([] if ANOTHER in found.values() else [str(found)]) +
              heard.event('GID_CHANGE'))
    tap.point('an address stays when there are too many', crowded(bed, heard))
    since = bed.said()
    bed.ip(f'addr flush dev {DEV}')
    problems = bed.says('has no IP address any more', since)
    bed.ip(f'addr add {ADDRESS[0]}/24 dev {DEV}')
    tap.point('all addresses go, which is said, and come back', problems + bed.traffic())


def mac(tap, bed, heard):
    since = bed.said()
    bed.ip(f'link set {DEV} address 02:00:00:00:07:07')
    problems = bed.says('has MAC address 02:00:00:00:07:07 now', since)
    problems += heard.event('GID_CHANGE') + heard.cm('RDMA_CM_EVENT_ADDR_CHANGE')
    tap.point('another MAC address: GID_CHANGE, ADDR_CHANGE, and it is used',
              problems + bed.traffic())


def mtu(tap, bed, largest=(9000, 4096)):
    problems = []
    for size, path in ((1500, 1024), (300, 256), largest):
        since = bed.both_said()
        for end in (0, 1):
            bed.ip(f'link set {DEV} mtu {size}', end)
        problems += bed.both_say(f'has MTU {size} now, so path MTU {path}', since)
        found = active_mtu(bed)
        if found != path:
            problems.append(f'MTU {size}: active_mtu {found}')
        if size > 300:
            problems += bed.traffic()
    tap.point('another MTU: the path MTU follows, down and up', problems)


def loses(tap, bed, name, leave, come, text, ends=1):
    """Removes the interface by leave() and restores it by come(); so many @ends lose it."""
    heard = Heard(bed)
    beside = Heard(bed, device='karst1', address='127.0.0.1')
    problems = heard.problems + beside.problems
    since = bed.both_said()[:ends]
    leave()
    problems += bed.says(text, since[0])
    problems += heard.event('PORT_ERR', 'DEVICE_FATAL') + heard.cm('device removal')
    tap.point(f'{name}: PORT_ERR, DEVICE_FATAL, DEVICE_REMOVAL', problems)
    tap.point(f'{name}: programs of another port do not notice', beside.silent())
    come() # it may be back already
    problems = bed.both_say('port 1, wire: kv0', since) + bed.traffic()
    for engine, at in zip(bed.engines, since):
        gone = engine.daemon.text()[at:].count('is gone')
        problems += [f'{engine.daemon.name}: gone {gone} times'] if gone != 1 else []
    tap.point(f'{name}: the port is back, and stays', problems)
    heard.close()
    beside.close()


def interfaces(tap, bed):
    def away():
        bed.ip(f'link set {DEV} netns {bed.wire.netns[1]} name kv1')

    def back():
        bed.ip(f'link set kv1 netns {bed.wire.netns[0]} name {DEV}', 1)
        bed.dress(0, ADDRESS[0])

    def rename(old, new):
        bed.ip(f'link set {old} down')
        bed.ip(f'link set {old} name {new}')
        bed.ip(f'link set {new} up')

    loses(tap, bed, 'an interface is moved to another namespace', away, back,
          'is gone: deleted, or moved')
    loses(tap, bed, 'and away and back at once', lambda: (away(), back()), lambda: None,
          'is gone: deleted, or moved')
    loses(tap, bed, 'an interface gets another name', lambda: rename(DEV, 'kv1'),
          lambda: rename('kv1', DEV), 'is gone: it is called kv1 now')


def deleted(tap, bed):
    """Both ends lose their interface; the other daemon has one lcore."""
    loses(tap, bed, 'an interface is deleted', lambda: bed.ip(f'link del {DEV}'), bed.add_veth,
          'is gone: deleted, or moved', ends=2)


def reload(tap, bed):
    heard, since = Heard(bed), bed.said()
    beside = Heard(bed, device='karst1', address='127.0.0.1')
    more = CONF + 'addresses = 127.0.0.2/8\n'
    problems = heard.problems + beside.problems + bed.here.daemon.reload(more)
    tap.point('SIGHUP gives a port another address: GID_CHANGE',
              problems + beside.event('GID_CHANGE') +
              bed.says('port loop: other addresses by the configuration', since))
    since = bed.said()
    problems = bed.here.daemon.reload('[engine]\nidle = sleep\nlcores = 0,1\n' +
                                      more[more.index('[port loop]'):])
    problems += heard.event('PORT_ERR', 'DEVICE_FATAL') + heard.cm('device removal')
    problems += bed.says('port wire: not in the configuration any more', since)
    tap.point('SIGHUP takes a port away: PORT_ERR, DEVICE_FATAL, DEVICE_REMOVAL', problems)
    since = bed.said()
    tap.point('a port that was taken away does not come back but by another start',
              bed.here.daemon.reload(more) + bed.says('[port] has changed', since))
    local = Heard(bed, device='karst1', address='127.0.0.2')
    client = bed.here.program(['rping', '-c', '-C', '3', '-a', '127.0.0.2'])
    tap.point('the other port goes on', local.problems + client.wait() +
              ([] if exit_status(client) == 0 else client.shown()))
    for one in (heard, beside, local):
        one.close()


# Other drivers of kernel interfaces: the largest MTU that they support, and its path MTU.
DRIVERS = {'af_packet': (9000, 4096), 'af_xdp': (3000, 2048)}


class Named:
    """A Tap that puts the name of a part in front of each point."""

    def __init__(self, tap, name):
        self.tap, self.name = tap, name

    def point(self, text, problems):
        self.tap.point(f'{self.name}: {text}', problems)


def between(tap, bed, engines, largest, *parts):
    """Changes the interface of two daemons, which begins with MTU @largest; then runs @parts."""
    for end in (0, 1):
        bed.ip(f'link set {DEV} mtu {largest}', end)
    problems = [p for e in engines for p in e.start()]
    tap.point('two daemons start', problems)
    if not problems:
        heard = Heard(bed)
        tap.point('programs at a port', heard.problems)
        for part in (link, addresses, mac):
            part(tap, bed, heard)
        heard.close()
        for part in parts:
            part(tap, bed)
    for e in engines:
        tap.point(f'{e.daemon.name}: it stops', e.stop())


def other_drivers(every, tools, folder):
    """Ports of these drivers report changes of the interface, too, although DPDK's drivers do not
    watch for them."""
    for name, largest in DRIVERS.items():
        tap = Named(every, name)
        with VethPair(*(f'{address}/24' for address in ADDRESS)) as wire:
            engines = [Engine(tools, folder, conf.replace(f'device = {DEV}\n',
                                                          f'device = {DEV}\ndriver = {name}\n'),
                              name=f'd{end}{name}', netns=wire.netns[end])
                       for end, conf in enumerate((CONF, PEER))]
            between(tap, Bed(wire, engines), engines, largest[0],
                    functools.partial(mtu, largest=largest))


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:])
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder, \
            VethPair(*(f'{address}/24' for address in ADDRESS)) as wire:
        engines = [Engine(tools, folder, conf, name=f'wire{end}', netns=wire.netns[end])
                   for end, conf in enumerate((CONF, PEER))]
        between(tap, Bed(wire, engines), engines, 9000, mtu, interfaces, deleted, reload)
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
        other_drivers(tap, tools, folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
