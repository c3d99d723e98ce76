#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Wrong calls, forks, threads and bad ends: errors.py KARSTD KARST-RUN CALLS WRONG SPOILT (TAP).

wrong.c passes wrong arguments, spoilt.c objects that do not exist.  Then: a program that ends
without destroying its objects, programs that are killed during traffic, programs whose engine is
killed, and an engine of another version.  The engine must not keep any object of these programs.
"""
import os
import signal
import socket
import sys
import tempfile
import threading

from calls import relay
from verbs_bed import HEADER, LOOPBACK, Engine, free_port, listens, pair, run_all


def shown(problems, *things):
    """@return @problems and, if there are any, what @things have printed."""
    return problems + [line for thing in things for line in thing.shown()] if problems else []


def points(tap, engine, words):
    """Runs a program that prints TAP, and reports its points as this test's."""
    program = engine.program(words)
    problems = program.wait()
    problems += relay(tap, 'ns', program) + engine.left()
    tap.point(f'{os.path.basename(words[0])}: nothing is left', shown(problems, program, engine))


def traffic(engine, words):
    """Starts a server and a client that run for a long time.  @return (server, client, problems)"""
    tcp = str(free_port())
    server = engine.program([*words, '-p', tcp])
    problems = server.until(lambda: listens(int(tcp)), 'listening')
    before = engine.counter('rx_bytes')
    client = engine.program([*words, '-p', tcp, 'localhost'])
    problems += client.until(lambda: engine.counter('rx_bytes') - before > 1 << 20, 'busy')
    return server, client, problems


FOR_LONG = [
    ('ib_write_bw', ['ib_write_bw', '-D', '600']),
    ('ib_read_bw with events', ['ib_read_bw', '-e', '-n', '100000000']),
    ('ibv_srq_pingpong with events', ['ibv_srq_pingpong', '-g', '0', '-e', '-n', '100000000']),
]


def killed(tap, engine):
    for name, words in FOR_LONG:
        for which in ('client', 'server'):
            server, client, problems = traffic(engine, words)
            first, second = (client, server) if which == 'client' else (server, client)
            first.kill()
            # the other program may wait forever for its peer
            second.kill()
            problems += engine.left()
            tap.point(f'{name}: the {which} is killed', shown(problems, server, client, engine))
    tap.point('the next one works', pair([engine], ['ibv_rc_pingpong', '-g', '0', '-c', '-e']))


# Calls that the engine and the provider refuse in turns, in one thread.
REASONS = """
import ctypes, os, socket, struct, sys
verbs = ctypes.CDLL('libibverbs.so.1')
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = verbs.ibv_create_cq.restype = ctypes.c_void_p
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])))
cq = ctypes.c_void_p(verbs.ibv_create_cq(context, 16, None, None, 0))
cm = ctypes.CDLL('librdmacm.so.1')
ident = ctypes.c_void_p()
cm.rdma_create_id(None, ctypes.byref(ident), None, 0x106)
nowhere = struct.pack('=HH4s8x', socket.AF_INET, 0, socket.inet_aton('192.0.2.77'))
print('begin', file=sys.stderr, flush=True)
assert verbs.ibv_resize_cq(cq, 1 << 30) == 22
assert verbs.ibv_resize_cq(cq, 0) == 22
assert cm.rdma_bind_addr(ident, nowhere) == -1
assert cm.rdma_create_id(None, ctypes.byref(ctypes.c_void_p()), None, 0x13f) == -1
assert verbs.ibv_query_port(context, 2, ctypes.create_string_buffer(1024)) == 22
assert cm.rdma_bind_addr(ident, nowhere) == -1
attr, mask = ctypes.create_string_buffer(struct.pack('=i', 77), 1024), ctypes.c_int()
assert cm.rdma_init_qp_attr(ident, attr, ctypes.byref(mask)) == -1
if (child := os.fork()) == 0:
    os._exit(cm.rdma_bind_addr(ident, nowhere) + 1)
assert os.waitpid(child, 0)[1] == 0
"""
REASONS_SAID = [None, 'cqe must be at least 1',
                'no port of the engine has the address 192.0.2.77',
                'port space is not RDMA_PS_TCP or RDMA_PS_UDP', 'port_num must be 1',
                'no port of the engine has the address 192.0.2.77', 'init_qp_attr: unknown qp_state',
                "rdma_cm: the channel belongs to the parent process"]


