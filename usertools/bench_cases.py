# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The cases of the performance record, and how one of them is run once.

A case is a figure of a command.  Cases of one command share its run, so that figures that are compared, such
as those of karst and of the kernel's TCP, are measured at the same time.
"""
import json
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from bench_bed import Daemon, Programs
from bench_fwd import FRAME_LARGE, forwarded, generated, of_testpmd

ATTACHED = '--daemon --no-baselines'
HANG_S = 300


class Case(NamedTuple):
    name: str
    group: str     # cases that karst-plot draws together
    command: str   # of karst-perf, without --duration and --json; "verbs: ..." and "fwd: ..." are other programs'
    figure: str    # which figure of its output, see FIGURES
    unit: str
    better: str    # higher or lower
    x: dict        # the parameters that vary in the group


def size_word(size):
    for shift, unit in ((20, 'M'), (10, 'K')):
        if size >> shift:
            return f'{size >> shift}{unit}'
    return str(size)


def throughput():
    for size in (64, 1024, 8192, 65536):
        word = size_word(size)
        for mode, words in (('embedded', '--no-baselines'), ('attached', ATTACHED)):
            for op in ('write', 'read', 'send'):
                tcp = ' --compare tcp' if mode == 'attached' and op == 'write' else ''
                command = f'{words} --op {op} --size {word}{tcp}'
                x = {'size': size, 'op': op, 'mode': mode}
                yield Case(f'{mode} {op} {word}', 'throughput', command, 'gbps', 'Gb/s', 'higher', x)
                if tcp:
                    yield Case(f'kernel TCP {word}', 'throughput', command, 'tcp_gbps', 'Gb/s', 'higher',
                               {'size': size, 'op': 'tcp', 'mode': 'kernel'})
    for op in ('write', 'read', 'send'):
        yield Case(f'attached {op} 64K from malloc', 'memory', f'{ATTACHED} --op {op} --size 64K --memory malloc',
                   'gbps', 'Gb/s', 'higher', {'op': op})


def latency():
    for mode, words in (('embedded', '--no-baselines'), ('attached', ATTACHED)):
        for op in ('write', 'read', 'send'):
            tcp = ' --compare tcp' if mode == 'attached' and op == 'write' else ''
            command = f'{words} --op {op} --size 64 --depth 1 --lat{tcp}'
            yield Case(f'{mode} {op} 64 round trip', 'latency', command, 'p50', 'ns', 'lower', {'op': op, 'mode': mode})
            if tcp:
                yield Case('kernel TCP 64 round trip', 'latency', command, 'tcp_p50', 'ns', 'lower',
                           {'op': 'tcp', 'mode': 'kernel'})
    for depth in (1, 8, 64, 256):
        yield Case(f'attached write 4K depth {depth} under load', 'load',
                   f'{ATTACHED} --op write --size 4K --batch 1 --depth {depth}', 'p50', 'ns', 'lower', {'depth': depth})


def scaling():
    for qps in (1, 10, 100, 1000, 10000, 100000):
        yield Case(f'embedded write 64 over {qps} queue pairs', 'queue pairs',
                   f'--no-baselines --op write --size 64 --qps {qps}', 'mops', 'M/s', 'higher', {'qps': qps})
    for part in (0, 16384, 4096, 1024, 256, 64):
        loss = f'{1 / part:.8f}' if part else '0'
        yield Case(f'embedded write 64K loss {f"1/{part}" if part else 0}', 'loss',
                   f'--no-baselines --op write --size 64K --verify --loss {loss}', 'gbps', 'Gb/s', 'higher',
                   {'loss': float(loss)})


def others():
    yield Case('connections embedded', 'connections', '--op connect', 'per_second', '/s', 'higher', {'mode': 'embedded'})
    yield Case('connections attached', 'connections', '--daemon --op connect', 'per_second', '/s', 'higher',
               {'mode': 'attached'})
    for size in (64, 4096):
        for what, figure in (('CRC', 'crc'), ('CRC and copy', 'crc_copy')):
            yield Case(f'{what} {size_word(size)} in cache', 'crc', f'crc --set cache --size {size}', figure,
                       'Gb/s', 'higher', {'size': size})
    yield Case('ib_write_bw 64K', 'programs', 'verbs: ib_write_bw -s 65536 -n 5000 --report_gbits', 'word 3', 'Gb/s',
               'higher', {})
    yield Case('ib_write_lat 2', 'programs', 'verbs: ib_write_lat -s 2 -n 5000', 'word 4', 'us', 'lower', {})
    yield Case('ib_send_lat 2', 'programs', 'verbs: ib_send_lat -s 2 -n 5000', 'word 4', 'us', 'lower', {})


def forwarding():
    for mode in ('io', 'mac', 'roce-check'):
        yield Case(f'karst-fwd {mode} 64', 'forwarding', f'fwd: {mode} 64', 'mops', 'M/s', 'higher', {'mode': mode, 'size': 64})
    for mode in ('roce-check', 'gen'):
        yield Case(f'karst-fwd {mode} 4K', 'forwarding', f'fwd: {mode} 4K', 'gbps', 'Gb/s', 'higher', {'mode': mode, 'size': 4096})


CASES = [*throughput(), *latency(), *scaling(), *others(), *forwarding()]


# --- figures: (value, more members of the run) of the objects that a command printed ---

def percentiles(latency_ns):
    return {name: latency_ns[name] for name in ('p50', 'p99', 'p999', 'max') if name in latency_ns}


def of_perf(figure):
    def find(said):
        more = {'latency_ns': percentiles(said[0]['latency_ns'])} if 'latency_ns' in said[0] else {}
        if 'beside' in said[0]:
            more['beside'] = said[0]['beside']
        return said[0][figure], more
    return find


def of_latency(said):
    return said[0]['latency_ns']['p50'], {'latency_ns': percentiles(said[0]['latency_ns'])}


def tcp_row(said):
    return next(row for row in said if row['op'] == 'tcp')


def of_tcp(said):
    return tcp_row(said)['gbps'], {}


def of_tcp_latency(said):
    return tcp_row(said)['latency_ns']['p50'], {'latency_ns': percentiles(tcp_row(said)['latency_ns'])}


def of_crc(copies):
    """The fastest of karst's kernels, with the fastest of the others."""
    def find(said):
        ours = [row['gbps'] for row in said if row['impl'].startswith('karst-') and row['impl'].endswith('+copy') == copies]
        theirs = [row['gbps'] for row in said if not row['impl'].startswith('karst-') and row['impl'] != 'memcpy' and
                  ('+' in row['impl']) == copies]
        return max(ours), {'beside': max(theirs)} if theirs else {}
    return find


