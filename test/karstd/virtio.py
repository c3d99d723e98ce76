#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Ports over net_virtio_user, whose backend goes, comes back, hangs up while it is asked, says nothing,
or what it may not (TAP).

  virtio.py KARSTD KARST_PERF
"""
import array
import os
import re
import socket
import struct
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.dont_write_bytecode = True
from bed import HANG_S, Daemon, Tap, traffic # noqa: E402

LOOP = '[port loop]\ndevice = loopback\n'
TRAFFIC = ('--op', 'write', '--size', '5000', '--iters', '300', '--verify', '--working-set', '8M',
           '--no-baselines')
GONE = 'port wire: its backend has gone, or does not answer'
UP = 'port 1, wire: net_virtio_user0'
FROM_DPDK = re.compile(r'\bv(irtio|host)_\w+\(\)') # its driver names its function first


def wire(path, server):
    return (f'[port wire]\naddresses = 192.0.2.2/24\n'
            f'device = net_virtio_user0,path={path},server={int(server)}\n')


def vhost(karstd, folder, path, client):
    return Daemon(karstd, folder, '[port wire]\naddresses = 192.0.2.1/24\n'
                  f'device = net_vhost0,iface={path}{",client=1" if client else ""}\n', name='vhost')


# --- a backend that is another karstd ---

def said_once(d, since, texts):
    """@return problems: one of the texts was not logged exactly once, or messages of the driver
    were logged, too."""
    said = d.text()[since:]
    problems = [f'"{text}" {said.count(text)} times: {said}' for text in texts if said.count(text) != 1]
    return problems + ([f'words of the driver: {said}'] if FROM_DPDK.search(said) else [])


def comes_back(tap, karstd, perf, folder, server):
    """The backend is killed and started again; and the port is removed afterwards."""
    role = 'server' if server else 'client'
    path = os.path.join(folder, f'{role}.vhost')
    d = Daemon(karstd, folder, wire(path, server) + LOOP, name=role)
    tap.point(f'{role}: it starts without its backend', d.start() + d.says('port wire: no backend'))
    peer = vhost(karstd, folder, path, server)
    problems = peer.start() + d.says(UP) + peer.says('link up')
    tap.point(f'{role}: its backend comes', problems + said_once(d, 0, ['port wire: no backend', UP]))
    if not problems:
        problems = traffic(perf, peer.socket, d.socket, '--mtu', '4096', *TRAFFIC)
    tap.point(f'{role}: traffic', problems)
    since = len(d.text())
    peer.kill()
    problems = d.says(GONE, since)
    if not server:
        os.unlink(path) # the driver of a backend that was killed does not do that
    problems += peer.start() + d.says(UP, since) + peer.says('link up')
    tap.point(f'{role}: the backend is killed, and comes back', problems + said_once(d, since, [GONE, UP]))
    if not problems:
        problems = traffic(perf, peer.socket, d.socket, '--mtu', '4096', *TRAFFIC)
    tap.point(f'{role}: traffic again', problems)
    problems = d.reload(LOOP)
    if server and os.path.exists(path):
        problems.append('its socket is there still')
    # anything that the driver has left in EAL's interrupt thread would show now
    peer.kill()
    tap.point(f'{role}: the port is removed', problems + d.reload() + d.stop())


# --- a hostile backend ---

GET_FEATURES, GET_PROTOCOL_FEATURES, GET_VRING_BASE, SET_STATUS, GET_STATUS = 1, 15, 11, 39, 40
REPLY, NEED_REPLY, VERSION = 4, 8, 1
FEATURES = 1 << 32 | 1 << 30 | 1 << 15 # version 1, protocol features, buffers that are merged
PROTOCOL_FEATURES = 1 << 3 | 1 << 16   # acknowledgements, status
HEAD = struct.Struct('<III')


class Backend:
    """Listens at a socket, and answers according to vhost-user, except for what a class changes."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.count, self.status = 0, bytes(8) # messages of this connection
        self.met = 0 # connections that have ended here
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError: # it was closed
                return
            self.count, self.status = 0, bytes(8)
            with sock:
                try:
                    while self.serve(sock):
                        self.count += 1
                except (OSError, struct.error): # it has gone
                    pass
            self.met += 1

    def serve(self, sock):
        """Handles one message.  @return whether to continue."""
        head, rights = self.receive(sock, HEAD.size)
        for fd in rights:
            os.close(fd)
        if len(head) < HEAD.size:
            return False
        what, flags, size = HEAD.unpack(head)
        body = sock.recv(size, socket.MSG_WAITALL) if size else b''
        return self.answer(sock, what, flags, body)

    @staticmethod
    def receive(sock, size):
        data, control, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(8 * 4), socket.MSG_WAITALL)
        fds = array.array('i')
        for _, _, rights in control:
            fds.frombytes(rights[:len(rights) // 4 * 4])
        return data, fds

    def answer(self, sock, what, flags, body):
        if what == GET_FEATURES:
            self.reply(sock, what, struct.pack('<Q', FEATURES))
        elif what == GET_PROTOCOL_FEATURES:
            self.reply(sock, what, struct.pack('<Q', PROTOCOL_FEATURES))
        elif what == GET_VRING_BASE:
            self.reply(sock, what, body[:4] + bytes(4))
        elif what == GET_STATUS:
            self.reply(sock, what, self.status)
        elif flags & NEED_REPLY:
            self.reply(sock, what, bytes(8))
        if what == SET_STATUS:
            self.status = body
        return True

    def reply(self, sock, what, body):
        sock.sendall(HEAD.pack(what, VERSION | REPLY, len(body)) + body)

    def close(self):
        self.listener.close()


class Silent(Backend):
    def answer(self, sock, what, flags, body):
        return True


class Noise(Backend):
    """Sends bytes that are not messages."""

    def answer(self, sock, what, flags, body):
        sock.sendall(b'HTTP/1.1 400 Bad Request\r\n\r\n')
        return True


class Long(Backend):
    """Announces more bytes than a message may have."""

    def reply(self, sock, what, body):
        sock.sendall(HEAD.pack(what, VERSION | REPLY, 0xffffffff) + body)


class Short(Backend):
    def reply(self, sock, what, body):
        sock.sendall(HEAD.pack(what, VERSION | REPLY, 4) + body[:4])


class Cut(Backend):
    """Sends half a message, and nothing more."""

    def reply(self, sock, what, body):
        sock.sendall(HEAD.pack(what, VERSION | REPLY, len(body)) + body[:4])


class Other(Backend):
    """Answers a request that was not made."""

    def reply(self, sock, what, body):
        super().reply(sock, what + 1, body)


class Stops(Backend):
    """Answers correctly for a number of messages, and then disconnects, or is silent."""

    def __init__(self, path, after, silent):
        self.after, self.silent = after, silent
        super().__init__(path)

    def answer(self, sock, what, flags, body):
        if self.count < self.after:
            return super().answer(sock, what, flags, body)
        return self.silent


FOR_EVER = 1 << 30
MESSAGES = 24 # more than there are until a port of one queue is up


def descriptors(d):
    """How many sockets and eventfds it has."""
    n = 0
    for name in os.listdir(f'/proc/{d.process.pid}/fd'):
        try:
            link = os.readlink(f'/proc/{d.process.pid}/fd/{name}')
        except FileNotFoundError:
            continue
        n += link.startswith('socket:') or 'eventfd' in link
    return n


def until(condition, what):
    """@return problems"""
    end = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > end:
            return [f'not {what}']
        time.sleep(0.02)
    return []


def bad(tap, karstd, folder, kind):
    """Two attempts of an invalid backend; then a valid one comes."""
    name = kind.__name__.lower()
    path = os.path.join(folder, name)
    d = Daemon(karstd, folder, wire(path, False) + LOOP, name=name)
    backend = kind(path)
    problems = d.start() + d.says('does not answer as one of vhost-user does')
    before = descriptors(d)
    problems += until(lambda: backend.met > 1, 'asked again')
    backend.close()
    os.unlink(path)
    problems += until(lambda: descriptors(d) <= before, f'{before} descriptors again')
    said = d.text().count('does not answer as')
    problems += [f'it is said {said} times: {d.text()}'] if said != 1 else []
    right = Backend(path)
    problems += d.says(UP)
    right.close()
    tap.point(f'a backend that is none: {name}', problems + d.stop())


def is_up(d, n):
    text = d.text()
    return text.rfind(f', w{n}: net_virtio_user') > text.rfind(f'port w{n}: its backend has gone')


def stops(tap, karstd, folder, silent):
    """Ports whose backends disconnect, or become silent, each some messages later than that of the
    port before; all ports come up when their backends behave correctly."""
    name = 'silent' if silent else 'goes'
    ports = range(0, MESSAGES, 4 if silent else 1)
    conf, backends = LOOP, {}
    for n in ports:
        path = os.path.join(folder, f'{name}{n}')
        backends[path] = Stops(path, n, silent)
        conf += (f'[port w{n}]\naddresses = 192.0.2.{n + 2}/24\n'
                 f'device = net_virtio_user{n},path={path}\n')
    d = Daemon(karstd, folder, conf, name=name)
    problems = d.start()
    for path, backend in list(backends.items()):
        backend.after = FOR_EVER # a backend that has answered everything may stay
        backend.close()
        os.unlink(path)
        backends[path] = Backend(path)
    if not problems:
        problems = until(lambda: all(is_up(d, n) for n in ports) or d.process.poll() is not None, 'all up')
        problems += [d.text()] if problems else []
    tap.point(f'backends each of which {"is silent" if silent else name} later than the other',
              problems + d.stop())


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    karstd, perf = argv[1:]
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for server in False, True:
            comes_back(tap, karstd, perf, folder, server)
        for kind in Silent, Noise, Long, Short, Cut, Other:
            bad(tap, karstd, folder, kind)
        for silent in False, True:
            stops(tap, karstd, folder, silent)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
