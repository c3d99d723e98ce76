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
import re
import statistics
import subprocess
import sys

from bench_fwd import FRAME_LARGE, forwarded, generated, of_testpmd
from bench_prompt import HANG_S

RATES = ('1Mbps', '10Mbps', '100Mbps', '1Gbps', '10Gbps', 'max')


def kernel_rate(perf, seconds):
    """Bytes a second of karst's fastest kernel, over 4 KiB in the cache.

    This is the mean of its slices, not the shortest slice, which is "ns".  The packets that it is compared
    with are counted over a time in which interrupts and other programs use the processor, too.
    """
    done = subprocess.run([perf, 'crc', '--json', '--size', '4096', '--set', 'cache', '--time',
                           str(seconds)], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=HANG_S)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return 4096e9 / min(one['mean_ns'] for one in found if one['impl'].startswith('karst-') and
                        '+' not in one['impl'])


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
    fwd = args.karst_fwd
    variants = {
        'testpmd io': lambda: of_testpmd('io', args.seconds),
        'karst-fwd io': lambda: forwarded(fwd, 'io', args.seconds),
        'testpmd mac': lambda: of_testpmd('mac', args.seconds),
        'karst-fwd mac': lambda: forwarded(fwd, 'mac', args.seconds),
        'roce-check 64': lambda: forwarded(fwd, 'roce-check', args.seconds),
        'roce-check 4096': lambda: forwarded(fwd, 'roce-check', args.seconds, large=True),
        'kernel': lambda: kernel_rate(args.karst_perf, args.seconds),
    }
    rates = {name: [] for name in variants}
    for _ in range(args.runs):
        for name, rate in variants.items():
            rates[name].append(rate())
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
    frame = FRAME_LARGE * medians['roce-check 4096']
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
