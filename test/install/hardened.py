#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What makes faults harder to use is in every program and shared object that is installed (TAP).

  hardened.py BUILD

Read by readelf: position independent, nothing that is written is executable, relocations are done
at the start and read-only from then on, stack protector, fortified calls of the C library, and on
x86-64 landing pads for indirect branches.

And a shared object in which something is not defined, as when a source is missing from its list, is not
linked: each is linked again, with an object that calls a function which does not exist.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Tap  # noqa: E402

ENDBR64 = b'\xf3\x0f\x1e\xfa'
# What has to be there, so that the test cannot pass by finding nothing.
EXPECTED = {'karstd', 'karst-run', 'karst-perf', 'karst-dump', 'karst-nvmet', 'karst-fwd',
            'karst-fabric', 'libkarst.so', 'libkarst-engine.so', 'libkarst-rdmav34.so', 'libkarst-sockets.so'}


def readelf(path, *options):
    return subprocess.run(['readelf', '-W', *options, path], stdout=subprocess.PIPE, text=True,
                          check=True).stdout


def elf_files(folder):
    """Paths of programs and shared objects, without links to them."""
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(where, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, 'rb') as f:
                if f.read(4) == b'\x7fELF':
                    yield path


def segments(path):
    """[(type, offset, address, size in the file, flags)]"""
    found = re.findall(r'^ {2}(\w+) +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+) 0x\w+ ([RWE ]{3})',
                       readelf(path, '-l'), flags=re.MULTILINE)
    return [(kind, int(off, 16), int(at, 16), int(size, 16), flags)
            for kind, off, at, size, flags in found]


def layout(path):
    problems, found = [], segments(path)
    kinds = {segment[0]: segment for segment in found}
    if 'GNU_RELRO' not in kinds:
        problems.append('no RELRO')
    if 'GNU_STACK' not in kinds or 'E' in kinds['GNU_STACK'][4]:
        problems.append('the stack is executable')
    problems += [f'memory at {at:#x} is written and executed'
                 for kind, _, at, _, flags in found if kind == 'LOAD' and {'W', 'E'} <= set(flags)]
    return problems


def dynamic(path, program):
    text = readelf(path, '-d')
    problems = []
    if not re.search(r'\(FLAGS_1\).*\bNOW\b', text):
        problems.append('relocations are not done at the start (no -z now)')
    if 'TEXTREL' in text:
        problems.append('code is relocated')
    if program and not re.search(r'\(FLAGS_1\).*\bPIE\b', text):
        problems.append('not position independent')
    problems += [f'looks for libraries in {at}'
                 for at in re.findall(r'\((?:RPATH|RUNPATH)\).*\[(.*)\]', text)
                 if not at.startswith('$ORIGIN')]
    return problems


def symbols(path):
    """[(address, size, type, binding, section, name)] of the dynamic ones and all others."""
    found = re.findall(r'^ +\d+: (\w+) +(\w+) (\w+) +(\w+) +\w+ +(\w+) (\S+)',
                       readelf(path, '-s'), flags=re.MULTILINE)
    return [(int(at, 16), kind, binding, section, name.split('@')[0])
            for at, _, kind, binding, section, name in found]


def calls(path):
    wanted = {name for _, _, _, section, name in symbols(path) if section == 'UND'}
    problems = []
    if '__stack_chk_fail' not in wanted:
        problems.append('no stack protector')
    if not any(name.startswith('__') and name.endswith('_chk') for name in wanted):
        problems.append('no fortified calls')
    return problems


def landing_pads(path):
    """Functions that others can call begin with one; those of the C runtime are not ours.  (The
    mark in the file's notes is not looked at: it needs a C runtime that was built so, too.)"""
    loads = [s for s in segments(path) if s[0] == 'LOAD']
    pads, problems = 0, []
    with open(path, 'rb') as f:
        data = f.read()
    for at, kind, binding, section, name in symbols(path):
        if kind != 'FUNC' or section == 'UND' or name.startswith('_'):
            continue
        for _, off, start, size, _ in loads:
            if start <= at < start + size:
                found = data[off + at - start:off + at - start + 4] == ENDBR64
                pads += found
                # a local one needs none if nobody takes its address
                if not found and binding == 'GLOBAL':
                    problems.append(f'{name} has no landing pad')
    return problems[:5] if pads else ['no landing pads']


def shared_objects(build):
    """Paths, from the build folder, of the shared objects that are installed."""
    targets = json.loads(subprocess.run(['meson', 'introspect', '--targets', build], stdout=subprocess.PIPE,
                                        check=True).stdout)
    for target in targets:
        if target['type'] in ('shared module', 'shared library') and target['installed']:
            yield os.path.relpath(target['filename'][0], os.path.abspath(build))


def calls_nothing(folder):
    """@return an object with a call of a function that does not exist"""
    source, to = os.path.join(folder, 'calls.c'), os.path.join(folder, 'calls.o')
    with open(source, 'w', encoding='utf-8') as f:
        f.write('void not_defined_anywhere(void);\nvoid calls(void);\nvoid calls(void)\n'
                '{\n\tnot_defined_anywhere();\n}\n')
    subprocess.run(['cc', '-fPIC', '-c', '-o', to, source], check=True)
    return to


def links_what_is_missing(build, path, folder):
    """@return problems, if it is linked although something is missing, or is not linked otherwise"""
    command = shlex.split(subprocess.run(['ninja', '-C', build, '-t', 'commands', '-s', path], text=True,
                                         stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    command[command.index('-o') + 1] = os.path.join(folder, 'linked.so')
    for more, wanted in ([], None), ([calls_nothing(folder)], 'not_defined_anywhere'):
        ran = subprocess.run([*command, *more], cwd=build, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, check=False)
        if wanted is None and ran.returncode != 0:
            return [ran.stdout]
        if wanted is not None and (ran.returncode == 0 or wanted not in ran.stdout):
            return [f'exit status {ran.returncode} although {wanted}() is missing: {ran.stdout}']
    return []


def is_x86():
    return os.uname().machine == 'x86_64'


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    seen = set()
    with tempfile.TemporaryDirectory() as dest:
        subprocess.run(['meson', 'install', '-C', argv[1], '--no-rebuild', '--destdir', dest],
                       stdout=subprocess.DEVNULL, check=True)
        for path in elf_files(dest):
            name = os.path.basename(path)
            seen.add(re.sub(r'(\.so)\..*', r'\1', name))
            problems = layout(path) + dynamic(path, program='.so' not in name) + calls(path)
            if is_x86():
                problems += landing_pads(path)
            tap.point(name, problems)
    tap.point('all of them were looked at', [f'{name} was not found'
                                             for name in sorted(EXPECTED - seen)])
    with tempfile.TemporaryDirectory() as folder:
        for path in shared_objects(argv[1]):
            tap.point(f'{os.path.basename(path)}: nothing may be missing',
                      links_what_is_missing(argv[1], path, folder))
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
