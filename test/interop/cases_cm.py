# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Connections by rdma_cm between karst and Linux: rdma-core's examples, rsockets among them."""
import select
import time

from interop_bed import Case, GROUP, PORT, says, words
from wire import delay, drop, duplicate

TESTED = [r'test complete', r'return status 0']
WIRE = ('wire',)
# An offer of selective repeat (X1), and the offer of some adapter's vendor.
KARST, OTHER = ('0x724b53', '0x4b520a01'), ('0x15b3', '0x30000002')
SOON_S = 240


def cm(name, server, client, **more):
    return Case(name, server, client, listen='cm',
                **{'rules': 'C1 C2 U2', 'sparse': True, **more})


def stream(program, how, size, **more):
    line = f'{program} -T v -T {how} -S {size} -I 20 -C 1'
    # The last message and the disconnect may come together, which the client takes for an error.
    statuses = (0, (0, select.POLLHUP)) if how != 'b' else (0, 0)
    return cm(f'{program} -T {how}, {size} bytes', line + ' -b {ip} -p {port}',
              line + ' -s {ip} -p {port}', at_server=[r'(?m)^custom +[\w.]+ +1 +20 '],
              statuses=statuses, frames=20, **more)


def offer(name, what, **more):
    return cm(name, 'ece-program echo {ip} {port}',
              'ece-program offer {ip} {port} ' + ' '.join(what), at_client=['(?m)^answered 0 0$'],
              rules='C3 X1', roles=('server',), endless=True, frames=0, kinds=WIRE, sparse=False,
              **more)


IGNORED = {'cm/ece_ignored': 1}
ECE = [
    offer('an offer of another vendor', OTHER, at_server=['(?m)^offered 0 0$'], counts=IGNORED),
    offer("an offer of karst's, whose answer is none", KARST,
          at_server=['(?m)^offered ' + ' '.join(KARST) + '$']),
    cm('an offer that is answered by itself', 'ece-program echo {ip} {port}',
       'ece-program visit {ip} {port}', rules='C3 X1', roles=('client',), endless=True, frames=0,
       kinds=WIRE, sparse=False, at_server=['(?m)^offered ' + ' '.join(KARST) + '$'],
       at_client=['_DISCONNECTED$'], counts=IGNORED),
]

CASES = [
    *ECE,
    cm('rping', 'rping -s -v -V -C 5 -S 500 -a {ip} -p {port}',
       'rping -c -v -V -C 5 -S 500 -a {ip} -p {port}', frames=30,
       at_server=[r'server ping data: rdma-ping-3: '],
       at_client=[r'(?m)^ping data: rdma-ping-4: '], sparse=False, families=('ip4', 'ip6')),
    cm('rping, queue pairs of its own', 'rping -s -q -v -C 3 -a {ip} -p {port}',
       'rping -c -q -v -V -C 3 -a {ip} -p {port}', at_client=[r'ping data: rdma-ping-2: '],
       kinds=WIRE),
    cm('ucmatose', 'ucmatose -b {ip} -p {port} -C 4 -c 3 -S 2000',
       'ucmatose -s {ip} -p {port} -C 4 -c 3 -S 2000', both=TESTED, frames=20,
       families=('ip4', 'ip6')),
    cm('ucmatose, identifiers move', 'ucmatose -m -c 2 -C 3 -p {port}',
       'ucmatose -m -c 2 -C 3 -s {ip} -p {port}', both=TESTED, kinds=WIRE),
    cm('udaddy', 'udaddy -b {ip} -C 3 -c 2 -S 200',
       'udaddy -s {ip} -C 3 -c 2 -S 200', both=TESTED, frames=10,
       families=('ip4', 'ip6')),
    cm('rdma_server', 'rdma_server -p {port}', 'rdma_client -s {ip} -p {port}',
       at_server=[r'rdma_server: end 0'], at_client=[r'rdma_client: end 0']),
    cm('cmtime, 20 connections', 'cmtime -b {ip} -c 20 -p {port}',
       'cmtime -s {ip} -c 20 -p {port}', at_client=[r'(?m)^disconnect +:'], endless=True,
       frames=0, kinds=WIRE),
    stream('rstream', 'b', 3000),
    stream('rstream', 'a', 60000, kinds=WIRE),
    stream('rstream', 'n', 64, kinds=WIRE),
    stream('riostream', 'b', 3000, kinds=WIRE),
    stream('riostream', 'n', 50000, kinds=WIRE),
]

MCKEY = f'mckey -m {GROUP} -b {{me}} -C 5 -S 300'
SENDERS = 20


