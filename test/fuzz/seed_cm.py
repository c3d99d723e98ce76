#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_cm.py CAPTURES CORPUS: seeds for fuzz_cm: the management datagrams of the captures, one of
each kind and program, and lists of steps that lead to every state."""
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap  # noqa: E402

HEAD = bytes([12, 5, 13, 1, 2, 3, 4])
PATH = b'\0'
RAW, CRAFTED, ANSWER, CALL, PASS = 0, 1, 2, 4, 5
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(11)
(CONNECT, LISTEN, ACCEPT, READY, REJECT, ESTABLISHED, ASK_MRA, DISCONNECT, REPLY, SIDR, SIDR_REPLY,
 INFO, DESTROY) = range(13)


LAP_CALL, APR_CALL = 251, 250


def call(which, number=1, arg=3):
    """A call about the user's number-th id (0: the listener), with an RC queue pair."""
    return bytes([CALL, which, arg, number]) + PATH + bytes([4])


def req(n, kind=REQ):
    """The n-th connection that the peer requests, without calls within the event."""
    tail = bytes([n]) if kind == REQ else b''
    return bytes([CRAFTED]) + PATH + bytes([kind, n, n, 0]) + tail + b'\0\0'


def answer(how=1):
    return bytes([ANSWER, how, 0])


def wait(exponent):
    return bytes([PASS, exponent, 0])


def steps():
    """Sequences to every state, and from there to the end by each side."""
    active = call(CONNECT, 0) + answer() + call(READY)
    passive = req(1) + call(ACCEPT) + answer()
    yield from (call(CONNECT, 0), call(CONNECT, 0) + answer(), active, passive)
    yield from (req(1), req(1) + req(1), req(1) + call(ACCEPT) + req(1))
    yield from (req(1) + call(ASK_MRA) + req(1) + call(REJECT) + req(1), req(1) + call(DESTROY))
    for side in (active, passive):
        for end in (call(DISCONNECT) + answer(), call(DISCONNECT) + answer(0x81),
                    answer() + call(REPLY), call(DESTROY) + answer(), answer() + call(DESTROY),
                    call(DISCONNECT) + wait(31) * 4):
            yield side + end + wait(33) + wait(33)
        yield side + call(LAP_CALL) + answer() + call(LAP_CALL) + wait(31) * 4
    # one of the peer's, for the queue pair of call()
    lap = bytes([CRAFTED]) + PATH + bytes([LAP, 1, 1, 0x41, 4, 0, 0])
    yield passive + lap + lap + call(APR_CALL) + lap + call(LAP_CALL) + lap + answer()
    yield call(CONNECT, 0) + answer(0x41) + wait(30) * 8
    yield call(CONNECT, 0) + answer(0x81)
    yield call(SIDR, 0) + answer()
    yield req(1, SIDR_REQ) + call(SIDR_REPLY) + req(1, SIDR_REQ)
    yield b''.join(req(n) for n in range(1, 12)) + wait(31) + req(20) + req(21)
    yield b''.join(call(CONNECT, 0) + call(DESTROY, n) for n in range(16))


def main(argv):
    seeds, kinds = [b'', HEAD], set()
    for name in sorted(os.listdir(argv[1])):
        if not name.endswith('.pcap') or name.startswith('native'):
            continue
        for _, frame in read_pcap(os.path.join(argv[1], name))[1]:
            mad = frame[-260:-4]
            if len(frame) < 322 or mad[:4] != b'\1\7\2\3' or (name, mad[17]) in kinds:
                continue
            kinds.add((name, mad[17]))
            seeds.append(HEAD + bytes([RAW]) + PATH + b'\0' + mad + b'\0')
    seeds += [HEAD + s for s in steps()]
    os.makedirs(argv[2], exist_ok=True)
    for seed in seeds:
        with open(os.path.join(argv[2], hashlib.sha1(seed).hexdigest()), 'wb') as f:
            f.write(seed)


if __name__ == '__main__':
    main(sys.argv)
