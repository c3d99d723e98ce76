# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Counters of engines as metrics of Prometheus: names, types, meanings and labels.  karst-exporter(1)."""
import sys

import karst_observe as observe

# The members of each row that are levels, not counters; all others only grow.
PORT_COUNTS = {
    'rx_packets': 'frames received, by the driver', 'rx_bytes': 'bytes of these',
    'rx_missed': 'frames that the device had no room for',
    'rx_errors': 'frames received with errors', 'rx_no_mbufs': 'receive buffers that were wanted',
    'tx_packets': 'frames sent, by the driver', 'tx_bytes': 'bytes of these',
    'tx_errors': 'frames that could not be sent',
}
LCORE_COUNTS = {
    'turns': 'turns of the wheel', 'idle_turns': 'turns without work',
    'sleeps': 'times that it slept', 'rx_bursts': 'bursts received, empty ones not counted',
    'rx_frames': 'frames received', 'tx_bursts': 'bursts sent', 'tx_frames': 'frames sent',
    'tx_full': 'times that a port took less than all',
    'tx_dropped': 'frames that no port could take',
    'handoff_in': 'packets taken over from other lcores',
    'handoff_out': 'packets given to other lcores', 'doorbells': 'doorbells answered',
    'messages': 'control calls done', 'no_mbufs': 'turns that wanted buffers and had none',
    'neigh_rx': 'ARP and neighbour discovery frames received',
    'neigh_tx': 'ARP and neighbour discovery frames sent',
    'tap_rx': 'frames given to the kernel', 'tap_tx': 'frames taken from the kernel',
    'cycles': 'TSC cycles since it was attached',
    'busy_cycles': 'of these, cycles of turns with work',
    'taken_over': 'times that another thread went on for one that waited for memory of a program',
    'overdue_programs': 'programs that failed because their memory did not come',
    'ejected_programs': 'programs that failed because the lcore was stuck at them',
}
CLIENT_LEVELS = {
    'qps': 'queue pairs', 'cqs': 'completion queues', 'srqs': 'shared receive queues',
    'regions': 'memory regions', 'windows': 'memory windows', 'ring_bytes': 'bytes of its rings',
    'shared_bytes': 'registered bytes that are shared with the engine',
    'migrated_bytes': 'of these, bytes that were moved to be shared',
    'copied_bytes': 'registered bytes that are copied between the processes',
}
CLIENT_COUNTS = {'requests': 'control messages', 'refused': 'control messages refused',
                 'lost_events': 'events that it did not read in time'}
MEMORY_LEVELS = {
    'regions': 'memory regions', 'windows': 'memory windows', 'pds': 'protection domains',
    'max_keys': 'most regions and windows', 'max_pds': 'most protection domains',
    'ring_bytes': 'bytes of rings', 'object_bytes': 'bytes of objects of the engine',
    'mbufs': 'packet buffers', 'mbufs_free': 'packet buffers in the pool',
    'shared_bytes': "registered bytes of programs that are shared with the engine",
    'migrated_bytes': 'of these, bytes that were moved to be shared',
    'copied_bytes': 'registered bytes of programs that are copied',
}
QP_COUNTS = {
    'tx_packets': 'frames sent', 'tx_bytes': 'bytes of these', 'rx_packets': 'frames received',
    'rx_bytes': 'bytes of these', 'retransmits': 'request packets sent again',
    'timeouts': 'acknowledgement timeouts',
}


def escape(value):
    return str(value).replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n')


class Metrics:
    """Samples by metric, each metric with its HELP and TYPE once, as the format requires."""

    def __init__(self):
        self.found = {}

    def add(self, name, kind, meaning, labels, value):
        text = ','.join(f'{key}="{escape(val)}"' for key, val in labels.items())
        lines = self.found.setdefault(name, (kind, meaning, []))[2]
        lines.append(f'{name}{{{text}}} {value}')

    def counts(self, prefix, meanings, labels, row):
        for name, meaning in meanings.items():
            if name in row:
                self.add(f'{prefix}_{name}_total', 'counter', meaning, labels, row[name])

    def levels(self, prefix, meanings, labels, row):
        for name, meaning in meanings.items():
            if name in row:
                self.add(f'{prefix}_{name}', 'gauge', meaning, labels, row[name])

    def add_all(self, other):
        """Adds the samples of @other, which has other labels."""
        for name, (kind, meaning, lines) in other.found.items():
            self.found.setdefault(name, (kind, meaning, []))[2].extend(lines)

    def text(self):
        out = []
        for name, (kind, meaning, lines) in self.found.items():
            meaning = meaning.replace('\\', '\\\\').replace('\n', '\\n')
            out += [f'# HELP {name} {meaning[:1].upper()}{meaning[1:]}.', f'# TYPE {name} {kind}']
            out += lines
        return '\n'.join(out) + '\n'


