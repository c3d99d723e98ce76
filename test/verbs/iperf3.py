#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""iperf3 over rsockets over karst: iperf3.py KARSTD KARST-RUN (TAP).

An unmodified program of TCP sockets, with librdmacm's library preloaded.  Both ends count bytes,
and the counts must agree.  RDMAV_FORK_SAFE tells the library that the program may fork.  The
library then opens kernel sockets first and replaces them by rsockets before the first byte.  For
that both must have the same addresses, so the engines have interfaces.

Without RDMAV_FORK_SAFE, iperf3's server does not work: librdmacm 44 opens the descriptor that a
program gets for an accepted rsocket after the rsocket's own, and select() then checks the wrong
one.  Several streams hang in both cases, probably for the same reason.
"""
import json
import os
import sys
import tempfile

from rdmacm import counts
from verbs_bed import Engine, HANG_S, VethPair, free_port, listens, run_all, with_engines

ENV = {'RDMAV_FORK_SAFE': '1',
       'LD_PRELOAD': '/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so'}
CONF = '[engine]\nidle = sleep\n[port eth]\ndevice = kv0\n'
BYTES = 8 << 20
ON_THE_WAY = 1 << 20 # may be sent and not received at the end: the buffers of both ends
CASES = [('to the server', []), ('from the server', ['-R']),
         ('to the server, pieces of 1000 bytes', ['-l', '1000'])]


def program(engine, words):
    """Starts iperf3 with the library preloaded in iperf3, not in karst-run."""
    return engine.program(['env', *(f'{name}={value}' for name, value in ENV.items()),
                           'iperf3', '-J', *words])


def sums(of):
    """@return (bytes sent, bytes received), as one end reports them."""
    text = of.text()
    end = json.loads(text[text.index('{\n'):])['end']
    return end['sum_sent']['bytes'], end['sum_received']['bytes']


def judge(server, client):
    """@return problems"""
    sent, received = sums(client)
    problems = []
    if not BYTES <= sent < 2 * BYTES or not sent - ON_THE_WAY <= received <= sent:
        problems.append(f'of {BYTES} bytes {sent} were sent and {received} received')
    if not {sent, received} & set(sums(server)):
        problems.append(f'the server counts {sums(server)}, the client {(sent, received)}')
    return problems


def run(engines, ip, words):
    """@return problems"""
    port = free_port()
    before = counts(engines), sum(e.counter('rx_bytes') for e in engines)
    server = program(engines[0], ['-s', '-1', '-p', port])
    problems = server.until(lambda: listens(port, server.process.pid), 'listening')
    client = program(engines[-1], ['-c', ip, '-p', port, '-n', BYTES, *words])
    problems += [f'client: {p}' for p in client.wait(HANG_S)]
    if problems or client.status != 0:
        problems.append(f'client: exit status {client.status}')
        server.kill()
    problems += [f'server: {p}' for p in server.wait()]
    problems += [] if server.status == 0 else [f'server: exit status {server.status}']
    if not problems:
        problems = judge(server, client)
        got = sum(e.counter('rx_bytes') for e in engines) - before[1]
        asked = counts(engines)[1] - before[0][1]
        if got < BYTES - ON_THE_WAY or asked < 2:
            problems.append(f'{got} bytes and {asked} requests for a connection went through the '
                            'engines')
    for engine in engines:
        problems += engine.left()
    if problems:
        problems += [*server.shown(), *client.shown()]
        for engine in engines:
            problems += engine.shown()
    return problems


def family(tap, tools, name, *ips):
    """Runs the cases over one engine, and over two."""
    with tempfile.TemporaryDirectory(prefix='karst-iperf3-') as folder, VethPair(*ips) as wire:
        engines = [Engine(tools, folder, CONF, name=f'perf{end}', netns=netns)
                   for end, netns in enumerate(wire.netns)]

        def cases():
            for some in (engines[:1], engines):
                for what, words in CASES:
                    tap.point(f'{name}, {len(some)} engine(s): {what}',
                              run(some, ips[0].split('/')[0], words))

        with_engines(tap, name, engines, cases)


def one(tap, tools, _):
    if os.geteuid() != 0:
        tap.skip('iperf3', 'interfaces of its own need root')
        return
    family(tap, tools, 'IPv4', '10.77.6.1/24', '10.77.6.2/24')
    family(tap, tools, 'IPv6', '2001:db8:6::1/64', '2001:db8:6::2/64')


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one))
