#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks that every file looks as its tool wants it: format.py ROOT (TAP).

C files: clang-format 14 with the tree's .clang-format, no line over 100 columns unless a string
makes it so (a text that is cut cannot be searched for), no blank at a line's end.  Shell scripts: shellcheck.  Python: compiles.  A tool that is not installed is a
failure, not a skip: "nothing was checked" must not look like "all is well".
"""
import ast
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from points import each  # noqa: E402

C_DIRS = ('lib', 'app', 'doc/examples', 'drivers', 'test')
COLUMNS = 100
TAB = 8


def files_below(root, tops):
    for top in tops:
        full = os.path.join(root, top)
        if os.path.isfile(full):
            yield full
        for folder, dirs, names in os.walk(full):
            dirs[:] = sorted(d for d in dirs if d not in ('corpus', '__pycache__'))
            for name in sorted(names):
                yield os.path.join(folder, name)


def first_line(path):
    try:
        with open(path, encoding='utf-8') as f:
            return f.readline()
    except UnicodeDecodeError:
        return ''


def c_files(root):
    return [p for p in files_below(root, C_DIRS) if p.endswith(('.c', '.h'))]


def scripts(root):
    """Shell scripts and Python files, known by their first line or suffix."""
    shell, python = [], []
    for path in files_below(root, (*C_DIRS, 'usertools', '.ci', 'config', 'doc')):
        if path.endswith('.py'):
            python.append(path)
        elif path.endswith('.sh'):
            shell.append(path)
        elif os.access(path, os.X_OK):
            line = first_line(path)
            if line.startswith('#!') and 'python' in line:
                python.append(path)
            elif line.startswith('#!') and line.rstrip().endswith('sh'):
                shell.append(path)
    return shell, python


def clang_format():
    for name in ('clang-format-14', 'clang-format'):
        if shutil.which(name):
            return name
    return None


def check_clang_format(root):
    tool = clang_format()
    if not tool:
        return ['clang-format is not installed']
    run = subprocess.run([tool, '--dry-run', '-Werror', '--ferror-limit=1', *c_files(root)],
                         cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    lines = [line for line in run.stdout.splitlines() if 'error:' in line]
    return lines if lines or run.returncode == 0 else [run.stdout]


def check_lines(root):
    found = []
    for path in c_files(root):
        with open(path, encoding='utf-8') as f:
            for number, line in enumerate(f, 1):
                line = line.rstrip('\n')
                if len(line.expandtabs(TAB)) > COLUMNS and '"' not in line:
                    found.append(f'{os.path.relpath(path, root)}:{number}: over {COLUMNS} columns')
                if line != line.rstrip():
                    found.append(f'{os.path.relpath(path, root)}:{number}: blank at the end')
    return found


def check_shell(root):
    if not shutil.which('shellcheck'):
        return ['shellcheck is not installed']
    shell, _ = scripts(root)
    run = subprocess.run(['shellcheck', '--format=gcc', *shell], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, check=False)
    return run.stdout.splitlines() if run.returncode else []


def check_python(root):
    found = []
    for path in scripts(root)[1]:
        with open(path, encoding='utf-8') as f:
            try:
                ast.parse(f.read(), path)
            except SyntaxError as e:
                found.append(f'{os.path.relpath(path, root)}:{e.lineno}: {e.msg}')
    return found


CHECKS = {
    'clang-format': check_clang_format,
    'columns and trailing blanks': check_lines,
    'shellcheck': check_shell,
    'python compiles': check_python,
}


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    return each({name: lambda check=check: check(argv[1])[:40] for name, check in CHECKS.items()})


if __name__ == '__main__':
    sys.exit(main(sys.argv))
