#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack.py that use the far end of the other program's pair, or set marks of urgent
bytes."""
import select
import signal
import socket

from prog_common import listener, receive, say, start
from prog_memory import KEPT, LINE, PIECE, accepted, connected, far_ends, lines, told_by_kernel
from prog_urgent import URGENT, got, mark

MARK = 16 # offset in a direction: position after the last urgent byte

# --- urgent data ---

def server_urgent(address, port, _):
    sock = accepted(address, port)
    seen = []
    for most in 3, 3, 3, 4:
        sock.sendall(b'k')
        seen += [sock.recv(most, socket.MSG_WAITALL), got(sock, URGENT), mark(sock)]
    sock.sendall(b'k')
    seen.append(sock.recv(4, socket.MSG_WAITALL))
    say(*[s.decode() if isinstance(s, bytes) else s for s in seen])


def client_marks(address, port, _):
    """Sets marks beyond the written bytes, where all has been read, where there is a byte, and
    there again."""
    sock = connected(address, port)
    assert sock.recv(1) == b'k'
    memory, ours, _ = lines(1, 2)
    memory.fill(ours // (2 * LINE), 7, b'ghi') # the bytes before a mark exist
    for marked, data in (1 << 63, b'abc'), (2, b'def'), (9, b'ghi'), (9, b'jkl'):
        memory.write(ours + MARK, marked)
        sock.sendall(data)
        assert sock.recv(1) == b'k'
    sock.sendall(b'end.')
    signal.pause()


# --- the far end of the other program's pair ---

def server_receives(address, port, _):
    sock = accepted(address, port)
    data, how = receive(sock)
    try:
        sock.send(b'x')
        sent = 'sent'
    except OSError as e:
        sent = type(e).__name__
    say('got', len(data), how, sent)


def client_sends(address, port, _):
    sock = connected(address, port)
    say('connected')
    signal.sigwait([signal.SIGUSR1])
    sock.sendall(bytes(PIECE))


def client_shuts(address, port, how):
    """Acts as if the program at the other side had closed."""
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))
    far_ends()[0].shutdown(how)
    signal.pause()


def server_quiet(address, port, _):
    """Waits until select() no longer reports bytes that do not exist."""
    sock = accepted(address, port)
    sock.setblocking(False)
    select.select([sock], [], [], 0)
    say('accepted')
    told_by_kernel(sock)
    rounds = 0
    while rounds < 100 and select.select([sock], [], [], 0)[0]:
        rounds += 1
        try:
            sock.recv(1)
        except BlockingIOError:
            pass
    say('quiet' if rounds < 100 else 'restless')


def client_urgent(address, port, _):
    sock = connected(address, port)
    signal.sigwait([signal.SIGUSR1]) # the other program waits for this one
    far_ends()[0].send(b'!', socket.MSG_OOB)
    signal.pause()


def server_leaves(address, port, _):
    sock = listener(address, port)
    for _ in range(KEPT):
        conn, _ = sock.accept()
        assert conn.recv(1) == b'x'
        conn.sendall(b'y')
        assert conn.recv(1) == b'x'
        conn.close()


def client_keeps(address, port, _):
    """Uses far ends of pairs that are closed."""
    kept = []
    for _ in range(KEPT):
        kept.append(connected(address, port))
        kept[-1].sendall(b'x')
        assert kept[-1].recv(1) == b''
    say('keeps')
    signal.sigwait([signal.SIGUSR1])
    for waker in far_ends():
        waker.shutdown(socket.SHUT_RDWR)
    say('shut')
    signal.pause()


if __name__ == '__main__':
    start(globals(), prompted=True)
