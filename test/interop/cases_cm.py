# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Connections by rdma_cm between karst and Linux: rdma-core's examples, rsockets among them."""
import select

from interop_bed import Case

TESTED = [r'test complete', r'return status 0']
WIRE = ('wire',)


def cm(name, server, client, **more):
    return Case(name, server, client, listen='cm', **{'rules': 'C1 C2 U2', **more})


def stream(program, how, size, **more):
    line = f'{program} -T v -T {how} -S {size} -I 20 -C 1'
    # The last message and the peer's end may come at once, which the client takes for an error.
    statuses = (0, (0, select.POLLHUP)) if how != 'b' else (0, 0)
    return cm(f'{program} -T {how}, {size} bytes', line + ' -b {ip} -p {port}',
              line + ' -s {ip} -p {port}', at_server=[r'(?m)^custom +[\w.]+ +1 +20 '],
              statuses=statuses, frames=20, **more)


CASES = [
    cm('rping', 'rping -s -v -V -C 5 -S 500 -a {ip} -p {port}',
       'rping -c -v -V -C 5 -S 500 -a {ip} -p {port}', frames=30,
       at_server=[r'server ping data: rdma-ping-3: '],
       at_client=[r'(?m)^ping data: rdma-ping-4: '], families=('ip4', 'ip6')),
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
