#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Every kind of port, with verified traffic between two daemons (TAP).

  ports.py KARSTD KARST-PERF MEMBER

Kernel interfaces are veth pairs between two network namespaces of the test's own.
"""
import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'common'), os.path.join(HERE, '..', '..', 'usertools')]
sys.dont_write_bytecode = True
import karst_observe  # noqa: E402
import bed  # noqa: E402
from bed import Daemon, HANG_S, Tap, rest  # noqa: E402
import roce  # noqa: E402

# it is our own engine, which answers when it gets a processor
karst_observe.TIMEOUT_S = HANG_S

NETNS = [f'karstd{os.getpid()}a', f'karstd{os.getpid()}b']
DEV = 'kveth0'
ADDRESS = ['192.0.2.1', '192.0.2.2']
GROUP = '239.7.7.7'
MESSAGES = 40
ITERS, SIZE = 300, 20000
# Memory is cleared for each operation.
TRAFFIC = ['--op', 'write,read,send', '--size', str(SIZE), '--iters', str(ITERS), '--verify',
           '--working-set', '8M', '--no-baselines']


def sh(*args, check=True):
    return subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=check).stdout


def in_netns(end, *args):
    return ['ip', 'netns', 'exec', NETNS[end], *args]


class Network:
    """Two namespaces and a veth pair."""

    def __init__(self, mtu, queues=1):
        for name in NETNS:
            sh('ip', 'netns', 'add', name)
            sh('ip', '-n', name, 'link', 'set', 'lo', 'up')
        both = ['numrxqueues', str(queues), 'numtxqueues', str(queues)]
        sh('ip', '-n', NETNS[0], 'link', 'add', DEV, *both, 'type', 'veth', 'peer', 'name', DEV,
           *both, 'netns', NETNS[1])
        for end, name in enumerate(NETNS):
            sh('ip', '-n', name, 'address', 'add', ADDRESS[end] + '/24', 'dev', DEV)
            sh('ip', '-n', name, 'link', 'set', DEV, 'mtu', str(mtu), 'up')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in NETNS:
            sh('ip', 'netns', 'del', name, check=False)


def traffic(perf, server, client, mtu, *more):
    """A little traffic between two daemons, every byte verified; test/perf has the rest."""
    return bed.traffic(perf, server, client, '--mtu', str(mtu), *TRAFFIC, *more)


class Member:
    """A program in a multicast group (member.c); ended by close()."""

    def __init__(self, program, path, *args, group=GROUP):
        self.process = subprocess.Popen([program, path, group, str(MESSAGES), *args],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)

    def line(self):
        patience = threading.Timer(HANG_S, self.process.kill)
        patience.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            patience.cancel()

    def close(self):
        """@return the rest of its output."""
        return rest(self.process)[0].split('\n')[:-1]


def multicast(member, *paths):
    """Two programs at each daemon are in a group; one of them sends: each receives the message
    once."""
    sender = Member(member, paths[0], 'send')
    members = [sender] + [Member(member, path) for path in (*paths, paths[-1])]
    said = [m.line() for m in members]
    problems = [line for line in said if line != 'ready']
    if not problems:
        sender.process.stdin.write('go\n')
        sender.process.stdin.flush()
        want = [f'message {i}' for i in range(MESSAGES)]
        said = [[m.line() for _ in want] for m in members]
        problems = [f'member {i}: {got}' for i, got in enumerate(said) if got != want]
    for i, m in enumerate(members):
        more = m.close()
        if more:
            problems.append(f'member {i}, too much: {more}')
    return problems


def loopback(tap, karstd, perf, member, folder):
    d = Daemon(karstd, folder, '[port loop]\ndevice = loopback\n', name='loop')
    problems = d.start()
    if not problems:
        problems = traffic(perf, d.socket, d.socket, 4096)
    tap.point('a loopback port: traffic', problems)
    tap.point('a loopback port: multicast', multicast(member, d.socket) + d.stop())


def memif(tap, karstd, perf, member, folder):
    ds = []
    for end, role in enumerate(('server', 'client')):
        ds.append(Daemon(
            karstd, folder,
            f'[port wire]\naddresses = {ADDRESS[end]}/24, 2001:db8::{end + 1}/64\nmtu = 4180\n'
            f'device = net_memif0,role={role},id=7,bsize=8192,socket-abstract=no,'
            f'socket={folder}/memif.sock\n', name=f'memif{end}'))
    problems = ds[0].start() + ds[1].start()
    if not problems:
        problems = traffic(perf, ds[0].socket, ds[1].socket, 4096)
    tap.point('two daemons over net_memif: traffic', problems)
    tap.point('two daemons over net_memif: multicast',
              multicast(member, ds[0].socket, ds[1].socket) + ds[0].stop() + ds[1].stop())


def hw_counters(daemon):
    engine = karst_observe.find_engines(prefix=daemon.name)[0]
    try:
        return engine.ask('hw_counters')
    finally:
        engine.telemetry.close()


def congestion(tap, karstd, perf, folder, how):
    """A network that marks one in ten packets of the first daemon, whatever they carry."""
    rules = os.path.join(folder, f'marks-{how}')
    with open(rules, 'w', encoding='utf-8') as f:
        f.write('[rule marks]\naction = mark\ndirection = rx\nopcode = RC_*\nchance = 0.1\n')
    ds = []
    for end, role in enumerate(('server', 'client')):
        ds.append(Daemon(
            karstd, folder,
            f'[engine]\ncongestion = {how}\n'
            '[congestion]\nrpg_max_rate = 10000\nrpg_min_rate = 2000\n'
            f'[port wire]\naddresses = {ADDRESS[end]}/24\nmtu = 4180\n'
            f'device = net_memif0,role={role},id=8,bsize=8192,socket-abstract=no,'
            f'socket={folder}/marks-{how}.sock\n' + (f'impair = {rules}\n' if end else ''),
            name=f'{how[:5]}{end}'))
    problems = ds[0].start() + ds[1].start()
    if not problems:
        problems = traffic(perf, ds[1].socket, ds[0].socket, 4096)
    tap.point(f'marks, congestion = {how}: traffic', problems)
    sends, hears = hw_counters(ds[0]), hw_counters(ds[1])
    marks, cnps = hears['np_ecn_marked_roce_packets'], hears['np_cnp_sent']
    handled, ignored = sends['rp_cnp_handled'], sends['rp_cnp_ignored']
    problems = [] if marks > 0 and (cnps > 0) == (how != 'off') and cnps <= marks else [
        f'{marks} marks, {cnps} CNPs']
    if (handled > 0) != (how == 'dcqcn') or (ignored > 0) != (how in ('notify', 'swift')) or \
            handled + ignored > cnps:
        problems.append(f'{handled} CNPs handled and {ignored} ignored of {cnps}')
    if sends['np_cnp_sent'] != 0:
        problems.append('nothing of what came the other way was marked')
    tap.point(f'marks, congestion = {how}: CNPs (E4, E5)',
              problems + ds[0].stop() + ds[1].stop())


def netdev_conf(driver, more=''):
    return f'[port a]\ndevice = {DEV}\ndriver = {driver}\n{more}'


def pair(karstd, folder, driver):
    more = '[engine]\ndivide_writes = yes\n' if driver == 'kport' else ''
    return [Daemon(karstd, folder, netdev_conf(driver, more), name=f'{driver[3:]}{end}',
                   netns=NETNS[end]) for end in (0, 1)]


# Sends a datagram to each of some ports of an address, and prints for which of them "port
# unreachable" has come back; it waits for all but the first, or for a time limit.  All datagrams
# take the same path and are handled in order, so by then the answer for the first has come, or
# there is none.  A kernel limits the rate of these messages for all receivers together: datagrams
# are repeated until one comes.
KNOCK = '''
import socket, sys, time
address, limit_s, *words = sys.argv[1:]
end = time.monotonic() + float(limit_s)
socks, sizes, found = [], [int(size) for size in words[1::2]], {}
for port in words[::2]:
    socks.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    socks[-1].connect((address, int(port)))
last = len(socks) - 1
wanted = set(range(1, last + 1)) or {0}
while wanted - set(found) and time.monotonic() < end:
    for n, sock in enumerate(socks):
        sock.settimeout(1 if n == last else 0)
        try:
            sock.send(bytes(sizes[n]))
        except ConnectionRefusedError:
            found[n] = True
    for n in range(last, -1, -1):
        try:
            socks[n].recv(10)
        except ConnectionRefusedError:
            found[n] = True
        except (socket.timeout, BlockingIOError):
            pass
print(*('refused' if n in found else 'silence' for n in range(last + 1)))
'''


def knock(end, address, limit_s, *ports):
    """@ports: (number, size) of each datagram.  @return the results for each."""
    words = [str(word) for port in ports for word in port]
    return sh(*in_netns(end, sys.executable, '-c', KNOCK, address, str(limit_s), *words)).split()


def kernel_goes_on(mtu):
    """Frames that are not RoCE go to the kernel as before; RoCE frames do not."""
    found = knock(1, ADDRESS[0], HANG_S / 2, (4791, 5), (4792, mtu - 28), (4792, 5))
    problems = [] if found == ['silence', 'refused', 'refused'] else [
        f'the kernel answers RoCE, other UDP of {mtu - 28} bytes, and of 5 bytes by: {found}']
    tcp = subprocess.run(in_netns(1, sys.executable, '-c', TCP, ADDRESS[0]), check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=HANG_S)
    if 'refused' not in tcp.stdout:
        problems.append(f'TCP does not reach the kernel: {tcp.stdout}')
    return problems


TCP = '''
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 200)
except ConnectionRefusedError:
    print('refused')
'''


def divided(server, part):
    """@return problems: the messages that the WRITEs of traffic() came in are not of @part bytes."""
    want, got = ITERS * -(-SIZE // part), hw_counters(server)['rx_write_requests']
    return [] if got == want else [f'{ITERS} WRITEs came in {got} messages instead of {want}']


def netdev(tap, karstd, perf, member, folder, driver, mtu, path_mtu):
    with Network(mtu):
        ds = pair(karstd, folder, driver)
        problems = ds[0].start() + ds[1].start()
        tap.point(f'{driver}: two daemons start', problems)
        if not problems:
            tap.point(f'{driver}: traffic', traffic(perf, ds[0].socket, ds[1].socket, path_mtu))
            if driver != 'auto':
                tap.point(f'{driver}: how WRITEs are divided (Q13)',
                          divided(ds[0], path_mtu if driver == 'kport' else SIZE))
            tap.point(f'{driver}: multicast', multicast(member, ds[0].socket, ds[1].socket))
            tap.point(f'{driver}: the kernel goes on with the rest', kernel_goes_on(mtu))
            other = Daemon(karstd, folder, netdev_conf(driver), name='other', netns=NETNS[0])
            tap.point(f'{driver}: an interface has one daemon',
                      other.refuses(1, f'UDP port 4791 of {DEV} belongs to another program'))
            since = len(ds[0].text())
            sh('ip', '-n', NETNS[0], 'address', 'add', '198.51.100.1/24', 'dev', DEV)
            tap.point(f'{driver}: a new address of the interface is taken over',
                      ds[0].says('has other addresses now', since))
        ds[0].kill()
        tap.point(f'{driver}: it starts again after kill -9', ds[0].start() + ds[0].stop())
        tap.point(f'{driver}: it stops, without an error', ds[1].stop() + [
            line for line in ds[1].text().splitlines() if line.startswith('karstd: error: ')])
        left = [sh('ip', '-n', name, 'link', 'show', DEV) for name in NETNS]
        tap.point(f'{driver}: no XDP program is left',
                  [text for text in left if 'xdp' in text.replace(DEV, '')])


def neighbour(address, dev):
    """@return problems: the kernel of the first namespace does not resolve the address."""
    end = time.monotonic() + HANG_S
    while 'lladdr' not in sh('ip', '-n', NETNS[0], 'neighbour', 'show', address, 'dev', dev):
        if time.monotonic() > end:
            return [sh('ip', '-n', NETNS[0], 'neighbour')]
        knock(0, address, 1, (4792, 5))
    return []


def taps(tap, karstd, perf, member, folder):
    """Two daemons at taps that a bridge joins, with the host's own stack attached, too."""
    name = NETNS[0]
    sh('ip', 'netns', 'add', name)
    ds = []
    try:
        sh('ip', '-n', name, 'link', 'set', 'lo', 'up')
        sh('ip', '-n', name, 'link', 'add', 'kbr', 'type', 'bridge')
        for end in (0, 1):
            conf = f'[port a]\ndevice = tap:kt{end}\naddresses = {ADDRESS[end]}/24\n'
            ds.append(Daemon(karstd, folder, conf + ('[engine]\nlcores = 0,1\n' if end else ''),
                             name=f'tap{end}', netns=name))
        problems = ds[0].start() + ds[1].start()
        tap.point('taps: two daemons start', problems)
        if not problems:
            for end in (0, 1):
                sh('ip', '-n', name, 'link', 'set', f'kt{end}', 'master', 'kbr')
            sh('ip', '-n', name, 'link', 'set', 'kbr', 'up')
            sh('ip', '-n', name, 'address', 'add', '192.0.2.100/24', 'dev', 'kbr')
            tap.point('taps: traffic', traffic(perf, ds[0].socket, ds[1].socket, 4096))
            tap.point('taps: multicast', multicast(member, ds[0].socket, ds[1].socket))
            tap.point("taps: the host's stack finds the port by ARP", neighbour(ADDRESS[0], 'kbr'))
            other = Daemon(karstd, folder, f'[port a]\ndevice = tap:kt0\naddresses = {ADDRESS[0]}/24\n',
                           name='tapx', netns=name)
            tap.point('taps: a tap has one daemon',
                      other.refuses(1, 'tap kt0: Device or resource busy'))
        for d in ds:
            tap.point(f'{d.name[:4]}: it stops', d.stop())
    finally:
        for d in ds:
            d.kill()
        sh('ip', 'netns', 'del', name, check=False)


