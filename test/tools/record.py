#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The performance record's tools: its format, karst-compare and karst-plot: record.py ROOT (TAP).

What karst-compare says is checked with made-up records whose right answer is known: equal builds under
noise and drift, builds that are slower by so much, failures.  Nothing is measured here (suite perf does).
"""
import copy
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tools  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
if len(sys.argv) > 1:
    ROOT = os.path.abspath(sys.argv[1])
USERTOOLS = os.path.join(ROOT, 'usertools')
sys.path.insert(0, USERTOOLS)
sys.dont_write_bytecode = True
import bench_cases  # noqa: E402
import karst_record  # noqa: E402
import karst_stats  # noqa: E402
import karst_verdict  # noqa: E402

SEED = 15
# Debian's Python, which finds Debian's matplotlib, whatever else is on the PATH
PYTHON = '/usr/bin/python3' if os.access('/usr/bin/python3', os.X_OK) else sys.executable


def case(name, values, group='g', better='higher', failed=0, **x):
    return {'name': name, 'group': group, 'unit': 'Gb/s', 'better': better, 'x': x, 'command': '--op write',
            'failed': failed,
            'runs': [{'round': i, 'at': 1.5 * i, 'value': value, 'others': 0.1, 'stolen': 0.0,
                      'latency_ns': {'p50': 1000, 'p99': 2000, 'p999': 9000, 'max': 10000}}
                     for i, value in enumerate(values) if value is not None]}


def record(cases, session='a'):
    return {
        'format': 'karst-record', 'version': 1, 'session': session, 'began': '2026-11-25T20:00:00Z', 'seconds': 9.5,
        'settings': {'seconds': 0.2, 'rounds': 7, 'cases': ''},
        'machine': {'cpu': 'made up', 'cpus': 2, 'cpus_usable': 2, 'virtual': True, 'caches': ['L1d 32K'],
                    'memory_bytes': 1 << 30, 'huge_pages': {'bytes_each': 2 << 20, 'total': 0, 'free': 0},
                    'governor': None, 'kernel': '6.1', 'system': None},
        'build': {'commit': 'abc', 'changed': False, 'compiler': 'gcc 12', 'buildtype': 'release', 'cpu': '',
                  'dpdk': None},
        'noise': {'load_before': [0.1, 0.1, 0.1], 'load_after': [1, 1, 1], 'others': 0.02, 'stolen': 0,
                  'spread': 0.03},
        'cases': cases, 'goals': []}


def verdicts(before, after, **how):
    return {row['name']: row['verdict'] for row in karst_verdict.compare(before, after, **how)['cases']}


class Statistics(unittest.TestCase):
    """karst_stats.py, compared with counting by hand and with tables of textbooks."""

    def test_signed_ranks(self):
        for n in range(1, 9):
            counts = [0] * (n * (n + 1) // 2 + 1)
            for signs in itertools.product((0, 1), repeat=n):
                counts[sum(rank for rank, sign in zip(range(1, n + 1), signs) if sign)] += 1
            self.assertEqual(karst_stats.signed_rank_counts(n), counts)

    def test_rank_sums(self):
        for n, m in ((1, 1), (3, 4), (5, 2), (4, 4)):
            counts = [0] * (n * m + 1)
            for places in itertools.combinations(range(n + m), n):
                counts[sum(place - i for i, place in enumerate(places))] += 1
            self.assertEqual(karst_stats.rank_sum_counts(n, m), counts)

    def test_critical_values(self):
        # two-sided, 5%: the largest rejected sum is one below
        for n, critical in ((6, 0), (8, 3), (10, 8), (15, 25), (20, 52)):
            self.assertEqual(karst_stats.depth(karst_stats.signed_rank_counts(n), 0.05), critical + 1)
        for n, critical in ((4, 0), (5, 2), (8, 13), (10, 23), (15, 64)):
            self.assertEqual(karst_stats.depth(karst_stats.rank_sum_counts(n, n), 0.05), critical + 1)
        self.assertEqual(karst_stats.depth(karst_stats.signed_rank_counts(5), 0.05), 0)

    def test_estimates(self):
        ratio, low, high = karst_stats.paired([(a, 2 * a) for a in (1, 5, 3, 9, 2, 7)], 0.05)
        self.assertTrue(all(math.isclose(x, 2) for x in (ratio, low, high)))
        ratio, low, high = karst_stats.unpaired([1, 1, 1, 1], [4, 4, 4, 4], 0.05)
        self.assertTrue(all(math.isclose(x, 4) for x in (ratio, low, high)))
        self.assertEqual(karst_stats.paired([(1, 2)] * 5, 0.05)[1:], (None, None))
        # with six values the interval is the whole range: from the least ratio to the greatest
        _, low, high = karst_stats.paired([(1, r) for r in (1.4, 1.2, 1.6, 1.3, 1.1, 1.5)], 0.05)
        self.assertTrue(math.isclose(low, 1.1) and math.isclose(high, 1.6))
        _, low, high = karst_stats.unpaired([1, 1, 1, 1], [3, 2, 5, 4], 0.05)
        self.assertTrue(math.isclose(low, 2) and math.isclose(high, 5))

    def test_runs_wanted(self):
        self.assertEqual([karst_stats.runs_wanted(0.05, True), karst_stats.runs_wanted(0.05, False)], [6, 4])

    def test_intervals_hold_the_truth(self):
        """Intervals contain the true value as often as they claim, however large the noise."""
        rng = random.Random(SEED)
        for by_turns in (True, False):
            missed = 0
            for _ in range(300):
                first = [math.exp(rng.gauss(0, 0.1)) * rng.choice((1, 1, 1, 0.3)) for _ in range(9)]
                second = [0.8 * math.exp(rng.gauss(0, 0.1)) * rng.choice((1, 1, 1, 0.3)) for _ in range(9)]
                _, low, high = karst_stats.paired(list(zip(first, second)), 0.1) if by_turns else \
                    karst_stats.unpaired(first, second, 0.1)
                missed += not low <= 0.8 <= high
            # 10% of 300 at most; four standard deviations of 30 are 21
            self.assertLess(missed, 30 + 21)


class Compare(unittest.TestCase):
    """karst-compare, with records whose right answer is known."""

    def setUp(self):
        self.rng = random.Random(SEED)

    def noisy(self, middle, part, n=12):
        return [middle * math.exp(self.rng.gauss(0, part)) for _ in range(n)]

    def test_equal_builds_are_not_slower(self):
        """40 comparisons of two records of 20 cases: none of the 800 verdicts may be wrong, though
        5% of 40 could be."""
        wrong = 0
        for i in range(40):
            names = [f'c{n}' for n in range(20)]
            session = ('a', 'a') if i % 2 else ('a', 'b')
            before, after = (record([case(name, self.noisy(50, 0.08)) for name in names], s) for s in session)
            wrong += any(v in ('slower', 'faster') for v in verdicts(before, after, tolerance=0).values())
        self.assertLessEqual(wrong, 6)

    def test_what_the_machine_does_is_not_the_builds(self):
        """Builds measured in turn, on a machine whose speed halves in the middle."""
        machine = [1, 1.1, 0.9, 1, 0.5, 0.45, 0.5, 0.55, 0.5, 1, 1.05, 0.95]
        before = record([case('c', [40 * m * f for m, f in zip(machine, self.noisy(1, 0.003))])])
        after = record([case('c', [40 * m * f for m, f in zip(machine, self.noisy(1, 0.003))])])
        self.assertEqual(verdicts(before, after), {'c': 'same'})
        slower = record([case('c', [36 * m * f for m, f in zip(machine, self.noisy(1, 0.003))])])
        self.assertEqual(verdicts(before, slower), {'c': 'slower'})
        # without turns the same values show nothing
        slower['session'] = 'b'
        self.assertEqual(verdicts(before, slower), {'c': 'unsure'})

    def test_slower_and_faster(self):
        before = record([case('rate', self.noisy(50, 0.02)), case('time', self.noisy(900, 0.02), better='lower'),
                         case('rate up', self.noisy(50, 0.02)), case('time down', self.noisy(900, 0.02), better='lower'),
                         case('none', self.noisy(50, 0.002))])
        after = record([case('rate', self.noisy(40, 0.02)), case('time', self.noisy(1200, 0.02), better='lower'),
                        case('rate up', self.noisy(60, 0.02)), case('time down', self.noisy(700, 0.02), better='lower'),
                        case('none', self.noisy(50, 0.002))])
        found = karst_verdict.compare(before, after)
        self.assertEqual({row['name']: row['verdict'] for row in found['cases']}, {
            'rate': 'slower', 'time': 'slower', 'rate up': 'faster', 'time down': 'faster', 'none': 'same'})
        rows = {row['name']: row for row in found['cases']}
        self.assertLess(abs(rows['rate']['ratio'] - 0.8), 0.03)
        self.assertLess(abs(rows['time']['ratio'] - 0.75), 0.03)
        for row in rows.values():
            self.assertTrue(row['low'] <= row['ratio'] <= row['high'])

    def test_one_wild_run_decides_nothing(self):
        values = self.noisy(50, 0.002)
        wild = [1.0, *self.noisy(50, 0.002)[1:]]
        self.assertEqual(verdicts(record([case('c', values)]), record([case('c', wild)])), {'c': 'same'})

    def test_less_than_tolerated(self):
        before, after = record([case('c', self.noisy(50, 0.001))]), record([case('c', self.noisy(49.5, 0.001))])
        self.assertEqual(verdicts(before, after), {'c': 'same'})
        self.assertEqual(verdicts(before, after, tolerance=0.005), {'c': 'slower'})
        after['session'] = 'b'
        self.assertEqual(verdicts(before, after), {'c': 'same'})

    def test_too_few_runs(self):
        found = karst_verdict.compare(record([case('c', [50] * 5)]), record([case('c', [10] * 5)]))
        self.assertEqual([found['cases'][0]['verdict'], found['runs_wanted']], ['unsure', 6])
        # an effect that is enough for one case is not enough for many
        many = [f'c{n}' for n in range(40)]
        found = verdicts(record([case(n, [50] * 6) for n in many]), record([case(n, [10] * 6) for n in many]))
        self.assertEqual(set(found.values()), {'unsure'})
        self.assertEqual(verdicts(record([case('c', [50] * 6)]), record([case('c', [10] * 6)])), {'c': 'slower'})

    def test_rounds_that_one_has_not(self):
        before = record([case('c', [1, None, 3, 4, 5, 6, 7, None, 9])])
        after = record([case('c', [2, 99, 6, 8, 10, 12, 14, 99, 18])])
        row = karst_verdict.compare(before, after)['cases'][0]
        self.assertEqual((round(row['ratio'], 6), row['runs'], row['verdict']), (2, [7, 7], 'faster'))

    def test_failures_and_holes(self):
        before = record([case('dies', [1] * 7), case('died', [], failed=7), case('gone', [1] * 7),
                         case('at times', [1] * 7)])
        after = record([case('dies', [], failed=7), case('died', [], failed=7), case('new', [1] * 7),
                        case('at times', [1] * 6, failed=1)])
        self.assertEqual(verdicts(before, after), {'dies': 'failed', 'died': 'missing', 'gone': 'missing',
                                                   'new': 'missing', 'at times': 'failed'})
        self.assertEqual(verdicts(record([case('c', [0] * 7)]), record([case('c', [1] * 7)])), {'c': 'missing'})

    def test_runs_that_move_nothing(self):
        well, half = record([case('c', [50] * 12)]), record([case('c', [50] * 6 + [0] * 6)])
        other = {**half, 'session': 'b'}
        for before, after, verdict in ((well, half, 'failed'), (well, other, 'failed'), (half, half, 'same'),
                                       (half, well, 'same')):
            self.assertEqual(verdicts(before, after), {'c': verdict})
        # more failures than before
        once = record([case('c', [50] * 11 + [None], failed=1)])
        for value in (50, 80):
            self.assertEqual(verdicts(once, record([case('c', [value] * 7 + [None] * 5, failed=5)])), {'c': 'unsure'})
        self.assertEqual(verdicts(once, record([case('c', [40] * 7 + [None] * 5, failed=5)])), {'c': 'slower'})

    def test_measured_as_something_else(self):
        before, after = record([case('c', [1] * 7)]), record([case('c', [1000] * 7)])
        after['cases'][0]['unit'] = 'Mb/s'
        self.assertEqual(verdicts(before, after), {'c': 'missing'})
        self.assertEqual(verdicts(before, record([case('c', [1] * 7, better='lower')])), {'c': 'missing'})


class Programs(unittest.TestCase):
    """karst-compare and karst-plot as programs."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def file(self, name, what):
        path = os.path.join(self.folder.name, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(what if isinstance(what, str) else json.dumps(what))
        return path

    def run_tool(self, name, *words, python=(PYTHON,)):
        return subprocess.run([*python, os.path.join(USERTOOLS, name), *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                              cwd=self.folder.name)

    def compare(self, before, after, *words):
        return self.run_tool('karst-compare', self.file('a.json', before), self.file('b.json', after), *words)

    def test_exit_status(self):
        before, same, slower = (record([case('one', [v] * 7), case('two', [5] * 7)]) for v in (50, 50, 40))
        for after, words, status in ((same, (), 0), (slower, (), 1), (slower, ('--cases', 'two'), 0),
                                     (slower, ('--tolerance', '0.3'), 0), (slower, ('--cases', 'three'), 2),
                                     (slower, ('--tolerance', '1'), 2), (slower, ('--confidence', '0.1'), 2),
                                     (record([]), (), 2), (record([case('one', [], failed=3)]), (), 1)):
            run = self.compare(before, after, *words)
            self.assertEqual(run.returncode, status, (words, run.stdout, run.stderr))
            self.assertTrue(run.stderr if status == 2 else run.stdout)

    def test_json(self):
        run = self.compare(record([case('c', [50] * 7)]), record([case('c', [40] * 7)]), '--json')
        found = json.loads(run.stdout)
        self.assertEqual((found['by_turns'], found['cases'][0]['verdict'], found['cases'][0]['ratio']),
                         (True, 'slower', 0.8))

    def test_figures_of_any_size(self):
        """They are refused, or the answer is JSON."""
        for small, large in ((1e-149, 1e149), (1e-200, 1e200), (5e-324, 1.7e308)):
            for better in ('higher', 'lower'):
                run = self.compare(record([case('c', [small] * 7, better=better)]),
                                   record([case('c', [large] * 7, better=better)]), '--json')
                self.assertNotIn('Traceback', run.stderr)
                if run.returncode == 2:
                    self.assertIn('a value from 0 on', run.stderr)
                else:
                    row = json.loads(run.stdout, parse_constant=self.fail)['cases'][0]
                    self.assertEqual(row['verdict'], 'faster' if better == 'higher' else 'slower')
            self.assertEqual(run.returncode == 2, small < 1e-150)

    def test_another_machine(self):
        after = record([case('c', [50] * 7)], 'b')
        after['machine']['cpu'] = 'another'
        run = self.compare(record([case('c', [50] * 7)]), after)
        self.assertEqual(run.returncode, 2)
        self.assertIn('--across-machines', run.stderr)
        self.assertEqual(self.compare(record([case('c', [50] * 7)]), after, '--across-machines').returncode, 0)

    def test_no_records(self):
        good = record([case('c', [50] * 7)])
        for bad in ('', '{', '[]', 'null', '{"format": "karst-record"}', {**good, 'version': 2}, {**good, 'more': 1}):
            for tool, words in (('karst-compare', (self.file('good.json', good),)), ('karst-plot', ())):
                run = self.run_tool(tool, self.file('bad.json', bad), *words)
                self.assertEqual((run.returncode, 'Traceback' in run.stderr), (2, False), run.stderr)
                self.assertIn('bad.json', run.stderr)
        self.assertEqual(self.run_tool('karst-plot', 'none.json').returncode, 2)

    def test_json_that_is_nested_without_end(self):
        bad = self.file('bad.json', '[' * 100000)
        for tool, words in (('karst-compare', (bad, bad)), ('karst-plot', (bad,))):
            run = self.run_tool(tool, *words)
            self.assertEqual((run.returncode, 'Traceback' in run.stderr), (2, False), run.stderr)
            self.assertIn('bad.json: not JSON of a record', run.stderr)

    def test_version(self):
        """All tools that are Python programs say that of the file VERSION, from anywhere."""
        with open(os.path.join(USERTOOLS, '..', 'VERSION'), encoding='ascii') as f:
            version = f.read().strip()
        for name in ('karst-capture', 'karst-compare', 'karst-exporter', 'karst-plot', 'karst-smc', 'karst-top'):
            run = self.run_tool(name, '--version')
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, f'{name} {version}\n', ''))
            self.assertEqual(self.run_tool(name, '--no-such-option').returncode, 2)

    def test_figures_of_other_kinds(self):
        whole = json.dumps(self.whole())
        for old, new, tools in (('"value": 9', '"value": 1' + '0' * 400, ('karst-compare', 'karst-plot')),
                                ('"p50": 1000', '"p50": "fast"', ('karst-compare', 'karst-plot')),
                                ('"p99": 2000', '"p99": [7]', ('karst-plot',)),
                                ('"depth": ', '"deep": ', ('karst-plot',)), ('"size": ', '"size": -', ('karst-plot',)),
                                ('"op": "', '"op": null, "o": "', ('karst-plot',))):
            self.assertIn(old, whole)
            bad = self.file('bad.json', whole.replace(old, new, 1))
            for tool in tools:
                run = self.run_tool(tool, bad, *(bad,) * (tool == 'karst-compare'))
                self.assertEqual((run.returncode, 'Traceback' in run.stderr), (2, False), f'{old}: {run.stderr}')
                self.assertIn('bad.json', run.stderr)

    def whole(self):
        """A record with all cases of the bench, of made-up values."""
        rng = random.Random(SEED)
        return record([case(c.name, [rng.uniform(9, 11) for _ in range(7)], c.group, c.better, **c.x)
                       for c in bench_cases.CASES])

    def test_pictures(self):
        if subprocess.run([PYTHON, '-c', 'import matplotlib'], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest('python3-matplotlib is not installed')
        path = self.file('r.json', self.whole())
        run = self.run_tool('karst-plot', '--format', 'both', path)
        self.assertEqual((run.returncode, run.stderr), (0, ''))
        names = ['throughput', 'latency', 'load', 'queue-pairs', 'loss']
        again = os.path.join(self.folder.name, 'new', 'again') # karst-plot creates both
        run_again = self.run_tool('karst-plot', '--output', again, path)
        self.assertEqual((run_again.returncode, run_again.stderr), (0, ''))
        refused = self.run_tool('karst-plot', '--output', path, path)
        self.assertEqual((refused.returncode, refused.stderr), (1, f'karst-plot: {path}: File exists\n'))
        self.assertEqual(run.stdout.split(), [f'./{name}.{kind}' for name in names for kind in ('svg', 'png')])
        for name, words in (('throughput', ('Throughput by size', "the kernel's TCP", 'WRITE, attached', '64 KiB')),
                            ('latency', ('Round trips', 'median', '99.9%', 'READ')), ('load', ('256', 'outstanding')),
                            ('queue-pairs', ('million messages',)), ('loss', ('goodput, Gb/s', 'verified'))):
            with open(os.path.join(self.folder.name, name + '.svg'), encoding='utf-8') as f:
                text = f.read()
            shown = ' '.join(xml.etree.ElementTree.fromstring(text).itertext())
            for word in (*words, 'made up, 2 virtual CPUs'):
                self.assertIn(word, shown)
            with open(os.path.join(self.folder.name, name + '.png'), 'rb') as f:
                self.assertEqual(f.read(8), b'\x89PNG\r\n\x1a\n')
            with open(os.path.join(again, name + '.svg'), encoding='utf-8') as f:
                self.assertEqual(f.read() == text, True, f'{name}: not the same file again')

    def test_pictures_of_part(self):
        if subprocess.run([PYTHON, '-c', 'import matplotlib'], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest('python3-matplotlib is not installed')
        part = record([case('a', [3], 'loss', loss=0.01), case('b', [], 'latency', failed=2, op='tcp', mode='kernel')])
        run = self.run_tool('karst-plot', self.file('r.json', part))
        self.assertEqual((run.returncode, run.stdout), (0, './loss.svg\n'))
        self.assertEqual(len(run.stderr.splitlines()), 4)
        self.assertEqual(self.run_tool('karst-plot', self.file('r.json', record([]))).returncode, 1)
        # cases that are not in any figure: bench --cases "loss 0" is one
        for group, x in (('loss', {'loss': 0}), ('throughput', {'size': 0, 'op': 'write', 'mode': 'attached'}),
                         ('throughput', {'size': 64, 'op': 'other', 'mode': 'attached'}), ('queue pairs', {'qps': 0})):
            run = self.run_tool('karst-plot', self.file('r.json', record([case('a', [3], group, **x)])))
            self.assertEqual((run.returncode, run.stdout, 'Traceback' in run.stderr), (1, '', False), run.stderr)

    @staticmethod
    def fabric(loss=0.0, spray=1, goodput=9e10):
        """As a run of karst-fabric reports it."""
        sizes = [{'flows': 20 + i, 'p50': 1 + i, 'p95': 3 + i, 'p99': 9 + i, 'up_to': up_to, 'all': False}
                 for i, up_to in enumerate((1000, 3000, None))]
        sizes.append({'flows': 63, 'p50': 1, 'p95': 4, 'p99': 9, 'up_to': None, 'all': True})
        return {'config': {'topology': 'clos', 'workload': 'websearch', 'hosts': 54, 'speed_bps': 1e11, 'loss': loss,
                           'recovery': 'selective-repeat' if spray > 1 else 'go-back-n', 'spray': spray,
                           'congestion': 'dcqcn', 'seed': 1},
                'congestion_params': {}, 'goodput_bps': goodput, 'slowdown': sizes,
                'queue': {'port': 'leaf7 to spine5', 'kmin': 400000, 'kmax': 1600000,
                          'percentiles': [i * 1000 for i in range(101)]}}

    def test_pictures_of_fabric(self):
        if subprocess.run([PYTHON, '-c', 'import matplotlib'], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest('python3-matplotlib is not installed')
        files = [self.file(f'{spray}-{loss}.json', self.fabric(loss, spray)) for spray in (1, 16) for loss in (0.01, 0.001)]
        run = self.run_tool('karst-plot', '--format', 'both', *files)
        names = ['fabric-slowdown', 'fabric-queue', 'fabric-loss']
        self.assertEqual((run.returncode, run.stderr), (0, ''))
        self.assertEqual(run.stdout.split(), [f'./{name}.{kind}' for name in names for kind in ('svg', 'png')])
        again = os.path.join(self.folder.name, 'again')
        os.mkdir(again)
        self.assertEqual(self.run_tool('karst-plot', '--output', again, *files).returncode, 0)
        for name, words in zip(names, (('to 3 KB', 'larger', '99%', 'selective repeat, loss 0.01, 16 ports'),
                                       ('leaf7 to spine5', 'Kmin', 'Kmax', 'go-back-N, loss 0.001, one port'),
                                       ('goodput, Gb/s', '0.1 %', 'selective repeat, 16 ports'))):
            with open(os.path.join(self.folder.name, name + '.svg'), encoding='utf-8') as f:
                text = f.read()
            shown = ' '.join(xml.etree.ElementTree.fromstring(text).itertext())
            for word in (*words, 'websearch, clos, 54 hosts at 100 Gb/s'):
                self.assertIn(word, shown)
            with open(os.path.join(again, name + '.svg'), encoding='utf-8') as f:
                self.assertEqual(f.read() == text, True, f'{name}: not the same file again')
        # a single loss rate makes no line
        run = self.run_tool('karst-plot', files[0])
        self.assertEqual((run.returncode, run.stdout.split()), (0, ['./fabric-slowdown.svg', './fabric-queue.svg']))
        self.assertEqual(self.run_tool('karst-plot', '--figure', 'fabric-loss', files[0]).returncode, 1)
        self.assertEqual(self.run_tool('karst-plot', '--figure', 'latency', files[0]).returncode, 1)

    def test_no_runs_of_fabric(self):
        good = self.fabric()
        for bad in ({**good, 'slowdown': None}, {**good, 'goodput_bps': 'much'}, {**good, 'queue': {'kmin': 1}},
                    {**good, 'config': {}}, {**good, 'slowdown': [{'flows': 1}]}, self.whole(),
                    {**good, 'queue': {**good['queue'], 'percentiles': [True] * 101}}):
            run = self.run_tool('karst-plot', self.file('good.json', good), self.file('bad.json', bad))
            self.assertEqual((run.returncode, 'Traceback' in run.stderr), (2, False), run.stderr)
            self.assertIn('bad.json', run.stderr)
        run = self.run_tool('karst-plot', self.file('a.json', self.whole()), self.file('b.json', self.whole()))
        self.assertEqual(run.returncode, 2)

    def test_no_matplotlib(self):
        run = self.run_tool('karst-plot', self.file('r.json', self.whole()), python=(PYTHON, '-S'))
        self.assertEqual(run.returncode, 1)
        self.assertIn('python3-matplotlib', run.stderr)


def paths(found, at=()):
    """The path of each member of a JSON value; of lists, those of the first element."""
    for name, value in found.items() if isinstance(found, dict) else list(enumerate(found))[:1]:
        yield (*at, name)
        if isinstance(value, (dict, list)):
            yield from paths(value, (*at, name))


class Format(unittest.TestCase):
    """karst_record.py"""

    def setUp(self):
        self.good = record([case('c', [1, 2])])
        self.good['goals'] = [{'what': 'a', 'measured': '1', 'goal': '2', 'met': 'NO', 'note': ''}]

    def broken(self, path, change):
        bad = copy.deepcopy(self.good)
        at = bad
        for name in path[:-1]:
            at = at[name]
        change(at, path[-1])
        try:
            karst_record.check(bad)
        except karst_record.Bad:
            return True
        return False

    def test_good(self):
        karst_record.check(self.good)

    def test_a_member_is_missing_or_wrong(self):
        free = ('x', 'latency_ns', 'huge_pages', 'caches', 'load_before', 'load_after')
        for path in paths(self.good):
            if isinstance(path[-1], int) or any(name in free for name in path[:-1]):
                continue
            if path[-1] not in ('latency_ns',):
                self.assertTrue(self.broken(path, lambda at, name: at.pop(name)), f'{path} was not missed')
                self.assertTrue(self.broken(path, lambda at, name: at.update({name: (1j,)})), f'{path} may be anything')
            self.assertTrue(self.broken(path, lambda at, name: at.update({name + '2': 1})), f'more beside {path}')

    def test_values(self):
        run = ('cases', 0, 'runs', 0)
        for name, value in (('value', -1), ('value', float('inf')), ('value', float('nan')), ('value', True),
                            ('value', '1'), ('round', 1), ('round', 0.5)):
            self.assertTrue(self.broken((*run, name), lambda at, key, v=value: at.update({key: v})), f'{name} {value}')
        self.assertTrue(self.broken(('cases', 0, 'better'), lambda at, key: at.update({key: 'more'})))
        self.assertTrue(self.broken(('cases',), lambda at, key: at[key].append(at[key][0])))

    def test_saved_and_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'r.json')
            karst_record.save(path, self.good)
            self.assertEqual(karst_record.load(path), self.good)
            with self.assertRaises(karst_record.Bad):
                karst_record.save(path, {**self.good, 'version': 7})
            self.assertEqual((karst_record.load(path), os.listdir(folder)), (self.good, ['r.json']))

    def test_this_machine(self):
        here = {**self.good, 'machine': karst_record.machine(), 'build': karst_record.build_facts(ROOT)}
        noise = karst_record.Noise()
        others, stolen = noise.lap()
        self.assertTrue(0 <= others <= 1 and 0 <= stolen <= 1)
        here['noise'] = karst_record.noise(here['cases'], [0, 0, 0])
        karst_record.check(here)
        self.assertEqual(here['noise']['others'], 0.1)
        self.assertEqual(here['machine']['cpus'], os.cpu_count())

    def test_spread(self):
        self.assertEqual(karst_record.spread([1, 2, 3, 4, 5]), 2 / 3)
        self.assertIsNone(karst_record.spread([1]))
        self.assertIsNone(karst_record.spread([0, 0, 0]))

    def test_every_member_is_in_the_document(self):
        with open(os.path.join(ROOT, 'doc', 'performance-record.rst'), encoding='utf-8') as f:
            text = f.read()
        for members in (karst_record.RECORD, karst_record.MACHINE, karst_record.BUILD, karst_record.NOISE,
                        karst_record.SETTINGS, karst_record.CASE, karst_record.RUN, karst_record.GOAL):
            self.assertEqual([name for name in members if f'``{name}``' not in text], [])
        for group in {c.group for c in bench_cases.CASES}:
            self.assertIn(f'\n{group}  ', text)


class Cases(unittest.TestCase):
    """bench_cases.py"""

    def test_names(self):
        names = [c.name for c in bench_cases.CASES]
        self.assertEqual(len(set(names)), len(names))
        for c in bench_cases.CASES:
            self.assertTrue(c.better in ('higher', 'lower') and
                            (c.figure in bench_cases.FIGURES or c.command.startswith('verbs: ')), c)

    def test_what_is_not_understood_is_a_failure(self):
        runner = bench_cases.Runner('/nowhere', 1, 0)
        for said in ([], [{}], [{'op': 'write', 'gbps': 'x'}]):
            runner.objects = lambda command, found=said: found
            self.assertFalse(runner.run('--op write', ['tcp_gbps']))


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules['__main__'])
    print(f'1..{suite.countTestCases()}')
    result = tools.Tap()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main())
