#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""What programs see through karst-run: run.py KARST-RUN KARSTD (TAP).

The engine's ports are as the configuration here says; what a program reads must say the same, in a
namespace and without, as root and as nobody in particular.
"""
import errno
import os
import re
import socket
import sys
import tempfile
import threading

from run_bed import (karst_observe, Daemon, IS_ROOT, NOBODY, Run, Tap, USERS, alone, becomes,
                     differ, expect, free_tcp_port, listens, who)

CONF = '''
[socket]
mode = 0666
[port one]
device = loopback
addresses = 127.0.0.1/8, ::1/128
[port two]
device = loopback
addresses = 10.9.0.1/24, fd00:9::1/64
'''
GIDS = {'karst0': ['0000:0000:0000:0000:0000:ffff:7f00:0001',
                   '0000:0000:0000:0000:0000:0000:0000:0001'],
        'karst1': ['0000:0000:0000:0000:0000:ffff:0a09:0001',
                   'fd00:0009:0000:0000:0000:0000:0000:0001']}
GUIDS = {} # made from the MAC addresses, which telemetry reports
NO_GID = '0000:0000:0000:0000:0000:0000:0000:0000'
NETLINK_RDMA = 20


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read().rstrip('\n')


def eui64(mac):
    """The GUID that belongs to a MAC address."""
    octets = bytes.fromhex(mac.replace(':', ''))
    octets = bytes([octets[0] ^ 2]) + octets[1:3] + b'\xff\xfe' + octets[3:]
    return ':'.join(octets[i:i + 2].hex() for i in range(0, 8, 2))


# --- the tree ---

def port_problems(device, folder, numbers):
    port = os.path.join(folder, 'ports', '1')
    gids = [read(port, 'gids', str(i)) for i in range(numbers)]
    problems = differ('GIDs', [gid for gid in gids if gid != NO_GID], GIDS[device])
    problems += differ('files of types', sorted(os.listdir(os.path.join(port, 'gid_attrs/types'))),
                       sorted(str(i) for i in range(numbers)))
    problems += differ('type', {read(port, 'gid_attrs/types', str(i)) for i in range(numbers)},
                       {'RoCE v2'})
    problems += differ('interfaces', os.listdir(os.path.join(port, 'gid_attrs/ndevs')), [])
    for name, text in (('state', '4: ACTIVE'), ('phys_state', '5: LinkUp'),
                       ('link_layer', 'Ethernet'), ('pkeys/0', '0xffff'), ('lid', '0x0')):
        problems += differ(name, read(port, name), text)
    return problems


def tree_problems(tree, path):
    problems = differ('ABI', read(tree, 'class/infiniband_verbs/abi_version'), '6')
    for name, text in (('abi_version', '4'), ('dev', '1:7')):
        problems += differ(f'rdma_cm {name}', read(tree, 'class/misc/rdma_cm', name), text)
    for number, device in enumerate(('karst0', 'karst1')):
        folder = os.path.join(tree, 'class/infiniband', device)
        node = os.path.join(tree, f'class/infiniband_verbs/uverbs{number}')
        for name, text in (('karst/socket', path), ('karst/port', str(number + 1)),
                           ('node_type', '1: CA'), ('node_guid', GUIDS[device]),
                           ('sys_image_guid', GUIDS['karst0']),
                           ('device/modalias', f'rdma_device:N{device}')):
            problems += differ(f'{device} {name}', read(folder, name), text)
        problems += differ('ibdev', read(node, 'ibdev'), device)
        problems += differ('dev', read(node, 'dev'), '1:7')
        problems += [f'{device}: {p}' for p in port_problems(
            device, folder, len(os.listdir(os.path.join(folder, 'ports/1/gids'))))]
    return problems


def kept_tree(tap, program, path, folder):
    tree = os.path.join(folder, 'tree')
    run = Run(program, socket=path)
    done = run('--keep-tree', tree)
    problems = expect(done, 0) or tree_problems(tree, path)
    problems += differ('driver', read(tree, 'libibverbs.d/karst.driver').split()[0], 'driver')
    for node in ('uverbs1', 'rdma_cm'):
        problems += differ(node, os.readlink(os.path.join(tree, 'dev/infiniband', node)),
                           '/dev/full')
    tap.point('--keep-tree writes what the engine has, a device for each port', problems)
    tap.point('a tree that is there is not touched',
              expect(run('--keep-tree', tree), 125, 'File exists', stream='stderr') or
              tree_problems(tree, path))


def of_an_interface(tap, program, karstd, folder):
    """A port on a kernel interface, in a network namespace with an interface of its own."""
    netns = f'run{os.getpid()}'
    os.system(f'ip netns add {netns} && ip -n {netns} link add kr0 type veth peer name kr1 && '
              f'ip -n {netns} addr add 192.0.2.1/24 dev kr0 && ip -n {netns} link set kr0 up && '
              f'ip -n {netns} link set kr1 up')
    d = Daemon(karstd, folder, '[port wire]\ndevice = kr0\n', name='dummy', netns=netns)
    try:
        problems = d.start()
        if not problems:
            run = Run(program, socket=d.socket, before=['ip', 'netns', 'exec', netns])
            done = run.shell('cd /sys/class/infiniband/karst0; ls device/net; cat karst/port '
                             'ports/1/gid_attrs/ndevs/0 ports/1/gids/0; ls ports/1/gid_attrs/ndevs;'
                             ' cat node_guid /sys/class/net/kr0/address; ibv_devinfo -v')
            problems = expect(done, 0, 'kr0\n1\nkr0\n0000:0000:0000:0000:0000:ffff:c000:0201\n',
                              'GID[  0]:\t\t::ffff:192.0.2.1, RoCE v2')
            if not problems:
                guid, mac = re.findall(r'^([0-9a-f:]{17,19})$', done.stdout, re.MULTILINE)[:2]
                problems += differ('GUID', guid, eui64(mac))
        tap.point('a port on a kernel interface names it', problems)
    finally:
        d.stop()
        os.system(f'ip netns del {netns}')


def by_default(tap, program, karstd, folder):
    """The machine's engine, at the default socket: in a namespace in which ours is there."""
    run_dir = os.path.join(folder, 'default')
    os.mkdir(run_dir)
    d = Daemon(karstd, folder, '[socket]\nmode = 0600\n', name='default',
               path=os.path.join(run_dir, 'karst.sock'))
    problems = d.start()
    before = ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
              'mount -t tmpfs none /run && mkdir /run/karst && '
              f'mount --bind {run_dir} /run/karst && exec "$@"', 'sh']
    show = ['sh', '-c', 'echo $KARST_SOCKET']
    problems += expect(Run(program, before=before)(*show), 0, '/run/karst/karst.sock\n')
    done = Run(program, '--linger', '0', before=before, nobody=True)(*show)
    problems += expect(done, 0, f'/tmp/karst-{NOBODY}/karst.sock\n')
    problems += expect(done, 0, '/run/karst/karst.sock', 'Permission denied',
                       'a private engine is used instead', stream='stderr')
    tap.point('the machine\'s engine is the default; one who may not use it is told, and gets his '
              'own', problems + d.stop())


