#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Compares doc/verbs.rst with libibverbs: matrix.py ROOT (TAP).

  the tables have every call that libibverbs.so exports or verbs.h defines, and no other
  the tables have every flag of the enumerations below
"""
import ctypes.util
import fnmatch
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from points import each  # noqa: E402

HEADER = '/usr/include/infiniband/verbs.h'
# Enumerations whose enumerators are features that a device may offer or not.
ENUMS = (
    'ibv_access_flags', 'ibv_atomic_cap', 'ibv_cq_attr_mask', 'ibv_cq_init_attr_mask',
    'ibv_create_cq_attr_flags', 'ibv_create_cq_wc_flags', 'ibv_device_cap_flags', 'ibv_event_type',
    'ibv_mw_type', 'ibv_odp_general_caps', 'ibv_odp_transport_cap_bits',
    'ibv_parent_domain_init_attr_mask', 'ibv_qp_attr_mask', 'ibv_qp_create_flags',
    'ibv_qp_create_send_ops_flags', 'ibv_qp_init_attr_mask', 'ibv_qp_open_attr_mask',
    'ibv_qp_type', 'ibv_rereg_mr_flags', 'ibv_send_flags', 'ibv_srq_attr_mask',
    'ibv_srq_init_attr_mask', 'ibv_srq_type', 'ibv_values_mask', 'ibv_wc_flags', 'ibv_wr_opcode',
    'ibv_xrcd_init_attr_mask',
)
# Enumerators that are no features: limits, and masks and shifts of others.
NO_FLAG = re.compile(r'_RESERVED$|_SUPPORTED$|_SHIFT$|_OPTIONAL_FIRST$')
NO_CALL = {'ibv_static_providers'} # only for static builds


def documented(root):
    """@return the literals of the tables: calls, which may be patterns, and flags."""
    with open(os.path.join(root, 'doc', 'verbs.rst'), encoding='utf-8') as f:
        text = f.read()
    rows = re.findall(r'^   \* - (.*?)(?=^     - )', text, re.M | re.S)
    return [name for row in rows for name in re.findall(r'``([^`]+)``', row)]


def exported():
    library = ctypes.util.find_library('ibverbs')
    folders = ('/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/lib64', '/usr/lib')
    path, = [os.path.join(f, library) for f in folders
             if os.path.exists(os.path.join(f, library))][:1]
    names = subprocess.run(['nm', '-D', '--defined-only', path], stdout=subprocess.PIPE, text=True,
                           check=True).stdout
    return set(re.findall(r'\b[TW] (ibv_\w+)', names))


def header():
    with open(HEADER, encoding='utf-8') as f:
        return re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)


def defined(text):
    """@return functions that are declared or defined inline, and macros that replace functions."""
    return set(re.findall(r'^(?![\s#]).*?\b(ibv_\w+)\(', text, re.M)
               + re.findall(r'^#define (ibv_\w+)\(', text, re.M))


def enumerators(text, name):
    body = re.search(r'enum %s\s*\{(.*?)\}' % name, text, re.S)
    return [n for n in re.findall(r'^\s*(IBV_\w+)', body.group(1), re.M) if not NO_FLAG.search(n)]


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    words, text = documented(argv[1]), header()
    calls = (exported() | defined(text)) - NO_CALL
    patterns = [w for w in words if w.startswith('ibv_')]
    wanted = {name for enum in ENUMS for name in enumerators(text, enum)}
    checks = {
        f'{len(calls)} calls are in a table':
            [f'{c} is not' for c in sorted(calls)
             if not any(fnmatch.fnmatchcase(c, p) for p in patterns)],
        'calls in a table are calls':
            [f'{p} is none' for p in patterns if not any(fnmatch.fnmatchcase(c, p) for c in calls)],
        'calls are in a table once':
            [f'{p} is more often' for p in sorted(set(patterns)) if patterns.count(p) > 1],
        f'{len(wanted)} flags are in a table': [f'{n} is not' for n in sorted(wanted - set(words))],
        'flags in a table are flags':
            [f'{w} is none' for w in words
             if w.startswith('IBV_') and not re.search(r'\b%s\b' % w, text)],
    }
    if len(calls) < 150 or len(wanted) < 150:
        checks['the header is understood'] = [f'{len(calls)} calls, {len(wanted)} flags only']
    return each({name: lambda problems=problems: problems for name, problems in checks.items()})


if __name__ == '__main__':
    sys.exit(main(sys.argv))
