# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Finds TCP listeners by asking the kernel, without a connection, which the server would see as a client.

Uses a sock_diag dump of listening sockets only: for /proc/net/tcp the kernel walks through its table of
all connections, which takes 8 ms on a machine of 24 GiB even if there are none, and a program that waits
for a server asks often.
"""
import ctypes
import os
import socket
import struct

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
TCP_LISTEN = 10
CLONE_NEWNET = 0x40000000
HEADER = struct.Struct('=IHHII') # nlmsghdr
REQUEST = struct.Struct('=BBxxI2s2x16x16x4x8x') # inet_diag_req_v2, with the port of this end
ANSWER = struct.Struct('=BBxx2s2x16s16x4x8x') # the beginning of inet_diag_msg


def diag_socket(pid):
    """A socket in the network namespace of process @pid; of this process if @pid is None."""
    if pid is None:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    libc = ctypes.CDLL(None, use_errno=True)
    with open('/proc/thread-self/ns/net', 'rb') as home, open(f'/proc/{pid}/ns/net', 'rb') as there:
        if os.path.sameopenfile(home.fileno(), there.fileno()):
            return diag_socket(None)
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f'the network namespace of process {pid}')
        try:
            return diag_socket(None)
        finally:
            if libc.setns(home.fileno(), CLONE_NEWNET) != 0:
                os._exit(1) # this thread must not continue in the wrong namespace


def answers(sock):
    """The messages of a dump."""
    while True:
        data = sock.recv(1 << 16)
        while data:
            length, kind, _, _, _ = HEADER.unpack_from(data)
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                raise OSError(-struct.unpack_from('=i', data, HEADER.size)[0], 'sock_diag')
            yield data[HEADER.size:length]
            data = data[(length + 3) & ~3:]


def listeners(port, pid=None):
    """The addresses with a listener on TCP @port, in the network namespace of a process; none if that
    process has ended."""
    found, number = [], struct.pack('!H', port)
    try:
        sock = diag_socket(pid)
    except FileNotFoundError:
        return found
    with sock:
        for family in (socket.AF_INET, socket.AF_INET6):
            body = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << TCP_LISTEN, number)
            sock.send(HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY,
                                  NLM_F_REQUEST | NLM_F_DUMP, 0, 0) + body)
            for answer in answers(sock):
                family, state, at, address = ANSWER.unpack_from(answer)
                if state == TCP_LISTEN and at == number:
                    size = 4 if family == socket.AF_INET else 16
                    found.append(socket.inet_ntop(family, address[:size]))
    return found


def listens(port, pid=None):
    """Whether there is a listener."""
    return bool(listeners(port, pid))
