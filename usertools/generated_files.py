# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Common code of the scripts that generate files of the tree from its source, and check that these are
current."""
import os
import sys


def write(root, files):
    """@files: the text of each path"""
    for path, text in files.items():
        with open(os.path.join(root, path), 'w', encoding='utf-8') as f:
            f.write(text)


def check(root, files):
    """Compares the files with their texts, and prints TAP.  @return exit status"""
    bad = 0
    print(f'1..{len(files)}')
    for number, (path, text) in enumerate(files.items(), 1):
        good = False
        if os.path.exists(os.path.join(root, path)):
            with open(os.path.join(root, path), encoding='utf-8') as f:
                good = f.read() == text
        print(f'{"ok" if good else "not ok"} {number} - {path} is current')
        if not good:
            print(f'# run usertools/{os.path.basename(sys.argv[0])} --write and commit the result')
        bad += not good
    return 1 if bad else 0


def main(argv, usage, root, path, text):
    """A script that has one such file: [--write | --check], else it prints the text."""
    if argv[1:] == []:
        print(text, end='')
    elif argv[1:] == ['--write']:
        write(root, {path: text})
    elif argv[1:] == ['--check']:
        return check(root, {path: text})
    else:
        print(usage, file=sys.stderr)
        return 2
    return 0