# --- namespaces ---

LOOK = '''
set -e
id -u
ls /sys/class/infiniband /dev/infiniband
ls /dev | grep -v '^infiniband$' | tr '\\n' ' '; echo
ls /sys/class | grep -v '^infiniband' | tr '\\n' ' '; echo
ls /etc/libibverbs.d | grep -v '^karst.driver$' | tr '\\n' ' '; echo
ls /sys/class/misc | tr '\\n' ' '; ls -d /sys/class/misc/*/. | wc -l
echo "SYSFS_PATH=$SYSFS_PATH LD_PRELOAD=$LD_PRELOAD"
echo word > /dev/null; head -c 3 /dev/zero | wc -c
ls /sys/class/net/lo/statistics > /dev/null
echo there
'''


def listing(path, *without):
    return ''.join(f'{name} ' for name in sorted(os.listdir(path)) if name not in without)


def mounts():
    """Mounts of this test's own network namespace and of others come and go with other tests."""
    with open('/proc/self/mountinfo', encoding='utf-8') as f:
        return [line for line in f if ' - nsfs ' not in line]


def in_a_namespace(tap, program, path, nobody):
    run = Run(program, '--mode', 'ns', socket=path, nobody=nobody,
              env={'SYSFS_PATH': '/nowhere', 'LC_ALL': 'C'})
    before = mounts(), os.path.lexists('/dev/infiniband')
    misc = sorted({*os.listdir('/sys/class/misc'), 'rdma_cm'})
    done = run.shell(LOOK)
    uid = NOBODY if nobody else os.getuid()
    tap.point(f'{who(nobody)}: in a namespace the devices are where the kernel\'s would be, and '
              'all else is as it was', expect(
                  done, 0, f'{uid}\n', 'karst0\nkarst1\n', 'rdma_cm\nuverbs0\nuverbs1\n',
                  listing('/dev', 'infiniband') + '\n',
                  listing('/sys/class', 'infiniband', 'infiniband_verbs') + '\n',
                  ''.join(f'{name} ' for name in misc) + f'{len(misc)}\n',
                  listing('/etc/libibverbs.d', 'karst.driver') + '\n',
                  'SYSFS_PATH= LD_PRELOAD=\n', '3\n', 'there\n'))
    done = run.shell('mkdir /tmp/karst-run-test.$$ && rmdir /tmp/karst-run-test.$$ && pwd',
                     cwd='/tmp')
    tap.point(f'{who(nobody)}: the folder that was covered meanwhile is back',
              expect(done, 0, '/tmp'))
    tap.point(f'{who(nobody)}: nothing of it is seen outside',
              differ('mounts, /dev/infiniband', (mounts(), os.path.lexists('/dev/infiniband')),
                     before))


