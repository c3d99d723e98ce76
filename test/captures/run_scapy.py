#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_scapy.py KARST_DUMP: compare with scapy's RoCE layer, as an independent oracle, both ways.

Both programs decode the frames of the captures, and their fields are compared.  karst-dump reads
frames that scapy makes, with the ICRC of scapy.  scapy 2.5 supports BTH and AETH, and the ICRC only
over IPv4.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from pcap import read_pcap, write_pcap  # noqa: E402
from tap import Tap, run_json, skip_all  # noqa: E402

try:
    from scapy.contrib.roce import AETH, BTH, cnp
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1Q, Ether
    from scapy.packet import Raw
except ImportError as e:
    # Debian's package is for Debian's python3, which may not be the first one in PATH
    if os.path.exists('/usr/bin/python3') and 'KARST_SCAPY_RETRY' not in os.environ:
        os.environ['KARST_SCAPY_RETRY'] = '1'
        os.execv('/usr/bin/python3', ['/usr/bin/python3', *sys.argv])
    skip_all('scapy is not installed (Debian: python3-scapy): %s' % e)

HERE = os.path.dirname(os.path.abspath(__file__))
DUMP = sys.argv[1]
PER_CAPTURE = 60


def expected(frame):
    """Convert what scapy decodes to the form of karst-dump; None if scapy finds no BTH."""
    p = Ether(frame)
    if BTH not in p:
        return None
    ip, udp, bth = p.getlayer(IP) or p.getlayer(IPv6), p[UDP], p[BTH]
    want = {
        'eth': {'src': p.src, 'dst': p.dst},
        'ip': {'src': ip.src, 'dst': ip.dst, 'version': ip.version},
        'udp': {'sport': udp.sport, 'dport': udp.dport, 'checksum': udp.chksum},
        'bth': {'opcode': bth.opcode, 'se': bool(bth.solicited), 'migreq': bool(bth.migreq),
                'pad': bth.padcount, 'tver': bth.version, 'pkey': bth.pkey,
                'fecn': bool(bth.fecn), 'becn': bool(bth.becn), 'qp': bth.dqpn,
                'ackreq': bool(bth.ackreq), 'psn': bth.psn},
        'icrc': {'value': int.from_bytes(bth.icrc.to_bytes(4, 'big'), 'little')},
    }
    if Dot1Q in p:
        want['eth']['vlan'] = p[Dot1Q].vlan
        want['eth']['pcp'] = p[Dot1Q].prio
    if ip.version == 4:
        want['ip'].update(tos=ip.tos, ttl=ip.ttl, id=ip.id, df='DF' in ip.flags)
    else:
        want['ip'].update(tclass=ip.tc, hops=ip.hlim, flow=ip.fl)
    if AETH in p:
        want['aeth'] = {'syndrome': p[AETH].syndrome, 'msn': p[AETH].msn}
    return want


def differences(got, want):
    for group, fields in want.items():
        for key, value in fields.items():
            if got.get(group, {}).get(key) != value:
                yield '%s.%s is %r, scapy says %r' % (group, key, got.get(group, {}).get(key), value)


def check_capture(path):
    problems, seen = [], 0
    _, got, _, _ = run_json(DUMP, path)
    frames = read_pcap(path)[1]
    for (_, frame), mine in zip(frames, got):
        if seen == PER_CAPTURE:
            break
        want = expected(frame)
        if (want is not None) != ('bth' in mine):
            problems.append('frame %d: one sees a BTH, the other does not' % mine['frame'])
            continue
        if want is None:
            continue
        seen += 1
        problems += ['frame %d: %s' % (mine['frame'], d) for d in differences(mine, want)]
    return problems[:10]


def check_made():
    """Frames made by scapy: correct by karst's ICRC, and decoded to the values they were made
    from."""
    frames, wants = [], []
    for i in range(64):
        eth = Ether(src='02:00:00:00:00:01', dst='02:00:00:00:00:02')
        if i & 1:
            eth = eth / Dot1Q(vlan=100 + i, prio=i % 8)
        ip = IP(src='192.0.2.%d' % (i + 1), dst='198.51.100.7', tos=i * 3 & 0xff, ttl=i + 1,
                id=i * 997, flags='DF')
        udp = UDP(sport=0xc000 + i, dport=4791, chksum=0)
        if i % 4 == 3:
            body = cnp(dqpn=i * 7919)
        elif i % 4 == 2:
            body = BTH(opcode='RC_ACKNOWLEDGE', dqpn=i * 65537, psn=i * 4097,
                       migreq=1) / AETH(syndrome=[0, 31, 0x20 | i % 32, 0x60 | i % 5][i // 4 % 4],
                                        msn=i * 131071 & 0xffffff)
        else:
            pad = i % 3
            body = BTH(opcode=[0x04, 0x24][i & 1], dqpn=i * 31337, psn=0xffffff - i, padcount=pad,
                       ackreq=i & 1, solicited=i >> 1 & 1,
                       pkey=0x8001 + i) / Raw(bytes(range(64 - pad)) + bytes(pad))
        raw = bytes(eth / ip / udp / body)
        frames.append((i * 1000, raw))
        wants.append(expected(raw))
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, 'scapy.pcap')
        write_pcap(path, 1, frames)
        status, got, total, err = run_json(DUMP, '--rebuild', path)
    problems = ['frame %d: %s' % (g['frame'], d) for g, w in zip(got, wants)
                for d in differences(g, w)]
    if status != 0 or total['icrc_ok'] != len(frames) or total['rebuild_mismatch'] != 0:
        problems.append('status %d, %s %s' % (status, total, err))
    return problems[:10]


def main():
    tap = Tap()
    for name in sorted(os.listdir(HERE)):
        if name.endswith('.pcap') and not name.startswith('native_'):
            tap.point(name, check_capture(os.path.join(HERE, name)))
    tap.point('frames made by scapy', check_made())
    sys.exit(tap.finish())


main()
