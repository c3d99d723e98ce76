# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What the programs of this suite share: a daemon with traffic, the tools, Prometheus' text format."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon  # noqa: E402

HANG_S = 120
CONF = '[engine]\nidle = yield\ncongestion = dcqcn\n[port p]\ndevice = loopback\n'


class Bed:
    """A daemon with a loopback port, and the programs."""

    def __init__(self, usertools, karstd, perf, dump, folder, conf=CONF, name='observe'):
        self.usertools = usertools
        self.perf = perf
        self.dump = dump
        self.folder = folder
        self.daemon = Daemon(karstd, folder, conf, name=name)
        self.socket = self.daemon.socket
        self.name = self.daemon.name

    def run(self, *words):
        try:
            return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
        except subprocess.TimeoutExpired as e:
            return subprocess.CompletedProcess(e.cmd, 'timeout', str(e.stdout), str(e.stderr))

    def tool(self, name, *words):
        return self.run(os.path.join(self.usertools, name), '--file-prefix', self.name, *words)

    def traffic(self, args):
        """Moves messages within the daemon, to the end. (problems, the output of karst-perf)"""
        with subprocess.Popen([self.perf, '--connect', self.socket, '--server', '--tcp-port', '0'],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as peer:
            port = peer.stdout.readline().split()
            if not port:
                return ['no server', peer.communicate()[1][-1000:]], {}
            run = self.run(self.perf, '--connect', self.socket, '--peer', 'localhost',
                           '--tcp-port', port[-1], '--json', '--no-baselines', *args.split())
            if run.returncode != 0:
                peer.terminate()
            peer.communicate()
        found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{')]
        if run.returncode != 0 or not found:
            return [f'karst-perf: exit status {run.returncode}: {run.stderr[-1000:]}'], {}
        return [], found[0]

    def points(self, tap, name, run):
        """Starts the daemon, which is the point @name, and calls run() while it runs."""
        problems = self.daemon.start()
        tap.point(name, problems)
        if problems:
            return
        try:
            run()
        finally:
            self.clean_up()

    def clean_up(self):
        self.daemon.kill()
        for base in ('/var/run/dpdk', f'/tmp/dpdk-{os.geteuid()}/dpdk'):
            shutil.rmtree(os.path.join(base, self.name), ignore_errors=True)


class Background:
    """Traffic that continues while something else is tested; then both ends are killed."""

    def __init__(self, bed, args):
        self.bed = bed
        self.args = args
        self.ends = []

    def start(self, *words):
        self.ends.append(subprocess.Popen([self.bed.perf, '--connect', self.bed.socket, *words],
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          text=True))
        return self.ends[-1]

    def __enter__(self):
        """@return problems: traffic has not started, with queue pairs that have sent."""
        port = self.start('--server', '--tcp-port', '0').stdout.readline().split()
        if port:
            self.start('--peer', 'localhost', '--tcp-port', port[-1], '--no-baselines',
                       '--duration', '3600', *self.args.split())
        for _ in range(HANG_S * 10):
            rows = queue_pairs(self.bed)
            if rows and all(row['tx_packets'] and row['rx_packets'] for row in rows):
                return []
            time.sleep(0.1)
        return ['no traffic']

    def __exit__(self, *why):
        for process in self.ends:
            process.kill()
            process.communicate()


def telemetry(bed, command):
    sys.path.insert(0, bed.usertools)
    import karst_observe
    sys.path.pop(0)
    karst_observe.TIMEOUT_S = HANG_S # it answers when it gets a processor
    engine = karst_observe.find_engines(prefix=bed.name)[0]
    try:
        return command(engine)
    finally:
        engine.telemetry.close()


def queue_pairs(bed):
    return telemetry(bed, lambda engine: engine.table('qps'))


# --- the text format of Prometheus ---

METRIC = re.compile(r'^[a-zA-Z_:][a-zA-Z0-9_:]*$')
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse_labels(text, problems):
    labels = {}
    at = 0
    while at < len(text):
        label = LABEL.match(text, at)
        if not label:
            problems.append(f'labels: {text}')
            break
        labels[label.group(1)] = label.group(2)
        at = label.end()
    return labels


def parse_exposition(text):
    """(problems, {(name, labels as a frozenset): value})"""
    problems, values, kinds, helped, current = [], {}, {}, set(), None
    if not text.endswith('\n'):
        problems.append('the last line does not end')
    for line in text.splitlines():
        if line.startswith('# HELP '):
            current = line.split(' ', 3)[2]
            if current in helped:
                problems.append(f'twice: {line}')
            helped.add(current)
        elif line.startswith('# TYPE '):
            _, _, name, kind = line.split(' ')
            if name != current or kind not in ('counter', 'gauge') or not METRIC.match(name):
                problems.append(f'out of place: {line}')
            kinds[name] = kind
            if (kind == 'counter') != name.endswith('_total'):
                problems.append(f'name of a {kind}: {name}')
        else:
            sample = SAMPLE.match(line)
            if not sample or sample.group(1) != current or current not in kinds:
                problems.append(f'not a sample of {current}: {line}')
                continue
            labels = frozenset(parse_labels(sample.group(2) or '', problems).items())
            if (current, labels) in values:
                problems.append(f'twice: {line}')
            values[current, labels] = float(sample.group(3))
    return problems, values


def total(values, name):
    found = [value for (metric, _), value in values.items() if metric == name]
    return sum(found) if found else None


def scrape(bed, *words):
    run = bed.tool('karst-exporter', '--once', *words)
    if run.returncode != 0:
        return [f'exit status {run.returncode}: {run.stderr}'], {}
    return parse_exposition(run.stdout)


class Exporter:
    """karst-exporter --listen, and its answers."""

    def __init__(self, bed, *words):
        self.process = subprocess.Popen(
            [os.path.join(bed.usertools, 'karst-exporter'), '--file-prefix', bed.name,
             '--listen', 'localhost:0', *words], stderr=subprocess.PIPE, text=True)
        self.url = self.process.stderr.readline().split()[-1]

    def get(self, url=None):
        try:
            with urllib.request.urlopen(url or self.url, timeout=HANG_S) as answer:
                return answer.status, answer.headers['Content-Type'], answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, '', ''

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=HANG_S)
        self.process.stderr.close()