def lcores_of(d):
    engine = karst_observe.find_engines(prefix=d.name)[0]
    try:
        return list(engine.rows('lcores').values())
    finally:
        engine.telemetry.close()


def two_lcores(tap, karstd, perf, folder):
    """Queue pairs on both lcores of a port with two queues. net_kport gives each lcore the packets
    of its own queue pairs; with other drivers some packets are handed off, and nothing is lost."""
    for driver in ('kport', 'af_packet'):
        with Network(9000):
            ds = [Daemon(karstd, folder, netdev_conf(driver, '[engine]\nlcores = 0,1\n'),
                         name=f'two{end}', netns=NETNS[end]) for end in (0, 1)]
            problems = ds[0].start() + ds[1].start()
            if not problems:
                problems = traffic(perf, ds[0].socket, ds[1].socket, 4096, '--qps', '16',
                                   '--working-set', '64M')
            for d in ds if not problems else []:
                rows = lcores_of(d)
                for name in ('rx_frames', 'tx_frames'):
                    if min(row[name] for row in rows) == 0:
                        problems.append(f'{name}: {[row[name] for row in rows]}')
                handed = sum(row['handoff_out'] for row in rows)
                if (driver == 'kport' and handed) or handed != sum(
                        row['handoff_in'] for row in rows):
                    problems.append(f'{handed} packets were handed on')
            tap.point(f'{driver}: two lcores at each end, queue pairs on both',
                      problems + ds[0].stop() + ds[1].stop())


