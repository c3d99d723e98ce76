#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""net_kport under dpdk-testpmd, which knows nothing of karst, and against senders that lie (TAP).

  kport.py LIBRTE_NET_KPORT KARSTD

In a network namespace of the test's own, testpmd forwards between two veth pairs:

  this program - ka0=ka1 - net_kport0, testpmd, net_kport1 - kb1=kb0 - this program

Frames are made and looked at by hand here, and trains are given to the kernel as its packet sockets
have them (a virtio header in front).
"""
import ctypes
import errno
import fcntl
import functools
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Daemon, HANG_S, Tap  # noqa: E402
from testpmd import Testpmd  # noqa: E402
import roce  # noqa: E402

NETNS = f'kport{os.getpid()}'
SOL_PACKET, PACKET_RX_RING, PACKET_COPY_THRESH, PACKET_AUXDATA, PACKET_VERSION = 263, 5, 7, 8, 10
PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 15, 23
ETH_P_ALL = 3
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454ca, 2, 0x1000, 0x4000
NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_UDP, GSO_UDP_L4 = 1, 0, 1, 3, 5
VNET = struct.Struct('<BBHHHH')
AUXDATA, TP_STATUS_VLAN_VALID = struct.Struct('@IIIHHHH'), 0x10
MAC = [b'\x02\x00\x00\x00\x00\x01', b'\x02\x00\x00\x00\x00\x02']
ADDRESS = ['192.0.2.1', '192.0.2.2']
CLONE_NEWNET = 0x40000000
MARK = b'mark ' # of settle()
OLD = 'this kernel has no trains on packet sockets and taps, Linux 6.2 has'


def sh(*args, check=True):
    return subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=check).stdout


def add_pair(name):
    sh('ip', '-n', NETNS, 'link', 'add', name + '0', 'type', 'veth', 'peer', 'name', name + '1')
    for end in '01':
        sh('ip', '-n', NETNS, 'link', 'set', name + end, 'mtu', '9000', 'up')


class Network:
    def __enter__(self):
        sh('ip', 'netns', 'add', NETNS)
        sh('ip', 'netns', 'exec', NETNS, 'sysctl', '-qw', 'net.ipv6.conf.default.disable_ipv6=1')
        for name in ('ka', 'kb'):
            add_pair(name)
        return self

    def __exit__(self, *_):
        sh('ip', 'netns', 'del', NETNS, check=False)


def in_netns(call, netns=NETNS):
    """Runs @call on a thread that is in the namespace: sockets stay where they are made."""
    out = []

    def run():
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f'/run/netns/{netns}', encoding='ascii') as f:
            if libc.setns(f.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), 'setns')
        out.append(call())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return out[0]


def packet_socket(name):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((name, ETH_P_ALL))
    return sock


def open_port(name):
    return in_netns(lambda: packet_socket(name))


def datagram(payload, ident=1, sport=0xc001, length=None):
    """A frame with a UDP datagram; @length: the payload length in its headers."""
    n = len(payload) if length is None else length
    udp = struct.pack('>HHHH', sport, roce.ROCE, 8 + n, 0)
    ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, (28 + n) & 0xffff, ident, 0x4000, 64, 17, 0,
                     *(socket.inet_aton(a) for a in ADDRESS))
    ip = ip[:10] + struct.pack('>H', roce.ones_sum(ip)) + ip[12:]
    return MAC[1] + MAC[0] + b'\x08\x00' + ip + udp + payload


def train(payloads, ident=1):
    """The data of one send(): virtio header, headers of the first datagram, all payloads."""
    whole = b''.join(payloads)
    frame = bytearray(datagram(whole, ident))
    pseudo = roce.ones_sum(bytes(frame[26:34]) + struct.pack('>HH', 17, 8 + len(whole))) ^ 0xffff
    struct.pack_into('>H', frame, 40, pseudo)
    return VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 42, len(payloads[0]), 34, 6) + bytes(frame)


@functools.lru_cache(maxsize=None)
def has_trains():
    """Whether this kernel accepts trains from packet sockets, and passes them to taps."""
    with open_port('ka0') as sock:
        try:
            sock.send(train([body(100, 1), body(100, 2)]))
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise
            return False
    return True


def messages_of(parts, ident):
    """The messages that send datagrams: a train, or a frame for each if the kernel has no
    trains."""
    if has_trains():
        return [train(parts, ident & 0xffff)]
    return [VNET.pack(0, 0, 0, 0, 0, 0) + datagram(part, (ident + i) & 0xffff)
            for i, part in enumerate(parts)]


def pieces(message):
    """The datagrams of a received message: (identification, payload); segmented as the kernel
    would."""
    flags, kind, _, size, _, _ = VNET.unpack_from(message)
    frame = message[VNET.size:]
    if frame[12:14] != b'\x08\x00' or frame[23] != 17:
        return []
    ident, = struct.unpack_from('>H', frame, 18)
    if kind == GSO_NONE:
        return [(ident, frame[42:])]
    if kind != GSO_UDP_L4 or not flags & NEEDS_CSUM:
        raise ValueError(f'flags {flags}, kind {kind}')
    body = frame[42:]
    return [((ident + i) & 0xffff, body[i * size:(i + 1) * size])
            for i in range((len(body) + size - 1) // size)]


def receive(sock, want):
    """Receives until there are @want datagrams: (datagrams, messages).  A mark of settle() that
    settle() has not waited for may arrive late, by another queue."""
    got, messages = [], 0
    end = time.monotonic() + HANG_S
    while len(got) < want and time.monotonic() < end:
        if select.select([sock], [], [], 1)[0]:
            new = [one for one in pieces(sock.recv(1 << 17)) if not one[1].startswith(MARK)]
            messages += bool(new)
            got += new
    return got, messages


def settle(a, b):
    """Waits until everything that was sent from @a before has arrived or is lost: a mark that is
    sent after it, in order, has arrived at @b.  Until the ports work, the mark is repeated."""
    end = time.monotonic() + HANG_S
    number = 0
    while time.monotonic() < end:
        number += 1
        mark = MARK + b'%d' % number
        a.send(VNET.pack(0, 0, 0, 0, 0, 0) + datagram(mark))
        soon = time.monotonic() + 1
        while (left := soon - time.monotonic()) > 0:
            if select.select([b], [], [], left)[0] and \
                    any(payload == mark for _, payload in pieces(b.recv(1 << 17))):
                return


def refuse(level, options):
    """From now on, for this process and its children: setsockopt() of these options fails with
    ENOPROTOOPT, as on a kernel that does not know them (seccomp)."""
    number = {'x86_64': 54, 'aarch64': 208}[os.uname().machine]
    load, equal, ret = 0x20, 0x15, 0x06
    allow, fail = 0x7fff0000, 0x00050000 | errno.ENOPROTOOPT
    code = [(load, 0, 0, 0), (equal, 0, len(options) + 3, number),
            (load, 0, 0, 24), (equal, 0, len(options) + 1, level), (load, 0, 0, 32)]
    code += [(equal, len(options) - i, 0, option) for i, option in enumerate(options)]
    code += [(ret, 0, 0, allow), (ret, 0, 0, fail)]
    program = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *c) for c in code))
    fprog = ctypes.create_string_buffer(
        struct.pack('@HP', len(code), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.byref(fprog), 0, 0) != 0: # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), 'seccomp')


class Ports(Testpmd):
    """Forwards between net_kport0 and net_kport1."""

    def __init__(self, module, more='', first='iface=ka1', queues=1, before=None, rxq=None):
        rxq = rxq or queues
        more += f',qpairs={queues}' if queues > 1 else ''
        super().__init__(
            '-d', module, '--lcores=0,1@0', '--no-huge', '-m', '512', '--no-shconf', '--no-pci',
            '--no-telemetry', '--vdev', f'net_kport0,{first}{more}', '--vdev',
            f'net_kport1,iface=kb1{more}', '--', '-i', '--mbuf-size=9344',
            '--total-num-mbufs=4096', '--forward-mode=io', f'--rxq={rxq}', f'--txq={queues}',
            netns=NETNS, before=before)

    def link(self, port):
        problems, text = self.command(f'show port info {port}', 'Device error handling mode')
        if problems:
            raise RuntimeError(problems[0])
        return re.search(r'Link status: (\w+)', text).group(1)

    def by_queue(self, queues):
        """The frames that each queue of port 0 has received."""
        problems, text = self.command('show fwd stats all', 'Accumulated forward statistics')
        if problems:
            raise RuntimeError(problems[0])
        # queues without frames are not listed
        found = dict(re.findall(r'RX Port= 0/Queue= ?(\d+).*?RX-packets: (\d+)', text, re.DOTALL))
        return [int(found.get(str(q), 0)) for q in range(queues)]

    def until_link(self, port, want):
        """@return problems"""
        end = time.monotonic() + HANG_S
        while (got := self.link(port)) != want:
            if time.monotonic() > end:
                return [f'port {port} is {got}']
            time.sleep(0.05)
        return []

    def xstats(self, port):
        problems, text = self.command(f'show port xstats {port}', 'tx_socket_full: ')
        if problems:
            raise RuntimeError(problems[0])
        return {k: int(v) for k, v in re.findall(r'^(\w+): (\d+)\s', text, re.MULTILINE)}


def same(got, want):
    if got == want:
        return []
    for i, (a, b) in enumerate(zip(got, want)):
        if a != b:
            return [f'{len(got)} datagrams of {len(want)}; number {i}: identification {a[0]}, '
                    f'{len(a[1])} bytes, and not {b[0]}, {len(b[1])} bytes']
    return [f'{len(got)} datagrams instead of {len(want)}']


def body(n, seed):
    return bytes((seed * 7 + i) & 0xff for i in range(n))


def check_singles(tap, a, b, name, count=40, ordered=True):
    want = []
    for i in range(count):
        want.append((i, body(1 + i * 97 % 1400, i)))
        a.send(VNET.pack(0, 0, 0, 0, 0, 0) + datagram(want[-1][1], i))
    got, _ = receive(b, len(want))
    tap.point(f'{name}: single frames', same(got if ordered else sorted(got), want))


def check_forwarding(tap, a, b, pmd, name, count=40, ordered=True, at=0):
    """Single frames and trains of many shapes arrive unchanged, and in order unless several queues
    deliver them; from port @at on."""
    check_singles(tap, a, b, name, count, ordered)
    before = pmd.xstats(at)
    ident, want, got, messages = 65530, [], [], 0 # they wrap around
    for n, size, last in ((15, 4112, 4112), (15, 4112, 4112), (15, 4112, 20), (2, 4128, 4112),
                          (40, 1040, 1040), (40, 1040, 8), (15, 4112, 4112), (64, 92, 92), (3, 16, 4)):
        parts = [body(size if i < n - 1 else last, i + n) for i in range(n)]
        for message in messages_of(parts, ident):
            a.send(message)
        for part in parts:
            want.append((ident & 0xffff, part))
            ident += 1
        # one at a time: a receiver without a processor loses what does not fit into its socket
        new, times = receive(b, n)
        got += new
        messages += times
    after = pmd.xstats(at)
    if has_trains():
        tap.point(f'{name}: trains', same(got, want))
    else:
        tap.point(f'{name}: what would be trains, one by one',
                  same(got, want) if ordered else same(sorted(got), sorted(want)))
    return messages, {k: after[k] - before.get(k, 0) for k in after}


def trains_stay(tap, name, messages, grew):
    """Trains that check_forwarding() has found arrived and left as trains."""
    name += ': trains arrive and leave as trains'
    if not has_trains():
        tap.skip(name, OLD)
        return
    problems = [] if grew['rx_trains'] == 9 else [f'{grew["rx_trains"]} trains were received']
    if messages > 20:
        problems.append(f'they left in {messages} messages')
    tap.point(name, problems)


def forwarding(tap, module):
    a, b = open_port('ka0'), open_port('kb0')
    pmd = Ports(module)
    problems = pmd.start()
    tap.point('dpdk-testpmd starts with net_kport', problems)
    if problems:
        pmd.stop()
        return
    settle(a, b)
    messages, grew = check_forwarding(tap, a, b, pmd, 'testpmd')
    trains_stay(tap, 'testpmd', messages, grew)
    name = 'testpmd: after one of its size, a train is received without copies'
    if has_trains():
        tap.point(name, [] if grew['rx_copied_datagrams'] < grew['rx_train_datagrams'] - 25
                  else [f'{grew}'])
    else:
        tap.skip(name, OLD)
    partial_checksum(tap, a, b, 'testpmd')
    liars(tap, a, b, pmd)
    changes(tap, a, b, pmd)
    tap.point('testpmd: it stops', pmd.stop())


# Virtio headers that do not match the frame behind them.
LIES = {
    'a segment size of 0': VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 42, 0, 34, 6),
    'a segment size of 1': VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 42, 1, 34, 6),
    'a segment size of 65535': VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 42, 65535, 34, 6),
    'no header length': VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 0, 1000, 34, 6),
    'a header length of 65535': VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 65535, 1000, 34, 6),
    'a checksum elsewhere': VNET.pack(NEEDS_CSUM, GSO_UDP_L4, 42, 1000, 65535, 65535),
    'TCP': VNET.pack(NEEDS_CSUM, GSO_TCPV4, 54, 1000, 34, 16),
    'UDP fragments': VNET.pack(NEEDS_CSUM, GSO_UDP, 42, 1000, 34, 6),
    'an unknown kind': VNET.pack(NEEDS_CSUM, 0x7f, 42, 1000, 34, 6),
    'everything': b'\xff' * VNET.size,
}


def liars(tap, a, b, pmd):
    tcp = bytearray(datagram(body(5000, 1)))
    tcp[23] = 6
    frames = {
        'UDP': datagram(body(5000, 1)),
        'lengths that are too long': datagram(body(5000, 1), length=60000),
        'lengths that are too short': datagram(body(5000, 1), length=4),
        'nothing but headers': datagram(b''),
        'no whole header': datagram(b'')[:30],
        'a 6-byte header length': datagram(body(5000, 1)).replace(b'\x45\x00', b'\x41\x00', 1),
        'TCP': bytes(tcp),
        'noise': random.Random(4711).randbytes(3000),
    }
    sent = refused = 0
    for lie in LIES.values():
        for frame in frames.values():
            try:
                a.send(lie + frame)
                sent += 1
            except OSError:
                refused += 1 # the kernel checks some of it itself
    problems = []
    tap.note(f'the kernel took {sent} of {sent + refused} lies')
    settle(a, b)
    if pmd.process.poll() is not None:
        problems.append(f'testpmd ended: {pmd.process.returncode}')
    tap.point('lying virtio headers do no harm', problems)
    check_forwarding(tap, a, b, pmd, 'after the lies')


def changes(tap, a, b, pmd):
    sh('ip', '-n', NETNS, 'link', 'set', 'ka1', 'down')
    sh('ip', '-n', NETNS, 'link', 'set', 'kb1', 'down')
    tap.point('an interface that is down has no link', pmd.until_link(0, 'down'))
    sh('ip', '-n', NETNS, 'link', 'set', 'ka1', 'up')
    sh('ip', '-n', NETNS, 'link', 'set', 'kb1', 'up')
    settle(a, b)
    check_forwarding(tap, a, b, pmd, 'after down and up')
    sh('ip', '-n', NETNS, 'link', 'set', 'ka0', 'mtu', '1500')
    sh('ip', '-n', NETNS, 'link', 'set', 'ka1', 'mtu', '1500')
    sh('ip', '-n', NETNS, 'link', 'set', 'ka0', 'mtu', '9000')
    sh('ip', '-n', NETNS, 'link', 'set', 'ka1', 'mtu', '9000')
    settle(a, b)
    check_forwarding(tap, a, b, pmd, 'after another MTU and back')
    sh('ip', '-n', NETNS, 'link', 'del', 'ka0')
    tap.point('an interface that has gone has no link', pmd.until_link(0, 'down'))
    add_pair('ka')
    a.close()
    a = open_port('ka0')
    tap.point('one of the same name that comes is used', pmd.until_link(0, 'up'))
    settle(a, b)
    check_forwarding(tap, a, b, pmd, 'after it was made anew')
    modes(tap, pmd)
    counters(tap, a, b, pmd)
    tagged(tap, a, b)
    moved_and_back(tap, a, b, pmd)


def until_modes(promiscuous, multicast):
    """Waits until so many have asked for these modes of ka1.  @return problems"""
    end = time.monotonic() + HANG_S
    want = (str(promiscuous), str(multicast))
    while True:
        shown = sh('ip', '-n', NETNS, '-d', 'link', 'show', 'ka1')
        # an old "ip" does not show the second
        found = re.search(r'promiscuity (\d+) +(?:allmulti (\d+))?', shown)
        if found.group(1) == want[0] and found.group(2) in (want[1], None):
            return []
        if time.monotonic() > end:
            return [f'{found.group(0)}, and not {promiscuous} and {multicast}']
        time.sleep(0.05)


def modes(tap, pmd):
    """testpmd has asked for promiscuous mode, of the interface that was there before."""
    tap.point('promiscuous mode is set for an interface that was made anew', until_modes(1, 0))
    problems = []
    for command, until in (('set allmulti 0 on', 'testpmd> '), ('stop', 'Done'),
                           ('port stop 0', 'Done'), ('port start 0', 'Done'),
                           ('start', 'io packet forwarding')):
        problems += pmd.command(command, until)[0]
    tap.point('modes are set once after a stop and a start', problems or until_modes(1, 1))
    for command in ('set promisc 0 off', 'set allmulti 0 off'):
        problems += pmd.command(command, 'testpmd> ')[0]
    tap.point('modes end when they are switched off', problems or until_modes(0, 0))


def counters(tap, a, b, pmd):
    """Counters are small after a reset and another setup of the queues."""
    problems = []
    for command, until in (('clear port stats 0', 'cleared'), ('stop', 'Done'), ('port stop all', 'Done'),
                           ('port config all rxd 256', 'testpmd> '),
                           ('port config all txd 256', 'testpmd> '), ('port start all', 'Done'),
                           ('start', 'io packet forwarding')):
        problems += pmd.command(command, until)[0]
    settle(a, b)
    _, text = pmd.command('show port stats 0', 'Tx-pps')
    found = re.findall(r'[RT]X-(\w+): +(\d+)', text)
    problems += [f'{name} {value}' for name, value in found if int(value) > 1 << 32]
    problems += [f'{k} {v}' for k, v in pmd.xstats(0).items() if v > 1 << 32]
    tap.point('counters after a reset and another setup', problems if found else [text])


def tagged(tap, a, b):
    """A frame leaves with the tag with which it arrived.  The kernel removes it here."""
    b.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    frame = datagram(body(100, 3), 5)
    a.send(VNET.pack(0, 0, 0, 0, 0, 0) + frame[:12] + struct.pack('>HH', 0x8100, 0x2064) + frame[12:])
    found = None
    end = time.monotonic() + HANG_S
    while found is None and time.monotonic() < end:
        if select.select([b], [], [], 1)[0]:
            message, control, _, _ = b.recvmsg(1 << 17, 256)
            if pieces(message) == [(5, body(100, 3))]:
                found = [AUXDATA.unpack_from(data) for _, kind, data in control
                         if kind == PACKET_AUXDATA]
    b.setsockopt(SOL_PACKET, PACKET_AUXDATA, 0)
    tap.point('testpmd: a tag stays in the frame',
              [] if found and found[0][0] & TP_STATUS_VLAN_VALID and found[0][5] == 0x2064
              else [f'status and so on: {found}'])


def moved_and_back(tap, a, b, pmd):
    """The interface keeps its number, but the sockets lost it."""
    other = NETNS + 'b'
    sh('ip', 'netns', 'add', other)
    try:
        sh('ip', '-n', NETNS, 'link', 'set', 'ka1', 'netns', other)
        tap.point('one that was moved to another namespace has no link', pmd.until_link(0, 'down'))
        sh('ip', '-n', other, 'link', 'set', 'ka1', 'netns', NETNS)
        sh('ip', '-n', NETNS, 'link', 'set', 'ka1', 'up')
        tap.point('when it comes back it has', pmd.until_link(0, 'up'))
        settle(a, b)
        check_forwarding(tap, a, b, pmd, 'after it came back')
    finally:
        sh('ip', 'netns', 'del', other, check=False)


def without_trains(tap, module):
    """As on kernels that refuse them: the same frames come out, one by one."""
    a, b = open_port('ka0'), open_port('kb0')
    pmd = Ports(module, ',trains=0')
    problems = pmd.start()
    if not problems:
        settle(a, b)
        messages, _ = check_forwarding(tap, a, b, pmd, 'trains=0')
        if messages != 209:
            problems = [f'{messages} messages for 209 datagrams']
    tap.point('trains=0: each datagram leaves alone', problems + pmd.stop())


def roce_to(qpn, ident):
    """A datagram to port 4791 that begins like a RoCE packet to that queue pair."""
    return datagram(bytes(5) + qpn.to_bytes(3, 'big') + body(100, qpn), ident, 0xc000 + qpn)


def several_queues(tap, module):
    """Each frame arrives once, in the right queue."""
    for spread in ('qpn', 'flow', 'cpu'):
        a, b = open_port('ka0'), open_port('kb0')
        pmd = Ports(module, f',spread={spread}', queues=3)
        problems = pmd.start()
        if problems:
            tap.point(f'spread={spread}: testpmd starts', problems + pmd.stop())
            continue
        settle(a, b)
        before = pmd.by_queue(3)
        for i in range(60):
            a.send(VNET.pack(0, 0, 0, 0, 0, 0) + roce_to(0x100 + i, i))
        got, _ = receive(b, 60)
        if sorted(ident for ident, _ in got) != list(range(60)):
            problems.append(f'{len(got)} frames came, each once is 60')
        grew = [now - was for now, was in zip(pmd.by_queue(3), before)]
        want = [len([i for i in range(60) if (0x100 + i) % 256 % 3 == q]) for q in range(3)]
        if spread == 'qpn' and grew != want:
            problems.append(f'{grew} frames by queue, and not {want}')
        if spread == 'flow' and min(grew) == 0:
            problems.append(f'{grew} frames by queue')
        if sum(grew) != 60:
            problems.append(f'{grew} is not 60 in all')
        tap.point(f'spread={spread}: three queues, each frame once', problems)
        sh('ip', '-n', NETNS, 'link', 'del', 'ka0')
        problems = pmd.until_link(0, 'down')
        add_pair('ka')
        a.close()
        a = open_port('ka0')
        problems += pmd.until_link(0, 'up')
        settle(a, b)
        tap.point(f'spread={spread}: an interface that was made anew is used by all queues', problems)
        check_forwarding(tap, a, b, pmd, f'spread={spread}, made anew', ordered=False)
        tap.point(f'spread={spread}: it stops', pmd.stop())


def more_to_send(tap, module):
    """With fewer queues that receive than queues that send, each frame arrives as well.  A tap cannot
    have that."""
    a, b = open_port('ka0'), open_port('kb0')
    pmd = Ports(module, queues=3, rxq=1)
    problems = pmd.start()
    if not problems:
        settle(a, b)
        for i in range(60):
            a.send(VNET.pack(0, 0, 0, 0, 0, 0) + roce_to(0x100 + i, i))
        idents = sorted(ident for ident, _ in receive(b, 60)[0])
        problems = [] if idents == list(range(60)) else [f'{len(idents)} of 60 frames came: {idents}']
    tap.point('one queue receives and three send: all frames arrive', problems + pmd.stop())
    pmd = Ports(module, '', 'tap=kt0', 2, rxq=1)
    pmd.wait('as many queues that receive')
    pmd.process.kill()
    pmd.process.wait()
    tap.point('a tap with fewer queues that receive than send is refused', [
        pmd.said] if 'as many queues that receive' not in pmd.said else [])


def partial_checksum(tap, a, b, name):
    """UDP whose checksum was left to an adapter arrives without one, or with the right one where
    the kernel computes it, as for taps before Linux 6.2."""
    frame = bytearray(datagram(body(100, 3), 77))
    pseudo = bytes(frame[26:34]) + struct.pack('>HH', 17, len(frame) - 34)
    right = struct.pack('>H', roce.ones_sum(pseudo + bytes(frame[34:])))
    struct.pack_into('>H', frame, 40, roce.ones_sum(pseudo) ^ 0xffff)
    a.send(VNET.pack(NEEDS_CSUM, GSO_NONE, 0, 0, 34, 6) + frame)
    found = None
    end = time.monotonic() + HANG_S
    while found is None and time.monotonic() < end:
        if select.select([b], [], [], 1)[0]:
            message = b.recv(1 << 17)
            if pieces(message) == [(77, body(100, 3))]:
                found = message[VNET.size + 40:VNET.size + 42]
    tap.point(f'{name}: no checksum is made of half of one',
              [] if found in (b'\0\0', right) else [f'{found}, not {right} or none'])


def taps(tap, module):
    """The port is the other end of a tap, instead of a view of an interface."""
    for more, queues in (('', 1), (',trains=0', 1), ('', 2)):
        name = f'tap{more}, {queues} queue' + ('s' if queues > 1 else '')
        b = open_port('kb0')
        pmd = Ports(module, more, 'tap=kt0', queues)
        problems = pmd.start() or pmd.until_link(0, 'up')
        tap.point(f'{name}: testpmd makes it', problems)
        if problems:
            pmd.stop()
            continue
        sh('ip', '-n', NETNS, 'link', 'set', 'kt0', 'mtu', '9000')
        a = open_port('kt0')
        settle(a, b)
        messages, grew = check_forwarding(tap, a, b, pmd, f'{name}, from the kernel',
                                          ordered=queues == 1)
        if more == '' and queues == 1:
            trains_stay(tap, name, messages, grew)
            partial_checksum(tap, a, b, name)
            liars(tap, a, b, pmd)
        settle(b, a)
        check_forwarding(tap, b, a, pmd, f'{name}, to the kernel', ordered=queues == 1, at=1)
        if queues == 1:
            tap_goes(tap, b, pmd, name)
        tap.point(f'{name}: it stops', pmd.stop())
        tap.point(f'{name}: and the tap is gone', [
            text for text in [sh('ip', '-n', NETNS, 'link', 'show', 'kt0', check=False)]
            if 'does not exist' not in text])


def tap_goes(tap, b, pmd, name):
    sh('ip', '-n', NETNS, 'link', 'set', 'kt0', 'down')
    problems = pmd.until_link(0, 'down')
    sh('ip', '-n', NETNS, 'link', 'set', 'kt0', 'up')
    tap.point(f'{name}: down and up', problems + pmd.until_link(0, 'up'))
    other = NETNS + 'b'
    sh('ip', 'netns', 'add', other)
    try:
        sh('ip', '-n', NETNS, 'link', 'set', 'kt0', 'netns', other)
        sh('ip', '-n', other, 'link', 'set', 'kt0', 'up')
        a = in_netns(lambda: packet_socket('kt0'), other)
        settle(a, b)
        check_forwarding(tap, a, b, pmd, f'{name}, in another namespace')
        problems = [] if pmd.link(0) == 'up' else ['its link is down']
        sh('ip', '-n', other, 'link', 'del', 'kt0')
        tap.point(f'{name}: deleted there, it has no link', problems + pmd.until_link(0, 'down'))
    finally:
        sh('ip', 'netns', 'del', other, check=False)

def unexpressed(tap, module):
    """Threat T131: a frame that no virtio header can express does not end receiving for good."""
    sh('ip', '-n', NETNS, 'tuntap', 'add', 'dev', 'kt1', 'mode', 'tap', 'vnet_hdr')
    guest = in_netns(lambda: open('/dev/net/tun', 'r+b', buffering=0))
    in_netns(lambda: fcntl.ioctl(guest, TUNSETIFF, struct.pack(
        '16sH14x', b'kt1', IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)))
    sh('ip', '-n', NETNS, 'link', 'set', 'kt1', 'up')
    b = open_port('kb0')
    pmd = Ports(module, first='iface=kt1')
    problems = pmd.start() or pmd.until_link(0, 'up')
    plain = VNET.pack(0, 0, 0, 0, 0, 0)
    if not problems:
        guest.write(plain + datagram(body(100, 1), 1))
        problems = same(receive(b, 1)[0], [(1, body(100, 1))])
        guest.write(LIES['UDP fragments'] + datagram(body(5000, 1)))
        end = time.monotonic() + HANG_S
        while not problems:
            # the link is checked, by which the driver notices
            guest.write(plain + datagram(body(100, 2), 2))
            if pmd.link(0) == 'up' and select.select([b], [], [], 0.05)[0]:
                break
            if time.monotonic() > end:
                problems = ['nothing is received any more']
    if not problems:
        problems = [] if 'it has a new one' in pmd.said else [f'the ring is the same: {pmd.said}']
        guest.write(plain + datagram(body(100, 3), 3))
        while not problems and receive(b, 1)[0] != [(3, body(100, 3))]:
            pass
    tap.point('a frame that no virtio header can express does not end receiving',
              problems + pmd.stop())
    guest.close()
    sh('ip', '-n', NETNS, 'link', 'del', 'kt1')


def without_ring(tap, module):
    """As where the kernel refuses a ring: the same frames are received, each by a system call."""
    a, b = open_port('ka0'), open_port('kb0')
    pmd = Ports(module, ',ring=0')
    problems = pmd.start()
    if not problems:
        settle(a, b)
        _, grew = check_forwarding(tap, a, b, pmd, 'ring=0')
        if grew['rx_trains'] != (9 if has_trains() else 0):
            problems = [f'{grew["rx_trains"]} trains were received']
    tap.point('ring=0: trains are received', problems + pmd.stop())


# What a kernel may lack, or not grant: level, options, the message, whether there are trains.  The
# last ones leave a program with what net.core.rmem_max allows.
NO_VNET = ('refuses virtio headers on packet sockets (Protocol not available): frames go one by one, '
           'and trains of programs on this machine are lost here')
REFUSED = {
    'PACKET_VNET_HDR': (SOL_PACKET, [PACKET_VNET_HDR], NO_VNET, False),
    'PACKET_RX_RING': (SOL_PACKET, [PACKET_RX_RING], 'refuses a ring', True),
    'PACKET_COPY_THRESH': (SOL_PACKET, [PACKET_COPY_THRESH], 'refuses a ring', True),
    'PACKET_VERSION': (SOL_PACKET, [PACKET_VERSION], 'refuses a ring', True),
    'PACKET_IGNORE_OUTGOING and PACKET_AUXDATA':
        (SOL_PACKET, [PACKET_IGNORE_OUTGOING, PACKET_AUXDATA], None, True),
    'all options of packet sockets':
        (SOL_PACKET, [PACKET_VNET_HDR, PACKET_RX_RING, PACKET_COPY_THRESH, PACKET_VERSION,
                      PACKET_IGNORE_OUTGOING, PACKET_AUXDATA], NO_VNET, False),
    'SO_RCVBUFFORCE and SO_SNDBUFFORCE':
        (socket.SOL_SOCKET, [33, 32], 'allows', True),
}


def said_once(pmd, port, text):
    """Whether the message about the kernel's refusal comes as often as it should for a port."""
    if text == 'allows':
        text = 'bytes of socket buffer instead of 67108864'
        want = int(open('/proc/sys/net/core/rmem_max', encoding='ascii').read()) < 67108864
    else:
        want = text is not None
    lines = [line for line in pmd.said.splitlines() if f'{port}: the kernel ' in line]
    if not has_trains(): # an old kernel refuses them in addition, which is logged when one is sent
        lines = [line for line in lines if 'they need Linux 6.2' not in line]
    found = sum(text in line for line in lines) if text else len(lines)
    return [] if found == want else [f'{port}: {text!r} said {found} times: {lines}']