def group(bed, kind, role):
    """A sender does not wait until what it has posted was sent, and destroys its queue pair: on
    Linux the rest is lost, so senders are started until the receiver has five messages."""
    there, here = (bed.linux, bed.host) if role == 'client' else (bed.host, bed.linux)
    # each sender waits for three seconds before it sends, and the receiver polls meanwhile
    receiver = there.program(words('{patient} {lines} ' + MCKEY, there, there, kind, 'ip4', PORT),
                             SOON_S)
    problems, sender = there.listens(receiver, PORT, 'group', kind), receiver
    for _ in range(SENDERS):
        if problems or receiver.status is not None:
            break
        sender = here.program(words(MCKEY + ' -s', here, there, kind, 'ip4', PORT), SOON_S)
        problems = sender.wait(SOON_S)
    if problems:
        receiver.kill()
    problems += receiver.wait(SOON_S)
    for program in (receiver, sender):
        problems += [] if program.status == 0 else [f'exit status {program.status}']
        problems += says(program, TESTED)
    return problems + (receiver.shown() + sender.shown() if problems else [])


CASES += [Case('mckey, to a group', run=group, frames=5, rules='U4', sparse=True)]

# UD, with which these programs send nothing but datagrams of queue pair 1, is impaired.
UD = 0x64
RPING = ('rping -s -v -V -C 2 -S 100 -a {ip} -p {port}',
         'rping -c -v -V -C 2 -S 100 -a {ip} -p {port}')


def injured(name, *wire, injuries=1):
    return cm(f'rping, {name}', *RPING, at_client=[r'(?m)^ping data: rdma-ping-1: '], wire=wire,
              injured=injuries)


CASES += [
    injured('each datagram twice', duplicate(op=UD, every=1), injuries=5),
    injured('each datagram late', delay(op=UD, every=1, ms=30), injuries=5),
    injured('REQ and DREQ, or REP, of karst lost', drop(op=UD, source='karst', nth=(1, 3))),
    injured('RTU, or DREP, of karst lost', drop(op=UD, source='karst', nth=(2,))),
    injured('first datagram of Linux lost', drop(op=UD, source='guest', nth=(1,))),
    injured('second datagram of Linux lost', drop(op=UD, source='guest', nth=(2,))),
]


# --- refusals ---

def refused(name, client, *texts, **more):
    """No program listens."""
    return Case(f'nobody listens: {name}', 'true', client, listen=None, statuses=(0, None),
                frames=0, at_client=texts, never=None, rules='C1', sparse=True, **more)


CASES += [
    refused('rping', 'rping -c -C 1 -a {ip} -p {port}', r'_REJECTED, error 8',
            families=('ip4', 'ip6')),
    refused('rdma_client', 'rdma_client -s {ip} -p {port}', r'onnection refused', kinds=WIRE),
    refused('udaddy', 'udaddy -s {ip} -C 1', r'_UNREACHABLE, error: 1'),
    Case('rping meets rstream, which rejects its private data',
         'rstream -b {ip} -p {port}', 'rping -c -C 1 -a {ip} -p {port}', listen='cm', frames=0,
         statuses=(0, None), at_client=[r'_REJECTED, error 28'], never=None, endless=True,
         kinds=WIRE, rules='C1', sparse=True),
]


# --- ends ---

def killed(victim):
    """One end of a connection with traffic is killed: the other is told, and ends."""
    def run(bed, kind, role):
        server, client = (bed.linux, bed.host) if role == 'client' else (bed.host, bed.linux)

        def start(end, what):
            line = f'rping {what} -C 10000000 -S 100 -a {{ip}} -p {{port}}'
            return end.program(words(line, end, server, kind, 'ip4', PORT), SOON_S)

        one = start(server, '-s')
        problems = server.listens(one, PORT, 'cm', kind)
        other = start(client, '-c')
        before = bed.engine.counter('rx_packets')
        until = time.monotonic() + SOON_S
        while bed.engine.counter('rx_packets') < before + 100 and not problems:
            if other.status is not None and 'REJECTED' in other.text():
                other = start(client, '-c')
            time.sleep(0.05)
            if time.monotonic() > until:
                problems = ['no traffic']
        dies, lives = (one, other) if victim == 'server' else (other, one)
        dies.kill()
        if problems:
            lives.kill()
        problems += lives.wait(SOON_S)
        if not problems and not any(text in lives.text() for text in ('DISCONNECT', 'failed')):
            problems = ['it has not heard of the end']
        return problems + (lives.shown() if problems else [])
    return run


CASES += [Case(f'rping, the {victim} is killed', run=killed(victim), rules='C1', frames=100,
               sparse=True)
          for victim in ('server', 'client')]
