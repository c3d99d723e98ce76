#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What becomes of a case in each way that a case can end: verdicts.py PROGRAM (TAP).

PROGRAM is made of verdicts.c.  Nothing but a case that has come to its end, has failed nowhere and has
left nothing behind may count as passed.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'common'))
sys.dont_write_bytecode = True
from bed import Tap  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'verdicts.c')
# A sanitizer reports a signal, and ends the program by another signal, or with a status.
REPORTED = r'(signal \d+ \(.*\)|exit status \d+)'
KILLED = r'signal 9 \(Killed\)'
# The text for a case that must not pass; of a parameterized one, for each parameter.
BAD = {
    'fails': r'failed', 'fails_and_goes_on': r'failed', 'fails_at_length': r'failed',
    'fails_ten_thousand_times': r'failed',
    'fails_in_setup': r'failed', 'fails_in_teardown': r'failed', 'fails_and_skips': r'failed',
    'fails_and_exits': r'failed', 'fails_with_its_signal': r'failed', 'fails_with_its_status': r'failed',
    'fails_in_a_thread': r'failed', 'skips_in_a_thread': r'failed', 'fails_in_a_child': r'failed',
    'returns_in_a_child': r'failed', 'fails_at_exit': r'failed', 'logs_an_error': r'failed',
    'parameters': r'failed',
    'crashes': KILLED + ' in the test', 'crashes_in_setup': KILLED + ' in its setup',
    'crashes_in_teardown': KILLED + ' in its teardown', 'crashes_at_exit': KILLED + ' after its end',
    'writes_to_null': REPORTED + ' in the test', 'aborts': REPORTED + ' in the test',
    'exits': r'exit status 0 in the test', 'exits_at_once': r'exit status 0 in the test',
    'exits_in_setup': r'exit status 0 in its setup', 'exits_in_teardown': r'exit status 0 in its teardown',
    'exits_with_another_status': r'exit status 7 in the test', 'exits_in_a_thread': r'exit status 0 in the test',
    'becomes_another_program': r'exit status 0 in the test',
    'exits_with_another_status_at_exit': r'exit status 9 after its end',
    'skips_and_exits_with_another_status': r'exit status 9 in the test',
    'gets_another_signal': r'signal 12 \(.*\) in the test', 'gets_no_signal': r'no signal 10',
    'gets_its_signal_too_late': KILLED + ' in its teardown',
    'has_another_status': r'exit status 4 in the test', 'has_no_status': r'exit status 0 after its end',
    'closes_what_it_has_not_opened': r'exit status 1 in the test',
    'fails_for_ever': r'in the test when its 0\.3 s were over',
    'hangs': r'in the test when its 0\.3 s were over', 'turns_in_circles': r'in the test when its 0\.3 s were over',
    'hangs_in_teardown': r'in its teardown when its 0\.3 s were over',
    'hangs_at_exit': r'after its end when its 0\.3 s were over', 'stops': r'in the test when its 0\.3 s were over',
}
SANITIZED = {
    'leaks': REPORTED + ' after its end', 'leaks_in_teardown': REPORTED + ' after its end',
    'leaks_and_skips': REPORTED + ' in the test', 'uses_after_free': REPORTED + ' in the test',
}
POINT = re.compile(r'^(ok|not ok) (\d+) - (\w+)::(\w+) ?(.*)$')


def run(program, *words):
    done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding='utf-8', errors='replace', check=False)
    return done.returncode, done.stdout, done.stderr


def points(text):
    """[(verdict, suite, case, text)], and what is wrong with the stream."""
    found = [POINT.match(line) for line in text.splitlines() if not line.startswith('#')]
    found = [m.groups() for m in found if m]
    problems = []
    if [int(m[1]) for m in found] != list(range(1, len(found) + 1)):
        problems.append('points are not numbered one after the other')
    if f'1..{len(found)}' not in text.splitlines():
        problems.append(f'no plan for {len(found)} points')
    return [(m[0], m[2], m[3], m[4]) for m in found], problems


def sources():
    """{suite/case: cases} of verdicts.c."""
    with open(HERE, encoding='utf-8') as f:
        text = f.read()
    names = re.findall(r'^Test\((\w+), (\w+)', text, re.MULTILINE)
    names += re.findall(r'^ParameterizedTest\(int \*value, (\w+), (\w+)\)', text, re.MULTILINE) * 3
    return names


