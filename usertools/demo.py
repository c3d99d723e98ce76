#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The demo of karst-setup, one screen: demo.py KARST-PERF.

karst-perf starts a karstd with a loopback port, and a server; it and the server are the two programs
that attach.  First every byte is verified, then the rates are measured without that.
Exit status: 0; 1 if a byte was wrong or anything failed.
"""
import json
import subprocess
import sys

OPERATIONS = 'write,read,send'
HEAD = '''
karst: RDMA (RoCEv2) in user space.  No RDMA adapter, no kernel driver, no huge pages.

  program A                    karstd                    program B
  karst_post_send() --ring-->  queue pairs, RoCEv2 <--ring-- karst_poll_cq()
  buffers  <---------- shared memory: no system call ---------->  buffers
'''
NEXT = '''
Both programs and karstd are on this machine: these are rates of rings and memory, not of a network.

Next:
  build/app/karst-run/karst-run ibv_devinfo   unmodified verbs programs (karst-run(1))
  usertools/karst-setup test                  all test suites
  usertools/karst-setup bench                 all figures, against their goals
  README.rst, doc/architecture.rst            what it is, and how it works
'''


def measure(perf, *words):
    """The objects that karst-perf printed; it prints its errors itself."""
    run = subprocess.run([perf, '--daemon', '--op', OPERATIONS, '--json', *words],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        sys.stderr.write(run.stderr)
        sys.exit(f'demo: karst-perf ended with exit status {run.returncode}')
    return [json.loads(line) for line in run.stdout.splitlines()]


def verified(perf):
    found = measure(perf, '--size', '1,4097,65536,1M', '--iters', '200', '--verify')
    messages = sum(one['messages'] for one in found)
    total = sum(one['messages'] * one['size_bytes'] for one in found)
    print(f'  {messages} messages of 1 byte to 1 MiB, {total / 2**20:.0f} MiB: WRITE, READ and '
          'SEND,\n  every byte verified, none wrong, none lost')


def rates(perf):
    found = measure(perf, '--size', '64,64K', '--lat', '--duration', '0.25', '--compare', 'tcp')
    print(f'\n  {"":10}{"":>8}  {"rate":>12}   {"of memcpy":>9}  {"of TCP":>7}   '
          f'{"there and back":>14}  {"TCP":>7}')
    for karst, tcp in zip(found[::2], found[1::2]):
        small = karst['size_bytes'] == 64
        rate = f'{karst["mops"]:.2f} M/s' if small else f'{karst["gbps"]:.1f} Gb/s'
        beside = '-' if small else f'{karst["gbps"] / tcp["gbps"]:.2f}'
        copy = '-' if small else f'{karst["memcpy_ratio"]:.2f}'
        print(f'  {karst["op"].upper():10}{"64 B" if small else "64 KiB":>8}  {rate:>12}   '
              f'{copy:>9}  {beside:>7}   {karst["latency_ns"]["p50"] / 1e3:>11.1f} us  '
              f'{tcp["latency_ns"]["p50"] / 1e3:>4.1f} us')


def main():
    if len(sys.argv) != 2:
        print('usage: demo.py KARST-PERF', file=sys.stderr)
        sys.exit(2)
    print(HEAD)
    verified(sys.argv[1])
    rates(sys.argv[1])
    print(NEXT)


if __name__ == '__main__':
    main()
