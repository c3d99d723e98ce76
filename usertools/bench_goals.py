# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Figures with goals that karst should reach: ratios of two things that are measured together.

Run by bench.py.  Nothing here is a test: a figure that misses its goal is marked.
"""
import json
import os
import subprocess
import sys
import time

from bench_bed import ADDRESS, FIO_DEPTH, UCX_RC, Daemon, Pair, Programs, fio_once, timed_pair
from bench_smc import smc

BULK = '--size 64K --mtu 4096 --working-set 64M'
LOSSES = [f'1/{1 << shift}' for shift in range(14, 5, -1)]


class Bench:
    """Runs karst-perf and collects rows of the table."""

    def __init__(self, perf, seconds, runs):
        self.perf = perf
        self.seconds = seconds
        self.runs = runs
        self.rows = []
        self.failed = 0
        self.began = time.monotonic()

    def run(self, args, timed=True):
        """JSON objects of one command; [] if it failed."""
        words = args.split() + ['--json']
        if timed:
            words += ['--duration', str(self.seconds)]
        print(f'[{time.monotonic() - self.began:5.0f} s] karst-perf {" ".join(words)}',
              file=sys.stderr, flush=True)
        run = subprocess.run([self.perf, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, check=False)
        if run.returncode != 0:
            print(f'karst-perf: exit status {run.returncode}: {run.stderr[-600:]}',
                  file=sys.stderr)
            self.failed += 1
            return []
        return [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{')]

    def median(self, args, value):
        """The median run of a command with one measurement, by @value of it; None if it failed."""
        found = [got[0] for got in (self.run(args) for _ in range(self.runs)) if got]
        found.sort(key=value)
        return found[len(found) // 2] if found else None

    def row(self, what, figure, goal, unit='', at_most=False, stretch=None, note=''):
        """One line: @figure measured, @goal to reach."""
        if figure is None:
            self.rows.append((what, 'not measured', '', 'FAIL', note))
            return
        met = figure <= goal if at_most else figure >= goal
        wanted = ('<= ' if at_most else '>= ') + f'{goal:g}{unit}'
        if stretch is not None:
            wanted += f' ({stretch:g})'
        self.rows.append((what, f'{figure:.2f}{unit}', wanted, 'yes' if met else 'NO', note))

    def info(self, what, figure, note=''):
        self.rows.append((what, figure, '', '', note))

    def show(self):
        widths = [max(len(row[i]) for row in self.rows) for i in range(4)]
        print(f'{"figure":{widths[0]}}  {"measured":>{widths[1]}}  {"goal":{widths[2]}}  met')
        for what, figure, goal, met, note in self.rows:
            print(f'{what:{widths[0]}}  {figure:>{widths[1]}}  {goal:{widths[2]}}  {met:4} {note}'
                  .rstrip())


def ratio(a, b):
    return a / b if a is not None and b else None


def get(run, key):
    return run[key] if run else None


def bulk(bench):
    """Throughput of large messages against memcpy and a bare ring."""
    write = bench.median(f'--op write {BULK}', lambda r: r['memcpy_ratio'])
    bench.row('64 KiB WRITE, 1 lcore: share of memcpy', get(write, 'memcpy_ratio'), 0.5,
              stretch=0.65, note=gbps(write))
    for op in ('read', 'send'):
        other = bench.median(f'--op {op} {BULK}', lambda r: r['memcpy_ratio'])
        bench.row(f'64 KiB {op.upper()}: share of WRITE',
                  ratio(get(other, 'memcpy_ratio'), get(write, 'memcpy_ratio')), 0.9,
                  note=gbps(other))

    def slower(r):
        return r['gbps'] / min(r['memcpy_gbps'], r['ring_copy_gbps'])

    two = bench.median(f'--op write {BULK} --lcores 2', slower)
    bench.row('64 KiB WRITE, 2 lcores: share of memcpy or ring copy', slower(two) if two else None,
              0.8, stretch=0.95, note=gbps(two))


def gbps(run):
    if not run:
        return ''
    ring = f', ring copy {run["ring_copy_gbps"]:.0f}' if run.get('ring_copy_gbps') else ''
    return f'{run["gbps"]:.1f} Gb/s of memcpy {run["memcpy_gbps"]:.0f}{ring}'


def small(bench):
    """Message rate and latency."""
    one = bench.median('--op write --size 64', lambda r: r['mops'])
    two = bench.median('--op write --size 64 --lcores 2', lambda r: r['mops'])
    bench.row('64 B WRITE, 1 lcore', get(one, 'mops'), 4, unit=' M/s', stretch=7,
              note=f'{one["cycles_per_message"]:.0f} cycles a message' if one else '')
    bench.row('64 B WRITE, 2 lcores: times 1 lcore', ratio(get(two, 'mops'), get(one, 'mops')),
              1.6, note=f'{two["mops"]:.2f} M/s' if two else '')
    ping = bench.median('--op write --size 64 --lcores 2 --lat',
                        lambda r: r['latency_ns']['p50'] / r['ring_rtt_ns'])
    bench.row('64 B ping-pong, 2 lcores: p50 in ring round trips',
              ratio(ping['latency_ns']['p50'], ping['ring_rtt_ns']) if ping else None, 4,
              at_most=True,
              note=f'{ping["latency_ns"]["p50"]:.0f} ns of {ping["ring_rtt_ns"]:.0f}'
              if ping else '')
    many = bench.median('--op write --size 64 --qps 100000', lambda r: r['mops'])
    bench.row('100,000 QPs in turn: share of 1 QP', ratio(get(many, 'mops'), get(one, 'mops')),
              0.5, note=f'{many["mops"]:.2f} M/s' if many else '')
    alone = bench.median('--op write --size 64 --batch 1', lambda r: r['mops'])
    turn = bench.median('--op write --size 64 --qps 100000 --batch 1', lambda r: r['mops'])
    bench.info('the same, one message at each turn',
               f'{ratio(turn["mops"], alone["mops"]):.2f}' if turn and alone else 'not measured',
               f'{turn["mops"]:.2f} M/s of {alone["mops"]:.2f}' if turn and alone else '')
    bench.row('memory of an idle QP without its rings', get(many, 'qp_bytes'), 2048,
              unit=' bytes', at_most=True)


def loss(bench):
    """Goodput with packets lost, every byte verified."""
    for op in ('write', 'send', 'read'):
        run = bench.run(f'--op {op} --size 64K --mtu 4096 --depth 64 --loss 0.01 --verify')
        bad = sum(r['verify_errors'] + r['errors'] for r in run) if run else None
        bench.row(f'64 KiB {op.upper()}, 1% loss: wrong bytes and errors', bad, 0, at_most=True,
                  note=f'{run[0]["gbps"]:.1f} Gb/s, {run[0]["retransmits"]} packets sent again'
                  if run else '')
    for part in LOSSES:
        run = bench.run(f'--op write --size 64K --mtu 4096 --depth 64 --verify '
                        f'--loss {1 / int(part[2:]):.8f}')
        if run:
            bench.info(f'64 KiB WRITE, loss {part}, verified', f'{run[0]["gbps"]:.1f} Gb/s',
                       f'{run[0]["retransmits"]} packets sent again')


def fastest(rows, size, where, match):
    """ns of the fastest implementation that @match accepts."""
    found = [r['ns'] for r in rows if r['bytes'] == size and r['set'] == where
             and match(r['impl'])]
    return min(found) if found else None


def crc(bench):
    """The CRC kernels against the libraries."""
    rows = bench.run('crc', timed=False)
    if not rows:
        bench.row('CRC', None, 0)
        return

    def ours(name):
        return name.startswith('karst-') and not name.endswith('+copy')

    def theirs(name):
        return not name.startswith('karst-') and '+' not in name and name != 'memcpy'

    def fused(name):
        return name.startswith('karst-') and name.endswith('+copy')

    sizes = sorted({r['bytes'] for r in rows})
    for where in dict.fromkeys(r['set'] for r in rows):
        worst = max((fastest(rows, size, where, ours) / fastest(rows, size, where, theirs), size)
                    for size in sizes)
        bench.row(f'CRC, {where}: time against the best other, worst size', worst[0], 1,
                  at_most=True, note=f'at {worst[1]} bytes')

    def isal(size):
        return fastest(rows, size, 'cache', lambda name: name == 'isal')

    bench.row('CRC of 4 KiB in cache: times as fast as ISA-L',
              ratio(isal(4096), fastest(rows, 4096, 'cache', ours)), 1.25)
    bench.row('CRC of 64 B in cache: time against ISA-L',
              ratio(fastest(rows, 64, 'cache', ours), isal(64)), 0.5, at_most=True)
    for size in sizes:
        bench.row(f'copy and CRC of {size} B over 512 MiB: time against memcpy',
                  ratio(fastest(rows, size, '512M', fused),
                        fastest(rows, size, '512M', lambda name: name == 'memcpy')),
                  1.1, at_most=True)


def attached(bench):
    """A daemon's lcore and a client's thread, against an embedded engine."""
    shares, mallocs, rates = [], [], []
    note = ''
    for _ in range(bench.runs):
        own = bench.run(f'--op write {BULK}')
        alloc = bench.run(f'--daemon --op write {BULK}')
        heap = bench.run(f'--daemon --op write {BULK} --memory malloc')
        if own and alloc and heap:
            shares.append(alloc[0]['gbps'] / own[0]['gbps'])
            mallocs.append(heap[0]['gbps'] / alloc[0]['gbps'])
            note = f'{alloc[0]["gbps"]:.1f} Gb/s of embedded {own[0]["gbps"]:.1f}, ' \
                   f'memcpy {alloc[0]["memcpy_gbps"]:.0f}'
            rates.append(heap[0]['memory_path'])
    bench.row('64 KiB WRITE over a daemon: share of embedded', middle(shares), 0.85, note=note)
    bench.row('the same from malloc(): share of karst_alloc()', middle(mallocs), 0.9,
              note=f'memory {rates[-1]}' if rates else '')
    small_one = bench.median('--daemon --op write --size 64', lambda r: r['mops'])
    bench.row('64 B WRITE over a daemon', get(small_one, 'mops'), 2.5, unit=' M/s', stretch=4)
    for op in ('write', 'read'):
        ping = bench.run(f'--daemon --op {op} --size 64 --lat')
        if ping:
            bench.info(f'64 B {op.upper()} ping-pong over a daemon: p50',
                       f'{ping[0]["latency_ns"]["p50"]:.0f} ns',
                       f'bare ring round trip {ping[0]["ring_rtt_ns"]:.0f} ns')


def connect(bench):
    """Connections made and ended through one engine."""
    run = bench.run('--op connect --iters 100000 --conns 64', timed=False)
    bench.row('100,000 connections with queue pairs: a second', get(run and run[0], 'per_second'),
              5000, note=f'connect p50 {run[0]["connect_ns"]["p50"] / 1e3:.0f} us, disconnect '
              f'{run[0]["disconnect_ns"]["p50"] / 1e3:.0f} us, 64 at a time' if run else '')
    bench.row('the same: lost, wrong, or in error',
              sum(run[0][key] for key in ('lost', 'verify_errors', 'errors')) if run else None, 0,
              at_most=True)
    for what, args in (('without queue pairs', '--no-qps'), ('over a daemon', '--daemon'),
                       ('over a daemon, without queue pairs', '--daemon --no-qps'),
                       ('one at a time, over a daemon', '--daemon --conns 1')):
        run = bench.median(f'--op connect {args}', lambda r: r['per_second'])
        bench.info(f'connections {what}: a second',
                   f'{run["per_second"]:.0f}' if run else 'not measured',
                   f'connect p50 {run["connect_ns"]["p50"] / 1e3:.0f} us, disconnect '
                   f'{run["disconnect_ns"]["p50"] / 1e3:.0f} us' if run else '')


def middle(values):
    return sorted(values)[len(values) // 2] if values else None


def clients(bench):
    """Many programs on one engine."""
    count, qps = 16, 1000
    engine = f'idle = yield\nmax_qps = {2 * count * qps + 1024}\n'
    with Daemon(bench.perf, engine) as daemon:
        began = time.monotonic()
        pairs = [Pair(bench, daemon, f'--op write --size 4096 --qps {qps} --depth 2 --batch 1 '
                      f'--no-baselines --duration {max(2, bench.seconds)}') for _ in range(count)]
        ready = [p.connected() for p in pairs]
        seconds = time.monotonic() - began
        for p in pairs:
            p.begin()
        rates = [r['mops'] if r else 0 for r in [p.result() for p in pairs]]
    whole = all(ready) and all(rates)
    bench.failed += not whole
    bench.row(f'{count} clients with {qps} QPs each: connected in', seconds if whole else None, 10,
              unit=' s', at_most=True, note='processes started, 4 MiB of buffers each, peers too')
    jain = sum(rates) ** 2 / (count * sum(r * r for r in rates)) if whole else None
    bench.row("the same, fairness: Jain's index", jain, 1 / 1.04,
              note=f'{min(rates):.4f} to {max(rates):.4f} M/s each' if whole else '')


def idle(bench):
    """The cost of idle engines and of idle programs."""
    with Daemon(bench.perf, 'idle = sleep\n') as daemon:
        time.sleep(1)
        before, began = daemon.cpu_seconds(), time.monotonic()
        time.sleep(max(5, bench.seconds))
        share = (daemon.cpu_seconds() - before) / (time.monotonic() - began)
    bench.row('an idle engine, mode sleep: share of a core', 100 * share, 1, unit=' %',
              at_most=True)
    ratios = []
    with Daemon(bench.perf, 'idle = yield\n') as daemon:
        args = f'--op write --size 64 --no-baselines --duration {bench.seconds}'
        for _ in range(bench.runs):
            alone = timed_pair(bench, daemon, args)
            idlers = [Pair(bench, daemon, args) for _ in range(16)]
            for p in idlers:
                p.connected()
            among = timed_pair(bench, daemon, args)
            for p in idlers:
                p.client.terminate()
                p.client.wait()
                p.server.wait()
            if alone and among:
                ratios.append(among['mops'] / alone['mops'])
    bench.info('64 B WRITE beside 32 idle clients: share of alone',
               f'{middle(ratios):.2f}' if ratios else 'not measured')


# --- unmodified programs ---

def verbs(bench):
    """perftest compared with karst-perf on the same daemon; UCX and libfabric compared with kernel TCP.

    perftest sends one buffer again and again, which stays in the cache; karst-perf does not.
    """
    with Daemon(bench.perf, ports=f'addresses = {ADDRESS}/24\n') as daemon:
        p = Programs(bench, daemon)
        few, many = max(1, int(30000 * bench.seconds)), max(1, int(3000000 * bench.seconds))
        for what, command, args, column, value, goal in (
                ('64 KiB WRITE', f'ib_write_bw -s 65536 -n {few} --report_gbits',
                 '--op write --size 64K', 3, lambda r: r['gbps'], 0.9),
                ('2 B WRITE', f'ib_write_bw -s 2 -n {many}', '--op write --size 2', 4,
                 lambda r: r['mops'], 0.8)):
            shares, note = [], ''
            for _ in range(bench.runs):
                ours = timed_pair(bench, daemon,
                                  f'{args} --no-baselines --duration {bench.seconds}')
                theirs = p.perftest(command)
                if ours and len(theirs) > column:
                    shares.append(float(theirs[column]) / value(ours))
                    note = f'{float(theirs[column]):.2f} of {value(ours):.2f} ' \
                           f'{"Gb/s" if column == 3 else "M/s"}'
            bench.row(f'{what}: {command.split()[0]} of karst-perf --connect', middle(shares),
                      goal, note=note)
        for name, op in (('ib_write_lat', 'write'), ('ib_send_lat', 'send')):
            shares, note = [], ''
            for _ in range(bench.runs):
                ours = timed_pair(bench, daemon, f'--op {op} --size 2 --lat --no-baselines '
                                  f'--duration {bench.seconds}')
                theirs = p.perftest(f'{name} -s 2 -n {few}')
                if ours and len(theirs) > 4:
                    # theirs is half of a round trip
                    trip = 2000 * float(theirs[4])
                    shares.append(trip / ours['latency_ns']['p50'])
                    note = f'round trips of {trip:.0f} and {ours["latency_ns"]["p50"]:.0f} ns'
            bench.row(f'2 B {op.upper()} round trip: {name} of karst-perf --connect',
                      middle(shares), 1.15, at_most=True, note=note)
        against_tcp(bench, p)


def against_tcp(bench, p):
    for what, args, column, unit in (
            ('8 B latency', '-t tag_lat -s 8 -n 20000', 2, 'us'),
            ('64 KiB bandwidth', '-t tag_bw -s 65536 -n 20000', 5, 'MB/s')):
        ours, tcp = p.ucx(UCX_RC, args, True), p.ucx('tcp', args, False)
        ahead(bench, f'ucx_perftest {what} over that of TCP', ours and ours[column],
              tcp and tcp[column], unit)
    if os.geteuid() != 0:
        bench.info('fi_pingpong', 'not measured', 'needs a network namespace, and so root')
        return
    for kind in ('msg', 'rdm'):
        provider = {'msg': ('verbs', 'tcp'), 'rdm': ('verbs;ofi_rxm', 'tcp;ofi_rxm')}[kind]
        small, small_tcp = (p.fabric(provider[i], kind, 64, i == 0) for i in (0, 1))
        large, large_tcp = (p.fabric(provider[i], kind, 65536, i == 0) for i in (0, 1))
        ahead(bench, f'fi_pingpong {kind} 64 B latency over that of TCP', small and small[1],
              small_tcp and small_tcp[1], 'us')
        ahead(bench, f'fi_pingpong {kind} 64 KiB bandwidth over that of TCP', large and large[0],
              large_tcp and large_tcp[0], 'MB/s')


def fio(bench):
    """fio's rdma engine over a daemon, compared with its net engine over the kernel's TCP on loopback.

    Measured with page-aligned buffers, as storage programs use, and with the buffers that fio gets from
    malloc(), each of which shares its first and last page with another.
    """
    with Daemon(bench.perf, ports=f'addresses = {ADDRESS}/24\n') as daemon:
        p = Programs(bench, daemon)
        for size in FIO_DEPTH:
            for align in 4096, 0:
                shares, note = [], ''
                for _ in range(bench.runs):
                    ours, tcp = (fio_once(bench, p, size, karst, align)
                                 for karst in (True, False))
                    if ours and tcp:
                        shares.append(ours[0] / tcp[0])
                        note = f'{ours[0]:.0f} and {tcp[0]:.0f} MiB/s, {ours[1]:.0f} and ' \
                               f'{tcp[1]:.0f} blocks a second'
                bench.row(f'fio {size // 1024} KiB{"" if align else ", unaligned"}, rdma over '
                          'karst: times net over TCP', middle(shares), 3, note=note)


def ahead(bench, what, ours, tcp, unit):
    """Rows that compare bandwidth or time with those of the kernel."""
    bench.row(what, ratio(ours, tcp), 1, at_most=unit == 'us',
              note=f'{ours:.2f} and {tcp:.2f} {unit}' if ours and tcp else '')


PARTS = {part.__name__: part for part in (bulk, small, loss, crc, attached, clients, idle, connect, verbs, fio, smc)}
