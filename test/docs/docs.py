#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks the documents: docs.py ROOT (TAP).

  every .rst parses without a warning
  every man page parses without a warning (mandoc), and has no line that does not fit a terminal (man)
  every path of the tree that a document names exists
  every program in app/ has a man page
  every man page is installed
  every environment variable that users may set is in a man page
  every call of libkarst has a man page, with its declaration
  every folder of lib/ has a README.rst
  every test that doc/threat-model.rst names exists
  every record of a decision has a number of its own, which its title repeats
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from points import each  # noqa: E402

TOPS = ('lib', 'app', 'drivers', 'test', 'usertools', 'config', 'doc')
PATH = re.compile(r'(?<![\w./-])((?:' + '|'.join(TOPS) + r')/[\w./+-]*\w)(?![\w*{])')


def documents(root, suffix):
    """Paths, relative to @root, with that suffix."""
    found = [name for name in os.listdir(root) if name.endswith(suffix)]
    for top in TOPS:
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(d for d in dirs if d != 'corpus')
            found += [os.path.relpath(os.path.join(folder, name), root)
                      for name in sorted(names) if name.endswith(suffix)]
    return found


def check_rst(root):
    try:
        import docutils.core
        import docutils.utils
    except ImportError:
        return ['docutils is not installed (python3-docutils)']
    found = []
    for path in documents(root, '.rst'):
        with open(os.path.join(root, path), encoding='utf-8') as f:
            text = f.read()
        try:
            docutils.core.publish_string(
                text, source_path=path, writer_name='html',
                settings_overrides={'halt_level': 2, 'report_level': 5, 'warning_stream': False,
                                    'raw_enabled': False,
                                    'file_insertion_enabled': False})
        except docutils.utils.SystemMessage as e:
            found.append(str(e))
    return found


def man_pages(root):
    folder = os.path.join(root, 'doc', 'man')
    if not os.path.isdir(folder):
        return []
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))
            if re.search(r'\.[1-8]$', name)]


def check_man(root):
    if not shutil.which('mandoc'):
        return ['mandoc is not installed']
    found = []
    for page in man_pages(root):
        run = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', page],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             check=False)
        if run.returncode:
            found += run.stdout.splitlines()
    return found


def check_man_lines(root):
    if not shutil.which('man'):
        return ['man is not installed']
    found = []
    for page in man_pages(root):
        run = subprocess.run(['man', '--warnings=break', '-E', 'UTF-8', '-l', page],
                             env=dict(os.environ, MANWIDTH='80'), stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True, check=False)
        found += [f'{os.path.basename(page)}: {line}' for line in run.stderr.splitlines()]
        if run.returncode:
            found.append(f'{os.path.basename(page)}: man: exit status {run.returncode}')
    return found


def check_paths(root):
    found = []
    for path in documents(root, '.rst'):
        with open(os.path.join(root, path), encoding='utf-8') as f:
            for number, line in enumerate(f, 1):
                for name in PATH.findall(line):
                    if not os.path.exists(os.path.join(root, name)):
                        found.append(f'{path}:{number}: there is no {name}')
    return found


def check_programs(root):
    pages = {os.path.basename(page).rsplit('.', 1)[0] for page in man_pages(root)}
    app = os.path.join(root, 'app')
    return [f'app/{name} has no page in doc/man' for name in sorted(os.listdir(app))
            if os.path.isfile(os.path.join(app, name, 'meson.build')) and name not in pages]


def check_installed(root):
    """Pages of calls are in doc/man/meson.build, without their section; a program installs its own."""
    text = ''
    for path in documents(root, 'meson.build'):
        with open(os.path.join(root, path), encoding='utf-8') as f:
            text += f.read()
    found = []
    for page in man_pages(root):
        name = os.path.basename(page)
        if not re.search(rf"['/]{re.escape(name)}'", text) and \
                not (name.endswith('.3') and f"'{name[:-2]}'" in text):
            found.append(f'doc/man/{name} is installed by no meson.build')
    return found


# set by karst-run for its program, or only by tests
INTERNAL = {'KARST_SMC', 'KARST_SMC_PID', 'KARST_SMC_SHORT', 'KARST_SMC_URING', 'KARST_TEST_NO_PEERPIDFD'}


def check_variables(root):
    """getenv("KARST_...") of libraries, drivers and programs, without those of test/."""
    read, described = set(), set()
    for path in documents(root, '.c'):
        if path.split('/')[0] in ('lib', 'app', 'drivers'):
            with open(os.path.join(root, path), encoding='utf-8') as f:
                read.update(re.findall(r'getenv\("(KARST_\w+)"\)', f.read()))
    for page in man_pages(root):
        with open(page, encoding='utf-8') as f:
            described.update(re.findall(r'^\.It Ev (KARST_\w+)', f.read(), re.M))
    return [f'{name} is read, but in no section ENVIRONMENT of doc/man'
            for name in sorted(read - described - INTERNAL)] + \
        [f'{name} is in a section ENVIRONMENT of doc/man, but read nowhere'
         for name in sorted(described - read)]


