#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""QEMU's migration over RDMA, over karst: qemu.py KARSTD KARST-RUN (TAP).

A guest without an operating system adds 1 to a counter in each of PAGES pages in turn, forever.
The guest is stopped and migrated.  It must then continue with the same counters, and the memory
that it does not write must be the same.  It is not migrated while it runs, because of QEMU 7.2 with
TCG: after two passes QEMU finds no dirty page ("-trace migration_bitmap_sync_end") although the
guest writes to all pages, and their later contents are never sent.
"""
import json
import os
import socket
import struct
import sys
import tempfile

from verbs_bed import HANG_S, free_port, run_all

PAGE = 4096
COUNTERS, PAGES = 0x20000, 112
STILL, STILL_BYTES = 0x400000, 4 << 20
# The guest, which takes the place of the BIOS: it starts in real mode at f000:fff0.
GUEST = bytes.fromhex(
    'fa'            # cli
    'b80020'        # again: mov ax, 0x2000
    '8ec0'          # next:  mov es, ax
    '2666ff060000'  #        inc dword ptr es:[0]
    '050001'        #        add ax, 0x100
    '3d0090'        #        cmp ax, 0x9000
    '75f0'          #        jne next
    'ebeb')         #        jmp again
ROM = GUEST.ljust(0xfff0, b'\0') + bytes.fromhex('ea000000f0').ljust(16, b'\0')
QEMU = ['qemu-system-x86_64', '-accel', 'tcg', '-M', 'pc', '-m', '16', '-nodefaults', '-display',
        'none']


class Monitor:
    """QEMU's monitor, over QMP."""

    def __init__(self, connected):
        self.socket = connected
        self.socket.settimeout(HANG_S)
        self.lines = self.socket.makefile('rb')
        self.events = []
        self.lines.readline() # the greeting
        self.ask('qmp_capabilities')

    def answer(self):
        line = self.lines.readline()
        if not line:
            raise OSError('QEMU has ended')
        return json.loads(line)

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({'execute': command, 'arguments': arguments}).encode())
        while True:
            found = self.answer()
            if 'event' in found:
                self.events.append(found)
            elif 'error' in found:
                raise OSError(f'{command}: {found["error"]["desc"]}')
            else:
                return found['return']

    def until(self, *wanted):
        """Waits for the first event whose name or status is in @wanted."""
        while True:
            found = self.events.pop(0) if self.events else self.answer()
            for word in (found.get('event'), found.get('data', {}).get('status')):
                if word in wanted:
                    return word

    def migration(self, pin_all):
        self.ask('migrate-set-capabilities', capabilities=[
            {'capability': 'events', 'state': True},
            {'capability': 'rdma-pin-all', 'state': pin_all}])

    def memory(self, folder, at, size):
        path = os.path.join(folder, 'memory')
        self.ask('pmemsave', val=at, size=size, filename=path)
        with open(path, 'rb') as f:
            return f.read()

    def counters(self, folder):
        text = self.memory(folder, COUNTERS, PAGES * PAGE)
        return [struct.unpack_from('<I', text, i * PAGE)[0] for i in range(PAGES)]


def answers(path):
    """@return a socket that is connected to @path, or None."""
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connected.close()
        return None
    return connected


def start(engine, folder, name, words):
    """Starts a QEMU.  @return (the program, its Monitor or None)"""
    path = os.path.join(folder, name)
    program = engine.program([*QEMU, '-bios', os.path.join(folder, 'rom'), '-qmp',
                              f'unix:{path},server=on,wait=off', *words])
    found = []

    def listens():
        found.append(answers(path))
        return found[-1]

    if program.until(listens, 'listening'):
        return program, None
    try:
        return program, Monitor(found[-1])
    except OSError:
        return program, None


def moved(here, there, folder, uri, still, pin_all):
    """Migrates the guest.  @return problems"""
    for monitor in (here, there):
        monitor.migration(pin_all)
    while here.counters(folder)[-1] == 0:
        pass # wait until the guest runs
    here.ask('stop')
    counters = here.counters(folder)
    here.ask('migrate', uri=uri)
    if here.until('completed', 'failed') == 'failed':
        return [f'migration failed: {here.ask("query-migrate")}']
    if there.until('completed', 'failed') == 'failed':
        return ['the target has failed']
    found = there.counters(folder)
    problems = [] if found == counters else [f'the counters are {found}, not {counters}']
    if there.memory(folder, STILL, STILL_BYTES) != still:
        problems.append('memory that nobody has written to is another')
    there.ask('cont')
    while not problems and there.counters(folder)[-1] <= counters[0]:
        pass # wait until the guest runs again
    for monitor in (here, there):
        monitor.ask('quit')
    return problems


def migrate(tap, engines, name, address, pin_all):
    before = [engine.counter('rx_bytes') for engine in engines]
    with tempfile.TemporaryDirectory() as folder:
        still = os.urandom(STILL_BYTES)
        for path, text in (('rom', ROM), ('still', still)):
            with open(os.path.join(folder, path), 'wb') as f:
                f.write(text)
        uri = f'rdma:{address}:{free_port()}'
        target, there = start(engines[0], folder, 'there', ['-incoming', uri])
        source, here = start(engines[-1], folder, 'here', [
            '-device', f'loader,file={folder}/still,addr={STILL:#x},force-raw=on'])
        problems = [] if here and there else ['QEMU does not start']
        try:
            if not problems:
                problems = moved(here, there, folder, uri, still, pin_all)
        except OSError as e:
            problems.append(str(e))
        for end, program in (('source', source), ('target', target)):
            if problems:
                program.kill()
            problems += [f'{end}: {p}' for p in program.wait()]
            if program.status != 0:
                problems.append(f'{end}: exit status {program.status}')
    got = sum(engine.counter('rx_bytes') for engine in engines) - sum(before)
    if got < STILL_BYTES:
        problems.append(f'{got} bytes went through the engines')
    for engine in engines:
        problems += engine.left()
    if problems:
        problems += source.shown() + target.shown()
        problems += [line for engine in engines for line in engine.shown()]
    tap.point(f'{len(engines)} engine(s): {name}', problems)


def one(tap, _, engine):
    migrate(tap, [engine], 'pages are registered as they are sent', '127.0.0.1', False)
    migrate(tap, [engine], 'rdma-pin-all', '127.0.0.1', True)


def two(tap, _, engines):
    migrate(tap, engines, 'pages are registered as they are sent', '10.77.0.1', False)
    migrate(tap, engines, 'rdma-pin-all', '10.77.0.1', True)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two))