def netdev_faults(tap, karstd, folder):
    with Network(1500):
        d = Daemon(karstd, folder, netdev_conf('af_packet', 'mtu = 4180\n'), name='mtu',
                   netns=NETNS[0])
        tap.point('an interface with a smaller MTU than wanted',
                  d.refuses(1, f'interface {DEV} has MTU 1500, and mtu = 4180 is wanted',
                            f'ip link set {DEV} mtu 4180'))
        sh('ip', '-n', NETNS[0], 'address', 'flush', 'dev', DEV)
        d = Daemon(karstd, folder, netdev_conf('af_packet'), name='noip', netns=NETNS[0])
        tap.point('an interface without an address',
                  d.refuses(1, f'interface {DEV} has no IP address'))


def xdp_polls(tap, karstd, folder):
    with Network(3000):
        for idle, budget in (('poll', 64), ('yield', 0)):
            d = Daemon(karstd, folder, netdev_conf(
                'af_xdp', f'[engine]\nidle = {idle}\n[log]\ndpdk_level = info\n'),
                name=idle, netns=NETNS[0])
            problems = d.start()
            busy = 'Busy polling budget set to: 64' in d.text()
            tap.point(f'af_xdp: a budget of {budget} for busy polling with idle = {idle}',
                      problems + ([] if busy == bool(budget) else [d.text()]) + d.stop())


