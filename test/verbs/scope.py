#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Link-local addresses, which name their interface: scope.py KARSTD KARST-RUN (TAP).

Two ports have the same own address, and their peers have the same address, too: only the scope says
which device is meant.  A program binds and resolves with librdmacm; the peers are kernels.
"""
import sys
import tempfile

from verbs_bed import Engine, Tap, Tools, VethPair

HERE, ONLY_1, THERE = 'fe80::a', 'fe80::c', 'fe80::b'
CONF = ''.join(f'[port p{n}]\ndevice = kv{n}\ndriver = af_packet\n' for n in (0, 1))
CONF = f'[engine]\nidle = sleep\n{CONF}'

# Each argument is HOW ADDRESS INTERFACE PORT-NUMBER.  The program prints a line for each: an errno,
# or 0 and the device and interface of the identifier's own address.  HOW "from": resolves the
# peer's address from this address.  The identifiers are not destroyed.
PROGRAM = """
import ctypes, errno, socket, struct, sys
verbs = ctypes.CDLL('libibverbs.so.1')
verbs.ibv_get_device_list.restype = ctypes.c_void_p
verbs.ibv_get_device_list(None)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
cm = ctypes.CDLL('librdmacm.so.1', use_errno=True)
def at(address, what=ctypes.c_void_p):
    return what.from_address(address).value
def scope_of(name):
    return int(name) if name.isdigit() else socket.if_nametoindex(name)
def run(how, ip, name, number):
    ident = ctypes.c_void_p()
    cm.rdma_create_id(None, ctypes.byref(ident), None, 0x106)
    def sockaddr(ip, number):
        return struct.pack('=HHI16sI', socket.AF_INET6, socket.htons(int(number)), 0,
                           socket.inet_pton(socket.AF_INET6, ip), scope_of(name))
    if how == 'bind':
        ret = cm.rdma_bind_addr(ident, sockaddr(ip, number))
    elif how == 'from':
        ret = cm.rdma_resolve_addr(ident, sockaddr(ip, number), sockaddr('fe80::b', 7), 5000)
    else:
        ret = cm.rdma_resolve_addr(ident, None, sockaddr(ip, number), 5000)
    if ret:
        return errno.errorcode[ctypes.get_errno()]
    device = verbs.ibv_get_device_name(ctypes.c_void_p(at(at(ident.value))))
    scope = at(ident.value + 32 + 24, ctypes.c_uint32)
    return f'0 {device.decode()} {socket.if_indextoname(scope) if scope else "any"}'
for words in sys.argv[1:]:
    print(run(*words.split()), flush=True)
"""

CASES = [ # argument, line that the program must print
    (f'bind {HERE} kv0 0', '0 karst0 kv0'),
    (f'bind {HERE} kv1 0', '0 karst1 kv1'),
    (f'bind {ONLY_1} kv1 0', '0 karst1 kv1'),
    (f'bind {ONLY_1} kv0 0', 'ENODEV'),
    (f'bind {HERE} lo 0', 'ENODEV'),
    (f'bind {HERE} 4711 0', 'ENODEV'),
    (f'bind {HERE} 0 0', 'EINVAL'),
    (f'bind {ONLY_1} 0 0', 'EINVAL'),
    (f'bind {THERE} 0 0', 'EINVAL'),
    (f'bind {HERE} kv0 7000', '0 karst0 kv0'),
    (f'bind {HERE} kv1 7000', '0 karst1 kv1'),
    (f'bind {HERE} kv1 7000', 'EADDRINUSE'),
    (f'resolve {THERE} kv0 7', '0 karst0 kv0'),
    (f'resolve {THERE} kv1 7', '0 karst1 kv1'),
    (f'resolve {HERE} kv0 7', '0 karst0 kv0'),
    (f'resolve {HERE} kv1 7', '0 karst1 kv1'),
    (f'resolve {THERE} lo 7', 'ENODEV'),
    (f'resolve {THERE} 4711 7', 'ENODEV'),
    (f'resolve {THERE} 0 7', '0 karst0 kv0'),
    (f'from {HERE} kv0 0', '0 karst0 kv0'),
    (f'from {HERE} kv1 0', '0 karst1 kv1'),
    (f'from {HERE} 0 0', 'EINVAL'),
]


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tap, tools = Tap(), Tools(*argv[1:3])
    with tempfile.TemporaryDirectory(prefix='karst-scope-') as folder, \
            VethPair(HERE + '/64', THERE + '/64') as wire:
        here, there = wire.netns
        wire.ip(f'-n {here} link add kv1 type veth peer name kv1 netns {there}')
        for netns, addresses in ((here, (HERE, ONLY_1)), (there, (THERE,))):
            wire.ip(f'-n {netns} link set kv1 addrgenmode none')
            for address in addresses:
                wire.ip(f'-n {netns} addr add {address}/64 dev kv1 nodad')
            wire.ip(f'-n {netns} link set kv1 up')
        engine = Engine(tools, folder, CONF, 'scope', here)
        try:
            problems = engine.start() or engine.link_up()
            tap.point('a karstd with two ports', problems)
            if not problems:
                cases(tap, engine)
        finally:
            tap.point('it ends', engine.stop())
    return tap.finish()


def cases(tap, engine):
    program = engine.program([sys.executable, '-c', PROGRAM, *(words for words, _ in CASES)])
    problems = program.wait()
    said = program.text().splitlines()
    for i, (words, wanted) in enumerate(CASES):
        got = said[i] if i < len(said) else 'nothing'
        tap.point(words, [] if got == wanted else [f'it says {got}, not {wanted}'])
    problems += engine.left()
    tap.point('nothing is left', problems + (program.shown() if problems else []))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
