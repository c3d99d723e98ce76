#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_qp.py CORPUS: seeds for fuzz_qp, one for each area of lib/qp.

An input is four bytes of set-up and a list of actions; the letters here are the actions of
fuzz_qp.c in the order in which it reads their operands.
"""
import hashlib
import os
import sys

RC, UC, UD, XRC = 0, 3, 4, 0xf0
OPEN, LOCAL, READ_ONLY, WINDOW1, WINDOW2 = 0, 1, 2, 4, 5
PAGE = {OPEN: 0, LOCAL: 2}


def va(page=0, off=0):
    return bytes([page, off])


def frame(opcode, psn=0, pay=None, dma=None, key=OPEN, at=None, flags=2, syndrome=None, qp=0,
          feth=None):
    """A made frame; psn: distance to the expected one, or to the oldest unacknowledged."""
    out = [1, qp, opcode, flags | (0x10 if dma is None else 0) | (0x20 if syndrome is not None else 0)]
    out += [0x80 + 16 + psn if psn else 0]
    out += list(at or va()) + [key]
    if feth is not None:
        out += [feth]
    if pay is not None:
        out += [pay]
    if dma is not None:
        out += [dma]
    if syndrome is not None:
        out += [syndrome]
    return bytes(out)


def tx(frames=8, visits=4, size=0xffff):
    return bytes([5, frames - 1, visits - 1, size >> 8, size & 255])


def wait(ticks, shift=13):
    return bytes([7, 0xe0 | shift, ticks - 1])


def send(op, length=8, key=OPEN, flags=2, qp=0, page=0):
    if op in (5, 6):
        return bytes([8, qp, op, flags]) + va(page) + bytes([key])
    return bytes([8, qp, op, flags, 1]) + va(page) + bytes([length, key])


def flush(psn=0, feth=1, dma=8, **more):
    return frame(0x1c, psn, feth=feth, dma=dma, **more)


def send_flush(kind=1, level=0):
    return bytes([8, 0, 14, 2 | level << 6, 8, kind])


def recv(length=64, qp=0):
    return bytes([10, qp, 1]) + va(PAGE[LOCAL]) + bytes([length, LOCAL])


def bind(window, access=2):
    return bytes([8, 0, 8, 2]) + va() + bytes([64, window, OPEN, access])


def change(state, qp=0, value=0):
    """state: index into the table of modify()"""
    return bytes([12, qp | state << 1, value])


ACK, NAK, TAKE = 0x11, 0x60, bytes([13, 63, 1])
LEN = {n: next(b for b in range(0xa0, 0x100) if b % 13 == i) for i, n in enumerate(
    (0, 1, 4, 8, 255, 256, 257, 512, 600, 4096, 4097, 1 << 31, (1 << 32) - 1))}

SEEDS = {
    'write': [RC, 0, 0x23, 0x11, frame(0x0a, pay=8), tx(), frame(0x06, pay=LEN[256], dma=LEN[512]),
              frame(0x08, pay=LEN[256]), tx()],
    'send': [RC, 0, 0x23, 0x11, recv(), recv(LEN[600]), frame(0x04, pay=16), frame(0, pay=LEN[256]),
             frame(3, pay=9), tx(), TAKE],
    'read': [RC, 0, 0x23, 0x11, frame(0x0c, dma=LEN[600]), tx(1, 1), frame(0x0c, -3, dma=LEN[600]),
             tx(), frame(0x0c, -2, dma=88, at=va(0, 64)), tx()],
    'atomic': [RC, 0, 0x23, 0x33, frame(0x14), frame(0x13), tx(), frame(0x14, -2), frame(0x13, -1),
               tx(), frame(0x1d, pay=8), tx()],
    'flush': [RC, 0, 0x23, 0x33, frame(0x0a, pay=8), flush(), flush(1, dma=0), tx(), flush(-2),
              flush(feth=0x11), tx(), send_flush(), send_flush(level=1), tx(), frame(0x10, pay=0),
              frame(0x10, 1, pay=0), TAKE, flush(key=LOCAL), tx()],
    'flush refused': [RC, 0, 0x23, 0x11, flush(feth=3), tx(), send_flush(kind=7), tx(), TAKE],
    'gap': [RC, 0, 0x23, 0x11, frame(0x0a, 1, pay=8), frame(0x0a, 2, pay=8), tx(),
            frame(0x0a, pay=8), tx()],
    'rnr': [RC, 0, 0x23, 0x11, frame(0x04, pay=8), tx(), recv(), frame(0x04, pay=8), tx(), TAKE],
    'refused': [RC, 0, 0x23, 0x11, recv(), frame(0x0a, pay=8, key=READ_ONLY), tx(), TAKE],
    'requests': [RC, 0, 0x23, 0x33, send(0), send(4, LEN[600]), send(6), send(5), send(2, LEN[512]),
                 tx(), frame(ACK), frame(0x0d, pay=LEN[256]), frame(0x0e, pay=LEN[256]),
                 frame(0x0f, pay=88), frame(0x12), frame(0x12), frame(ACK, 1), TAKE],
    'lost': [RC, 2, 0x27, 0x11, send(0, LEN[600]), send(4, LEN[600]), tx(),
             frame(ACK, 1, syndrome=NAK), tx(2, 1), wait(4), tx(), wait(20), tx(), wait(60), tx(),
             wait(60), tx(), TAKE],
    'rnr wait': [RC, 0, 0x27, 0x11, send(2), tx(), frame(ACK, syndrome=0x21), wait(9), tx(),
                 frame(ACK, syndrome=0x21), wait(9), tx(), TAKE],
    'credits': [RC, 0x20, 0x27, 0x11, send(2), send(2), tx(), frame(ACK, syndrome=0), send(2), tx(),
                frame(ACK, syndrome=0), tx(), TAKE],
    'windows': [RC, 0, 0x23, 0x11, bind(WINDOW1), bind(WINDOW2), tx(), TAKE,
                frame(0x0a, pay=8, key=WINDOW1), frame(0x0a, pay=8, key=WINDOW2), recv(),
                frame(0x17, pay=4, key=WINDOW2), tx(), bytes([8, 0, 7, 0x42, WINDOW2, 0]), tx()],
    'shared queue': [RC, 8, 0x23, 0x21, recv(), recv(qp=1), frame(0, pay=LEN[256]),
                     frame(4, pay=8, qp=1), frame(2, pay=8), tx(), TAKE, change(7)],
    'drain': [RC, 0, 0x23, 0x11, send(0, LEN[600]), tx(1, 1), change(4, value=1), tx(),
              frame(ACK, 2), change(5), send(0), tx(), frame(ACK), change(0), change(1)],
    'gone': [RC, 0, 0x23, 0x11, frame(0x0c, dma=LEN[600]), tx(1, 1), bytes([15]), tx()],
    'uc': [UC, 0, 0x23, 0, recv(), frame(4, pay=8), frame(6, pay=LEN[256], dma=LEN[512]),
           frame(8, pay=LEN[256]), frame(0, pay=LEN[256]), frame(2, 1, pay=8), send(0, LEN[600]),
           send(2), send(4), tx(), TAKE, change(3), send(2), tx()],
    'ud': [UD, 0, 0x23, 0, recv(), frame(4, pay=8), recv(), frame(5, pay=9), send(2), send(3),
           bytes([8, 0, 2, 0x82, 1]) + va() + bytes([8, OPEN, 77]), tx(), TAKE],
    'xrc target': [XRC, 0, 0x23, 0x33, recv(), recv(qp=1), recv(LEN[600], qp=1),
                   frame(4, pay=8, qp=1), frame(4, pay=9, qp=1, flags=0x82),
                   frame(0, pay=LEN[256], qp=1, flags=0x82), frame(2, pay=8, qp=1, flags=0x82),
                   frame(0x0a, pay=8, qp=1), frame(0x0c, dma=LEN[600], qp=1, flags=0x82),
                   frame(0x14, qp=1), tx(2, 1), frame(0x0c, -4, dma=LEN[600], qp=1, flags=0x82),
                   frame(0x1d, pay=8, qp=1), tx(), TAKE],
    'xrc queue gone': [XRC, 0, 0x23, 0x33, recv(qp=1), frame(0, pay=LEN[256], qp=1, flags=0x82),
                       bytes([0xfe, 0]), frame(2, pay=8, qp=1, flags=0x82), tx(), TAKE],
    'xrc refused': [XRC, 0, 0x23, 0x33, recv(), frame(4, pay=8, qp=0x41), tx(), change(0, 1)],
    'xrc initiator': [XRC, 0, 0x27, 0x33, send(0), send(4, LEN[600]), send(6), send(2, LEN[512]),
                      tx(), frame(ACK), frame(0x0d, pay=LEN[256]), frame(0x0e, pay=LEN[256]),
                      frame(0x0f, pay=88), frame(0x12), frame(ACK, 1), tx(), wait(60), tx(), TAKE],
    'ipv6': [RC, 0xc0, 0x23, 0x11, recv(), frame(4, pay=8), send(0), tx(), frame(ACK)],
    'overflow': [RC, 4, 0x23, 0x11] + [recv(), frame(4, pay=8)] * 10 + [tx()],
    'hostile': [RC, 0, 0x23, 0x11, send(0), bytes([11, 0x08, 0, 0, 0, 0, 99]), tx(), change(0),
                recv(), bytes([11, 0x0a, 0, 1, 2, 3, 4]), frame(4, pay=8), tx()],
}


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for parts in SEEDS.values():
        seed = b''.join(bytes([p]) if isinstance(p, int) else p for p in parts)
        with open(os.path.join(sys.argv[1], hashlib.sha1(seed).hexdigest()), 'wb') as f:
            f.write(seed)


main()
