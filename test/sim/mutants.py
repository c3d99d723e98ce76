#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Prints the names of the deliberate faults in a header such as lib/qp/qp_mutant.h, in the order of
its enum."""
import re
import sys

with open(sys.argv[1], encoding='utf-8') as f:
    body = re.search(r'enum karst_(?:smc_)?mutant \{(.*?)\};', f.read(), re.S).group(1)
body = re.sub(r'/\*.*?\*/', '', body, flags=re.S)
names = re.findall(r'(?:KARST|SMC)_MUTANT_(\w+)', body)
for name in names:
    if name not in ('NONE', 'MAX'):
        print(name.lower().replace('_', '-'))
