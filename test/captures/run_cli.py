#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_cli.py KARST_DUMP: file formats, damaged files, damaged frames, and the command line."""
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap, write_pcap, write_pcapng  # noqa: E402
from tap import run, run_json, run_tests  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DUMP = sys.argv[1]
SAMPLE = os.path.join(HERE, 'vt_ipv6_ops.pcap')
TAGGED = os.path.join(HERE, 'vt_vlan.pcap')


def test_formats(tmp):
    """The same frames in every container give the same lines."""
    problems = []
    link, frames = read_pcap(SAMPLE)
    _, want, total, _ = run_json(DUMP, '--rebuild', SAMPLE)
    writers = {
        'big-endian pcap': lambda p: write_pcap(p, link, frames, endian='>'),
        'nanosecond pcap': lambda p: write_pcap(p, link, frames, nano=True),
        'big-endian nanosecond pcap': lambda p: write_pcap(p, link, frames, '>', True),
        'pcapng': lambda p: write_pcapng(p, link, frames),
        'big-endian pcapng': lambda p: write_pcapng(p, link, frames, endian='>'),
    }
    path = os.path.join(tmp, 'formats')
    for name, write in writers.items():
        write(path)
        status, got, got_total, err = run_json(DUMP, '--rebuild', path)
        if (status, got, got_total) != (0, want, total):
            problems.append('%s: status %d, total %s, %s' % (name, status, got_total, err))
    return problems


def test_nanoseconds(tmp):
    path = os.path.join(tmp, 'nano.pcap')
    frame = read_pcap(SAMPLE)[1][0][1]
    write_pcap(path, 1, [(10**18, frame), (10**18 + 1234567891, frame)], nano=True)
    _, got, _, _ = run_json(DUMP, path)
    times = [f['time_ns'] for f in got]
    return [] if times == [0, 1234567891] else ['times are %s' % times]


def test_cut_file(tmp):
    """A capture that is cut inside a frame: an error with file, frame and byte; the rest counts."""
    problems = []
    path = os.path.join(tmp, 'cut.pcap')
    with open(SAMPLE, 'rb') as f:
        data = f.read()
    frames = read_pcap(SAMPLE)[1]
    start = 24 + sum(16 + len(f) for _, f in frames[:5])
    for size in (start + 3, start + 16, start + 20):
        with open(path, 'wb') as f:
            f.write(data[:size])
        status, got, total, err = run_json(DUMP, path)
        if status != 1 or len(got) != 5 or total['errors'] != 1:
            problems.append('cut at %d: status %d, %d frames' % (size, status, len(got)))
        for word in (path, 'frame 6', 'byte %d' % start):
            if word not in err:
                problems.append('cut at %d: no "%s" in: %s' % (size, word, err))
    return problems


