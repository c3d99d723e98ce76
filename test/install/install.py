#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Installs into a temporary folder and builds a program against that.

  install.py SOURCE BUILD   (TAP)

Shows that karst.pc, the headers, the shared object and the archive are complete without the
source tree.
"""
import os
import shlex
import subprocess
import sys
import tempfile


def run(args, **kwargs):
    """(output, problems)"""
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kwargs)
    if done.returncode:
        return done.stdout, [f'{shlex.join(args)}: exit status {done.returncode}',
                             *done.stdout.splitlines()[-30:]]
    return done.stdout, []


def find(folder, name):
    for where, _, names in os.walk(folder):
        if name in names:
            return where
    return None


def relocate(path, dest):
    """A .pc file names the prefix; what was installed lies below @dest."""
    with open(path, encoding='utf-8') as f:
        lines = f.read().splitlines()
    with open(path, 'w', encoding='utf-8') as f:
        for line in lines:
            f.write(line.replace('prefix=/', f'prefix={dest}/', 1) + '\n')


class Tap:
    """Points, each of which needs the one before it."""

    def __init__(self, names):
        self.names = names
        self.number = 0
        self.bad = False
        print(f'1..{len(names)}')

    def point(self, problems):
        name = self.names[self.number]
        self.number += 1
        print(f'{"not ok" if problems else "ok"} {self.number} - {name}')
        for problem in problems:
            print(f'# {problem}')
        self.bad = bool(problems)
        return not problems


def check(source, build, dest):
    tap = Tap(['meson install', 'pkg-config finds karst',
               'a program links with the shared object', 'it has an engine',
               'a program links with the archive', 'it has an engine'])
    _, problems = run(['meson', 'install', '-C', build, '--no-rebuild', '--destdir', dest])
    if not tap.point(problems):
        return tap
    pc = find(dest, 'karst.pc')
    if pc is None:
        tap.point(['no karst.pc was installed'])
        return tap
    relocate(os.path.join(pc, 'karst.pc'), dest)
    flags, problems = run(['pkg-config', '--cflags', '--libs', 'karst'],
                          env=dict(os.environ, PKG_CONFIG_PATH=pc))
    if not tap.point(problems):
        return tap
    flags = shlex.split(flags)
    for flavour, link in (('shared object', ['-Wl,-rpath,' + os.path.dirname(pc)]),
                          ('archive', [])):
        if flavour == 'archive':
            flags = ['-l:libkarst.a' if flag == '-lkarst' else flag for flag in flags]
        program = os.path.join(dest, 'embed')
        _, problems = run([os.environ.get('CC', 'cc'), '-std=gnu11', '-D_GNU_SOURCE', '-Wall',
                           '-Werror', '-o', program,
                           os.path.join(source, 'test', 'install', 'embed.c'), *flags, *link])
        if not tap.point(problems):
            return tap
        text, problems = run([program, '--no-huge', '--no-shconf', '-m', '256', '--no-pci',
                              '-l', '0', '--log-level', 'error'])
        if 'embedded' not in text:
            problems.append(f'output: {text}')
        if not tap.point(problems):
            return tap
    return tap


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as dest:
        return 1 if check(argv[1], argv[2], dest).bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
