#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A port net_memif is removed in the moment in which its peer goes, or is asked for again, or its peer
means harm, or goes and comes back (TAP).

  memif.py KARSTD KARST_PERF
"""
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'usertools'))
sys.dont_write_bytecode = True
import karst_observe # noqa: E402
from bed import HANG_S, Daemon, Tap, traffic # noqa: E402

LOOP = '[port loop]\ndevice = loopback\n'
ROLES = ('server', 'client')


def wire(name, role):
    return (f'[port wire]\naddresses = 192.0.2.{1 + ROLES.index(role)}/24\n'
            f'device = net_memif0,role={role},id=7,socket={name}\n')


def pair(karstd, folder, name):
    """Two daemons whose ports are connected: {role: daemon}, problems."""
    ds = {role: Daemon(karstd, folder, LOOP + wire(name, role), name=role) for role in ROLES}
    problems = []
    for d in ds.values(): # the server first
        problems += d.start()
    return ds, problems or ds['server'].says('link up')


def connects(name):
    """@return whether the driver's socket is listening."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.connect('\0' + name)
        except ConnectionRefusedError:
            return False
        return True


def removed(tap, karstd, folder, role, how):
    """The port of @role is removed while the other end is ended by signal @how, or is removed,
    too."""
    name = f'karst-memif-{os.getpid()}-{role}-{how}'
    ds, problems = pair(karstd, folder, name)
    stays, goes = ds[role], ds[ROLES[1 - ROLES.index(role)]]
    if not problems:
        stays.write(LOOP)
        if how == 'both':
            goes.write(LOOP)
        both = [(goes, signal.SIGHUP if how == 'both' else getattr(signal, 'SIG' + how)),
                (stays, signal.SIGHUP)]
        for d, number in both:
            d.send(number)
        problems += stays.ready()
        if how == 'both':
            problems += goes.ready()
        if role == 'server' or how == 'both':
            # its socket is removed with it
            problems += [f'there is a listener at {name}'] if connects(name) else []
        problems += stays.reload() # it is alive, and handles requests
    if how == 'both':
        problems += goes.stop()
    problems += stays.stop()
    goes.kill()
    tap.point(f'{role} removed, peer: {how}', problems)


# --- a server that goes and comes back ---

karst_observe.TIMEOUT_S = HANG_S
TRAFFIC = ('--op', 'write', '--size', '5000', '--iters', '300', '--verify', '--working-set', '8M',
           '--no-baselines')


def listener(name, backlog):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind('\0' + name)
    s.listen(backlog)
    s.settimeout(HANG_S)
    return s


def asks(d, name):
    """First another server is there, which sends nothing; and then one that does not even accept
    connections.  @return problems"""
    problems = []
    with listener(name, 16) as s:
        s.accept()[0].close()
        s.accept()[0].recv(1) # it gives that connection up, and tries another
    with listener(name, 0) as s:
        fills = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for fill in fills:
            fill.setblocking(False)
            fill.connect_ex('\0' + name)
        for _ in range(3):
            problems += d.reload()
        for fill in fills:
            fill.close()
    return problems


def returns(tap, karstd, perf, folder):
    """The server is killed and started again; the client reconnects, after other servers were in
    its place."""
    name = f'karst-memif-{os.getpid()}-returns'
    ds = {role: Daemon(karstd, folder, wire(name, role), name=role) for role in ROLES}
    server, client = ds['server'], ds['client']
    problems = server.start() + client.start() + client.says('link up')
    for before in lambda: [], lambda: asks(client, name):
        since = len(client.text())
        server.kill()
        problems += client.says('link down', since) + client.says('is asked for until it is back', since)
        if not problems:
            problems = before() + server.start() + client.says('link up', since)
        said = client.text()[since:]
        problems += [said] if said.count('is asked for') != 1 or 'memif_connect' in said else []
        if not problems:
            problems = traffic(perf, server.socket, client.socket, '--mtu', '1024', *TRAFFIC)
    tap.point('a client gets its server back', problems + client.stop() + server.stop())


# --- a hostile peer ---

INIT, ADD_REGION, ADD_RING, CONNECT, CONNECTED = 3, 4, 5, 6, 7
VERSION, COOKIE, BYTES, RING, C2S = 0x200, 0x3e31f20, 1 << 20, 1 << 16, 1
SILENT = 40


class Peer:
    """A peer at a server's socket; speaks the protocol of net_memif."""

    def __init__(self, name, init=True):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # before the socket has a timeout, with which it would not wait for those in front of it
        self.sock.connect('\0' + name)
        self.sock.settimeout(HANG_S)
        self.region = os.memfd_create('region')
        os.ftruncate(self.region, BYTES)
        for at in 0, RING:
            os.pwrite(self.region, struct.pack('<I', COOKIE), at)
        self.event = os.eventfd(0)
        self.answer()
        if init:
            self.say(INIT, struct.pack('<HIB', VERSION, 7, 0))

    def answer(self):
        """@return the message's type; None: the other end has closed the connection."""
        try:
            got = self.sock.recv(200)
        except ConnectionResetError:
            return None
        return struct.unpack('<H', got[:2])[0] if got else None

    def say(self, what, body=b'', fds=()):
        """@return as answer()"""
        try:
            socket.send_fds(self.sock, [struct.pack('<H126s', what, body)], fds)
        except (BrokenPipeError, ConnectionResetError):
            return None
        return self.answer()

    def add_region(self, index=0, size=BYTES):
        return self.say(ADD_REGION, struct.pack('<HQ', index, size), [self.region])

    def add_ring(self, flags, index=0, region=0, offset=0, log2=10):
        return self.say(ADD_RING, struct.pack('<HHHIBH', flags, index, region, offset, log2, 0),
                        [self.event])

    def close(self):
        self.sock.close()
        os.close(self.region)
        os.close(self.event)


