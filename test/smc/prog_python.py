#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Runs tests of Python's own: prog_python.py RESULTS MODULE[:PATTERN,...]...

Writes a line "ID passed|failed|skipped|begun" to the file RESULTS as each test begins and ends.  A
pattern is one of fnmatch, for the part of a test's ID after the module; with ! before it, it
excludes tests.
"""
import faulthandler
import fnmatch
import gc
import sys
import unittest

from test import support

HANG_S = 300


class Result(unittest.TextTestResult):
    def __init__(self, *args, to=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.to = to
        self.bad = False

    def note(self, test, what):
        print(test.id(), what, file=self.to, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.bad = False
        self.note(test, 'begun')
        faulthandler.dump_traceback_later(HANG_S, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, 'passed')

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, 'failed')

    addFailure = addUnexpectedSuccess = addError

    def addFailure(self, test, err): # pylint: disable=function-redefined
        super().addFailure(test, err)
        self.note(test, 'failed')

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, 'failed')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, 'skipped')


def every(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from every(test)
        else:
            yield test


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def chosen(module, patterns):
    found = unittest.defaultTestLoader.loadTestsFromName('test.' + module)
    for test in every(found):
        name = test.id()[len('test.' + module) + 1:]
        if matches(name, [p for p in patterns if p[0] != '!'] or ['*']) and not matches(
                name, [p[1:] for p in patterns if p[0] == '!']):
            yield test


def main(argv):
    support.use_resources = ['network'] # enables connections within this machine
    support.verbose = 0
    # how long tests wait for what should come; to be set before they are loaded
    support.LOOPBACK_TIMEOUT = support.INTERNET_TIMEOUT = support.SHORT_TIMEOUT = support.LONG_TIMEOUT = HANG_S
    suite = unittest.TestSuite()
    for word in argv[2:]:
        module, _, patterns = word.partition(':')
        suite.addTests(chosen(module, patterns.split(',') if patterns else ['*']))
    # asyncio's tests collect garbage three times after each test, and would scan all modules
    gc.collect()
    gc.freeze()
    with open(argv[1], 'w', encoding='utf-8') as to:
        runner = unittest.TextTestRunner(
            verbosity=2, resultclass=lambda *args, **kwargs: Result(*args, to=to, **kwargs))
        runner.run(suite)


if __name__ == '__main__':
    main(sys.argv)