def packet_socket(end, name):
    """A packet socket in a namespace, made on a thread that is there."""
    made = []

    def run():
        with open(f'/run/netns/{NETNS[end]}', encoding='ascii') as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), 'setns')
        made.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        made[0].bind((name, 3)) # ETH_P_ALL
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return made[0]


def xdp_vlans(tap, karstd, folder):
    """RoCE of a VLAN stays with the kernel; with VLAN id 0 it is the port's."""
    with Network(3000):
        d = Daemon(karstd, folder, netdev_conf('af_xdp'), name='vlans', netns=NETNS[0])
        problems = d.start()
        frame = roce.frame(b'\xff' * 6, b'\2\0\0\0\0\1', ADDRESS[1], ADDRESS[0],
                           roce.bth(roce.RC_WRITE_ONLY, 0x123456, 1))
        with packet_socket(0, DEV) as there, packet_socket(1, DEV) as here:
            end = time.monotonic() + HANG_S
            while not problems:
                here.send(frame[:12] + struct.pack('>HH', 0x8100, 100) + frame[12:])
                if select.select([there], [], [], 0.1)[0] and \
                        there.recv(4096)[12:42] == frame[12:42]:
                    break
                if time.monotonic() > end:
                    problems = ['the kernel gets nothing of VLAN 100']
            taken = sum(row['rx_frames'] for row in lcores_of(d)) if not problems else 0
            if taken:
                problems = [f'the port got {taken} frames']
            while not problems and not sum(row['rx_frames'] for row in lcores_of(d)):
                here.send(frame[:12] + struct.pack('>HH', 0x8100, 0x2000) + frame[12:])
                time.sleep(0.1)
                if time.monotonic() > end:
                    problems = ['the port gets nothing of VLAN 0']
        tap.point('af_xdp: RoCE of a VLAN stays with the kernel', problems + d.stop())