def bad(program, sanitized):
    """Each suite of cases that must not pass."""
    want = dict(BAD)
    if sanitized:
        want.update(SANITIZED)
    status, text, _ = run(program, '--filter', 'bad*')
    found, problems = points(text)
    tap = [('cases that must not pass: exit status 1', [] if status == 1 else [f'exit status {status}']),
           ('and they are numbered as planned', problems)]
    expected = sorted(name for name in sources() if name[0].startswith('bad')
                      and (sanitized or name[1] not in SANITIZED))
    tap.append(('and all of them have run', [] if sorted(m[1:3] for m in found) == expected else
                [f'{sorted(m[1:3] for m in found)}', f'instead of {expected}']))
    for verdict, suite, case, words in found:
        problems = []
        if verdict != 'not ok':
            problems.append(f'{verdict}: {words}')
        if not re.match(want.get(case, 'nothing is known of it') + r' \(\d', words):
            problems.append(f'"{words}" does not say {want.get(case)}')
        tap.append((f'{suite}: {case}', problems))
    lines = text.splitlines()
    for name, pattern in (('where an assertion has failed is shown', '# .*verdicts.c:[0-9]+: expected so$'),
                          ('an error that is logged is shown', '# an error$')):
        tap.append((name, [] if any(re.match(pattern, line) for line in lines) else ['it is not']))
    if sanitized:
        tap.append(('what the sanitizer says is shown', [] if 'LeakSanitizer: detected memory leaks' in text and
                    'heap-use-after-free' in text else ['it is not']))
    return tap


def good(program):
    status, text, _ = run(program, '--filter', 'good/*', '--tap', '-j1')
    found, problems = points(text)
    tap = [('cases that must pass: exit status 0', [] if status == 0 else [f'exit status {status}', text]),
           ('and they are numbered as planned', problems)]
    expected = sorted(name for name in sources() if name[0] == 'good')
    tap.append(('and all of them have run', [] if sorted(m[1:3] for m in found) == expected else
                [f'{found}', f'instead of {expected}']))
    skipped = sorted(m[2] for m in found if m[3].startswith('# SKIP'))
    tap.append(('two of them are skipped', [] if skipped == ['is_disabled', 'skips'] else [f'{skipped}']))
    tap.append(('with the reason', [] if ' - good::skips # SKIP for good reason\n' in text else [text]))
    tap.append(('a message is shown', [] if '# said by a case\n' in text else [text]))
    tap.append(('what a case prints is not', [] if 'printed by a case' not in text else [text]))
    return tap


def command_line(program):
    tap = []
    status, text, errors = run(program, '--filter', 'nobody/*')
    tap.append(('a pattern that no case has', [] if status == 2 and 'nobody/*' in errors else [text, errors]))
    status, text, errors = run(program, '--nonsense')
    tap.append(('an option that is none', [] if status == 2 and 'usage:' in errors else [text, errors]))
    status, text, errors = run(program, '--filter', 'good/says_something', '--verbose')
    tap.append(('--verbose', [] if status == 0 and '# printed by a case\n' in text else [text]))
    status, text, errors = run(program, '--list')
    names = {f'{suite}/{case}' for suite, case in sources() if case not in SANITIZED}
    tap.append(('--list', [] if status == 0 and names <= set(text.split()) else [text]))
    for case, want in (('fails', 1), ('fails_in_setup', 1), ('crashes', -signal.SIGKILL)):
        status, text, errors = run(program, '--debug', '--filter', f'bad/{case}')
        tap.append((f'--debug: {case}', [] if status == want else [f'exit status {status}', errors]))
    status, text, errors = run(program, '--debug', '--filter', 'good/passes')
    tap.append(('--debug: passes', [] if status == 0 else [f'exit status {status}', errors]))
    return tap


def gone(pid):
    """Whether a process has ended; its parent may not have waited for it yet."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8') as f:
            return f.read().rsplit(')', 1)[1].split()[0] in 'ZX'
    except OSError:
        return True


def with_runner(program):
    """A case does not outlive its runner, which meson kills when its time is over."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'pid')
        runner = subprocess.Popen([program, '--filter', 'alone/hangs'], stdout=subprocess.PIPE,
                                  env={**os.environ, 'KARST_CASE': path})
        while not (os.path.exists(path) and os.path.getsize(path)) and runner.poll() is None:
            time.sleep(0.01)
        runner.terminate()
        text = runner.communicate()[0].decode()
        with open(path, encoding='utf-8') as f:
            case = int(f.read())
    while not gone(case):
        time.sleep(0.01)
    return [('a case ends with its runner', []),
            ('which has not said that it passed', [] if not re.search('^ok', text, re.MULTILINE) else [text])]


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    sanitized = 'bad/leaks\n' in run(argv[1], '--list')[1]
    for name, problems in (*good(argv[1]), *bad(argv[1], sanitized), *command_line(argv[1]),
                           *with_runner(argv[1])):
        tap.point(name, problems)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