def one_in_another(tap, program, path, other):
    inner = (f'{program} --mode ns --socket {path} '
             'sh -c "cd /sys/class/infiniband; ls . /dev/infiniband; cat karst0/karst/socket"')
    done = Run(program, '--mode', 'ns', socket=other).shell(f'ls /dev/infiniband; {inner}')
    tap.point('one karst-run in another: the inner one\'s devices are seen in it', expect(
        done, 0, 'rdma_cm\nuverbs0\n.:\nkarst0\nkarst1\n\n/dev/infiniband:\nrdma_cm\nuverbs0\n'
        f'uverbs1\n{path}\n'))


def real_adapters(tap, program, path):
    """The kernel's entries are kept.  There is no adapter here; folders stand for one."""
    if os.path.exists('/sys/class/infiniband'):
        tap.skip('adapters of the kernel stay', 'it has real ones')
        return
    script = f'''
set -e
mount -t tmpfs none /mnt
mkdir -p /mnt/class/infiniband /mnt/class/infiniband_verbs /mnt/class/misc
mkdir -p /mnt/dev/real0 /mnt/dev/uv0
echo real0 > /mnt/dev/uv0/ibdev
ln -s /mnt/dev/real0 /mnt/class/infiniband/real0
ln -s /mnt/dev/real0 /mnt/class/infiniband/karst0
ln -s /mnt/dev/uv0 /mnt/class/infiniband_verbs/uverbs0
ln -s /mnt/dev/real0 /mnt/class/misc/rdma_cm
ln -s /mnt/dev/real0 /mnt/class/misc/other
mount --bind /mnt/class /sys/class
mount -t tmpfs none /dev/shm
mkdir /dev/shm/dev /dev/shm/dev/infiniband
mknod /dev/shm/dev/null c 1 3; mknod /dev/shm/dev/full c 1 7
echo node > /dev/shm/dev/infiniband/uverbs0
mount --rbind /dev/shm/dev /dev
for mode in ns env; do
{program} --socket {path} --mode $mode sh -c 'cd ${{SYSFS_PATH:-/sys}}/class
ls infiniband infiniband_verbs misc misc/rdma_cm
cat infiniband_verbs/*/ibdev; ls -d infiniband/real0/. infiniband_verbs/uverbs0/.
cat /dev/infiniband/uverbs0'
done'''
    done = Run('unshare', '-m', '--propagation', 'private')('sh', '-c', script)
    seen = ('infiniband:\nkarst0\nkarst1\nkarst2\nreal0\n\n'
            'infiniband_verbs:\nabi_version\nuverbs0\nuverbs1\nuverbs2\n\n'
            'misc:\nother\nrdma_cm\n\nmisc/rdma_cm:\nabi_version\ndev\n'
            'real0\nkarst1\nkarst2\ninfiniband/real0/.\ninfiniband_verbs/uverbs0/.\nnode\n')
    tap.point('adapters of the kernel stay, and keep their names', expect(done, 0, seen + seen))


