#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Builds what a guest boots: a kernel of Debian's and an initial file system.

  image.py FOLDER KERNEL AGENT [[PATH=]PROGRAM...]

KERNEL is a meta package, as linux-image-amd64.  The package that it stands for is downloaded into
FOLDER by apt-get, and unpacked there, never installed.  The file system has the host's RDMA
programs and the PROGRAMs with their libraries, the modules that the cases need, and AGENT.  A
PROGRAM is in /usr/bin, unless PATH says where it is to be, relative to the root.
Neither is compressed, as far as that can be helped: QEMU without KVM takes seconds to unpack them.
Prints the paths of both.  What FOLDER has already is not made again: a package is known by its
name and hash, an image by the hash of all that goes into it.
"""
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = '/usr/bin:/usr/sbin:/bin:/sbin'
DOWNLOAD_S = 900
LIBRARIES = '/usr/lib/x86_64-linux-gnu'
LOADER = '/lib64/ld-linux-x86-64.so.2'
# The folders of kernel modules that guests need some of, and what these need: of 4000 modules few
# are unpacked. /: the modules of the folder itself alone.
WANTED = '''arch/x86/crypto block crypto drivers/block drivers/char drivers/infiniband/core
  drivers/infiniband/sw drivers/net/ drivers/net/ipvlan drivers/nvme drivers/vfio drivers/vhost
  drivers/virtio fs/ fs/9p fs/configfs fs/ext4 fs/fscache fs/fuse fs/jbd2 fs/netfs fs/overlayfs lib
  net/802 net/8021q net/9p net/bridge net/core net/ipv4/ net/ipv6/ net/llc net/packet net/smc net/unix
  virt'''.split()
# The inputs of apt's answers.
APT = ['/etc/apt', '/var/lib/apt/lists']


TEXTS = {
    'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\n',
    'etc/nsswitch.conf': 'hosts: files\npasswd: files\n',
    'etc/hosts': '127.0.0.1 localhost\n',
}


class Contents:
    """Files of this machine that are put into an image, by name.  @drivers are DPDK's, for a karstd
    in the guest: all drivers in their folder are loaded, and no library may be there twice, so
    these are only those that no other one needs."""

    def __init__(self, name, programs, modules, drivers, texts=None):
        self.name = name
        self.programs = programs.split()
        self.modules = modules.split()
        self.drivers = drivers.split()
        self.texts = {**TEXTS, **(texts or {})}


# for the suite interop
PEER = Contents('initrd', '''ip tc rdma ping modprobe lsmod
  ibv_devices ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong
  rping udaddy ucmatose cmtime mckey rstream riostream rdma_client rdma_server
  ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw
  ib_atomic_lat nvme mke2fs mkfs.ext4 e2fsck''',
                '''virtio_net virtio_pci virtio_console virtio_rng rdma_rxe ib_uverbs rdma_cm rdma_ucm
  8021q nvme-rdma nvmet nvmet-rdma null_blk brd ext4 configfs
  crc32_pclmul crc32_generic crc32c_generic crc32c_intel crc32c''',
                'mempool_ring mempool_stack net_ring')
# Needed by name at run time: verbs providers, libraries that glibc loads when a thread is
# cancelled, settings.
MORE = ['/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so', '/etc/libibverbs.d/rxe.driver',
        '/lib/x86_64-linux-gnu/libgcc_s.so.1', '/etc/mke2fs.conf']
FOLDERS = 'dev etc lib lib64 proc root run sbin sys tmp usr var var/run'.split()


class Failure(Exception):
    """Why there is no image."""


def sh(*words, cwd=None, limit_s=120):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=cwd,
                              stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False,
                              env=dict(os.environ, LC_ALL='C', PATH=PATH))
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Failure(f'{" ".join(words)}: {e}') from e
    if done.returncode:
        raise Failure(f'{" ".join(words)}: exit status {done.returncode}: {done.stdout}')
    return done.stdout


def sha256(path):
    with open(path, 'rb') as f:
        return hashlib.file_digest(f, 'sha256').hexdigest() if hasattr(hashlib, 'file_digest') \
            else hashlib.sha256(f.read()).hexdigest()


# --- the kernel ---

def apt(folder, program, *words, **more):
    """Runs apt with its summary of all package lists in @folder: apt may be configured not to keep
    it, and then takes seconds to make it again each time."""
    return sh(program, '-o', f'Dir::Cache::pkgcache={os.path.abspath(folder)}/apt.cache', *words, **more)


def on_offer(folder, meta):
    """(package, file name, SHA-256) that the archive offers for the meta package."""
    found = re.search(r'Depends: (linux-image-\S+)', apt(folder, 'apt-cache', 'depends', meta))
    if not found:
        raise Failure(f'apt-cache knows no kernel behind {meta}')
    package = found.group(1)
    uri = apt(folder, 'apt-get', 'download', '--print-uris', package).split()
    if len(uri) != 4 or not uri[3].startswith('SHA256:'):
        raise Failure(f'apt-get does not say where {package} is: {" ".join(uri)}')
    return package, uri[1], uri[3][7:]


def state_of_apt():
    """Changes when package lists or apt's settings change."""
    digest = hashlib.sha256()
    for top in APT:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                status = os.lstat(path)
                digest.update(f'{path} {status.st_size} {status.st_mtime_ns}\n'.encode())
    return digest.hexdigest()


