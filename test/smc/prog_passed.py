#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs of smc.py that pass a socket to another process, or to another program, or close it while a
thread accepts."""
import ctypes
import os
import socket
import struct
import threading
import time

from prog import echo_all
from prog_common import CHUNK, SYS_ACCEPT4, in_call, listener, say, start


def server_closed(address, port, _):
    """A thread that is in accept() when the socket is closed accepts one more connection."""
    sock, began = listener(address, port, quiet=True), []

    def accept():
        began.append(threading.get_native_id())
        echo_all(sock.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    while not began:
        time.sleep(0.001)
    in_call(began[0], [SYS_ACCEPT4])
    os.close(sock.fileno())
    say('ready')
    thread.join()
    sock.detach()


def passed(address, port):
    """@return our end of a pair by which another process, which ends, has sent a listening
    socket"""
    near, far = socket.socketpair()
    if os.fork() == 0:
        sock = listener(address, port, quiet=True)
        socket.send_fds(far, [b'x'], [sock.fileno()])
        os._exit(0)
    far.close()
    os.wait()
    return near


def server_passed(address, port, _):
    near = passed(address, port)
    _, fds, _, _ = socket.recv_fds(near, 1, 1)
    say('ready')
    echo_all(socket.socket(fileno=fds[0]).accept()[0])


def server_passed_many(address, port, _):
    """The same with recvmmsg()."""
    near = passed(address, port)
    byte, anc = ctypes.create_string_buffer(1), ctypes.create_string_buffer(64)
    iov = ctypes.create_string_buffer(struct.pack('PQ', ctypes.addressof(byte), 1))
    msg = ctypes.create_string_buffer(struct.pack('PI4xPQPQi4xI4x', 0, 0, ctypes.addressof(iov), 1,
                                                  ctypes.addressof(anc), 64, 0, 0))
    assert ctypes.CDLL(None).recvmmsg(near.fileno(), msg, 1, 0, None) == 1
    say('ready')
    echo_all(socket.socket(fileno=struct.unpack_from('i', anc, 16)[0]).accept()[0])


def server_exec(address, port, _):
    """As inetd: another program gets the connection as standard input and output."""
    sock, _ = listener(address, port).accept()
    if os.fork() == 0:
        os.dup2(sock.fileno(), 0)
        os.dup2(sock.fileno(), 1)
        os.execvp('cat', ['cat'])
    sock.close()
    os.wait()


def server_drops(address, port, _):
    """As in many servers: the process that listens is root; the one that serves is not, and is not
    permitted to connect to the service."""
    sock = listener(address, port)
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        conn, _ = sock.accept()
        while piece := conn.recv(CHUNK):
            conn.sendall(piece)
        os._exit(0)
    os.wait()


def server_rights(address, port, _):
    """A process accepts, and another one, which gets the connection in a message, serves."""
    sock = listener(address, port)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        sock.close()
        _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
        got = socket.socket(fileno=fds[0])
        while piece := got.recv(CHUNK):
            got.sendall(piece)
        os._exit(0)
    conn, _ = sock.accept()
    socket.send_fds(ours, [b'x'], [conn.fileno()])
    conn.close()
    os.wait()


if __name__ == '__main__':
    start(globals())
