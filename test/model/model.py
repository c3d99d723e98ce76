#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks a model of the rings with spin, exhaustively: model.py MODEL.pml (TAP).

The comment on top of a model says what is run:

  variant: NAME...   more configurations (-DNAME), each of which must hold as the plain one does
  mutants: NAME...   orderings of the configuration above; with one of them taken away
                     (-DWEAK=NAME) the model must fail: that is the proof that it can

Every configuration runs to the end: a search that was cut short is a failure.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

MEMORY_MB = 4096
SECONDS = 600
DEPTH = 200000


def plan(path):
    """[(variant or '', mutant or '')] as the model's first comment says."""
    with open(path, encoding='utf-8') as f:
        top = re.findall(r'/\*.*?\*/', f.read(), re.S)[1]
    runs, variants = [('', '')], ['']
    for line in top.splitlines():
        if found := re.match(r' \* variant: (.*)', line):
            variants = found.group(1).split()
            runs += [(v, '') for v in variants]
        elif found := re.match(r' \* mutants: (.*)', line):
            runs += [(v, m) for v in variants for m in found.group(1).split()]
    return runs


def verify(path, variant, mutant):
    """What pan said, or why it could not be built."""
    flags = [f'-D{variant}'] * bool(variant) + [f'-DWEAK={mutant}'] * bool(mutant)
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix='karst-model-') as work:
        for name in os.listdir(folder):
            if name.endswith(('.pml', '.inc')):
                shutil.copy(os.path.join(folder, name), work)
        for command in (['spin', *flags, '-a', os.path.basename(path)],
                        # a weakened one is found soon: what takes long is to compile it
                        ['gcc', '-O0' if mutant else '-O1', '-w', '-DSAFETY', '-DCOLLAPSE', '-DVECTORSZ=4096',
                         f'-DMEMLIM={MEMORY_MB}', '-o', 'pan', 'pan.c'],
                        ['./pan', f'-m{DEPTH}', '-w22', '-n']):
            try:
                run = subprocess.run(command, cwd=work, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, check=False,
                                     timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return f'{command[0]} did not end within {SECONDS} s'
            if run.returncode and command[0] != './pan':
                break
        return run.stdout


def judge(said, mutant):
    """(good, in a few words)"""
    states = re.search(r'(\d+) states, stored', said)
    errors = re.search(r'errors: (\d+)', said)
    if not states or not errors:
        return False, 'no result'
    if re.search(r'max search depth too small|out of memory|truncated', said):
        return False, 'the search was cut short'
    if mutant:
        fault = re.search(r'pan:\d*: (.*?) \(at depth', said)
        return errors.group(1) != '0', fault.group(1) if fault else 'not found'
    return errors.group(1) == '0' and 'Search not completed' not in said, \
        f'{states.group(1)} states'


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which('spin'):
        print('1..1\nnot ok 1 - spin is not installed')
        return 1
    runs, bad = plan(argv[1]), 0
    print(f'1..{len(runs)}')
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        results = pool.map(lambda run: verify(argv[1], *run), runs)
        for number, ((variant, mutant), said) in enumerate(zip(runs, results), 1):
            good, words = judge(said, mutant)
            name = ' '.join(filter(None, (variant.lower().replace('_', ' '),
                                          f'without {mutant}' if mutant else 'holds')))
            print(f'{"ok" if good else "not ok"} {number} - {name}: {words}', flush=True)
            if not good:
                for line in said.splitlines()[-40:]:
                    print(f'# {line}')
            bad += not good
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