def add_protocol(metrics, engine, label, help_of):
    """Counters of each lcore, drops by reason, and hw_counters."""
    for lcore, row in engine.rows('counters').items():
        for name, value in row.items():
            metrics.add(f'karst_{name}_total', 'counter', help_of('counters').get(name, name),
                        {**label, 'lcore': lcore}, value)
    for lcore, row in engine.rows('drops').items():
        for reason, value in row.items():
            metrics.add('karst_drops_total', 'counter', 'received frames dropped, by reason',
                        {**label, 'lcore': lcore, 'reason': reason}, value)
    for name, value in engine.ask('hw_counters').items():
        metrics.add('karst_hw_counters_total', 'counter',
                    "counters under the names of Linux's hw_counters",
                    {**label, 'counter': name}, value)


def add_up(metrics, key, value):
    metrics.add('karst_up', 'gauge', 'whether an engine answers', {'engine': key}, value)


def add_engine(metrics, key, engine, with_qps):
    """@key: the engine's name, or what else tells it from others."""
    label = {'engine': key}
    info = engine.ask('engine')
    helps = {}

    def help_of(what):
        if what not in helps:
            helps[what] = engine.telemetry.ask(f'/karst/help,{what}') or {}
        return helps[what]

    metrics.add('karst_uptime_seconds', 'gauge', 'time since the engine was made', label,
                info['uptime_ns'] / 1e9)
    metrics.add('karst_tsc_hertz', 'gauge', 'what cycles are counted in', label, info['tsc_hz'])
    metrics.levels('karst', {'qps': 'queue pairs', 'cqs': 'completion queues',
                             'srqs': 'shared receive queues'}, label, info)
    for number, row in engine.rows('ports').items():
        port = {**label, 'port': number, 'name': row['name'], 'device': row['device']}
        metrics.add('karst_port_up', 'gauge', 'whether the link is up', port,
                    int(row['link'] == 'up'))
        metrics.add('karst_port_mtu_bytes', 'gauge', 'IP MTU', port, row['mtu'])
        metrics.counts('karst_port', PORT_COUNTS, port, row)
    for number, row in engine.rows('lcores').items():
        lcore = {**label, 'lcore': number}
        metrics.levels('karst_lcore', {'qps': 'queue pairs of an lcore',
                                       'attached': 'whether a thread polls it',
                                       'longest_turn_ns': 'the longest turn, in CPU time'},
                       lcore, row)
        metrics.counts('karst_lcore', LCORE_COUNTS, lcore, row)
    add_protocol(metrics, engine, label, help_of)
    metrics.levels('karst_memory', MEMORY_LEVELS, label, engine.ask('memory'))
    clients = engine.rows('clients')
    metrics.add('karst_clients', 'gauge', 'programs that are attached', label, len(clients))
    for number, row in clients.items():
        client = {**label, 'client': number, 'program': row['program'], 'pid': row['pid']}
        metrics.levels('karst_client', CLIENT_LEVELS, client, row)
        metrics.counts('karst_client', CLIENT_COUNTS, client, row)
    if with_qps:
        for row in engine.table('qps'):
            metrics.counts('karst_qp', QP_COUNTS, {**label, 'qpn': row['qpn']}, row)


def collect(args):
    """The text of one scrape.  An engine that fails, maybe because it has ended meanwhile, has only karst_up 0.
    Failure: no engine answers."""
    metrics = Metrics()
    engines = observe.find_engines(args.socket, args.file_prefix, args.engine)
    failures = []
    try:
        for key, engine in observe.distinguished(engines):
            one = Metrics()
            try:
                with observe.understood():
                    add_up(one, key, 1)
                    add_engine(one, key, engine, args.qps)
                metrics.add_all(one)
            except observe.Failure as e:
                failures.append(e)
                add_up(metrics, key, 0)
    finally:
        for engine in engines:
            engine.telemetry.close()
    if len(failures) == len(engines):
        raise failures[0]
    for failure in failures:
        print(f'karst-exporter: {failure}', file=sys.stderr)
    return metrics.text()
