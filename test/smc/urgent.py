# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Urgent data is seen over SMC-R as over TCP."""
from smcbed import BYTES, Program, bed


def talk(suite, server, client, at, far, late):
    """@return (the output of the receiver, problems)"""
    port = bed.free_port()
    s = Program(suite, server, 'urgent.receives', at, port)
    if s.line() != 'ready':
        return '', ['it does not listen', *s.ends()]
    c = Program(suite, client, 'urgent.sends', at, port, BYTES, netns=far, late=late)
    said, problems = s.ends()
    return said, problems + c.ends()[1]


def same_as_tcp(suite, server, client, at='127.0.0.1', far=None, late=False):
    """@return problems: differences from the same programs without karst"""
    wanted, problems = talk(suite, None, None, at, far, False)
    said, more = talk(suite, server, client, at, far, late)
    problems += more
    if said != wanted or not wanted.endswith(' end'):
        problems += [f'{w!r}, not {t!r}' for w, t in zip(said.split('\n'), wanted.split('\n'))
                     if w != t] or [said, wanted]
    return problems