def xdp_faults(tap, karstd, folder):
    with Network(3000, queues=2):
        d = Daemon(karstd, folder, netdev_conf('af_xdp') + '[engine]\nlcores = 0\n', name='queue',
                   netns=NETNS[0])
        tap.point('af_xdp: more queues than lcores',
                  d.refuses(1, '2 receive queues and 1 lcores', 'ethtool -L'))
    with Network(3000):
        source = os.path.join(folder, 'other.c')
        with open(source, 'w', encoding='ascii') as f:
            f.write('__attribute__((section("xdp"), used)) int other(void *c) { return 2; }\n'
                    'char LICENSE[] __attribute__((section("license"), used)) = "BSD";\n')
        sh('clang', '-O2', '-target', 'bpf', '-c', source, '-o', source + '.o')
        sh('ip', '-n', NETNS[0], 'link', 'set', DEV, 'xdp', 'obj', source + '.o', 'sec', 'xdp')
        d = Daemon(karstd, folder, netdev_conf('af_xdp'), name='others', netns=NETNS[0])
        problems = d.refuses(1, f'another XDP program is attached to {DEV}')
        if 'xdp' not in sh('ip', '-n', NETNS[0], 'link', 'show', DEV):
            problems.append('the other program is gone')
        tap.point("af_xdp: another program's XDP program is not replaced", problems)


