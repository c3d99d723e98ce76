#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Runs karst-perf over DPDK ports, every byte verified: perf.py KARST-PERF (TAP).

No figure is judged here: a busy machine must not fail a test.  What is judged: exit status, that
what was asked for was moved, that no byte was wrong, that losses led to retransmissions, and that
the figures of an object agree with each other.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Tap  # noqa: E402

FIELDS = {
    'op': str, 'transport': str, 'size_bytes': int, 'mtu_bytes': int, 'qps': int, 'depth': int,
    'lcores': int, 'port': str, 'messages': int, 'seconds': float, 'gbps': float, 'mops': float,
    'cycles_per_message': float, 'cycles_per_packet': float, 'latency_ns': dict,
    'memcpy_gbps': float, 'memcpy_ratio': float, 'ring_copy_gbps': float,
    'ring_copy_ratio': float, 'ring_rtt_ns': float, 'retransmits': int, 'icrc_drops': int,
    'verify_errors': int, 'errors': int,
}
# What may be null, because it was not asked for or needs a second lcore.
OPTIONAL = {'latency_ns', 'ring_copy_gbps', 'ring_copy_ratio', 'ring_rtt_ns'}
COMMON = ['--verify', '--working-set', '16M']
TIMEOUT_S = 240


class Perf(Tap):
    """A karst-perf and the points about it."""

    def __init__(self, program):
        super().__init__()
        self.program = program

    def run(self, args):
        try:
            return subprocess.run([self.program, *args], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as e:
            return subprocess.CompletedProcess(e.cmd, 'timeout', e.stdout or '', e.stderr or '')

    def measure(self, name, args, extra=None, count=1):
        """One point: the command works, and its output is consistent.  @extra: more problems of one
        object."""
        words = args.split() + COMMON + ['--json']
        run = self.run(words)
        problems = []
        objects = []
        if run.returncode != 0:
            problems.append(f'exit status {run.returncode}: {run.stderr[-1500:]}')
        for line in run.stdout.splitlines():
            try:
                objects.append(json.loads(line))
            except ValueError:
                problems.append(f'not JSON: {line}')
        if count is not None and len(objects) != count:
            problems.append(f'{len(objects)} objects, not {count}')
        for found in objects:
            problems += check_object(found)
            if not problems and extra is not None:
                problems += extra(found)
        if problems:
            problems.append('karst-perf ' + ' '.join(words))
        self.point(name, problems)
        return objects


def near(a, b):
    return abs(a - b) <= 0.02 * max(abs(a), abs(b)) + 1e-3


def check_object(found):
    problems = []
    for field, kind in FIELDS.items():
        if field not in found:
            problems.append(f'no "{field}"')
        elif found[field] is None:
            if field not in OPTIONAL:
                problems.append(f'"{field}" is null')
        elif not isinstance(found[field], (int, float) if kind is float else kind):
            problems.append(f'"{field}" is {found[field]!r}')
    if problems:
        return problems
    for field in ('verify_errors', 'errors', 'icrc_drops'):
        if found[field]:
            problems.append(f'{field} is {found[field]}')
    if found['messages'] <= 0 or found['seconds'] <= 0:
        problems.append(f'{found["messages"]} messages in {found["seconds"]} s')
        return problems
    rate = found['messages'] / found['seconds']
    if not near(found['mops'], rate / 1e6):
        problems.append(f'mops is {found["mops"]}, messages / seconds is {rate / 1e6}')
    if not near(found['gbps'], rate * found['size_bytes'] * 8 / 1e9):
        problems.append(f'gbps is {found["gbps"]} at {rate:.0f} messages a second')
    return problems


def iters(number):
    """All of the messages that were requested, to within a round of the queue pairs."""
    return lambda found: [] if found['messages'] >= number else [
        f'{found["messages"]} messages of {number}']


def operations(perf):
    for op in ('write', 'write-imm', 'read', 'send'):
        for size, depth, number in ((1, 64, 2000), (64, 64, 2000), (4096, 64, 1000),
                                    (65536, 16, 300), (1048577, 4, 30)):
            perf.measure(f'RC {op} of {size} bytes',
                         f'--op {op} --size {size} --depth {depth} --iters {number}',
                         iters(number))
    for op in ('cas', 'faa', 'atomic-write'):
        perf.measure(f'RC {op}', f'--op {op} --size 8 --iters 2000', iters(2000))
    for op in ('write', 'write-imm', 'send'):
        perf.measure(f'UC {op}', f'--transport uc --op {op} --size 10000 --iters 500', iters(500))
    perf.measure('UD send', '--transport ud --op send --size 1024 --iters 1000', iters(1000))


def shapes(perf):
    for mtu in (256, 1024):
        perf.measure(f'path MTU {mtu}', f'--mtu {mtu} --size 100001 --depth 16 --iters 200',
                     iters(200))
    for op in ('write', 'read', 'send'):
        perf.measure(f'two lcores, {op}', f'--lcores 2 --op {op} --size 16384 --iters 1000',
                     iters(1000))
    perf.measure('1000 queue pairs', '--qps 1000 --depth 2 --size 512 --iters 20000',
                 iters(20000))
    perf.measure('depth 1', '--depth 1 --size 64 --iters 1000', iters(1000))
    perf.measure('a sweep', '--op write,read --size 64,4096 --iters 200', iters(200), count=4)


def losses(perf):
    def again(found):
        return [] if found['retransmits'] > 0 else ['nothing was sent again']

    for op, size in (('write', 65536), ('read', 65536), ('send', 65536), ('faa', 8)):
        number = 400 if size > 8 else 4000
        perf.measure(f'1% loss, {op}',
                     f'--op {op} --size {size} --loss 0.01 --depth 32 --iters {number}', again)
    # some packets are lost twice, and the timeout would be hours (Q11)
    perf.measure('3% loss, early retransmission', '--op write --size 65536 --loss 0.03 --depth 32 --iters 400 '
                 '--timeout 31 --early-retransmission', lambda found: [] if found['early_retransmission'] and
                 found['recovery'] == 'go-back-n' and found['timeouts'] == 0 else [
                     f'{found["recovery"]}, {found["timeouts"]} timeouts'])
    perf.measure('control of congestion', '--op write --size 65536 --loss 0.001 --depth 32 --iters 400 '
                 '--congestion swift', lambda found: [] if found['congestion'] == 'swift' else [
                     found['congestion']])
    # going back for each of them would be 30 packets for one (X9)
    perf.measure('1% loss, selective repeat', '--op write --size 65536 --loss 0.01 --depth 32 --iters 400 '
                 '--selective-repeat', lambda found: [] if found['retransmits'] < 10 * found['injected_drops'] else [
                     f'{found["retransmits"]} packets sent again for {found["injected_drops"]} lost'])
    # On a busy machine one of the two may have no processor for seconds, and must not be given up
    # then; but waiting as long for each packet that is lost twice takes minutes without early
    # retransmission.
    perf.measure('10% loss on two lcores', '--op write --size 32768 --lcores 2 --loss 0.1 --iters 200 '
                 '--timeout 21 --early-retransmission', again)


def latencies(perf):
    def ordered(found):
        lat = found['latency_ns']
        if lat is None:
            return ['no latency_ns']
        values = [lat[key] for key in ('p50', 'p99', 'p999', 'max')]
        return [] if 0 < values[0] and values == sorted(values) else [f'latency_ns is {lat}']

    perf.measure('latency', '--op write --size 64 --lat --iters 2000', ordered)
    # each waits for 10 of the 20 ms
    perf.measure('messages of the ping-pong that are lost', '--transport ud --op send --size 64 --lat --loss 0.05 '
                 '--iters 2000', lambda found: [] if found.get('lost_pings') else [f'lost_pings: {found.get("lost_pings")}'])
    perf.measure('latency on two lcores', '--op send --size 64 --lat --lcores 2 --iters 2000',
                 ordered)


def other_ports(perf):
    """A pair of memif ports in one process: other buffers, another driver."""
    with tempfile.TemporaryDirectory() as folder:
        memif = f'socket={os.path.join(folder, "memif.sock")},socket-abstract=no,bsize=8192'
        perf.measure('net_memif', f'--vdev net_memif0,role=server,{memif} '
                                  f'--vdev net_memif1,role=client,{memif} '
                                  '--force-mtu --op write --size 16384 --iters 500', iters(500))


def table(perf):
    run = perf.run(['--op', 'write', '--size', '64', '--iters', '500', '--working-set', '4M'])
    problems = [] if run.returncode == 0 else [f'exit status {run.returncode}: {run.stderr}']
    if 'write' not in run.stdout:
        problems.append(f'no row for write: {run.stdout}')
    perf.point('a table', problems)


def crc(perf):
    run = perf.run(['crc', '--json', '--size', '64,4096', '--set', 'cache', '--time', '0.5'])
    problems = [] if run.returncode == 0 else [f'exit status {run.returncode}: {run.stderr}']
    seen = set()
    for line in run.stdout.splitlines():
        row = json.loads(line)
        seen.add(row['impl'].split('-', maxsplit=1)[0])
        if set(row) != {'impl', 'bytes', 'set', 'ns', 'mean_ns', 'gbps'}:
            problems.append(f'fields: {line}')
        elif not row['ns'] > 0 or abs(row['gbps'] - row['bytes'] * 8 / row['ns']) > \
                0.02 * row['gbps'] + 0.01:
            problems.append(f'ns and gbps disagree: {line}')
        elif row['mean_ns'] < row['ns'] - 0.01:
            problems.append(f'a mean below the shortest: {line}')
    for impl in ('karst', 'isal', 'rte_net_crc', 'zlib', 'memcpy'):
        if impl not in seen:
            problems.append(f'no {impl}')
    perf.point('crc', problems)


WRONG = [
    ('--op polish', '--op'), ('--size 0', '--size'), ('--size 5Q', '--size'),
    ('--mtu 1500', '--mtu'), ('--qps 0', '--qps'), ('--lcores 3', '--lcores'),
    ('--loss 2', '--loss'), ('--transport rd', '--transport'), ('--duration never', '--duration'),
    ('--bogus', '--bogus'), ('--size', '--size'), ('bogus', 'bogus'),
    ('--transport ud --op write', 'write'), ('--transport uc --op read', 'read'),
    ('--op cas --size 16', '16'), ('crc --size 0', '--size'), ('crc --set ram', '--set'),
]


def wrong(perf):
    """Exit status 2, and a message that says what is wrong, where, and what is allowed."""
    for args, word in WRONG:
        run = perf.run(args.split())
        problems = []
        if run.returncode != 2:
            problems.append(f'exit status {run.returncode}')
        if word not in run.stderr:
            problems.append(f'"{word}" is not in: {run.stderr}')
        if run.stdout:
            problems.append(f'on stdout: {run.stdout}')
        perf.point(f'refused: {args}', problems)


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    perf = Perf(argv[1])
    for part in (operations, shapes, losses, latencies, other_ports, table, crc, wrong):
        part(perf)
    return perf.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