def twice(name):
    """Adding a ring twice is refused."""
    peer = Peer(name)
    peer.add_region()
    peer.add_ring(C2S)
    peer.add_ring(C2S)
    peer.add_ring(0, offset=RING)
    said = peer.say(CONNECT)
    peer.close()
    return [] if said is None else [f'CONNECT is answered by {said}']


def impossible(name):
    problems = []
    for ring in ({'offset': 0xfffff000}, {'region': 9}, {'region': 65535}, {'log2': 60}, {'index': 1},
                 {'offset': BYTES - 64}):
        peer = Peer(name)
        peer.add_region()
        problems += [f'{ring} is taken'] if peer.add_ring(C2S, **ring) is not None else []
        peer.close()
    peer = Peer(name)
    problems += ['a region longer than its file is taken'] if peer.add_region(size=2 * BYTES) else []
    peer.close()
    return problems


def stray(name):
    """Descriptors that are not expected, before the peer has identified itself and afterwards."""
    for init in False, True:
        for what in range(10):
            peer = Peer(name, init)
            peer.say(what, fds=[peer.event] * 2)
            peer.close()
        peer = Peer(name, init) # of no length, like the end of a connection
        socket.send_fds(peer.sock, [b''], [peer.event] * 2)
        peer.answer()
        peer.close()
    return []


def gone(name):
    """Disconnects, usually before the driver has accepted."""
    for _ in range(200):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect('\0' + name)
    return works(name)


def silent(name):
    """The first of many silent peers are disconnected."""
    peers = [Peer(name, init=False) for _ in range(SILENT)]
    over = [peer.answer() for peer in peers[:SILENT // 2]]
    for peer in peers:
        peer.close()
    return [over] if any(said is not None for said in over) else []


def works(name):
    peer = Peer(name)
    peer.add_region()
    peer.add_ring(C2S)
    peer.add_ring(0, offset=RING)
    said = peer.say(CONNECT)
    peer.close()
    return [] if said == CONNECTED else [f'CONNECT is answered by {said}']


def few(tap, karstd, folder):
    """One ring in each direction, where the port has two queues."""
    name = f'karst-memif-{os.getpid()}-few'
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        tap.skip('fewer rings than queues', 'one processor')
        return
    engine = f'[engine]\nlcores = {cpus[0]},{cpus[1]}\n'
    d = Daemon(karstd, folder, engine + LOOP + wire(name, 'server'), name='few')
    problems = d.start()
    if not problems:
        problems += [] if works(name) else ['it is taken']
        problems += d.says('has fewer rings than the port has queues')
    tap.point('fewer rings than queues', problems + d.stop())


def trusted(tap, karstd, folder):
    """A socket that not all users can reach: the log says what risk is left, and does not show the
    secret."""
    conf = LOOP + wire(f'{folder}/memif,socket-abstract=no,secret=open-sesame,mac=02:00:00:00:00:07',
                       'server')
    d = Daemon(karstd, folder, conf, name='trusted')
    problems = d.start() or d.says('has to be trusted like it') + \
        d.says('secret=***,mac=02:00:00:00:00:07,')
    if not problems and 'open-sesame' in d.text():
        problems = [f'the secret: {d.text()}']
    if not problems and 'anybody in the network namespace' in d.text():
        problems = [d.text()]
    tap.point('a server in a folder of its own says who has to be trusted', problems + d.stop())


def descriptors(daemon, limit):
    """Waits until it has at most @limit open.  @return problems"""
    began = time.monotonic()
    while True:
        n = len(os.listdir(f'/proc/{daemon.process.pid}/fd'))
        if n <= limit:
            return []
        if time.monotonic() - began > HANG_S:
            return [f'{n} descriptors are open, {limit} before']
        time.sleep(0.01)


REFUSED = 'of a net_memif port says what it may not: it is disconnected'
UNSAID = re.compile(r'as were (\d+) others before of which nothing was said')


def told(tap, d, began_s):
    """Refusals in that time are logged at intervals, and counted."""
    engine = karst_observe.find_engines(prefix=d.name)[0]
    refused = engine.ask('engine')['memif_refused']
    engine.telemetry.close()
    lines = d.text().count(REFUSED)
    left_out = sum(int(n) for n in UNSAID.findall(d.text()))
    problems = []
    if refused < 20 or not lines or lines + left_out > refused:
        problems.append(f'{refused} were refused, {lines} lines, {left_out} without one')
    if lines > 2 + began_s / 10:
        problems.append(f'{lines} lines in {began_s:.1f} s')
    tap.point('it tells of those that were refused from time to time, and counts them', problems)


def hostile(tap, karstd, folder):
    name = f'karst-memif-{os.getpid()}-hostile'
    d = Daemon(karstd, folder, LOOP + wire(name, 'server'), name='hostile')
    problems = d.start()
    tap.point('a server whose socket is open to all says so', problems or d.says('take over'))
    n = len(os.listdir(f'/proc/{d.process.pid}/fd'))
    began = time.monotonic()
    for what in twice, impossible, stray, gone, silent, works:
        try:
            problems = what(name)
        except OSError as e:
            problems = [repr(e)]
        tap.point(f'a peer of its socket: {what.__name__}', problems + (
            descriptors(d, n) if d.process.poll() is None else ['it has died']))
    told(tap, d, time.monotonic() - began)
    tap.point('it ends', d.stop())


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for how in ('KILL', 'TERM', 'both'):
            for role in ROLES:
                removed(tap, argv[1], folder, role, how)
        returns(tap, *argv[1:], folder)
        few(tap, argv[1], folder)
        trusted(tap, argv[1], folder)
        hostile(tap, argv[1], folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
