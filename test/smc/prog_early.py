#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack.py that use a connection before there are rings, or before it is accepted."""
import ctypes
import os
import select
import signal
import socket
import struct
import time

from prog_common import OTHERS, as_user, listener, receive, say, start
from prog_memory import LINE, PAGE, TX_HEAD, Memory, connected_to_echo, ring_files

# offsets in the page
RINGS = 16      # number of the rings
URGENT_END, URGENT_IS, URGENT_VALID = 160, 168, 1 # of an urgent byte: position and state; a state
EARLY = 704     # early, about bytes that are written before there are rings
EARLY_CLOSED, EARLY_READY, EARLY_LEN = 1 << 30, 1 << 31, 0xffff
EARLY_RINGS, EARLY_BYTES = EARLY + LINE, EARLY + 5 * LINE # used in place of the rings, and the bytes
LATER_S = 0.5   # later than CLC begins, for which the service waits 0.1 s


def server_late(address, port, _):
    """Accepts when it gets a signal; prints when the first bytes have come, and what came in
    total."""
    sock = listener(address, port)
    signal.sigwait([signal.SIGUSR1])
    conn, _ = sock.accept()
    first = conn.recv(5)
    say('accepted')
    data, how = receive(conn)
    say('got', (first + data)[:11].decode(), len(first + data), how)


def client_dies(address, port, _):
    socket.create_connection((address, port)).sendall(b'hello')
    say('early')
    signal.sigwait([signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGKILL)


def client_died(address, port, _):
    """Acts as if a thread or a child had been killed before it recorded what it had written."""
    with socket.create_connection((address, port)) as sock:
        sock.sendall(b'hello')
        Memory(False).write(TX_HEAD, 0)
        say('early')
        signal.sigwait([signal.SIGUSR1])
        sock.sendall(b' world')


def client_fills(address, port, _):
    """Writes more than there is room for before there are rings."""
    with socket.create_connection((address, port)) as sock:
        for data in b'hello', b' world', bytes(1000), bytes(100), bytes(5000):
            sock.sendall(data)
        say('early')
        signal.sigwait([signal.SIGUSR1])
        sock.sendall(b'.')


def client_overstates(address, port, _):
    """Claims to have written more bytes than there is room for."""
    sock = socket.create_connection((address, port))
    sock.sendall(b'hello')
    Memory(False).write(EARLY, EARLY_LEN, '<I')
    say('early')
    signal.sigwait([signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGKILL)


def client_closes_early(address, port, _):
    """Does what only the service does: claims that there are rings."""
    sock = socket.create_connection((address, port))
    Memory(False).write(EARLY, EARLY_CLOSED | EARLY_READY, '<I')
    sock.sendall(b'hello')
    say('early')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(b' world')


def by_child(page, at, value, what='<I'):
    """A child, which has become another user, writes into the page."""
    if os.fork() == 0:
        as_user(OTHERS)
        struct.pack_into(what, (ctypes.c_char * PAGE).from_address(page), at, value)
        os._exit(0)
    os.wait()


def client_child_overstates(address, port, _):
    """A child claims that so much was written that the next bytes would be after the page."""
    sock, data = socket.create_connection((address, port)), b'overrun'
    page = Memory(False).at
    by_child(page, EARLY, 2 * PAGE)
    try:
        sock.sendall(data)
    except OSError:
        pass
    fd = os.open('/proc/self/mem', os.O_RDONLY)
    try:
        behind = os.pread(fd, len(data), page + EARLY_BYTES + 2 * PAGE)
    except OSError: # there are no bytes
        behind = b''
    say('written' if behind == data else 'not')


def client_child_offers(address, port, _):
    """A child claims that there are bytes to read."""
    sock = socket.create_connection((address, port))
    by_child(Memory(False).at, EARLY_RINGS + 2 * LINE, 2 * PAGE, '<Q')
    sock.setblocking(False)
    try:
        say('read', len(sock.recv(2 * PAGE)))
    except BlockingIOError:
        say('not')


def client_child_crosses(address, port, _):
    """A child claims that its rings are those that its parent has kept from another connection."""
    with socket.create_connection((address, port)) as sock:
        page = Memory(False).at
        here = listener('127.0.0.1', 0, quiet=True)
        own = socket.create_connection(here.getsockname())
        other, _ = here.accept()
        for a, b in (own, other), (other, own):
            a.sendall(b'z')
            assert b.recv(1) == b'z'
        own.close()
        other.close()
        assert ring_files()
        by_child(page, RINGS, 1)
        by_child(page, EARLY, EARLY_CLOSED | EARLY_READY)
        sock.sendall(b'hello')
        say('early')
        signal.sigwait([signal.SIGUSR1])
        sock.sendall(b' world')


def client_child_counts(address, port, _):
    """A child claims that there are more bytes before an urgent byte than a ring can have, and more
    bytes in the ring."""
    sock = connected_to_echo(address, port)
    page, much = Memory(False).at, 8 * Memory(True).buffer
    by_child(page, URGENT_END, 2 * much, '<Q')
    by_child(page, URGENT_IS, URGENT_VALID)
    sock.setblocking(False)
    try:
        say('read', len(sock.recv(much)))
    except BlockingIOError:
        say('not read')
    by_child(page, TX_HEAD, much, '<Q')
    try:
        say('written', sock.send(bytes(much)))
    except OSError:
        say('not written')


def server_resets(address, port, _):
    """Resets before the other program has polled."""
    sock = listener(address, port)
    conn, _ = sock.accept()
    conn.sendall(b'hello')
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    conn.close()
    say('reset')


def client_looks(address, port, _):
    sock = socket.create_connection((address, port))
    say('connected')
    signal.sigwait([signal.SIGUSR1])
    data, how = receive(sock)
    say('got', data.decode(), how)


def server_never_accepts(address, port, late):
    """Ends as soon as a client waits for it, or with @late, when the SMC-R negotiation is over."""
    sock = listener(address, port)
    select.select([sock], [], [])
    if late:
        time.sleep(LATER_S)
    os._exit(0) # otherwise Python takes so long that CLC may begin


def client_is_reset(address, port, _):
    sock = socket.create_connection((address, port))
    say('connected')
    try:
        say('got', sock.recv(1))
    except ConnectionResetError:
        say('reset')


if __name__ == '__main__':
    start(globals(), prompted=True)
