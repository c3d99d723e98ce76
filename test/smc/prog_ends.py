#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs of smc.py whose connections end: a program is killed, closes, or never accepts."""
import os
import select
import signal
import socket
import time

from prog import digest, pattern
from prog_common import CHUNK, listener, receive, say, start


def client_killed(address, port, n):
    """Bytes that were written before the program ends arrive."""
    sock = socket.create_connection((address, port))
    sock.sendall(pattern(n))
    say('sent', digest(pattern(n)))
    os.kill(os.getpid(), signal.SIGKILL)


def client_waits(address, port, _):
    sock = socket.create_connection((address, port))
    say('connected')
    data, how = receive(sock)
    say('got', len(data), how)


def meets_itself(address, port, ms):
    """The client's end comes first, and @ms milliseconds later the server's."""
    lst = listener(address, port)
    sock = socket.create_connection((address, port))
    sock.sendall(b'early')
    time.sleep(ms / 1000)
    peer, _ = lst.accept()
    peer.sendall(peer.recv(5))
    said = sock.recv(5)
    sock.close()
    say('met', said.decode(), peer.recv(1))


def meets_nobody(address, port, _):
    """The connection is never accepted."""
    lst = listener(address, port)
    sock = socket.create_connection((address, port))
    lst.close()
    say('got', *receive(sock))


def server_killed(address, port, _):
    sock, _ = listener(address, port).accept() # pylint: disable=unused-variable
    say('accepted')
    signal.pause()


def server_prompted(address, port, n):
    """Sends when it gets a signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    sock, _ = listener(address, port).accept()
    say('accepted')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(pattern(n))


def server_talks(address, port, n):
    """Exchanges bytes, then sends all @n bytes when it gets a signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    sock, _ = listener(address, port).accept()
    for _ in range(2):
        assert sock.recv(1) == b'x'
        sock.sendall(b'y')
    say('talked')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(pattern(n))


def server_serves(address, port, _):
    """Serves one connection after the other."""
    sock = listener(address, port)
    while True:
        with sock.accept()[0] as conn:
            receive(conn)


def client_when_told(address, port, _):
    """Makes a connection at each SIGUSR1."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say('ready')
    while True:
        signal.sigwait([signal.SIGUSR1])
        with socket.create_connection((address, port)) as conn:
            conn.sendall(b'x')
        say('connected')


def client_talks(address, port, _):
    sock = socket.create_connection((address, port))
    for _ in range(2):
        sock.sendall(b'x')
        assert sock.recv(1) == b'y'
    say('talked')
    data, how = receive(sock)
    say('got', len(data), how)


def server_late(address, port, _):
    """Writes to a peer that has closed: TCP learns of it by the answer to the first bytes."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x' and sock.recv(1) == b''
    poll = select.poll()
    poll.register(sock, 0)
    said = []
    for _ in range(3):
        try:
            said.append(sock.send(b'late'))
        except OSError as e:
            said.append(type(e).__name__)
        poll.poll() # until the hang-up
    say(*said, sock.recv(1))


def client_closes(address, port, _):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')


def server_ended(address, port, _):
    say(*receive(listener(address, port).accept()[0]))


def client_ends(address, port, _):
    """Prints how the peer ends the connection."""
    say(*receive(socket.create_connection((address, port))))


def both_ends(address, port, _):
    """Prints the result of each write to a peer that has closed, with and without bytes that the
    peer has not read before."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    lst = listener(address, port)
    for rest in 0, 1:
        sock = socket.create_connection((address, port))
        peer, _ = lst.accept()
        sock.setblocking(False)
        sent = 0
        try:
            while True:
                sent += sock.send(bytes(CHUNK))
        except BlockingIOError:
            pass
        while sent > rest:
            sent -= len(peer.recv(min(CHUNK, sent - rest)))
        say('read')
        signal.sigwait([signal.SIGUSR1])
        peer.close()
        say('closed')
        try:
            say('sent', sock.send(b'x'))
        except OSError as e:
            say(type(e).__name__)


def writes_nothing(address, port, _):
    """Writes no bytes to a peer that has closed: this does not cause a reset."""
    lst = listener(address, port)
    sock = socket.create_connection((address, port))
    lst.accept()[0].close()
    assert sock.recv(1) == b''
    say(sock.send(b''), sock.send(b'x'))


def client_floods(address, port, n):
    """Prints the result of a call that has sent a part when the connection ends."""
    sock = socket.create_connection((address, port))
    try:
        sock.sendall(bytes(n))
        say('sent')
    except OSError as e:
        say('ended', type(e).__name__)


if __name__ == '__main__':
    start(globals())
