#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The programs of attack_service.py that hold a lock of the kernel as long as they like, or change how the
kernel treats urgent bytes."""
import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import threading
import time

from prog_common import (OTHERS, SYS_RECVFROM, SYS_SENDTO, SYS_SETSOCKOPT, SYS_USERFAULTFD, as_user,
                         in_call, say, start)
from prog_memory import KERNEL, PAGE, accepted, connected, far_ends, fill
from prog_service import PR_SET_DUMPABLE

UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xc018aa3f, 0xc020aa00, 0xc020aa04
SHORT_S = 0.03 # the service waits 0.1 s for a lock
BRIEF_S = 0.01 # and checks it first after 0.02 s


def page_of_faults():
    """@return a page whose fault is resolved only through its descriptor"""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    fault = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
    at = libc.mmap(None, ctypes.c_size_t(PAGE), mmap.PROT_READ | mmap.PROT_WRITE,
                   mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
    fcntl.ioctl(fault, UFFDIO_API, struct.pack('3Q', 0xaa, 0, 0))
    fcntl.ioctl(fault, UFFDIO_REGISTER, struct.pack('4Q', at, PAGE, 1, 0))
    return fault, at


def never():
    """@return a page whose fault is never resolved: a thread that touches it waits for good"""
    return page_of_faults()[1]


def holds(call, fd, at):
    """Starts a thread that stays in @call, with bytes at @at.
    @return False: the call has returned, because the connection has ended"""
    libc, thread = KERNEL, []

    def enter():
        thread.append(threading.get_native_id())
        libc.syscall(call, fd, ctypes.c_void_p(at), PAGE, socket.MSG_DONTWAIT, None, None)
    libc.prctl(PR_SET_DUMPABLE, 1) # as another user it could not look otherwise
    threading.Thread(target=enter, daemon=True).start()
    while not thread:
        time.sleep(0.001)
    try:
        in_call(thread[0], [call])
    except (FileNotFoundError, ProcessLookupError): # the thread is gone
        return False
    return True


def holds_briefly(address, port, n):
    """The same, for less time than until the service checks whether the lock is held."""
    holds_often(address, port, n, BRIEF_S)


def holds_often(address, port, n, hold_s=SHORT_S):
    """Holds that lock @n times, each for less time than the service waits."""
    libc = ctypes.CDLL(None)
    fault, at = page_of_faults()
    said, soon = os.pipe()
    if os.fork() == 0: # a child, because no thread would run while an option is set
        os.close(soon)
        while os.read(said, 1):
            time.sleep(hold_s)
            fcntl.ioctl(fault, UFFDIO_ZEROPAGE, struct.pack('4Q', at, PAGE, 0, 0))
        os._exit(0)
    as_user(OTHERS)
    server = socket.socket()
    server.bind((address, port))
    server.listen(1)
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    for _ in range(n):
        if not holds(SYS_SENDTO, kept.fileno(), at):
            break # the service ended the connection
        os.write(soon, b'!')
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) # as the service does
        except OSError:
            break
        while threading.active_count() > 1:
            time.sleep(0.001)
        libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), mmap.MADV_DONTNEED)
    say('done')


def client_holds(address, port, _):
    """Holds the lock of its TCP socket, through a descriptor that it has kept."""
    at = never()
    as_user(OTHERS)
    sock = socket.socket()
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    sock.connect((address, port))
    assert holds(SYS_SENDTO, kept.fileno(), at)
    say('holds')
    signal.pause()


def server_full(address, port, user):
    """Has more to send than there is room for, and waits for room.  Runs as @user if given."""
    if user:
        as_user(user)
    sock = accepted(address, port)
    fill(sock)
    waits = select.poll()
    waits.register(sock, select.POLLOUT)
    assert not waits.poll(0)
    say('full')
    waits.poll()
    say('woken')


def client_holds_far(address, port, _):
    """Holds the reader's lock of the other program's pair, of which this program has the far end;
    and ends."""
    at = never()
    as_user(OTHERS)
    sock = connected(address, port)
    say('connected')
    signal.sigwait([signal.SIGUSR1]) # bytes can be read now
    far, = far_ends()
    assert holds(SYS_RECVFROM, far.fileno(), at)
    sock.close()
    say('holds')
    signal.pause()


def server_marks(address, port, _):
    """Sends an urgent byte when it gets a signal, and other bytes after it."""
    sock = accepted(address, port)
    signal.sigwait([signal.SIGUSR1])
    sock.send(b'!', socket.MSG_OOB)
    sock.sendall(b'abc')
    signal.pause()


def rings_on(fd):
    """Starts a child that now and then sends a byte to the service by a pair, until that ends."""
    if os.fork() == 0:
        while KERNEL.syscall(SYS_SENDTO, fd, b'r', 1, socket.MSG_NOSIGNAL, None, 0) == 1:
            time.sleep(SHORT_S)
        os._exit(0)


def client_marks(address, port, rings):
    """Makes the kernel take urgent bytes out of what is relayed, through a descriptor that it has
    kept.  With @rings, bytes come by its pair; with 2, it waits by poll(), and then
    says what SO_ERROR is, twice, and whether poll() still reports an error."""
    as_user(OTHERS)
    sock = socket.socket()
    kept = os.dup(sock.fileno())
    sock.connect((address, port))
    sock.sendall(b'x')
    assert sock.recv(1) == b'y'
    off = ctypes.byref(ctypes.c_int(0))
    assert KERNEL.syscall(SYS_SETSOCKOPT, kept, socket.SOL_SOCKET, socket.SO_OOBINLINE, off, 4) == 0
    KERNEL.prctl(PR_SET_DUMPABLE, 1) # it is looked which call it is in
    if rings:
        rings_on(sock.fileno())
    say('marks')
    if rings == 2:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.poll()
        errors = [sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for _ in range(2)]
        say(errno.errorcode.get(errors[0]), errors[1], poll.poll()[0][1] & select.POLLERR)
        return
    try:
        say('got', sock.recv(PAGE).decode())
    except OSError as e:
        say(errno.errorcode[e.errno])


if __name__ == '__main__':
    start(globals(), prompted=True)
