# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The performance record: its format, and its facts about the machine and the noise.

Written by bench.py (karst-setup bench --json), read by karst-plot and karst-compare.
doc/performance-record.rst has every member.
"""
import glob
import json
import os
import re
import resource
import statistics
import subprocess
import time

FORMAT, VERSION = 'karst-record', 1


class Bad(Exception):
    """The error for a file that is no valid record, with the reason."""


# --- facts ---

def read(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read().strip()
    except OSError:
        return None


def said(*words, cwd=None):
    """The output of a command; None if it fails or does not exist."""
    try:
        run = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, cwd=cwd, check=False)
    except OSError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def caches():
    """["L1d 48K", ...] of the first CPU."""
    found = []
    for folder in sorted(glob.glob('/sys/devices/system/cpu/cpu0/cache/index*')):
        level, kind, size = (read(os.path.join(folder, name)) for name in ('level', 'type', 'size'))
        if level and size:
            found.append(f'L{level}{ {"Data": "d", "Instruction": "i"}.get(kind, "")} {size}')
    return found


def meminfo():
    return {name: int(value) for name, value in
            re.findall(r'^(\w+):\s+(\d+)', read('/proc/meminfo') or '', flags=re.MULTILINE)}


def machine():
    """The facts about this machine."""
    cpuinfo = read('/proc/cpuinfo') or ''
    model = re.search(r'^model name\s*: (.*)$', cpuinfo, flags=re.MULTILINE)
    flags = re.search(r'^flags\s*: (.*)$', cpuinfo, flags=re.MULTILINE)
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', read('/etc/os-release') or '', flags=re.MULTILINE)
    memory = meminfo()
    return {
        'cpu': model.group(1) if model else os.uname().machine,
        'cpus': os.cpu_count(), 'cpus_usable': len(os.sched_getaffinity(0)),
        'virtual': bool(flags and 'hypervisor' in flags.group(1).split()),
        'caches': caches(), 'memory_bytes': memory.get('MemTotal', 0) * 1024,
        'huge_pages': {'bytes_each': memory.get('Hugepagesize', 0) * 1024,
                       'total': memory.get('HugePages_Total', 0), 'free': memory.get('HugePages_Free', 0)},
        'governor': read('/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor'),
        'kernel': os.uname().release, 'system': system.group(1) if system else None,
    }


def build_facts(build):
    """The facts about a build directory: the commit of its source, and how it was built."""
    def intro(name):
        try:
            return json.loads(read(os.path.join(build, 'meson-info', name)) or '{}')
        except ValueError:
            return {}

    source = (intro('meson-info.json').get('directories') or {}).get('source') or build
    options = {row['name']: row['value'] for row in intro('intro-buildoptions.json') or []}
    # only newer versions of meson have a file about compilers
    compiler = re.search(r'^C compiler for the host machine: .*?\((\w+ [\d.]+)',
                         read(os.path.join(build, 'meson-logs', 'meson-log.txt')) or '', flags=re.MULTILINE)
    changed = said('git', 'status', '--porcelain', '--untracked-files=no', cwd=source)
    return {
        'commit': said('git', 'rev-parse', 'HEAD', cwd=source),
        'changed': None if changed is None else changed != '',
        'compiler': compiler.group(1) if compiler else None,
        'buildtype': options.get('buildtype'), 'cpu': options.get('cpu'),
        'dpdk': said('pkg-config', '--modversion', 'libdpdk'),
    }


class Noise:
    """CPU time that other programs, and other guests of the machine, used during a measurement."""

    def __init__(self):
        self.last = self.now()

    @staticmethod
    def now():
        """Seconds of all CPUs: (busy, stolen, used by child processes), and the time."""
        row = [int(word) for word in read('/proc/stat').split('\n', 1)[0].split()[1:9]]
        tick = os.sysconf('SC_CLK_TCK')
        ours = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
        return (row[0] + row[1] + row[2] + row[5] + row[6]) / tick, row[7] / tick, ours, time.monotonic()

    def lap(self):
        """(others, stolen): shares of all CPUs' time since the last call."""
        before, self.last = self.last, self.now()
        whole = max(self.last[3] - before[3], 1e-6) * (os.cpu_count() or 1)
        others = self.last[0] - before[0] - (self.last[2] - before[2])
        return tuple(round(min(max(part / whole, 0), 1), 3) for part in (others, self.last[1] - before[1]))


def noise(cases, load_before):
    """The noise of all runs, for the record."""
    runs = {(run['round'], run['at']): run for case in cases for run in case['runs']}
    spreads = [found for found in (spread(values(case)) for case in cases) if found is not None]
    return {'load_before': load_before, 'load_after': [round(n, 2) for n in os.getloadavg()],
            'others': round(statistics.mean(run['others'] for run in runs.values()), 3) if runs else 0,
            'stolen': round(statistics.mean(run['stolen'] for run in runs.values()), 3) if runs else 0,
            'spread': round(statistics.median(spreads), 4) if spreads else None}


# --- figures ---

def values(case):
    return [run['value'] for run in case['runs']]


def spread(found):
    """The middle half of values over their median; None if there are too few."""
    if len(found) < 2 or statistics.median(found) == 0:
        return None
    low, middle, high = statistics.quantiles(found, n=4, method='inclusive')
    return (high - low) / middle


def median(case):
    found = values(case)
    return statistics.median(found) if found else None


# --- the format ---

