#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Common code of the programs that smcbed.py starts: prog_FILE.py WHAT ADDRESS PORT [NUMBER].  Some
hundred processes begin with this, so it imports little."""
import codecs
import os
import signal
import socket
import sys
import time

CHUNK = 65536
OTHERS = 65533 # a user
# numbers of x86_64, also for in_call(); a thread of Python waits for another one in SYS_FUTEX
SYS_WRITE, SYS_CLOSE, SYS_POLL, SYS_SELECT, SYS_SENDTO, SYS_RECVFROM = 1, 3, 7, 23, 44, 45
SYS_SENDMSG, SYS_RECVMSG, SYS_SETSOCKOPT, SYS_FUTEX, SYS_PSELECT, SYS_PPOLL = 46, 47, 54, 202, 270, 271
SYS_ACCEPT4, SYS_BPF, SYS_USERFAULTFD = 288, 321, 323


def say(*words):
    print(*words, flush=True)


def listener(address, port, quiet=False):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen(8)
    if not quiet:
        say('ready')
    return sock


def receive(sock):
    """@return all bytes until the end, and what ended the stream"""
    data = b''
    try:
        while True:
            piece = sock.recv(CHUNK)
            if not piece:
                return data, 'end'
            data += piece
    except OSError as e:
        return data, type(e).__name__


def in_call(thread, calls):
    """Waits until @thread sleeps in one of @calls."""
    number = None
    while number not in calls:
        with open(f'/proc/self/task/{thread}/syscall', encoding='ascii') as f:
            number = f.read().split()[0]
        number = int(number) if number.isdigit() else None
        time.sleep(0.001)


def as_user(number):
    for name in 'idna', 'ascii': # for an address, for a file: imports are not possible afterwards
        codecs.lookup(name)
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def start(programs, prompted=False):
    """Runs the program that the command line names.  @prompted: it gets SIGUSR1 by sigwait() alone"""
    if prompted:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    programs[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int((sys.argv + ['0'])[4]))