def answered(folder, meta):
    """lists_of_packages(), which takes apt seconds: cached until apt's state changes."""
    path = os.path.join(folder, f'{meta}.offer')
    try:
        with open(path, encoding='utf-8') as f:
            state, *answer = f.read().split()
    except FileNotFoundError:
        state, answer = None, []
    if state != state_of_apt() or len(answer) != 3:
        answer = lists_of_packages(folder, meta)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(' '.join([state_of_apt(), *answer]))
    return answer


def lists_of_packages(folder, meta):
    """What is on offer; fetches the package lists first if there are none."""
    try:
        return on_offer(folder, meta)
    except Failure as first:
        as_root = [] if os.getuid() == 0 else ['sudo', '-n']
        try:
            sh(*as_root, 'apt-get', '-qq', 'update', limit_s=DOWNLOAD_S)
        except Failure as e:
            raise Failure(f'{first}; and {e}') from e
        return on_offer(folder, meta)


def kept(folder, meta):
    """The newest kernel in the folder for which @meta once stood, or None.  The archive may be
    unreachable."""
    found = [d for d in glob.glob(os.path.join(folder, '*', 'meta'))
             if open(d, encoding='ascii').read() == meta]
    return os.path.dirname(max(found, key=os.path.getmtime)) if found else None


def is_wanted(path):
    """Whether a file of a kernel's package is needed."""
    if re.search(r'/boot/vmlinuz-|/modules\.builtin(\.modinfo)?$|/modules\.order$', path):
        return True
    found = re.search(r'/lib/modules/[^/]+/kernel/(.+/)[^/]+\.ko[^/]*$', path)
    return bool(found) and any(found.group(1) == part or not part.endswith('/') and
                               found.group(1).startswith(part + '/') for part in WANTED)


def unpack(package, folder):
    """Unpacks the files that are needed."""
    os.mkdir(folder)
    with subprocess.Popen(['dpkg-deb', '--fsys-tarfile', package], stdout=subprocess.PIPE) as deb:
        try:
            with tarfile.open(fileobj=deb.stdout, mode='r|', bufsize=1 << 20) as tar:
                for member in tar:
                    if member.isreg() and is_wanted(member.name):
                        to = os.path.join(folder, member.name)
                        os.makedirs(os.path.dirname(to), exist_ok=True)
                        with open(to, 'wb') as f:
                            shutil.copyfileobj(tar.extractfile(member), f, 1 << 20)
        except (tarfile.TarError, OSError) as e:
            raise Failure(f'{package} cannot be unpacked: {e}') from e
    if deb.returncode:
        raise Failure(f'{package} cannot be unpacked: dpkg-deb ends with {deb.returncode}')


