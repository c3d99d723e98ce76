# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A client whose connections become longer: prog_short.py client_grows ADDRESS PORT N; the server echoes."""
import socket
import sys

LONG = 8192  # bytes each way are 16 KiB, from which on a connection is not short
GROWN = 32


def exchange(address, port, n):
    with socket.create_connection((address, port)) as sock:
        sock.sendall(b'x' * n)
        while n > 0:
            n -= len(sock.recv(n)) or n


def client_grows(address, port, n):
    """@n short ones, and GROWN long ones behind them."""
    for _ in range(n):
        exchange(address, port, 1)
    for _ in range(GROWN):
        exchange(address, port, LONG)
    print('done')


if __name__ == '__main__':
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
