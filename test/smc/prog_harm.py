#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs of smc.py that do harm to a connection, by its memory or by the far end of the other program's
pair, and those that they attack."""
import os
import random
import select
import socket
import struct

from prog_common import CHUNK, listener, say, start
from prog_memory import far_ends, told_by_kernel


def client_scribbles(address, port, leaves):
    """Overwrites the memory of its connection, as an attacker would."""
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    sock.setblocking(False)
    with open('/proc/self/maps', encoding='ascii') as f:
        maps = [[int(n, 16) for n in line.split()[0].split('-')] for line in f
                if 'memfd:karst-smc' in line]
    fd = os.open('/proc/self/mem', os.O_RDWR)
    for start, end in maps:
        if end - start > 4096: # the rings: the positions of both directions, which are between them
            for line in range(4):
                os.pwrite(fd, struct.pack('<Q', random.getrandbits(62) + (1 << 62)),
                          start + 2048 + (end - start - 4096) // 2 + 64 * line)
        else: # the page, except its locks, and the field that says that its direction ends
            words = [random.getrandbits(63) for _ in range(3)]
            os.pwrite(fd, struct.pack('<3Q', words[0], words[1] & ~(1 << 32), words[2]), start + 64)
    if leaves:
        say('ended')
        return
    try:
        sock.shutdown(socket.SHUT_WR) # this makes the service check
    except OSError:
        pass # it has checked by itself, and the connection has ended
    poll = select.poll()
    poll.register(sock, 0)
    poll.poll() # until the hang-up; the page has no valid contents any more
    say('ended')


def server_impatient(address, port, n):
    """Makes calls that do not wait, and one with a time limit, while the peer sends tokens all the
    time."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x'
    sock.sendall(b'y')
    sock.setblocking(False)
    assert select.select([sock], [], [], 0.05)[0] == []
    for _ in range(n):
        try:
            assert sock.recv(1) is None
        except BlockingIOError:
            pass
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 1000))
    try:
        sock.recv(1)
    except BlockingIOError:
        say('returned')


def client_knocks(address, port, _):
    """Sends tokens without end over the far end of the peer's pair, of which it has a
    descriptor."""
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    select.select([sock], [], [], 0) # the state is DIRECT by now, and this requests that descriptor
    waker = far_ends()[0]
    waker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    say('knocks')
    try:
        while True:
            try:
                waker.send(bytes(CHUNK))
            except BlockingIOError:
                pass
    except OSError:
        pass # the peer is gone


def server_astray(address, port, _):
    """Checks what poll() and select() report for a token without bytes."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x'
    select.select([sock], [], [], 0)
    sock.sendall(b'y')
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    told = []
    for say_so in (lambda: select.select([sock], [], [], 0)[0], lambda: poll.poll(0),
                   lambda: select.select([sock], [], [], 0.01)[0], lambda: poll.poll(10)):
        sock.send(b'n')
        told_by_kernel(sock)
        told.append(bool(say_so()))
    sock.send(b'z')
    told += [bool(poll.poll()), sock.recv(1)]
    say('told', *told)


def client_strays(address, port, _):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    select.select([sock], [], [], 0)
    waker = far_ends()[0]
    while sock.recv(1) == b'n':
        waker.send(b't')
    sock.sendall(b'b')
    say('ended', sock.recv(1))


if __name__ == '__main__':
    start(globals())
