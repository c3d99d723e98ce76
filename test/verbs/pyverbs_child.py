#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Runs the tests of one file of rdma-core, unchanged: pyverbs_child.py TESTS FILE DEVICE GID SEED
OUT [DONE...]

TESTS is the folder with the package "tests".  All tests except those named DONE are run, each with
a seed of its own, so that a test does the same when it is run alone.  The program writes lines of
JSON to OUT: first the list of all tests; then for each test its name when it begins, and its result
when it ends.
"""
import importlib
import json
import os
import random
import sys
import types
import unittest


class Result(unittest.TestResult):
    """Writes the result of each test at once, because the next test may end the process."""

    def __init__(self, seed, out):
        super().__init__()
        self.seed = seed
        self.out = out
        self.owner = os.getpid()

    def write(self, **words):
        if os.getpid() == self.owner: # not in a child that a test has forked
            self.out.write(json.dumps(words) + '\n')
            self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        random.seed(f'{self.seed} {test.id()}')
        self.write(test=test.id(), result='begun')

    def addSuccess(self, test):
        self.write(test=test.id(), result='passed')

    def addSkip(self, test, reason):
        self.write(test=test.id(), result='skipped', text=reason)

    def failed(self, test, err):
        # may follow another result, if the cleanup after the test fails: the last one counts
        self.write(test=test.id(), result='failed', text=self._exc_info_to_string(err, test))

    def addError(self, test, err):
        # the machine has less memory than the test needs; huge pages may be taken at any moment
        if issubclass(err[0], MemoryError) or 'Failed to allocate MR buffer' in str(err[1]):
            self.addSkip(test, str(err[1]))
        else:
            self.failed(test, err)

    def addFailure(self, test, err):
        self.failed(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.failed(test, err)

    def addExpectedFailure(self, test, err):
        self.write(test=test.id(), result='passed')

    def addUnexpectedSuccess(self, test):
        self.write(test=test.id(), result='failed', text='it was expected to fail, and has not')


def load(folder, name, device, gid):
    """@return the suite of one file.  Its package is used as it is, but without its __init__.py,
    which loads all files."""
    sys.path[:0] = [folder, os.path.join(folder, 'tests')]
    package = types.ModuleType('tests')
    package.__path__ = [os.path.join(folder, 'tests')]
    sys.modules['tests'] = package
    parser = importlib.import_module('args_parser').parser
    sys.argv[1:] = ['--dev', device, '--gid', gid]
    parser.parse_args()
    module = importlib.import_module(f'tests.{name}')
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def main(argv):
    if len(argv) < 7:
        print(__doc__, file=sys.stderr)
        return 2
    folder, name, device, gid, seed, out = argv[1:7]
    done = set(argv[7:])
    random.seed(seed)
    with open(out, 'a', encoding='utf-8') as f:
        result = Result(seed, f)
        tests = [t for t in each(load(folder, name, device, gid)) if t.__module__ == f'tests.{name}']
        result.write(tests=[t.id() for t in tests])
        unittest.TestSuite(t for t in tests if t.id() not in done).run(result)
        result.write(end=True)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
