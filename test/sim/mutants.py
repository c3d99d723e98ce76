#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Prints name=number of each deliberate fault in lib/qp/qp_mutant.h."""
import re
import sys

with open(sys.argv[1], encoding='utf-8') as f:
    body = re.search(r'enum karst_mutant \{(.*?)\};', f.read(), re.S).group(1)
body = re.sub(r'/\*.*?\*/', '', body, flags=re.S)
names = re.findall(r'KARST_MUTANT_(\w+)', body)
for number, name in enumerate(names):
    if name not in ('NONE', 'MAX'):
        print('%s=%d' % (name.lower().replace('_', '-'), number))
