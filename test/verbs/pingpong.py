#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""rdma-core's example programs over karst: pingpong.py KARSTD KARST-RUN (TAP).

ibv_devices and ibv_devinfo must report what the engine reports; the pingpong programs exchange
messages and check them.
"""
import re
import sys

from verbs_bed import pair, run_all

ITERS = 200
DONE = [rf'{ITERS} iters in ']

# Name, arguments.  -g 0 is IPv4, -g 1 IPv6.
CASES = [
    ('rc', 'ibv_rc_pingpong -g 0 -c'),
    ('rc, events', 'ibv_rc_pingpong -g 0 -c -e'),
    ('rc, IPv6', 'ibv_rc_pingpong -g 1 -c -e'),
    ('rc, ibv_wr calls', 'ibv_rc_pingpong -g 0 -c -N -e'),
    ('rc, timestamps', 'ibv_rc_pingpong -g 0 -c -t'),
    ('rc, timestamps and events', 'ibv_rc_pingpong -g 0 -c -t -e'),
    ('rc, ibv_wr calls and timestamps', 'ibv_rc_pingpong -g 0 -c -t -N'),
    ('rc, one receive at a time', 'ibv_rc_pingpong -g 0 -c -e -r 1'),
    ('rc, a byte', 'ibv_rc_pingpong -g 0 -c -e -s 1'),
    ('rc, a megabyte', 'ibv_rc_pingpong -g 0 -c -e -s 1048576 -r 20'),
    *[(f'rc, MTU {mtu}', f'ibv_rc_pingpong -g 0 -c -e -m {mtu} -s {3 * mtu + 2}')
      for mtu in (256, 512, 1024, 2048, 4096)],
    ('uc', 'ibv_uc_pingpong -g 0 -c'),
    ('uc, events, MTU 256', 'ibv_uc_pingpong -g 0 -c -e -m 256 -s 4099'),
    ('uc, IPv6', 'ibv_uc_pingpong -g 1 -c -e'),
    ('ud', 'ibv_ud_pingpong -g 0 -c'),
    ('ud, events', 'ibv_ud_pingpong -g 0 -c -e -s 1024'),
    ('ud, IPv6', 'ibv_ud_pingpong -g 1 -c -e -s 7'),
    ('srq', 'ibv_srq_pingpong -g 0 -c'),
    ('srq, events, 64 queue pairs', 'ibv_srq_pingpong -g 0 -c -e -q 64'),
    ('srq, IPv6', 'ibv_srq_pingpong -g 1 -c -e -s 9000'),
]
XSRQ = [('xrc, shared receive queues', 'ibv_xsrq_pingpong -g 0'),
        ('xrc, shared receive queues, events', 'ibv_xsrq_pingpong -g 1 -e -s 9000 -n 50')]
# These cases also run over two engines.
WIRE = [name for name, _ in CASES if name in (
    'rc, events', 'rc, IPv6', 'rc, MTU 256', 'rc, MTU 4096', 'rc, timestamps and events',
    'uc, events, MTU 256', 'ud, events', 'ud, IPv6', 'srq, events, 64 queue pairs')]
BY_VARIABLES = ('rc, events', 'ud, events', 'srq')


def pingpongs(tap, engines, names, mode='ns'):
    for name, words in CASES:
        if name in names:
            tap.point(f'{len(engines)} engine(s), {mode}: {name}',
                      pair(engines, f'{words} -n {ITERS}'.split(), says_both=DONE, mode=mode,
                           frames=ITERS))


def xsrq(tap, engines):
    for name, words in XSRQ:
        tap.point(f'{len(engines)} engine(s): {name}',
                  pair(engines, words.split(), says_both=['(?m)^success$'], frames=10))


def output(engine, words, mode):
    """Runs a program.  @return (its output, problems)"""
    program = engine.program(words, mode)
    problems = program.wait()
    if not problems and program.status != 0:
        problems = ['it failed']
    return program.text(), problems + (program.shown() if problems else [])


def value(text, name):
    """@return the value in a line "name: value" of ibv_devinfo, or None."""
    found = re.search(rf'^\s*{re.escape(name)}:\s*(.*?)\s*$', text, re.MULTILINE)
    return found.group(1) if found else None


def device(tap, engine, mode):
    """Checks the devices and their attributes against telemetry and configuration."""
    text, problems = output(engine, ['ibv_devices'], mode)
    rows = [line.split() for line in text.splitlines()[2:]]
    if not problems and [row[0] for row in rows] != ['karst0']:
        problems = [f'devices are {rows}']
    tap.point(f'{mode}: ibv_devices', problems)
    guid = rows[0][1] if rows else ''
    text, problems = output(engine, ['ibv_devinfo', '-v'], mode)
    port = next(iter(engine.ask(lambda e: e.rows('ports')).values()))
    memory = engine.ask(lambda e: e.ask('memory'))
    wanted = {
        'hca_id': 'karst0', 'phys_port_cnt': '1', 'state': 'PORT_ACTIVE (4)',
        'link_layer': 'Ethernet', 'active_mtu': '4096 (5)',
        'num_comp_vectors': str(engine.ask(lambda e: e.ask('engine'))['lcores']),
        'max_mr': str(memory['max_keys']), 'max_pd': str(memory['max_pds']),
        'atomic_cap': 'ATOMIC_HCA (1)', 'max_mtu': f'{port["path_mtu"]} (5)',
        'GID[  0]': f'::ffff:{port["address_0"]}, RoCE v2',
        'GID[  1]': f'{port["address_1"]}, RoCE v2',
    }
    problems += [f'{name} is "{value(text, name)}", not "{want}"'
                 for name, want in wanted.items() if value(text, name) != want]
    if (value(text, 'node_guid') or '').replace(':', '') != guid:
        problems.append(f'node_guid is {value(text, "node_guid")}, ibv_devices says {guid}')
    for name in ('max_qp', 'max_cq', 'max_srq', 'max_qp_wr', 'max_cqe', 'max_sge',
                 'max_qp_rd_atom', 'max_mw', 'max_ah', 'max_qp_init_rd_atom'):
        if int(value(text, name) or 0) < 1:
            problems.append(f'{name} is {value(text, name)}')
    tap.point(f'{mode}: ibv_devinfo -v', problems + ([text] if problems else []))


def one(tap, _, engine):
    for mode in ('ns', 'env'):
        device(tap, engine, mode)
    pingpongs(tap, [engine], [name for name, _ in CASES])
    pingpongs(tap, [engine], BY_VARIABLES, 'env')
    xsrq(tap, [engine])
    tap.point('1 engine(s): an MTU that the port does not have',
              pair([engine], ['ibv_rc_pingpong', '-g', '0', '-m', '1000'], refused='usage|Usage'))
    tap.point('1 engine(s): a GID that the port does not have',
              pair([engine], ['ibv_rc_pingpong', '-g', '99'],
                   refused='(can.t|Could).*(read|get).*GID|read sgid'))


def two(tap, _, engines):
    pingpongs(tap, engines, WIRE)
    xsrq(tap, engines)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two))
