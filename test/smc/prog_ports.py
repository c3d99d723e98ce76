# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The TCP programs of ports.py, whose connections survive ports: prog_ports.py WHAT ADDRESS PORT
[NUMBER]"""
import random
import signal
import socket
import threading

from prog_common import CHUNK, listener, say, start


def server_back(address, port, _):
    sock, _ = listener(address, port).accept()
    while piece := sock.recv(CHUNK):
        sock.sendall(piece)


def client_streams(address, port, _):
    """Sends without a pause until it gets a signal, and checks each byte that comes back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    sock = socket.create_connection((address, port))

    def chunks():
        rng = random.Random(4711)
        while True:
            yield rng.randbytes(CHUNK)

    def send():
        for chunk in chunks():
            if signal.sigtimedwait([signal.SIGUSR1], 0):
                break
            sock.sendall(chunk)
        sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    say('connected')
    back, same = 0, True
    for chunk in chunks():
        piece = sock.recv(CHUNK, socket.MSG_WAITALL)
        same = same and chunk.startswith(piece)
        back += len(piece)
        if len(piece) < CHUNK:
            break
    thread.join()
    say('same' if same and back % CHUNK == 0 and back else f'different {back}')


def server_back_each(address, port, n):
    """The same for @n connections, each with few bytes."""
    here, conns = listener(address, port), []
    for _ in range(n):
        conns.append(here.accept()[0])
        conns[-1].sendall(conns[-1].recv(1))
    for conn in conns:
        conn.sendall(conn.recv(1))


def client_keeps(address, port, n):
    """Makes @n connections that are idle until a signal, and then uses each once more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    socks = []
    for _ in range(n):
        socks.append(socket.create_connection((address, port)))
        socks[-1].sendall(b'a')
        assert socks[-1].recv(1) == b'a'
    say('connected')
    signal.sigwait([signal.SIGUSR1])
    for sock in socks:
        sock.sendall(b'b')
        assert sock.recv(1) == b'b'
    say('same')


if __name__ == '__main__':
    start(globals())
