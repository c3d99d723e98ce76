#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks the documents: docs.py ROOT (TAP).

  every .rst parses without a warning
  every man page parses without a warning (mandoc)
  every path of the tree that a document names exists
  every program in app/ has a man page
  every folder of lib/ has a README.rst
"""
import os
import re
import shutil
import subprocess
import sys

TOPS = ('lib', 'app', 'drivers', 'test', 'usertools', 'config', 'doc')
PATH = re.compile(r'(?<![\w./-])((?:' + '|'.join(TOPS) + r')/[\w./+-]*\w)(?![\w*{])')


def documents(root, suffix):
    """Paths, relative to @root, that end like that."""
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


def check_readmes(root):
    lib = os.path.join(root, 'lib')
    return [f'lib/{name} has no README.rst' for name in sorted(os.listdir(lib))
            if os.path.isfile(os.path.join(lib, name, 'meson.build'))
            and not os.path.isfile(os.path.join(lib, name, 'README.rst'))]


CHECKS = {
    'documents parse': check_rst,
    'man pages parse': check_man,
    'paths exist': check_paths,
    'programs have man pages': check_programs,
    'folders explain themselves': check_readmes,
}


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    bad = 0
    print(f'1..{len(CHECKS)}')
    for number, (name, check) in enumerate(CHECKS.items(), 1):
        found = check(argv[1])
        print(f'{"not ok" if found else "ok"} {number} - {name}')
        for line in found:
            print(f'# {line}')
        bad += bool(found)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
