#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Measures karst on this machine: the performance record, and the figures that it is meant to reach.

  record   each case of bench_cases.py once a round, so that its runs are spread over the whole time and
           see what the machine sees; --json writes it, for karst-plot and karst-compare
  others   ratios beside their goals (bench_goals.py); the commands are printed, to be repeated by hand

--against BUILD measures another build's record by turns with this one, for "before and after", and says
as karst-compare does what has changed.  BUILD is a build directory; release builds, please.
Interrupted, it ends behind the command that runs, and keeps what was measured.
Nothing here is a test: the exit status is 1 if something could not be measured or, with --against, has
become slower; 2 wrong arguments.
"""
import argparse
import datetime
import os
import signal
import sys
import time
import uuid

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import karst_record  # noqa: E402
from bench_cases import CASES, Runner  # noqa: E402
from bench_goals import PARTS, Bench  # noqa: E402
from karst_verdict import compare, show  # noqa: E402


def commands(words):
    """{command: [case]} of the cases whose group or name has one of the words, separated by commas."""
    found = {}
    for case in CASES:
        if any(word in case.name or word in case.group for word in words.split(',')):
            found.setdefault(case.command, []).append(case)
    return found


class Recorder:
    """The record of one build, while it is measured."""

    def __init__(self, build, args, session):
        self.runner = Runner(build, args.seconds, time.monotonic())
        self.session, self.args = session, args
        self.facts = {'machine': karst_record.machine(), 'build': karst_record.build_facts(build)}
        self.began = datetime.datetime.now(datetime.timezone.utc)
        self.noise, self.load = karst_record.Noise(), [round(n, 2) for n in os.getloadavg()]
        self.cases, self.first, self.goals, self.seconds, self.later = {}, {}, [], 0, 0

    def go_on(self, record):
        """Adds to a record of the same build on the same machine.  Bad: the record is of another one."""
        for what, names in (('machine', karst_record.SAME_MACHINE), ('build', karst_record.BUILD)):
            for name in names:
                if record[what][name] != self.facts[what][name]:
                    raise karst_record.Bad(f'--append: {what}, {name}: {record[what][name]} there, '
                                           f'{self.facts[what][name]} here')
        if record['settings']['seconds'] != self.args.seconds:
            raise karst_record.Bad(f"--append: runs of {record['settings']['seconds']:g} s there")
        before = datetime.datetime.strptime(record['began'], '%Y-%m-%dT%H:%M:%S%z')
        self.session, self.load = record['session'], record['noise']['load_before']
        self.later = (self.began - before).total_seconds()
        self.began, self.seconds = before, record['seconds']
        self.cases, self.goals = {case['name']: case for case in record['cases']}, record['goals']
        self.first = {name: 1 + max((run['round'] for run in case['runs']), default=-1)
                      for name, case in self.cases.items()}

    def measure(self, command, cases, number):
        for case in cases:
            self.cases.setdefault(case.name, {
                'name': case.name, 'group': case.group, 'unit': case.unit, 'better': case.better, 'x': case.x,
                'command': command, 'runs': [], 'failed': 0})
        at = self.later + time.monotonic() - self.runner.began
        self.noise.lap()
        found = self.runner.run(command, [case.figure for case in cases])
        others, stolen = self.noise.lap()
        for i, case in enumerate(cases):
            if not found:
                self.cases[case.name]['failed'] += 1
                continue
            value, more = found[i]
            self.cases[case.name]['runs'].append({'round': self.first.get(case.name, 0) + number, 'at': round(at, 1), 'value': value,
                                                  'others': others, 'stolen': stolen, **more})

    def record(self, goals=()):
        cases = list(self.cases.values())
        rounds = max((run['round'] + 1 for case in cases for run in case['runs']), default=0)
        return {
            'format': karst_record.FORMAT, 'version': karst_record.VERSION, 'session': self.session,
            'began': self.began.strftime('%Y-%m-%dT%H:%M:%SZ'),
            'seconds': round(self.seconds + time.monotonic() - self.runner.began, 1),
            'settings': {'seconds': self.args.seconds, 'rounds': rounds, 'cases': self.args.cases},
            **self.facts, 'noise': karst_record.noise(cases, self.load), 'cases': cases, 'goals': list(goals) or self.goals}

    def failed(self):
        return any(case['failed'] for case in self.cases.values())


class Interrupted:
    """Whether SIGINT or SIGTERM has arrived: the program then ends after the running command."""

    def __init__(self):
        self.told = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.tell)

    def tell(self, *_):
        self.told = True

    def over(self):
        """From now on a signal ends the program at once."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def measure_records(args, interrupted):
    """Recorders of this build and of the other one, measured by turns."""
    session = uuid.uuid4().hex
    builds = [Recorder(build, args, session) for build in (args.build, args.against) if build]
    for recorder, path in zip(builds, (args.json, f'{args.json}.before')):
        if args.append and os.path.exists(path):
            recorder.go_on(karst_record.load(path))
    wanted = commands(args.cases)
    for command in [*wanted]:
        why = builds[0].runner.cannot(command)
        if why:
            print(f'left out: {", ".join(case.name for case in wanted.pop(command))}: {why}', file=sys.stderr)
    for number in range(args.runs):
        for i, (command, cases) in enumerate(wanted.items(), 1):
            if interrupted.told:
                print('interrupted: the rest is not measured', file=sys.stderr)
                return builds
            print(f'[{time.monotonic() - builds[0].runner.began:5.0f} s] round {number + 1} of {args.runs}, '
                  f'{i} of {len(wanted)}: {command}', file=sys.stderr, flush=True)
            # the previous case affects the build that is measured first, so the order alternates
            for recorder in builds if number % 2 == 0 else builds[::-1]:
                recorder.measure(command, cases, number)
    return builds