# --- variables ---

def without_namespaces(tap, program, path, nobody):
    env = {'RDMAV_DRIVERS': 'other'}
    run = Run(program, '--mode', 'env', socket=path, nobody=nobody, env=env)
    done = run.shell('echo $SYSFS_PATH; env; cat $SYSFS_PATH/class/infiniband/karst1/karst/port')
    problems = expect(done, 0, f'KARST_SOCKET={path}\n', 'libkarst:other\n',
                      'libkarst-rdmav34.so\n', '\n2\n')
    tree = done.stdout.split('\n')[0]
    tap.point(f'{who(nobody)}: without a namespace variables lead to the devices', problems)
    tap.point(f'{who(nobody)}: the tree is removed in the end',
              becomes(f'{tree} is gone', lambda: not os.path.exists(tree)))


def minded_to_the_end(tap, program, path, folder):
    fifo = os.path.join(folder, 'fifo')
    os.mkfifo(fifo)
    run = Run(program, '--mode', 'env', socket=path)
    tree = run.shell(f'(cat {fifo} > /dev/null; ls $SYSFS_PATH/class > {folder}/late) '
                     '> /dev/null 2>&1 & echo $SYSFS_PATH').stdout.strip()
    problems = [] if os.path.isdir(tree) else [f'{tree} is gone']
    with open(fifo, 'w', encoding='utf-8') as f:
        f.write('go')
    problems += becomes('the tree is gone', lambda: not os.path.exists(tree))
    problems += differ('what it saw', read(folder, 'late'), 'infiniband\ninfiniband_verbs\nmisc')
    tap.point('the tree stays for a descendant in the background', problems)
    done = run('python3', '-c', 'import os; os.closerange(3, 65536); '
               'print(os.listdir(os.environ["SYSFS_PATH"])); print(os.environ["SYSFS_PATH"])')
    problems = expect(done, 0, 'class')
    problems += becomes('the tree is gone',
                        lambda: not os.path.exists(done.stdout.split('\n')[1]))
    tap.point('and for a program that closes all descriptors', problems)


def folder_goes(tap, program, path):
    """The folder of the trees may be removed whenever it is empty; tried repeatedly."""
    folder = f'/tmp/karst-{os.getuid()}'
    done = threading.Event()

    def remove():
        while not done.is_set():
            try:
                os.rmdir(folder)
            except OSError:
                pass
    thread = threading.Thread(target=remove)
    thread.start()
    run = Run(program, '--mode', 'env', socket=path)
    problems = []
    for _ in range(30):
        problems += expect(run('true'), 0)
    done.set()
    thread.join()
    problems += becomes(f'{folder} is empty',
                        lambda: not os.path.exists(folder) or not os.listdir(folder))
    tap.point('the folder of the trees may go at any moment', problems)


def killed(tap, program, path):
    run = Run(program, '--mode', 'env', socket=path)
    process = run.start('sh', '-c', 'echo $SYSFS_PATH; exec sleep 1000')
    tree = process.stdout.readline().strip()
    problems = [] if os.path.isdir(tree) else [f'{tree} is not there']
    process.kill()
    process.communicate()
    problems += becomes(f'{tree} is gone', lambda: not os.path.exists(tree))
    tap.point('a karst-run that is killed leaves nothing', problems)


# --- the end of a program ---

def exits(tap, program, path):
    for mode in ('ns', 'env'):
        run = Run(program, '--mode', mode, socket=path)
        problems = expect(run.shell('exit 7'), 7) + expect(run.shell('kill -KILL $$'), -9)
        problems += expect(run('/nowhere/program'), 127, '/nowhere/program', stream='stderr')
        problems += expect(run('no-such-program'), 127, stream='stderr')
        problems += expect(run('/etc/passwd'), 126, 'Permission denied', stream='stderr')
        process = run.start('sh', '-c', 'trap "exit 33" TERM; echo $$; '
                            'while :; do sleep 0.05; done')
        problems += differ('process', process.stdout.readline().strip(), str(process.pid))
        process.terminate()
        process.communicate()
        problems += differ('status after SIGTERM', process.returncode, 33)
        process = run.start('python3', '-c', 'import os\ntry:\n os.wait()\n'
                            'except ChildProcessError: print("none")')
        problems += differ('children', process.communicate()[0], 'none\n')
        tap.point(f'{mode}: exit status, signals, process and children are the program\'s',
                  problems)