def reason_against_netns():
    if os.getuid() != 0:
        return 'needs root'
    name = f'karstd{os.getpid()}t'
    run = subprocess.run(['ip', 'netns', 'add', name], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, check=False)
    if run.returncode == 0:
        run = subprocess.run(['ip', '-n', name, 'link', 'add', 'v0', 'type', 'veth', 'peer', 'name',
                              'v1'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             check=False)
    sh('ip', 'netns', 'del', name, check=False)
    return f'no veth pairs here: {run.stdout.strip()}' if run.returncode else None


def carrier(tap, karstd, folder, driver):
    """The other end of the cable goes away and comes back, twice: the port has a link when it is
    there."""
    problems = []
    with Network(1500):
        d = Daemon(karstd, folder, netdev_conf(driver), name='carrier', netns=NETNS[0])
        problems += d.start()
        for state in ('down', 'up') * 2:
            if problems:
                break
            since = len(d.text())
            sh('ip', '-n', NETNS[1], 'link', 'set', DEV, state)
            problems += d.says(f'link {state}', since)
        problems += d.stop()
    tap.point(f'{driver}: the link is what the carrier is', problems)


NAP_S, MANY_SLEEPS = 0.5, 5000


def sleeps_after(tap, karstd, folder):
    """The interface is set down and up: the lcore sleeps again.  If it does not, it counts some hundred
    thousand sleeps a second that end at once."""
    with Network(1500):
        d = Daemon(karstd, folder, '[engine]\nidle = sleep\n' + netdev_conf('kport'), name='after',
                   netns=NETNS[0])
        problems = d.start()
        for state in ('down', 'up') if not problems else ():
            since = len(d.text())
            sh('ip', '-n', NETNS[0], 'link', 'set', DEV, state)
            problems += d.says(f'link {state}', since)
        if not problems:
            time.sleep(NAP_S) # for what the kernel sends on an interface that is up
            before = lcores_of(d)[0]['sleeps']
            time.sleep(NAP_S)
            slept = lcores_of(d)[0]['sleeps'] - before
            problems = [f'{slept} sleeps in {NAP_S} s'] if slept > MANY_SLEEPS else []
        problems += d.stop()
    tap.point('kport: an lcore sleeps after its interface was down', problems)


class Cable:
    """A tap of this process whose speed can be set."""

    TUNSETIFF, TAP, NO_PI = 0x400454ca, 2, 0x1000
    SIOCETHTOOL, GET, SET, SPEED_AT = 0x8946, 1, 2, 12

    def __init__(self):
        self.name = f'kspeed{os.getpid()}'
        self.fd = os.open('/dev/net/tun', os.O_RDWR)
        fcntl.ioctl(self.fd, self.TUNSETIFF, struct.pack('16sH22x', self.name.encode(), self.TAP | self.NO_PI))
        sh('ip', 'address', 'add', '198.51.100.1/30', 'dev', self.name)
        sh('ip', 'link', 'set', self.name, 'up')

    def set_mbps(self, mbps):
        settings = ctypes.create_string_buffer(64) # struct ethtool_cmd
        request = struct.pack('16sQ16x', self.name.encode(), ctypes.addressof(settings))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            for command in self.GET, self.SET:
                struct.pack_into('<I', settings, 0, command)
                if command == self.SET:
                    struct.pack_into('<H', settings, self.SPEED_AT, mbps)
                fcntl.ioctl(s, self.SIOCETHTOOL, request)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def speed(tap, karstd, folder):
    """The speed of an interface changes, with a link change and without."""
    name = 'kport: the speed of an interface is followed'
    with Cable() as cable:
        cable.set_mbps(25000)
        d = Daemon(karstd, folder, f'[port a]\ndevice = {cable.name}\n', name='speed')
        problems = d.start()
        if not problems:
            engine = karst_observe.find_engines(prefix=d.name)[0]
            for mbps in 25000, 10000, 40000:
                cable.set_mbps(mbps)
                end = time.monotonic() + HANG_S
                while not problems and [p['link_mbps'] for p in engine.rows('ports').values()] != [mbps]:
                    if time.monotonic() > end:
                        problems = [f'not {mbps}: {engine.rows("ports")}']
                    time.sleep(0.05)
            engine.telemetry.close()
        tap.point(name, problems + d.stop())


def reason_against_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close() # AF_XDP
    except OSError as e:
        return f'the kernel has no AF_XDP: {e.strerror}'
    return None


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    karstd, perf, member = argv[1:]
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        loopback(tap, karstd, perf, member, folder)
        memif(tap, karstd, perf, member, folder)
        for how in ('off', 'notify', 'dcqcn', 'swift'):
            congestion(tap, karstd, perf, folder, how)
        reason = reason_against_netns()
        if reason:
            tap.skip('ports of kernel interfaces', reason)
            return tap.finish()
        taps(tap, karstd, perf, member, folder)
        netdev(tap, karstd, perf, member, folder, 'kport', 9000, 4096)
        two_lcores(tap, karstd, perf, folder)
        netdev(tap, karstd, perf, member, folder, 'auto', 1500, 1024)
        netdev(tap, karstd, perf, member, folder, 'af_packet', 9000, 4096)
        netdev(tap, karstd, perf, member, folder, 'af_packet', 1500, 1024)
        netdev_faults(tap, karstd, folder)
        for driver in ('kport', 'af_packet'):
            carrier(tap, karstd, folder, driver)
        sleeps_after(tap, karstd, folder)
        speed(tap, karstd, folder)
        reason = reason_against_xdp()
        if reason:
            tap.skip('af_xdp', reason)
            return tap.finish()
        netdev(tap, karstd, perf, member, folder, 'af_xdp', 3000, 2048)
        netdev(tap, karstd, perf, member, folder, 'af_xdp', 9000, 2048)
        carrier(tap, karstd, folder, 'af_xdp')
        xdp_polls(tap, karstd, folder)
        xdp_vlans(tap, karstd, folder)
        xdp_faults(tap, karstd, folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
