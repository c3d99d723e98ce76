#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py that claim wrong things about sockets, change the map of the TCP option,
or listen repeatedly; and those beside them."""
import ctypes
import errno
import socket
import struct

from prog_common import OTHERS, SYS_BPF, as_user, say, start
from prog_service import SOCK_OPEN, ask_service, greeted, note

BPF_MAP_FREEZE, BPF_ATTR = 22, 128
LISTENS_FROM = 33000 # ports


def claims(path, _, __):
    """Claims that both sides of the connections of its sockets have sent the option, and hands them
    over."""
    service, (options, *_) = greeted(path)

    def status(sock, claim=True):
        if claim:
            note(options, sock, 1, 1)
        return errno.errorcode.get(-ask_service(service, SOCK_OPEN, [sock.fileno()])[0], 'taken')

    def connection(want, family=socket.AF_INET):
        here = socket.socket(family)
        note(options, here, want, 0)
        here.bind(('127.0.0.1' if family == socket.AF_INET else '::1', 0))
        here.listen(1)
        sock = socket.socket(family)
        note(options, sock, want, 0)
        sock.connect(here.getsockname())
        return sock, here, here.accept()[0]

    plain, other, agreed = connection(0), connection(1), connection(1)
    said = [status(plain[0]), status(plain[1]), status(socket.socketpair()[0]),
            status(socket.socket(type=socket.SOCK_DGRAM))]
    libc = ctypes.CDLL(None)
    libc.connect(other[0].fileno(), struct.pack('16x'), 16)
    said.append(status(other[0]))
    note(options, other[0], 0, 0)
    other[0].connect(plain[1].getsockname())
    said += [status(other[0]), status(agreed[0], False), status(agreed[2], False)]
    for family in socket.AF_INET, socket.AF_INET6:
        ended, _, peer = connection(1, family)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        peer.close() # this is a reset
        said.append(status(ended, False))
        said += [status(sock, False) for sock in connection(1, family)[::2]]
    say('claims', *said)


def freezes(path, _, __):
    """Freezes that map, for all programs."""
    as_user(OTHERS)
    service, (options, *_) = greeted(path)
    attr = ctypes.create_string_buffer(struct.pack('I', options), BPF_ATTR)
    frozen = ctypes.CDLL(None).syscall(SYS_BPF, BPF_MAP_FREEZE, attr, BPF_ATTR) == 0
    say('frozen' if frozen else 'refused')


# --- programs that listen repeatedly ---

def listens(path, _, n):
    """Listens on @n ports, one after another."""
    as_user(OTHERS)
    service, (options, *_) = greeted(path)
    said = 0
    for i in range(n):
        with socket.socket() as sock:
            note(options, sock, 1, 0)
            try:
                sock.bind(('127.0.0.1', LISTENS_FROM + i))
                sock.listen(1)
                said += 1
            except OSError: # another program has this port
                pass
    say('listened' if said > n // 2 else said)


def server_hello(address, port, twice):
    """Sends first, to two clients; if @twice is set, another socket has listened on its port
    meanwhile."""
    sock = socket.create_server((address, port), reuse_port=True)
    if twice:
        socket.create_server((address, port), reuse_port=True).close()
    say('ready')
    for _ in range(2):
        conn, _ = sock.accept()
        conn.sendall(b'hello')
        said = conn.recv(1)
    say('got', said.decode())


def client_hello(address, port, _):
    for _ in range(2):
        with socket.create_connection((address, port)) as sock:
            data = sock.recv(5, socket.MSG_WAITALL)
            sock.sendall(b'x')
    say('got', data.decode())


if __name__ == '__main__':
    start(globals(), prompted=True)
