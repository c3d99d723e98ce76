#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Two builds of karst beside each other, for "before and after".

usage: compare-builds.py [--pairs N] [--duration S] [--only WORD] BEFORE AFTER

BEFORE and AFTER are build directories (both release builds).  Each case is run by the karst-perf of
one and of the other by turns, N pairs of them (default 15), the first of a pair changing, so that both
see the same machine; a pair's ratio is AFTER / BEFORE.  Printed: the median of the ratios, the middle
half of them, and the median figures.  Wants an otherwise idle machine; judges nothing.
Exit status: 0; 1 if a run failed; 2 wrong arguments.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# (name, arguments, figure); more is better for all of them
CASES = [
    ('embedded, 64 KiB WRITE', '--op write --size 64K', 'gbps'),
    ('embedded, 64 KiB READ', '--op read --size 64K', 'gbps'),
    ('embedded, 64 KiB SEND', '--op send --size 64K', 'gbps'),
    ('embedded, 64 B WRITE', '--op write --size 64', 'mops'),
    ('attached, 64 KiB WRITE', '--daemon --op write --size 64K', 'gbps'),
    ('attached, 64 KiB READ', '--daemon --op read --size 64K', 'gbps'),
    ('attached, 64 KiB SEND', '--daemon --op send --size 64K', 'gbps'),
    ('attached, 64 B WRITE', '--daemon --op write --size 64', 'mops'),
    ('malloc, 64 KiB WRITE', '--daemon --op write --size 64K --memory malloc', 'gbps'),
    ('malloc, 64 KiB READ', '--daemon --op read --size 64K --memory malloc', 'gbps'),
    ('malloc, 64 KiB SEND', '--daemon --op send --size 64K --memory malloc', 'gbps'),
]


def measure(build, words, duration, figure):
    program = os.path.join(build, 'app', 'karst-perf', 'karst-perf')
    run = subprocess.run([program, *words.split(), '--duration', str(duration), '--no-baselines',
                          '--json'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f'compare-builds: {program} {words}: exit status {run.returncode}\n{run.stderr}')
    return json.loads(run.stdout)[figure]


def compare(words, case):
    name, arguments, figure = case
    ratios, figures = [], ([], [])
    for pair in range(words.pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        got = [0.0, 0.0]
        for which in order:
            got[which] = measure((words.before, words.after)[which], arguments, words.duration,
                                 figure)
            figures[which].append(got[which])
        ratios.append(got[1] / got[0])
    low, middle, high = (statistics.quantiles(ratios, n=4) if len(ratios) > 1
                         else [ratios[0]] * 3)
    unit = 'Gb/s' if figure == 'gbps' else 'M/s'
    print(f'{name:24}{middle:7.3f}   {low:.3f} to {high:.3f}   '
          f'{statistics.median(figures[0]):8.2f} {statistics.median(figures[1]):8.2f} {unit}',
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=15)
    parser.add_argument('--duration', type=float, default=1, metavar='S')
    parser.add_argument('--only', default='', metavar='WORD', help='cases whose name has it')
    parser.add_argument('before')
    parser.add_argument('after')
    words = parser.parse_args()
    if words.pairs < 1:
        parser.error('--pairs: 1 at least')
    print(f'{"":24}  after/before, middle half    before    after')
    for case in CASES:
        if words.only in case[0]:
            compare(words, case)


if __name__ == '__main__':
    main()
