#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack.py that share a connection with other processes, which are killed or attack."""
import ctypes
import os
import signal
import time

from prog_common import OTHERS, SYS_POLL, SYS_RECVFROM, SYS_WRITE, as_user, receive, say, start
from prog_memory import PAGE, PIECE, Memory, accepted, connected, sleeps

SLEEPERS = 256 # offset in the page: number of sleepers


def server_sleepers(address, port, _):
    """Two processes wait for bytes of a connection; one of them is killed."""
    sock = accepted(address, port)
    child = os.fork()
    if child == 0:
        sock.recv(1)
        os._exit(0)
    memory = Memory(False)
    while memory.read(SLEEPERS, '<I') != 1:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.wait()
    for _ in range(2):
        sock.sendall(b'y')
        assert sock.recv(1) == b'x'
    say('sleepers', memory.read(SLEEPERS, '<I'))


def client_answers(address, port, _):
    sock = connected(address, port)
    while sock.recv(1):
        sock.sendall(b'x')


def server_dies(address, port, _):
    """A process is killed while it holds the reader's lock: it waits for room in a pipe."""
    sock = accepted(address, port)
    libc = ctypes.CDLL(None, use_errno=True)
    _, into = os.pipe()
    os.write(into, bytes(65536))
    child = os.fork()
    if child == 0:
        libc.splice(sock.fileno(), None, into, None, ctypes.c_size_t(PIECE), 0)
        os._exit(0)
    while not sleeps(child, [SYS_WRITE, SYS_POLL]):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.wait()
    data, how = receive(sock)
    say('got', len(data), how)


def client_pieces(address, port, _):
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))


def writable():
    """@return writable ranges of this process's memory"""
    with open('/proc/self/maps', encoding='ascii') as f:
        return [[int(n, 16) for n in line.split()[0].split('-')] for line in f
                if line.split()[1].startswith('rw') and 'memfd:karst-smc' not in line]


def server_shares(address, port, _):
    """A child, which has become another user, writes addresses of its choice wherever the page has
    any."""
    sock = accepted(address, port)
    ours = ctypes.create_string_buffer(PAGE)
    middle = ctypes.addressof(ours) + PAGE // 2
    page, parent = Memory(False).at, os.getpid()
    child = os.fork()
    if child == 0:
        while not sleeps(parent, [SYS_RECVFROM]):
            time.sleep(0.001)
        spans = writable()
        as_user(OTHERS)
        words = (ctypes.c_uint64 * (PAGE // 8)).from_address(page)
        found = [i for i, word in enumerate(words) if any(a <= word < b for a, b in spans)]
        for i in found:
            words[i] = middle + 64 * (i % 2)
        sock.sendall(b'g')
        os._exit(len(found))
    assert sock.recv(1) == b'x'
    found = os.waitstatus_to_exitcode(os.wait()[1])
    say('addresses', found, 'changed' if any(ours.raw) else 'same')


def client_once(address, port, _):
    sock = connected(address, port)
    assert sock.recv(1) == b'g'
    sock.sendall(b'x')
    sock.recv(1)


if __name__ == '__main__':
    start(globals(), prompted=True)
