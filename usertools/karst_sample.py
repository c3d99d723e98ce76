# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Two samples of an engine's counters, and the changes between them: for karst-top and the exporter's page."""
import time

# Sort keys of queue pairs: negative, so that the busiest come first.
SORTS = {
    'bytes': lambda rates: -(rates['tx_bytes'] + rates['rx_bytes']),
    'packets': lambda rates: -(rates['tx_packets'] + rates['rx_packets']),
    'resent': lambda rates: -rates['retransmits'],
    'number': lambda rates: 0,
}
QP_RATES = ('tx_packets', 'tx_bytes', 'rx_packets', 'rx_bytes', 'retransmits', 'timeouts')


class Sample:
    """The counters of an engine at one time."""

    def __init__(self, engine):
        self.time = time.monotonic()
        self.info = engine.ask('engine')
        self.ports = engine.rows('ports')
        self.lcores = engine.rows('lcores')
        self.counters = engine.rows('counters')
        self.drops = engine.rows('drops')
        self.memory = engine.ask('memory')
        self.clients = engine.rows('clients')
        self.qps = {row['qpn']: row for row in engine.table('qps')}

    def total(self, name):
        return sum(row[name] for row in self.counters.values())


class Change:
    """The changes between two samples of an engine."""

    def __init__(self, before, after):
        self.before = before
        self.after = after
        self.seconds = max(after.time - before.time, 1e-6)

    def rate(self, table, key, name):
        """The rate per second; a counter that is new began at 0."""
        old = getattr(self.before, table).get(key, {}).get(name, 0)
        return max(getattr(self.after, table)[key].get(name, 0) - old, 0) / self.seconds

    def total(self, name):
        return max(self.after.total(name) - self.before.total(name), 0) / self.seconds

    def lcore(self, number):
        """(frames a second, cycles for each, share of idle time) of an lcore."""
        frames = self.rate('lcores', number, 'rx_frames') + self.rate('lcores', number, 'tx_frames')
        cycles = self.rate('lcores', number, 'cycles')
        busy = self.rate('lcores', number, 'busy_cycles')
        # an lcore that has slept the whole time has not updated its counters
        idle = 1 - busy / cycles if cycles > 0 else 1.0
        return frames, busy / frames if frames > 0 else None, idle

    def drops(self):
        """[(per second, total, reason)] of all reasons with drops, the largest first."""
        found = []
        for reason in next(iter(self.after.drops.values()), {}):
            now = sum(row[reason] for row in self.after.drops.values())
            old = sum(row[reason] for row in self.before.drops.values())
            if now:
                found.append((max(now - old, 0) / self.seconds, now, reason))
        return sorted(found, reverse=True)

    def busiest(self, sort):
        """[(row, rates)] of queue pairs, the busiest first."""
        found = [(row, {name: self.rate('qps', qpn, name) for name in QP_RATES})
                 for qpn, row in self.after.qps.items()]
        return sorted(found, key=lambda it: (SORTS[sort](it[1]), it[0]['qpn']))
