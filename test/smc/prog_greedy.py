#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py that take all they can get, or fill the log."""
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import termios

from prog_common import OTHERS, as_user, say, start
from prog_memory import PAGE
from prog_service import (MESSAGE, SOCK_ABI, SOCK_HELLO, SOCK_OPEN, agreed_pair, ask_service, greeted,
                          service_at)


def hog(address, port, n):
    """Makes both ends of @n connections, which have to work, by TCP or SMC-R."""
    as_user(OTHERS)
    server = socket.socket()
    server.bind((address, port))
    server.listen(8)
    kept, works = [], 0
    for _ in range(n):
        client = socket.socket() # without create_connection(): imports are not possible any more
        client.connect((address, port))
        conn, _ = server.accept()
        client.sendall(b'x')
        works += conn.recv(1) == b'x'
        kept += [client, conn]
    say('works', works)
    signal.pause()


def hog_programs(path, _, n):
    """Makes connections to the service as @n programs."""
    as_user(OTHERS)
    kept = []
    for _ in range(n):
        kept.append(service_at(path))
    say('connected')
    signal.pause()


def unread(path, _, n):
    """Asks @n times, and reads the answers when the service has read all requests, or has closed
    the connection."""
    as_user(OTHERS)
    service = service_at(path)
    hello = struct.pack('<3I', SOCK_ABI, SOCK_HELLO, 0)
    said, came = 0, 0
    try:
        for _ in range(n):
            service.send(hello + bytes(MESSAGE - len(hello)))
        gone = select.poll()
        gone.register(service, 0)
        while struct.unpack('i', fcntl.ioctl(service, termios.TIOCOUTQ, bytes(4)))[0] and not gone.poll(1):
            pass
        while True:
            _, fds, _, _ = socket.recv_fds(service, MESSAGE, 4)
            if not fds:
                break
            os.close(fds[0])
            said += 1
            service.settimeout(None if said < n else 0)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BlockingIOError:
        came = 1
    say('all' if came else 'few' if said < n // 2 else said)


def scribbles_often(path, _, n):
    """Claims in the rings of @n connections, one after another, that it has written more than a
    ring can have."""
    as_user(OTHERS)
    service, (options, *_) = greeted(path)
    for _ in range(n):
        sock, peer = agreed_pair(options, '127.0.0.1')
        status, came = ask_service(service, SOCK_OPEN, [sock.fileno()])
        assert status == 0 and len(came) == 3
        end, rings = socket.socket(fileno=came[0]), came[2]
        with mmap.mmap(rings, 0) as memory: # the positions are in its middle
            struct.pack_into('<Q', memory, (len(memory) - PAGE) // 2 + PAGE // 2, 1 << 40)
        end.setblocking(True)
        try:
            end.send(b'!') # makes the service check
            assert end.recv(1) == b''
        except ConnectionError: # the service has ended it
            pass
        for one in sock, peer, end:
            one.close()
        for fd in came[1:]:
            os.close(fd)
    say('done')


if __name__ == '__main__':
    start(globals(), prompted=True)
