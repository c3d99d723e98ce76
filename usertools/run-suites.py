#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Runs steps of karst-setup side by side: run-suites.py KARST-SETUP RESULTS SUITE...

A step is a build or a suite: "karst-setup step NAME", a process of its own, with its output kept in
a file of the folder RESULTS and printed whole, suites in the order in which they were asked for.

There are two kinds.  Those that compute (builds, the simulator, sanitizers) make use of all
processors by themselves, so one at a time is run, as many on a machine of 2 processors as can be
fed; those that mostly wait, for guests, timers, downloads or daemons that start, are run beside it,
as many as there are processors: guests without KVM compute as well.  In both, the first of the
table below that has what it needs is next: so builds that many need come first, and then what
takes longest.  Packages that are missing are installed beside the first builds: what those need is
there already, and installing takes one processor.

Which suites can be neighbours is not decided here: a suite has names, ports and folders of its own,
or a lock (test/common/bed.py).

At the end it says how many seconds of processors each step took, how busy the processors were,
and the critical path: the steps that waited for each other, for what they need or for room, up to
the one that ended last.

Whatever ends this program ends its steps and all that they have started: it is the one that orphans
are given to, and in the end it has no descendants.

Exit status 0: every step has ended with status 0.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

HEARTBEAT_S = 30
GRACE_S = 10 # for steps to clean up
PR_SET_CHILD_SUBREAPER = 36
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# name: (what it needs, whether it mostly waits); in the order in which they are begun
STEPS = {
    'packages': ([], True),
    'configure-test': ([], False),
    'fresh': (['packages', 'configure-test'], True),
    'build-test': (['configure-test'], False),
    'interop': (['packages', 'build-test'], True),
    'pci': (['packages', 'build-test'], True),
    'verbs': (['packages', 'build-test'], True),
    'hostile': (['packages', 'build-test'], True),
    'pyverbs': (['packages', 'build-test'], True),
    'karstd': (['packages', 'build-test'], True),
    'drivers': (['packages', 'build-test'], True),
    'perf': (['packages', 'build-test'], True),
    'run': (['packages', 'build-test'], True),
    'smc': (['packages', 'build-test'], True),
    'observe': (['packages', 'build-test'], True),
    'examples': (['packages', 'build-test'], True),
    'install': (['packages', 'build-test'], True),
    'sanitize': (['packages'], False),
    'fuzz': (['packages'], False),
    'model': (['packages', 'configure-test'], False),
    'sim': (['build-test'], False),
    'unit': (['build-test'], False),
    'layering': (['configure-test'], False),
    'docs': (['packages', 'configure-test'], False),
    'format': (['packages', 'configure-test'], False),
    'captures': (['packages', 'build-test'], False),
    'replay': (['build-test'], False),
    'tools': (['packages', 'configure-test'], True),
    'cross': (['packages'], False),
}

# Of two that build in one folder the second waits for the first, if both are asked for.
AFTER = {'fuzz': 'sanitize'}


class Step:
    """A step that runs; @after: the step whose end let it begin, or None."""

    def __init__(self, command, name, path, after):
        self.name, self.path, self.after, self.began = name, path, after, time.monotonic()
        self.status = self.cpu_s = self.took = None
        with open(path, 'wb') as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, start_new_session=True)

    def ended(self):
        if self.status is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid != 0:
                self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.status is not None

    def seconds(self):
        return time.monotonic() - self.began

    def output(self):
        with open(self.path, encoding='utf-8', errors='replace') as f:
            return f.read()


def with_needs(names):
    """@names and everything that they need, in the order of the table."""
    wanted, new = set(), set(names)
    while new:
        wanted |= new
        new = {need for name in new for need in STEPS[name][0]} - wanted
    return [name for name in STEPS if name in wanted]


def parents():
    """The parent of each process of this machine."""
    found = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as f:
                found[int(pid)] = int(f.read().rsplit(')', 1)[1].split()[1])
        except (OSError, IndexError):
            pass # it has ended
    return found


