#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Users with a file system of their own, which does not answer when a file is closed, and their
attacks on the SMC service; and a user who does not attack: prog_stuck.py WHAT PATH PORT
[NUMBER]."""
import ctypes
import os
import select
import signal
import struct
import tempfile

from prog_common import OTHERS, as_user, say, start
from prog_memory import PR_SET_PDEATHSIG
from prog_service import MESSAGE, MOST_RIGHTS, SOCK_ABI, SOCK_OPEN
from prog_service import ask_service, greeted_alone, rights, service_at

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
FORGET, GETATTR, OPEN, FLUSH, INIT = 2, 3, 14, 25, 26 # requests of FUSE
ENOSYS = 38
REGULAR = 0o100666
MESSAGES = 3 # messages of each user, with MOST_RIGHTS descriptors each


def mount():
    """Makes a file of a file system that this process serves.  @return the FUSE descriptor, the
    file's path"""
    libc = ctypes.CDLL(None, use_errno=True)
    where = tempfile.mkstemp()[1]
    assert libc.unshare(CLONE_NEWNS) == 0
    assert libc.mount(b'none', b'/', None, MS_REC | MS_PRIVATE, None) == 0
    fuse = os.open('/dev/fuse', os.O_RDWR)
    how = f'fd={fuse},rootmode={REGULAR:o},user_id=0,group_id=0,allow_other'
    assert libc.mount(b'fuse', where.encode(), b'fuse', 0, how.encode()) == 0, ctypes.get_errno()
    return fuse, where


def answer(fuse):
    """Answers one request, but none of those that close a file."""
    request = os.read(fuse, 1 << 17)
    _, what, unique = struct.unpack_from('<IIQ', request)
    if what in (FORGET, FLUSH):
        return
    data = {INIT: struct.pack('<4I2H2I2HI28x', 7, 31, 0, 0, 8, 8, 4096, 1, 1, 0, 0),
            GETATTR: struct.pack('<QII6Q3I7I', 1000, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, REGULAR, 1, 0, 0, 0,
                                 4096, 0),
            OPEN: struct.pack('<QII', 1, 0, 0)}.get(what)
    error = -ENOSYS if data is None else 0
    data = data or b''
    os.write(fuse, struct.pack('<IiQ', 16 + len(data), error, unique) + data)


def give(path, file, user):
    """Sends the file to the service, as often as the service accepts it."""
    as_user(user)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    stuck = os.open(file, os.O_RDONLY)
    kept = []
    for _ in range(MESSAGES):
        kept.append(greeted_alone(path))
    for service in kept:
        message = struct.pack('<3I', SOCK_ABI, SOCK_OPEN, 0)
        service.sendmsg([message + bytes(MESSAGE - len(message))], rights([stuck] * MOST_RIGHTS))
    return kept


def sticks(path, _, n):
    """Does so as @n users."""
    fuse, file = mount()
    given, tell = os.pipe()
    for i in range(n):
        if os.fork() == 0:
            os.close(fuse) # the file system ends with its server
            kept = give(path, file, OTHERS - i)
            os.write(tell, b'!')
            signal.pause()
            kept.clear()
    while n > 0:
        for fd in select.select([fuse, given], [], [])[0]:
            if fd == fuse:
                answer(fuse)
            else:
                n -= len(os.read(given, n))
    say('given')
    while True:
        answer(fuse)


def knocks(path, _, n):
    """Connects as the first of these users, who may not have so many connections."""
    as_user(OTHERS)
    kept = []
    for _ in range(n):
        kept.append(service_at(path))
        if len(kept) > n // 10:
            kept.pop().close()
    say('knocked')
    signal.pause()


def closes(path, _, user):
    """Sends the service descriptors that it does not accept, and prints whether the service has
    closed them."""
    as_user(user)
    service = greeted_alone(path)
    here, there = os.pipe()
    ask_service(service, SOCK_OPEN, [there, there])
    os.close(there)
    say('closed' if os.read(here, 1) == b'' else 'not closed')


if __name__ == '__main__':
    start(globals())
