#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_smc.py CAPTURES FOLDER: seeds for fuzz_smc_clc, _llc and _cdc in FOLDER/smc_clc and so on: the
messages of the captures of SMC-R, alone and in order; for CDC lists of steps, too."""
import glob
import hashlib
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap  # noqa: E402

EYECATCHER = bytes.fromhex('e2d4c3d9')


def payloads(path):
    """(from the client, is RoCE, bytes) of each CLC message and each SEND."""
    for _, frame in read_pcap(path)[1]:
        if frame[12:14] != b'\x08\0':
            continue
        ip = frame[14:14 + struct.unpack('>H', frame[16:18])[0]]
        client = ip[15] == 1
        if ip[9] == 6:
            body = ip[20 + (ip[32] >> 4) * 4:]
            if body[:4] == EYECATCHER:
                yield client, False, body
        elif ip[9] == 17 and ip[28] == 4:
            yield client, True, ip[40:-4]


def main(argv):
    seeds = {'smc_clc': set(), 'smc_llc': set(), 'smc_cdc': set()}
    for path in sorted(glob.glob(os.path.join(argv[1], 'smc*.pcap'))):
        steps = {True: b'', False: b''}
        for client, roce, body in payloads(path):
            us = 1 if client else 0 # who hears it: the other side
            if not roce:
                for config in (0, 2, 4, 8, 12):
                    seeds['smc_clc'].add(bytes([config | us]) + body)
            elif body[0] == 0xfe:
                seeds['smc_cdc'].add(b'\0' + body + b'\x40' + body)
            else:
                step = b'\1' + struct.pack('>H', len(body)) + body
                steps[client] += step
                for config in (0, 4, 12):
                    seeds['smc_llc'].add(bytes([config | us]) + step)
        for client, step in steps.items():
            if step:
                seeds['smc_llc'].add(bytes([12 | client]) + step)
    honest = bytes([1, 1, 0, 200, 0, 0, 0, 0, 0, 0])
    for calls in (b'\x44\0\x64', b'\x43\x10\0', b'\x4b\0\x05', b'\x45', b'\x4e', b'\x56', b'\xf7'):
        seeds['smc_cdc'].add(honest + calls)
        seeds['smc_cdc'].add(b'\x43\x40\0\x43\x10\0' + honest + calls * 2 + honest)
    for name, inputs in seeds.items():
        folder = os.path.join(argv[2], name)
        os.makedirs(folder, exist_ok=True)
        for data in inputs:
            with open(os.path.join(folder, hashlib.sha1(data).hexdigest()), 'wb') as f:
                f.write(data)


if __name__ == '__main__':
    main(sys.argv)
