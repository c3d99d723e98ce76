#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks a model of the rings with spin, exhaustively: model.py MODEL.pml (TAP).

The comment on top of a model says what is run:

  variant: NAME...   more configurations (-DNAME), each of which must hold as the plain one does
  mutants: NAME...   orderings of the configuration above; with one of them taken away
                     (-DWEAK=NAME) the model must fail: that is the proof that it can
  compile: OPTION    of gcc, instead of -O0, where the searches take longer than that

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
# The functions in which pan spends its time; optimising all of it, the model's own transitions
# included, takes longer than most searches.
HOT = r'^(new_state|h_store|compress|col_p|ordinal|s_hash|d_sfh)(?=\()'


def plan(path):
    """[(variant or '', mutant or '')] from the model's first comment."""
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


def optimisation(path):
    with open(path, encoding='utf-8') as f:
        found = re.search(r'^ \* compile: (\S+)$', f.read(), re.M)
    return found.group(1) if found else '-O0'


def number_of(path, mutant):
    """The value of the model's #define for it; 0 without a mutant."""
    with open(path, encoding='utf-8') as f:
        found = re.search(rf'^#define {mutant}\s+(\d+)\b', f.read(), re.M) if mutant else None
    return int(found.group(1)) if found else 0


def ran(command, work, **more):
    """(exit status, output)"""
    try:
        done = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, timeout=SECONDS, **more)
    except subprocess.TimeoutExpired:
        return 1, f'{command[0]} did not end within {SECONDS} s'
    return done.returncode, done.stdout


def build(path, variant, work):
    """Builds pan in @work, whose variable WEAK selects the mutant.  @return why it could not be
    built."""
    folder = os.path.dirname(os.path.abspath(path))
    for name in os.listdir(folder):
        if name.endswith(('.pml', '.inc')):
            shutil.copy(os.path.join(folder, name), work)
    status, said = ran(['spin', *[f'-D{variant}'] * bool(variant), '-a', os.path.basename(path)],
                       work)
    if status:
        return said
    pan = os.path.join(work, 'pan.c')
    with open(pan, encoding='utf-8') as f:
        text, found = re.subn(r'\bweak = 0;', 'weak = (unsigned char)atoi(getenv("WEAK"));',
                              f.read())
    if found != 1:
        return f'{found} times "weak = 0;" in what spin has made, not once'
    text = re.sub(HOT, r'__attribute__((optimize("O2"))) \1', text, flags=re.M)
    with open(pan, 'w', encoding='utf-8') as f:
        f.write(text)
    status, said = ran(['gcc', optimisation(path), '-w', '-DSAFETY', '-DCOLLAPSE', '-DVECTORSZ=4096',
                        f'-DMEMLIM={MEMORY_MB}', '-o', 'pan', 'pan.c'], work)
    return said if status else None


def verify(pan, path, mutant):
    """pan's output, or why it could not be built.  @pan: a future of that, and its folder"""
    built, work = pan
    if failed := built.result():
        return failed
    number = number_of(path, mutant)
    if mutant and not number:
        return f'no #define {mutant} NUMBER in {path}'
    with tempfile.TemporaryDirectory(dir=work) as own: # where it leaves what it has found
        return ran([os.path.join(work, 'pan'), f'-m{DEPTH}', '-w22', '-n'], own,
                   env=dict(os.environ, WEAK=str(number)))[1]


def judge(said, mutant):
    """(whether it is as expected, a short text)"""
    states = re.search(r'(\d+) states, stored', said)
    errors = re.search(r'errors: (\d+)', said)
    if not states or not errors:
        return False, 'no result'
    if re.search(r'max search depth too small|out of memory|truncated', said):
        return False, 'the search was cut short'
    # shift() of c11.inc: WRITES is too small, which shows nothing about the orderings
    if re.search(r'assertion violated \(\(mem\[.*\]\.last\+1\)<', said):
        return False, 'no room for as many writes'
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
    with tempfile.TemporaryDirectory(prefix='karst-model-') as work, \
            concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        pans = {}
        for variant in dict.fromkeys(variant for variant, _ in runs):
            own = tempfile.mkdtemp(dir=work)
            pans[variant] = pool.submit(build, argv[1], variant, own), own
        results = pool.map(lambda run: verify(pans[run[0]], argv[1], run[1]), runs)
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
