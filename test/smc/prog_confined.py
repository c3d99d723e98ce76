#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs of smc.py that filter their own system calls."""
import ctypes
import errno
import os
import select
import socket
import struct

from prog import pattern
from prog_common import CHUNK, listener, receive, say, start

ASKS = 200 # queries of the service: enough that what is checked only once in a while is checked


def confine(calls, deadly):
    """Makes the kernel answer EPERM to these system calls of this process, given by number, or kill
    it."""
    libc = ctypes.CDLL(None, use_errno=True)
    load, equal, ret = 0x20, 0x15, 0x06
    code = [struct.pack('HBBI', load, 0, 0, 0)]
    both = [*calls, *deadly]
    for i, call in enumerate(both):
        code.append(struct.pack('HBBI', equal, len(both) - i + (call in deadly), 0, call))
    code += [struct.pack('HBBI', ret, 0, 0, action)
             for action in (0x7fff0000, 0x50000 | errno.EPERM, 0x80000000)]
    mem = ctypes.create_string_buffer(b''.join(code))
    prog = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(code), ctypes.addressof(mem)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(prog)), 0, 0) != 0: # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), 'prctl')


def server_confined(address, port, _):
    """As sshd's child before the login: the process may read and write, and make no other call on
    sockets.  It cannot use descriptors other than its connection."""
    sock, _ = listener(address, port).accept()
    assert sock.recv(1, socket.MSG_PEEK)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        # sendto, recvfrom, sendmsg, recvmsg, shutdown, socket, connect, getsockopt, fcntl, sched_yield;
        # sched_getaffinity, setsockopt
        confine([44, 45, 46, 47, 48, 41, 42, 55, 72, 24], [204, 54])
        for _ in range(ASKS):
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        refused = 0
        for call in (lambda: ours.send(b'x'), lambda: theirs.recv(1, socket.MSG_DONTWAIT), socket.socket,
                     lambda: sock.dup().detach() and ours.sendmsg([b'x'])):
            try:
                call()
            except PermissionError:
                refused += 1
        while piece := os.read(sock.fileno(), CHUNK):
            done = 0
            while done < len(piece):
                select.select([], [sock], [])
                done += os.write(sock.fileno(), piece[done:])
            select.select([sock], [], [])
        os._exit(refused)
    say('refused', os.waitstatus_to_exitcode(os.wait()[1]))


def client_confined(address, port, n):
    """As a program that confines itself before it has connections: only its own calls may be made."""
    # socket, connect, dup and so on are allowed; sendmsg, recvmsg, getpid, getpeername, getsockopt,
    # getdents64, readlinkat, bpf are not
    confine([], [46, 47, 39, 52, 55, 217, 267, 321])
    unused = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    unused.listen()
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    sock.connect((address, port))
    again = sock.dup()
    data = pattern(n)
    again.sendall(data)
    again.shutdown(socket.SHUT_WR)
    poll.poll()
    back, how = receive(sock)
    say('same' if back == data else 'different', len(back), how)
    os._exit(0) # without Python's calls


def client_confined_required(address, port, _):
    """The same with --require."""
    confine([], [321])
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for call in (lambda: sock.connect((address, port)), lambda: sock.listen()): # pylint: disable=unnecessary-lambda
        try:
            call()
        except OSError as e:
            say(errno.errorcode[e.errno])


if __name__ == '__main__':
    start(globals())