FIGURES = {'gbps': of_perf('gbps'), 'mops': of_perf('mops'), 'per_second': of_perf('per_second'), 'p50': of_latency,
           'tcp_gbps': of_tcp, 'tcp_p50': of_tcp_latency, 'crc': of_crc(False), 'crc_copy': of_crc(True)}


class Runner:
    """Runs commands of one build."""

    def __init__(self, build, seconds, began):
        self.build = build
        self.perf = os.path.join(build, 'app', 'karst-perf', 'karst-perf')
        self.seconds = seconds
        self.began = began
        self.failed = 0  # counted by Programs, too

    def cannot(self, command):
        """Why a command cannot run on this machine; None: it can."""
        if command.startswith('verbs: ') and not shutil.which(command.split()[1]):
            return f'{command.split()[1]} is not installed (perftest)'
        return None

    def perf_words(self, command):
        if command.startswith('crc '):
            return [self.perf, *command.split(), '--json', '--time', str(self.seconds)]
        return [self.perf, *command.split(), '--json', '--duration', str(self.seconds)]

    def objects(self, command):
        """The JSON objects that karst-perf printed; None if it failed."""
        try:
            run = subprocess.run(self.perf_words(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
        except subprocess.TimeoutExpired:
            print(f'karst-perf {command}: no end', file=sys.stderr)
            return None
        if run.returncode != 0:
            print(f'karst-perf {command}: exit status {run.returncode}: {run.stderr[-400:]}', file=sys.stderr)
            return None
        return [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{')]

    def forwards(self, command):
        """The same for karst-fwd, with the rate of dpdk-testpmd if that is installed."""
        fwd = os.path.join(self.build, 'app', 'karst-fwd', 'karst-fwd')
        mode, size = command.split()[1:]
        if not os.access(fwd, os.X_OK):
            print(f'{command}: no {fwd}', file=sys.stderr)
            return None
        if mode == 'gen':
            return [{'gbps': generated(fwd, 'max', self.seconds)['bps'] / 1e9}]
        rate = forwarded(fwd, mode, self.seconds, large=size == '4K')
        if size == '4K':
            return [{'gbps': rate * FRAME_LARGE * 8 / 1e9}]
        beside = {}
        if shutil.which('dpdk-testpmd'):
            beside = {'beside': of_testpmd('io' if mode == 'io' else 'mac', self.seconds) / 1e6}
        return [{'mops': rate / 1e6, **beside}]

    def program(self, command):
        """The words of the row of figures of a perftest program; None if it failed."""
        with Daemon(self.perf, ports='addresses = 192.0.2.1/24\n') as daemon:
            return Programs(self, daemon).perftest(command.removeprefix('verbs: ')) or None

    def run(self, command, figures):
        """[(value, more)] of @figures; None if the command failed or does not print one of them."""
        try:
            if command.startswith('verbs: '):
                words = self.program(command)
                return words and [(float(words[int(figure.split()[1])]), {}) for figure in figures]
            said = self.forwards(command) if command.startswith('fwd: ') else self.objects(command)
            return said and [FIGURES[figure](said) for figure in figures]
        except (KeyError, IndexError, ValueError, StopIteration) as e:
            print(f'{command}: not understood: {e!r}', file=sys.stderr)
            return None
        except RuntimeError as e:  # of a prompt that does not come
            print(f'{command}: {e}', file=sys.stderr)
            return None
