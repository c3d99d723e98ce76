#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Urgent data: prog_urgent.py receives|sends ADDRESS PORT BYTES.  Neither knows of SMC-R; the
output of the receiver must be the same over TCP.

Each step of STEPS is what one program sends and what the other one then sees, which answers with a
byte when the step is over.
"""
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from prog import digest, pattern  # noqa: E402
from prog_common import SYS_POLL, SYS_PPOLL, SYS_RECVFROM, SYS_RECVMSG, in_call, listener  # noqa: E402
from prog_common import receive, say, start  # noqa: E402

URGENT = socket.MSG_OOB
STEPS = []


def step(*sent):
    """In @sent, a tuple is urgent, None waits for a byte first, and a number is a pause of so many
    seconds."""
    def add(function):
        STEPS.append((sent, function))
        return function
    return add


def number(sock, request):
    return struct.unpack('i', fcntl.ioctl(sock, request, bytes(4)))[0]


def mark(sock):
    return number(sock, 0x8905) # SIOCATMARK


def there(sock):
    return number(sock, termios.FIONREAD)


def got(sock, flags=0, n=100):
    try:
        return sock.recv(n, flags)
    except OSError as e:
        return errno.errorcode[e.errno]


def now(sock):
    return got(sock, socket.MSG_DONTWAIT)


def polled(sock, wait, events=select.POLLIN | select.POLLPRI):
    poll = select.poll()
    poll.register(sock, events)
    return [what for _, what in poll.poll(None if wait else 0)]


def urgent(sock):
    """Waits for urgent data."""
    return polled(sock, True, select.POLLPRI)


@step(b'abc', (b'd',))
def out_of_line(sock):
    yield urgent(sock)
    yield mark(sock), there(sock), polled(sock, False)
    yield got(sock), mark(sock), there(sock), polled(sock, False)
    yield got(sock, URGENT), got(sock, URGENT), mark(sock), polled(sock, False)
    yield now(sock), mark(sock)


@step((b'xyz',))
def the_last_byte_of_a_message(sock):
    yield urgent(sock)
    yield got(sock, URGENT | socket.MSG_PEEK), got(sock, URGENT), polled(sock, False)
    yield got(sock), mark(sock), now(sock), mark(sock)


@step((b'1',), b'23')
def read_over(sock):
    yield urgent(sock)
    yield got(sock, socket.MSG_WAITALL, 2), got(sock, URGENT), polled(sock, False)


@step(b'abc', (b'd',), None, b'ef')
def waitall_ends_at_the_mark(sock):
    yield urgent(sock)
    yield got(sock, socket.MSG_WAITALL, 10), mark(sock)
    yield sock.recvmsg(10, 0, URGENT)[::2]
    sock.send(b'k')
    yield got(sock, socket.MSG_WAITALL, 2), mark(sock)


@step((b'uvw',))
def two_parts_and_none_left(sock):
    yield urgent(sock)
    yield got(sock, 0, 1), mark(sock), there(sock), got(sock, 0, 1), mark(sock), now(sock), mark(sock)
    yield got(sock, URGENT), polled(sock, False)


@step((b'e',))
def select_tells_it_apart(sock):
    sets = select.select([], [], [sock])
    yield [len(s) for s in sets], [len(s) for s in select.select([sock], [], [sock])]
    yield got(sock, URGENT), [len(s) for s in select.select([sock], [], [sock], 0)]


@step((b'p',))
def epoll_tells(sock):
    with select.epoll() as poll:
        poll.register(sock, select.EPOLLPRI)
        yield [events for _, events in poll.poll()]
        yield got(sock.dup(), URGENT), poll.poll(0)
        yield now(sock)


@step((b'x',), None, b'yz')
def one_who_does_not_care(sock):
    """epoll may report a byte that cannot be read; in the end all is read."""
    with select.epoll() as poll:
        poll.register(sock, select.EPOLLIN)
        sock.send(b'k')
        data = b''
        while len(data) < 2:
            poll.poll()
            piece = now(sock)
            data += piece if isinstance(piece, bytes) else b''
        yield data, poll.poll(0), got(sock, URGENT)


@step((b'q',), None, b'after')
def a_signal(sock):
    """The handler gets the byte before the waiting call continues."""
    came = []

    def handler(*_):
        came.append(got(sock, URGENT))
        sock.send(b'k')
    # blocked, so that it is known whether the byte came before the signal had an owner; and handled
    # before the call: Python runs handlers between two calls, and a call that began meanwhile would
    # pass the mark
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
    signal.signal(signal.SIGURG, handler)
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())
    urgent(sock)
    if signal.SIGURG not in signal.sigpending():
        handler()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGURG])
    yield got(sock, socket.MSG_WAITALL, 5), came
    signal.signal(signal.SIGURG, signal.SIG_DFL)


@step(None, (b'r',), None, b'more')
def a_signal_in_a_call_that_waits(sock):
    """The owner is set when the call waits, by another thread, which does not get the signal."""
    came, waits = [], threading.get_native_id()

    def handler(*_):
        came.append(got(sock, URGENT))
        sock.send(b'k')

    def asks():
        in_call(waits, [SYS_POLL, SYS_RECVFROM, SYS_RECVMSG, SYS_PPOLL])
        sock.send(b'k')
    signal.signal(signal.SIGURG, handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
    asker = threading.Thread(target=asks)
    asker.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGURG])
    yield got(sock, socket.MSG_WAITALL, 4), came
    asker.join()
    signal.signal(signal.SIGURG, signal.SIG_DFL)


@step((b'hijk',))
def in_line(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    yield sock.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE), urgent(sock), there(sock)
    yield got(sock), mark(sock), got(sock, URGENT), polled(sock, False)
    yield got(sock), mark(sock), polled(sock, False)


@step((b'l',), b'mn')
def in_line_with_what_follows(sock):
    yield urgent(sock), mark(sock)
    yield got(sock, socket.MSG_WAITALL, 3), mark(sock), polled(sock, False)


@step(*(pattern(70000), 0.005, (b'u',)) * 20)
def now_and_then(sock):
    """Reads data, which the service is notified of, and then urgent data, which it must be notified
    of."""
    data = b''
    while len(data) < 20 * 70001:
        data += sock.recv(65536)
    yield len(data), digest(data)


def all_in_line(sock):
    data, how = receive(sock)
    yield len(data), digest(data), how


def receives(address, port, _):
    sock, _ = listener(address, port).accept()
    for _, see in STEPS:
        for seen in see(sock):
            say(see.__name__, *seen if isinstance(seen, tuple) else [seen])
        sock.send(b'k')
    for seen in all_in_line(sock):
        say(*seen)


def sends(address, port, n):
    """Sends the steps, and at last more bytes than there is room for, all of them urgent: they
    arrive, marked or not."""
    sock = socket.create_connection((address, port))
    for sent, _ in STEPS:
        for what in sent:
            if what is None:
                assert sock.recv(1) == b'k'
            elif isinstance(what, tuple):
                sock.sendall(what[0], URGENT)
            elif isinstance(what, float):
                time.sleep(what)
            else:
                sock.sendall(what)
        assert sock.recv(1) == b'k'
    sock.sendall(pattern(n), URGENT)
    say('sent', digest(pattern(n)))


if __name__ == '__main__':
    start(globals())
