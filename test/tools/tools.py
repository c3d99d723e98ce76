#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks the tools that judge everything else: tools.py ROOT (TAP).

  test-summary.py   counts what passed, failed, was skipped, crashed or never ran
  conformance.py    finds citations, and what they stand for
  run-suites.py     runs steps side by side, and leaves nothing behind
  karst-setup       says what is wrong with a command line, and exits with 2
  karst_observe.py  takes no answer that is none for one
  karst_metrics.py  tells engines of one name apart, and goes on without one that has ended
  karst_listen.py   knows who listens by TCP, in other network namespaces, too
  interop_bed.py    tells a Linux that stops (L16) from a fault of karst's
  cases_nvme.py     tells a Linux that refuses a READ that was late (L17) from one
"""
import collections
import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

ROOT = ''


def load(name):
    """A script of usertools as a module."""
    path = os.path.join(ROOT, 'usertools', name)
    spec = importlib.util.spec_from_file_location(name.replace('-', '_')[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Listen(unittest.TestCase):
    """karst_listen.py"""

    def setUp(self):
        self.listeners = load('karst_listen.py').listeners

    def test_addresses(self):
        for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
            with socket.create_server((address, 0), family=family) as server:
                port = server.getsockname()[1]
                self.assertEqual(self.listeners(port), [address])
                with socket.create_connection((address, port)):
                    self.assertEqual(self.listeners(port), [address])
            self.assertEqual(self.listeners(port), [])

    def test_of_one_who_has_ended(self):
        ended = subprocess.Popen(['true'])
        ended.wait()
        with socket.create_server(('127.0.0.1', 0)) as server:
            self.assertEqual(self.listeners(server.getsockname()[1], ended.pid), [])

    @unittest.skipIf(os.getuid() != 0, 'a network namespace needs root')
    def test_another_namespace(self):
        there = subprocess.Popen(['unshare', '--net', sys.executable, '-c', 'import socket, sys\n'
                                  'server = socket.create_server(("", 0))\n'
                                  'print(server.getsockname()[1], flush=True)\n'
                                  'sys.stdin.read()'], text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        port = int(there.stdout.readline())
        self.assertEqual(self.listeners(port, there.pid), ['0.0.0.0'])
        there.communicate()
        self.assertEqual(there.returncode, 0)


class Observe(unittest.TestCase):
    """karst_observe.py"""

    def test_answers_that_are_none(self):
        """Who answers on a telemetry socket may be anybody."""
        observe = load('karst_observe.py')
        telemetry = observe.Telemetry.__new__(observe.Telemetry)
        telemetry.path = 'there'
        telemetry.sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with telemetry.sock, other:
            for answer in (b'{', b'{}', b'[]', b'7', b'null', b'[' * 30000, b'\xff'):
                other.send(answer)
                with self.assertRaises(observe.Failure, msg=answer[:9]) as failed:
                    telemetry.ask('/karst/engines')
                self.assertIn('there: /karst/engines: ', str(failed.exception))
            other.send(b'{"/karst/engines": ["a"]}')
            self.assertEqual(telemetry.ask('/karst/engines'), ['a'])


class Metrics(unittest.TestCase):
    """karst_metrics.py, with engines made up here"""

    def setUp(self):
        with unittest.mock.patch.object(sys, 'path', [os.path.join(ROOT, 'usertools'), *sys.path]):
            self.metrics = load('karst_metrics.py')

    def engine(self, name, pid, lacks=None):
        """An engine without ports and programs; the answer to @lacks has no members."""
        observe = self.metrics.observe
        answers = {'engine': {'uptime_ns': pid, 'tsc_hz': 1, 'qps': 1}, 'hw_counters': {}, 'memory': {'pds': 1}}

        def ask(command):
            return observe.Row({} if command == lacks else answers[command])

        def rows(command):
            if command == lacks:
                raise observe.Failure('the engine has gone')
            return {}

        telemetry = types.SimpleNamespace(hello=observe.Row({'pid': pid}), close=lambda: None, path=f'/{pid}')
        return types.SimpleNamespace(name=name, telemetry=telemetry, ask=ask, rows=rows)

    def collect(self, *engines):
        """@return the samples of a scrape, and what it says on standard error"""
        args = types.SimpleNamespace(socket=None, file_prefix=None, engine=None, qps=False)
        with unittest.mock.patch.object(self.metrics.observe, 'find_engines', lambda *where: list(engines)), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            text = self.metrics.collect(args)
        return [line.rpartition(' ')[::2] for line in text.splitlines() if not line.startswith('#')], said.getvalue()

    def test_engines_of_one_name(self):
        found, _ = self.collect(self.engine('a', 7), self.engine('b', 8), self.engine('a', 9))
        series = [name for name, _ in found]
        self.assertEqual(len(series), len(set(series)), series)
        for key in ('a@7', 'b', 'a@9'):
            self.assertIn((f'karst_up{{engine="{key}"}}', '1'), found)
            self.assertIn(f'karst_tsc_hertz{{engine="{key}"}}', series)

    def test_engine_that_ends(self):
        """Its figures are left out, also those that it has answered."""
        for lacks in ('engine', 'lcores', 'clients'):
            found, said = self.collect(self.engine('a', 7), self.engine('b', 8, lacks), self.engine('c', 9))
            self.assertEqual([line for line in found if '"b"' in line[0]], [('karst_up{engine="b"}', '0')], lacks)
            for key in 'ac':
                self.assertIn((f'karst_up{{engine="{key}"}}', '1'), found)
                self.assertIn((f'karst_memory_pds{{engine="{key}"}}', '1'), found)
            self.assertTrue(said.startswith('karst-exporter: '), said)
            self.assertEqual(said.count('\n'), 1, said)

    def test_all_engines_end(self):
        with self.assertRaises(self.metrics.observe.Failure):
            self.collect(self.engine('a', 7, 'lcores'), self.engine('b', 8, 'engine'))


class Summary(unittest.TestCase):
    """test-summary.py"""

    def setUp(self):
        self.summary = load('test-summary.py')

    def tap(self, *lines):
        return self.summary.count_tap('\n'.join(lines))

    def test_points(self):
        self.assertEqual(self.tap('1..3', 'ok 1 - a', 'not ok 2 - b', 'ok 3 # SKIP no'), [1, 1, 1])

    def test_plan_at_the_end_and_noise(self):
        self.assertEqual(self.tap('hello', 'ok 1', '# ok 2', 'okay', 'ok 2', '1..2'), [2, 0, 0])

    def test_missing_points_failed(self):
        self.assertEqual(self.tap('1..4', 'ok 1'), [1, 3, 0])

    def test_no_plan_is_a_failure(self):
        self.assertEqual(self.tap('ok 1'), [1, 1, 0])

    def test_bail_out_is_a_failure(self):
        self.assertEqual(self.tap('1..1', 'ok 1', 'Bail out! no disk'), [1, 1, 0])

    def test_todo_is_no_failure(self):
        self.assertEqual(self.tap('1..1', 'not ok 1 - later # TODO'), [1, 0, 0])

    def test_all_skipped(self):
        self.assertEqual(self.tap('1..0 # SKIP nothing here'), [0, 0, 1])

    def test_no_tap(self):
        self.assertIsNone(self.tap('Segmentation fault'))

    def meson_test(self, result, text, is_tap):
        return self.summary.count_meson_test(result, text, is_tap)

    def test_crash_behind_good_points(self):
        self.assertEqual(self.meson_test('ERROR', '1..1\nok 1', True), [1, 1, 0])

    def test_crash_without_points(self):
        self.assertEqual(self.meson_test('ERROR', '', True), [0, 1, 0])

    def test_timeout(self):
        self.assertEqual(self.meson_test('TIMEOUT', '1..2\nok 1', True), [1, 1, 0])

    def test_plain_programs(self):
        self.assertEqual(self.meson_test('OK', 'not ok 1', False), [1, 0, 0])
        self.assertEqual(self.meson_test('FAIL', '', False), [0, 1, 0])
        self.assertEqual(self.meson_test('SKIP', '', False), [0, 0, 1])

    def total(self, folder):
        """(exit status, lines) at the end of a run with these results."""
        path = os.path.join(folder, 'all')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('unit 10 0 1 3\nsanitize: address, undefined 5 2 0 60\n')
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = self.summary.print_total(path)
        return status, out.getvalue().splitlines()

    def test_total(self):
        with tempfile.TemporaryDirectory() as folder:
            status, lines = self.total(folder)
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], '15 passed, 2 failed, 1 skipped')

    def run_of_meson(self, build, *tests):
        """Counts for tests (name, result, output)."""
        os.mkdir(os.path.join(build, 'meson-info'))
        os.mkdir(os.path.join(build, 'meson-logs'))
        with open(os.path.join(build, 'meson-info', 'intro-tests.json'), 'w',
                  encoding='utf-8') as f:
            json.dump([{'name': 'a', 'protocol': 'tap'},
                       {'name': 'b', 'protocol': 'exitcode'}], f)
        with open(os.path.join(build, 'meson-logs', 'x.json'), 'w', encoding='utf-8') as f:
            for name, result, text in tests:
                f.write(json.dumps({'name': name, 'stdout': text, 'result': result,
                                    'returncode': int(result != 'OK')}) + '\n')
        return self.summary.count_meson(build, 'x')

    def test_a_run_of_meson(self):
        with tempfile.TemporaryDirectory() as build:
            self.assertEqual(self.run_of_meson(
                build, ('karst:unit / a', 'OK', '1..2\nok 1\nok 2'),
                ('karst:unit / b', 'OK', 'ok 1')), [3, 0, 0])

    def test_words_in_front_of_a_bad_point_are_shown(self):
        notes = [f'# note {n}' for n in range(20)]
        self.assertEqual(
            self.summary.bad_points(['1..1', *notes, 'not ok 1 - bad']),
            ['not ok 1 - bad', '# said before:', *notes[-self.summary.BEFORE_LINES:]])
        # after its own text, once each, and not for points that passed
        self.assertEqual(
            self.summary.bad_points([
                'ok 1', '# front of 2', 'ok 2', '# front of 3', 'not ok 3', '# of 3', '  yaml: 3',
                'not ok 4', '# of 4', 'ok 5', '# front of 6', 'noise', 'not ok 6 # TODO',
                '# front of 7', 'not ok 7']),
            ['not ok 3', '# of 3', '  yaml: 3', '# said before:', '# front of 3',
             'not ok 4', '# of 4', 'not ok 7', '# said before:', '# front of 7'])

    def test_what_failed_is_repeated_before_the_last_line(self):
        bad = '\n'.join(['1..3', '# of no interest', 'ok 1 - good', '# in front', 'not ok 2 - bad',
                         '# its words', 'ok 3', *['# long' for _ in range(self.summary.END_LINES)]])
        with tempfile.TemporaryDirectory() as folder:
            os.environ['KARST_RESULTS'] = folder
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    self.run_of_meson(folder, ('karst:unit / a', 'FAIL', bad),
                                      ('karst:unit / b', 'FAIL', '\n'.join(
                                          f'line {n}' for n in range(79))))
            finally:
                del os.environ['KARST_RESULTS']
            with open(os.path.join(folder, 'build-test.out'), 'w', encoding='utf-8') as f:
                f.write('error: missing ;\nkarst-setup: ninja failed\n')
            with open(os.path.join(folder, 'docs.out'), 'w', encoding='utf-8') as f:
                f.write('all is well\n')
            _, lines = self.total(folder)
        start = next(n for n, line in enumerate(lines) if line.startswith('what failed'))
        self.assertEqual(lines[start + 1:start + 7], [
            '--- karst:unit / a: FAIL, exit status 1, 1 failed', '    not ok 2 - bad',
            '    # its words', '    # said before:', '    # in front',
            '--- karst:unit / b: FAIL, exit status 1, 1 failed'])
        self.assertIn('    line 0', lines)
        self.assertIn(f'    ... {80 - self.summary.END_LINES // 3} lines more, and the last of them:',
                      lines)
        self.assertIn('    line 78', lines)
        self.assertEqual(lines[-4:], ['--- step build-test', '    error: missing ;',
                                      '    karst-setup: ninja failed',
                                      '15 passed, 2 failed, 1 skipped'])


    def test_good_points_go_before_what_is_bad(self):
        block = ['--- t: ERROR', *(f'    ok {n} - good' for n in range(80)), '    Traceback:',
                 '    ProcessLookupError']
        self.assertEqual(self.summary.shorten(block, 8),
                         ['--- t: ERROR', '    Traceback:', '    ProcessLookupError'])
        self.assertEqual(self.summary.shorten(block, len(block)), block)


class Threads(unittest.TestCase):
    """of_threads() of test/common/bed.py"""

    def test_a_thread_that_ends_is_none_of_them(self):
        with unittest.mock.patch.object(sys, 'path', [os.path.join(ROOT, 'test', 'common'),
                                                      *sys.path]):
            bed = importlib.import_module('bed')
        go_on = threading.Event()
        thread = threading.Thread(target=go_on.wait)
        thread.start()
        task = f'/proc/self/task/{thread.native_id}'
        real_open = open

        def open_and_end(path, **words):
            f = real_open(path, **words)
            if path.startswith(task):
                go_on.set()
                thread.join()
                while os.path.exists(task):
                    time.sleep(0.001)
            return f
        with unittest.mock.patch('builtins.open', open_and_end):
            found = [number for number, _ in bed.of_threads('self', 'status')]
        self.assertIn(threading.get_native_id(), found)
        self.assertTrue(go_on.is_set())
        self.assertNotIn(thread.native_id, found)


SOURCE = '''/* SPDX-License-Identifier: BSD-3-Clause */
/* About the file (W1). */
#include "x.h"

/* Not next to anything (W2). */

/* In front of a function (R3..R5). */
static int
first(int a)
{
	/* inside, by rule Q2; the L1 cache is no rule, (L7) is one; C11 is none */
	return a;
}

struct second {
	int x; /* W6, W7 */
};

KARST_DROP_REASON(THIRD, "third", "text (W9)")
'''
CASES_SOURCE = '''# SPDX-License-Identifier: BSD-3-Clause
"""Cases."""
CASES = [
    Case('one', 'program', both=['x'], rules='W1'),
    perf('not ready', '-a',
         rules='R8 Q7'),
    script('U1 W9', f'neither', 'w/o'),
]
'''
TEST_SOURCE = '''/* SPDX-License-Identifier: BSD-3-Clause */
Test(responder, r5_replays_an_atomic)
{
	/* Q4 to Q6 */
}
'''


class Conformance(unittest.TestCase):
    """conformance.py"""

    def setUp(self):
        self.conformance = load('conformance.py')

    def cited(self, text):
        found = {}
        for rule, owner in self.conformance.Source('x.c', text).cited():
            found.setdefault(rule, set()).add(owner)
        return found

    def test_code(self):
        self.assertEqual(self.cited(SOURCE), {
            'W1': {None}, 'W2': {None}, 'R3': {'first'}, 'R4': {'first'}, 'R5': {'first'},
            'Q2': {'first'}, 'L7': {'first'}, 'W6': {'second'}, 'W7': {'second'},
            'W9': {'THIRD'}})

    def test_tests(self):
        name = 'r5_replays_an_atomic'
        self.assertEqual(self.cited(TEST_SOURCE), {rule: {name}
                                                   for rule in ('R5', 'Q4', 'Q5', 'Q6')})

    def test_status(self):
        status = self.conformance.status
        code, test = {'lib/qp/rx.c': ['f']}, {'test/unit/qp/t.c': ['g']}
        self.assertEqual(status('R1', code, test), 'implemented')
        self.assertEqual(status('R1', code, None), 'no test')
        self.assertEqual(status('R1', None, test), 'no code')
        self.assertEqual(status('R1', {self.conformance.NO_PROOF: ['R']}, test), 'no code')
        with unittest.mock.patch.dict(self.conformance.NOT_YET, {'R1': 'its part is not there'}):
            self.assertEqual(status('R1', code, test), 'not yet: its part is not there')

    def test_kinds_of_tests(self):
        kind_of = self.conformance.kind_of
        self.assertEqual([kind_of(path) for path in (
            'test/unit/qp/rnr.c', 'test/karstd/life.py', 'test/sim/wire.c',
            'test/replay/requester.c', 'test/interop/cases_x.py')],
            ['unit', 'unit', 'sim', 'captures', 'interop'])

    def test_cases(self):
        source = self.conformance.Source('test/interop/cases_x.py', CASES_SOURCE)
        self.assertEqual(sorted(set(source.cited())), [
            ('Q7', 'not ready'), ('R8', 'not ready'), ('U1', 'neither'), ('W1', 'one'),
            ('W9', 'neither')])

    def test_holes(self):
        holes, rules = self.conformance.holes, {'R1': '', 'U3': '', 'E2': '', 'L1': ''}
        self.assertEqual(holes(rules, {}, 'interop'), [])
        self.assertEqual(holes(rules, {}, 'captures'),
                         ['R1: no test cites it, and WHY has no reason'])
        cited = {rule: {'test/replay/x.c': ['f']} for rule in ('R1', 'U3')}
        self.assertEqual(holes(rules, cited, 'captures'),
                         ['U3: delete its reason from WHY, test/replay/x.c cites it'])

    def test_mutants_stand_for_the_simulator(self):
        self.assertIn('dup-atomic', self.conformance.mutants(ROOT)['R5'])
        found = self.conformance.collect_tests(ROOT)['R5']
        self.assertIn('dup-atomic', found['test/sim/mutants.py'])

    def test_every_rule_of_the_document_is_read(self):
        rules = self.conformance.read_rules(ROOT)
        for letter, last in zip('WPQRUCESL', (10, 3, 10, 14, 4, 2, 2, 5, 11)):
            for number in range(1, last + 1):
                self.assertIn(f'{letter}{number}', rules)


class Steps(unittest.TestCase):
    """run-suites.py, with a script in place of karst-setup"""

    def setUp(self):
        self.work = tempfile.TemporaryDirectory(prefix='karst-tools-')
        self.folder = self.work.name
        self.program = os.path.join(self.folder, 'setup')

    def tearDown(self):
        self.work.cleanup()

    def start(self, script, *suites):
        """Starts it.  @script gets the step's name in $2; no packages count as missing."""
        if 'packages' not in script:
            script = f'[ $2 = packages ] && exit\n{script}'
        with open(self.program, 'w', encoding='utf-8') as f:
            f.write(f'#!/bin/bash\ncd {self.folder}\n{script}\n')
        os.chmod(self.program, 0o755)
        return subprocess.Popen([os.path.join(ROOT, 'usertools', 'run-suites.py'), self.program,
                                 self.folder, *suites], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run_all(self, script, *suites):
        runner = self.start(script, *suites)
        return runner.communicate()[0], runner.returncode

    def test_outputs_are_whole_and_in_the_order_asked_for(self):
        text, status = self.run_all(
            '[ $2 = verbs ] && until [ -e last ]; do sleep 0.01; done\n'
            'echo $2 begins; sleep 0.05; echo $2 ends; [ $2 != cross ] || >last', 'verbs', 'cross')
        self.assertEqual(status, 0)
        at = [text.index(f'{name} {what}') for name in ('build-test', 'verbs', 'cross')
              for what in ('begins', 'ends') if name in text]
        self.assertEqual(len(at), 6)
        self.assertEqual(at, sorted(at))

    def test_a_build_comes_first_and_once(self):
        self.run_all('echo $2 >>log', 'verbs', 'unit', 'sim')
        with open(os.path.join(self.folder, 'log'), encoding='utf-8') as f:
            names = f.read().split()
        self.assertEqual(names[:2], ['configure-test', 'build-test'])
        self.assertEqual(sorted(names[2:]), ['sim', 'unit', 'verbs'])

    def test_packages_are_installed_beside_builds_and_before_suites(self):
        text, status = self.run_all('''
            [ $2 = configure-test ] && exit
            [ $2 != verbs ] || [ -e installed ] || echo too early
            >$2
            [ $2 != packages ] || { until [ -e build-test ]; do sleep 0.01; done; >installed; }''',
                                    'verbs')
        self.assertEqual(status, 0)
        self.assertNotIn('too early', text)

    def test_a_failure_is_told_and_the_rest_is_run(self):
        text, status = self.run_all('echo word of $2; [ $2 != build-test ]', 'unit', 'verbs')
        self.assertEqual(status, 1)
        for name in ('build-test', 'unit', 'verbs'):
            self.assertIn(f'word of {name}', text)

    def test_two_suites_of_one_folder_are_not_side_by_side(self):
        runner = load('run-suites.py').Runner(self.program, self.folder, ['fuzz'])
        runner.room[False] = 2
        runner.todo = ['fuzz']
        self.assertEqual(runner.next(False), 'fuzz')
        runner.running = [types.SimpleNamespace(name='sanitize')]
        self.assertIsNone(runner.next(False))

    def test_what_waits_is_beside_what_computes(self):
        script = '''
            [ $2 = configure-test ] && exit
            >$2
            until [ -e fresh ] && [ -e model ]; do sleep 0.01; done'''
        self.assertEqual(self.run_all(script, 'fresh', 'model')[1], 0)

    def test_interrupted_it_leaves_no_process(self):
        # a process that ignores SIGTERM, in a session of its own, whose parent has ended
        runner = self.start('''
            (setsid bash -c 'trap "" TERM; echo $$ >$0; exec sleep 1000' pid &)
            sleep 1000''', 'cross')
        path = os.path.join(self.folder, 'pid')
        while not os.path.exists(path) or os.path.getsize(path) == 0:
            self.assertIsNone(runner.poll())
        with open(path, encoding='utf-8') as f:
            pid = f.read().strip()
        runner.send_signal(signal.SIGINT)
        runner.send_signal(signal.SIGTERM)
        runner.communicate()
        self.assertIn(runner.returncode, (128 + signal.SIGINT, 128 + signal.SIGTERM))
        self.assertFalse(os.path.exists(f'/proc/{pid}'))

    def test_unknown_suites_are_refused(self):
        self.assertEqual(self.run_all('', 'unti')[1], 2)

    def test_the_table_has_all_suites(self):
        steps = load('run-suites.py').STEPS
        with open(os.path.join(ROOT, 'usertools', 'karst-setup'), encoding='utf-8') as f:
            suites = re.search('^all_suites="(.*)"$', f.read(), re.M).group(1).split()
        others = {'packages', 'configure-test', 'build-test'}
        self.assertEqual(sorted(set(steps) - others), sorted(suites))


class Setup(unittest.TestCase):
    """karst-setup"""

    def refused(self, *words):
        """Exit status 2, the wrong word and the allowed ones on stderr."""
        run = subprocess.run([os.path.join(ROOT, 'usertools', 'karst-setup'), *words],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             check=False)
        self.assertEqual((run.returncode, run.stdout), (2, ''))
        self.assertIn(words[-1], run.stderr)
        return run.stderr

    def test_wrong_words(self):
        for words in (['polish'], ['test', 'unti'], ['demo', '--fast'], ['deps', 'everything'],
                      ['soak', 'wet'], ['bench', '--slow']):
            self.assertIn('allowed: ', self.refused(*words))
        self.assertIn('1 to 99999', self.refused('soak', '--minutes', '-3'))
        self.assertIn('A..B', self.refused('soak', '--seeds', '7'))

    def test_help(self):
        for words in ([], ['demo'], ['test'], ['deps'], ['soak'], ['bench']):
            run = subprocess.run(
                [os.path.join(ROOT, 'usertools', 'karst-setup'), *words, '--help'],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((run.returncode, run.stderr), (0, ''))
            self.assertTrue(run.stdout.startswith('usage: karst-setup'))

    def test_interrupted_while_it_installs(self):
        """Servers that are installed later start as usual: policy-rc.d is removed."""
        unshare = ['unshare', '--mount', *([] if os.geteuid() == 0 else ['--map-root-user'])]
        if subprocess.run([*unshare, 'true'], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest('no mount namespaces')
        with tempfile.TemporaryDirectory() as d:
            begun, sbin = os.path.join(d, 'begun'), os.path.join(d, 'sbin')
            os.mkdir(sbin)
            for name, text in (('apt-get', f'case "$*" in *install*) : >{begun}; sleep 600;; esac'),
                               ('dpkg-query', 'true')):
                with open(os.path.join(d, name), 'w', encoding='utf-8') as f:
                    f.write(f'#!/bin/sh\n{text}\n')
                os.chmod(f.name, 0o755)
            script = (f'mount --bind {sbin} /usr/sbin && mount --bind {d}/apt-get /usr/bin/apt-get && '
                      f'mount --bind {d}/dpkg-query /usr/bin/dpkg-query && exec "$@"')
            setup = subprocess.Popen(
                [*unshare, 'sh', '-c', script, '-', os.path.join(ROOT, 'usertools', 'karst-setup'), 'deps'],
                stdout=subprocess.DEVNULL, start_new_session=True)
            while not os.path.exists(begun) and setup.poll() is None:
                time.sleep(0.02)
            self.assertEqual(os.listdir(sbin), ['policy-rc.d'])
            os.killpg(setup.pid, signal.SIGTERM)
            self.assertEqual(setup.wait(), 143)
            self.assertEqual(os.listdir(sbin), [])


STOPPED = 'as L16 says'


class LinuxStops(unittest.TestCase):
    """interop_bed.py"""

    def setUp(self):
        sys.path.insert(0, os.path.join(ROOT, 'test', 'interop'))
        import interop_bed
        self.bed = interop_bed
        self.wire = interop_bed.Wire.__new__(interop_bed.Wire)
        self.wire.last = {}
        self.clock = unittest.mock.Mock(stood_still=lambda s: 0)

    def stopped(self, guest, karst, said='item 41: cas ends with WR_FLUSH_ERR (vendor 0), not OK', role='server'):
        """@guest, @karst: how many seconds ago each last sent something."""
        now = time.monotonic()
        self.wire.last = {'guest': now - guest, 'karst': now - karst}
        programs = [unittest.mock.Mock(), unittest.mock.Mock(text=lambda: said)]
        bed = unittest.mock.Mock(wire=self.wire)
        return self.bed.linux_stopped(bed, unittest.mock.Mock(wire=['a rule']), role, programs)

    def test_silent_with_requests_that_are_answered(self):
        self.assertTrue(self.stopped(120, 119.9))

    def test_karst_has_not_answered(self):
        self.assertFalse(self.stopped(119.9, 120))

    def test_still_sending(self):
        self.assertFalse(self.stopped(4, 3.9))

    def test_nothing_left(self):
        self.assertFalse(self.stopped(120, 119.9, said='no completion in the receive queue within 120 s'))

    def test_karst_asks(self):
        self.assertFalse(self.stopped(120, 119.9, role='client'))

    def runs(self, *results):
        """(problems at the end, number of runs) for runs with these @results."""
        bed = unittest.mock.Mock(clock=self.clock)
        with unittest.mock.patch.object(self.bed, 'run_once', side_effect=results) as once, \
                contextlib.redirect_stdout(io.StringIO()) as out:
            problems = self.bed.run(bed, unittest.mock.Mock(), 'wire', 'server', 'ip4')
        self.assertEqual('as L16 says' in out.getvalue(), results[0][1] is not None)
        return problems, once.call_count

    def test_once_more(self):
        self.assertEqual(self.runs((['it stopped'], STOPPED), ([], None)), ([], 2))

    def test_not_twice(self):
        self.assertEqual(self.runs((['it stopped'], STOPPED), (['again'], STOPPED)), (['again'], 2))

    def test_another_failure(self):
        self.assertEqual(self.runs((['bytes are wrong'], None)), (['bytes are wrong'], 1))


class ReadsRefused(unittest.TestCase):
    """cases_nvme.py and wire.py: a host may connect once more for each READ that Linux refuses."""

    def setUp(self):
        sys.path.insert(0, os.path.join(ROOT, 'test', 'interop'))
        import cases_nvme
        import wire
        self.enough = cases_nvme.enough
        self.wire = wire.Wire.__new__(wire.Wire)
        self.wire.last, self.wire.refused = {}, collections.Counter()
        self.wire.pcap = self.wire.end = None
        self.wire.rules, self.wire.held, self.wire.lock = (), [], threading.Lock()
        self.wire.put = lambda to, frame: None

    @staticmethod
    def frame(opcode, syndrome):
        ip = bytes([0x45]) + bytes(8) + bytes([17]) + bytes(10)
        udp = struct.pack('>4H', 50000, 4791, 28, 0)
        aeth = bytes([syndrome]) + bytes(3)
        return bytes(12) + b'\x08\x00' + ip + udp + bytes([opcode]) + bytes(11) + aeth + bytes(4)

    def test_what_is_counted(self):
        for source, opcode, syndrome in (('guest', 0x11, 0x62), ('guest', 0x11, 0x60), ('guest', 0x11, 0x1f),
                                         ('guest', 0x10, 0x62), ('karst', 0x11, 0x62)):
            self.wire.take(source, self.frame(opcode, syndrome))
        self.assertEqual(self.wire.refused, {'guest': 1, 'karst': 1})

    def test_what_is_enough(self):
        for made, refused, right in ((2, 0, True), (4, 0, False), (4, 1, True), (2, 1, True), (6, 1, False),
                                     (3, 1, False), (0, 1, False)):
            self.assertEqual(self.enough(made, 2, refused), right)


class Tap(unittest.TestResult):
    """Prints one point for each test."""

    def startTest(self, test):
        super().startTest(test)
        self.point = f'{self.testsRun} - {test.id().split(".", 1)[-1]}'

    def addSuccess(self, test):
        print(f'ok {self.point}')

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.show(self.failures[-1][1])

    def addSkip(self, test, reason):
        print(f'ok {self.point} # SKIP {reason}')

    def addError(self, test, err):
        super().addError(test, err)
        self.show(self.errors[-1][1])

    def show(self, trace):
        print(f'not ok {self.point}')
        for line in trace.splitlines():
            print(f'# {line}')


def main(argv):
    global ROOT
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    ROOT = argv[1]
    sys.dont_write_bytecode = True
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules['__main__'])
    print(f'1..{suite.countTestCases()}')
    result = Tap()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv))
