#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Python's own tests of sockets over SMC-R, compared with TCP: python.py BUILD [MODULE...] (TAP; as
root).

Debian's libpython3.11-testsuite, run by Debian's Python.  A test that passes over TCP has to pass
behind karst-run --smc, except those that python.txt lists.  TCP has its own network namespace, so
that both run at the same time.  Some of these tests have time limits: a test that fails is repeated
alone, together with TCP, and counts as failed if it fails each time.  A run during which the
machine delayed runnable threads does not count.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smcbed import CONF, HERE, bed, run  # noqa: E402

PYTHON = '/usr/bin/python3'
AGAIN, STILL_S = 3, 0.02
LEAST = 500 # connections of all modules together


def plan():
    """([(module, patterns)], {ID: reason})"""
    modules, exceptions = [], {}
    with open(os.path.join(HERE, 'python.txt'), encoding='utf-8') as f:
        for line in f:
            words = line.split(None, 2)
            if words and words[0] == 'run':
                modules.append((words[1], words[2].strip() if len(words) > 2 else ''))
            elif words and words[0] == 'but':
                exceptions[words[1]] = words[2].strip()
    return modules, exceptions


def results(path):
    """@return {ID: the worst result that was reported}"""
    found = {}
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            for line in f:
                name, what = line.rstrip('\n').rsplit(' ', 1)
                if found.get(name) != 'failed':
                    found[name] = what
    return found


class Run:
    """A run of one module, over TCP or SMC-R."""

    def __init__(self, suite, daemon, module, patterns):
        self.path = os.path.join(suite.folder, f'{module}.{"smc" if daemon else "tcp"}')
        if os.path.exists(self.path):
            os.unlink(self.path)
        command = [PYTHON, os.path.join(HERE, 'prog_python.py'), self.path,
                   module + (':' + patterns if patterns else '')]
        if daemon:
            command = [suite.run, '--smc', '--socket', daemon.socket, *command]
        else:
            command = ['unshare', '-n', 'sh', '-c', 'ip link set lo up && exec "$@"', '-', *command]
        with open(self.path + '.log', 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        suite.programs.append(self.process)

    def results(self):
        self.process.wait()
        return results(self.path)

    def said(self, name):
        """@return the output of a failed test, given its short name"""
        with open(self.path + '.log', encoding='utf-8', errors='replace') as log:
            parts = log.read().split('=' * 70 + '\n')
        return [part for part in parts[1:] if f'({name})' in part][:1]


def both(suite, one, module, patterns):
    """@return (IDs that passed over TCP, those of them that failed over SMC-R, with their
    output)"""
    tcp, smc = Run(suite, None, module, patterns), Run(suite, one, module, patterns)
    passed = {name for name, what in tcp.results().items() if what == 'passed'}
    got = smc.results()
    return passed, {name: [got.get(name, 'did not run'), *smc.said(name)]
                    for name in sorted(passed) if got.get(name) != 'passed'}


def again(suite, one, module, name, said):
    """Repeats a test that has failed with output @said.  @return the output; nothing if the test
    passes in the end"""
    began, clock, left = time.monotonic(), bed.Clock(), AGAIN
    while said and left and time.monotonic() - began < bed.HANG_S:
        suite.tap.note(f'{name}: {said[0]}; once more')
        clock.stood_still(0)
        said = both(suite, one, module, name[len('test.' + module) + 1:])[1].get(name)
        left -= not clock.stood_still(STILL_S)
    clock.stop()
    return said


def module_point(suite, one, module, patterns, exceptions):
    passed, bad = both(suite, one, module, patterns)
    problems, excepted = [] if passed else ['nothing passes over TCP'], 0
    for name, said in bad.items():
        if name in exceptions:
            excepted += 1
            continue
        said = again(suite, one, module, name, said)
        if said:
            problems += [name, *said]
    suite.tap.point(f'{module}: {len(passed)} pass over TCP, and over SMC-R but {excepted}', problems)


def test(suite):
    modules, exceptions = plan()
    one, problems = suite.daemon('one', CONF)
    suite.tap.point('a daemon with [smc]', problems)
    for module, patterns in modules:
        if not sys.argv[2:] or module in sys.argv[2:]:
            module_point(suite, one, module, patterns, exceptions)
    opened = suite.count(one, 'opened')
    if not sys.argv[2:]:
        suite.tap.point('these were connections of the service', [] if opened >= LEAST else [opened])
    suite.tap.point('it ends', one.stop())


def main(argv):
    if subprocess.run([PYTHON, '-c', 'import test.test_socket'], check=False).returncode != 0:
        tap = bed.Tap()
        tap.point("Python's tests are installed", ['Debian: libpython3.11-testsuite'])
        return tap.finish()
    return run(argv[1], test)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