def test_cut_pipe(_):
    """Messages about a pipe name no position, because it has none."""
    problems = []
    with open(SAMPLE, 'rb') as f:
        data = f.read()
    for size in (2, len(data) - 3):
        done = subprocess.run([DUMP, '--quiet', '-'], input=data[:size], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode != 1 or b'karst-dump: -: ' not in done.stderr or b'byte -1' in done.stderr:
            problems.append('cut at %d: status %d, %s' % (size, done.returncode, done.stderr))
    return problems


def test_not_a_capture(tmp):
    problems = []
    path = os.path.join(tmp, 'text')
    for content in (b'', b'ab', b'this is no capture file at all'):
        with open(path, 'wb') as f:
            f.write(content)
        status, _, err = run(DUMP, path)
        if status != 1 or path not in err:
            problems.append('%r: status %d, %s' % (content, status, err))
    write_pcap(path, 113, [(0, b'x' * 60)])
    status, _, err = run(DUMP, path)
    if status != 1 or '113' not in err or 'Ethernet (1)' not in err:
        problems.append('link type 113: status %d, %s' % (status, err))
    for mode in ((), ('--quiet',), ('--rebuild',), ('--analyse',)):
        status, out, err = run(DUMP, *mode, path + '.not.there')
        if status != 1 or out or '.not.there: No such file' not in err:
            problems.append('missing file %s: status %d, %s%s' % (mode, status, out, err))
    status, out, err = run(DUMP, '--quiet', path + '.not.there', SAMPLE)
    if status != 1 or '.not.there: 0 frames' in out or 'not read or not to the end: 1 file\n' not in out:
        problems.append('one of two is missing: status %d, %s%s' % (status, out, err))
    status, _, total, err = run_json(DUMP, path + '.not.there')
    if status != 1 or total['errors'] != 1:
        problems.append('missing file, JSON: status %d, %s' % (status, total))
    return problems


def is_roce(frame):
    off = 18 if frame[12:14] == b'\x81\x00' else 14
    udp = off + (20 if frame[off - 2:off] == b'\x08\x00' else 40)
    proto = frame[off + 9] if udp - off == 20 else frame[off + 6]
    return proto == 17 and frame[udp + 2:udp + 4] == struct.pack('>H', 4791), off, udp


def test_flipped_bits(tmp):
    """A flip of any bit of a RoCE packet that the ICRC covers is never accepted."""
    problems = []
    rng = random.Random(4791)
    path = os.path.join(tmp, 'flipped.pcap')
    for source in (SAMPLE, TAGGED):
        link, frames = read_pcap(source)
        damaged = []
        for ns, frame in frames:
            yes, off, udp = is_roce(frame)
            if not yes:
                continue
            for _ in range(40):
                bad = bytearray(frame)
                at = rng.randrange(udp + 8, len(frame))
                if at == udp + 12:
                    continue  # BTH byte 4 is not covered
                bad[at] ^= 1 << rng.randrange(8)
                damaged.append((ns, bytes(bad)))
        write_pcap(path, link, damaged)
        status, got, total, _ = run_json(DUMP, path)
        if status != 1 or total['icrc_ok'] != 0:
            problems.append('%s: status %d, %d of %d passed' %
                            (source, status, total['icrc_ok'], len(damaged)))
        if total['icrc_bad'] + total['malformed'] != len(damaged):
            problems.append('%s: %s' % (source, total))
    return problems


def test_masked_fields(tmp):
    """Fields that routers change are not covered: still correct, and rebuilt with the new
    values."""
    path = os.path.join(tmp, 'masked.pcap')
    link, frames = read_pcap(TAGGED)
    changed = []
    for ns, frame in frames:
        yes, off, udp = is_roce(frame)
        if not yes:
            continue
        f = bytearray(frame)
        f[off + 1] = 0xbb       # ToS, with CE
        f[off + 8] = 3          # TTL
        f[off + 10:off + 12] = b'\0\0'
        s = sum(struct.unpack('>10H', f[off:off + 20]))
        s = (s & 0xffff) + (s >> 16)
        s = (s & 0xffff) + (s >> 16)
        f[off + 10:off + 12] = struct.pack('>H', ~s & 0xffff)
        f[udp + 12] |= 0xc0     # FECN and BECN
        changed.append((ns, bytes(f)))
    write_pcap(path, link, changed)
    status, got, total, _ = run_json(DUMP, '--rebuild', path)
    ok = status == 0 and total['icrc_ok'] == len(changed) and total['rebuild_mismatch'] == 0
    ok = ok and all(f['ip']['ttl'] == 3 and f['ip']['tos'] == 0xbb and f['ip']['ce']
                    and f['bth']['fecn'] and f['bth']['becn'] for f in got)
    return [] if ok else ['status %d, %s' % (status, total)]


def test_rebuild_finds(tmp):
    """Only --rebuild finds reserved bits that are set and wrong pad bytes."""
    import zlib
    problems = []
    path = os.path.join(tmp, 'odd.pcap')
    link, frames = read_pcap(os.path.join(HERE, 'vt_send_sizes.pcap'))
    # a padded SEND Only with its last pad byte set, and a new ICRC
    for ns, frame in frames:
        yes, off, udp = is_roce(frame)
        if yes and frame[udp + 8] == 4 and frame[udp + 9] >> 4 & 3:
            break
    bad = bytearray(frame)
    bad[-5] = 0x55
    cover = bytearray(bad[off:-4])
    for at in (1, 8, 10, 11, 26, 27, 32):
        cover[at] = 0xff
    bad[-4:] = struct.pack('<I', zlib.crc32(b'\xff' * 8 + bytes(cover)))
    write_pcap(path, link, [(ns, bytes(bad))])
    status, _, total, _ = run_json(DUMP, path)
    if status != 0 or total['icrc_ok'] != 1:
        problems.append('without --rebuild: status %d, %s' % (status, total))
    status, got, total, _ = run_json(DUMP, '--rebuild', path)
    if status != 1 or total['rebuild_mismatch'] != 1:
        problems.append('with --rebuild: status %d, %s' % (status, total))
    elif got[0]['rebuilt']['byte'] != len(bad) - 5:
        problems.append('difference at %s' % got[0]['rebuilt'])
    return problems


def test_short_capture_length(tmp):
    """Frames that were captured in part (a snap length): malformed, with the reason."""
    path = os.path.join(tmp, 'snap.pcap')
    write_pcap(path, 1, read_pcap(TAGGED)[1], snap=64)
    status, got, total, _ = run_json(DUMP, path)
    want = len([1 for _, f in read_pcap(TAGGED)[1] if is_roce(f)[0]])
    if status != 1 or total['malformed'] != want or total['by_reason'] != {'runt': want}:
        return ['status %d, %s' % (status, total)]
    return []


def test_noise(tmp):
    """Random bytes after plausible headers, at every short length: never a crash or an error."""
    problems = []
    rng = random.Random(1)
    path = os.path.join(tmp, 'noise.pcap')
    starts = [bytes(12) + s for s in (b'', b'\x08\x00\x45', b'\x86\xdd\x60', b'\x08\x06',
                                      b'\x81\x00\x00\x05\x08\x00\x45', b'\x81\x00')]
    starts += [b'\x00\x02', b'\x00\x03', bytes(8) + b'\x95', bytes(8) + b'\x15']
    for link in (1, 247, 197):
        frames = [(i, (rng.choice(starts) + rng.randbytes(140))[:i % 150]) for i in range(3000)]
        write_pcap(path, link, frames)
        for extra in ([], ['--json', '--rebuild']):
            status, out, err = run(DUMP, *extra, path)
            if status not in (0, 1) or err or len(out.splitlines()) < len(frames):
                problems.append('link type %d: status %d, %s' % (link, status, err))
    return problems


def test_standard_input(_):
    import subprocess
    with open(SAMPLE, 'rb') as f:
        p = subprocess.run([DUMP, '--json', '--quiet', '-'], stdin=f, capture_output=True)
    want = run(DUMP, '--json', '--quiet', SAMPLE)[1]
    return [] if p.stdout.decode() == want else [p.stdout.decode() + p.stderr.decode()]


def test_several_files(_):
    status, out, _ = run(DUMP, '--json', '--quiet', SAMPLE, TAGGED)
    import json
    objects = [json.loads(line) for line in out.splitlines()]
    if status != 0 or len(objects) != 3 or [o.get('file') for o in objects] != [SAMPLE, TAGGED, None]:
        return ['status %d: %s' % (status, out)]
    for key in ('frames', 'roce', 'icrc_ok'):
        if objects[0][key] + objects[1][key] != objects[2][key]:
            return ['%s does not add up: %s' % (key, out)]
    return []


def test_count_and_quiet(_):
    status, got, total, _ = run_json(DUMP, '--count', '3', SAMPLE)
    problems = [] if (status, len(got), total['frames']) == (0, 3, 3) else ['--count: %s' % total]
    status, out, _ = run(DUMP, '--quiet', SAMPLE)
    if status != 0 or not out.startswith(SAMPLE + ': ') or len(out.splitlines()) > 4:
        problems.append('--quiet: %s' % out)
    return problems


def test_text(_):
    """One line for each frame, with every header and every key that a reader needs."""
    problems = []
    status, out, _ = run(DUMP, '--rebuild', SAMPLE)
    lines = out.splitlines()
    frames = read_pcap(SAMPLE)[1]
    if [int(line.split()[0]) for line in lines[:len(frames)]] != list(range(1, len(frames) + 1)):
        problems.append('not one line a frame')
    for word in ('RC SEND Only', 'RC READ Request', '| reth va 0x', '| aeth ACK', 'icrc 0x', ' ok',
                 'ip6 fd00::1 > fd00::2', 'rebuilt same'):
        if word not in out:
            problems.append('no "%s"' % word)
    return problems


def test_usage(_):
    problems = []
    bad = {
        (): 'FILE',
        ('--count',): '--count',
        ('--count', '0', SAMPLE): "'0'",
        ('--count', '-1', SAMPLE): "'-1'",
        ('--count', '3x', SAMPLE): "'3x'",
        ('--quirk', 'none', SAMPLE): 'flush-icrc',
        ('--frobnicate', SAMPLE): '--frobnicate',
        ('--json=yes', SAMPLE): '--json',
        ('-x', SAMPLE): '-x',
    }
    for args, word in bad.items():
        status, out, err = run(DUMP, *args)
        if status != 2 or out or word not in err or 'karst-dump:' not in err:
            problems.append('%s: status %d, %s' % (args, status, err))
    for args, word in {('-h',): 'usage:', ('--help',): '--rebuild', ('--version',): 'karst-dump '}.items():
        status, out, err = run(DUMP, *args)
        if status != 0 or word not in out or err:
            problems.append('%s: status %d, %s%s' % (args, status, out, err))
    return problems


run_tests(globals())