NUMBER, TEXT, MAYBE_TEXT = (int, float), str, (str, type(None))
MACHINE = {'cpu': TEXT, 'cpus': int, 'cpus_usable': int, 'virtual': bool, 'caches': list, 'memory_bytes': int,
           'huge_pages': dict, 'governor': MAYBE_TEXT, 'kernel': TEXT, 'system': MAYBE_TEXT}
SAME_MACHINE = ('cpu', 'cpus', 'caches', 'kernel', 'virtual')  # facts that must be equal for a comparison
BUILD = {'commit': MAYBE_TEXT, 'changed': (bool, type(None)), 'compiler': MAYBE_TEXT, 'buildtype': MAYBE_TEXT,
         'cpu': MAYBE_TEXT, 'dpdk': MAYBE_TEXT}
NOISE = {'load_before': list, 'load_after': list, 'others': NUMBER, 'stolen': NUMBER,
         'spread': (int, float, type(None))}
SETTINGS = {'seconds': NUMBER, 'rounds': int, 'cases': TEXT}
RECORD = {'format': TEXT, 'version': int, 'session': TEXT, 'began': TEXT, 'seconds': NUMBER, 'settings': dict,
          'machine': dict, 'build': dict, 'noise': dict, 'cases': list, 'goals': list}
CASE = {'name': TEXT, 'group': TEXT, 'unit': TEXT, 'better': TEXT, 'x': dict, 'command': TEXT, 'runs': list,
        'failed': int}
RUN = {'round': int, 'at': NUMBER, 'value': NUMBER, 'others': NUMBER, 'stolen': NUMBER}
MOST, LEAST = 1e150, 1e-150  # limits of a figure that is not 0, so that results from two figures fit a double
GOAL = {'what': TEXT, 'measured': TEXT, 'goal': TEXT, 'met': TEXT, 'note': TEXT}


def check_members(where, found, wanted, optional=()):
    """Exactly these members, of these types."""
    if not isinstance(found, dict):
        raise Bad(f'{where}: not an object')
    for name, kind in wanted.items():
        if name not in found:
            raise Bad(f'{where}: no {name}')
        if not isinstance(found[name], kind) or isinstance(found[name], bool) and kind in (int, NUMBER):
            raise Bad(f'{where}: {name} is of the wrong type')
    for name in found:
        if name not in wanted and name not in optional:
            raise Bad(f'{where}: unknown member {name}')


def check_latency(where, found):
    check_members(f'{where}: latency_ns', found, {}, optional=found)
    for name, value in found.items():
        if not isinstance(value, NUMBER) or isinstance(value, bool) or not 0 <= value < MOST:
            raise Bad(f'{where}: latency_ns: {name} is not a number from 0 on')


def check(record):
    """Bad: it is no record of this version."""
    if not isinstance(record, dict) or record.get('format') != FORMAT:
        raise Bad(f'not a record of karst: no "format": "{FORMAT}"')
    if record.get('version') != VERSION:
        raise Bad(f"version {record.get('version')} of the format; this program reads {VERSION}")
    check_members('record', record, RECORD)
    for name, wanted in (('settings', SETTINGS), ('machine', MACHINE), ('build', BUILD), ('noise', NOISE)):
        check_members(name, record[name], wanted)
    names = set()
    for case in record['cases']:
        check_members('cases', case, CASE)
        where = f"case {case['name']}"
        if case['name'] in names:
            raise Bad(f'{where}: twice')
        names.add(case['name'])
        if case['better'] not in ('higher', 'lower'):
            raise Bad(f'{where}: better is higher or lower')
        rounds = set()
        for run in case['runs']:
            check_members(where, run, RUN, optional=('latency_ns', 'beside'))
            if not (run['value'] == 0 or LEAST < run['value'] < MOST) or run['round'] in rounds:
                raise Bad(f'{where}: round {run["round"]}: a value from 0 on, once')
            check_latency(where, run.get('latency_ns', {}))
            rounds.add(run['round'])
    for goal in record['goals']:
        check_members('goals', goal, GOAL)


def load_json(path):
    """Bad: it cannot be read, or is no JSON."""
    try:
        with open(path, encoding='utf-8') as f:
            return json.load(f)
    except OSError as e:
        raise Bad(f'{path}: {e.strerror}') from e
    except ValueError as e:
        raise Bad(f'{path}: not JSON: {e}') from e
    except RecursionError as e:
        raise Bad(f'{path}: not JSON of a record: nested too deeply') from e


def load(path):
    """Bad: it cannot be read, or is no record."""
    record = load_json(path)
    try:
        check(record)
    except Bad as e:
        raise Bad(f'{path}: {e}') from e
    return record


def save(path, record):
    """OSError.  A reader of @path sees the old file or the new one; each run of a case is one line."""
    check(record)
    text = json.dumps(record, indent=1)
    # one line for each run, so that diffs are readable
    text = re.sub(r'\{\s+"round": .*?\n    \}', lambda m: re.sub(r'\s*\n\s*', ' ', m.group()), text, flags=re.DOTALL)
    with open(path + '.tmp', 'w', encoding='utf-8') as f:
        f.write(text + '\n')
    os.replace(path + '.tmp', path)


def describe(record):
    """One line about where and when."""
    m, b = record['machine'], record['build']
    return (f"{(b['commit'] or 'unknown')[:9]}{' (changed)' if b['changed'] else ''}, {m['cpu']}, {m['cpus']} "
            f"{'virtual ' if m['virtual'] else ''}CPUs, {record['began']}")
