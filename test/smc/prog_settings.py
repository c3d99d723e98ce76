#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs of smc.py that make settings of a socket before it is a connection."""
import fcntl
import os
import select
import signal
import socket
import struct
import sys

from prog_common import listener, say, start


LIMIT = struct.pack('ll', 0, 20000) # a multiple of the kernel's ticks


def set_all(sock):
    """Sets what a connection inherits from the socket that listened, or connected."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, LIMIT)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    return sock


def sent(make):
    """@return a socket that another process makes, sends and closes"""
    near, far = socket.socketpair()
    if os.fork() == 0:
        sock = make()
        socket.send_fds(far, [b'x'], [sock.fileno()])
        os._exit(0)
    far.close()
    os.wait()
    return socket.socket(fileno=socket.recv_fds(near, 1, 1)[1][0])


def is_set(sock):
    """@return whether urgent data is in line, whether the time limit is set, and whether a read
    ends by it"""
    inline = sock.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE)
    limit = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, len(LIMIT)) == LIMIT
    try:
        sock.recv(1)
    except BlockingIOError:
        return [inline, limit, 'late']
    return [inline, limit, 'read']


def says_whether_set(sock):
    say('ready')
    select.select([sock], [], []) # the limit holds for accept(), too
    say('set', *is_set(sock.accept()[0]))


def server_sets(address, port, _):
    says_whether_set(set_all(listener(address, port, quiet=True)))


def server_set_elsewhere(address, port, _):
    says_whether_set(sent(lambda: set_all(listener(address, port, quiet=True))))


def server_set_by_child(address, port, _):
    sock = listener(address, port, quiet=True)
    if os.fork() == 0:
        set_all(sock)
        os._exit(0)
    os.wait()
    says_whether_set(sock)


def server_set_before(address, port, inherited):
    """The settings are made by the program that has executed this one."""
    if inherited:
        says_whether_set(socket.socket(fileno=inherited))
        return
    sock = set_all(listener(address, port, quiet=True))
    sock.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, *sys.argv[:4], str(sock.fileno())])


def own(sock, pid):
    fcntl.fcntl(sock, fcntl.F_SETOWN, pid)
    fcntl.fcntl(sock, 10, signal.SIGUSR2) # F_SETSIG
    return sock


def client_owned(address, port, elsewhere):
    """The owner that gets the socket's signals was set before connect()."""
    pid = os.getpid()
    sock = sent(lambda: own(set_all(socket.socket()), pid)) if elsewhere else own(
        set_all(socket.socket()), pid)
    sock.connect((address, port))
    say('set', *is_set(sock), fcntl.fcntl(sock, fcntl.F_GETOWN) == pid,
        fcntl.fcntl(sock, 11) == signal.SIGUSR2) # F_GETSIG


if __name__ == '__main__':
    start(globals())