def whole_train(tap, a, b, pmd, name):
    """Without virtio headers a train of this machine arrives as one long frame, whose segments are
    unknown: it is counted, and the next frames get through."""
    point = f'{name}: a train is lost as one long frame, and counted'
    if not has_trains():
        tap.skip(point, OLD)
        return
    before = pmd.xstats(0)['rx_too_long']
    a.send(train([body(4112, i) for i in range(15)], 7))
    check_singles(tap, a, b, f'{name}, behind a train')
    lost = pmd.xstats(0)['rx_too_long'] - before
    tap.point(point, [] if lost == 1 else [f'{lost} frames were too long'])


def refusals(tap, module):
    """A kernel that refuses an option: this is logged once for each port, however often it is
    started, and frames get through unchanged.  Trains do if their headers can be had."""
    for name, (level, options, text, trains) in REFUSED.items():
        a, b = open_port('ka0'), open_port('kb0')
        pmd = Ports(module, before=lambda n=level, refused=options: refuse(n, refused))
        problems = pmd.start()
        if not problems:
            settle(a, b)
            if trains:
                check_forwarding(tap, a, b, pmd, f'without {name}')
            else:
                check_singles(tap, a, b, f'without {name}')
                whole_train(tap, a, b, pmd, f'without {name}')
            for command in ('stop', 'port stop all', 'port start all'):
                problems += pmd.command(command, 'Done')[0]
        problems += pmd.stop()
        for port in ('ka1', 'kb1'):
            problems += said_once(pmd, port, text)
        tap.point(f'without {name}: said once, and the next best way taken', problems)


