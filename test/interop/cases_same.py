# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What a program is told by verbs and rdma_cm, over the kernel's soft-RoCE and over karst (same/).

Differences must be in same/known.tsv, and what is there must differ.
"""
import fnmatch
import os

from interop_bed import Case, HERE

LIMIT_S = 600
RXE, KARST = 'verbs-same rxe0', 'karst-run verbs-same karst0'


def observations(text):
    """{(case, what, the how many-th of the same): result}"""
    found = {}
    for line in text.splitlines():
        case, what, result = (line.split(': ', 2) + ['', ''])[:3]
        n = 0
        while (case, what, n) in found:
            n += 1
        found[case, what, n] = result
    return found


def known():
    """[case, what, soft-RoCE's result, karst's, why]: patterns"""
    with open(os.path.join(HERE, 'same', 'known.tsv'), encoding='utf-8') as f:
        return [line.rstrip('\n').split('\t') for line in f if not line.startswith('#')]


def compare(rxe, karst, rows):
    """@return problems: differences that are not known, and known ones that are none."""
    problems, used = [], set()
    for key in [*rxe, *(key for key in karst if key not in rxe)]:
        said = [found.get(key, 'nothing') for found in (rxe, karst)]
        if said[0] == said[1]:
            continue
        fits = [n for n, row in enumerate(rows)
                if all(map(fnmatch.fnmatchcase, (*key[:2], *said), row[:4]))]
        used.update(fits[:1])
        if not fits:
            problems += [f'{key[0]}: {key[1]}:', f'  soft-RoCE: {said[0]}', f'  karst: {said[1]}']
    return problems + [f'same/known.tsv: no difference: {" | ".join(row)}'
                       for n, row in enumerate(rows) if n not in used]


def same(bed, kind, role):
    said = []
    for line in (RXE, KARST):
        status, text = bed.guest.run(line, LIMIT_S)
        if status != 0:
            return [f'{line}: status {status}', *text.splitlines()[-20:]]
        said.append(observations(text))
    return compare(*said, known())


CASES = [Case('verbs and rdma_cm tell a program the same as the kernel\'s', run=same, kinds=('inside',),
              roles=('both',), kernels=('6.12',), frames=0)]
