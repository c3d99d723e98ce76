# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""rdma-core's ping-pong programs between karst and Linux; RC and UC check what they receive."""
from interop_bed import Case, meet

ITERS = 20


def pingpong(name, program, args, check='-c', **more):
    line = f'ibv_{program} -d {{dev}} -g {{gid}} -p {{port}} -n {ITERS} {check} {args}'
    return Case(name, line, line + ' {tcp}', both=[rf'(?m)^{ITERS} iters in '],
                frames=2 * ITERS, **{'sparse': True, **more})


# Path MTUs, each with messages of several packets and a pad.
CASES = [
    pingpong(f'RC, MTU {mtu}, {size} bytes', 'rc_pingpong', f'-m {mtu} -s {size}',
             kinds=('wire', 'vhost') if mtu == 4096 else ('wire',), sparse=mtu != 4096,
             rules='W1 W6 W7 W10 R1 Q3')
    for mtu, size in ((256, 1001), (512, 1537), (1024, 4098), (2048, 6147), (4096, 12290))
]
CASES += [
    pingpong(f'RC, {size} bytes', 'rc_pingpong', f'-m 1024 -s {size}', kinds=('wire',),
             rules='W6 W7')
    for size in (1, 2, 3)
]
CASES += [
    pingpong('RC, IPv6', 'rc_pingpong', '-m 1024 -s 2001', families=('ip6', 'll'), rules='W1 W7'),
    pingpong('RC, VLAN', 'rc_pingpong', '-m 1024 -s 2001', kinds=('vlan',),
             families=('ip4', 'ip6', 'll'), roles=('client',), rules='W1 W7'),
    pingpong('RC, VLAN', 'rc_pingpong', '-m 1024 -s 2001', kinds=('vlan',), roles=('server',),
             rules='W1 W7'),
    pingpong('RC, completion events', 'rc_pingpong', '-m 1024 -s 3000 -e', rules='R1'),
    pingpong('UC', 'uc_pingpong', '-m 1024 -s 4099', rules='U1 W10'),
    pingpong('UC, IPv6', 'uc_pingpong', '-m 4096 -s 4097 -e', families=('ip6',), kinds=('vhost',),
             rules='U1 W10'),
    pingpong('UD', 'ud_pingpong', '-s 1024', rules='U1'),
    pingpong('UD, 7 bytes', 'ud_pingpong', '-s 7 -e', families=('ip6', 'll'), kinds=('wire',),
             rules='U1 W6'),
    pingpong('UD, VLAN', 'ud_pingpong', '-s 100', kinds=('vlan',), rules='U1 W1'),
    pingpong('SRQ, 3 queue pairs', 'srq_pingpong', '-m 1024 -s 1500 -q 3 -r 30', rules='R8'),
]


def deserted(bed, kind, role):
    """A test of this suite itself: a client's failure is reported, and its server is ended."""
    case = Case('', 'ibv_rc_pingpong -d {dev} -g {gid} -p {port}', 'false')
    problems, (server, _) = meet(bed, case, kind, role, 'ip4')
    wanted = ['client: exit status 1', f'server: exit status {server.status}']
    return [] if problems == wanted and server.status != 0 else ['it says:', *problems]


CASES += [Case('a client that fails leaves no server', run=deserted, kinds=('wire',), frames=0,
               sparse=True)]