def arguments(tap, module):
    for args, text in (('', 'iface=NAME is missing'), (',iface=nothere', 'no such interface'),
                       (',iface=ka1,tap=kt0', 'not both'), (',iface=ka1,mac=02:00:00:00:00:01',
                                                            'mac= is for a tap'),
                       (',tap=kt0,mac=01:00:00:00:00:01', "not a group's"),
                       (',tap=ka1', 'which is no tap'),
                       (',iface=lo', 'not Ethernet'), (',iface=ka1,qpairs=0', 'qpairs=0'),
                       (',iface=ka1,spread=sand', 'qpn, flow or cpu'),
                       (',iface=ka1,colour=red', 'its arguments are')):
        run = subprocess.run(['ip', 'netns', 'exec', NETNS, 'dpdk-testpmd', '-d', module, '--no-huge',
                              '-m', '256', '--no-shconf', '--no-pci', '--no-telemetry', '--lcores=0',
                              '--vdev', 'net_kport0' + args],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False)
        tap.point(f'net_kport0{args} is refused in words',
                  [] if run.returncode and text in run.stdout else [run.stdout])


def bad_icrc(tap, karstd, folder):
    """Of a train in which one packet's ICRC is wrong, that packet alone is dropped."""
    sh('ip', '-n', NETNS, 'address', 'add', ADDRESS[1] + '/24', 'dev', 'ka1')
    mac = bytes.fromhex(re.search(r'ether (\S+)', sh('ip', '-n', NETNS, 'link', 'show', 'ka1'))
                        .group(1).replace(':', ''))
    d = Daemon(karstd, folder, '[port a]\ndevice = ka1\n', name='icrc', netns=NETNS)
    problems = d.start()
    if problems:
        tap.point('a train with one bad ICRC', problems)
        return
    a = open_port('ka0')
    payloads = []
    for i in range(15):
        ib = roce.bth(roce.RC_WRITE_ONLY, 0x123456 & ~0xff | 0x80, i) + bytes(16) + bytes(4096)
        frame = bytearray(roce.frame(mac, MAC[0], *ADDRESS, ib))
        struct.pack_into('>H', frame, 18, 100 + i)
        struct.pack_into('>H', frame, 24, 0)
        struct.pack_into('>H', frame, 24, roce.ones_sum(bytes(frame[14:34])))
        check = roce.icrc(bytes(frame[14:-4]))
        payloads.append(bytes(frame[42:-4]) + (bytes([check[0] ^ (i == 7)]) + check[1:]))
    drops = drops_of(d)
    for message in messages_of(payloads, 100):
        a.send(message[:VNET.size] + mac + MAC[0] + message[VNET.size + 12:])
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        now = drops_of(d)
        grew = {k: now[k] - drops.get(k, 0) for k in now if now[k] != drops.get(k, 0)}
        if sum(grew.values()) >= 15:
            break
        time.sleep(0.1)
    tap.point('of a train with one bad ICRC that packet alone is dropped for it',
              [] if grew == {'icrc': 1, 'no_qp': 14} else [f'{grew}'])
    tap.point('the daemon stops', d.stop())


def drops_of(d):
    import json  # pylint: disable=import-outside-toplevel
    path = f'/run/dpdk/{d.name}/dpdk_telemetry.v2'
    if not os.path.exists(path):
        path = '/var' + path
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(path)
        sock.recv(4096)
        sock.send(b'/karst/drops')
        lcores = json.loads(sock.recv(65536))['/karst/drops']
    return {name: sum(row[name] for row in lcores.values()) for name in next(iter(lcores.values()))}


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)) # so that the namespace is removed
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder, Network():
        has_trains() # tries it, while no program receives
        forwarding(tap, argv[1])
        without_trains(tap, argv[1])
        several_queues(tap, argv[1])
        more_to_send(tap, argv[1])
        taps(tap, argv[1])
        unexpressed(tap, argv[1])
        without_ring(tap, argv[1])
        refusals(tap, argv[1])
        arguments(tap, argv[1])
        bad_icrc(tap, argv[2], folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
