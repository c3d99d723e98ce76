# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst-run on a host with RDMA support in the kernel: the kernel's devices and karst's, side by
side.

The guest is such a host.  Each case is a shell line in it; karst-run starts an engine there.
"""
import re

from interop_bed import Case

LIMIT_S = 600
PORT = 18600
VERBS = f'ibv_rc_pingpong -d {{dev}} -g {{gid}} -p {PORT} -s 256 -n 10 -c'
RPING = 'rping -v -C 3 -a {ip} -p 7200'
PINGED = r'\nping data: rdma-ping-2: '


def inside(name, line, says=(), never=()):
    """@says, @never: regular expressions for what its output must and must not contain."""
    def run(bed, kind, role):
        status, text = bed.guest.run(line, LIMIT_S)
        problems = [] if status == 0 else [f'status {status}']
        problems += [f'it does not say {e}' for e in says if not re.search(e, text)]
        problems += [f'it says {e}' for e in never if re.search(e, text)]
        return problems + [f'$ {line}', *text.splitlines()] if problems else []
    return Case(name, run=run, kinds=('inside',), roles=('both',), frames=0)


def verbs(device, gid):
    """A server, and a client when the server listens; 0 if both end with 0."""
    line = VERBS.format(dev=device, gid=gid)
    return (f'{line} & until grep -q ":{PORT:04X} .* 0A " /proc/net/tcp /proc/net/tcp6; '
            f'do usleep 50000; done; {line} 127.0.0.1 && wait $!')


def rping(address):
    """The same; a client that connects too early is rejected, and tries again.  A client whose end
    came late (RPING_LATE in ../common/bed.py) does not."""
    line = RPING.format(ip=address)
    late = 'grep -q "rdma_get_cm_event: Bad file descriptor"'
    return (f'{line} -s >/tmp/pinged 2>&1 & '
            f'until {line} -c >/tmp/pings 2>&1 || {late} /tmp/pings; do usleep 200000; done; '
            f'cat /tmp/pings; wait $! || {late} /tmp/pinged')


BOTH = [r'(?m)^ +rxe0\b', r'(?m)^ +karst0\b']
CASES = [
    inside('the guest has no CMPXCHG16B, which QEMU 7.2 gets wrong (guest.py)',
           '! grep -qw cx16 /proc/cpuinfo'),
    inside('karst-run shows the kernel\'s devices and karst\'s',
           "karst-run sh -c 'ibv_devices; ls /sys/class/infiniband /dev/infiniband'",
           [*BOTH, r'(?m)^karst0$', r'(?m)^rxe0$', r'(?m)^uverbs3$']),
    inside('without karst-run there is nothing of karst\'s', 'ibv_devices', BOTH[:1], ['karst']),
    inside('karst-run --netlink keep shows the kernel\'s alone', 'karst-run --netlink keep '
           'ibv_devices', BOTH[:1], ['karst0']),
    inside('karst-run --doctor says that the kernel\'s list is hidden', 'karst-run --doctor',
           ['netlink: the kernel\'s list of RDMA devices is hidden', 'all is well']),
    inside('karst-run: verbs over karst\'s device and over the kernel\'s, side by side',
           f"karst-run sh -c '({verbs('karst0', 0)}) && ({verbs('rxe0', 1)})'",
           [r'(?s)(10 iters in .*){4}']),
    inside('karst-run: rdma_cm over karst\'s device, and without it over the kernel\'s',
           f"karst-run sh -c '{rping('127.0.0.1')}' && sh -c '{rping('192.0.2.2')}'",
           [f'(?s)({PINGED}.*){{2}}']),
]
