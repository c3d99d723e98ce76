#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""doc/counters.rst, from the tables in lib/base and lib/cm that the code is generated from too.

  counters.py           prints the document
  counters.py --write   writes it to doc/counters.rst
  counters.py --check   TAP: the file is current
"""
import os
import re
import sys

import generated_files

OUTPUT = os.path.join('doc', 'counters.rst')
ROW = re.compile(r'^(KARST_COUNTER|KARST_DROP_REASON|KARST_CM_COUNTER)\((\w+),\s*"([^"]*)",\s*"([^"]*)"\)$')
HW_ROW = re.compile(r'^KARST_HW_COUNTER\("([^"]*)", ((?:(?:CTR|DROP)\(\w+\)(?: \+ )?)+), "([^"]*)"\)$')
TERM = re.compile(r'(?:CTR|DROP)\((\w+)\)')
SECTION = re.compile(r'^/\* (lib/\w+)(?::\s*(.*))? \*/$')

HEAD = """.. SPDX-License-Identifier: BSD-3-Clause
.. Written by usertools/counters.py --write; do not edit.

=========================
Counters and drop reasons
=========================

Every lcore has its own set of these counters and is its only writer.  Readers add up the sets of all
lcores.  The enums, the names and this page are generated from the tables lib/base/karst_counter.def,
lib/base/karst_drop.def and lib/base/karst_hw_counter.def.  observability.rst explains how to read
the counters.

Counters
========

A counter has the name of the hw_counter of Linux RDMA devices that counts the same, if there is one.
"""

HW = """
Names of Linux
==============

These are the names that Linux RDMA devices show under hw_counters, for programs that use them
(``/karst/hw_counters``).  Each is the sum of counters and drop reasons of this page.
"""

DROPS = """
Drop reasons
============

A frame that the engine does not deliver, or does not act on, is counted under exactly one reason.
Rules in parentheses are those of protocol.rst.
"""

CM = """
Connection management
=====================

The engine has one set of these counters (``/karst/cm``), defined by the table
lib/cm/karst_cm_counter.def.  It also counts, for each kind of message, how many were sent, sent
again, received, and received twice.
"""


def table(rows):
    out = ['', '.. list-table::', '   :header-rows: 1', '   :widths: 30 70', '',
           '   * - name', '     - meaning']
    for name, meaning in rows:
        out += [f'   * - ``{name}``', f'     - {meaning}']
    return out


def rows_of(root, name, folder='base'):
    """[(section or None, [(name, meaning)])] of a .def file, in its order."""
    sections = [(None, [])]
    with open(os.path.join(root, 'lib', folder, name), encoding='utf-8') as f:
        for line in f:
            line = line.rstrip('\n')
            section = SECTION.match(line)
            row = ROW.match(line)
            if section:
                title = section.group(1)
                if section.group(2):
                    title += ': ' + section.group(2)
                sections.append((title, []))
            elif row:
                if row.group(2) != 'NONE':
                    sections[-1][1].append(row.group(3, 4))
            elif line.startswith('KARST_'):
                raise SystemExit(f'counters.py: lib/{folder}/{name}: cannot read: {line}')
    return [(title, rows) for title, rows in sections if rows]


def hw_table(root):
    """The table of lib/base/karst_hw_counter.def, each row with the counters that it sums."""
    names = {}
    for name in ('karst_counter.def', 'karst_drop.def'):
        with open(os.path.join(root, 'lib', 'base', name), encoding='utf-8') as f:
            for row in filter(None, map(ROW.match, f.read().splitlines())):
                names[row.group(2)] = row.group(3)
    out = ['', '.. list-table::', '   :header-rows: 1', '   :widths: 25 30 45', '',
           '   * - name', '     - sum of', '     - meaning']
    with open(os.path.join(root, 'lib', 'base', 'karst_hw_counter.def'), encoding='utf-8') as f:
        for line in f.read().splitlines():
            row = HW_ROW.match(line)
            if row:
                terms = ', '.join(f'``{names[sym]}``' for sym in TERM.findall(row.group(2)))
                out += [f'   * - ``{row.group(1)}``', f'     - {terms}', f'     - {row.group(3)}']
            elif line.startswith('KARST_'):
                raise SystemExit(f'counters.py: lib/base/karst_hw_counter.def: cannot read: {line}')
    return out


def render(root):
    out = [HEAD.rstrip('\n')]
    for _, rows in rows_of(root, 'karst_counter.def'):
        out += table(rows)
    out.append(HW.rstrip('\n'))
    out += hw_table(root)
    out.append(DROPS.rstrip('\n'))
    for title, rows in rows_of(root, 'karst_drop.def'):
        if title:
            out += ['', title, '-' * len(title)]
        out += table(rows)
    out.append(CM.rstrip('\n'))
    for _, rows in rows_of(root, 'karst_cm_counter.def', 'cm'):
        out += table(rows)
    return '\n'.join(out) + '\n'


def main(argv):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return generated_files.main(argv, __doc__, root, OUTPUT, render(root))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
