# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-fwd and dpdk-testpmd over the same ports, for the benches: forwarding, checking and generating.

The ports are net_ring, which passes packets by pointer: no port has a lower cost.
"""
import json
import os
import re
import time

from bench_prompt import HANG_S, Prompted

EAL = ['--no-huge', '-m', '256', '--no-pci', '--no-telemetry', '--no-shconf',
       '--log-level=*:error', '--vdev', 'net_ring0']
SMALL = 'size=64 op=send flows=16'
LARGE = 'size=4096 mtu=4096 op=send flows=16'
FRAME_LARGE = 4096 + 54 + 4  # bytes


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
        """Packets a second, with @bursts in circulation."""
        since = len(self.said)
        self.command(f'start tx_first {bursts}', 'packet forwarding')
        self.wait(self.prompt, self.said.index('packet forwarding', since))
        before, began = self.received(), time.monotonic()
        time.sleep(seconds)
        found = self.received()
        while found == before and time.monotonic() - began < HANG_S:
            found = self.received()  # the lcore has not run yet
        return (found - before) / (time.monotonic() - began)


def measure(program, words, bursts, seconds):
    p = Program(program, words)
    try:
        return p.rate(bursts, seconds)
    finally:
        p.stop()


def forwarded(fwd, mode, seconds, large=False):
    """Packets a second of karst-fwd's mode."""
    # more bursts of long frames would not fit the cache, in which the CRC kernel is measured
    return measure(fwd, [f'--forward-mode={mode}', f'--gen-template={LARGE if large else SMALL}'],
                   1 if large else 8, seconds)


def of_testpmd(mode, seconds):
    """The same of dpdk-testpmd, with short frames."""
    return measure('dpdk-testpmd', [f'--forward-mode={mode}', '--tx-udp=49152,4791', '--txpkts=126',
                                    '--no-flush-rx'], 8, seconds)


def generated(program, rate, seconds):
    """(bits a second, jitter) of the generator."""
    size = 1000 if rate.endswith('Mbps') else 4096
    p = Program(program, ['--forward-mode=gen', f'--gen-rate={rate}',
                          f'--gen-template=size={size} mtu=4096'])
    try:
        p.command('start', 'streams=1')
        time.sleep(seconds)
        end = time.monotonic() + HANG_S
        while True:
            said = p.command('show gen json', ']}\n')
            found = json.loads(re.search(r'\{"rate".*\}', said).group(0))['streams'][0]
            if found['bps'] > 0 or time.monotonic() > end:  # the lcore has run at least
                return found
    finally:
        p.stop()
