#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py with descriptors whose close waits, or that send descriptors."""
import codecs
import ctypes
import errno
import os
import select
import signal
import socket
import struct

from prog_common import OTHERS, SYS_SETSOCKOPT, as_user, listener, say, start
from prog_memory import BLOCKED, KERNEL, LINE, PAGE, Memory, accepted, connected, far_ends, fill
from prog_service import (MESSAGE, MOST_RIGHTS, PR_SET_DUMPABLE, SOCK_ABI, SOCK_OPEN, greeted_alone,
                          rights, send_rights)

LINGER_S = 1000000
SO_ZEROCOPY = 60


def lingering(far):
    """@return a TCP socket that has more to send than @far's other end has room for"""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1) # so it stays on TCP
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAGE)
    sock.connect(far.getsockname())
    fill_lingering(sock)
    return sock


def fill_lingering(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, LINGER_S))
    fill(sock)


def deaf_listener():
    """@return a listener that accepts nothing, and whose connections have little room"""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PAGE)
    sock.bind(('127.0.0.1', 0))
    sock.listen(256)
    return sock


def lingers(path, _, n):
    """Hands the service sockets that linger: in requests that it refuses, in bytes that it does not
    read, and more of them than one of its messages may have.  Their sender has ended by then."""
    as_user(OTHERS)
    far = deaf_listener()
    services = []
    for _ in range(n):
        services.append(greeted_alone(path))
    say('begins')
    signal.sigwait([signal.SIGUSR1]) # the service is stopped
    for i in range(n):
        service = services.pop()
        if os.fork() == 0:
            sock = lingering(far)
            given = rights([sock.fileno()] * (1 + i % 3 * 100))
            hello = struct.pack('<3I', SOCK_ABI, SOCK_OPEN, i)
            if i % 2 == 0:
                hello += bytes(MESSAGE - len(hello))
            for _ in range(2):
                service.sendmsg([hello], given)
            os._exit(0)
        service.close()
        os.wait()
    say('sent')
    signal.pause()


def server_accepts(address, port, _):
    sock, _ = listener(address, port).accept()
    sock.recv(1)
    signal.pause()


def client_lingers(address, port, _):
    """Its connection itself lingers, through a descriptor of the TCP socket that it has kept.  So
    does what it has sent into its pair.  It closes all of it."""
    as_user(OTHERS)
    far = deaf_listener()
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    select.select([sock], [], [], 0)
    say('begins')
    signal.sigwait([signal.SIGUSR1])
    fill_lingering(kept)
    given = lingering(far)
    send_rights(sock.fileno(), [given.fileno()]) # newer kernels refuse this
    say('sent')
    os._exit(0)


def client_gives(address, port, n, flags=0):
    """Sends up to @n times many descriptors over its end of the pair, as many as there is room
    for."""
    as_user(OTHERS)
    sock = socket.socket()
    sock.connect((address, port)) # and is not accepted: the service gets events of the pair
    room = ctypes.c_int(1 << 20)
    KERNEL.syscall(SYS_SETSOCKOPT, sock.fileno(), socket.SOL_SOCKET, socket.SO_SNDBUF,
                              ctypes.byref(room), 4)
    here = os.open('/', os.O_PATH)
    for _ in range(n):
        error = errno.EAGAIN
        # too many are under way: those that were sent before, until the kernel has closed them
        while error in (errno.EAGAIN, errno.ETOOMANYREFS):
            error = send_rights(sock.fileno(), [here] * MOST_RIGHTS, flags, 1 if flags else PAGE)
        if error:
            break
    say('ended' if error in (errno.EPIPE, errno.ECONNRESET) else error or 'all')


def client_gives_urgent(address, port, n):
    client_gives(address, port, n, socket.MSG_OOB)


def server_deaf(address, port, _):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PAGE)
    sock.bind((address, port))
    sock.listen(1)
    say('ready')
    conn, _ = sock.accept()
    signal.pause()
    conn.close()


def client_leaves_much(address, port, n):
    """Leaves more bytes than the peer's buffers have room for, and fewer than ours have."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * n)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, LINGER_S))
    sock.connect((address, port))
    sock.sendall(bytes(n))
    sock.close()
    say('sent')


def client_burdens(address, port, _):
    """Puts such a socket into the other program's pair, and sends it bytes to read."""
    as_user(OTHERS)
    far = deaf_listener()
    sock = connected(address, port)
    say('begins')
    signal.sigwait([signal.SIGUSR1]) # the attacked program is stopped
    for waker in far_ends():
        if os.fork() == 0:
            given = lingering(far)
            try:
                waker.sendmsg([b'!'], rights([given.fileno()]))
            except PermissionError:
                pass
            os._exit(0)
        os.wait()
    sock.sendall(b'abc')
    say('sent')
    signal.pause()


def client_burdens_itself(address, port, _):
    """Puts such a socket into its own pair, and claims to wait for room, so that the other program
    empties the pair."""
    codecs.lookup('ascii') # for Memory: imports are not possible afterwards
    as_user(OTHERS)
    far = deaf_listener()
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1) # makes its own memory accessible again
    sock = connected(address, port)
    say('begins')
    signal.sigwait([signal.SIGUSR1])
    if os.fork() == 0:
        given = lingering(far)
        send_rights(sock.fileno(), [given.fileno()])
        os._exit(0)
    os.wait()
    memory = Memory(True)
    sock.sendall(b'abc')
    memory.write(2 * LINE * [memory.read(0), memory.read(2 * LINE)].index(4) + BLOCKED, 1, '<I')
    say('sent')
    signal.pause()


def server_burdened(address, port, _):
    """Receives only bytes."""
    sock = accepted(address, port)
    sock.setblocking(False)
    data = b''
    while len(data) < 3:
        select.select([sock], [], [])
        try:
            data += sock.recv(3)
        except BlockingIOError:
            pass
    sock.close()
    say('got', data.decode())


if __name__ == '__main__':
    start(globals(), prompted=True)
