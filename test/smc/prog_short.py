# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Clients of echo servers:

    prog_short.py client_grows ADDRESS PORT N       its connections become longer
    prog_short.py client_changes ADDRESS PORT OTHER it changes to a server at port OTHER
"""
import socket

from prog_common import start

LONG = 8192  # bytes in each direction, 16 KiB in total, which makes a connection long
GROWN = 32
SEEN, UNSEEN = 40, 4  # connections to the first server and to the other one


def exchange(address, port, n):
    with socket.create_connection((address, port)) as sock:
        sock.sendall(b'x' * n)
        while n > 0:
            n -= len(sock.recv(n)) or n


def client_grows(address, port, n):
    """Makes @n short connections, and then GROWN long ones."""
    for _ in range(n):
        exchange(address, port, 1)
    for _ in range(GROWN):
        exchange(address, port, LONG)
    print('done')


def client_changes(address, port, other):
    for _ in range(SEEN):
        exchange(address, port, 1)
    for _ in range(UNSEEN):
        exchange(address, other, 1)
    print('done')


if __name__ == '__main__':
    start(globals())