def show_record(record):
    noise = record['noise']
    print(f'\n{karst_record.describe(record)}')
    print(f'other programs had {noise["others"]:.0%} of the CPUs, other guests {noise["stolen"]:.0%}; '
          f'{record["settings"]["rounds"]} rounds of {record["settings"]["seconds"]:g} s\n')
    width = max((len(case['name']) for case in record['cases']), default=0)
    for case in record['cases']:
        middle, spread = karst_record.median(case), karst_record.spread(karst_record.values(case))
        print(f'{case["name"]:{width}}  ' + ('not measured' if middle is None else f'{middle:10.4g} {case["unit"]:5}') +
              ('' if spread is None else f'  middle half within {spread:.0%}') +
              (f'  failed {case["failed"]}' if case['failed'] else ''))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=5, help='of each measurement [5]')
    parser.add_argument('--runs', type=int, default=3, help='rounds of the record; of each goal, median counts [3]')
    parser.add_argument('--only', choices=['record', *PARTS], help='some of the figures')
    parser.add_argument('--cases', default='', metavar='WORD,...', help='of the record: those whose name or group has one')
    parser.add_argument('--json', metavar='FILE', help='write the record there')
    parser.add_argument('--append', action='store_true', help='add rounds to FILE, of the same build on the same machine')
    parser.add_argument('--against', metavar='BUILD', help='only the record, by turns with another build; '
                        'its record goes to FILE.before')
    parser.add_argument('build', metavar='BUILD', help='the build directory, or the karst-perf in it')
    args = parser.parse_args()
    args.build = build_of(parser, args.build)
    args.against = args.against and build_of(parser, args.against)
    if not 0.01 <= args.seconds <= 3600 or not 1 <= args.runs <= 1000:
        parser.error('--seconds: 0.01 to 3600; --runs: 1 to 1000')
    if not commands(args.cases):
        parser.error(f'--cases: none has {args.cases}')
    if args.against:
        if args.only not in (None, 'record'):
            parser.error('--against is for the record only')
        args.only = 'record'
    if args.append and (not args.json or args.only != 'record'):
        parser.error('--append goes with --json and --only record, or --against')
    if args.json and args.only not in (None, 'record'):
        parser.error(f'--json is for the record, and not for {args.only} alone')
    return args


def build_of(parser, path):
    path = os.path.abspath(path)
    if os.path.isfile(path):
        path = os.path.dirname(os.path.dirname(os.path.dirname(path)))
    if not os.access(os.path.join(path, 'app', 'karst-perf', 'karst-perf'), os.X_OK):
        parser.error(f'{path}: no build of karst: no app/karst-perf/karst-perf')
    return path


def main():
    args = arguments()
    slower = False
    try:
        interrupted = Interrupted()
        recorders = measure_records(args, interrupted) if args.only in (None, 'record') else []
    except karst_record.Bad as e:
        print(f'bench: {e}', file=sys.stderr)
        return 2
    interrupted.over()
    bench = Bench(os.path.join(args.build, 'app', 'karst-perf', 'karst-perf'), args.seconds, args.runs)
    for name, part in PARTS.items():
        if args.only in (None, name) and not interrupted.told:
            part(bench)
    goals = [dict(zip(('what', 'measured', 'goal', 'met', 'note'), row)) for row in bench.rows]
    records = [recorder.record(goals if i == 0 else ()) for i, recorder in enumerate(recorders)]
    for i, record in enumerate(records):
        if args.json:
            karst_record.save(args.json + ('.before' if i else ''), record)
        show_record(record)
    failed = interrupted.told or bench.failed or any(recorder.failed() for recorder in recorders)
    if args.against:
        rows = compare(records[1], records[0])
        show(rows)
        slower = any(row['verdict'] in ('slower', 'failed') for row in rows['cases'])
    if bench.rows:
        print(f'\nload {os.getloadavg()[0]:.1f}; {args.seconds:g} s each, median of {args.runs}\n')
        bench.show()
    return 1 if failed or slower else 0


if __name__ == '__main__':
    sys.exit(main())
