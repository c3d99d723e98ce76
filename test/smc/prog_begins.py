#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of begins.py: prog_begins.py WHAT ADDRESS PORT [NUMBER].  They act before, and with,
their first connection."""
import ctypes
import errno
import select
import socket

from prog_common import OTHERS, SYS_RECVFROM, as_user, listener, say, start

SYS_CLOSE_RANGE = 436


def is_in_pair(fd):
    """Checks whether there is a byte in the pair, by a system call that libkarst-sockets does not
    see."""
    byte = ctypes.create_string_buffer(1)
    return ctypes.CDLL('libc.so.6').syscall(SYS_RECVFROM, fd, byte, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT, None,
                                     None)


def beside(address, port):
    """@return a socket by which the two programs tell each other what they have done"""
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.bind((address, port))
    return sock


def server_token(address, port, n):
    """Accepts a non-blocking socket, after the client has connected or, with @n, before."""
    tells = beside(address, port)
    sock = listener(address, port)
    assert select.select([sock], [], [])
    other = None if n else tells.recvfrom(1)[1]
    fd = ctypes.CDLL(None).accept4(sock.fileno(), None, None, socket.SOCK_NONBLOCK)
    tells.sendto(b'a', other or tells.recvfrom(1)[1])
    assert tells.recv(1) == b'w'
    has = is_in_pair(fd)
    epoll = select.epoll()
    epoll.register(fd, select.EPOLLIN)
    assert epoll.poll() == [(fd, select.EPOLLIN)]
    say('token', has, socket.socket(fileno=fd).recv(2).decode())


def client_token(address, port, n):
    tells, sock = beside(address, 0), socket.socket()
    sock.setblocking(not n)
    assert sock.connect_ex((address, port)) in (0, errno.EINPROGRESS)
    tells.sendto(b'c', (address, port))
    assert tells.recv(1) == b'a'
    assert select.select([], [sock], [])
    sock.sendall(b'x')
    tells.sendto(b'w', (address, port))
    sock.setblocking(True)
    assert sock.recv(1) == b''


def talk(address, port):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'x'
    say('connected')
    sock.recv(1)


def client_tidy(address, port, _):
    assert ctypes.CDLL('libc.so.6').syscall(SYS_CLOSE_RANGE, 3, 0xffffffff, 0) == 0
    talk(address, port)


def client_other_user(address, port, _):
    as_user(OTHERS)
    talk(address, port)


if __name__ == '__main__':
    start(globals(), prompted=True)
