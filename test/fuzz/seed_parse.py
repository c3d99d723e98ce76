#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""seed_parse.py CAPTURES CORPUS: seeds for fuzz_parse from the captures.

Of each kind of frame (opcode, IP version, tag, pad) the shortest, a few of other protocols, all
native InfiniBand packets, and the same carried by RoCEv2, for the opcodes that no peer sent.
"""
import hashlib
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap  # noqa: E402


def kind(frame):
    """The kind of frame: each kind gets one seed."""
    off = 18 if frame[12:14] == b'\x81\x00' else 14
    ether = frame[off - 2:off]
    if ether == b'\x08\x00':
        proto, udp = frame[off + 9], off + 20
    elif ether == b'\x86\xdd':
        proto, udp = frame[off + 6], off + 40
    else:
        return (ether,)
    if proto != 17 or frame[udp + 2:udp + 4] != b'\x12\xb7':
        return (ether, proto)
    return (ether, off, frame[udp + 8], frame[udp + 9] >> 4)


def roce(native):
    """A native packet's transport part in Ethernet, IPv4 and UDP, sealed."""
    grh = native[1] & 3 == 3
    body = native[48 if grh else 8:-6]
    udp = struct.pack('>HHHH', 0xc000, 4791, len(body) + 12, 0)
    ip = bytearray(struct.pack('>BBHHHBBH', 0x45, 0, len(body) + 32, 1, 0x4000, 64, 17, 0)
                   + bytes([192, 0, 2, 1, 192, 0, 2, 2]))
    s = sum(struct.unpack('>10H', ip))
    s = (s & 0xffff) + (s >> 16)
    ip[10:12] = struct.pack('>H', ~s & 0xffff)
    cover = bytearray(ip + udp + body)
    for at in (1, 8, 10, 11, 26, 27, 32):
        cover[at] = 0xff
    icrc = struct.pack('<I', zlib.crc32(b'\xff' * 8 + bytes(cover)))
    return bytes.fromhex('0200000000020200000000010800') + bytes(ip) + udp + body + icrc


def main():
    captures, corpus = sys.argv[1:]
    best, seeds = {}, []
    for name in sorted(os.listdir(captures)):
        if not name.endswith('.pcap') or name.startswith('native_'):
            continue
        for _, frame in read_pcap(os.path.join(captures, name))[1]:
            k = kind(frame)
            if k not in best or len(frame) < len(best[k]):
                best[k] = frame
    for _, packet in read_pcap(os.path.join(captures, 'native_ib.pcap'))[1]:
        if len(packet) < 1000:
            seeds.append(packet)
            if packet[1] & 2:
                seeds.append(roce(packet))
    os.makedirs(corpus, exist_ok=True)
    for seed in seeds + list(best.values()):
        with open(os.path.join(corpus, hashlib.sha1(seed).hexdigest()), 'wb') as f:
            f.write(seed)


main()
