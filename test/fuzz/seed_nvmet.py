#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_nvmet.py CORPUS: seeds for fuzz_nvmet: a host that connects, makes an I/O queue and uses it;
one of the discovery service; one that is silent."""
import hashlib
import os
import sys

CONNECT, LATE, TIME, CHANGE, DOWN, RAW, COMMAND = 1, 2, 3, 4, 5, 6, 8


def step(what, queue=0):
    return bytes([what | queue << 4])


def connect(queue, how):
    return step(CONNECT, queue) + bytes([how, 0])


def command(queue, which, blocks=0, number=0):
    return step(COMMAND, queue) + bytes([which, blocks, number, 0])


def raw(queue, capsule):
    return step(RAW, queue) + len(capsule).to_bytes(2, 'big') + capsule


def main(argv):
    begin = connect(0, 0x40) + connect(1, 1)
    admin = b''.join(command(0, which, number=n) for which in range(8) for n in (0, 1, 2, 3, 5, 7))
    reads = b''.join(command(1, which | ns, n, n) for which in (0, 2, 4) for ns in (0, 0x80)
                     for n in (0, 7, 15))
    writes = b''.join(command(1, which, n, n) + b'\0' + step(LATE) + b'\0' + b'\1' * 64
                      for which in (1, 3, 5) for n in (0, 7))
    inside = command(1, 0x21) + command(1, 0x23, 1)
    events = command(0, 5) + step(CHANGE) + b'\x10' + command(0, 0, number=4)
    sqe = bytes([2, 0x40, 0, 1, 1]) + bytes(59)
    seeds = [b'', begin + admin, begin + reads, begin + writes, begin + inside, begin + events,
             connect(0, 0x80) + command(0, 0, number=0x70) + admin, begin + raw(1, sqe) + raw(0, sqe),
             begin + command(1, 1, 7) + b'\0' + step(DOWN) + step(LATE) + b'\0',
             begin + step(TIME) + b'\xff\xff' + command(1, 2),
             begin + connect(1, 1) + connect(2, 1) + connect(3, 1) + connect(4, 0x20) + step(DOWN, 1)]
    os.makedirs(argv[1], exist_ok=True)
    for seed in seeds:
        with open(os.path.join(argv[1], hashlib.sha1(seed).hexdigest()), 'wb') as f:
            f.write(seed)


if __name__ == '__main__':
    main(sys.argv)