def options(tap, program, path):
    run = Run(program)
    for name, args, text in (
            ('no program', [], 'no PROGRAM is given'),
            ('an unknown mode', ['--mode', 'soon', 'true'], 'allowed: auto, ns or env'),
            ('an unknown netlink', ['--netlink', 'no', 'true'], 'allowed: auto, hide or keep'),
            ('unknown CPUs', ['--cpus', '3', 'true'], 'allowed: auto, spare or all'),
            ('a bad time', ['--linger', '5s', 'true'], 'allowed: 0 to 86400 (seconds)'),
            ('two engines', ['--private', '--socket', path, 'true'], 'give one'),
            ('two things', ['--doctor', '--print'], 'give one of them'),
            ('a program with --doctor', ['--doctor', 'true'], 'no program is run'),
            ('an unknown option', ['--nonsense'], '--help lists'),
            ('no such engine', ['--socket', '/nowhere/karst.sock', 'true'],
             '/nowhere/karst.sock: No such file or directory; is karstd running? --private starts'),
            ('a long socket', ['--socket', '/' + 'x' * 200, 'true'], 'up to 107 bytes'),
            ('no such provider', ['--provider', '/nowhere-rdmav34.so', 'true'], '/nowhere'),
            ('no provider', ['--provider', program, 'true'], 'ends with "-rdmav34.so"')):
        tap.point(f'refused: {name}', expect(run(*args), 125, text, stream='stderr'))
    tap.point('--doctor says how to start a missing engine', expect(
        run('--socket', '/nowhere/karst.sock', '--doctor'), 1,
        'is karstd running? "karstd --socket /nowhere/karst.sock" starts one there; '))
    tap.point('options behind the program are its own',
              expect(Run(program, socket=path)('echo', '--mode', 'none'), 0, '--mode none\n'))
    done = run('--help')
    problems = expect(done, 0, 'usage: karst-run')
    problems += expect(run('--version'), 0, 'karst-run ')
    tap.point('--help and --version', problems)


def printed(tap, program, path):
    done = Run(program, socket=path)('--print', 'ibv_devices')
    tap.point('--print tells what would be done', expect(
        done, 0, f'engine {path}: ', 'device karst1: uverbs1, port 2, two\n',
        f'  gid 0: {GIDS["karst1"][0]}\n', '/libkarst-rdmav34.so\n', 'cover /sys/class\n',
        f'set KARST_SOCKET={path}\n',
        'run ibv_devices\n'))


# --- netlink ---

# The kernel checks the type of such a socket first, so a wrong type distinguishes the answers of
# kernel and filter on machines without an RDMA core, too.
ASK = f'''
import errno, socket
def ask(family, kind, protocol):
    try:
        socket.socket(family, kind, protocol).close()
        return 'made'
    except OSError as e:
        return errno.errorcode[e.errno]
print(ask(socket.AF_NETLINK, socket.SOCK_STREAM, {NETLINK_RDMA}),
      ask(socket.AF_NETLINK, socket.SOCK_RAW, 0), ask(socket.AF_UNIX, socket.SOCK_STREAM, 0),
      ask(socket.AF_INET, socket.SOCK_DGRAM, 0))
'''


def netlink(tap, program, path):
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA):
            present = True
    except OSError as e:
        present = e.errno != errno.EPROTONOSUPPORT
    hidden = 'EPROTONOSUPPORT made made made\n'
    kept = 'ESOCKTNOSUPPORT made made made\n'
    for mode in ('ns', 'env'):
        for nobody in USERS:
            for want, answer in (('hide', hidden), ('keep', kept),
                                 ('auto', hidden if present else kept)):
                run = Run(program, '--mode', mode, '--netlink', want, socket=path, nobody=nobody)
                tap.point(f'{mode}, {who(nobody)}: --netlink {want}',
                          expect(run('python3', '-c', ASK), 0, answer))


# --- its CPUs ---

