#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Checks who includes whom, and the other rules that keep the folders of the tree apart.

  layering.py ROOT          TAP, one point a rule, violations as "# file:line: what"
  layering.py --self-test   the same rules against small trees that break each of them

The rules are those of doc/architecture.rst:

  direction       a folder of lib/ includes public headers (karst_*.h) of the folders below it
                  only, and private headers of nobody else; programs and tests see every public
                  header, and a unit test the private headers of the folder that it mirrors
  rooms           the folders inside of lib/engine in the same way: one includes headers, public or
                  not, of those that it may see, and calls no function of another, whatever
                  header declares it; the files at the top see all
  system headers  in lib/qp and what it stands on only headers that neither block, allocate, log
                  nor tell time
  system calls    the same for the functions themselves
  other stacks    no rte_*.h below lib/engine, no infiniband/*.h anywhere in lib/
  own header      a .c that has a header of its own name includes it first, or the folder's
                  private header (*_priv.h)
  sources         nothing includes a .c
  self-contained  every header compiles alone, with nothing but the folders that it may see
  spdx            every source file says its licence in its first lines
"""
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from points import each  # noqa: E402

# Which folders of lib/ may include which; all may include base.
MAY_SEE = {
    'base': [],
    'wire': [],
    'crc': ['wire'],
    'mem': [],
    'ring': [],
    'qp': ['wire', 'crc', 'ring', 'mem'],
    'cm': ['wire'],
    'smc': ['wire'],
    'sock': [],
    'ctl': ['ring'],
    'client': ['ctl', 'ring'],
    'engine': ['qp', 'cm', 'mem', 'crc', 'ring', 'wire', 'ctl'],
}
WITH_EAL = {'engine'}

# The same for the folders inside a folder of lib/.  The headers at its top are for all of them.
ROOMS = {
    'engine': {
        'util': [],
        'space': ['util'],
        'lcore': ['util', 'space'],
        'net': ['util', 'lcore'],
        'object': ['util', 'lcore', 'net'],
        'cm': ['util', 'lcore', 'net'],
        'session': ['util', 'space', 'lcore', 'net', 'object', 'cm'],
        'observe': ['util', 'space', 'lcore', 'net', 'object', 'cm', 'session'],
    },
}
# These use the system: sockets, descriptors, memory of processes.
WITH_SYSTEM = WITH_EAL | {'ctl', 'client', 'sock'}

# Headers that anything below the engine may use: language, compiler and freestanding helpers.
HARMLESS = {
    'assert.h', 'byteswap.h', 'cpuid.h', 'endian.h', 'errno.h', 'inttypes.h', 'limits.h',
    'stdalign.h', 'stdarg.h', 'stdatomic.h', 'stdbool.h', 'stddef.h', 'stdint.h', 'string.h',
    'sys/queue.h', # macros
    'immintrin.h', 'x86intrin.h', 'emmintrin.h', 'smmintrin.h', 'wmmintrin.h', 'tmmintrin.h',
    'arm_neon.h', 'arm_acle.h',
}
# Folders that may use more, and what for.
ALSO = {
    'base': {'stdio.h',                    # the default log sink
             'sys/auxv.h', 'asm/hwcap.h'}, # processor features of aarch64
    'crc': {'stdlib.h'},                   # getenv(): the kernel named by KARST_CRC
    'ring': {'atomic'},                    # for programs in C++
}
BANNED_CALLS = re.compile(
    r'(?<![\w.>])(malloc|calloc|realloc|aligned_alloc|posix_memalign|free|alloca|strdup|'
    r'printf|fprintf|vprintf|vfprintf|puts|fputs|perror|syslog|'
    r'clock_gettime|clock|gettimeofday|time|nanosleep|usleep|sleep|__rdtsc|_rdtsc|'
    r'__builtin_ia32_rdtsc|getrandom|rand|random|open|close|read|write|mmap|munmap|ioctl|syscall|'
    r'pthread_\w+|mtx_\w+|exit|_exit)\s*\(')
LOG_SINK = 'lib/base/log.c'

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
SOURCE_DIRS = ('lib', 'app', 'drivers', 'test', 'usertools', 'config')
SPDX_SUFFIXES = ('.c', '.h', '.def', '.py', '.sh', '.rst', '.ini', '.build', '.S', '.map')
# Bodies of code that are written once and included by one .c file for each instruction set, which
# defines macros for them: they do not compile alone.
TEMPLATES = {'lib/crc/' + name for name in (
    'crc_fold.h', 'crc_fold_icrc.h', 'crc_burst.h', 'crc_head16.h', 'crc_known.h')}


class Tree:
    """The source files below a root, read once."""

    def __init__(self, root):
        self.root = root
        self.text = {}
        self.kept = {}
        for top in SOURCE_DIRS:
            for folder, dirs, names in os.walk(os.path.join(root, top)):
                dirs[:] = sorted(d for d in dirs if d not in ('corpus', '__pycache__'))
                for name in sorted(names):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    if name.endswith(SPDX_SUFFIXES) or name == 'meson.build':
                        with open(os.path.join(root, path), encoding='utf-8',
                                  errors='replace') as f:
                            self.text[path] = f.read()
        self.libs, self.rooms, self.folders = {}, {}, {}
        for path in self.text:
            lib, name = lib_of(path), os.path.basename(path)
            if lib is None:
                continue
            if path.endswith(('.h', '.def')):
                self.libs.setdefault(name, lib)
            self.rooms.setdefault((lib, name), room_of(path))
            self.folders.setdefault(lib, {os.path.join('lib', lib)}).add(os.path.dirname(path))

    def lib_of_header(self, path, header):
        """The folder of lib/ that has @header, included by @path; None if there is no such
        folder."""
        beside = os.path.normpath(os.path.join(os.path.dirname(path), header))
        if beside in self.text:
            return lib_of(beside)
        if os.path.dirname(header) and not is_public(header):
            return None # a header of the system, like linux/netlink.h
        return self.libs.get(os.path.basename(header))

    def room_of_header(self, path, header, lib):
        """The room of @lib that has @header, included by @path; None if there is no such room."""
        beside = os.path.normpath(os.path.join(os.path.dirname(path), header))
        if beside in self.text:
            return room_of(beside) if lib_of(beside) == lib else None
        return self.rooms.get((lib, os.path.basename(header)))

    def folders_of(self, lib):
        """The folder of @lib, and the folders in it."""
        return sorted(self.folders.get(lib, {os.path.join('lib', lib)}))

    def c_files(self):
        return [p for p in self.text if p.endswith(('.c', '.h'))]

    def includes(self, path):
        """(line, whether in <>, header) of each #include; cached, as each rule asks for all of
        them."""
        if path not in self.kept:
            self.kept[path] = [
                (number, match.group(1) == '<', match.group(2))
                for number, line in enumerate(self.text[path].splitlines(), 1)
                if '#' in line and (match := INCLUDE.match(line))]
        return self.kept[path]


def lib_of(path):
    parts = path.split(os.sep)
    return parts[1] if parts[0] == 'lib' and len(parts) > 2 else None


def room_of(path):
    """The folder of @path inside of its folder of lib/; None: it is at the top."""
    parts = path.split(os.sep)
    return parts[2] if lib_of(path) and len(parts) > 3 else None


def is_public(header):
    return os.path.basename(header).startswith('karst_') or os.path.basename(header) == 'karst.h'


def mirrored_lib(path):
    """The folder of lib/ whose private headers a test may see."""
    parts = path.split(os.sep)
    return parts[2] if parts[:2] == ['test', 'unit'] and len(parts) > 3 else None


def check_direction(tree):
    for path in tree.c_files():
        own = lib_of(path)
        if own and own not in MAY_SEE:
            yield f'{path}: lib/{own} is not in the layering; add it to MAY_SEE'
            continue
        for number, _, header in tree.includes(path):
            lib = tree.lib_of_header(path, header)
            if lib is None:
                continue
            public = is_public(header)
            if own:
                if lib not in MAY_SEE[own] + ['base', own]:
                    yield f'{path}:{number}: lib/{own} may not include lib/{lib} ({header})'
                elif lib != own and not public:
                    yield f'{path}:{number}: {header} is private to lib/{lib}'
            elif not public and mirrored_lib(path) != lib:
                yield f'{path}:{number}: {header} is private to lib/{lib}'


# A function is defined where its name is at the beginning of a line.
DEFINITION = re.compile(r'^(\w+)\(', re.MULTILINE)
USE = re.compile(r'(?<!struct )(?<!->)(?<!\.)\b\w+') # or by its address


def functions_of(tree, lib):
    """The room that defines each function of @lib which others can call."""
    where, twice = {}, set()
    for path in tree.c_files():
        if lib_of(path) != lib or not path.endswith('.c'):
            continue
        code = COMMENT_OR_STRING.sub(blank, tree.text[path])
        for match in DEFINITION.finditer(code):
            name, before = match.group(1), code[:match.start()].rstrip('\n')
            if before[before.rfind('\n') + 1:].startswith('static '):
                continue
            if where.setdefault(name, room_of(path)) != room_of(path):
                twice.add(name)
    return {name: room for name, room in where.items() if name not in twice}


def check_rooms(tree):
    functions = {lib: functions_of(tree, lib) for lib in ROOMS}
    for path in tree.c_files():
        lib, own = lib_of(path), room_of(path)
        if own is None:
            continue
        if own not in ROOMS.get(lib, {}):
            yield f'{path}: lib/{lib}/{own} is not in the layering; add it to ROOMS'
            continue
        seen = ROOMS[lib][own] + [own]
        for number, _, header in tree.includes(path):
            room = tree.room_of_header(path, header, lib)
            if room is not None and room not in seen:
                yield f'{path}:{number}: lib/{lib}/{own} may not include lib/{lib}/{room} ({header})'
        code = COMMENT_OR_STRING.sub(blank, tree.text[path])
        for number, line in enumerate(code.splitlines(), 1):
            for name in USE.findall(line) if path.endswith('.c') else []:
                if name in functions[lib] and functions[lib][name] not in seen:
                    yield (f'{path}:{number}: lib/{lib}/{own} may not call {name}() of lib/{lib}/'
                           f'{functions[lib][name] or ""}')


def without_system(tree):
    for path in tree.c_files():
        lib = lib_of(path)
        if lib and lib not in WITH_SYSTEM:
            yield path, lib


def check_system_headers(tree):
    for path, lib in without_system(tree):
        for number, system, header in tree.includes(path):
            if system and header not in HARMLESS | ALSO.get(lib, set()):
                yield f'{path}:{number}: <{header}> below lib/engine'


def blank(match):
    return re.sub(r'[^\n]', ' ', match.group(0))


def check_system_calls(tree):
    for path, _ in without_system(tree):
        if path == LOG_SINK:
            continue
        code = COMMENT_OR_STRING.sub(blank, tree.text[path])
        for number, line in enumerate(code.splitlines(), 1):
            for match in BANNED_CALLS.finditer(line):
                yield f'{path}:{number}: {match.group(1)}() below lib/engine'


def check_other_stacks(tree):
    for path in tree.c_files():
        lib = lib_of(path)
        if not lib:
            continue
        for number, _, header in tree.includes(path):
            if header.startswith('infiniband/') or header.startswith('rdma/'):
                yield f'{path}:{number}: {header} in lib/'
            if os.path.basename(header).startswith('rte_') and lib not in WITH_EAL:
                yield f'{path}:{number}: {header} below lib/engine'


def check_own_header(tree):
    for path in tree.c_files():
        if not path.endswith('.c') or not lib_of(path):
            continue
        folder, name = os.path.split(path)
        stem = name[:-2]
        own = [h for h in (f'karst_{stem}.h', f'{stem}.h')
               if os.path.join(folder, h) in tree.text]
        included = [header for _, _, header in tree.includes(path)]
        first = included[0] if included else ''
        if own and first not in own and not (
                first.endswith('_priv.h') and os.path.join(folder, first) in tree.text):
            yield f'{path}: includes {included[0] if included else "nothing"} before {own[0]}'


def check_sources(tree):
    for path in tree.c_files():
        for number, _, header in tree.includes(path):
            if header.endswith(('.c', '.cc')):
                yield f'{path}:{number}: includes {header}'


def check_spdx(tree):
    for path, text in tree.text.items():
        if 'SPDX-License-Identifier: BSD-3-Clause' not in '\n'.join(text.splitlines()[:4]):
            yield f'{path}:1: no SPDX-License-Identifier: BSD-3-Clause'


def pkg_config_cflags(package):
    run = subprocess.run(['pkg-config', '--cflags', package], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=False)
    return shlex.split(run.stdout) if run.returncode == 0 else None


def x86():
    return os.uname().machine == 'x86_64'


def other_isa(path):
    """A header for the other architecture cannot be compiled here."""
    name = os.path.basename(path)
    return ('x86' in name and not x86()) or (('arm' in name or 'neon' in name) and x86())


def compile_alone(tree, path, flags):
    """What is wrong with a header, or None."""
    run = subprocess.run(
        [*shlex.split(os.environ.get('CC', 'cc')), '-std=gnu11', '-D_GNU_SOURCE', '-Wall',
         '-Wno-unused-function', '-Werror', '-fsyntax-only', *flags, '-x', 'c', '-include',
         os.path.join(tree.root, path), '/dev/null'],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if run.returncode == 0:
        return None
    first = next((line for line in run.stdout.splitlines() if 'error' in line), run.stdout)
    return f'{path}: does not compile alone: {first}'


def check_self_contained(tree):
    dpdk = pkg_config_cflags('libdpdk')
    jobs = []
    for path in tree.c_files():
        lib = lib_of(path)
        if (not path.endswith('.h') or not lib or lib not in MAY_SEE or other_isa(path) or
                path in TEMPLATES):
            continue
        flags = ['-I' + os.path.join(tree.root, d)
                 for lib_seen in MAY_SEE[lib] + ['base', lib] for d in tree.folders_of(lib_seen)]
        if lib in WITH_EAL:
            if dpdk is None:
                continue  # without DPDK the engine is not built either
            flags += ['-I' + os.path.join(tree.root, 'config/dpdk'), *dpdk]
        if x86():
            flags += ['-march=x86-64-v2'] if lib != 'crc' else \
                ['-march=x86-64-v4', '-mpclmul', '-mvpclmulqdq']
        jobs.append((path, flags))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from filter(None, pool.map(lambda job: compile_alone(tree, *job), jobs))


CHECKS = {
    'direction': check_direction,
    'rooms': check_rooms,
    'system headers': check_system_headers,
    'system calls': check_system_calls,
    'other stacks': check_other_stacks,
    'own header': check_own_header,
    'sources': check_sources,
    'self-contained': check_self_contained,
    'spdx': check_spdx,
}


def run_checks(root):
    """Prints the TAP of the real tree."""
    tree = Tree(root)
    return each({name: lambda check=check: list(check(tree)) for name, check in CHECKS.items()})


# --- self-test: each tree breaks one rule, and exactly that rule must find it ---

SPDX = '/* SPDX-License-Identifier: BSD-3-Clause */\n'
CLEAN = {
    'lib/base/karst_base.h': SPDX + '#include <stdint.h>\n',
    'lib/wire/karst_wire.h': SPDX + '#include "karst_base.h"\nuint32_t karst_wire(void);\n',
    'lib/wire/wire.c': SPDX + '#include "karst_wire.h"\n#include <string.h>\n'
                              '/* malloc( in a comment */\nuint32_t karst_wire(void)'
                              '{ return sizeof("free(");}\n',
    'lib/wire/layout.h': SPDX + '#include <stddef.h>\n',
    'lib/qp/qp.c': SPDX + '#include "karst_wire.h"\n',
    'lib/engine/lcore.c': SPDX + '#include <rte_mbuf.h>\n#include <time.h>\n',
    'lib/engine/karst_engine.h': SPDX + 'void karst_engine_up(void);\n',
    'lib/engine/util/arena.h': SPDX + '#include "karst_engine.h"\nvoid eng_arena(void);\n',
    'lib/engine/util/arena.c': SPDX + '#include "arena.h"\nvoid\neng_arena(void)\n{\n}\n',
    'lib/engine/net/port.h': SPDX + '#include "arena.h"\nvoid eng_port(void);\n',
    'lib/engine/net/port.c': SPDX + '#include "port.h"\nvoid\neng_port(void)\n{\n'
                                    '\teng_arena();\n}\nvoid\nkarst_engine_up(void)\n{\n}\n'
                                    'static void\nfind(void)\n{\n}\n',
    'app/tool/main.c': SPDX + '#include "karst_wire.h"\n#include <stdlib.h>\n'
                              '#include <sys/layout.h>\n',
    'test/unit/wire/test_wire.c': SPDX + '#include "karst_wire.h"\n#include "layout.h"\n',
}
BREAKS = [
    ('direction', 'lib/base/up.c', SPDX + '#include "karst_wire.h"\n'),
    ('direction', 'lib/wire/climb.c', SPDX + '#include "../qp/karst_up.h"\n',
     'lib/qp/karst_up.h', SPDX),
    ('direction', 'lib/qp/private.c', SPDX + '#include "layout.h"\n'),
    ('direction', 'app/tool/private.c', SPDX + '#include "layout.h"\n'),
    ('direction', 'test/unit/qp/test_private.c', SPDX + '#include "layout.h"\n'),
    ('direction', 'lib/newcomer/x.c', SPDX),
    ('rooms', 'lib/engine/util/up.c', SPDX + '#include "port.h"\n'),
    ('rooms', 'lib/engine/util/up.h', SPDX + '#include "../net/port.h"\n'),
    ('rooms', 'lib/engine/util/call.c', SPDX + 'void eng_port(void);\nvoid\nf(void)\n{\n'
                                               '\teng_port(/* of net */);\n}\n'),
    ('rooms', 'lib/engine/util/public.c', SPDX + '#include "karst_engine.h"\nvoid\nf(void)\n{\n'
                                                 '\tkarst_engine_up();\n}\n'),
    ('rooms', 'lib/engine/cm/beside.c', SPDX + '#include "owner.h"\n',
     'lib/engine/object/owner.h', SPDX),
    ('rooms', 'lib/engine/newcomer/x.c', SPDX),
    ('rooms', 'lib/qp/newcomer/x.c', SPDX),
    ('system headers', 'lib/wire/clock.c', SPDX + '#include <time.h>\n'),
    ('system headers', 'lib/qp/threads.c', SPDX + '# include <pthread.h>\n'),
    ('system headers', 'lib/mem/alloc.c', SPDX + '#include <stdlib.h>\n'),
    ('system calls', 'lib/qp/alloc.c', SPDX + 'void *f(void) { return malloc(1); }\n'),
    ('system calls', 'lib/crc/log.c', SPDX + 'void f(void) { printf ("x"); }\n'),
    ('system calls', 'lib/mem/now.c', SPDX + 'int f(void) { return clock_gettime(0, 0); }\n'),
    ('other stacks', 'lib/ring/rte.c', SPDX + '#include "rte_ring.h"\n'),
    ('other stacks', 'lib/engine/verbs.c', SPDX + '#include <infiniband/verbs.h>\n'),
    ('own header', 'lib/wire/wire.c', SPDX + '#include <string.h>\n#include "karst_wire.h"\n'),
    ('sources', 'test/unit/wire/test_inside.c', SPDX + '#include "../../../lib/wire/wire.c"\n'),
    ('self-contained', 'lib/wire/needy.h', SPDX + 'static inline uint32_t f(void) { return 0; }\n'),
    ('spdx', 'lib/wire/bare.c', '/* nothing */\n'),
    ('spdx', 'test/unit/meson.build', "subdir('wire')\n"),
]


def write_tree(root, files):
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, 'w', encoding='utf-8') as f:
            f.write(text)


def broken_rules(files):
    """Names of the rules that @files break."""
    with tempfile.TemporaryDirectory() as root:
        write_tree(root, files)
        tree = Tree(root)
        return {name for name, check in CHECKS.items() if list(check(tree))}


def self_test():
    cases = [('a clean tree breaks nothing', set(), CLEAN)]
    for rule, *pairs in BREAKS:
        files = dict(CLEAN)
        files.update(zip(pairs[::2], pairs[1::2]))
        cases.append((f'{rule}: {pairs[0]}', {rule}, files))
    bad = 0
    print(f'1..{len(cases)}')
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda case: broken_rules(case[2]), cases))
    for number, ((name, expected, _), found) in enumerate(zip(cases, results), 1):
        good = found == expected
        print(f'{"ok" if good else "not ok"} {number} - {name}')
        if not good:
            print(f'# expected {sorted(expected)}, found {sorted(found)}')
        bad += not good
    return 1 if bad else 0


def main(argv):
    if argv[1:] == ['--self-test']:
        return self_test()
    if len(argv) == 2 and not argv[1].startswith('-'):
        return run_checks(argv[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == '__main__':
    sys.exit(main(sys.argv))
