#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What bash completes for karst's programs: completion.py SOURCE BUILD (TAP).

The functions are called as bash calls them, with the programs of the build on the PATH.  Every
option that the --help of a program names must be offered.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import Tap  # noqa: E402

ASK = '''
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
[[ $(complete -p "$1") =~ -F\\ ([^ ]+) ]] || exit 1
"${BASH_REMATCH[1]}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
'''

# The line so far, words that must be offered, words that must not
CASES = [
    ('karstd --che', {'--check'}, {'--config'}),
    ('karstd --log-level ', {'error', 'warning', 'debug'}, {'--check'}),
    ('karst-perf --op', {'--op'}, {'--size'}),
    ('karst-perf --transport ', {'rc', 'uc', 'ud'}, {'all'}),
    ('karst-perf --idle ', {'poll', 'yield'}, {'sleep'}),
    ('karst-perf --mtu ', {'256', '4096'}, {'--op'}),
    ('karst-run --mode ', {'ns', 'env', 'auto'}, {'--mode'}),
    ('karst-run --cpus ', {'spare', 'all', 'auto'}, {'--mode'}),
    ('karst-run --short ', {'tcp', 'smc', 'auto'}, {'--mode'}),
    ('karst-run --netlink ', {'keep', 'hide', 'auto'}, {'--mode'}),
    ('karst-run --priv', {'--private'}, {'--print'}),
    ('karst-run --mode ns bas', {'bash'}, {'--mode'}),
    ('karst-dump --reb', {'--rebuild'}, {'--json'}),
    ('karst-dump --inj', {'--injuries'}, {'--analyse'}),
    ('karst-nvmet --rama', set(), {'--ramdisk'}),
    ('karst-nvmet --ram', {'--ramdisk'}, {'--file'}),
    ('karst-fwd --forward-mode ', {'io', 'roce-check', 'gen'}, {'--idle'}),
    ('karst-fwd --gen-', {'--gen-template', '--gen-rate'}, {'--rxq'}),
    ('karst-fabric --topology ', {'star', 'dumbbell', 'clos'}, {'--hosts'}),
    ('karst-fabric --workload ', {'one', 'incast', 'alistorage'}, {'--hosts'}),
    ('karst-fabric --core', {'--core-speed'}, {'--speed'}),
    ('karst-top --sort ', {'bytes', 'packets'}, {'--qps'}),
    ('karst-exporter --text', {'--textfile'}, {'--listen'}),
    ('karst-capture --sna', {'--snaplen'}, {'--qp'}),
    ('karst-plot --format ', {'svg', 'png', 'both'}, {'--figure'}),
    ('karst-compare --tol', {'--tolerance'}, {'--json'}),
    ('karst-setup bench --aga', {'--against'}, {'--json'}),
    ('karst-setup ', {'demo', 'test', 'soak'}, {'unit'}),
    ('karst-setup test hos', {'hostile'}, {'demo'}),
    ('karst-setup soak --min', {'--minutes'}, {'--seeds'}),
]


def offered(source, line, env):
    words = line.split(' ')
    done = subprocess.run(['bash', '--norc', '-c', ASK, 'bash',
                           os.path.join(source, 'usertools', 'karst.bash'), *words], env=env,
                          cwd='/', stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    return set(done.stdout.split()), done.stderr


def every_option(source, program, env):
    """@return problems: what @program's --help names and bash does not offer."""
    said = subprocess.run([program, '--help'], env=env, stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    named = set(re.findall(r'(?<![\w-])--[a-z][a-z0-9-]*', said))
    found, errors = offered(source, f'{program} --', env)
    problems = [f'{word} is not offered' for word in sorted(named - found)]
    if '--help' not in named:
        problems.append('its --help does not name --help')
    return problems + errors.splitlines()


def programs(source, build):
    """Of app and usertools: what a user starts."""
    found = [name for name in os.listdir(os.path.join(build, 'app')) if
             os.path.isfile(os.path.join(build, 'app', name, name))]
    return sorted(found + ['karst-top', 'karst-exporter', 'karst-capture', 'karst-smc',
                           'karst-plot', 'karst-compare'])


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, build = argv[1:]
    folders = [os.path.join(source, 'usertools')] + [
        os.path.join(build, 'app', name) for name in sorted(os.listdir(os.path.join(build, 'app')))]
    env = dict(os.environ, PATH=os.pathsep.join([*folders, os.environ['PATH']]))
    tap = Tap()
    for line, wanted, unwanted in CASES:
        found, errors = offered(source, line, env)
        problems = [f'{word} is not offered' for word in sorted(wanted - found)]
        problems += [f'{word} is offered' for word in sorted(unwanted & found)]
        problems += errors.splitlines()
        if problems:
            problems.append(f'offered: {" ".join(sorted(found))[:400]}')
        tap.point(f'"{line}"', problems)
    for program in programs(source, build):
        tap.point(f'{program}: every option', every_option(source, program, env))
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
