#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What the programs of attack_service.py share: requests to the SMC service."""
import ctypes
import os
import socket
import struct

from prog_common import SYS_BPF, SYS_SENDMSG

SOCK_ABI, SOCK_HELLO, SOCK_OPEN = 14, 1, 2
MESSAGE = 300     # size of struct karst_sock_msg
MOST_RIGHTS = 253 # limit of descriptors in a message
PR_SET_DUMPABLE = 4


def ask_service(service, op, fds=(), flags=0):
    """@return the status of the answer, and its descriptors"""
    head = struct.pack('<5I', SOCK_ABI, op, 0, 0, flags)
    service.sendmsg([head + bytes(MESSAGE - len(head))], rights(fds) if fds else [])
    answer, came, _, _ = socket.recv_fds(service, MESSAGE, 4)
    return struct.unpack_from('<i', answer, 12)[0], came


def service_at(path):
    """@return a connection to the service at @path"""
    service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    service.connect(path)
    return service


def greeted(path):
    """@return (a connection after KARST_SOCK_HELLO, the descriptors of the answer)"""
    service = service_at(path)
    return service, ask_service(service, SOCK_HELLO)[1]


def greeted_alone(path):
    """@return that connection, with the descriptors closed"""
    service, given = greeted(path)
    for fd in given:
        os.close(fd)
    return service


def note(options, sock, want, seen):
    """Writes to the map of the TCP option, of which a program has a descriptor."""
    key, value = ctypes.c_int(sock.fileno()), ctypes.create_string_buffer(bytes([want, seen] + [0] * 6))
    attr = struct.pack('I4xQQQ', options, ctypes.addressof(key), ctypes.addressof(value), 0)
    assert ctypes.CDLL(None).syscall(SYS_BPF, 2, ctypes.create_string_buffer(attr), len(attr)) == 0


def agreed_pair(options, address):
    """@return both ends of a TCP connection whose two sides have sent the option"""
    with socket.socket() as here:
        sock = socket.socket()
        for one in here, sock:
            note(options, one, 1, 0)
        here.bind((address, 0))
        here.listen(1)
        sock.connect(here.getsockname())
        return sock, here.accept()[0]


def rights(fds):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f'{len(fds)}i', *fds))]


def send_rights(to, fds, flags=0, n=1):
    """Uses the system call, which libkarst-sockets.so does not see.  @return 0 or errno"""
    libc = ctypes.CDLL('libc.so.6', use_errno=True)
    data = ctypes.create_string_buffer(n)
    iov = struct.pack('PQ', ctypes.addressof(data), n)
    iov = ctypes.create_string_buffer(iov)
    anc = struct.pack(f'Qii{len(fds)}i', 16 + 4 * len(fds), socket.SOL_SOCKET, socket.SCM_RIGHTS, *fds)
    anc = ctypes.create_string_buffer(anc, len(anc) + -len(anc) % 8)
    msg = ctypes.create_string_buffer(struct.pack('PI4xPQPQi4x', 0, 0, ctypes.addressof(iov), 1,
                                                  ctypes.addressof(anc), len(anc), 0))
    rc = libc.syscall(SYS_SENDMSG, to, msg, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL | flags)
    return 0 if rc >= 0 else ctypes.get_errno()
