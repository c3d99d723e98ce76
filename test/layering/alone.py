#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Every source file of what is installed compiles by itself.

  alone.py ROOT FOLDER      TAP; a build directory is made in FOLDER, and taken away

The builds of karst-setup compile several files as one, so that a file could need what another includes
before it.  Packagers compile file by file, and so does this, as far as to the end of the syntax."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.dont_write_bytecode = True
from bed import Tap  # noqa: E402

# Generated sources and headers.
MADE = re.compile(r'^(\S+\.[ch]): \w+$', re.MULTILINE)


def run(words, folder):
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return [] if done.returncode == 0 else [shlex.join(words[:3]), *done.stdout.splitlines()[-20:]]


def prepare(root, folder):
    problems = run(['meson', 'setup', folder, root, '-Dtests=false', '-Dunity=off'], folder)
    if problems:
        return problems
    targets = subprocess.run(['ninja', '-t', 'targets', 'all'], cwd=folder, stdout=subprocess.PIPE,
                             text=True, check=True).stdout
    return run(['ninja', *sorted(set(MADE.findall(targets)))], folder)


def commands(folder):
    """(source file, compiler command), with no output files."""
    with open(os.path.join(folder, 'compile_commands.json'), encoding='utf-8') as f:
        entries = json.load(f)
    for entry in entries:
        words = shlex.split(entry['command'])
        if not entry['file'].endswith('.c') or '-c' not in words:
            continue
        for option in ('-MQ', '-MF', '-o'):
            at = words.index(option)
            del words[at:at + 2]
        # a call of an undeclared function would cause only a warning
        yield entry['file'], [w for w in words if w not in ('-MD', 'ccache')] + [
            '-fsyntax-only', '-Werror=implicit-function-declaration']


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix='alone-', dir=argv[2]) as folder:
        problems = prepare(argv[1], folder)
        tap.point('a build file by file is prepared', problems)
        work = [] if problems else list(commands(folder))
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = list(pool.map(lambda one: run(one[1], folder), work))
        wrong = [line for (name, _), said in zip(work, found) if said
                 for line in [f'{os.path.basename(name)} does not compile by itself:', *said[1:6]]]
        if not problems and len(work) < 100:
            wrong.append(f'only {len(work)} source files were found')
        tap.point('every source file compiles by itself', wrong or problems)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
