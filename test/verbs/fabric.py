#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""libfabric over karst: fabric.py KARSTD KARST-RUN (TAP).

Its verbs provider connects message endpoints by librdmacm alone, and opens an event queue, which is
librdmacm's too, wherever fi_pingpong asks for plain datagrams.  Reliable datagrams by ofi_rxd over
UD need neither.
"""
import sys

from verbs_bed import NO_RDMA_CM, has_rdma_cm, pair, run_all

ITERS = 30
# 1024 bytes alone: after messages of a megabyte the client sometimes waits for ever, when the server
# has ended well.  Why is not known.
RXD = [
    ('reliable datagrams', ['-p', 'verbs;ofi_rxd', '-e', 'rdm', '-c', '-S', '1024']),
    ('reliable datagrams, tagged', ['-p', 'verbs;ofi_rxd', '-e', 'rdm', '-c', '-m', 'tagged',
                                    '-S', '1024']),
]
CM = [
    ('datagrams', ['-p', 'verbs', '-e', 'dgram', '-c', '-S', '1024']),
    ('messages', ['-p', 'verbs', '-e', 'msg', '-c']),
    ('reliable datagrams by ofi_rxm', ['-p', 'verbs;ofi_rxm', '-e', 'rdm', '-c']),
]


def info(tap, engine):
    program = engine.program(['fi_info', '-p', 'verbs'])
    problems = program.wait()
    for text in ('domain: karst0-dgram', 'protocol: FI_PROTO_IB_UD', 'provider: verbs;ofi_rxd'):
        if text not in program.text():
            problems.append(f'"{text}" is not said')
    tap.point('fi_info -p verbs', problems + (program.shown() if problems else []))


def pingpong(tap, engines, name, words):
    # the table has a line for 1024 bytes
    tap.point(f'{len(engines)} engine(s): fi_pingpong: {name}',
              pair(engines, ['fi_pingpong', '-I', str(ITERS), *words], port=('-B', '-P'),
                   frames=2 * ITERS, says_both=[rf'(?m)^1k +{ITERS} +={ITERS} ']))


def pingpongs(tap, engines):
    for name, words in RXD:
        pingpong(tap, engines, name, words)
    there = has_rdma_cm(engines[0])
    for name, words in CM:
        if there:
            pingpong(tap, engines, name, words)
        else:
            tap.skip(f'{len(engines)} engine(s): fi_pingpong: {name}', NO_RDMA_CM)


def one(tap, _, engine):
    info(tap, engine)
    pingpongs(tap, [engine])


def two(tap, _, engines):
    pingpongs(tap, engines)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two))
