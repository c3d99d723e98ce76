#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py that pass connections in a message."""
import errno
import os
import socket

from prog_common import listener, say, start
from prog_memory import PAGE

HANDS_TAKES, HANDS_DIES, HANDS_DROPS, HANDS_STRANGER = range(4)


def answer_all(sock, name):
    while sock.recv(1):
        sock.sendall(name)
    sock.close()


def server_hands(address, port, how):
    """Passes a connection on and closes it; the receiver takes it when another connection has been
    used.  @how: the receiver is a child, a child that ends at once, no process, or a process that
    does not know of SMC-R."""
    here = listener(address, port)
    ours, theirs = socket.socketpair()
    soon, go = os.pipe()
    child = os.fork()
    if child == 0:
        here.close()
        ours.close()
        assert os.read(soon, 1) == b'!'
        fd = socket.recv_fds(theirs, 1, 1)[1][0] if how != HANDS_DROPS else -1
        if how == HANDS_TAKES:
            answer_all(socket.socket(fileno=fd), b'1')
        elif how == HANDS_STRANGER:
            plain = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}
            os.set_inheritable(fd, True)
            os.execve('/bin/sh', ['sh', '-c', f'echo {"z" * PAGE} >&{fd}'], plain)
        os._exit(0)
    conn, _ = here.accept()
    assert conn.recv(1) == b'a'
    conn.sendall(b'1')
    theirs.close()
    socket.send_fds(ours, [b'x'], [conn.fileno()])
    conn.close()
    second, _ = here.accept() # its memory differs from the first connection's
    assert second.recv(1) == b'b'
    second.sendall(b'2')
    os.write(go, b'!')
    answer_all(second, b'2')
    os.waitpid(child, 0)
    say('done')


def client_handed(address, port, how):
    first = socket.create_connection((address, port))
    first.sendall(b'a')
    said = first.recv(1)
    second = socket.create_connection((address, port))
    second.sendall(b'b')
    said += second.recv(1)
    try:
        for _ in range(3):
            if how == HANDS_TAKES:
                first.sendall(b'a')
            said += first.recv(1) or b'.'
    except OSError as e:
        said += errno.errorcode[e.errno].encode()
    second.sendall(b'b')
    said += second.recv(1)
    say('said', said.decode())


if __name__ == '__main__':
    start(globals(), prompted=True)
