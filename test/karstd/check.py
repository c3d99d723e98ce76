#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karstd --check on good and bad configurations: check.py KARSTD ROOT (TAP)."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from points import Tap  # noqa: E402

# A file and its expected errors: (line or None, text) for each, in any order, and no others.
BAD = {
    'unknown section': ('[motor]\n', [(1, '[motor]: unknown section; allowed: [engine]')]),
    'unknown key': ('[engine]\nnmae = x\n', [(2, 'nmae: unknown key; allowed: name, user, lcores')]),
    'a port key in another section': ('[log]\ndevice = eth0\n', [
        (2, 'device: unknown key, it belongs to [port NAME]; allowed: level, ')]),
    'a key of two other sections': ('[engine]\naddresses = 192.0.2.1/24\n', [
        (2, 'unknown key, it belongs to [port NAME], [smc]; allowed: name, ')]),
    'a line that is nothing': ('[engine]\nidle poll\n', [(2, 'neither [SECTION] nor KEY = VALUE')]),
    'a key before any section': ('idle = poll\n', [(1, 'before the first [SECTION]')]),
    'no closing bracket': ('[engine\nidle = poll\n', [(1, 'a section is [NAME]')]),
    'words behind a section': ('[engine] x\n', [(1, 'nothing behind it')]),
    'empty section': ('[ ]\n', [(1, '1 to 63')]),
    'a section twice': ('[log]\n[engine]\n[log]\n', [(3, '[log] is in line 1 already')]),
    'a section twice beside other errors': ('[engine]\nidle = nap\n[log]\n[engine]\nidle = x\n[log2]\n', [
        (2, '"nap": unknown'), (4, '[engine] is in line 1 already'), (6, '[log2]: unknown section')]),
    'a port twice, spelled the same': ('[port a]\ndevice = loopback\n[port a]\ndevice = a/b\n', [
        (3, '[port a] is in line 1 already')]),
    'a key twice': ('[engine]\nidle = poll\nidle = poll\n', [(3, 'it is in line 2 already')]),
    'a long line': ('[log]\nfile = /' + 'x' * 400 + '\n', [(2, 'a line has up to 320')]),
    'a long value': ('[log]\nfile = /' + 'x' * 260 + '\n', [(2, 'up to 255')]),
    'a long key': ('[log]\n' + 'x' * 64 + ' = 1\n', [(2, 'a key has 1 to 63')]),
    'an empty key': ('[log]\n = 1\n', [(2, 'a key has 1 to 63')]),
    'a NUL byte': ('[log]\nle\0vel = debug\n', [(2, 'NUL')]),
    'a backslash': ('[log]\nfile = /a\\#b\n', [(2, 'backslash')]),
    'an unknown word': ('[engine]\nidle = nap\n', [(2, '"nap": unknown; allowed: yield, poll or '
                                                       'sleep')]),
    'no number': ('[engine]\nsleep_max_us = soon\n', [(2, 'not a number; allowed: 1 to 1000000 '
                                                          '(us)')]),
    'a negative number': ('[engine]\nmax_qps = -1\n', [(2, 'not a number')]),
    'a number with a tail': ('[engine]\nmax_qps = 10x\n', [(2, '"x" does not belong')]),
    'a number too small': ('[engine]\nmax_keys = 1\n', [(2, 'too small; allowed: 16 to')]),
    'a number too large': ('[engine]\nmax_keys = 99999999\n', [(2, 'too large')]),
    'a number beyond 64 bits': ('[engine]\nmax_keys = 99999999999999999999\n', [(2, 'too large')]),
    'bytes too large by a suffix': ('[limits]\nring_bytes = 99999999999999999T\n',
                                    [(2, 'too large; allowed: 1M to 1T')]),
    'auto where there is none': ('[engine]\nmax_qps = auto\n', [(2, 'not a number')]),
    'an empty value': ('[engine]\nmax_qps =\n', [(2, 'not a number')]),
    'a bad name': ('[engine]\nname = a b\n', [(2, 'not a name')]),
    'a long name': ('[engine]\nname = abcdefghijklmnop\n', [(2, 'too long')]),
    'a CPU that is none': ('[engine]\nlcores = one\n', [(2, 'no CPU and no range')]),
    'CPUs backwards': ('[engine]\nlcores = 3-1\n', [(2, 'no CPU and no range')]),
    'a CPU twice': ('[engine]\nlcores = 0,0\n', [(2, 'CPU 0 twice')]),
    'a CPU that the machine has not': ('[engine]\nlcores = 1000\n',
                                       [(None, 'may not run on CPU 1000')]),
    'a CPU beyond all': ('[engine]\nlcores = 4000\n', [(2, 'no CPU 4000')]),
    'a relative socket': ('[socket]\npath = karst.sock\n', [(2, 'not the absolute path')]),
    'a socket too long': ('[socket]\npath = /' + 'x' * 107 + '\n', [(2, 'too long')]),
    'a mode': ('[socket]\nmode = 1777\n', [(2, 'not a mode')]),
    'a mode that is not octal': ('[socket]\nmode = rw\n', [(2, 'not a mode')]),
    'no kind of congestion control': ('[engine]\ncongestion = red\n', [
        (2, '"red": unknown; allowed: off, notify, dcqcn or swift')]),
    'a DSCP that there is not': ('[congestion]\ncnp_dscp = 64\n', [(2, 'too large; allowed: 0 to 63')]),
    'a byte counter that counts too often': ('[congestion]\nrpg_byte_reset = 1000\n', [
        (None, 'rpg_byte_reset = 1000: allowed: 0, or 1024 and more')]),
    'a window that there is not': ('[congestion]\nswift_min_cwnd = 0\n', [(2, 'too small; allowed: 1 to 1000')]),
    'a scope of CNPs': ('[congestion]\ncnp_scope = all\n', [(2, 'allowed: queue_pair, address or port')]),
    'no such user to become': ('[engine]\nuser = nobody-knows\n', [(2, 'no such user')]),
    'no such user': ('[socket]\nowner = nobody-knows\n', [(2, 'no such user')]),
    'no such group': ('[socket]\ngroup = nobody-knows\n', [(2, 'no such group')]),
    'a share of nothing': ('[limits]\nshare = 0\n', [(2, 'too small; allowed: 1 to 100 (percent), '
                                                           'or auto')]),
    'a share of more than all': ('[limits root]\nshare = 101\n', [(2, 'too large')]),
    'Q_Keys for some': ('[limits]\ncontrolled_qkeys = some\n', [(2, '"some": unknown; allowed: '
                                                                     'auto, no or yes')]),
    'limits of nobody': ('[limits nobody-knows]\nqps = 1\n', [(1, 'no such user or group')]),
    'limits of no group': ('[limits @nobody-knows]\n', [(1, 'no such user or group')]),
    'limits twice': ('[limits root]\n[limits  root]\n', [(2, 'limits of root already')]),
    'a port without a name': ('[port]\ndevice = loopback\n', [(1, 'a port has a name')]),
    'a port with a bad name': ('[port a b]\ndevice = loopback\n', [(1, 'a port has a name')]),
    'a port twice': ('[port a]\ndevice = loopback\n[port  a]\ndevice = eth0\n',
                     [(3, 'a port "a" already')]),
    'a port without a device': ('[port a]\nmtu = 1500\n', [(None, '[port a] device: not given')]),
    'no kind of device': ('[port a]\ndevice = a/b\n', [(2, 'no kind of device')]),
    'a device twice': ('[port a]\ndevice = eth0\n[port b]\ndevice = eth0\n',
                       [(None, 'port "a" has eth0 already')]),
    'no address': ('[port a]\ndevice = net_null0\n', [(None, 'addresses: none is given')]),
    'an address without prefix': ('[port a]\ndevice = eth0\naddresses = 192.0.2.1\n',
                                  [(3, 'has no prefix length')]),
    'an address that is none': ('[port a]\ndevice = eth0\naddresses = 192.0.2/24\n',
                                [(3, '"192.0.2" is no IP address')]),
    'a prefix too long': ('[port a]\ndevice = eth0\naddresses = 192.0.2.1/33\n',
                          [(3, '"33", not 1 to 32')]),
    'a multicast address': ('[port a]\ndevice = eth0\naddresses = ff02::1/64\n',
                            [(3, 'is a multicast address')]),
    'an address twice': ('[port a]\ndevice = eth0\naddresses = 192.0.2.1/24, 192.0.2.1/25\n',
                         [(3, '192.0.2.1 twice')]),
    'an address of another port': (
        '[port a]\ndevice = eth0\naddresses = 192.0.2.1/24\n'
        '[port b]\ndevice = eth1\naddresses = 192.0.2.1/24\n',
        [(None, 'port "a" has 192.0.2.1 already')]),
    'too many addresses': (
        '[port a]\ndevice = eth0\n' +
        ''.join(f'addresses = 192.0.2.{n}/24\n' for n in range(1, 18)),
        [(19, 'more than 16 addresses')]),
    'too many with the link-local one': (
        '[port a]\ndevice = eth0\nlink_local = yes\n' +
        ''.join(f'addresses = 192.0.2.{n}/24\n' for n in range(1, 17)),
        [(None, '17 with the link-local one')]),
    'two loopback ports with the default addresses': (
        '[port a]\ndevice = loopback\n[port b]\ndevice = loopback\n',
        [(None, 'port "a" has 127.0.0.1 already'), (None, 'port "a" has ::1 already')]),
    'a gateway that is none': ('[port a]\ndevice = eth0\ngateway4 = fe80::1\n',
                               [(3, 'not an IPv4 address')]),
    'a gateway elsewhere': (
        '[port a]\ndevice = net_null0\naddresses = 192.0.2.1/24\ngateway4 = 198.51.100.1\n',
        [(None, '198.51.100.1 is in no network')]),
    'a gateway of a kernel interface': (
        '[port a]\ndevice = eth0\naddresses = 192.0.2.1/24\ngateway4 = 192.0.2.2\n',
        [(None, "follows the kernel's routes")]),
    'a VLAN too large': ('[port a]\ndevice = eth0\nvlan = 4095\n', [(3, 'too large')]),
    'a VLAN of a kernel interface': ('[port a]\ndevice = eth0\nvlan = 5\n',
                                     [(None, 'VLAN interface')]),
    'an MTU too small': ('[port a]\ndevice = eth0\nmtu = 100\n', [(3, 'too small')]),
    'a MAC address': ('[port a]\ndevice = net_null0\naddresses = 192.0.2.1/24\nmac = 02:00\n',
                      [(4, 'not a MAC address')]),
    'a MAC address of a group': (
        '[port a]\ndevice = net_null0\naddresses = 192.0.2.1/24\nmac = 01:00:00:00:00:01\n',
        [(4, "a group's address")]),
    'a driver without an interface': ('[port a]\ndevice = loopback\ndriver = af_xdp\n',
                                      [(None, 'is no kernel interface')]),
    'a tap of a kernel interface': ('[port a]\ndevice = eth0\nexception_tap = tap0\n',
                                    [(None, 'the kernel has its interface anyhow')]),
    'a tap of no name': ('[port a]\ndevice = tap:\n', [(2, 'no kind of device')]),
    'a tap of a tap': ('[port a]\ndevice = tap:kt0\naddresses = 192.0.2.1/24\n'
                       'exception_tap = kt1\n', [(None, 'the kernel has its interface anyhow')]),
    'a tap without addresses': ('[port a]\ndevice = tap:kt0\n', [(None, 'addresses: none is given')]),
    'a tap with a driver': ('[port a]\ndevice = tap:kt0\naddresses = 192.0.2.1/24\ndriver = kport\n',
                            [(None, 'is no kernel interface')]),
    'a tap with a bad name': ('[port a]\ndevice = net_null0\nexception_tap = a/b\n',
                              [(3, 'not the name of an interface'),
                               ]),
    'rules for a loopback port': ('[port a]\ndevice = loopback\nimpair = /r\n',
                                  [(None, 'a loopback port has no device')]),
    'rules at a relative path': ('[port a]\ndevice = eth0\nimpair = r\n',
                                 [(3, 'not an absolute path')]),
    'rules at a path with a comma': ('[port a]\ndevice = eth0\nimpair = /r,s\n',
                                     [(None, 'a path without any of')]),
    'a log of no rules': ('[port a]\ndevice = eth0\nimpair_log = /l\n',
                          [(None, 'nothing is impaired')]),
    'isolation of no adapter': ('[port a]\ndevice = eth0\nisolate = yes\n',
                                [(None, 'with a PCI device only')]),
    'lcores that the engine has not': (
        '[engine]\nlcores = 0\n[port a]\ndevice = eth0\nlcores = 1\n',
        [(None, 'CPU 1 is not in [engine] lcores')]),
    'lcores of a port alone': ('[port a]\ndevice = eth0\nlcores = 0\n',
                               [(None, '[engine] lcores is auto')]),
    'ports that are no power of two': ('[engine]\nspray_ports = 6\n', [(None, 'not a power of two')]),
    'a buffer that is no power of two': ('[smc]\nbuffer = 300000\n', [(None, 'not a power of two')]),
    'an identifier in small letters': ('[smc]\neid = karst\n', [(2, 'not an identifier')]),
    'an identifier too long': ('[smc]\neid = ' + 'A' * 36 + '\n', [(2, 'too long')]),
    'peers without prefix': ('[smc]\npeers = 192.0.2.1\n', [(2, 'has no prefix length')]),
    'a relative cgroup': ('[smc]\ncgroup = unified\n', [(2, 'not an absolute path')]),
    'a log file nowhere': ('[log]\nfile = log.txt\n', [(2, 'not the absolute path')]),
    'a line that is nothing, and other errors': (
        '[engine]\nidle poll\nidle = nap\n[log]\nnothing\nlevel = loud\n[log2]\n',
        [(2, 'neither [SECTION]'), (3, 'nap'), (5, 'neither [SECTION]'), (6, 'loud'), (7, '[log2]')]),
    'each kind of bad line, and other errors': (
        'idle = nap\n[engine]\nfile = /a\\b\nx\0y\nidle = nap\n' + 'x' * 400 + '\n' +
        'x' * 64 + ' = 1\nname = ' + 'x' * 256 + '\nmax_qps = x\n[]\nlevel = loud\n'
        '[log] x\nlevel = loud\n[log\nlevel = loud\n[log]\nlevel = loud\n',
        [(1, 'before the first'), (3, 'backslash'), (4, 'NUL'), (5, 'nap'), (6, 'up to 320'),
         (7, '1 to 63'), (8, 'up to 255'), (9, 'not a number'), (10, '1 to 63'),
         (12, 'nothing behind it'), (14, 'nothing behind it'), (17, 'loud')]),
    'all errors at once': (
        '[engine]\nidle = nap\nmax_qps = x\n[port a]\nmtu = 1\n[nonsense]\nkey = 1\n',
        [(2, 'nap'), (3, 'max_qps'), (5, 'mtu'), (6, 'unknown section')]),
}

