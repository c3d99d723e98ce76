#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Installs into a temporary folder and builds a program against that.

  install.py SOURCE BUILD   (TAP)

Shows that the .pc files, the headers, the shared objects and the archives are complete without
the source tree, for programs that embed an engine and for those that attach to one; and that
verbs programs can be run.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request


def run(args, **kwargs):
    """(output, problems)"""
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kwargs)
    if done.returncode:
        return done.stdout, [f'{shlex.join(args)}: exit status {done.returncode}',
                             *done.stdout.splitlines()[-30:]]
    return done.stdout, []


def find(folder, name, program=False):
    for where, _, names in os.walk(folder):
        if name in names and (not program or os.access(os.path.join(where, name), os.X_OK)):
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
    """Points; the first failure fails the whole."""

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
        self.bad |= bool(problems)
        return not problems


EAL = ['--no-huge', '--no-shconf', '-m', '256', '--no-pci', '-l', '0', '--log-level', 'error']
# name, package, source, compiler, arguments, what it prints
PROGRAMS = [
    ('an engine', 'karst-engine', 'embed.c', ['cc', '-std=gnu11', '-D_GNU_SOURCE'], EAL,
     'embedded'),
    ('a client', 'karst', 'attach.c', ['cc', '-std=c11'], [], 'attached'),
    ('a client in C++', 'karst', 'attach.cc', ['c++', '-std=c++11'], [], 'attached'),
]


def declared(header):
    """Functions that a header declares, but for the inline ones."""
    with open(header, encoding='utf-8') as f:
        text = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.DOTALL)
    return set(re.findall(r'^(?!static)(?:const )?(?:int|void|char|bool) \*?(karst_\w+)\(', text,
                          flags=re.MULTILINE))


def exported(library):
    """name -> version of what a shared object offers."""
    text, problems = run(['nm', '-D', '--defined-only', library])
    symbols = [line.split()[-1] for line in text.splitlines() if line.split()[-2] == 'T']
    return dict(symbol.split('@@') for symbol in symbols), problems


def check_exports(dest, libdir):
    """libkarst.so offers what its headers declare, under a version and with a page, and nothing
    else."""
    headers = find(dest, 'karst.h')
    want = set().union(*(declared(os.path.join(headers, name))
                         for name in ('karst.h', 'karst_embed.h', 'karst_rdmacm.h')))
    have, problems = exported(os.path.join(libdir, 'libkarst.so'))
    problems += [f'{name} is declared, but not exported' for name in sorted(want - set(have))]
    problems += [f'{name} is exported, but not declared' for name in sorted(set(have) - want)]
    problems += [f'{name} has version {version}' for name, version in have.items()
                 if not re.fullmatch(r'KARST_\d+\.\d+', version)]
    problems += [f'{name} has no page' for name in sorted(want) if not find(dest, name + '.3')]
    if len(want) < 40:
        problems.append(f'only {len(want)} functions found in the headers')
    return problems


def check_needs(libdir):
    """Programs do not load DPDK."""
    text, problems = run(['readelf', '-d', os.path.join(libdir, 'libkarst.so')])
    return problems + [line for line in text.splitlines() if 'NEEDED' in line and 'rte_' in line]


def pkg_config(package, libdir, static):
    flags, problems = run(['pkg-config', '--cflags', '--libs', package],
                          env=dict(os.environ, PKG_CONFIG_PATH=os.path.join(libdir, 'pkgconfig')))
    flags = shlex.split(flags)
    if static:
        flags = [f'-l:lib{package}.a' if flag == '-l' + package else flag for flag in flags]
    return flags, problems


def build_and_run(source, dest, libdir, program, static):
    _, package, name, compiler, args, says = program
    flags, problems = pkg_config(package, libdir, static)
    exe = os.path.join(dest, 'program')
    if not problems:
        _, problems = run([*compiler, '-Wall', '-Werror', '-o', exe,
                           os.path.join(source, 'test', 'install', name), *flags,
                           *([] if static else ['-Wl,-rpath,' + libdir])])
    if not problems:
        text, problems = run([exe, *args])
        if says not in text:
            problems.append(f'output: {text}')
    return problems


def check_run(dest):
    """An installed karst-run finds provider and karstd where they were installed."""
    provider = os.path.join(find(dest, 'libkarst-rdmav34.so'), 'libkarst-rdmav34.so')
    env = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(dest, 'run'))
    os.mkdir(env['XDG_RUNTIME_DIR'], 0o700)
    env.pop('LD_LIBRARY_PATH', None)
    # its completion for shells has the same name
    text, problems = run([os.path.join(find(dest, 'karst-run', program=True), 'karst-run'),
                          '--private', '--linger', '0', '--doctor'], env=env)
    return problems + ([] if f'ok     provider: {provider}' in text else [text])


def check_conf(dest):
    """The configuration that an installed karstd reads is the one that was installed."""
    karstd = os.path.join(find(dest, 'karstd', program=True), 'karstd')
    text, problems = run([karstd, '--help'])
    path = re.search(r'--config FILE .*default (/[^,]*),', text)
    if path is None or not os.path.isfile(dest + path[1]):
        problems.append(f'{path and path[1]} was not installed')
    return problems


def check_tools(dest):
    """What people look at engines with finds its parts; the exporter serves its page."""
    exporter = os.path.join(find(dest, 'karst-exporter', program=True), 'karst-exporter')
    problems = []
    for name in ('karst-top', 'karst-capture', 'karst-plot', 'karst-compare'):
        problems += run([os.path.join(os.path.dirname(exporter), name), '--help'])[1]
    # not said to an engine of anybody: none has this name
    with subprocess.Popen([exporter, '--file-prefix', f'none{os.getpid()}', '--listen', 'localhost:0'],
                          stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.readline()
        url = said.split()[-1].removesuffix('metrics') if said else ''
        for path in ('', 'page.css', 'page.mjs', 'figures.mjs', 'icon.svg', 'api/engines'):
            try:
                with urllib.request.urlopen(url + path, timeout=120) as answer:
                    if not answer.read():
                        problems.append(f'/{path} is empty')
            except (OSError, ValueError) as e:
                problems.append(f'/{path}: {e}: {said}')
        process.terminate()
    return problems + ([] if find(dest, 'grafana.json') else ['no dashboard'])


def check(source, build, dest):
    cases = [(program, static) for program in PROGRAMS for static in (False, True)]
    tap = Tap(['meson install', 'libkarst exports what its headers declare',
               'libkarst does not need DPDK',
               *(f'{program[0]}, with the {"archive" if static else "shared object"}'
                 for program, static in cases),
               'karst-run', 'karstd reads the installed configuration',
               'karst-exporter and its page'])
    _, problems = run(['meson', 'install', '-C', build, '--no-rebuild', '--destdir', dest])
    pc = find(dest, 'karst.pc')
    if not problems and (pc is None or find(dest, 'karst-engine.pc') != pc):
        problems = ['no karst.pc and karst-engine.pc were installed']
    if not tap.point(problems):
        return tap
    for name in ('karst.pc', 'karst-engine.pc'):
        relocate(os.path.join(pc, name), dest)
    libdir = os.path.dirname(pc)
    tap.point(check_exports(dest, libdir))
    tap.point(check_needs(libdir))
    for program, static in cases:
        tap.point(build_and_run(source, dest, libdir, program, static))
    tap.point(check_run(dest))
    tap.point(check_conf(dest))
    tap.point(check_tools(dest))
    return tap


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as dest:
        return 1 if check(argv[1], argv[2], dest).bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
