# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The option --version of the tools.  The version is that of the file VERSION, which is installed beside this one."""
import os

HERE = os.path.dirname(os.path.realpath(__file__))


def version():
    for folder in (HERE, os.path.dirname(HERE)):
        try:
            with open(os.path.join(folder, 'VERSION'), encoding='ascii') as f:
                return f.read().strip()
        except FileNotFoundError:
            pass
    return 'unknown'


def add_option(parser):
    parser.add_argument('--version', action='version', version=f'{parser.prog} {version()}',
                        help='print the version and end')
