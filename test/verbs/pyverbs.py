#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""rdma-core's own tests, unmodified, over a karstd: pyverbs.py KARSTD KARST-RUN ROOT (TAP).

  --seed N         the seed of the tests' random choices; default: a new one each time
  --only PATTERN   runs some of them, as test_qp.* (the number of passed tests is not checked then)

The tests are those of the package python3-pyverbs.  They run with the system's python3, over IPv4
and one lcore, and over IPv6 and two lcores without namespaces; and with them test_karst.py of this
folder, which is written in the same way.  A test may be skipped if the table "Not offered" of
doc/verbs.rst names it, and must be skipped unless the table says that some runs can do it.  If the
process ends during a test, that test has failed, and another process runs the rest.
"""
import argparse
import fnmatch
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE) # at the end: this file has the name of a package
# pylint: disable=wrong-import-position
from verbs_bed import Engine, Tap, Tools, VethPair
from bed import Clock, HugePages

PACKAGED = '/usr/share/doc/rdma-core/tests'
PYTHON = '/usr/bin/python3' # the one that Debian's pyverbs is for
OWN = 'test_karst'
# Tests of other devices.
OTHERS = ('test_mlx5', 'test_efa', 'test_cuda')
# Needs addresses of a network interface, so it runs over an engine that has an interface.
RDMACM = 'test_rdmacm'
FILE_S = 240
ATTEMPTS = 5 # if the machine has stood still
STILL_S = 0.1 # for this time: queue pairs of rdma-core's tests give up a peer after it
LEAST = 112
# These use an IPv4 group, which cannot be reached from an IPv6 address.
IPV4_ONLY = 'test_rdmacm.*_multicast_*'
HUGE_PAGES = 6 # for two programs, three each
# Indexed by GID index: the kind of GID, karst-run's mode, the number of the engine's lcores.
GIDS = (('IPv4', 'auto', 1), ('IPv6', 'env', 2))
CONF = """[engine]
lcores = {lcores}
huge_pages = no
[port lo]
device = loopback
addresses = 192.0.2.1/24, 2001:db8::1/64
"""
CONF_RDMACM = """[engine]
idle = yield
huge_pages = no
[port eth]
device = kv0
"""
RDMACM_ADDRESSES = (('192.0.2.1/24', '192.0.2.2/24'), ('2001:db8::1/64', '2001:db8::2/64'))


# --- the tests that may be skipped ---

class NotOffered:
    """The table of doc/verbs.rst: rows of (patterns of tests, never offered, why)."""

    def __init__(self, root):
        import docutils.core
        import docutils.nodes as nodes
        with open(os.path.join(root, 'doc', 'verbs.rst'), encoding='utf-8') as f:
            tree = docutils.core.publish_doctree(f.read())
        table, = [t for t in tree.findall(nodes.table)
                  if t.next_node(nodes.title) and t.next_node(nodes.title).astext() == 'Not offered']
        self.rows = []
        for row in table.next_node(nodes.tbody).findall(nodes.row):
            _, tests, why = row.findall(nodes.entry)
            patterns = [n.astext() for n in tests.findall(nodes.literal)]
            self.rows.append((patterns, 'some runs' not in tests.astext(),
                              ' '.join(why.astext().split())))

    def judge(self, test, result, text):
        """@return problems, and the reason why @test was skipped if it may be, else None."""
        found = [(always, why) for patterns, always, why in self.rows
                 if any(fnmatch.fnmatchcase(test, p) for p in patterns)]
        if result == 'skipped':
            if found:
                return [], found[0][1]
            return [f'skipped: {text}', 'doc/verbs.rst does not list it as not offered'], None
        if result == 'passed':
            if any(always for always, _ in found):
                return ['passed, but doc/verbs.rst lists it as not offered'], None
            return [], None
        return [result, text], None

    def strangers(self, tests):
        """@return the patterns that match none of @tests."""
        return [p for patterns, _, _ in self.rows for p in patterns
                if not any(fnmatch.fnmatchcase(t, p) for t in tests)]


# --- running ---

def unpack(folder):
    """Copies the packaged tests and test_karst.py to @folder/tests.  @return the names of the files
    to be run."""
    to = os.path.join(folder, 'tests')
    os.mkdir(to)
    for name in sorted(os.listdir(PACKAGED)):
        opened = gzip.open if name.endswith('.gz') else open
        with opened(os.path.join(PACKAGED, name), 'rb') as src, \
                open(os.path.join(to, name.removesuffix('.gz')), 'wb') as dst:
            shutil.copyfileobj(src, dst)
    shutil.copy(os.path.join(HERE, OWN + '.py'), to)
    return sorted(name[:-3] for name in os.listdir(to)
                  if name.startswith('test_') and name.endswith('.py')
                  and not name.startswith(OTHERS))


class File:
    """The tests of one file: name -> [result, text]."""

    def __init__(self, engine, folder, name, seed, gid, mode):
        self.engine = engine
        self.folder = folder
        self.name = name
        self.mode = mode
        self.words = [PYTHON, '-BP', os.path.join(HERE, 'pyverbs_child.py'), folder, name, 'karst0',
                      str(gid), str(seed)]
        self.tests = {}
        self.done = set()

    def read(self, path):
        """Reads the results that the child has written.  @return the test that was running when
        it ended, or None."""
        at = None
        with open(path, encoding='utf-8') as f:
            for line in f:
                words = json.loads(line)
                for test in words.get('tests', []):
                    self.tests.setdefault(test, ['not run', ''])
                if 'test' in words:
                    at = words['test']
                    self.tests[at] = [words['result'], words.get('text', '')]
                    self.done.add(at)
                if 'end' in words:
                    at = None
        return at

    def once(self, limit_s):
        """Runs the tests that are not done.  @return problems; None: some were not run."""
        path = os.path.join(self.folder, 'results')
        open(path, 'w', encoding='utf-8').close()
        program = self.engine.program([*self.words, path, *sorted(self.done)], self.mode,
                                      env={'PYTHONHASHSEED': '0'}, cwd=self.folder)
        late = program.wait(limit_s)
        at = self.read(path)
        if at is not None:
            self.tests[at] = ['failed', '\n'.join(['the process ended in it', *program.shown()])]
            if not late:
                return None
        return [] if program.status == 0 and at is None else [*late, *program.shown()]

    def attempt(self):
        until = time.monotonic() + FILE_S
        problems = None
        while problems is None:
            problems = self.once(max(until - time.monotonic(), 1))
        return problems

    def run(self, tap, clock):
        """Runs the file, again if the machine stood still.  @return problems of it as a whole."""
        clock.stood_still(STILL_S)
        problems = self.attempt()
        for _ in range(ATTEMPTS - 1):
            failed = [t for t, (result, _) in self.tests.items() if result in ('failed', 'not run')]
            still_s = clock.stood_still(STILL_S)
            if not (failed or problems) or not still_s:
                break
            tap.note(f'the machine stood still for {still_s:.1f} s in {self.name}: once more '
                     f'{" ".join(failed)}')
            self.done.difference_update(failed)
            problems = self.attempt()
        return problems + self.engine.left() + ([] if self.tests else ['there is no test in it'])


def run_rdmacm(args, tap, clock, folder, gid):
    """Runs the tests of rdma_cm.  @return (File, problems)"""
    with VethPair(*RDMACM_ADDRESSES[gid]) as wire:
        engine = Engine(Tools(args.karstd, args.karst_run), folder, CONF_RDMACM,
                        name=f'pycm{gid}', netns=wire.netns[0])
        # GID 0 is the only one; mode "env" does not show the tests the interface's sysfs folder
        file = File(engine, folder, RDMACM, args.seed, 0, 'ns')
        problems = engine.start()
        if not problems:
            problems = file.run(tap, clock) + engine.stop()
        return file, problems


def run_all(args, tap, engine, clock, folder, names, gid):
    """Runs all tests over GID number @gid and reports their TAP points."""
    table, (kind, mode, _) = NotOffered(args.root), GIDS[gid]
    passed, seen = 0, []
    for name in names:
        if not fnmatch.fnmatchcase(name, args.only.split('.')[0]):
            continue
        if name == RDMACM:
            file, problems = run_rdmacm(args, tap, clock, folder, gid)
        else:
            file = File(engine, folder, name, args.seed, gid, mode)
            with HugePages(HUGE_PAGES):
                problems = file.run(tap, clock)
        for test, (result, text) in file.tests.items():
            test = test.removeprefix('tests.')
            if not fnmatch.fnmatchcase(test, args.only):
                continue
            seen.append(test)
            if kind == 'IPv6' and fnmatch.fnmatchcase(test, IPV4_ONLY):
                tap.skip(f'{kind}: {test}', 'its group is one of IPv4')
                continue
            passed += result == 'passed' and name != OWN
            wrong, why = table.judge(test, result, text)
            if why:
                tap.skip(f'{kind}: {test}', why)
            else:
                tap.point(f'{kind}: {test}', wrong)
        tap.point(f'{kind}: {name} as a whole', problems)
    if args.only == '*':
        tap.point(f'{kind}: {passed} of rdma-core\'s tests have passed',
                  [] if passed >= LEAST else [f'{LEAST} are wanted'])
        tap.point(f'{kind}: the table "Not offered" is of tests that there are',
                  [f'{p} is none' for p in table.strangers(seen)])


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument('karstd')
    parser.add_argument('karst_run')
    parser.add_argument('root')
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 31))
    parser.add_argument('--only', default='*')
    args = parser.parse_args(argv[1:])
    tap = Tap()
    if not os.path.isdir(PACKAGED):
        tap.point(f'{PACKAGED} is there', ['it comes with python3-pyverbs, unless dpkg leaves out '
                                           'documentation'])
        return tap.finish()
    with tempfile.TemporaryDirectory(prefix='karst-pyverbs-') as folder:
        with HugePages(HUGE_PAGES) as huge:
            tap.note(f'seed {args.seed}, user {os.geteuid()}, '
                     f'{"with" if huge.there else "without"} huge pages')
        tools, names, clock = Tools(args.karstd, args.karst_run), unpack(folder), Clock()
        for gid, (kind, _, lcores) in enumerate(GIDS):
            cpus = sorted(os.sched_getaffinity(0))[-lcores:]
            engine = Engine(tools, folder, CONF.format(lcores=','.join(map(str, cpus))),
                            name=f'pyv{gid}')
            problems = engine.start()
            tap.point(f'{kind}: a karstd on {len(cpus)} lcores', problems)
            if not problems:
                run_all(args, tap, engine, clock, folder, names, gid)
                tap.point(f'{kind}: the karstd ends well', engine.stop())
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
