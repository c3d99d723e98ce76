#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_ctl.py CORPUS: seeds for fuzz_ctl: each operation's request and reply, with pieces and
without, and a refusal.  The sizes are those of doc/control-abi.rst."""
import hashlib
import os
import re
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r'^   \* - (\d+)\n     - ([A-Z_]+)\n     - (\d+)\n     - (\d+)$', re.M)
REG_MR, REREG_MR, OPEN_XRCD = 18, 19, 25


def message(op, body, status=0, nfds=0):
    return bytes([nfds]) + struct.pack('<IHHIIiI', 0x6c74636b, 1, op, 24 + len(body), 1, status,
                                       nfds) + body


def pieces(op, req, n):
    body = bytearray(req + 56 * n)
    struct.pack_into('<I', body, 32 if op == REG_MR else 40, n)
    return bytes(body)


def main(argv):
    with open(os.path.join(ROOT, 'doc', 'control-abi.rst'), encoding='utf-8') as f:
        ops = [(int(op), int(req), int(rsp)) for op, _, req, rsp in ROW.findall(f.read())]
    seeds = [b'', b'\0', message(999, bytes(8)), message(16, b'because'.ljust(232, b'\0'), -22)]
    for op, req, rsp in ops:
        seeds += [message(op, bytes(req)), message(op, bytes(req + 8)), message(op, bytes(rsp))]
        if op == OPEN_XRCD:
            seeds += [message(op, bytes(req), nfds=n) for n in (1, 2)]
        if op in (REG_MR, REREG_MR):
            seeds += [message(op, pieces(op, req, n), nfds=n // 2) for n in (1, 3, 8)]
    os.makedirs(argv[1], exist_ok=True)
    for seed in seeds:
        with open(os.path.join(argv[1], hashlib.sha1(seed).hexdigest()), 'wb') as f:
            f.write(seed)


if __name__ == '__main__':
    main(sys.argv)
