#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TCP programs of smc.py that transfer bytes: prog.py WHAT ADDRESS PORT [BYTES].  None of them knows of SMC-R.

A server prints "ready" when it listens.  A receiver prints how many bytes came and their digest.
"""
import ctypes
import errno
import fcntl
import hashlib
import os
import random
import select
import signal
import socket
import struct
import termios
import threading
import time

from prog_common import (CHUNK, SYS_FUTEX, SYS_PSELECT, SYS_RECVMSG, SYS_SELECT, in_call, listener,
                         receive, say, start)


def pattern(n):
    return random.Random(4711).randbytes(n)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def server_echo(address, port, _):
    sock, peer = listener(address, port).accept()
    assert peer == sock.getpeername() and sock.getsockname()[1] == port
    data = b''
    while True:
        piece = sock.recv(CHUNK)
        if not piece:
            break
        data += piece
        sock.sendall(piece)
    say('got', len(data), digest(data))


def echo_all(sock):
    data = b''
    while piece := sock.recv(CHUNK):
        data += piece
        sock.sendall(piece)
    say('got', len(data), digest(data))


def client_echo(address, port, n):
    sock = socket.create_connection((address, port))
    data = pattern(n)

    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    back, how = receive(sock)
    thread.join()
    say('same' if back == data else 'different', len(back), how)


def server_greets(address, port, _):
    sock, _ = listener(address, port).accept()
    sock.sendall(b'hello')
    assert sock.recv(1) == b''


def server_sink(address, port, _):
    sock, _ = listener(address, port).accept()
    data, how = receive(sock)
    say('got', len(data), digest(data), how)


def server_selects(address, port, _):
    """As iperf3: select(), and then non-blocking reads; a listener for both address families."""
    both = socket.socket(socket.AF_INET6)
    both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    both.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    both.bind(('::', port))
    both.listen(8)
    say('ready')
    sock, _ = both.accept()
    assert sock.getpeername()[0] == '::ffff:' + address
    sock.setblocking(False)
    count, hashed = 0, hashlib.sha256()
    while True:
        select.select([sock], [], [])
        try:
            piece = sock.recv(2 * CHUNK)
        except BlockingIOError:
            continue
        if not piece:
            break
        count += len(piece)
        hashed.update(piece)
    say('got', count, hashed.hexdigest()[:16], 'end')


def client_selects(address, port, n):
    """Sends and receives: bytes that cannot be written now are written when select() reports
    room."""
    sock = socket.create_connection((address, port))
    sock.setblocking(False)
    data = memoryview(pattern(n))
    say('sent', digest(data))
    while data:
        select.select([], [sock], [])
        try:
            data = data[sock.send(data):]
        except BlockingIOError:
            pass


def client_early(address, port, n):
    """Adds the socket to an epoll set before a non-blocking connect()."""
    sock = socket.socket()
    sock.setblocking(False)
    poll = select.epoll()
    poll.register(sock, select.EPOLLOUT)
    assert sock.connect_ex((address, port)) == errno.EINPROGRESS
    data, back, done = memoryview(pattern(n)), b'', 0
    while len(back) < n:
        for _, events in poll.poll():
            if events & select.EPOLLOUT:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                try:
                    done += sock.send(data[done:])
                except BlockingIOError:
                    pass
                poll.modify(sock, select.EPOLLIN | (select.EPOLLOUT if done < n else 0))
            if events & select.EPOLLIN:
                try:
                    back += sock.recv(CHUNK)
                except BlockingIOError:
                    pass
    sock.shutdown(socket.SHUT_WR)
    sock.setblocking(True)
    assert sock.recv(1) == b''
    say('same' if back == data else 'different', len(back), 'end')


def server_splices(address, port, _):
    """As a proxy: splices received bytes through a pipe, and back."""
    sock, _ = listener(address, port).accept()
    libc = ctypes.CDLL(None, use_errno=True)
    out, into = os.pipe()

    def splice(source, sink, n):
        got = libc.splice(source, None, sink, None, ctypes.c_size_t(n), 0)
        if got < 0:
            raise OSError(ctypes.get_errno(), 'splice')
        return got

    while n := splice(sock.fileno(), into, CHUNK):
        while n:
            n -= splice(out, sock.fileno(), n)


def server_asyncio(address, port, _):
    import asyncio # which takes longer than to start Python: pylint: disable=import-outside-toplevel
    async def main():
        done = asyncio.Event()

        async def serve(reader, writer):
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            done.set()
        await asyncio.start_server(serve, address, port)
        say('ready')
        await done.wait()
    asyncio.run(main())


def client_asyncio(address, port, n):
    import asyncio # pylint: disable=import-outside-toplevel
    async def main():
        reader, writer = await asyncio.open_connection(address, port)
        data = pattern(n)

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()
        sending = asyncio.create_task(send())
        back = await reader.read(-1)
        await sending
        writer.close()
        say('same' if back == data else 'different', len(back), 'end')
    asyncio.run(main())


def client_prompted(address, port, n):
    known = socket.create_server((address, 0)) # the service knows this program from here on
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say('ready')
    signal.sigwait([signal.SIGUSR1])
    client_echo(address, port, n)
    known.close()


def client_refused(address, port, _):
    try:
        socket.create_connection((address, port))
    except OSError as e:
        say('refused', type(e).__name__)
    else:
        say('connected')


def client_awaited(address, port, _):
    """A thread waits for bytes of a socket while another one is in connect(), at a point when the
    peer already has the connection."""
    known = socket.create_server((address, 0)) # the service knows this program from here on
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say('ready')
    signal.sigwait([signal.SIGUSR1])
    sock, numbers, told = socket.socket(), [], []

    def connects():
        numbers.append(threading.get_native_id())
        sock.connect((address, port))

    def awaits():
        numbers.append(threading.get_native_id())
        told.extend(select.select([sock], [], [])[0])

    threads = [threading.Thread(target=target) for target in (connects, awaits)]
    threads[0].start()
    while not numbers:
        time.sleep(0.001)
    in_call(numbers[0], [SYS_RECVMSG])
    threads[1].start()
    while len(numbers) < 2:
        time.sleep(0.001)
    in_call(numbers[1], [SYS_SELECT, SYS_PSELECT, SYS_FUTEX])
    say('waits')
    for thread in threads:
        thread.join()
    say('told', told == [sock], sock.recv(5))
    known.close()


def client_options(address, port, _):
    """Gets and sets socket options."""
    sock = socket.create_connection((address, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try: # its value contains an address, which would be one of the daemon's
        sock.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HxxxxxxQ', 1, 4096))
        attached = 'attached'
    except OSError as e:
        attached = errno.errorcode[e.errno]
    sock.settimeout(0.05)
    try:
        sock.recv(1)
        late = 'no'
    except socket.timeout:
        late = 'yes'
    sock.settimeout(None)
    sock.sendall(b'hello')
    while struct.unpack('i', fcntl.ioctl(sock, termios.FIONREAD, b'\0' * 4))[0] < 5:
        select.select([sock], [], [])
    peeked = sock.recv(5, socket.MSG_PEEK)
    say('options', sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), late, peeked.decode(),
        sock.recv(5, socket.MSG_WAITALL).decode(), attached, sock.getpeername() == (address, port))


if __name__ == '__main__':
    start(globals())
