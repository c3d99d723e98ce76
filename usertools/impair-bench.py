#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What net_impair costs: rates of dpdk-testpmd over a port, and over net_impair over such a port.

  impair-bench.py LIBRTE_NET_IMPAIR [--seconds S] [--runs N] [--ports ring,pcap] [--json]

For each kind of port: the port alone; net_impair without rules; with a rule that no packet fits; and with
one that hits one packet in a million.  All are run in turn, and the medians' ratios to the port alone are
printed.  Packets are RoCEv2.

  ring  net_ring, whose packets go round by pointer: the cheapest port that there is, so the ratio is the
        worst
  pcap  net_pcap, which copies each packet of a capture once into a buffer, as a port does at least
"""
import argparse
import json
import os
import re
import statistics
import struct
import sys
import tempfile
import time

from bench_prompt import Prompted

VARIANTS = {
    'alone': None,
    'without rules': '',
    'no packet fits': '[rule a]\naction = drop\nqpn = 0xabcdef\nnth = 1\n',
    'one in a million': '[rule a]\naction = mark\nevery = 1000000\n',
}
GOALS = {'no packet fits': 0.9, 'one in a million': 0.85}
PAYLOAD = 1024


def packet(psn):
    """An RC SEND Only; its ICRC is not checked."""
    ib = struct.pack('>BBHII', 4, 0x40, 0xffff, 0x11, psn) + bytes(PAYLOAD) + bytes(4)
    ip = struct.pack('>BBHHHBBH8s', 0x45, 0, 28 + len(ib), 0, 0x4000, 64, 17, 0,
                     bytes([192, 0, 2, 1, 192, 0, 2, 2]))
    udp = struct.pack('>HHHH', 0xc000, 4791, 8 + len(ib), 0)
    return b'\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0' + ip + udp + ib


def write_capture(path):
    with open(path, 'wb') as f:
        f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for psn in range(256):
            frame = packet(psn)
            f.write(struct.pack('<IIII', 0, psn, len(frame), len(frame)) + frame)


class Testpmd(Prompted):
    def __init__(self, module, below, rules):
        vdevs = ['--vdev', below]
        if rules is not None:
            vdevs += ['--vdev', f'net_impair0,port={below.split(",")[0]}' +
                      (f',rules={rules}' if rules else '')]
        cpu = max(os.sched_getaffinity(0))
        super().__init__(['dpdk-testpmd', '-d', module, f'--lcores=0@0,1@{cpu}', '--no-huge',
                          '-m', '256', '--no-pci', '--no-telemetry', '--no-shconf', *vdevs, '--', '-i',
                          '--total-num-mbufs=4096', '--forward-mode=io', '--port-topology=loop',
                          '--no-flush-rx', '--tx-udp=49152,4791', '--txpkts=64'], 'testpmd> ')

    def rate(self, start, seconds):
        """Packets a second."""
        self.command(start, 'io packet forwarding')
        self.wait('testpmd> ', self.said.rindex('io packet forwarding'))
        self.command('clear fwd stats all', 'testpmd> ')
        began = time.monotonic()
        time.sleep(seconds)
        said = self.command('show fwd stats all', 'Accumulated forward statistics')
        lasted = time.monotonic() - began
        self.command('stop', 'Done.')
        return int(re.search(r'RX-packets: (\d+)', said).group(1)) / lasted


def measure(module, below, start, rules, seconds):
    pmd = Testpmd(module, below, rules)
    try:
        return pmd.rate(start, seconds)
    finally:
        pmd.stop()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('module', help='librte_net_impair.so')
    parser.add_argument('--seconds', type=float, default=1, help='of each measurement [1]')
    parser.add_argument('--runs', type=int, default=5, help='of each variant [5]')
    parser.add_argument('--ports', default='ring,pcap', help='kinds of ports [ring,pcap]')
    parser.add_argument('--json', action='store_true', help='an object a line')
    args = parser.parse_args()
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, 'capture')
        write_capture(capture)
        below = {'ring': ('net_ring0', 'start tx_first 8'),
                 'pcap': (f'net_pcap0,rx_pcap={capture},infinite_rx=1', 'start')}
        for kind in args.ports.split(','):
            if kind not in below:
                parser.error(f'no kind of port is called {kind}; allowed: {", ".join(below)}')
        for _ in range(args.runs):
            for kind in args.ports.split(','):
                for number, (name, text) in enumerate(VARIANTS.items()):
                    rules = text
                    if text:
                        rules = os.path.join(folder, f'rules{number}')
                        with open(rules, 'w', encoding='utf-8') as f:
                            f.write(text)
                    rates.setdefault((kind, name), []).append(
                        measure(args.module, *below[kind], rules, args.seconds))
    for (kind, name), found in rates.items():
        rate = statistics.median(found)
        ratio = rate / statistics.median(rates[(kind, 'alone')])
        if args.json:
            print(json.dumps({'port': kind, 'rules': name, 'packets_per_s': round(rate),
                              'ratio': round(ratio, 3), 'goal': GOALS.get(name)}))
        else:
            goal = f'  goal {GOALS[name]}' if name in GOALS else ''
            print(f'{kind:5} {name:17} {rate / 1e6:8.2f} Mpps  {ratio:5.2f}{goal}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
