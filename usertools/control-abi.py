#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""doc/control-abi.rst, from the structures in lib/ctl/karst_ctl.h and
karst_ctl_cm.h.

  control-abi.py            prints the document
  control-abi.py --write    writes it to doc/control-abi.rst
  control-abi.py --check    TAP: the file is current
  control-abi.py --asserts  prints C in which a compiler checks every offset of the document
"""
import os
import re
import sys

import generated_files

HEADERS = [os.path.join('lib', 'ctl', name) for name in ('karst_ctl.h', 'karst_ctl_cm.h')]
OUTPUT = os.path.join('doc', 'control-abi.rst')
PREFIX = 'karst_ctl_'

HEAD = """.. SPDX-License-Identifier: BSD-3-Clause
.. Written by usertools/control-abi.py --write; do not edit.

====================
The control messages
====================

This page defines the messages between a program and an engine outside of the data path, byte by
byte.  The rings of the data path are in ring-abi.rst.  The headers are ``lib/ctl/karst_ctl.h`` and,
for connection management, ``lib/ctl/karst_ctl_cm.h``.  This page has the same contents without C,
for authors of other implementations.

Rules
=====

- The engine listens on a UNIX socket of type ``SOCK_SEQPACKET``.  One packet is one message: a
  header, a body that depends on the operation, and file descriptors (``SCM_RIGHTS``).
- The program sends a request and gets one reply, with the same ``seq`` and ``op``.  The engine
  answers the requests of one connection in order.  It sends nothing else.  It disconnects a program
  that leaves a dozen replies unread.
- The first request is HELLO.  A connection ends when either side closes it.  The engine then
  destroys all objects of the program.
- Everything is little-endian and naturally aligned.  There are no pointers.
- ``len`` is the length of the packet, at most {MAX} bytes.  ``nfds`` is the number of file
  descriptors, at most {MAX_FDS}.  A message in which one of them is wrong is refused.
- Reserved members of requests are 0; the engine checks this.
- A body may be longer than the receiver expects if all further bytes are 0.  New members are added
  at the end, and 0 in them means the same as before they existed.  A shorter body is refused.
  ``version`` changes when an old receiver would misunderstand a message.
- A request that is refused has changed nothing.  Its reply has a negative errno as ``status`` and
  struct ``fault`` as body: a sentence that tells what was wrong and what is allowed.  ``-EPROTO``:
  the message is malformed or out of order; ``-EOPNOTSUPP``: there is no such operation, or no such
  feature; ``-EINVAL``: a member has a wrong value; ``-EBUSY``: another object still needs this one;
  ``-ENOSPC`` and ``-ENOMEM``: a limit is reached; ``-ENOBUFS``: ring memory has to be mapped and
  sealed first (SEAL_CHUNK); ``-EIO``: the session has failed; only closing is left.
- Handles of PDs, XRC domains, CQs, SRQs and QPs, of channels, and of the channels, identifiers and
  groups of connection management are numbers that are valid in this connection only.  A handle is
  never 0.  Keys are L_Keys and R_Keys.  Handles and keys of another connection are not valid.

Offsets below are relative to the body, which begins {HDR} bytes into the message.

Header
======
"""

STREAMS = """
Streams
=======

The replies to HELLO, CREATE_CHANNEL and CM_CREATE_CHANNEL have the reading end of a stream: a
connected socket that the program only reads.  A record is never split.  The stream ends when the
engine ends.  A program that does not read for a long time loses records.

Channel
  Each record is the 8-byte ``cookie`` of a CQ that was armed and has its event.

Connection management
  The engine writes one byte, of any value, when an event is queued and no other one is.  The program
  gets the event itself with CM_GET_EVENT.  If the reply tells that this was the last one
  (``emptied``), the program reads one byte.  So the stream is readable as long as events are queued.