HEADERS = ('lib/client/karst.h', 'lib/client/karst_embed.h', 'lib/client/karst_rdmacm.h')
CALL = re.compile(r'^(?:static inline )?(?:const )?\w+(?: \w+)*[ *\n]+'
                  r'(karst_\w+)\(([^{;]*?)\)(?=[;\n])', re.M)


def parameters(text):
    """The number of parameters of a call: differences between header and page show in it."""
    return 0 if text.strip() == 'void' else text.count(',') + 1


def declared_calls(root):
    """name -> number of parameters"""
    calls = {}
    for header in HEADERS:
        with open(os.path.join(root, header), encoding='utf-8') as f:
            text = re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)
        calls.update((name, parameters(args)) for name, args in CALL.findall(text))
    return calls


def documented_calls(root):
    """(names of the NAME sections, name -> number of parameters of the SYNOPSIS)"""
    names, calls = set(), {}
    for page in man_pages(root):
        if not page.endswith('.3'):
            continue
        with open(page, encoding='utf-8') as f:
            text = f.read()
        names.update(re.findall(r'^\.Nm (karst_\w+)', text, re.M))
        for name, args in re.findall(r'^\.Fo (\w+)\n(.*?)^\.Fc', text, re.M | re.S):
            calls[name] = parameters(','.join(re.findall(r'^\.Fa "(.*)"', args, re.M)))
    return names, calls


def check_calls(root):
    declared = declared_calls(root)
    names, documented = documented_calls(root)
    found = [f'{name}() has no page in doc/man' for name in sorted(set(declared) - names)]
    found += [f'{name}() has a page, but {" and ".join(HEADERS)} do not declare it'
              for name in sorted(names - set(declared))]
    found += [f'{name}(): other parameters in its page' for name in sorted(names & set(declared))
              if documented.get(name) != declared[name]]
    if len(declared) < 50:
        found.append(f'only {len(declared)} calls found in {" and ".join(HEADERS)}')
    return found


def check_readmes(root):
    lib = os.path.join(root, 'lib')
    return [f'lib/{name} has no README.rst' for name in sorted(os.listdir(lib))
            if os.path.isfile(os.path.join(lib, name, 'meson.build'))
            and not os.path.isfile(os.path.join(lib, name, 'README.rst'))]


def text_below(path):
    """The text of a file, or of all files of a folder."""
    paths = [path] if os.path.isfile(path) else [
        os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names
        if name.endswith(('.c', '.h', '.py', '.build'))]
    return '\n'.join(open(p, encoding='utf-8').read() for p in paths)


def check_threats(root):
    """The last column of its tables: "test/PLACE: ``name``, ``name``; test/PLACE: ..."."""
    with open(os.path.join(root, 'doc', 'threat-model.rst'), encoding='utf-8') as f:
        rows = re.findall(r'^   \* - (T\d+)\n(.*?)(?=^   \* -|^\S)', f.read(),
                          flags=re.MULTILINE | re.DOTALL)
    found = [] if len(rows) > 40 else [f'doc/threat-model.rst: {len(rows)} rows']
    names = [threat for threat, _ in rows]
    found += [f'{threat}: there are two of it' for threat in sorted({n for n in names if names.count(n) > 1})]
    for threat, row in rows:
        shown = ' '.join(row.rsplit('\n     - ', 1)[1].split())
        if 'test/' not in shown and shown != 'no test':
            found.append(f'{threat}: neither a test nor "no test": {shown}')
        for part in shown.split('; '):
            place = re.match(r'test/[\w/.]*\w', part)
            names = re.findall(r'``([^`]+)``', part)
            if place is None:
                continue
            text = text_below(os.path.join(root, place.group()))
            if place.group() == 'test/sim': # the mutants are lib/qp's
                text = text_below(os.path.join(root, 'lib/qp/qp_mutant.h'))
            found += [f'{threat}: {place.group()} has no "{name}"' for name in names
                      if name.replace("'", "\\'") not in text and name not in text]
    return found


def check_decisions(root):
    found, names = [], {}
    for name in sorted(os.listdir(os.path.join(root, 'doc/adr'))):
        number = name.split('-')[0]
        if number in names:
            found.append(f'doc/adr/{name} has the number of {names[number]}')
        names[number] = name
        with open(os.path.join(root, 'doc/adr', name), encoding='utf-8') as f:
            title = f.read().split('\n')[2]
        if number != '0000' and not title.startswith(number + ' '):
            found.append(f'doc/adr/{name} is called "{title}"')
    return found


CHECKS = {
    'documents parse': check_rst,
    'man pages parse': check_man,
    'man pages fit a terminal': check_man_lines,
    'paths exist': check_paths,
    'programs have man pages': check_programs,
    'man pages are installed': check_installed,
    'environment variables have man pages': check_variables,
    'calls have man pages': check_calls,
    'folders explain themselves': check_readmes,
    'tests of threats exist': check_threats,
    'decisions have numbers': check_decisions,
}


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    return each({name: lambda check=check: check(argv[1]) for name, check in CHECKS.items()})


if __name__ == '__main__':
    sys.exit(main(sys.argv))
