#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack.py that change positions in the rings, or the files in which these are."""
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import threading
import time

from prog_common import CHUNK, SYS_POLL, SYS_WRITE, in_call, receive, say, start, start
from prog_memory import BLOCKED, LINE, PIECE, RX_TAIL, Memory, accepted, connected, fill, lines, smc_maps

MADV_REMOVE, F_ADD_SEALS, F_SEAL_FUTURE_WRITE = 9, 1033, 16


def server_reads_on(address, port, _):
    sock = accepted(address, port)
    count = len(sock.recv(PIECE, socket.MSG_WAITALL))
    sock.sendall(b'z')
    data, how = receive(sock)
    say('got', count + len(data), how)


def client_repeats(address, port, _):
    """Claims that bytes which the other program has read are still to be read."""
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))
    assert sock.recv(1) == b'z'
    memory, ours, _ = lines(1 + PIECE, 2)
    memory.write(ours + LINE, 1 + PIECE // 2)
    sock.sendall(b'z')


def server_writes_on(address, port, _):
    sock = accepted(address, port)
    for _ in range(2): # before the second it sees that the first has been read
        sock.sendall(bytes(PIECE))
        assert sock.recv(1) == b'z'
    try:
        sock.sendall(b'z')
        say('sent')
    except OSError as e:
        say('ended', type(e).__name__)


def client_takes_back(address, port, _):
    """Claims that it has not read what it has read."""
    sock = connected(address, port)
    assert len(sock.recv(PIECE, socket.MSG_WAITALL)) == PIECE
    sock.sendall(b'z')
    assert len(sock.recv(PIECE, socket.MSG_WAITALL)) == PIECE
    memory, _, theirs = lines(2, 1 + 2 * PIECE)
    memory.write(theirs + LINE, PIECE)
    sock.sendall(b'z')
    signal.pause()


def server_fills(address, port, _):
    sock = accepted(address, port)
    fill(sock)
    say('full')
    try:
        while True:
            select.select([], [sock], [])
            sock.send(b'z')
    except OSError as e:
        say('ended', type(e).__name__)


def client_takes_all(address, port, _):
    """Claims that it has read all, but does not notify the writer, which waits for that."""
    sock = connected(address, port)
    signal.sigwait([signal.SIGUSR1])
    memory, page = Memory(True), Memory(False)
    heads = [memory.read(0), memory.read(2 * LINE)]
    theirs = 2 * LINE * heads.index(max(heads))
    memory.write(theirs + LINE, max(heads))
    page.write(RX_TAIL, max(heads))
    memory.write(theirs + BLOCKED, 0, '<I')
    sock.close()
    say('closed')
    signal.pause()


def server_splices(address, port, _):
    """Splices into a full pipe, so that it has to wait between the check and the read."""
    sock = accepted(address, port)
    libc = ctypes.CDLL(None, use_errno=True)
    out, into = os.pipe()
    full = os.write(into, bytes(65536))
    said = []

    def splice():
        said.append(threading.get_native_id())
        got = libc.splice(sock.fileno(), None, into, None, ctypes.c_size_t(PIECE), 0)
        os.close(into)
        said.append(got)
    thread = threading.Thread(target=splice)
    thread.start()
    while not said:
        time.sleep(0.001)
    in_call(said[0], [SYS_WRITE, SYS_POLL])
    say('waits')
    signal.sigwait([signal.SIGUSR1])
    count = 0
    while piece := os.read(out, CHUNK):
        count += len(piece)
    thread.join()
    data, how = receive(sock)
    say('spliced', said[1], count - full, len(data), how)


def client_shortens(address, port, _):
    """Takes back what it has sent, when it gets a signal."""
    sock = connected(address, port)
    sock.sendall(bytes(PIECE))
    say('sent')
    signal.sigwait([signal.SIGUSR1])
    memory, ours, _ = lines(1 + PIECE, 1)
    memory.write(ours, 1 + PIECE // 2)
    say('shortened')
    signal.pause()


def client_takes_away(address, port, _):
    """Tries to make the files of its connection shorter, longer, or read-only for all; and removes
    all pages from them."""
    sock = connected(address, port)
    libc = ctypes.CDLL(None, use_errno=True)
    errors, removed = set(), 0
    for start, end in smc_maps():
        fd = os.open(f'/proc/self/map_files/{start:x}-{end:x}', os.O_RDWR)
        for change in (lambda fd: os.ftruncate(fd, 0), lambda fd: os.ftruncate(fd, 1 << 24),
                       lambda fd: fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)):
            try:
                change(fd)
                errors.add('done')
            except OSError as e:
                errors.add(errno.errorcode[e.errno])
        removed += libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_REMOVE) == 0
    say(*sorted(errors), 'removed' if removed > 1 else 'kept')
    try:
        sock.sendall(bytes(PIECE))
    except OSError:
        pass # the service may have noticed
    signal.pause()


if __name__ == '__main__':
    start(globals(), prompted=True)