Asynchronous events
"""

SIZES = {'uint8_t': 1, 'char': 1, 'uint16_t': 2, 'uint32_t': 4, 'int32_t': 4, 'uint64_t': 8}


class Member:
    def __init__(self, name, kind, offset, size, count, meaning):
        self.name, self.kind, self.offset, self.size = name, kind, offset, size
        self.count, self.meaning = count, meaning


class Struct:
    def __init__(self, name):
        self.name, self.members, self.size, self.align, self.comment = name, [], 0, 1, ''

    def add(self, name, kind, size, align, count, meaning):
        """@count: length of an array; None: not an array; 0: of unknown length."""
        offset = (self.size + align - 1) // align * align
        if offset != self.size:
            raise SystemExit(f'control-abi.py: {self.name}: hole before {name}')
        self.align = max(self.align, align)
        self.members.append(Member(name, kind, offset, size, count, meaning))
        self.size = offset + size * (1 if count is None else count)

    def close(self):
        if self.size % self.align:
            raise SystemExit(f'control-abi.py: {self.name}: hole at the end')


class Header:
    """The numbers, operations and structures of both headers."""

    def __init__(self, text):
        self.numbers = {name: int(value, 0) for name, value in
                        re.findall(r'^#define (KARST_\w+) +(0x[0-9a-f]+|\d+)u\b', text, re.M)}
        self.ops = [(upper, lower, int(value)) for upper, lower, value in
                    re.findall(r'^\tX\((\w+), (\w+), (\d+)\)', text, re.M)]
        self.kinds = re.findall(r'^\t(KARST_CTL_PIECE_\w+) = (\d+), +/\* (.*?) \*/', text, re.M)
        self.flags = [(name, 1 << int(bit), comment) for name, bit, comment in re.findall(
            r'^#define (KARST_CTL_\w+) +\(1u << (\d+)\)(?: +/\* (.*?) \*/)?$', text, re.M)]
        self.structs = {}
        for match in re.finditer(
                r'(?:/\*\*?((?:(?!\*/).)*)\*/\n)?^struct karst_ctl_(\w+) \{\n(.*?)^\};'
                r'|^KARST_CTL_PLAIN_REPLY\((\w+)\);', text, re.M | re.S):
            comment, name, body, plain = match.groups()
            if plain:
                name, body, comment = plain + '_rsp', '\tuint64_t reserved;\n', ''
            if '(*' in body:
                continue  # of functions: not a message
            struct = self.parse(name, body)
            struct.comment = prose(comment or '')
            self.structs[name] = struct

    def parse(self, name, body):
        struct = Struct(name)
        inner = re.search(r'\tstruct \{\n(.*?)\t\} (\w+)\[(\w+)\];', body, re.S)
        before = body[:inner.start()] if inner else body
        self.members(struct, before)
        if inner:
            part = self.parse(f'{name}.{inner.group(2)}[]', inner.group(1))
            self.structs[part.name] = part
            struct.add(inner.group(2), part.name, part.size, part.align,
                       self.number(inner.group(3)), 'see below')
            self.members(struct, body[inner.end():])
        struct.close()
        return struct

    def members(self, struct, body):
        ahead = ''
        for text in re.split(r'\n(?=\t+[a-z]|\t+/\*)', body):
            match = re.match(r'\s*((?:struct )?\w+) ([^;]+);\s*(.*)', text, re.S)
            if not match:
                ahead += ' ' + prose(text.replace('/*', '').replace('*/', ''))
                continue
            kind, names, comment = match.groups()
            meaning = (ahead + ' ' + prose(re.sub(r'/\*|\*/', '', comment))).strip()
            ahead = ''
            for name in names.split(','):
                array = re.match(r'(\w+)\[(\w*)\]$', name.strip())
                count = None
                if array:
                    name, count = array.group(1), self.number(array.group(2) or '0')
                self.member(struct, kind, name.strip(), count, meaning)

    def member(self, struct, kind, name, count, meaning):
        if kind.startswith('struct '):
            part = self.structs[kind[len('struct ' + PREFIX):]]
            meaning = f'struct ``{part.name}``' + (f': {meaning}' if meaning else '')
            struct.add(name, kind, part.size, part.align, count, meaning)
        else:
            struct.add(name, kind, SIZES[kind], SIZES[kind], count, meaning)

    def number(self, text):
        return int(text) if text.isdigit() else self.numbers[text]


def prose(comment):
    """A C comment as running text, with the names in it marked."""
    lines = [re.sub(r'^\s*\*? ?', '', line) for line in comment.strip().split('\n')]
    text = ' '.join(line.strip() for line in lines).strip()
    text = re.sub(r'@(\w+)', r'``\1``', text)
    text = re.sub(r'\b(enum \w+|struct \w+|KARST_\w+\*?|karst_\w+)', r'``\1``', text)
    return re.sub(r'\s+', ' ', text)


def table(struct):
    out = ['', '.. list-table::', '   :header-rows: 1', '   :widths: 10 10 25 55', '',
           '   * - offset', '     - bytes', '     - name', '     - meaning']
    for m in struct.members:
        name = m.name if m.count is None else f'{m.name}[{m.count or ""}]'
        size = str(m.size) if m.count is None else f'{m.size} each' if m.size != 1 else str(m.count)
        meaning = m.meaning or ('0' if m.name.startswith('reserved') else '')
        out += [f'   * - {m.offset}', f'     - {size}', f'     - ``{name}``',
                ('     - ' + meaning).rstrip()]
    return out


def number_table(rows):
    out = ['', '.. list-table::', '   :header-rows: 1', '   :widths: 35 10 55', '',
           '   * - name', '     - value', '     - meaning']
    for name, value, meaning in rows:
        out += [f'   * - ``{name}``', f'     - {value}', f'     - {meaning}'.rstrip()]
    return out


def section(title, line):
    return ['', title, line * len(title)]


def body_of(header, name, what):
    struct = header.structs[name]
    if [m.name for m in struct.members] == ['reserved']:
        return ['', f'{what}: {struct.size} bytes of 0.']
    out = ['', f'{what}:' + (f' {struct.comment}' if struct.comment else '')]
    out += table(struct)
    inner = header.structs.get(f'{name}.{struct.members[-1].name}[]')
    if inner:
        out += ['', f'Each ``{struct.members[-1].name}``:'] + table(inner)
    return out


def render(header):
    numbers = header.numbers
    out = [HEAD.format(MAX=numbers['KARST_CTL_MAX'], MAX_FDS=numbers['KARST_CTL_MAX_FDS'],
                       HDR=header.structs['hdr'].size).rstrip('\n')]
    out += table(header.structs['hdr'])
    out += ['', f'``magic`` is 0x{numbers["KARST_CTL_MAGIC"]:08x}, ``version`` '
            f'{numbers["KARST_CTL_VERSION"]}.', '', 'Body of a refusal, struct ``fault``:']
    out += table(header.structs['fault'])
    out += section('Parts', '=')
    for name in ('place', 'piece', 'ah_attr', 'qp_attr', 'cm_addr', 'cm_param'):
        struct = header.structs[name]
        out += ['', f'Struct ``{name}``, {struct.size} bytes.' +
                (f'  {struct.comment}' if struct.comment else '')] + table(struct)
    out += ['', 'Kinds of a piece:'] + number_table(header.kinds)
    out += ['', 'Flags of a piece, of CREATE_QP, MODIFY_QP, OPEN_XRCD and CM_ACCEPT:'] + number_table(header.flags)
    out += ['', 'Access flags, states, attribute masks, events: ``lib/base/karst_verbs.h``; they '
            'are those of libibverbs.']
    out += section('Operations', '=')
    out += ['', '.. list-table::', '   :header-rows: 1', '   :widths: 20 40 20 20', '',
            '   * - ``op``', '     - name', '     - request', '     - reply']
    for upper, lower, value in header.ops:
        out += [f'   * - {value}', f'     - {upper}',
                f'     - {header.structs[lower + "_req"].size}',
                f'     - {header.structs[lower + "_rsp"].size}']
    out += ['', 'Bytes are those of the bodies, without pieces.']
    for upper, lower, _ in header.ops:
        out += section(upper, '-')
        out += body_of(header, lower + '_req', 'Request')
        out += body_of(header, lower + '_rsp', 'Reply')
    out.append(STREAMS.rstrip('\n'))
    struct = header.structs['async']
    out[-1] += f'\n  Records of {struct.size} bytes, struct ``async``:'
    out += table(struct)
    return '\n'.join(out) + '\n'


def asserts(header):
    out = ['/* Written by usertools/control-abi.py --asserts. */', '#include "karst_ctl.h"']
    for name, struct in header.structs.items():
        if '.' in name:
            continue
        out.append(f'static_assert(sizeof(struct {PREFIX}{name}) == {struct.size}, "{name}");')
        for m in struct.members:
            out.append(f'static_assert(offsetof(struct {PREFIX}{name}, {m.name}) == {m.offset}, '
                       f'"{name}.{m.name}");')
            if '.' in m.kind:
                for part in header.structs[m.kind].members:
                    out.append(f'static_assert(offsetof(struct {PREFIX}{name}, '
                               f'{m.name}[0].{part.name}) == {m.offset + part.offset}, '
                               f'"{name}.{m.name}.{part.name}");')
    return '\n'.join(out) + '\n'


def main(argv):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    text = ''
    for name in HEADERS:
        with open(os.path.join(root, name), encoding='utf-8') as f:
            text += f.read()
    header = Header(text)
    if argv[1:] == ['--asserts']:
        print(asserts(header), end='')
        return 0
    return generated_files.main(argv, __doc__, root, OUTPUT, render(header))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
