#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack.py of which one has the addresses that a connection of another one had."""
import ctypes
import os
import select
import signal
import socket
import struct

from prog_common import listener, receive, say, start


def server_second(address, port, _):
    """A client that is gone before it was accepted cannot communicate; the next one can."""
    sock = listener(address, port)
    signal.sigwait([signal.SIGUSR1])
    for _ in range(2):
        conn, peer = sock.accept()
        data, how = receive(conn)
        say('from', peer[1], data.decode(), how)
        conn.close()


def client_leaves(address, port, elsewhere):
    """Connects, and connects again through a descriptor of the TCP socket that it has kept: its
    addresses belong to another connection by then."""
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    say(sock.getsockname()[1])
    sock.sendall(b'false')
    signal.sigwait([signal.SIGUSR1])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.connect(kept.fileno(), struct.pack('16x'), 16)
    assert kept.connect_ex((address, elsewhere)) == 0
    say('elsewhere')
    signal.pause()


def client_follows(address, port, own):
    """Connects with the addresses that another program had before."""
    known = socket.create_server((address, 0)) # the service knows this program from here on
    say('ready')
    signal.sigwait([signal.SIGUSR1])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, own))
    sock.setblocking(False)
    sock.connect_ex((address, port))
    say('connects')
    signal.sigwait([signal.SIGUSR1])
    select.select([], [sock], [])
    sock.setblocking(True)
    sock.sendall(b'true')
    known.close()


if __name__ == '__main__':
    start(globals(), prompted=True)
