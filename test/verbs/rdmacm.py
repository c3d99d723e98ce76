#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Programs of librdmacm over karst: rdmacm.py KARSTD KARST-RUN (TAP).

rdma-core's examples, including those of rsockets, and perftest with rdma_cm connections.  Both
sides must end with status 0 and print what they print on success.
"""
import re
import select
import shlex
import sys

from verbs_bed import (ATTEMPTS, CONNECTED_TOO_EARLY, MEASURED_IN_VAIN, NEVER, exit_status, free_port,
                       once_more, run_all, says)

TESTED = [r'test complete', r'return status 0']
STREAM = [r'(?m)^custom +\w+ +1 +50 ']


# Lists the devices, then loads librdmacm; creates an identifier in a channel; in a child, uses the
# parent's identifier and one of its own.
LOADED_LATER = """
import ctypes, os, socket, struct, sys
verbs = ctypes.CDLL('libibverbs.so.1')
verbs.ibv_get_device_list.restype = ctypes.c_void_p
number = ctypes.c_int()
verbs.ibv_get_device_list(ctypes.byref(number))
cm = ctypes.CDLL('librdmacm.so.1', use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.c_void_p
address = struct.pack('=HH4s8x', socket.AF_INET, 0, socket.inet_aton(sys.argv[1]))
def channel():
    return ctypes.c_void_p(cm.rdma_create_event_channel())
def bind(channel, address=address):
    ident = ctypes.c_void_p()
    if cm.rdma_create_id(channel, ctypes.byref(ident), None, 0x106) or \\
            address and cm.rdma_bind_addr(ident, address):
        return ctypes.get_errno()
    return cm.rdma_destroy_id(ident)
one = channel()
print('devices', number.value, 'parent', bind(one, None), flush=True)
if os.fork() == 0:
    inherited = bind(one)
    cm.rdma_destroy_event_channel(one)
    two = channel()
    print('child', inherited, bind(two), flush=True)
    cm.rdma_destroy_event_channel(two)
    os._exit(0)
os.wait()
print('parent', bind(one))
cm.rdma_destroy_event_channel(one)
"""
LOADED_LATER_SAYS = 'devices 1 parent 0\nchild 13 0\nparent 0\n'


class Case:
    """A server and a client; in their arguments {ip} stands for the server's address, {port} for a
    port number."""

    def __init__(self, name, server, client, frames=10, both=(), at_server=(), at_client=(),
                 asks=1, ipv6=False, wire=False, by_variables=False, endless=False, hangup=False):
        self.name, self.server, self.client, self.frames = name, server, client, frames
        self.asks = asks # the minimum number of connections
        self.at_server = [*both, *at_server]
        self.at_client = [*both, *at_client]
        self.ipv6 = ipv6 # also run it over IPv6
        self.wire = wire # also run it over two engines
        self.by_variables = by_variables # also run it without namespaces
        self.endless = endless # the server waits for another client
        # The last message and the peer's disconnect may arrive together.  The client then reports
        # an error (its status is POLLHUP) although it has all data.  With an adapter, too, this
        # happens if the client is late.
        self.hangup = hangup


CASES = [
    Case('rping', 'rping -s -v -V -C 10 -a {ip} -p {port}',
         'rping -c -v -V -C 10 -a {ip} -p {port}', 100,
         at_server=[r'server ping data: rdma-ping-9: '],
         at_client=[r'(?m)^ping data: rdma-ping-9: '], ipv6=True, wire=True, by_variables=True),
    Case('rping, queue pairs of its own', 'rping -s -q -v -C 5 -a {ip} -p {port}',
         'rping -c -q -v -V -C 5 -a {ip} -p {port}', 50, at_client=[r'ping data: rdma-ping-4: ']),
    Case('rping, 60000 bytes, any address', 'rping -s -V -C 5 -S 60000 -p {port}',
         'rping -c -v -V -C 5 -S 60000 -a {ip} -p {port}', 100,
         at_client=[r'ping data: rdma-ping-4: '], wire=True),
    Case('ucmatose', 'ucmatose -b {ip} -p {port}', 'ucmatose -s {ip} -p {port}', 20, TESTED,
         ipv6=True, wire=True, by_variables=True),
    Case('ucmatose, 50 connections', 'ucmatose -c 50 -p {port}',
         'ucmatose -c 50 -s {ip} -p {port}', 500, TESTED, asks=50, wire=True),
    Case('ucmatose, identifiers move', 'ucmatose -m -c 3 -C 5 -p {port}',
         'ucmatose -m -c 3 -C 5 -s {ip} -p {port}', 20, TESTED),
    Case('ucmatose, a type of service', 'ucmatose -p {port}', 'ucmatose -t 32 -s {ip} -p {port}',
         20, TESTED),
    Case('ucmatose, a time for acknowledgements', 'ucmatose -p {port}',
         'ucmatose -a 16 -s {ip} -p {port}', 20, TESTED),
    Case('udaddy', 'udaddy -b {ip}', 'udaddy -s {ip}', 20, TESTED, ipv6=True, wire=True),
    Case('udaddy, 20 queue pairs', 'udaddy -c 20', 'udaddy -c 20 -s {ip}', 200, TESTED, asks=20),
    Case('rdma_server', 'rdma_server -p {port}', 'rdma_client -s {ip} -p {port}', 2,
         at_server=[r'rdma_server: end 0'], at_client=[r'rdma_client: end 0'], wire=True,
         by_variables=True),
    Case('rdma_xserver', 'rdma_xserver -p {port}', 'rdma_xclient -s {ip} -p {port}', 1,
         at_server=[r'rdma_xserver: end 0'], at_client=[r'rdma_xclient: end 0']),
    Case('cmtime, 100 connections', 'cmtime -b {ip} -c 100 -p {port}',
         'cmtime -s {ip} -c 100 -p {port}', 0, at_client=[r'(?m)^disconnect +:'],
         asks=100, wire=True, endless=True),
    *[Case(f'{program} -T {how}, {size} bytes', f'{program} {words} -b {{ip}} -p {{port}}',
           f'{program} {words} -s {{ip}} -p {{port}}', 50, at_server=STREAM, hangup=how != 'b',
           wire=how == 'b', ipv6=how == 'b')
      for program in ('rstream', 'riostream') for how in 'abn' for size in (64, 100000)
      for words in [f'-T v -T {how} -S {size} -I 50 -C 1']],
    *[Case(f'{program} -R', f'{program} -R -n 200 -p {{port}}',
           f'{program} -R -n 200 -p {{port}} {{ip}}', 200, at_client=[rf'(?m)^ *{size} +{n} '],
           wire=program in ('ib_send_bw', 'ib_send_bw -c UD', 'ib_read_lat'))
      for program, size, n in (
          ('ib_send_bw', 65536, 200), ('ib_send_lat', 2, 200), ('ib_write_bw', 65536, 200),
          ('ib_write_bw -q 4', 65536, 800), ('ib_read_bw', 65536, 200), ('ib_read_lat', 2, 200),
          ('ib_atomic_bw', 8, 200), ('ib_send_bw -c UD', 4096, 200),
          ('ib_send_lat -c UD', 2, 200))],
]


def start(engine, words, ip, port, mode):
    return engine.program(shlex.split(words.format(ip=ip, port=port)), mode)


def listens(engine, server):
    """Waits until the engine has a listener; only @server can be it.  @return problems."""
    return server.until(lambda: engine.ask(lambda e: e.ask('cm'))['listeners'] > 0, 'listening')


def meet(case, engines, ip, mode):
    """Runs both programs to their end.  @return (server, client, problems)"""
    port = free_port()
    server = start(engines[0], case.server, ip, port, mode)
    problems = listens(engines[0], server)
    client = start(engines[-1], case.client, ip, port, mode)
    problems += [f'client: {p}' for p in client.wait()]
    if exit_status(client) not in ((0, select.POLLHUP) if case.hangup else (0,)):
        problems.append(f'client: exit status {client.status}')
    if problems or case.endless:
        problems += [f'server: exit status {server.status}'] if server.status is not None else []
        server.kill()
    else:
        problems += [f'server: {p}' for p in server.wait()]
        problems += [] if exit_status(server) == 0 else [f'server: exit status {server.status}']
    return server, client, problems


def counts(engines):
    """@return (received frames, requests for a connection)"""
    managed = [e.ask(lambda e: e.ask('cm')) for e in engines]
    return (sum(e.counter('rx_packets') for e in engines),
            sum(row['tx_REQ'] + row['tx_SIDR_REQ'] for row in managed))


def run(case, engines, ip, mode='ns'):
    """Calls run_once(), again if perftest reports that its measurement failed, or if it connected
    too early.  @return problems"""
    for left in reversed(range(ATTEMPTS)):
        problems = run_once(case, engines, ip, mode)
        said = '\n'.join(map(str, problems))
        why = 'perftest has measured in vain' if re.search(MEASURED_IN_VAIN, said) else \
            'perftest has connected before it listened' if re.search(CONNECTED_TOO_EARLY, said) else ''
        if not why or not left:
            break
        once_more(0, said, why)
    return problems


def run_once(case, engines, ip, mode):
    """@return problems"""
    before = counts(engines)
    server, client, problems = meet(case, engines, ip, mode)
    if not problems:
        problems = [f'server: {p}' for p in says(server, case.at_server)]
        problems += [f'client: {p}' for p in says(client, case.at_client)]
        problems += [f'it said: {found.group(0)}' for found in (
            re.search(NEVER, program.text()) for program in (server, client)) if found]
        frames, asked = (now - then for now, then in zip(counts(engines), before))
        if frames < case.frames or asked < case.asks:
            problems.append(f'{frames} frames and {asked} requests for a connection went through '
                            f'the engines, {case.frames} and {case.asks} is the least')
    for engine in engines:
        problems += engine.left()
    if problems:
        problems += [*server.shown(), *client.shown()]
        for engine in engines:
            problems += engine.shown()
    return problems


def addresses(engine):
    """@return the engine's first IPv4 address and its first IPv6 address."""
    port = engine.ask(lambda e: e.rows('ports'))[0]
    return port['address_0'], port['address_1']


def group(tap, engines, mode='ns'):
    """Runs mckey; its receiver prints a line when it has joined the group."""
    ips = [addresses(e)[0] for e in engines]
    before = [e.counter('rx_packets') for e in engines]
    words = ['stdbuf', '-oL', 'mckey', '-m', '239.77.1.1', '-C', '20', '-S', '512', '-b']
    receiver = engines[0].program([*words, ips[0]], mode)
    problems = receiver.until(lambda: 'joined dgid' in receiver.text(), 'joining')
    sender = engines[-1].program([*words, ips[-1], '-s'], mode)
    for name, program in (('receiver', receiver), ('sender', sender)):
        problems += [f'{name}: {p}' for p in program.wait() + says(program, TESTED)]
        problems += [] if program.status == 0 else [f'{name}: exit status {program.status}']
    if sum(e.counter('rx_packets') - n for e, n in zip(engines, before)) < 20:
        problems.append('that was not the engine')
    for engine in engines:
        problems += engine.left()
    tap.point(f'{len(engines)} engine(s): mckey, to a group',
              problems + (receiver.shown() + sender.shown() if problems else []))


def nobody_listens(tap, engine, ip):
    """A client that connects to a port number without a listener gets an error at once."""
    # after rpoll(), rstream prints an errno from before
    for words, text in (('rping -c -C 1 -a {ip} -p {port}', '_REJECTED, error 8'),
                        ('rdma_client -s {ip} -p {port}', 'onnection refused'),
                        ('rstream -s {ip} -p {port}', 'onnection refused|not connected|rpoll: ')):
        program = start(engine, words, ip, free_port(), 'ns')
        problems = program.wait()
        if program.status in (0, None) or not re.search(text, program.text()):
            problems.append(f'"{text}" is not said')
        problems += engine.left()
        tap.point(f'nobody listens: {words.split()[0]}',
                  problems + (program.shown() if problems else []))


def loaded_later(tap, engine, ip, mode):
    """Loads the provider before librdmacm; and forks."""
    program = engine.program([sys.executable, '-c', LOADED_LATER, ip], mode)
    problems = program.wait()
    if program.text() != LOADED_LATER_SAYS:
        problems.append(f'it says {program.text()!r}')
    problems += engine.left()
    tap.point(f'{mode}: librdmacm is loaded after the provider; a child and its parent\'s channel',
              problems)


def one(tap, _, engine):
    v4, v6 = addresses(engine)
    for mode in ('ns', 'env'):
        loaded_later(tap, engine, v4, mode)
    for case in CASES:
        tap.point(f'1 engine: {case.name}', run(case, [engine], v4))
        if case.ipv6:
            tap.point(f'1 engine, IPv6: {case.name}', run(case, [engine], v6))
        if case.by_variables:
            tap.point(f'1 engine, by variables: {case.name}', run(case, [engine], v4, 'env'))
    group(tap, [engine])
    nobody_listens(tap, engine, v4)


def two(tap, _, engines):
    v4, v6 = addresses(engines[0])
    for case in CASES:
        if case.wire:
            tap.point(f'2 engines: {case.name}', run(case, engines, v4))
            if case.ipv6:
                tap.point(f'2 engines, IPv6: {case.name}', run(case, engines, v6))
    group(tap, engines)


if __name__ == '__main__':
    sys.exit(run_all(sys.argv, __doc__, one, two))
