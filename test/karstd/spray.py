#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Queue pairs that spray their requests over a network of four paths (TAP).

  spray.py KARSTD KARST-PERF

Two daemons over a veth pair, and over net_memif.  net_impair in front of each port is the network: a
packet takes as long as the path of its UDP source port, and nothing overtakes anything on its path.
So packets of one queue pair come in another order than they left, again and again, and not one may be
sent again for that (X9, X12).
"""
import os
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'common'), os.path.join(HERE, '..', '..', 'usertools')]
sys.dont_write_bytecode = True
import karst_observe  # noqa: E402
import bed  # noqa: E402
from bed import Daemon, Tap  # noqa: E402
from ports import ADDRESS, DEV, NETNS, Network, reason_against_netns  # noqa: E402

PATHS = 4
# The delay of each path.  The engine's timers have ticks of 4 us, and a packet leaves net_impair
# with the next burst: it matters that the delays differ by more than it takes to build a packet.
DELAY_US = [200, 1700, 600, 2500]
LEAST_NS = min(DELAY_US) * 1000
# 2.5 min, longer than any busy machine takes to answer: every retransmission is because a packet
# was taken for lost.
TIMEOUT = '25'
ALL = ['--op', 'write,send,read']
TRAFFIC = ['--size', '20000', '--iters', '200', '--mtu', '1024', '--qps', '4',
           '--depth', '8', '--working-set', '4M', '--verify', '--no-baselines', '--timeout', TIMEOUT]
TRIES = 10


def rules(folder):
    """Rules for the requests of those that spray; everything else has the port of its queue pair,
    which may be any."""
    path = os.path.join(folder, 'paths')
    with open(path, 'w', encoding='utf-8') as f:
        for number, us in enumerate(DELAY_US):
            f.write(f'[rule path{number}]\naction = delay\ndirection = rx\n'
                    f'source_ports = {0x1111 << number:#x}\ndelay_us = {us}\n')
    return path


def conf(engine, port, impair):
    # room for all requests that may be under way, otherwise a frame would be dropped
    return (f'[engine]\nidle = yield\nselective_repeat = 192.0.2.0/24\nheld_frames = 4096\n'
            f'window_packets = 64\n{engine}\n'
            # the delay of the longest path is not congestion; the delay of a busy machine may be
            f'[congestion]\nswift_base_target = 5000\n'
            f'[port wire]\n{port}\nimpair = {impair}\n')


def of(daemon):
    return karst_observe.find_engines(prefix=daemon.name)[0]


def counters(daemon, what='counters'):
    """The sum over all lcores."""
    engine, total = of(daemon), {}
    try:
        for row in engine.rows(what).values():
            for name, value in row.items():
                total[name] = total.get(name, 0) + value
    finally:
        engine.telemetry.close()
    return total


def by_path(daemon):
    """[packets that arrived]"""
    engine = of(daemon)
    try:
        stats = engine.telemetry.ask('/impair/stats,net_impair_wire')
    finally:
        engine.telemetry.close()
    hits = dict(zip(stats['rules'], stats['hits']))
    return [hits[f'path{number}'] for number in range(PATHS)]


class Delays:
    """The round trips that queue pairs of a daemon report while there is traffic (E7)."""

    def __init__(self, daemon):
        self.engine = of(daemon)
        self.seen, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(0.01):
            for row in self.engine.table('qps'):
                found = self.engine.telemetry.ask(f'/karst/qp,{self.engine.name}:{row["qpn"]}')
                if found and found.get('delay_ns'): # else it has gone or measured nothing
                    self.seen.append(found['delay_ns'])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.engine.telemetry.close()


def nothing_again(ds):
    """@return problems: a packet was taken for lost."""
    problems = []
    for end, d in zip(('server', 'client'), ds):
        now = {**counters(d), **counters(d, 'drops')}
        problems += [f'{end}: {name} is {now[name]}' for name in (
            'retransmits', 'local_ack_timeout_err', 'packet_seq_err', 'implied_nak_seq_err',
            'duplicate_request', 'held_full', 'sack') if now[name] != 0]
    return problems


def start(tap, what, karstd, folder, ports, netns, engine):
    impair = rules(folder)
    ds = [Daemon(karstd, folder, conf(engine, ports[end], impair), name=f'{what[:3]}{end}',
                 netns=netns[end]) for end in (0, 1)]
    problems = ds[0].start() + ds[1].start()
    tap.point(f'{what}: two daemons start', problems)
    return ds, not problems


def stop(tap, what, ds):
    tap.point(f'{what}: they stop', ds[0].stop() + ds[1].stop())


def sprayed(tap, karstd, perf, folder, name, ports, netns, how):
    what = f'{name}, congestion {how}'
    ds, there = start(tap, what, karstd, folder, ports, netns,
                      f'spray_ports = {PATHS}\ncongestion = {how}')
    if there:
        with Delays(ds[1]) as delays:
            problems = bed.traffic(perf, ds[0].socket, ds[1].socket, *ALL, *TRAFFIC)
            tries = 1
            while how == 'swift' and not problems and not delays.seen and tries < TRIES:
                problems = bed.traffic(perf, ds[0].socket, ds[1].socket, *ALL, *TRAFFIC)
                tries += 1
        tap.point(f'{what}: every byte is right', problems)
        paths, held = by_path(ds[0]), counters(ds[0])['requests_held']
        tap.note(f'packets by path: {paths}; {held} were held')
        tap.point(f'{what}: requests come by every path (X12)', [] if min(paths) > 0 else [paths])
        tap.point(f'{what}: in another order, and wait for their turn (X4)',
                  [] if held > 0 else ['none was held'])
        tap.point(f'{what}: none is sent again (X9, X12)', nothing_again(ds))
        if how == 'swift':
            tap.point(f'{what}: round trips are measured, all paths in them (E7)',
                      [] if delays.seen and min(delays.seen) >= LEAST_NS else [
                          f'{len(delays.seen)}, the least {min(delays.seen, default=None)} ns'])
    stop(tap, what, ds)


def one_port(tap, karstd, perf, folder, name, ports, netns):
    """The same network, and a queue pair that does not spray."""
    what = f'{name}, one port'
    ds, there = start(tap, what, karstd, folder, ports, netns, 'spray_ports = 1')
    if there:
        tap.point(f'{what}: every byte is right',
                  bed.traffic(perf, ds[0].socket, ds[1].socket, *TRAFFIC, '--op',
                              'write', '--qps', '1'))
        paths, held = by_path(ds[0]), counters(ds[0])['requests_held']
        tap.point(f'{what}: one path, in order', [] if paths.count(0) == PATHS - 1 and held == 0
                  else [f'{paths}, {held} held'])
        tap.point(f'{what}: none is sent again', nothing_again(ds))
    stop(tap, what, ds)


def memif(folder):
    return [f'device = net_memif0,role={role},id=9,bsize=8192,socket-abstract=no,'
            f'socket={folder}/spray.sock\naddresses = {ADDRESS[end]}/24\nmtu = 4180'
            for end, role in enumerate(('server', 'client'))]


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        sprayed(tap, *argv[1:], folder, 'memif', memif(folder), (None, None), 'off')
        reason = reason_against_netns()
        if reason:
            tap.skip('veth', reason)
            return tap.finish()
        with Network(9000):
            veth = [f'device = {DEV}'] * 2
            one_port(tap, *argv[1:], folder, 'veth', veth, NETNS)
            for how in ('off', 'dcqcn', 'swift'):
                sprayed(tap, *argv[1:], folder, 'veth', veth, NETNS, how)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
