#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""gen_native.py DIRECTORY: make native_ib.pcap and native_ib_erf.pcap (rule W8).

There were no captures of native InfiniBand, so these packets are made from the rules alone, without
any of the C code.  The ICRC is zlib's CRC-32 over a masked copy; the VCRC is computed bit by bit.
The first packet is the example of the InfiniBand specification (volume 1, chapter 7: a local
WRITE), which has the ICRC printed, 0x9625B75A; its VL, which the ICRC does not cover, is 7 here.
"""
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import write_pcap  # noqa: E402

LINK_INFINIBAND, LINK_ERF = 247, 197
LOCAL, GLOBAL = 2, 3


def icrc(packet, grh):
    """ICRC of a packet without its CRCs.  Fields that a switch or router may change are replaced by
    ones."""
    p = bytearray(packet)
    if grh:
        p[0:8] = b'\xff' * 8        # LRH
        p[8] |= 0x0f                # traffic class, flow label
        p[9:12] = b'\xff' * 3
        p[15] = 0xff                # hop limit
        p[8 + 40 + 4] = 0xff        # BTH byte 4
    else:
        p[0] |= 0xf0                # VL
        p[8 + 4] = 0xff
    return struct.pack('<I', zlib.crc32(bytes(p)))


def vcrc(packet):
    """CRC-16, polynomial x^16+x^12+x^3+x+1, lowest bit of each byte first."""
    register = [1] * 16             # [0] is the coefficient of x^15
    for byte in packet:
        for bit in range(8):
            feedback = register[0] ^ (byte >> bit & 1)
            register = register[1:] + [0]
            for power in (12, 3, 1, 0):
                register[15 - power] ^= feedback
    bits = [1 - b for b in register]  # sent inverted, highest power first
    return bytes(sum(bits[8 * i + j] << j for j in range(8)) for i in range(2))


def seal(packet, grh):
    p = packet + icrc(packet, grh)
    return p + vcrc(p)


def lrh(length, lnh, vl=0, sl=0, dlid=2, slid=1):
    return struct.pack('>BBHHH', vl << 4, sl << 4 | lnh, dlid, (length + 4) // 4, slid)


def grh(length, tclass=0, flow=0, hops=64):
    return struct.pack('>IHBB', 6 << 28 | tclass << 20 | flow, length + 4, 0x1b, hops) \
        + bytes.fromhex('fe800000000000000002c90300000001') \
        + bytes.fromhex('fe800000000000000002c90300000002')


def bth(opcode, psn, qpn=0x48, pad=0, ack=False, byte4=0):
    return struct.pack('>BBHII', opcode, 0x40 | pad << 4, 0xffff, byte4 << 24 | qpn,
                       ack << 31 | psn)


def packet(body, lnh=LOCAL, tclass=0, flow=0, **fields):
    body = (grh(len(body), tclass, flow) if lnh == GLOBAL else b'') + body
    return seal(lrh(8 + len(body), lnh, **fields) + body, lnh == GLOBAL)


def packets():
    reth = struct.pack('>QII', 0x7f0000001000, 0x1234, 5)
    atomic = struct.pack('>QIQQ', 0x7f0000001008, 0x1234, 7, 9)
    deth = struct.pack('>II', 0x80010000, 1)
    five = b'karst\0\0\0'
    example = bytes.fromhex('7012375c000e17d20a202487 0087b1b3000dec2a01710a1c015d4002'
                            '38f27a050000000ebb884d85fd5cfba4728bc0690ed40000')
    assert icrc(example, False).hex() == '9625b75a'
    yield seal(example, False)
    yield packet(bth(0x04, 1, pad=3, ack=True) + five)                          # RC SEND Only
    yield packet(bth(0x11, 1) + struct.pack('>I', 0x1f000001))                  # RC ACK
    yield packet(bth(0x04, 2, pad=3, ack=True) + five, GLOBAL, 0xa5, 0x12345)   # with GRH
    yield packet(bth(0x00, 3) + bytes(i & 255 for i in range(4096)), vl=3, sl=5)
    yield packet(bth(0x0a, 4, pad=3, ack=True) + reth + five, GLOBAL)           # RC WRITE Only
    yield packet(bth(0x0c, 5, ack=True) + reth)                                 # RC READ Request
    yield packet(bth(0x10, 5, pad=3) + struct.pack('>I', 0x1f000002) + five)    # READ Resp Only
    yield packet(bth(0x13, 6, ack=True) + atomic, GLOBAL)                       # RC CmpSwap
    yield packet(bth(0x12, 6) + struct.pack('>IQ', 0x1f000003, 9))              # RC Atomic Ack
    yield packet(bth(0x25, 7, pad=3) + b'\0\0\0\x2a' + five)                    # UC SEND Only Imm
    yield packet(bth(0x64, 8, qpn=1) + deth + bytes(256), GLOBAL)               # UD, a MAD
    yield packet(bth(0x44, 9, pad=3) + b'\0\0\0\x07' + deth + five)             # RD SEND Only
    yield packet(bth(0xab, 10, pad=3) + b'\0\0\1\2' + reth + b'\0\0\0\x2b' + five)  # XRC WRITE
    yield packet(bth(0x1c, 11) + b'\0\0\0\x12' + reth, GLOBAL)                  # RC FLUSH
    yield packet(bth(0x1d, 12) + reth + five)                                   # ATOMIC WRITE
    yield packet(bth(0x81, 0, byte4=0x40) + bytes(16))                          # CNP
    raw = lrh(60, 1) + bytes(52)                                                # no transport
    yield raw + vcrc(raw)


def erf(n, data):
    """Make an ERF record; every second one has two extension headers."""
    more = n & 1
    ext = bytes([0x83] + [0] * 7) + bytes([0x03] + [0] * 7) if more else b''
    pad = -(len(data) + len(ext)) % 8
    head = struct.pack('<Q', n << 20) + struct.pack('>BBHHH', more << 7 | 21, 4,
                                                    16 + len(ext) + len(data) + pad, 0, len(data))
    return head + ext + data + bytes(pad)


def main():
    out = list(packets())
    times = [(10**18 + i * 1000, p) for i, p in enumerate(out)]
    write_pcap(os.path.join(sys.argv[1], 'native_ib.pcap'), LINK_INFINIBAND, times)
    ether = erf(1, b'')[:8] + bytes([2]) + erf(1, b'')[9:16] + bytes(64)  # another type of record
    records = [(10**18 + i * 1000, erf(i, p)) for i, p in enumerate(out)] + [(10**18, ether)]
    write_pcap(os.path.join(sys.argv[1], 'native_ib_erf.pcap'), LINK_ERF, records)


if __name__ == '__main__':
    main()
