# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TAP output and the few capture helpers that the test scripts of this folder share."""
import json
import struct
import subprocess
import sys


class Tap:
    """Counts subtests as they are reported; finish() writes the plan and exits."""

    def __init__(self):
        self.number = 0
        self.failed = 0

    def result(self, name, problems):
        """One subtest: fails if there are problems (a list of texts)."""
        self.number += 1
        self.failed += bool(problems)
        print('%s %d - %s' % ('not ok' if problems else 'ok', self.number, name.replace('#', '')))
        for problem in problems:
            print('# %s: %s' % (name, problem))
        sys.stdout.flush()

    def finish(self):
        print('1..%d' % self.number)
        sys.exit(1 if self.failed else 0)


def skip_all(reason):
    print('1..0 # SKIP %s' % reason)
    sys.exit(0)


def run(dump, *args):
    """Runs karst-dump: (exit status, standard output, standard error)."""
    p = subprocess.run([dump, *args], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def run_json(dump, *args):
    """karst-dump --json: (exit status, objects per frame, the total, standard error)."""
    status, out, err = run(dump, '--json', *args)
    objects = [json.loads(line) for line in out.splitlines()]
    return status, objects[:-1], objects[-1], err


def read_pcap(path):
    """Frames of a classic little-endian pcap with microseconds: (link type, [(ns, bytes)])."""
    with open(path, 'rb') as f:
        data = f.read()
    magic, link = struct.unpack_from('<I16xI', data)
    assert magic == 0xa1b2c3d4, path
    frames, off = [], 24
    while off < len(data):
        sec, usec, caplen, _ = struct.unpack_from('<IIII', data, off)
        frames.append((sec * 10**9 + usec * 1000, data[off + 16:off + 16 + caplen]))
        off += 16 + caplen
    return link, frames


def write_pcap(path, link, frames, endian='<', nano=False):
    """Writes a classic pcap of either byte order and precision."""
    unit = 1 if nano else 1000
    with open(path, 'wb') as f:
        f.write(struct.pack(endian + 'IHHiIII', 0xa1b23c4d if nano else 0xa1b2c3d4, 2, 4, 0, 0,
                            262144, link))
        for ns, frame in frames:
            f.write(struct.pack(endian + 'IIII', ns // 10**9, ns % 10**9 // unit, len(frame),
                                len(frame)))
            f.write(frame)


def write_pcapng(path, link, frames, endian='<'):
    """Writes a pcapng with nanosecond times."""
    def block(kind, body):
        total = 12 + len(body)
        return struct.pack(endian + 'II', kind, total) + body + struct.pack(endian + 'I', total)

    resolution = struct.pack(endian + 'HHBxxxHH', 9, 1, 9, 0, 0)
    with open(path, 'wb') as f:
        f.write(block(0x0a0d0d0a, struct.pack(endian + 'IHHq', 0x1a2b3c4d, 1, 0, -1)))
        f.write(block(1, struct.pack(endian + 'HHI', link, 0, 262144) + resolution))
        for ns, frame in frames:
            f.write(block(6, struct.pack(endian + 'IIIII', 0, ns >> 32, ns & 0xffffffff,
                                         len(frame), len(frame))
                          + frame + bytes(-len(frame) % 4)))