GOOD = {
    'an empty file': '',
    'comments and space': '# all\n\n  [engine]  # here\n\t idle\t=  poll \t# there\n',
    'no newline at the end': '[engine]\nidle = poll',
    'Windows line ends': '[engine]\r\nidle = poll\r\n',
    'suffixes': '[limits]\nring_bytes = 16m\nmr_bytes = 2T\n[engine]\nmemory = 1G\n',
    'auto': '[engine]\nlcores = auto\nmbufs = auto\nmemory = auto\n[limits]\nqps = auto\n',
    'shares': '[limits]\nshare = auto\ncalls = 1\ncontrolled_qkeys = no\n'
              '[limits @root]\nshare = 100\ncalls = auto\ncontrolled_qkeys = yes\n',
    'a latched port': '[engine]\nlatch_source_port = yes\n',
    'selective repeat': '[engine]\nselective_repeat = 192.0.2.0/24, 2001:db8::/32\nheld_frames = 16\nspray_ports = 16\n',
    'selective repeat by agreement': '[engine]\nece = answer\n',
    'congestion control': '[engine]\ncongestion = dcqcn\n[congestion]\nrpg_byte_reset = 0\nrpg_gd = 12\nrpg_max_rate = 25000\n\ncnp_scope = address\n'
                          'min_time_between_cnps = 0\ncnp_dscp = 0\ncnp_802p_prio = 7\n',
    'control by delay': '[engine]\ncongestion = swift\n[congestion]\nswift_base_target = 1000\nswift_min_cwnd = 1000\n'
                        'swift_fs_range = 0\n',
    'SMC-R': '[smc]\nenabled = yes\npeers = 192.0.2.0/24, 2001:db8::1/64\neid = A.1-B\n'
             'buffer = 16M\ncgroup =\n',
    'limits of a user and a group': '[limits root]\nqps = 10\n[limits @root]\nqps = 20\n',
    'owners by name and number': '[socket]\nowner = root\ngroup = 0\nmode = 660\n',
    'a port of each kind':
        '[port a]\ndevice = 0000:03:00.0\naddresses = 192.0.2.1/24\ngateway4 = 192.0.2.254\n'
        'isolate = yes\n'
        '[port b]\ndevice = net_memif0,role=client\naddresses = 2001:db8::1/64\n'
        'gateway6 = 2001:db8::2\nexception_tap = rdma0\nvlan = 7\nmac = 02:00:00:00:00:01\n'
        '[port c]\ndevice = eth0\ndriver = af_xdp\n'
        '[port d]\ndevice = eth1\nlink_local = yes\nmtu = 1500\n'
        '[port e]\ndevice = loopback\n'
        '[port f]\ndevice = tap:kt0\naddresses = 198.51.100.1/24\nvlan = 3\n'
        'mac = 02:00:00:00:00:02\ngateway4 = 198.51.100.2\n',
    'a link-local router':
        '[port a]\ndevice = net_null0\nlink_local = yes\ngateway6 = fe80::1\n',
    'addresses on several lines':
        '[port a]\ndevice = eth0\naddresses = 192.0.2.1/24\naddresses = 192.0.2.2/24 2001:db8::1/64\n',
    'link-local addresses may be the same on different links':
        '[port a]\ndevice = net_null0\naddresses = fe80::1/64\n'
        '[port b]\ndevice = net_null1\naddresses = fe80::1/64\n',
}


