#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""uDAPL over karst: dapl.py KARSTD KARST-RUN (TAP).

dtest connects by librdmacm, writes, reads and sends in both directions, and compares what has
arrived.  Its two ends first exchange their addresses over TCP, at a port number that cannot be
chosen; therefore each end has an interface of its own.
"""
import os
import sys
import tempfile

from verbs_bed import Engine, Tap, Tools, VethPair, listens, says, with_engines

IPS = ('10.77.6.1', '10.77.6.2')
CONF = '[engine]\nidle = sleep\n[port eth]\ndevice = kv0\n'
NAME = 'ofa-v2-karst'
TCP = 15828 # 54333, which dtest does not convert to network byte order
CASES = [
    ('messages of 64 bytes', ['-b', '64']),
    ('messages of 64 KiB, in an event queue that is waited for', ['-b', '65536', '-c']),
    ('messages of 100000 bytes, one way, every one signalled', ['-b', '100000', '-u', '-S', '1']),
]
PASSED = r'DAPL Test Complete\. PASSED'


def registry(folder, ip):
    """Writes the registry: the provider of each name, and the address of its device."""
    path = os.path.join(folder, f'{ip}.conf')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(f'{NAME} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{ip} 0" ""\n')
    return {'DAT_OVERRIDE': path}


def meet(engines, folder, words):
    """Runs a server over the first engine and a client over the last.  @return problems"""
    words = ['dtest', '-P', NAME, '-D', '-B', '20', *words]
    before = [engine.counter('rx_packets') for engine in engines]
    server = engines[0].program([*words, '-s'], env=registry(folder, IPS[0]))
    client = None
    problems = server.until(lambda: listens(TCP, server.process.pid), 'listening')
    if not problems:
        client = engines[-1].program([*words, '-h', IPS[0]],
                                     env=registry(folder, IPS[len(engines) - 1]))
    for end, program in (('client', client), ('server', server)):
        if program is None:
            continue
        if problems:
            program.kill()
        problems += [f'{end}: {p}' for p in program.wait()]
        if program.status != 0:
            problems.append(f'{end}: exit status {program.status}')
        problems += [f'{end}: {p}' for p in says(program, [PASSED])]
    got = sum(engine.counter('rx_packets') for engine in engines) - sum(before)
    if got < 40:
        problems.append(f'{got} frames went through the engines')
    for engine in engines:
        problems += engine.left()
    if problems:
        for program in (server, client):
            problems += program.shown() if program else []
        problems += [line for engine in engines for line in engine.shown()]
    return problems


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:])
    with tempfile.TemporaryDirectory(prefix='karst-dapl-') as folder, \
            VethPair(*(f'{ip}/24' for ip in IPS)) as wire:
        engines = [Engine(tools, folder, CONF, name=f'dapl{end}', netns=netns)
                   for end, netns in enumerate(wire.netns)]

        def cases():
            for some in (engines[:1], engines):
                for name, words in CASES:
                    tap.point(f'{len(some)} engine(s): {name}', meet(some, folder, words))

        with_engines(tap, 'two engines', engines, cases)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
