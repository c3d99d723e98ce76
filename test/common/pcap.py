# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Capture files: classic pcap of both byte orders and precisions, read and written, and pcapng written.

Frames are pairs (time in nanoseconds, bytes); link types are numbers of tcpdump's list."""
import struct

ETHERNET = 1
SNAP_MAX = 262144
MICROSECONDS, NANOSECONDS = 0xa1b2c3d4, 0xa1b23c4d


def header(link=ETHERNET, snap=SNAP_MAX, endian='<', nano=True):
    """The first 24 bytes of a file whose frames hold at most @snap bytes."""
    return struct.pack(endian + 'IHHiIII', NANOSECONDS if nano else MICROSECONDS, 2, 4, 0, 0, snap, link)


def record(ns, frame, snap=SNAP_MAX, endian='<', nano=True):
    """One frame of a file, cut after @snap bytes."""
    held = bytes(frame[:snap])
    return struct.pack(endian + 'IIII', ns // 10**9, ns % 10**9 // (1 if nano else 1000), len(held),
                       len(frame)) + held


def write_pcap(path, link, frames, endian='<', nano=False, snap=SNAP_MAX):
    with open(path, 'wb') as f:
        f.write(header(link, snap, endian, nano))
        for ns, frame in frames:
            f.write(record(ns, frame, snap, endian, nano))


def read_pcap(path):
    """Reads a classic pcap: (link type, [(ns, bytes)]).  If a file ends within a frame, as while a program
    is still writing it, the frames before that are returned."""
    with open(path, 'rb') as f:
        data = f.read()
    endian = next((e for e in '<>' if len(data) >= 24 and
                   struct.unpack_from(e + 'I', data)[0] in (MICROSECONDS, NANOSECONDS)), None)
    assert endian, f'{path} is not a pcap file'
    magic, link = struct.unpack_from(endian + 'I16xI', data)
    unit = 1 if magic == NANOSECONDS else 1000
    frames, at = [], 24
    while at + 16 <= len(data):
        seconds, fraction, held = struct.unpack_from(endian + 'III', data, at)
        if at + 16 + held > len(data):
            break
        frames.append((seconds * 10**9 + fraction * unit, data[at + 16:at + 16 + held]))
        at += 16 + held
    return link, frames


def write_pcapng(path, link, frames, endian='<'):
    """With times in nanoseconds."""
    def block(kind, body):
        total = 12 + len(body)
        return struct.pack(endian + 'II', kind, total) + body + struct.pack(endian + 'I', total)

    resolution = struct.pack(endian + 'HHBxxxHH', 9, 1, 9, 0, 0)
    with open(path, 'wb') as f:
        f.write(block(0x0a0d0d0a, struct.pack(endian + 'IHHq', 0x1a2b3c4d, 1, 0, -1)))
        f.write(block(1, struct.pack(endian + 'HHI', link, 0, SNAP_MAX) + resolution))
        for ns, frame in frames:
            f.write(block(6, struct.pack(endian + 'IIIII', 0, ns >> 32, ns & 0xffffffff,
                                         len(frame), len(frame))
                          + frame + bytes(-len(frame) % 4)))