class Check(Tap):
    def __init__(self, karstd):
        super().__init__()
        self.karstd = karstd

    def run(self, *args):
        return subprocess.run([self.karstd, *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=300, check=False)

    def check_file(self, text, folder):
        path = os.path.join(folder, 'karst.conf')
        with open(path, 'w', encoding='utf-8', newline='') as f:
            f.write(text)
        return path, self.run('--check', '--config', path)


def problems_of(path, run, errors):
    """Differences between the output and @errors."""
    problems = []
    if run.returncode != 2:
        problems.append(f'exit status {run.returncode}, not 2')
    lines = run.stderr.splitlines()
    for number, text in errors:
        at = f'{path}:{number}: ' if number else f'{path}: '
        found = [line for line in lines if at in line and text in line]
        if len(found) != 1:
            problems.append(f'{len(found)} lines with "{at}" and "{text}"')
        else:
            lines.remove(found[0])
    problems += [f'unexpected: {line}' for line in lines]
    if problems:
        problems += ['it said: ' + line for line in run.stderr.splitlines()]
    return problems


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    check = Check(argv[1])
    shipped = os.path.join(argv[2], 'config', 'karst.conf')
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, errors) in BAD.items():
            path, run = check.check_file(text, folder)
            check.point(name, problems_of(path, run, errors))
        _, run = check.check_file('[engine]\n' + 'idle = poll\n' * 5000, folder)
        said = [line for line in run.stderr.splitlines() if 'more than 4096' in line]
        check.point('too many keys are one error', [] if len(said) == 1 and ':4098: ' in said[0] else
                    [f'{len(said)} lines say so'] + said[:2])
        for more, last in ((0, ''), (1, '1 more error'), (80, '80 more errors')):
            path, run = check.check_file('nonsense\n' * (20 + more), folder)
            wanted = [(line, 'neither') for line in range(1, 21)]
            lines = run.stderr.splitlines()
            if more and lines:
                run.stderr = '\n'.join(lines[:-1])
            problems = problems_of(path, run, wanted)
            if more and lines[-1:] != [f'karstd: {last}']:
                problems.append(f'the last line is not "karstd: {last}", but {lines[-1:]}')
            check.point(f'{20 + more} errors', problems)
        for name, text in GOOD.items():
            _, run = check.check_file(text, folder)
            check.point(name, run.stderr.splitlines() if run.returncode else [])
        with open(shipped, encoding='utf-8') as f:
            # every key, uncommented
            text = ''.join(line[1:] if line[:1] == '#' and line[1:2] not in ' \n' else line
                           for line in f)
        _, run = check.check_file(text, folder)
        check.point('the shipped file with all of its keys uncommented',
                    run.stderr.splitlines() if run.returncode else [])
        run = check.run('--check', '--config', shipped)
        check.point('the shipped file', run.stderr.splitlines() if run.returncode else [])
        for name, args, text in (
                ('a file that is not there', ['--config', folder + '/none'], 'No such file'),
                ('a folder', ['--config', folder], 'not a regular file'),
                ('--socket', ['--config', '/dev/null/x', '--socket', 'rel'], 'Not a directory'),
                ('--socket that is relative', ['--socket', 'rel'], 'absolute path'),
                ('--log-level', ['--log-level', 'loud'], 'error, warning, notice, info or debug'),
                ('--name', ['--name', ''], 'not a name'),
                ('an unknown option', ['--daemonize'], '--help'),
                ('a word', ['start'], 'not an option')):
            run = check.run('--check', *args)
            check.point(name, [] if run.returncode == 2 and text in run.stderr else
                        [f'exit status {run.returncode}, "{text}" not in: {run.stderr}'])
        for name, args, text in (('--help', ['--help'], 'usage: karstd'),
                                 ('--version', ['--version'], 'karstd ')):
            run = check.run(*args)
            check.point(name, [] if run.returncode == 0 and text in run.stdout else
                        [f'exit status {run.returncode}: {run.stdout}'])
    return check.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
