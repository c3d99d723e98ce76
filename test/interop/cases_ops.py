# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""All operations, mistakes and delays between karst and Linux, every byte checked at both ends: the
scripts of interop-peer (peer/scripts.py)."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'peer'))
import scripts  # noqa: E402
from interop_bed import Case  # noqa: E402

SERVER = 'interop-peer -d {dev} --gid {gid} -p {port}'


def peer(one, role, **more):
    """A script as a case.  The client acts, except in steps that say otherwise."""
    target = 'linux' if role == 'client' else 'karst'
    client = ' '.join(['interop-peer', '-d {dev}', '--gid {gid}', '-p {port}',
                       *scripts.words(one, target, '{tcp}')])
    more = dict({'kinds': ('wire',), 'rules': one.rules}, **more)
    if scripts.NEWER.intersection(one.needs):
        more['kernels'] = tuple(k for k in more.get('kernels', ('6.12',)) if k == '6.12')
    return Case(one.name, SERVER, client, roles=(role,), both=['all is well: '], limit_s=600, **more)


def possible(one, role):
    if scripts.ACTOR_KARST in one.needs:
        return role == 'client'
    return scripts.TARGET_KARST not in one.needs or role == 'server'


def cases(some, roles=('client', 'server'), **more):
    return [peer(one, role, **more) for one in some for role in roles if possible(one, role)]


def named(*names):
    return [one for one in scripts.ALL if one.name in names]


OLDER = [one for one in scripts.OPERATIONS + scripts.REFUSED + scripts.LATE
         if not scripts.NEWER.intersection(one.needs)] + \
    named('RC, MTU 256, all sizes', 'RC, MTU 4096, all sizes', 'UC, all sizes',
          'UD, all sizes, GRH')

# Everything runs over AF_PACKET to the newer kernel; each script of the older kernel has one role,
# in turn.  Scripts use other addresses and ports where these matter.
OF_OLDER = cases(OLDER[::2], kernels=('6.1',), roles=('client',)) + \
    cases(OLDER[1::2], kernels=('6.1',), roles=('server',))
CASES = [case for case in cases(scripts.ALL, kernels=('6.12',))
         if (case.name, case.roles) not in [(other.name, other.roles) for other in OF_OLDER]]
CASES += OF_OLDER
CASES += cases(named('RC, MTU 1024, all sizes', 'UD, all sizes, GRH', 'bursts of all operations'),
               families=('ip6', 'll'), kernels=('6.12',))
CASES += cases(named('RC, MTU 4096, all sizes', 'UC, all sizes', 'UD, MTU 4096, all sizes, GRH',
                     'bursts of all operations', 'bursts one way and the other', 'SRQ',
                     'receives are late', 'unknown and dead keys'),
               kinds=('vhost',), kernels=('6.12',))
CASES += cases(named('RC, MTU 1024, all sizes', 'bursts of all operations'),
               kinds=('vhost',), kernels=('6.1',))
CASES += cases(named('RC, MTU 2048, all sizes', 'UD, all sizes, GRH', 'bursts of all operations'),
               kinds=('vlan',), kernels=('6.12',))
