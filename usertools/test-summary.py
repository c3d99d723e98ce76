#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Counts what test runs said.

  test-summary.py meson BUILD LOGBASE   "PASSED FAILED SKIPPED" of one run of meson test; what
                                        failed is explained on stderr
  test-summary.py tap FILE              the same of one TAP stream
  test-summary.py total FILE            FILE has "NAME... PASSED FAILED SKIPPED SECONDS" lines:
                                        prints them, what failed and what it said, and the sum as
                                        the line that ends karst-setup test; exit status 1 if
                                        anything failed

What failed is explained at once, and for the end it is kept in the folder $KARST_RESULTS, which is
FILE's.

A TAP program counts by its points: each "ok" or "not ok", each point that the plan promised
and that never came (failed).  Any other program counts as one.  A program that ended badly
though all its points were good (it crashed at exit, say) is one more failure, and so is a run
without any test: silence is not success.
"""
import glob
import json
import os
import re
import sys

POINT = re.compile(r'^(not )?ok\b(?:\s+(\d+))?(.*)$')
PLAN = re.compile(r'^1\.\.(\d+)(?:\s*#\s*(skip)\b.*)?$', re.IGNORECASE)
MOST_LINES = 80
END_LINES = 90 # of all failures, at the end; but of each at least the next number
END_LINES_EACH = 8
END_LINES_LAST = 3 # of these: the last lines of a traceback give the error
BEFORE_LINES = 12 # of comments before a failed point
FAILURES = 'failures'
DIRECTIVE = re.compile(r'#\s*(skip|todo)', re.IGNORECASE)


def count_tap(text):
    """The points of a TAP stream: [passed, failed, skipped]; None if it is no TAP."""
    passed = failed = skipped = 0
    planned = None
    bailed = False
    for line in text.splitlines():
        plan = PLAN.match(line)
        if plan:
            planned = int(plan.group(1))
            if planned == 0:
                skipped += 1
            continue
        if line.startswith('Bail out!'):
            bailed = True
            continue
        point = POINT.match(line)
        if not point:
            continue
        directive = DIRECTIVE.search(point.group(3))
        if directive and directive.group(1).lower() == 'skip':
            skipped += 1
        elif directive or not point.group(1):
            passed += 1
        else:
            failed += 1
    if planned is None and passed + failed + skipped == 0:
        return None
    if planned:
        failed += max(0, planned - passed - failed - skipped)
    if bailed or planned is None:
        failed += 1
    return [passed, failed, skipped]


def count_meson_test(result, text, is_tap):
    """One line of meson's testlog: [passed, failed, skipped]."""
    good = result in ('OK', 'EXPECTEDFAIL')
    if is_tap:
        counts = count_tap(text)
        if counts is None:
            counts = [0, 0, 0]
            if result == 'SKIP':
                counts[2] = 1
            else:
                counts[1] = 1
        if not good and result != 'SKIP' and counts[1] == 0:
            counts[1] = 1
        return counts
    if result == 'SKIP':
        return [0, 0, 1]
    return [1, 0, 0] if good else [0, 1, 0]


def bad_points(lines):
    """TAP points that are not ok, each with the comments and YAML after it, followed by the last comments
    before it: programs in C print the reason before the result.  Lines after a failed point are not
    repeated as lines before the next one."""
    shown = []
    before = [] # of the next point
    last = [] # what to show after the words of a failed point
    bad = False
    for line in lines:
        point = POINT.match(line)
        if point:
            shown += last
            bad = bool(point.group(1)) and not DIRECTIVE.search(point.group(3))
            last = ['# said before:', *before[-BEFORE_LINES:]] if bad and before else []
            before = []
            if bad:
                shown.append(line)
        elif bad and line.startswith((' ', '#')):
            shown.append(line)
        elif line.startswith('#'):
            before.append(line)
    return shown + last


