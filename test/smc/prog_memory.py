#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What attackers need: connections, the far ends of pairs, and the memory of connections, whose contents
lib/sock/karst_sock.h describes."""
import ctypes
import os
import select
import socket
import struct

from prog_common import CHUNK, SYS_POLL, listener

# the C library's own functions, of which libkarst-sockets.so replaces syscall(), too
KERNEL = ctypes.CDLL('libc.so.6')
PAGE = 4096
NEAR = 2048    # KARST_SOCK_NEAR
LINE = 64      # a direction is two of these: the writer's, the reader's
BLOCKED = 8    # offset in a direction: the writer waits for room
RX_TAIL = 144  # offset in the page: position of the reader
TX_HEAD = 200  # offset in the page: position of the writer
PIECE = 1000
KEPT = 12      # connections: the memory of some of them is reused at once
PR_SET_PDEATHSIG = 1


def connected(address, port):
    """@return a connection whose two ends have met"""
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    select.select([sock], [], [], 0)
    return sock


def accepted(address, port):
    sock, _ = listener(address, port).accept()
    assert sock.recv(1) == b'x'
    sock.sendall(b'y')
    return sock


def connected_to_echo(address, port):
    sock = socket.create_connection((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'x'
    return sock


def smc_maps():
    """@return (first address, end address) of each mapping of connections"""
    with open('/proc/self/maps', encoding='ascii') as f:
        return [tuple(int(n, 16) for n in line.split()[0].split('-')) for line in f
                if 'memfd:karst-smc' in line]


def ring_files():
    """@return the files of rings that this process has mapped"""
    with open('/proc/self/maps', encoding='ascii') as f:
        rows = [line.split() for line in f if 'memfd:karst-smc' in line]
    spans = [(row[4], [int(n, 16) for n in row[0].split('-')]) for row in rows]
    return {inode for inode, (start, end) in spans if end - start > PAGE}


class Memory:
    """A mapping of a connection: its page, or its rings."""

    def __init__(self, rings):
        self.at, self.bytes = [(start, end - start) for start, end in smc_maps()
                               if (end - start > PAGE) == rings][0]
        self.buffer = (self.bytes - PAGE) // 2
        if rings: # ring 0 is before the positions, ring 1 after them
            self.at += NEAR + self.buffer
        self.fd = os.open('/proc/self/mem', os.O_RDWR)

    def read(self, at, what='<Q'):
        return struct.unpack(what, os.pread(self.fd, struct.calcsize(what), self.at + at))[0]

    def write(self, at, value, what='<Q'):
        os.pwrite(self.fd, struct.pack(what, value), self.at + at)

    def fill(self, direction, at, data):
        """Writes @data into the ring of a direction, from position @at on, which is near the
        beginning."""
        os.pwrite(self.fd, data, self.at + at + (4 * LINE if direction else -NEAR))


def fill(sock):
    """Sends until there is no room."""
    sock.setblocking(False)
    try:
        while True:
            sock.send(bytes(CHUNK))
    except BlockingIOError:
        pass


def sleeps(process, calls):
    """@return whether @process is in one of these calls"""
    with open(f'/proc/{process}/syscall', encoding='ascii') as f:
        return f.read().split()[0] in map(str, calls)


def far_ends():
    """@return the far ends of the peers' pairs, of which this process has descriptors.  Its own
    ends look like TCP sockets."""
    found = []
    for number in os.listdir('/proc/self/fd'):
        try:
            waker = socket.socket(fileno=int(number))
        except OSError:
            continue
        if (waker.family, waker.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
            maker, _, _ = struct.unpack('3i', waker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if maker != os.getpid():
                found.append(waker.dup())
        waker.detach()
    assert found
    return found


def told_by_kernel(sock):
    """Waits until the kernel itself reports something to read, whatever it is."""
    entry = struct.pack('ihh', sock.fileno(), select.POLLIN, 0)
    buffer = ctypes.create_string_buffer(entry, len(entry))
    while KERNEL.syscall(SYS_POLL, buffer, 1, -1) != 1:
        pass


def lines(ours, theirs):
    """@return the direction into which this program writes and the other one, which are recognized
    by how many bytes went through each"""
    memory = Memory(True)
    heads = [memory.read(0), memory.read(2 * LINE)]
    assert ours != theirs and sorted(heads) == sorted([ours, theirs]), heads
    return memory, 2 * LINE * heads.index(ours), 2 * LINE * heads.index(theirs)
