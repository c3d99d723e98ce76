#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What karstd may do, and what it gives up: rights.py KARSTD SHARED UNIT ROOT (TAP).

SHARED is shared.c, UNIT the systemd unit as it is installed.  Users are numbers without a name.
"""
import grp
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from bed import (Daemon, HANG_S, Tap, by_systemd, call, connect, hello, of_threads,  # noqa: E402
                 unit_settings, words)
from ports import DEV, NETNS, Network, reason_against_netns, reason_against_xdp, sh  # noqa: E402

LOOPBACK = '[port loop]\ndevice = loopback\n'
OPEN = LOOPBACK + '[socket]\nmode = 0666\n'
CAPS = {'CAP_CHOWN': 0, 'CAP_DAC_OVERRIDE': 1, 'CAP_FOWNER': 3, 'CAP_SETGID': 6, 'CAP_SETUID': 7,
        'CAP_NET_ADMIN': 12, 'CAP_NET_RAW': 13, 'CAP_IPC_LOCK': 14, 'CAP_SYS_RAWIO': 17,
        'CAP_SYS_PTRACE': 19, 'CAP_SYS_ADMIN': 21, 'CAP_PERFMON': 38, 'CAP_BPF': 39,
        'CAP_CHECKPOINT_RESTORE': 40}
PART = ['CAP_SETUID', 'CAP_SETGID', 'CAP_CHECKPOINT_RESTORE'] # kept by the privileged part
# System calls of the groups of systemd.exec(5) that @system-service does not include, except @raw-io
# and the C library's own.
NO_SERVICE = set("""chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root
umount umount2 delete_module finit_module init_module kexec_file_load kexec_load reboot swapoff swapon
perf_event_open pidfd_getfd ptrace process_vm_readv process_vm_writev lookup_dcookie clock_adjtime
clock_settime settimeofday acct quotactl vhangup""".split())
DAEMON, PROGRAM = 61234, 61235
STALL_S = 3


def bits(names):
    return sum(1 << CAPS[name] for name in names)


def threads(pid):
    """[{field: text}] of /proc/PID/task/*/status."""
    return [dict(line.split(':\t', 1) for line in text.splitlines() if ':\t' in line)
            for _, text in of_threads(pid, 'status')]


def part_of(d):
    """The process number of a daemon's privileged part; None: there is none."""
    found = [int(pid) for _, text in of_threads(d.process.pid, 'children')
             for pid in text.split()]
    assert len(found) < 2, found
    return found[0] if found else None


def at_most(pid, uid, caps, watched):
    """Problems: a thread of @pid does not run as @uid, or has more capabilities than @caps, or
    fewer."""
    problems = []
    for t in threads(pid):
        want = {'Uid': '\t'.join([str(uid)] * 4), 'CapInh': 0, 'CapAmb': 0,
                'CapPrm': bits(caps), 'CapEff': bits(caps)}
        if not watched:
            want.update({'Seccomp': '2', 'NoNewPrivs': '1'})
        problems += [f'{t["Name"]}: {key} is {t[key]}, not {value}'
                     for key, value in want.items()
                     if (int(t[key], 16) if key.startswith('Cap') else t[key]) != value]
    return problems


def limited(d, uid, watched, part=tuple(PART)):
    """Problems: the engine's process has capabilities, or its privileged part has others than
    @part."""
    problems = at_most(d.process.pid, uid, [], watched)
    if len(threads(d.process.pid)) < 4:
        problems.append('hardly a thread')
    if part_of(d) is None:
        return problems + ['there is no privileged part']
    return problems + at_most(part_of(d), uid, part, watched)


def as_user(uid, *command):
    return ['setpriv', '--reuid', str(uid), '--regid', str(uid), '--clear-groups', *command]


def start_shared(program, path):
    return subprocess.Popen(as_user(PROGRAM, program, path), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end_shared(process, posix=0):
    """Problems: more than @posix bytes of sharable memory of another user's program are copied."""
    said, _ = process.communicate(timeout=HANG_S)
    want = [f'posix: {posix} of 65536 are copied', f'file: {posix} of 65536 are copied',
            'malloc: 65536 of 65536 are copied', 'done']
    return [] if said.splitlines() == want and process.returncode == 0 else \
        [f'exit status {process.returncode}: {said}']


def shares(program, path, posix=0):
    """Problems: a program of another user, whose memory must be shared where that is possible,
    except @posix bytes that must be copied."""
    return end_shared(start_shared(program, path), posix)


def open_folder(folder, name, uid=0):
    path = os.path.join(folder, name)
    os.mkdir(path, 0o755)
    os.chown(path, uid, uid)
    return path


def watch_of(pid):
    """Problems: other threads can keep the watchdog thread from getting a processor."""
    for number, name in of_threads(pid, 'comm'):
        if name != 'karst-watch\n':
            continue
        policy = os.sched_getscheduler(number)
        # and the threads that it creates do not inherit it
        want = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        return [] if policy == want else [f'scheduling policy {policy:#x}, not {want:#x}']
    return ['there is none']


def reason_against(*command):
    """Why root may not do it here, perhaps in a container; None: root may."""
    done = subprocess.run([*command, 'true'], stderr=subprocess.PIPE, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def watches(tap, pid, problems, reason=None):
    name = 'the watch has real-time priority'
    reason = reason or reason_against('chrt', '--fifo', '1')
    if reason is not None and not problems:
        tap.skip(name, reason)
    else:
        tap.point(name, problems or watch_of(pid))


def stays_root(tap, karstd, shared, folder, watched):
    d = Daemon(karstd, folder, OPEN, name='root')
    problems = d.start()
    tap.point('a daemon that stays root: no thread of the engine has a capability, its part has three',
              problems or limited(d, 0, watched))
    watches(tap, d.process.pid, problems)
    tap.point('memory of a program of another user is shared, not copied',
              problems or shares(shared, d.socket))
    tap.point('it stops, and nothing is left', d.stop() + [
        f'{p} is there' for p in (d.socket, d.socket + '.lock') if os.path.lexists(p)])
    tap.point('the log of all that has no error', complaints(d))


def complaints(d):
    """Problems: errors in the log of a daemon that did nothing wrong, or copied memory of a
    program."""
    return [line for line in d.text().splitlines() if ': error: ' in line]


def peeks(pid):
    """Problems: a process of the daemon's user, without capabilities, can access @pid."""
    return [f'{name} can be opened' for name in ('mem', 'maps', 'environ', 'fd/0')
            if subprocess.run(as_user(DAEMON, 'head', '-c1', f'/proc/{pid}/{name}'), check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0]


def becomes(tap, karstd, shared, folder, watched):
    path = os.path.join(folder, 'made', 'karst.sock')
    d = Daemon(karstd, folder, OPEN, name='user', path=path, args=['--user', str(DAEMON)])
    problems = d.start()
    tap.point('a daemon that is started as root becomes another user',
              problems or limited(d, DAEMON, watched))
    watches(tap, d.process.pid, problems)
    if not problems:
        problems = [f'{p} belongs to {os.stat(p).st_uid}'
                    for p in (os.path.dirname(path), path, path + '.lock')
                    if os.stat(p).st_uid != DAEMON]
    tap.point('what it makes is that user\'s', problems)
    tap.point('memory of a program of another user is shared, not copied', shares(shared, path))
    tap.point('its own user does not look into its privileged part', peeks(part_of(d)))
    tap.point('SIGHUP is obeyed', d.reload())
    tap.point('it stops, and nothing is left', d.stop() + [
        f'{p} is there' for p in (path, path + '.lock') if os.path.lexists(p)])
    tap.point('the log of all that has no error', complaints(d))
    of_root = os.path.join(open_folder(folder, 'of-root'), 'karst.sock')
    d = Daemon(karstd, folder, OPEN, name='left', path=of_root, args=['--user', str(DAEMON)])
    problems = d.start()
    if f'user {DAEMON} may not write to {os.path.dirname(of_root)}' not in d.text():
        problems.append(f'it does not say so: {d.text()}')
    tap.point('where it will have to leave its socket behind it says so', problems + d.stop())
    d = Daemon(karstd, folder, OPEN, name='named', args=['--user', 'nobody'])
    problems = d.start()
    tap.point('a user with a name', problems or limited(d, pwd.getpwnam('nobody').pw_uid,
                                                        watched))
    d.stop()
    d = Daemon(karstd, folder, LOOPBACK + '[engine]\nuser = nobody-knows\n', name='none')
    tap.point('a user that there is not', d.refuses(2, 'user', 'no such user'))


def default_user(tap, karstd, folder):
    """Without a user karst, which the machine may have."""
    d = Daemon(karstd, folder, LOOPBACK, name='default', args=['--user', ''])
    problems = d.start()
    try:
        uid, said = pwd.getpwnam('karst').pw_uid, 'useradd'
        problems += [d.text()] if said in d.text() else []
    except KeyError:
        uid = 0
        if d.text().count('useradd --system') != 1:
            problems.append(f'it is not said once how to make the user: {d.text()}')
    problems += [f'user {t["Uid"]}' for t in threads(d.process.pid)
                 if t['Uid'].split()[0] != str(uid)]
    tap.point('the user is karst, or there is none and the log says so once', problems)
    d.stop()


def wire(tap, karstd, folder, watched):
    """Ports of every kind in one daemon; the suite ports tests their traffic."""
    if reason_against_netns():
        tap.skip('ports that have a wire', reason_against_netns())
        return
    xdp = reason_against_xdp()
    driver = 'af_packet' if xdp else 'af_xdp'
    conf = (f'[port a]\ndevice = {DEV}\ndriver = {driver}\n'
            '[port b]\ndevice = net_null0\naddresses = 203.0.113.1/24\nexception_tap = karst0\n'
            '[port c]\ndevice = net_af_packet0,iface=lo\naddresses = 198.51.100.1/24\n')
    with Network(1500):
        d = Daemon(karstd, folder, conf, name='wire', netns=NETNS[0], args=['--user', str(DAEMON)])
        problems = d.start()
        tap.point('ports of interfaces, a tap and a device: the engine has no capability',
                  problems or limited(d, DAEMON, watched,
                                      PART if xdp else PART + ['CAP_NET_ADMIN']))
        left = '' if problems else sh('ip', '-n', NETNS[0], '-d', 'link', 'show', DEV)
        if not problems and not xdp and 'prog/xdp' not in left:
            problems.append(f'no XDP program: {left}')
        part = part_of(d)
        d.kill()
        problems += gone(part)
        if 'prog/xdp' in sh('ip', '-n', NETNS[0], '-d', 'link', 'show', DEV):
            problems.append('the XDP program of a daemon that was killed is left')
        tap.point('a daemon that is killed leaves no privileged part, and no XDP program', problems)


def gone(pid):
    """Problems: a process does not end."""
    end = time.monotonic() + HANG_S
    while os.path.exists(f'/proc/{pid}') and time.monotonic() < end:
        time.sleep(0.02)
    return [f'process {pid} is there'] if os.path.exists(f'/proc/{pid}') else []


def waits_for_part(tap, karstd, shared, folder):
    """On a busy machine the part may have no processor for a while."""
    d = Daemon(karstd, folder, OPEN, name='wait', args=['--user', str(DAEMON)])
    problems = d.start()
    if not problems:
        os.kill(part_of(d), signal.SIGSTOP)
        program = start_shared(shared, d.socket)
        time.sleep(STALL_S)
        os.kill(part_of(d), signal.SIGCONT)
        problems = end_shared(program)
    tap.point(f'a privileged part that stands still for {STALL_S} s is waited for', problems)
    tap.point('it stops', d.stop())


def loses_part(tap, karstd, shared, folder):
    d = Daemon(karstd, folder, OPEN, name='part', args=['--user', str(DAEMON)])
    problems = d.start()
    if not problems:
        os.kill(part_of(d), signal.SIGTERM)
        problems = shares(shared, d.socket)
        os.kill(part_of(d), signal.SIGKILL)
        problems += d.says('the privileged part has ended')
        problems += shares(shared, d.socket, 65536)
    tap.point('without its privileged part a daemon says so, copies, and goes on', problems)
    tap.point('it stops', d.stop())


def own_user(tap, karstd, shared, folder):
    """As users start it: without capabilities there is nothing to keep."""
    run = open_folder(folder, 'own', PROGRAM)
    d = Daemon(karstd, run, OPEN, name='own')
    at = d.command.index('--user')
    d.command = as_user(PROGRAM, *d.command[:at], *d.command[at + 2:])
    os.environ['RUNTIME_DIRECTORY'] = run
    try:
        problems = d.start()
    finally:
        del os.environ['RUNTIME_DIRECTORY']
    if not problems and part_of(d) is not None:
        problems = ['there is a privileged part']
    tap.point('a daemon of a user without rights has no privileged part, and serves that user',
              problems or shares(shared, d.socket, 65536))
    tap.point('it stops', d.stop())


def elsewhere(tap, karstd, folder):
    """An ordinary user, who may not use the default path of the socket."""
    for name, path in (('whose folder', f'{open_folder(folder, "of-others")}/new/karst.sock'),
                       ('whose lock file', f'{folder}/of-others/karst.sock')):
        d = Daemon(karstd, folder, OPEN, name='user', path=path, args=['--user', str(PROGRAM)])
        d.command = ['env', f'RUNTIME_DIRECTORY={folder}', *as_user(PROGRAM, *d.command)]
        tap.point(f'a socket {name} he may not make: he hears of --socket', d.refuses(
            1, 'Permission denied; --socket, or [socket] path, names another place'))


def filtered(karstd, settings):
    """The unit's filter has the calls that karstd makes and @system-service has not.  To the C library,
    others look as if the kernel did not have them.  @return problems"""
    done = subprocess.run(['nm', '-D', '--undefined-only', karstd], capture_output=True, text=True,
                          check=True)
    called = {line.split()[-1].split('@')[0] for line in done.stdout.splitlines()}
    problems = [f'SystemCallFilter lacks {name}, which karstd calls'
                for name in sorted((called & NO_SERVICE) - set(settings['SystemCallFilter']))]
    if settings.get('SystemCallErrorNumber') != ['ENOSYS']:
        problems.append('without SystemCallErrorNumber=ENOSYS another call kills the daemon')
    return problems


def by_unit(tap, karstd, shared, unit, folder, watched):
    """As systemd would start it, as far as setpriv can do that."""
    s = unit_settings(unit)
    bounding, ambient = s['CapabilityBoundingSet'], s['AmbientCapabilities']
    problems = [f'unknown: {name}' for name in bounding if name not in CAPS]
    if bounding != ambient or s['User'] != ['karst'] or s['NoNewPrivileges'] != ['yes']:
        problems.append(f'{s}')
    if s['RuntimeDirectory'] != ['karst']:
        problems.append(f'it takes folders from other programs: {s["RuntimeDirectory"]}')
    tap.point('the unit: a user, the same capabilities twice, its own folder', problems)
    tap.point('the unit: the system calls that karstd makes', filtered(karstd, s))
    run = open_folder(folder, 'run', DAEMON)
    d = Daemon(karstd, run, OPEN, name='unit')
    at = d.command.index('--user')
    limit = ['prlimit', f'--rtprio={s["LimitRTPRIO"][0]}']
    reason = reason_against(*limit)
    d.command = [*(limit if reason is None else []), *by_systemd(unit, DAEMON),
                 *d.command[:at], *d.command[at + 2:]]
    os.environ['RUNTIME_DIRECTORY'] = run
    try:
        problems = d.start()
    finally:
        del os.environ['RUNTIME_DIRECTORY']
    tap.point('with the rights of the unit it starts, and the engine keeps none',
              problems or limited(d, DAEMON, watched))
    watches(tap, d.process.pid, problems, reason)
    tap.point('with the rights of the unit, memory of another user is shared, not copied',
              problems or shares(shared, d.socket))
    tap.point('DPDK\'s folder is in the unit\'s own',
              [] if os.path.exists(f'{run}/dpdk/{d.name}/dpdk_telemetry.v2') else
              [f'{os.listdir(run)}'])
    tap.point('it stops', d.stop())


def not_dumped(pid):
    """Problems: memory that the daemon shares with programs would be in its core dump."""
    with open(f'/proc/{pid}/smaps', encoding='utf-8') as f:
        text = f.read()
    flags = re.findall(r'^[0-9a-f]+-[0-9a-f]+ [^\n]*memfd:karst:[^\n]*\n(?:[A-Z][^\n]*\n)*?'
                       r'VmFlags: ([^\n]*)', text, flags=re.MULTILINE)
    return [f'flags of shared memory: {row}' for row in flags if 'dd' not in row.split()] or \
        ([] if flags else ['no shared memory'])


def names(tap, karstd, root, folder):
    """The name that a program gives itself reaches a terminal as text."""
    sys.path.insert(0, os.path.join(root, 'usertools'))
    import karst_observe
    d = Daemon(karstd, folder, LOOPBACK, name='names')
    problems = d.start()
    sock = connect(d.socket)
    status, _ = call(sock, hello(program=b'evil\nname\x1b[2J\xc2\x9b\xff'))
    engine = karst_observe.find_engines(prefix=d.name)[0]
    found = [row['program'] for row in engine.rows('clients').values()]
    if status != 0 or found != ['evil?name?[2J???']:
        problems.append(f'status {status}, programs {found}')
    tap.point('a program\'s name is shown without what steers a terminal', problems)
    tap.point('what it shares is not in a core dump', not_dumped(d.process.pid))
    sock.close()
    tap.point('it stops', d.stop())


# A folder for the default configuration, which other processes do not see: FOLDER-ABOVE FOLDER FILE
DEFAULT_FILE = '''mount --make-rprivate / && mount -t tmpfs -o mode=755 none "$1" && mkdir -p "$2" &&
cp "$3" "$2/karst.conf" || exit 9
chmod 700 "$2" && chown "$4" "$2" && shift 4 && exec "$@"'''


def default_conf(karstd):
    said = subprocess.run([karstd, '--help'], stdout=subprocess.PIPE, text=True, check=False).stdout
    return re.search(r'default (/\S+/karst\.conf)', said).group(1)


def default_file(tap, karstd, unit, folder):
    """A default configuration that the daemon's user cannot read is not an absent one."""
    etc = above = os.path.dirname(default_conf(karstd))
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    reason = above in ('/', '/etc') and f'the default is {etc}' or reason_against('unshare', '--mount')
    if reason:
        tap.skip('the default configuration', reason)
        return
    run = open_folder(folder, 'default-run', DAEMON)
    for name, start in (('--user', None), ('the unit', by_systemd(unit, DAEMON))):
        d = Daemon(karstd, run, '[port a]\ndevice = loopback\naddresses = 192.0.2.1/24\n',
                   name='file', args=['--user', str(DAEMON)])
        at = d.command.index('--config')
        d.command[at:at + 2] = []
        if start is not None:
            at = d.command.index('--user')
            d.command[at:at + 2] = []
            d.command = [*start, *d.command]
        d.command = ['env', f'RUNTIME_DIRECTORY={run}', 'unshare', '--mount', 'sh', '-c', DEFAULT_FILE,
                     'sh', above, etc, d.conf, '0', *d.command]
        problems = d.start()
        inside = f'/proc/{d.process.pid}/root{etc}'
        if f'configuration: {etc}/karst.conf' not in d.text():
            problems.append(f'it has not read its file: {d.text()}')
        for what in ('may not be read', 'is away'):
            if problems:
                break
            if what == 'is away':
                os.chmod(inside, 0o755)
                os.rename(f'{inside}/karst.conf', f'{inside}/other')
            before = len(d.text())
            problems = d.reload()
            said = d.text()[before:]
            if 'the configuration is not changed' not in said or 'any more' in said:
                problems.append(f'its file {what}, and after SIGHUP it says: {said}')
        tap.point(f'{name}: a default file that may not be read, or is away, changes nothing',
                  problems + d.stop())


def log_file(tap, karstd, folder):
    """The log file is the daemon's user's, who opens it again."""
    of_user = open_folder(folder, 'log', DAEMON)
    log = os.path.join(of_user, 'karstd.log')
    conf = LOOPBACK + f'[log]\nfile = {log}\nlevel = '
    d = Daemon(karstd, folder, conf + 'warning', name='log', args=['--user', str(DAEMON)])
    problems = d.start()
    if not problems and os.stat(log).st_uid != DAEMON:
        problems = [f'the log belongs to user {os.stat(log).st_uid}']
    problems = problems or d.reload(conf + 'notice')
    said = '' if problems else open(log, encoding='utf-8').read()
    if 'read again' not in said:
        problems.append(f'SIGHUP has not changed the level: {said}{d.text()}')
    tap.point('the log file belongs to the daemon\'s user, and SIGHUP opens it again', problems)
    if not problems:
        d.reload(conf + 'info')
        os.unlink(log)
        os.chown(of_user, 0, 0)
        d.reload(conf + 'debug')
        said = read_deleted(d.process.pid)
        if f'log file {log}: Permission denied' not in said or \
                not said.endswith('the log goes on as before\n'):
            problems.append(f'it does not say that it cannot: {said}')
    tap.point('a log file that cannot be opened again is reported as such', problems + d.stop())
    log = os.path.join(of_user, 'link')
    os.symlink('/dev/null', log)
    d = Daemon(karstd, folder, LOOPBACK + f'[log]\nfile = {log}\n', name='link')
    d.start()
    problems = [] if f'error: log file {log}: ' in d.text() else [f'it says: {d.text()}']
    tap.point('a log file that is a symbolic link is refused', problems + d.stop(status=1))


def read_deleted(pid):
    """The text of a log file that has been removed."""
    for name in os.listdir(f'/proc/{pid}/fd'):
        path = f'/proc/{pid}/fd/{name}'
        if os.readlink(path).endswith('karstd.log (deleted)'):
            with open(path, encoding='utf-8') as f:
                return f.read()
    return ''


def many_groups(tap, karstd, folder):
    """The limits of a group count for a user who is in many."""
    group = grp.getgrall()[-1]
    d = Daemon(karstd, folder, OPEN + f'[limits @{group.gr_name}]\nclients = 1\n', name='groups')
    problems = d.start()
    child = os.fork()
    if child == 0:
        status = 9
        try:
            os.setgroups([*range(100000, 100300), group.gr_gid])
            os.setresgid(PROGRAM, PROGRAM, PROGRAM)
            os.setresuid(PROGRAM, PROGRAM, PROGRAM)
            first = connect(d.socket)
            replies = [call(first, hello()), call(connect(d.socket), hello())] # in this order
            status = int(replies[0][0] != 0) + 2 * int('clients' not in words(replies[1][1]))
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        problems.append({1: 'the first program is refused', 2: 'the second program is admitted'}.get(
            status, f'exit status {status}'))
    tap.point('[limits @GROUP] applies to a user with 300 groups', problems + d.stop())


def main(argv):
    if len(argv) not in (5, 6):
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    karstd, shared, unit, root = argv[1:5]
    watched = len(argv) == 6 # by sanitizers: system calls are not limited
    if os.geteuid() != 0:
        tap.skip('what karstd may do', 'needs root')
        return tap.finish()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        stays_root(tap, karstd, shared, folder, watched)
        becomes(tap, karstd, shared, folder, watched)
        default_user(tap, karstd, folder)
        wire(tap, karstd, folder, watched)
        waits_for_part(tap, karstd, shared, folder)
        loses_part(tap, karstd, shared, folder)
        own_user(tap, karstd, shared, folder)
        elsewhere(tap, karstd, folder)
        by_unit(tap, karstd, shared, unit, folder, watched)
        names(tap, karstd, root, folder)
        default_file(tap, karstd, unit, folder)
        log_file(tap, karstd, folder)
        many_groups(tap, karstd, folder)
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