def reasons(tap, engine):
    """Each refusal prints its own reason, the provider's refusals too, and only if the environment
    asks for reasons."""
    program = engine.program([sys.executable, '-c', REASONS], env={'KARST_VERBS_DEBUG': '1'})
    problems = program.wait()
    before, _, text = program.text().partition('begin\n')
    said = text.splitlines()
    if before: # librdmacm asks for what is not there, the program does not
        problems.append(f'printed before anything was refused: {before}')
    for i, (got, want) in enumerate(zip(said, REASONS_SAID)):
        if want is not None and got != f'karst: {want}':
            problems.append(f'{i}: {got}, not {want}')
    if len(said) != len(REASONS_SAID) or said[0] in said[1:]:
        problems.append(f'{len(said)} lines')
    tap.point('KARST_VERBS_DEBUG: who refuses says why', shown(problems, program))
    quiet = engine.program([sys.executable, '-c', REASONS])
    problems = quiet.wait() + ([] if quiet.text() == 'begin\n' else ['it says something'])
    tap.point('without it nothing is said', shown(problems + engine.left(), quiet))


def one(tap, _, engine, calls, wrong, spoilt):
    points(tap, engine, [os.path.abspath(wrong)])
    points(tap, engine, [os.path.abspath(spoilt)])
    points(tap, engine, [os.path.abspath(calls), '--leave'])
    reasons(tap, engine)
    killed(tap, engine)
    engine_dies(tap, engine.tools)
    other_version(tap, engine)


def engine_dies(tap, tools):
    for name, words in FOR_LONG:
        with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
            engine = Engine(tools, folder, LOOPBACK, name='dies')
            problems = engine.start()
            server, client, more = traffic(engine, words)
            problems += more
            engine.daemon.kill()
            for which, program in (('server', server), ('client', client)):
                problems += [f'{which}: {p}' for p in program.wait()]
                if program.status in (0, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT):
                    problems.append(f'{which}: status {program.status} is no error of its own')
            tap.point(f'{name}: the engine is killed, and it ends with an error',
                      shown(problems, server, client, engine))


class Stranger(threading.Thread):
    """Listens like an engine whose messages have another version, and answers with that version."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(path)
        self.sock.listen()

    def run(self):
        while True:
            try:
                peer, _ = self.sock.accept()
            except OSError:
                return
            with peer:
                request = peer.recv(65536)
                if len(request) >= HEADER.size:
                    magic, version, kind, _, seq, _, _ = HEADER.unpack_from(request)
                    peer.send(HEADER.pack(magic, version + 1, kind, HEADER.size, seq, 0, 0))


def other_version(tap, engine):
    """karst-run reports the other version, and so does the provider if the engine changes after the
    program has started."""
    with tempfile.TemporaryDirectory(prefix='karst-verbs-') as folder:
        flag = os.path.join(folder, 'flag')
        real = Engine(engine.tools, folder, LOOPBACK, name='real')
        problems = real.start()
        late = real.program(['sh', '-c', f'echo up; until [ -e {flag} ]; do sleep 0.1; done; '
                             'exec ibv_devinfo'])
        problems += late.until(lambda: 'up' in late.text(), 'up') + real.stop()
        stranger = Stranger(real.daemon.socket)
        stranger.start()
        with open(flag, 'w', encoding='ascii'):
            pass
        problems += late.wait()
        if late.status == 0 or 'version' not in late.text():
            problems.append('it does not say that versions differ')
        tap.point('an engine of another version: ibv_devinfo', shown(problems, late))
        soon = real.program(['ibv_devinfo'])
        problems = soon.wait()
        if soon.status != 125 or 'version' not in soon.text():
            problems.append('it does not say that versions differ')
        tap.point('an engine of another version: karst-run', shown(problems, soon))
        stranger.sock.close()


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, more=3))
