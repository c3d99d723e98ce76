#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack.py whose control pages and rings are used again."""
import ctypes
import errno
import os
import signal
import socket
import struct
import threading

from prog_common import SYS_CLOSE, listener, say, start, start
from prog_memory import KEPT, KERNEL, PAGE, PR_SET_PDEATHSIG, connected_to_echo, ring_files
from prog_service import SOCK_ABI, SOCK_OPEN

# --- pages ---

def pages():
    """@return the control pages that this process has mapped"""
    with open('/proc/self/maps', encoding='ascii') as f:
        spans = [[int(n, 16) for n in line.split()[0].split('-')] for line in f
                 if 'memfd:karst-smc' in line]
    return sum(end - start == PAGE for start, end in spans)


def server_echoes(address, port, _):
    """Echoes on each connection until it ends, on all at once; prints how many pages there are at
    the end of one."""
    sock = listener(address, port)

    def echo(conn):
        while data := conn.recv(1):
            conn.sendall(data)
        conn.close()
        say('pages', pages())
    while True:
        threading.Thread(target=echo, args=[sock.accept()[0]], daemon=True).start()


def client_again(address, port, n):
    """Makes @n connections, one after another."""
    for _ in range(n):
        sock = connected_to_echo(address, port)
        sock.close()
    say('pages', pages())


def service():
    """@return the connection to the service that libkarst-sockets.so has made"""
    for number in os.listdir('/proc/self/fd'):
        try:
            sock = socket.fromfd(int(number), socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if str(sock.getpeername()).endswith('.sock.smc'):
                return sock
        except OSError:
            pass
    raise AssertionError('none')


def client_lies(address, port, _):
    """Claims that pages are free that it uses, or that do not exist."""
    socks = [connected_to_echo(address, port)]
    pipe = os.pipe()
    with service() as sock:
        for first in range(0, 320, 64):
            numbers = [*range(first, first + 63), 0xffffffff]
            msg = struct.pack('<3IiII2i3I64I', SOCK_ABI, SOCK_OPEN, first, 0, 0, 0, 0, 0, 256, 0, 0,
                              *numbers)
            socket.send_fds(sock, [msg], [pipe[0]])
            assert struct.unpack('<3Ii', sock.recv(1000)[:16])[2:] == (first, -errno.ENOTSOCK)
    for i in range(3):
        socks.append(connected_to_echo(address, port))
        for byte in b'abc':
            for sock in socks:
                sock.sendall(bytes([byte + i]))
            for sock in socks:
                assert sock.recv(1) == bytes([byte + i])
    say('pages', pages())


# --- rings ---

def client_rounds(address, port, n):
    """Makes @n connections, one after another, each with other bytes, and nothing more; prints
    which files of rings it has had."""
    files = set()
    for i in range(n):
        data = bytes((i + k) % 251 for k in range(1 + 7 * i))
        with socket.create_connection((address, port)) as sock:
            sock.sendall(data)
            assert sock.recv(len(data), socket.MSG_WAITALL) == data
            files |= ring_files()
            try:
                say('more', sock.recv(1, socket.MSG_DONTWAIT))
            except BlockingIOError:
                pass
    several = [connected_to_echo(address, port) for _ in range(KEPT)]
    for sock in several: # some of these are free when it reports them with the next ones
        sock.close()
    several = [connected_to_echo(address, port) for _ in range(2)]
    say('done', *(files | ring_files()))
    signal.pause()


def client_moves(address, port, other):
    """Connects to another server when the first one is gone."""
    for each in port, other:
        for i in range(KEPT):
            with socket.create_connection((address, each)) as sock:
                sock.sendall(b'x' * i + b'!')
                assert sock.recv(i + 1, socket.MSG_WAITALL) == b'x' * i + b'!'
        say('done')
        signal.sigwait([signal.SIGUSR1])


def client_much(address, port, _):
    data = os.urandom(5000)
    with socket.create_connection((address, port)) as sock:
        sock.sendall(data)
        assert sock.recv(len(data), socket.MSG_WAITALL) == data
    say('done', *ring_files())
    signal.pause()


def client_forks(address, port, _):
    """A child has the memory of the first connection; later connections must not get it."""
    sock = connected_to_echo(address, port)
    child = os.fork()
    if child == 0: # it closes without libkarst-sockets.so noticing
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        KERNEL.syscall(SYS_CLOSE, sock.fileno())
        signal.pause()
        os._exit(0)
    sock.sendall(b'y')
    assert sock.recv(1) == b'y'
    say('forked', *ring_files())
    sock.close()
    signal.sigwait([signal.SIGUSR1])
    client_rounds(address, port, KEPT)


if __name__ == '__main__':
    start(globals(), prompted=True)
