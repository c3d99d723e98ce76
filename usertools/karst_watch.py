# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Engines as JSON for the exporter's page: counts, rates between two samples, and events.

However many browsers there are, an engine is sampled at most once in LOOK_S: all of them get the same
sample, and rates are between it and the previous one.  An event is a difference between two samples, so
there are events only for times with requests.  doc/observability.rst describes the members.
"""
import collections
import threading
import time

import karst_observe as observe
from karst_sample import SORTS, Change, Sample

API_VERSION = 1
LOOK_S = 0.9        # a page asks each second
FORGET_S = 60       # rates over a longer time do not show the current state
MAX_EVENTS = 200    # kept of an engine
MAX_ENGINES = 64    # remembered
MAX_CLIENTS = 200   # rows of programs in an answer
MAX_QPS = 1000      # rows of queue pairs that may be asked for
MANY = 10           # events of one kind in one sample; beyond that, their number

PORT_RATES = ('rx_packets', 'rx_bytes', 'tx_packets', 'tx_bytes', 'rx_missed', 'rx_errors',
              'rx_no_mbufs', 'tx_errors')
LCORE_RATES = ('turns', 'idle_turns', 'sleeps', 'rx_frames', 'tx_frames', 'tx_dropped', 'doorbells',
               'handoff_in', 'handoff_out')
CLIENT_RATES = ('requests', 'refused')
LCORE_WARNINGS = {
    'overdue_programs': 'failed because its memory did not come',
    'ejected_programs': 'failed because the lcore was stuck at it',
}


class NotThere(Exception):
    """No engine of that name answers."""


def some(found):
    """The first events of one kind, and how many more there were."""
    if len(found) <= MANY:
        return found
    level, text = found[-1]
    return found[:MANY] + [(level, f'{len(found) - MANY} more, the last: {text}')]


def client_name(row):
    return f"program {row['program'] or '?'}, pid {row['pid']}"


def port_events(before, after):
    for number in sorted(before.keys() | after.keys()):
        old, new = before.get(number), after.get(number)
        name = f"port {number} {(new or old)['name']}".rstrip()
        if old is None:
            yield 'note', f"{name} is there, link {new['link']}"
        elif new is None:
            yield 'warning', f'{name} has gone'
        elif old['link'] != new['link']:
            yield 'note' if new['link'] == 'up' else 'warning', f"{name}: link {new['link']}"


def client_events(before, after):
    ended = [('note', f'{client_name(before[n])} has gone') for n in before.keys() - after.keys()]
    begun = [('note', f'{client_name(after[n])} has attached') for n in after.keys() - before.keys()]
    return some(ended) + some(begun)


def qp_events(before, after):
    return some([
        ('warning', f"queue pair {qpn} of client {row['client']} is in state {row['state']}")
        for qpn, row in after.items()
        if row['state'] in ('ERR', 'SQE') and before.get(qpn, row)['state'] != row['state']])


def lcore_events(before, after):
    for number, row in after.items():
        for name, words in LCORE_WARNINGS.items():
            if row.get(name, 0) > before.get(number, {}).get(name, 0):
                yield 'warning', f'lcore {number}: a program {words}'


class Watched:
    """An engine: its last two samples and its events."""

    def __init__(self):
        self.lock = threading.Lock()
        self.before = self.after = self.wall = None
        self.look = 0
        self.helps = {}
        self.events = collections.deque(maxlen=MAX_EVENTS)
        self.dropping = {}  # drop reason: when it was last seen to grow

    def note(self, level, text):
        self.events.append({'time': round(self.wall, 3), 'level': level, 'text': text})

    def refresh(self, find):
        """Takes a sample, unless the last one is recent.  @find: returns the engine; its connection is closed
        here."""
        now = time.monotonic()
        if self.after and now - self.after.time < LOOK_S:
            return
        engine = find()
        try:
            sample = Sample(engine)
            if not self.helps:
                self.helps = {what: engine.telemetry.ask(f'/karst/help,{what}') or {}
                              for what in ('counters', 'drops')}
        finally:
            engine.telemetry.close()
        self.look += 1
        self.wall = time.time()
        self.before, self.after = self.after, sample
        if self.before is None:
            self.note('note', f"first look at engine {sample.info['name']}, pid {sample.info['pid']}")
        elif self.before.info['pid'] != sample.info['pid'] or \
                sample.info['uptime_ns'] < self.before.info['uptime_ns']:
            self.note('warning', f"the engine is a new one, pid {sample.info['pid']}")
            self.before = None
        elif sample.time - self.before.time > FORGET_S:
            self.before = None
        else:
            self.find_events(Change(self.before, sample))

    def find_events(self, change):
        before, after = change.before, change.after
        found = [*port_events(before.ports, after.ports),
                 *client_events(before.clients, after.clients), *qp_events(before.qps, after.qps),
                 *lcore_events(before.lcores, after.lcores)]
        for rate, _, reason in change.drops():
            if rate > 0:
                if after.time - self.dropping.get(reason, -FORGET_S) >= FORGET_S:
                    found.append(('warning', f'frames are being dropped: {reason}, '
                                  f"{self.helps['drops'].get(reason, '')}".rstrip(', ')))
                self.dropping[reason] = after.time
        for level, text in found:
            self.note(level, text)

    def rates(self, change, table, key, names):
        """{name: rate per second}; None if there is no previous sample."""
        row = getattr(self.after, table)[key]
        return {name: round(change.rate(table, key, name), 3) if change else None
                for name in names if name in row}

    def rows(self, change, table, names):
        return [{'number': number, **row, 'rates': self.rates(change, table, number, names)}
                for number, row in sorted(getattr(self.after, table).items())]

    def lcores(self, change):
        found = self.rows(change, 'lcores', LCORE_RATES)
        for row in found:
            _, cycles, idle = change.lcore(row['number']) if change else (None, None, None)
            row['cycles_per_packet'] = None if cycles is None else round(cycles, 1)
            row['idle'] = None if idle is None else round(min(max(idle, 0), 1), 4)
        return found

    def counters(self, change):
        return {name: {'count': self.after.total(name), 'meaning': self.helps['counters'].get(name, ''),
                       'rate': round(change.total(name), 3) if change else None}
                for name in next(iter(self.after.counters.values()), {})}

    def drops(self, change):
        return [{'reason': reason, 'meaning': self.helps['drops'].get(reason, ''), 'count': count,
                 'rate': round(rate, 3) if change else None}
                for rate, count, reason in (change or Change(self.after, self.after)).drops()]

    def qps(self, change, limit, sort):
        busiest = (change or Change(self.after, self.after)).busiest(sort)
        return {'total': len(busiest), 'sort': sort,
                'rows': [{**row, 'rates': {name: round(rate, 3) if change else None
                                           for name, rate in rates.items()}}
                         for row, rates in busiest[:limit]]}

    def answer(self, qps, sort):
        change = Change(self.before, self.after) if self.before else None
        clients = self.rows(change, 'clients', CLIENT_RATES)
        return {
            'version': API_VERSION, 'look': self.look, 'time': round(self.wall, 3),
            'seconds': round(change.seconds, 6) if change else None,
            'engine': self.after.info, 'memory': self.after.memory,
            'ports': self.rows(change, 'ports', PORT_RATES), 'lcores': self.lcores(change),
            'counters': self.counters(change), 'drops': self.drops(change),
            'clients': {'total': len(clients), 'rows': clients[:MAX_CLIENTS]},
            'qps': self.qps(change, qps, sort), 'events': list(self.events),
        }


class Watch:
    """All engines that @find finds: a function without arguments, as karst_observe.find_engines()."""

    def __init__(self, find):
        self.find = find
        self.lock = threading.Lock()
        self.finding = threading.Lock()  # one at a time: a process answers few connections (see Shared in karst_web)
        self.watched = collections.OrderedDict()

    def engines(self):
        """[(id, engine)]: the name, with the process where two have the same; to be closed."""
        try:
            return observe.distinguished(self.find())
        except observe.Failure:
            return []

    def list(self):
        with self.finding:
            found = self.engines()
            for _, engine in found:
                engine.telemetry.close()
        return {'version': API_VERSION,
                'engines': [{'id': key, 'name': engine.name, 'pid': engine.telemetry.hello['pid']}
                            for key, engine in found]}

    def one(self, key):
        """The engine @key; the connections to all others are closed.  NotThere."""
        with self.finding:
            found = self.engines()
            wanted = next((engine for other, engine in found if other == key), None)
            for _, engine in found:
                if wanted is None or engine.telemetry is not wanted.telemetry:
                    engine.telemetry.close()
        if wanted is None:
            raise NotThere(key)
        return wanted

    def snapshot(self, key, qps=50, sort='bytes'):
        """The state of engine @key.  NotThere; observe.Failure."""
        with self.lock:
            watched = self.watched.get(key)
            if watched is None:
                self.one(key).telemetry.close()  # so that requests cannot fill the table with unknown names
                watched = self.watched[key] = Watched()
                while len(self.watched) > MAX_ENGINES:
                    self.watched.popitem(last=False)
            self.watched.move_to_end(key)
        with watched.lock, observe.understood():
            watched.refresh(lambda: self.one(key))
            return watched.answer(qps, sort)


def query(pairs):
    """(qps, sort) of the query's [(name, value)].  ValueError, with the reason: the query is invalid."""
    found = {'qps': '50', 'sort': 'bytes'}
    for name, value in pairs:
        if name not in found:
            raise ValueError(f'no parameter {name}; allowed: qps, sort')
        found[name] = value
    if not (found['qps'].isascii() and found['qps'].isdigit()) or len(found['qps']) > 6 or \
            int(found['qps']) > MAX_QPS:
        raise ValueError(f'qps: a number from 0 to {MAX_QPS}')
    if found['sort'] not in SORTS:
        raise ValueError('sort: ' + ', '.join(sorted(SORTS)))
    return int(found['qps']), found['sort']