def descendants():
    """All descendants of this process, including orphans."""
    children, found = {}, []
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    todo = list(children.get(os.getpid(), []))
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def reap(but=()):
    """Reaps orphans that have ended; the processes in @but are waited for elsewhere."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None \
                and ended.si_pid not in but:
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        pass


def end_all():
    """Ends every descendant, first by SIGTERM, so that they can clean up."""
    end = time.monotonic() + GRACE_S
    signal_all(descendants(), signal.SIGTERM)
    while descendants():
        if time.monotonic() > end:
            signal_all(descendants(), signal.SIGKILL)
        reap()
        time.sleep(0.05)


def stop(number, _):
    """Acts only once: one Ctrl-C may cause several signals."""
    for other in ENDS:
        signal.signal(other, lambda *_: None)
    sys.exit(128 + number)


class Runner:
    def __init__(self, program, folder, suites):
        self.program, self.folder, self.suites = program, folder, suites
        self.todo = with_needs(suites)
        self.running = []
        self.done = {} # name: (exit status, output, seconds of processors)
        self.ended = [] # steps, in that order
        self.unsaid = list(suites) # suites of which nothing was printed yet
        processors = len(os.sched_getaffinity(0))
        self.processors = processors
        self.room = {False: max(1, processors // 2), True: max(2, processors)}
        self.began = self.said = time.monotonic()

    def say(self, text):
        print(text, flush=True)
        self.said = time.monotonic()

    def next(self, waits):
        """The first step of a kind that can begin now, or None."""
        if sum(STEPS[s.name][1] == waits for s in self.running) >= self.room[waits]:
            return None
        to_end = {*self.todo, *(step.name for step in self.running)}
        return next((name for name in self.todo if STEPS[name][1] == waits and
                     not to_end & {*STEPS[name][0], AFTER.get(name)}), None)

    def begin(self):
        for waits in (True, False):
            while (name := self.next(waits)) is not None:
                self.todo.remove(name)
                self.running.append(Step([self.program, 'step', name], name,
                                         os.path.join(self.folder, name + '.out'),
                                         self.ended[-1] if self.ended else None))

    def take(self):
        """Steps that have ended."""
        for step in [s for s in self.running if s.ended()]:
            self.running.remove(step)
            self.ended.append(step)
            step.took = step.seconds()
            output = step.output()
            self.done[step.name] = (step.status, output, step.cpu_s)
            if step.name not in self.suites and (step.status or output.strip()):
                self.say(f'== {step.name} ({step.seconds():.0f} s)\n{output}'.rstrip())
        while self.unsaid and self.unsaid[0] in self.done:
            name = self.unsaid.pop(0)
            self.say(f'== suite {name}\n{self.done[name][1]}'.rstrip())

    def heartbeat(self):
        if time.monotonic() - self.said < HEARTBEAT_S:
            return
        now = ', '.join(f'{s.name} ({s.seconds():.0f} s)' for s in self.running)
        self.say(f'  ... {time.monotonic() - self.began:.0f} s: {len(self.done)} steps are done, '
                 f'{len(self.todo)} to come; running: {now}')

    def summary(self):
        seconds = time.monotonic() - self.began
        spent = sorted(((cpu_s, name) for name, (_, _, cpu_s) in self.done.items()), reverse=True)
        total = sum(cpu_s for cpu_s, _ in spent)
        self.say(f'{seconds:.0f} s, and {total:.0f} s of processors: '
                 f'{", ".join(f"{name} {s:.0f}" for s, name in spent)}')
        path, step = [], self.ended[-1] if self.ended else None
        while step is not None:
            path.insert(0, f'{step.name} {step.took:.0f}')
            step = step.after
        self.say(f'of {self.processors} processors {100 * total / seconds / self.processors:.0f} % '
                 f'were used; critical path, in seconds: {", ".join(path)}')

    def run(self):
        while self.todo or self.running:
            self.begin()
            time.sleep(0.1)
            self.take()
            reap([step.process.pid for step in self.running])
            self.heartbeat()
        self.summary()
        return 1 if any(status for status, _, _ in self.done.values()) else 0


def main(argv):
    if len(argv) < 4 or any(name not in STEPS for name in argv[3:]):
        print(__doc__, file=sys.stderr)
        return 2
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in ENDS:
        signal.signal(number, stop)
    try:
        return Runner(argv[1], argv[2], argv[3:]).run()
    finally:
        end_all()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
