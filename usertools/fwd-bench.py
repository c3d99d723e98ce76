#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What karst-fwd forwards and checks, beside dpdk-testpmd on the same ports, and how exact its rates are.

  fwd-bench.py KARST-FWD KARST-PERF [--seconds S] [--runs N] [--json]

  io      karst-fwd's io forwarding, of testpmd's; and the same of mac forwarding.  Frames are as long as
          RoCEv2 frames of 64 bytes of payload
  check   roce-check at 64 bytes of payload, of testpmd's mac forwarding; and at an MTU of 4096, bytes a
          second, of the CRC kernel's own rate on buffers of as many bytes in the cache (karst-perf crc)
  gen     the rate of the generator, of the one that was set, from 1 Mbps on, and as fast as it goes

Ports are net_ring, whose packets go round by pointer: there is no cheaper one, so the ratios are the worst.
All are run in turn, and the ratios are of medians.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

from bench_prompt import HANG_S, Prompted

EAL = ['--no-huge', '-m', '256', '--no-pci', '--no-telemetry', '--no-shconf',
       '--log-level=*:error', '--vdev', 'net_ring0']
RATES = ('1Mbps', '10Mbps', '100Mbps', '1Gbps', '10Gbps', 'max')


class Program(Prompted):
    def __init__(self, program, words):
        cpus = sorted(os.sched_getaffinity(0))
        super().__init__([program, f'--lcores=0@{cpus[0]},1@{cpus[-1]}', *EAL, '--', '-i',
                          '--port-topology=loop', '--total-num-mbufs=4096', '--mbuf-size=4352', *words],
                         'testpmd> ' if 'testpmd' in program else 'karst-fwd> ')

    def received(self):
        """Packets so far, by all streams."""
        since = len(self.said)
        self.command('show fwd stats all', 'Accumulated forward statistics')
        at = self.said.index('Accumulated', since)
        self.wait('TX-packets', at)
        return int(re.search(r'RX-packets: (\d+)', self.said[at:]).group(1))

    def rate(self, bursts, seconds):
        """Packets a second, once @bursts go round."""
        since = len(self.said)
        self.command(f'start tx_first {bursts}', 'packet forwarding')
        self.wait(self.prompt, self.said.index('packet forwarding', since))
        before, began = self.received(), time.monotonic()
        time.sleep(seconds)
        found = self.received()
        return (found - before) / (time.monotonic() - began)


def measure(program, words, bursts, seconds):
    p = Program(program, words)
    try:
        return p.rate(bursts, seconds)
    finally:
        p.stop()


def generated(program, rate, seconds):
    """(bits a second, jitter) of the generator."""
    size = 1000 if rate.endswith('Mbps') else 4096
    p = Program(program, ['--forward-mode=gen', f'--gen-rate={rate}',
                          f'--gen-template=size={size} mtu=4096'])
    try:
        p.command('start', 'streams=1')
        time.sleep(seconds)
        said = p.command('show gen json', ']}\n')
        return json.loads(re.search(r'\{"rate".*\}', said).group(0))['streams'][0]
    finally:
        p.stop()


def kernel_rate(perf, seconds):
    """Bytes a second of karst's fastest kernel, over 4 KiB in the cache."""
    done = subprocess.run([perf, 'crc', '--json', '--size', '4096', '--set', 'cache', '--time',
                           str(seconds)], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=HANG_S)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return max(one['gbps'] for one in found if one['impl'].startswith('karst-') and
               '+' not in one['impl']) * 1e9 / 8


def bits(text):
    value, unit = re.match(r'([\d.]+)([MG])bps', text).groups()
    return float(value) * {'M': 1e6, 'G': 1e9}[unit]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('karst_fwd', help='the program')
    parser.add_argument('karst_perf', help='for the rate of the CRC kernel')
    parser.add_argument('--seconds', type=float, default=1, help='of each measurement [1]')
    parser.add_argument('--runs', type=int, default=3, help='of each [3]')
    parser.add_argument('--json', action='store_true', help='an object a line')
    args = parser.parse_args()
    fwd, pmd = args.karst_fwd, 'dpdk-testpmd'
    small = ['--tx-udp=49152,4791', '--txpkts=126', '--no-flush-rx']
    template = '--gen-template=size=64 op=send flows=16'
    large = '--gen-template=size=4096 mtu=4096 op=send flows=16'
    variants = {
        'testpmd io': (pmd, ['--forward-mode=io', *small]),
        'karst-fwd io': (fwd, ['--forward-mode=io', template]),
        'testpmd mac': (pmd, ['--forward-mode=mac', *small]),
        'karst-fwd mac': (fwd, ['--forward-mode=mac', template]),
        'roce-check 64': (fwd, ['--forward-mode=roce-check', template]),
        'roce-check 4096': (fwd, ['--forward-mode=roce-check', large]),
    }
    rates = {name: [] for name in [*variants, 'kernel']}
    for _ in range(args.runs):
        for name, (program, words) in variants.items():
            # long frames of more bursts would not stay in the cache that the kernel is measured in
            rates[name].append(measure(program, words, 1 if '4096' in name else 8, args.seconds))
        rates['kernel'].append(kernel_rate(args.karst_perf, args.seconds))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    results = [
        ('io', 'karst-fwd io', 'testpmd io', medians['karst-fwd io'] / medians['testpmd io'], 0.95),
        ('mac', 'karst-fwd mac', 'testpmd mac', medians['karst-fwd mac'] / medians['testpmd mac'],
         None),
        ('check 64', 'roce-check 64', 'testpmd mac',
         medians['roce-check 64'] / medians['testpmd mac'], 0.6),
    ]
    for name, of, to, ratio, goal in results:
        show(args.json, {'figure': name, 'packets_per_s': round(medians[of]),
                         'beside_per_s': round(medians[to]), 'ratio': round(ratio, 3), 'goal': goal},
             f'{name:9} {medians[of] / 1e6:8.2f} Mpps of {medians[to] / 1e6:8.2f}  {ratio:5.2f}' +
             (f'  goal {goal}' if goal else ''))
    kernel = medians['kernel']
    frame = (4096 + 54 + 4) * medians['roce-check 4096']
    show(args.json, {'figure': 'check 4096', 'bytes_per_s': round(frame),
                     'beside_per_s': round(kernel), 'ratio': round(frame / kernel, 3), 'goal': 0.9},
         f'check 4096 {frame / 1e9:7.2f} GB/s of {kernel / 1e9:7.2f}  {frame / kernel:5.2f}  goal 0.9')
    for rate in RATES:
        found = generated(fwd, rate, max(args.seconds, 2))
        ratio = None if rate == 'max' else found['bps'] / bits(rate)
        jitter = found['jitter']
        show(args.json, {'figure': f'gen {rate}', 'bits_per_s': found['bps'], 'ratio': ratio,
                         'jitter': jitter},
             f'gen {rate:8} {found["bps"] / 1e6:10.2f} Mbps' +
             (f'  {ratio:6.4f}  goal 0.99 to 1.01; late by {jitter.get("p50_ns")} ns in the '
              f'median, {jitter.get("p99_ns")} at 99 %' if ratio else ''))
    return 0


def show(as_json, data, text):
    print(json.dumps(data) if as_json else text, flush=True)


if __name__ == '__main__':
    sys.exit(main())