def cpus(tap, program, path):
    """The engine of this suite has one lcore, on the last CPU that it may use."""
    may = sorted(os.sched_getaffinity(0))
    say = ('python3', '-c', 'import os; print(sorted(os.sched_getaffinity(0)))')
    spare = may[:-1] or may
    for want, answer in (('auto', spare), ('all', may)):
        run = Run(program, '--cpus', want, socket=path)
        tap.point(f'--cpus {want}: on CPUs {answer} of {may}', expect(run(*say), 0, f'{answer}\n'))
    run = Run(program, '--cpus', 'spare', socket=path,
              before=('taskset', '--cpu-list', str(may[-1])))
    tap.point('--cpus spare: not on a CPU of the engine alone',
              expect(run(*say), 125, '--cpus all lets it', stream='stderr'))


# --- programs ---

def programs(tap, program, path):
    for mode in ('ns', 'env'):
        for nobody in USERS:
            run = Run(program, '--mode', mode, socket=path, nobody=nobody)
            done = run('ibv_devices')
            tap.point(f'{mode}, {who(nobody)}: ibv_devices lists the devices', expect(
                done, 0, *(f'{device}          \t{guid.replace(":", "")}\n'
                           for device, guid in GUIDS.items())) +
                      differ('stderr', done.stderr, ''))
            done = run('ibv_devinfo', '-v', '-d', 'karst1')
            tap.point(f'{mode}, {who(nobody)}: ibv_devinfo asks one', expect(
                done, 0, 'hca_id:\tkarst1', f'node_guid:\t\t\t{GUIDS["karst1"]}',
                'state:\t\t\tPORT_ACTIVE (4)', 'GID[  0]:\t\t::ffff:10.9.0.1, RoCE v2',
                'GID[  1]:\t\tfd00:9::1, RoCE v2'))


def pingpong(tap, program, path):
    for mode in ('ns', 'env'):
        for nobody in USERS:
            server = Run(program, '--mode', mode, socket=path)
            client = Run(program, '--mode', mode, socket=path, nobody=nobody)
            args = ['ibv_rc_pingpong', '-d', 'karst0', '-g', '0', '-c', '-n', '100']
            port = free_tcp_port()
            process = server.start(*args, '-p', port)
            problems = becomes('the server listens or ends', lambda s=process, p=port:
                               listens(int(p)) or s.poll() is not None)
            problems += expect(client(*args, '-p', port, '127.0.0.1'), 0, '100 iters in')
            if problems: # otherwise it may wait for a client for ever
                process.kill()
            out = process.communicate()
            problems += differ('exit status of the server', process.returncode, 0)
            if problems:
                problems += out
            tap.point(f'{mode}: ibv_rc_pingpong of {who(False)} and {who(nobody)}, '
                      'every byte checked', problems)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, karstd = os.path.abspath(argv[1]), os.path.abspath(argv[2])
    alone(program, karstd)
    tap = Tap()
    if not IS_ROOT:
        tap.skip('as nobody, over an interface, beside adapters of the kernel', 'must be root')
    with tempfile.TemporaryDirectory(prefix='karst-run-test') as folder:
        os.chmod(folder, 0o755)
        d = Daemon(karstd, folder, CONF, name='run')
        other = Daemon(karstd, folder, '[port only]\ndevice = loopback\n', name='other')
        problems = d.start() + other.start()
        tap.point('the engines start', problems)
        if not problems:
            ports = karst_observe.find_engines(prefix=d.name)[0].rows('ports')
            GUIDS.update({f'karst{number}': eui64(row['mac']) for number, row in ports.items()})
            kept_tree(tap, program, d.socket, folder)
            if IS_ROOT:
                of_an_interface(tap, program, karstd, folder)
                real_adapters(tap, program, d.socket)
                by_default(tap, program, karstd, folder)
            for nobody in USERS:
                in_a_namespace(tap, program, d.socket, nobody)
                without_namespaces(tap, program, d.socket, nobody)
            one_in_another(tap, program, d.socket, other.socket)
            minded_to_the_end(tap, program, d.socket, folder)
            folder_goes(tap, program, d.socket)
            killed(tap, program, d.socket)
            exits(tap, program, d.socket)
            options(tap, program, d.socket)
            printed(tap, program, d.socket)
            cpus(tap, program, d.socket)
            netlink(tap, program, d.socket)
            programs(tap, program, d.socket)
            pingpong(tap, program, d.socket)
        tap.point('the engines are still there, and end', d.stop() + other.stop())
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
