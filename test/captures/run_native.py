#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_native.py KARST_DUMP: native InfiniBand (W8): packets of gen_native.py, intact and
damaged."""
import filecmp
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap, write_pcap  # noqa: E402
from tap import run_json, run_tests  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DUMP = sys.argv[1]
PLAIN = os.path.join(HERE, 'native_ib.pcap')
ERF = os.path.join(HERE, 'native_ib_erf.pcap')
PACKETS, RAW = 17, 1


def test_generator(tmp):
    """The captures in this folder are what the generator makes."""
    subprocess.run([sys.executable, os.path.join(HERE, 'gen_native.py'), tmp], check=True)
    return [n for n in ('native_ib.pcap', 'native_ib_erf.pcap')
            if not filecmp.cmp(os.path.join(HERE, n), os.path.join(tmp, n), shallow=False)]


def test_all_right(_):
    problems = []
    for path, others in ((PLAIN, RAW), (ERF, RAW + 1)):
        status, got, total, err = run_json(DUMP, '--rebuild', path)
        want = {'frames': PACKETS + others, 'roce': PACKETS, 'icrc_ok': PACKETS, 'icrc_bad': 0,
                'vcrc_ok': PACKETS, 'vcrc_bad': 0, 'rebuilt': PACKETS, 'rebuild_mismatch': 0,
                'malformed': 0}
        bad = {k: total[k] for k in want if total[k] != want[k]}
        if status != 0 or bad:
            problems.append('%s: status %d, %s %s' % (path, status, bad, err))
    return problems


def test_fields(_):
    _, got, total, _ = run_json(DUMP, PLAIN)
    fourth = got[3]
    checks = {
        'example ICRC': got[0]['icrc']['value'] == 0x5ab72596,  # 96 25 b7 5a, lowest byte first
        'example RETH': got[0]['bth']['name'] == 'RC_WRITE_ONLY',
        'LRH': got[4]['lrh'] == {'slid': 1, 'dlid': 2, 'vl': 3, 'sl': 5, 'lnh': 2, 'words': 1030},
        'GRH': fourth['grh']['tclass'] == 0xa5 and fourth['grh']['flow'] == 0x12345
               and fourth['grh']['src'] == 'fe80::2:c903:0:1',
        'atomic': got[8]['atomiceth']['compare'] == '0x0000000000000009',
        'RD': got[12]['rdeth']['eec'] == 7 and got[12]['deth']['srcqp'] == 1,
        'XRC': got[13]['xrceth']['srq'] == 0x102 and got[13]['immdt']['imm'] == 0x2b,
        'FLUSH': got[14]['feth'] == {'placement': 2, 'selectivity': 1},
        'CNP': got[16]['bth']['becn'] and total['by_opcode']['CNP'] == 1,
    }
    return [name for name, ok in checks.items() if not ok]


def test_without_vcrc(tmp):
    """Captures without the VCRC."""
    path = os.path.join(tmp, 'no_vcrc.pcap')
    link, frames = read_pcap(PLAIN)
    write_pcap(path, link, [(ns, f[:-2]) for ns, f in frames[:PACKETS]])
    status, _, total, _ = run_json(DUMP, '--rebuild', path)
    ok = (status, total['icrc_ok'], total['vcrc_ok'], total['vcrc_bad'],
          total['rebuild_mismatch']) == (0, PACKETS, 0, 0, 0)
    return [] if ok else ['status %d, %s' % (status, total)]


def test_every_byte_flipped(tmp):
    """One bit flipped in each byte of each packet: the VCRC finds all of them."""
    problems = []
    rng = random.Random(8)
    path = os.path.join(tmp, 'flipped.pcap')
    for number, (ns, f) in enumerate(read_pcap(PLAIN)[1][:PACKETS], 1):
        damaged = []
        for at in range(0, len(f), 1 if len(f) < 512 else 37):
            bad = bytearray(f)
            bad[at] ^= 1 << rng.randrange(8)
            damaged.append((ns, bytes(bad)))
        write_pcap(path, 247, damaged)
        status, got, total, _ = run_json(DUMP, path)
        right = [g['frame'] for g in got if 'vcrc' in g and g['vcrc']['check'] == 'ok']
        if status != 1 or right:
            problems.append('packet %d: damage at %s not seen' % (number, right))
        # only the VCRC covers the LRH of a packet with a GRH, VL, and the masked fields
        if total['icrc_bad'] < len(damaged) // 4:
            problems.append('packet %d: %s' % (number, total))
    return problems


def test_changed_on_the_way(tmp):
    """A switch has changed the VL and the VCRC: all correct.  The SLID was changed: the ICRC is
    wrong."""
    import gen_native
    problems = []
    path = os.path.join(tmp, 'rerouted.pcap')
    local = read_pcap(PLAIN)[1][1][1]
    for at, value, field, want in ((0, 0x90, 'icrc_ok', 1), (7, 0x33, 'icrc_bad', 1)):
        p = bytearray(local[:-2])
        p[at] = value
        p = bytes(p) + gen_native.vcrc(bytes(p))
        write_pcap(path, 247, [(0, p)])
        _, _, total, _ = run_json(DUMP, path)
        if total[field] != want or total['vcrc_ok'] != 1:
            problems.append('byte %d: %s' % (at, total))
    return problems


def test_cut(tmp):
    """A packet that is cut to any length is rejected."""
    path = os.path.join(tmp, 'cut.pcap')
    frame = read_pcap(PLAIN)[1][5][1]
    write_pcap(path, 247, [(0, frame[:n]) for n in range(len(frame) - 2)])
    status, _, total, _ = run_json(DUMP, path)
    ok = status == 1 and total['malformed'] == len(frame) - 2 and total['roce'] == 0
    return [] if ok else ['status %d, %s' % (status, total)]


run_tests(globals())