def keep_failure(lines):
    """Keeps a failure for the summary at the end, if there is one."""
    folder = os.environ.get('KARST_RESULTS')
    if folder:
        with open(os.path.join(folder, FAILURES), 'a', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')


def show_failure(name, run, counts):
    """The output of a failed test: its failed points, or its last lines."""
    text = (run.get('stdout') or '').splitlines()
    shown = bad_points(text)[:MOST_LINES] or text[-MOST_LINES:]
    shown += (run.get('stderr') or '').splitlines()[-MOST_LINES:]
    block = [f'--- {name}: {run["result"]}, exit status {run["returncode"]}, {counts[1]} failed',
             *(f'    {line}' for line in shown if line and not line.startswith('(test program'))]
    print('\n'.join(block), file=sys.stderr)
    keep_failure(block)


def count_meson(build, logbase):
    """The run of meson test in BUILD that logged to LOGBASE."""
    with open(os.path.join(build, 'meson-info', 'intro-tests.json'), encoding='utf-8') as f:
        tap_names = {test['name'] for test in json.load(f) if test['protocol'] == 'tap'}
    total = [0, 0, 0]
    with open(os.path.join(build, 'meson-logs', logbase + '.json'), encoding='utf-8',
              errors='replace') as f:
        for line in f:
            run = json.loads(line)
            name = run['name'].split(' / ', 1)[-1]
            counts = count_meson_test(run['result'], run.get('stdout') or '', name in tap_names)
            if counts[1]:
                show_failure(run['name'], run, counts)
            total = [a + b for a, b in zip(total, counts)]
    return total


def print_counts(counts, what):
    if sum(counts) == 0:
        print(f'test-summary: no test ran in {what}', file=sys.stderr)
        counts = [0, 1, 0]
    print(*counts)


def count_tap_file(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        text = f.read()
    counts = count_tap(text) or [0, 0, 0]
    if counts[1]:
        keep_failure([f'--- {os.path.basename(path)}: {counts[1]} failed',
                      *(f'    {line}' for line in bad_points(text.splitlines()))])
    return counts


def failures(folder):
    """[[line]]: the output of failed tests, and of steps that karst-setup has ended itself."""
    blocks = []
    path = os.path.join(folder, FAILURES)
    if os.path.exists(path):
        with open(path, encoding='utf-8', errors='replace') as f:
            for line in f.read().splitlines():
                if line.startswith('--- ') or not blocks:
                    blocks.append([])
                blocks[-1].append(line)
    for path in sorted(glob.glob(os.path.join(folder, '*.out'))):
        with open(path, encoding='utf-8', errors='replace') as f:
            lines = f.read().splitlines()
        if any(line.startswith('karst-setup: ') for line in lines):
            name = os.path.basename(path)[:-len('.out')]
            # the error is the last line, and its context is above it
            blocks.append([f'--- step {name}', *(f'    {line}' for line in lines[-20:])])
    return blocks


def shorten(block, most):
    """At most @most lines of the output of a test: first its passed points are left out, then its
    middle."""
    if len(block) > most:
        points = [POINT.match(line.strip()) for line in block]
        block = [line for line, point in zip(block, points) if not point or point.group(1)]
    if len(block) <= most:
        return block
    first, last = block[:most - END_LINES_LAST], block[-END_LINES_LAST:]
    return [*first, f'    ... {len(block) - most} lines more, and the last of them:', *last]


def print_failures(folder):
    blocks = failures(folder)
    if not blocks:
        return
    most = max(END_LINES_EACH, END_LINES // len(blocks))
    print('\nwhat failed, and most of what it said; all of it is above:')
    for block in blocks:
        print('\n'.join(shorten(block, most)))


def print_total(path):
    total = [0, 0, 0]
    with open(path, encoding='utf-8') as f:
        for line in f:
            words = line.split()
            counts = [int(word) for word in words[-4:-1]]
            name = ' '.join(words[:-4])
            print(f'{name:32} {counts[0]:6} passed {counts[1]:4} failed {counts[2]:4} skipped '
                  f'{words[-1]:>5} s')
            total = [a + b for a, b in zip(total, counts)]
    print_failures(os.path.dirname(path))
    print(f'{total[0]} passed, {total[1]} failed, {total[2]} skipped')
    return 1 if total[1] or not total[0] else 0


def main(argv):
    if len(argv) == 4 and argv[1] == 'meson':
        try:
            print_counts(count_meson(argv[2], argv[3]), argv[3])
        except (OSError, ValueError, KeyError) as e:
            print(f'test-summary: {argv[2]}: {e}', file=sys.stderr)
            print(0, 1, 0)
        return 0
    if len(argv) == 3 and argv[1] == 'tap':
        print_counts(count_tap_file(argv[2]), argv[2])
        return 0
    if len(argv) == 3 and argv[1] == 'total':
        return print_total(argv[2])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == '__main__':
    sys.exit(main(sys.argv))
