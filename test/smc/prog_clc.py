#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py that play a peer in CLC: one that cannot be reached, that ends, or that
declines."""
import errno
import mmap
import os
import signal
import socket
import struct

from prog_common import OTHERS, as_user, listener, say, start
from prog_memory import PAGE
from prog_service import SOCK_OPEN, agreed_pair, ask_service, greeted

SOCK_SERVER = 1 # a flag of KARST_SOCK_OPEN
NEAR_NET = '10.94.0.'
NEAR = NEAR_NET + '1'
CLC_MARK = b'\xe2\xd4\xc3\xd9'
CLC_ACCEPT, CLC_FIRST, CLC_FIRST_BYTES = 2, 104, 52


def accept_from(gid, proposal):
    """@return the Accept of a first contact, version 2, for @proposal, from a peer whose address is
    @gid"""
    at = 52 + struct.unpack_from('!H', proposal, 50)[0]
    release, conns, links = proposal[at + 3] >> 4, proposal[at + 24], proposal[at + 25]
    who = b'\1\2' + b'\2\0\0\0\0\1' + gid + b'\2\0\0\0\0\1'
    body = who + struct.pack('!3sIBIBxQx3s', b'\0\0\x11', 1, 1, 1, 0x41, 0, b'\0\0\1')
    body += proposal[at + 40:at + 72] + bytes(8) # its EID
    body += struct.pack('!BB34xBB', 0, release, conns, links)
    body = body.ljust(CLC_FIRST + CLC_FIRST_BYTES - 8, b'\0')
    head = CLC_MARK + struct.pack('!BHB', CLC_ACCEPT, 8 + len(body) + 4, 2 << 4 | 8)
    return head + body + CLC_MARK


def name_nobody(path, address, nobody):
    """Is both ends of a connection, and as its server claims to have the address @nobody."""
    service, (options, *_) = greeted(path)
    gid = bytes(10) + b'\xff\xff' + socket.inet_aton(nobody)
    while True:
        sock, peer = agreed_pair(options, address)
        status, came = ask_service(service, SOCK_OPEN, [sock.fileno()])
        assert status == 0
        sock.close()
        with peer:
            peer.sendall(accept_from(gid, peer.recv(PAGE)))
            os.write(1, b'named\n') # unbuffered: there are several processes
            peer.recv(PAGE) # a Decline is expected
        for fd in came:
            os.close(fd)


def names_nobody(path, _, n):
    """Runs @n of these at once, repeatedly, with addresses beside the daemon's that no system
    has."""
    as_user(OTHERS)
    for i in range(n):
        if os.fork() == 0:
            name_nobody(path, NEAR, f'{NEAR_NET}{100 + i}')
    signal.pause()


def open_agreed(path, address, flags=0, before=b''):
    """Makes a connection that the service has, and whose peer is played by this program.  @return
    (its peer's end, the program's end, its page).  When the service gets it, the peer has sent
    @before, and sends nothing more."""
    service, (options, *_) = greeted(path)
    sock, peer = agreed_pair(options, address)
    if before:
        peer.sendall(before)
        peer.shutdown(socket.SHUT_WR)
    status, came = ask_service(service, SOCK_OPEN, [sock.fileno()], flags)
    assert status == 0
    sock.close()
    end = socket.socket(fileno=came[0])
    end.setblocking(True)
    return peer, end, mmap.mmap(came[1], 0)


def ends_behind_proposal(path, _, __):
    """A client that sends its first CLC message, and ends.  Prints the error that the server's
    program gets."""
    peer, *_ = open_agreed(path, '127.0.0.1')
    proposal = peer.recv(PAGE)
    peer, end, page = open_agreed(path, '127.0.0.1', SOCK_SERVER, proposal)
    answer = peer.recv(PAGE)
    assert answer[:5] == CLC_MARK + bytes([CLC_ACCEPT]), answer
    assert end.recv(1) == b''
    say(errno.errorcode[struct.unpack_from('<i', page, 8)[0]]) # error in struct karst_sock_page


# --- peers that decline ---

def server_answers(address, port, n):
    sock = listener(address, port)
    for _ in range(n):
        conn, _ = sock.accept()
        assert conn.recv(1) == b'x'
        conn.sendall(b'y')
        conn.recv(1)
        conn.close()


def client_twice(address, port, user):
    as_user(user)
    for _ in range(2):
        sock = socket.socket()
        sock.connect((address, port))
        sock.sendall(b'x')
        assert sock.recv(1) == b'y'
        sock.close()
    say('twice')


if __name__ == '__main__':
    start(globals(), prompted=True)