def kernel(folder, meta):
    """The folder in which a kernel is unpacked; its file "hash" identifies the package, and which
    files of it are needed."""
    try:
        package, name, digest = answered(folder, meta)
    except Failure:
        there = kept(folder, meta)
        if there is None:
            raise
        return there
    there = os.path.join(folder, package)
    mark, marked = os.path.join(there, 'hash'), f'{digest} {" ".join(WANTED)}'
    if os.path.exists(mark) and open(mark, encoding='ascii').read() == marked:
        return there
    shutil.rmtree(there, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        apt(folder, 'apt-get', '-qq', '-o', 'APT::Sandbox::User=root', 'download', package, cwd=work,
            limit_s=DOWNLOAD_S)
        debs = glob.glob(os.path.join(work, '*.deb'))
        if len(debs) != 1 or sha256(debs[0]) != digest:
            raise Failure(f'apt-get download {package}: {name} is not what the archive promised')
        new = os.path.join(work, 'new')
        unpack(debs[0], new)
        # Debian 12 unpacks to /lib, later ones to /usr/lib
        if not os.path.isdir(os.path.join(new, 'lib')):
            os.symlink('usr/lib', os.path.join(new, 'lib'))
        for text, to in ((meta, 'meta'), (marked, 'hash')):
            with open(os.path.join(new, to), 'w', encoding='ascii') as f:
                f.write(text)
        os.rename(new, there)
    return there


def unpacked(payload):
    """Unpacks the payload of a kernel's image; None: in an unknown format."""
    if payload.startswith(b'\xfd7zXZ'):
        # what follows the stream is its length
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    if payload.startswith(b'\x28\xb5\x2f\xfd'):
        # zstd would take the length for another frame
        return subprocess.run(['zstd', '-d', '-c'], input=payload[:-4], stdout=subprocess.PIPE,
                              timeout=120, check=True).stdout
    return None


def bootable(there, version):
    """The kernel's file for QEMU: an ELF file, entered by its PVH note, if it can be unpacked here;
    otherwise as it is packaged."""
    packaged = os.path.join(there, 'boot', f'vmlinuz-{version}')
    elf = os.path.join(there, 'boot', f'vmlinux-{version}')
    if os.path.exists(elf):
        return elf
    with open(packaged, 'rb') as f:
        data = f.read()
    # Documentation/x86/boot.rst: setup_sects, payload_offset, payload_length
    at, length = struct.unpack_from('<II', data, 0x248)
    at += (data[0x1f1] + 1) * 512
    try:
        kernel_elf = unpacked(data[at:at + length])
    except (lzma.LZMAError, OSError, subprocess.SubprocessError):
        kernel_elf = None
    if kernel_elf is None:
        return packaged
    with open(f'{elf}.{os.getpid()}', 'wb') as f:
        f.write(kernel_elf)
    os.rename(f.name, elf)
    return elf


def version_of(there):
    return os.listdir(os.path.join(there, 'lib', 'modules'))[0]


def module_name(path):
    return os.path.basename(path).split('.')[0].replace('-', '_')


def needs(path):
    """(names of the modules that a module needs, those that it can use, which may not be names of
    modules)"""
    said = dict.fromkeys((b'depends', b'softdep'), b'')
    for key, value in re.findall(rb'(?<=\0)(depends|softdep)=([^\0]*)', content(path)):
        said[key] += b' ' + value.replace(b',', b' ')
    return [[module_name(word) for word in said[key].decode().split() if not word.endswith(':')]
            for key in (b'depends', b'softdep')]


def modules(there, names):
    """{path in the image: path here} of the modules, with those that they need.  Built-in ones, or
    those of another kernel, have none."""
    top = os.path.join(there, 'lib', 'modules', version_of(there))
    here = {module_name(path): path
            for path in glob.glob(f'{top}/kernel/**/*.ko*', recursive=True)}
    with open(f'{top}/modules.builtin', encoding='ascii') as f:
        built_in = {module_name(line) for line in f}
    found, todo = {}, [module_name(name) for name in names]
    while todo:
        name = todo.pop()
        inside = re.sub(r'\.xz$', '', os.path.relpath(here[name], there)) if name in here else None
        if inside is None or inside in found:
            continue
        found[inside] = here[name]
        hard, soft = needs(here[name])
        unknown = set(hard) - set(here) - built_in
        if unknown:
            raise Failure(f'the module {name} needs {" ".join(sorted(unknown))}, of no folder of WANTED')
        todo += hard + soft
    return found


# --- programs ---

def libraries(path):
    """The libraries with which a program, or a library, is linked; for a script, none."""
    # like ldd, which is a script of several processes
    done = subprocess.run([LOADER, '--list', path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return re.findall(r'(/\S+\.so\S*) \(0x', done.stdout)


def placed(library):
    """Where in the image a library belongs: those of a build folder go to the others."""
    if library.startswith(('/usr/', '/lib')):
        return library[1:]
    return f'{LIBRARIES[1:]}/{os.path.basename(library)}'


def programs(agent, own, contents):
    """{path in the image: path here}"""
    found = {'init': os.path.join(HERE, 'init'), 'usr/bin/agent': agent}
    missing = []
    for name in (*contents.programs, 'dash', 'busybox'):
        path = shutil.which(name, path=PATH)
        if path is None:
            missing.append(name)
        else:
            found['usr/bin/' + name] = os.path.realpath(path)
    missing += [path for path in MORE if not os.path.exists(path)]
    if missing:
        raise Failure(f'not installed here, and needed in the guest: {" ".join(missing)}')
    found.update({path[1:]: os.path.realpath(path) for path in MORE})
    found.update(dict(own_place(words) for words in own))
    if 'usr/sbin/karstd' in found:
        for name in contents.drivers:
            for path in glob.glob(f'{LIBRARIES}/dpdk/pmds-*/librte_{name}.so'):
                found[path[1:]] = os.path.realpath(path)
    for path in list(found.values()):
        for library in libraries(path):
            found[placed(library)] = os.path.realpath(library)
    return found


def own_place(words):
    inside, _, path = words.rpartition('=')
    return inside or 'usr/bin/' + os.path.basename(path), os.path.abspath(path)


def links(files):
    """{path in the image: what it points to}"""
    found = {'bin': 'usr/bin', 'sbin/modprobe': '/usr/bin/modprobe', 'etc/mtab': '/proc/mounts'}
    for applet in sh('busybox', '--list').split():
        # busybox's own sh prefers its applets to programs in PATH
        path = 'usr/bin/' + applet
        if path not in files and applet not in ('sh', 'init'):
            found[path] = 'busybox'
    found['usr/bin/sh'] = 'dash'
    return found


# --- the image ---

class Cpio:
    """An archive that the kernel can unpack (newc); a folder comes before its contents."""

    def __init__(self, f):
        self.f = f
        self.inode = 0
        self.folders = set()

    def record(self, name, mode, data=b''):
        self.inode += 1
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b'070701' + b''.join(b'%08X' % field for field in fields) + name.encode() + b'\0'
        self.f.write(head + b'\0' * (-len(head) % 4) + data + b'\0' * (-len(data) % 4))

    def folder(self, name):
        if name and name not in self.folders:
            self.folder(os.path.dirname(name))
            self.folders.add(name)
            self.record(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755):
        self.folder(os.path.dirname(name))
        self.record(name, stat.S_IFREG | mode, data)

    def link(self, name, to):
        self.folder(os.path.dirname(name))
        self.record(name, stat.S_IFLNK | 0o777, to.encode())

    def end(self):
        self.record('TRAILER!!!', 0)


def content(path):
    with open(path, 'rb') as f:
        data = f.read()
    return lzma.decompress(data) if path.endswith('.xz') else data


def lean(there, mods):
    """{path in the image: content} of modules and of what modprobe reads.  Modules are stored
    without parts that a guest's kernel would process when it loads them, and that are not used:
    type descriptions for BPF (.BTF), and a signature."""
    version = version_of(there)
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, 'lib', 'modules', version)
        for inside, path in mods.items():
            to = os.path.join(work, inside)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, 'wb') as f:
                f.write(content(path))
        sh('strip', '--strip-debug', '--remove-section=.BTF', *(os.path.join(work, inside) for inside in mods))
        for path in glob.glob(os.path.join(there, 'lib', 'modules', version, 'modules.*')):
            shutil.copy(path, folder)
        sh('depmod', '-b', work, version)
        index = [f'lib/modules/{version}/{name}' for name in sorted(os.listdir(folder))
                 if name.startswith('modules.')]
        return {inside: content(os.path.join(work, inside)) for inside in [*mods, *index]}


def key(there, files):
    """A hash of all that goes into an image."""
    digest = hashlib.sha256(open(os.path.join(there, 'hash'), 'rb').read())
    for inside, path in sorted({**files, 'image.py': os.path.abspath(__file__)}.items()):
        digest.update(f'{inside} {sha256(path)}\n'.encode())
    return digest.hexdigest()[:16]


def write(path, there, files, mods, texts):
    with open(path, 'wb') as f:
        archive = Cpio(f)
        for name in FOLDERS:
            archive.folder(name)
        for name, text in texts.items():
            archive.file(name, text.encode(), 0o644)
        for name, source in sorted(files.items()):
            archive.file(name, content(source))
        for name, data in lean(there, mods).items():
            archive.file(name, data, 0o644)
        for name, to in links(files).items():
            archive.link(name, to)
        archive.end()


def image(folder, meta, agent, own=(), contents=PEER):
    """(kernel, initial file system, version): files in @folder, made if they do not exist."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'lock'), 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX) # another suite may want the same one
        there = kernel(folder, meta)
        elf = bootable(there, version_of(there))
    version = version_of(there)
    files, mods = programs(agent, own, contents), modules(there, contents.modules)
    name = f'{contents.name}-{version}'
    initrd = os.path.join(folder, f'{name}-{key(there, files)}')
    if not os.path.exists(initrd):
        for old in glob.glob(os.path.join(folder, f'{name}-*')):
            os.unlink(old)
        write(f'{initrd}.{os.getpid()}', there, files, mods, contents.texts)
        os.rename(f'{initrd}.{os.getpid()}', initrd)
    return elf, initrd, version


if __name__ == '__main__':
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        print(*image(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])[:2], sep='\n')
    except Failure as e:
        sys.exit(f'image.py: {e}')
