#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""perftest over karst: perftest.py KARSTD KARST-RUN (TAP).

Its programs check completions, not content.  This test checks that they report as many messages as
they were told to send, and that so many bytes went through the engine.
"""
import shlex
import sys

from verbs_bed import pair, run_all

MSGS = 200
MSGS_LAT = 40 # few: while both ends poll for each message, no other program has the processors
SIZES = [1 << i for i in range(1, 24)]

# (program and arguments, bytes of a message)
CASES = [
    ('ib_send_bw', 65536),
    ('ib_send_bw -e', 65536),
    ('ib_send_bw -c UC -e', 65536),
    ('ib_send_bw -c UD -e', 4096),
    ('ib_send_bw -b -e', 65536),
    ('ib_send_bw -q 16 -e', 65536),
    ('ib_send_bw -q 4 --use-srq -e', 65536),
    ('ib_send_bw -l 16 --recv_post_list=16 -n 208', 65536),
    ('ib_send_bw --use_old_post_send -e', 65536),
    ('ib_send_bw -x 1 --ipv6 -e', 65536),
    ('ib_send_bw -s 300 -I 300', 300),
    ('ib_send_lat', 2),
    ('ib_send_lat -e', 2),
    ('ib_send_lat -c UC', 2),
    ('ib_send_lat -c UD -e', 2),
    ('ib_send_lat --use-srq -e', 2),
    ('ib_send_lat -s 64 -I 64 -e', 64),
    ('ib_write_bw', 65536),
    ('ib_write_bw -c UC', 65536),
    ('ib_write_bw -b', 65536),
    ('ib_write_bw -q 64 -s 1024', 1024),
    ('ib_write_bw -q 4 --mr_per_qp -l 8', 65536),
    ('ib_write_bw -s 128 -I 128', 128),
    ('ib_write_bw --use_old_post_send', 65536),
    ('ib_write_bw --perform_warm_up', 65536),
    ('ib_write_bw --rate_limit=5 --rate_limit_type=SW', 65536),
    ('ib_write_lat', 2),
    ('ib_write_lat -c UC -s 4097', 4097),
    ('ib_write_lat -s 16 -I 16', 16),
    ('ib_read_bw', 65536),
    ('ib_read_bw -e', 65536),
    ('ib_read_bw -b', 65536),
    ('ib_read_bw -q 16 -o 1', 65536),
    ('ib_read_bw -l 8', 65536),
    ('ib_read_lat -e', 2),
    ('ib_read_lat -s 100000 -o 1 -e', 100000),
    ('ib_atomic_bw -A FETCH_AND_ADD', 8),
    ('ib_atomic_bw -A CMP_AND_SWAP', 8),
    ('ib_atomic_bw -A FETCH_AND_ADD -e -q 4 -o 2', 8),
    ('ib_atomic_bw -A CMP_AND_SWAP -b', 8),
    ('ib_atomic_lat -A FETCH_AND_ADD -e', 8),
    ('ib_atomic_lat -A CMP_AND_SWAP', 8),
    ('ib_send_bw -c XRC -e', 65536),
    ('ib_send_lat -c XRC -e', 2),
    ('ib_write_bw -c XRC', 65536),
    ('ib_write_lat -c XRC', 2),
    ('ib_read_bw -c XRC -e', 65536),
    ('ib_atomic_bw -c XRC', 8),
    *[(f'ib_send_bw -m {mtu} -e', 65536) for mtu in (256, 512, 1024, 2048, 4096)],
    *[(f'ib_read_bw -m {mtu} -e', 65536) for mtu in (256, 2048)],
]
# These run for a time, without a number of messages.
DURATION = [('ib_write_bw -D 1', 65536), ('ib_send_bw -D 1', 65536), ('ib_read_bw -D 1', 65536)]
ALL_SIZES = ['ib_send_bw -a -e -n 10', 'ib_read_bw -a -e -n 10']
# These cases also run over two engines.
WIRE = ('ib_send_bw -e', 'ib_send_bw -c UD -e', 'ib_send_bw -q 4 --use-srq -e',
        'ib_send_bw -x 1 --ipv6 -e', 'ib_send_lat -e', 'ib_write_bw', 'ib_write_bw -c UC',
        'ib_write_bw -b', 'ib_write_lat', 'ib_read_bw -e', 'ib_read_bw -q 16 -o 1',
        'ib_atomic_bw -A FETCH_AND_ADD -e -q 4 -o 2', 'ib_atomic_lat -A CMP_AND_SWAP',
        'ib_send_bw -m 256 -e', 'ib_read_bw -m 2048 -e', 'ib_send_bw -c XRC -e')
BY_VARIABLES = ('ib_send_bw -e', 'ib_write_bw', 'ib_read_lat -e', 'ib_atomic_bw -A CMP_AND_SWAP')


def messages(words):
    """@return how many messages one side sends."""
    n = int(words[words.index('-n') + 1])
    return n * (int(words[words.index('-q') + 1]) if '-q' in words else 1)


def case(tap, engines, text, size, mode='ns'):
    words = shlex.split(text)
    if '-n' not in words:
        words += ['-n', str(MSGS_LAT if words[0].endswith('_lat') else MSGS)]
    n = messages(words)
    # a UC or UD message may be lost, which the bandwidth programs accept
    lossy = '-c' in words and words[words.index('-c') + 1] in ('UC', 'UD')
    moved = 0 if lossy else n * size * (2 if '-b' in words else 1)
    tap.point(f'{len(engines)} engine(s), {mode}: {text}',
              pair(engines, words, mode=mode, says_client=[rf'(?m)^ *{size} +{n} '],
                   frames=n // 2, moved=moved))


def one(tap, _, engine):
    for text, size in CASES:
        case(tap, [engine], text, size)
    for text, size in CASES:
        if text in BY_VARIABLES:
            case(tap, [engine], text, size, 'env')
    for text, size in DURATION:
        tap.point(f'1 engine(s): {text}',
                  pair([engine], text.split(), says_client=[rf'(?m)^ *{size} +[1-9]'],
                       frames=100))
    # rate limits of queue pairs: perftest supports them only for raw packets
    tap.point('1 engine(s): ib_write_bw --rate_limit=5 --rate_limit_type=PP',
              pair([engine], 'ib_write_bw --rate_limit=5 --rate_limit_type=PP'.split(),
                   refused='Packet Pacing is only supported for Raw Ethernet'))
    for text in ALL_SIZES:
        tap.point(f'1 engine(s): {text}',
                  pair([engine], text.split(), moved=10 * sum(SIZES), limit_s=180,
                       says_client=[rf'(?m)^ *{size} +10 ' for size in SIZES]))


def two(tap, _, engines):
    for text, size in CASES:
        if text in WIRE:
            case(tap, engines, text, size)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two))
