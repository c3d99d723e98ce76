#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A port net_memif is removed in the moment in which its peer goes, or is asked for again (TAP).

  memif.py KARSTD
"""
import os
import signal
import socket
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'common'))
sys.dont_write_bytecode = True
from bed import Daemon, Tap # noqa: E402

LOOP = '[port loop]\ndevice = loopback\n'
ROLES = ('server', 'client')


def wire(name, role):
    return (f'[port wire]\naddresses = 192.0.2.{1 + ROLES.index(role)}/24\n'
            f'device = net_memif0,role={role},id=7,socket={name}\n')


def pair(karstd, folder, name):
    """Two daemons whose ports are connected: {role: daemon}, problems."""
    ds = {role: Daemon(karstd, folder, LOOP + wire(name, role), name=role) for role in ROLES}
    problems = []
    for d in ds.values(): # the server first
        problems += d.start()
    return ds, problems or ds['server'].says('link up')


def connects(name):
    """@return whether somebody listens at the driver's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.connect('\0' + name)
        except ConnectionRefusedError:
            return False
        return True


def removed(tap, karstd, folder, role, how):
    """The port of @role is removed while the other end is ended by signal @how, or is removed too."""
    name = f'karst-memif-{os.getpid()}-{role}-{how}'
    ds, problems = pair(karstd, folder, name)
    stays, goes = ds[role], ds[ROLES[1 - ROLES.index(role)]]
    if not problems:
        stays.write(LOOP)
        if how == 'both':
            goes.write(LOOP)
        both = [(goes, signal.SIGHUP if how == 'both' else getattr(signal, 'SIG' + how)),
                (stays, signal.SIGHUP)]
        for d, number in both:
            d.send(number)
        problems += stays.ready()
        if how == 'both':
            problems += goes.ready()
        if role == 'server' or how == 'both':
            # its socket has gone with it
            problems += [f'there is a listener at {name}'] if connects(name) else []
        problems += stays.reload() # it is there, and listens to what it is told
    if how == 'both':
        problems += goes.stop()
    problems += stays.stop()
    goes.kill()
    tap.point(f'{role} removed, peer: {how}', problems)


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for how in ('KILL', 'TERM', 'both'):
            for role in ROLES:
                removed(tap, argv[1], folder, role, how)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
