#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The performance record, measured in short: bench.py USERTOOLS KARST-PERF (TAP).

That a record of each kind of case is whole, that rounds are added to it, and that two builds are measured
by turns.  No figure is judged.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import HANG_S, Tap  # noqa: E402

# embedded, over a daemon with TCP in addition, from malloc, round trips, loss, connections, CRC,
# karst-fwd
CASES = 'embedded write 64 over 10 q,kernel TCP 1K,write 64K from malloc,embedded read 64 round,loss 1/64,' \
        'connections embedded,CRC and copy 64 ,karst-fwd roce-check,karst-fwd gen'
# some of those, for checks in which the kind does not matter
FEW = 'embedded write 64 over 10 q,CRC and copy 64 ,karst-fwd gen'
FEW_GROUPS = {'queue pairs', 'crc', 'forwarding'}
GROUPS = {'queue pairs', 'throughput', 'memory', 'latency', 'loss', 'connections', 'crc', 'forwarding'}


class Bench:
    def __init__(self, usertools, perf, folder):
        self.usertools, self.folder = usertools, folder
        self.build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(perf))))
        self.json = os.path.join(folder, 'r.json')
        sys.path.insert(0, usertools)
        import karst_record
        self.record = karst_record

    def run(self, *words, build=None, cases=CASES):
        return subprocess.run([sys.executable, os.path.join(self.usertools, 'bench.py'), '--only', 'record',
                               '--cases', cases, *words, build or self.build], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)

    def judge(self, run, path, rounds, groups=GROUPS):
        """Problems of a run that has left a record of @rounds rounds."""
        if run.returncode != 0:
            return [f'exit status {run.returncode}: {run.stdout}{run.stderr}']
        try:
            found = self.record.load(path)
        except self.record.Bad as e:
            return [str(e), run.stderr]
        problems = [] if {case['group'] for case in found['cases']} == groups else [
            str([case['name'] for case in found['cases']])]
        for case in found['cases']:
            if [r['round'] for r in case['runs']] != list(range(rounds)) or case['failed'] or \
                    not all(r['value'] > 0 for r in case['runs']):
                problems.append(f"{case['name']}: {case['runs']} failed {case['failed']}")
            elif case['group'] == 'latency' and not all(
                    0 < r['latency_ns']['p50'] <= r['latency_ns']['p99'] for r in case['runs']):
                problems.append(f"{case['name']}: {case['runs']}")
            elif case['name'] == 'karst-fwd roce-check 64' and not all(r['beside'] > 0 for r in case['runs']):
                problems.append(f"{case['name']}: {case['runs']}")
            if f"{case['name']} " not in run.stdout:
                problems.append(f"{case['name']} is not shown")
        unknown = [name for name in ('compiler', 'buildtype', 'dpdk') if not found['build'][name]]
        if unknown:
            problems.append(f'of the build is not known: {unknown}')
        if found['settings']['rounds'] != rounds or found['seconds'] <= 0:
            problems.append(f"{found['settings']} {found['seconds']}")
        return problems


def record(tap, bench):
    run = bench.run('--seconds', '0.02', '--runs', '1', '--json', bench.json)
    tap.point('a record of each kind of case', bench.judge(run, bench.json, 1))
    run = bench.run('--seconds', '0.02', '--runs', '1', '--json', bench.json, '--append')
    tap.point('a round is added', bench.judge(run, bench.json, 2))
    with open(bench.json, encoding='utf-8') as f:
        before = f.read()
    run = bench.run('--seconds', '0.03', '--runs', '1', '--json', bench.json, '--append')
    with open(bench.json, encoding='utf-8') as f:
        same = f.read() == before
    tap.point('none is added to what was measured otherwise', [] if run.returncode == 2 and same and
              '--append: runs of 0.02 s' in run.stderr else [f'{run.returncode}: {run.stderr}'])


def by_turns(tap, bench):
    path = os.path.join(bench.folder, 't.json')
    run = bench.run('--seconds', '0.02', '--runs', '2', '--json', path, '--against', bench.build, cases=FEW)
    problems = bench.judge(run, path, 2, FEW_GROUPS) + bench.judge(run, path + '.before', 2, FEW_GROUPS)
    if not problems:
        new, old = bench.record.load(path), bench.record.load(path + '.before')
        at = {(name, r['round']): r['at'] for name, found in (('new', new), ('old', old))
              for r in found['cases'][0]['runs']}
        if new['session'] != old['session'] or not at['new', 0] < at['old', 0] < at['old', 1] < at['new', 1]:
            problems.append(f'not by turns: {at}')
        # two rounds give no interval
        if 'unsure' not in run.stdout or 'too few runs' not in run.stdout:
            problems.append(run.stdout)
    tap.point('two builds by turns, and what that says', problems)


def interrupted(tap, bench):
    """Interrupted in the second of many rounds."""
    path = os.path.join(bench.folder, 'i.json')
    with subprocess.Popen([sys.executable, os.path.join(bench.usertools, 'bench.py'), '--only', 'record', '--cases',
                           'CRC 64 ', '--seconds', '0.02', '--runs', '1000', '--json', path, bench.build],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if 'round 2 of 1000' in line:
                process.terminate()
                break
        said = process.stderr.read()
    problems = [] if process.returncode == 1 and 'interrupted' in said else [f'{process.returncode}: {said}']
    try:
        rounds = bench.record.load(path)['settings']['rounds']
        problems += [] if 2 <= rounds < 1000 else [f'{rounds} rounds']
    except bench.record.Bad as e:
        problems.append(str(e))
    tap.point('interrupted it keeps what was measured', problems)


def failures(tap, bench):
    broken = os.path.join(bench.folder, 'broken')
    os.makedirs(os.path.join(broken, 'app', 'karst-perf'))
    program = os.path.join(broken, 'app', 'karst-perf', 'karst-perf')
    with open(program, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\nexit 3\n')
    os.chmod(program, 0o755)
    path = os.path.join(bench.folder, 'f.json')
    run = bench.run('--seconds', '0.02', '--runs', '1', '--json', path, build=broken)
    problems = [] if run.returncode == 1 and 'exit status 3' in run.stderr else [f'{run.returncode}: {run.stderr}']
    try:
        found = bench.record.load(path)
        problems += [case['name'] for case in found['cases'] if case['failed'] != 1 or case['runs']]
    except bench.record.Bad as e:
        problems.append(str(e))
    tap.point('a build that fails is a failure, and in the record', problems)
    run = bench.run('--seconds', '0.02', '--runs', '1', '--against', broken, cases=FEW)
    tap.point('against it nothing is slower', [] if run.returncode == 1 and 'missing' in run.stdout and
              'slower' not in run.stdout else [f'{run.returncode}: {run.stdout}'])
    problems = []
    for words, build in ((('--seconds', '0'), None), (('--append',), None), ((), bench.folder), (('--only', 'bulk', '--json', 'x'), None),
                         (('--cases', 'no such'), None), (('--against', bench.folder), None)):
        run = bench.run(*words, build=build)
        if run.returncode != 2:
            problems.append(f'{words} {build}: {run.returncode}: {run.stderr}')
    tap.point('wrong words are refused', problems)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    sys.dont_write_bytecode = True
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(argv[1], argv[2], folder)
        record(tap, bench)
        by_turns(tap, bench)
        interrupted(tap, bench)
        failures(tap, bench)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
