#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The TCP programs of kept.py.  prog_kept.py WHAT ADDRESS PORT N

A program continues when it gets SIGUSR1.
"""
import os
import signal
import socket
import struct
import threading

from prog_common import CHUNK, OTHERS, as_user, listener, receive, say, start

TELLS = 16  # connections, to report 1,000 pages
SECRET = b'of the program that was here before ' * 20


def echo_back(sock):
    while True:
        piece = sock.recv(CHUNK)
        if not piece:
            break
        sock.sendall(piece)
    sock.close()


def server_keeps(address, port, _):
    """Serves any number of connections, also simultaneous ones."""
    sock = listener(address, port)
    while True:
        try:
            conn, _ = sock.accept()
        except OSError:
            continue
        threading.Thread(target=quietly, args=(conn,), daemon=True).start()


def server_of_others(address, port, n):
    as_user(OTHERS)
    server_keeps(address, port, n)


def quietly(conn):
    try:
        echo_back(conn)
    except OSError:
        conn.close()


def go_on():
    signal.sigwait({signal.SIGUSR1})


def sees_secret():
    """Whether the secret is in memory that the service has given to this process."""
    found = False
    with open('/proc/self/maps', encoding='ascii') as maps, open('/proc/self/mem', 'rb') as mem:
        for line in maps:
            if 'memfd:karst-smc' not in line:
                continue
            first, last = (int(x, 16) for x in line.split()[0].split('-'))
            mem.seek(first)
            found |= SECRET in mem.read(last - first)
    return 'found' if found else 'nothing'


def talk(address, port, data):
    """@return a connection over which @data was echoed"""
    sock = socket.create_connection((address, port))
    sock.sendall(data)
    back = b''
    while len(back) < len(data):
        back += sock.recv(CHUNK)
    if back != data:
        say('something else came')
    return sock


def client_keeps(address, port, n):
    """Makes @n connections, one after the other."""
    for _ in range(n):
        sock = talk(address, port, SECRET)
        sock.shutdown(socket.SHUT_WR)
        rest = receive(sock)
        sock.close()
        say('ended' if rest == (b'', 'end') else rest, sees_secret())
        go_on()


def client_looks(address, port, _):
    sock = talk(address, port, b'other bytes')
    say(sees_secret())
    go_on()
    sock.close()


def client_resets(address, port, _):
    sock = talk(address, port, SECRET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    sock.close()
    say('reset')
    go_on()


def client_dies(address, port, _):
    talk(address, port, SECRET)
    os.kill(os.getpid(), signal.SIGKILL)


def client_forks(address, port, _):
    """A child has what its parent had mapped; the parent's next connection gets other memory."""
    sock = talk(address, port, SECRET)
    child = os.fork()
    if child == 0:
        go_on()
        os._exit(0)
    sock.shutdown(socket.SHUT_WR)
    receive(sock)
    sock.close()
    os.kill(child, signal.SIGUSR1)
    os.waitpid(child, 0)
    say('ended')
    go_on()
    client_looks(address, port, 0)


def client_many(address, port, n):
    """Makes @n simultaneous connections."""
    socks = [talk(address, port, SECRET) for _ in range(n)]
    say('opened')
    go_on()
    for sock in socks:
        sock.close()
    say('closed')
    go_on()


def client_tells(address, port, n):
    """Makes @n simultaneous connections; the next requests tell the service what is not used any
    more."""
    for sock in [talk(address, port, SECRET) for _ in range(n)]:
        sock.close()
    for _ in range(TELLS):
        talk(address, port, SECRET).close()
    say('closed')
    go_on()


def client_of_others(address, port, n):
    as_user(OTHERS)
    client_tells(address, port, n)


if __name__ == '__main__':
    start(globals(), prompted=True)
