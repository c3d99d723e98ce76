#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""karst and a Linux kernel's soft-RoCE, over two kinds of ports (TAP).

  interop.py [--file NAME]... [--only REGEX] [--list] KERNEL FOLDER KARSTD KARST-RUN KARST-DUMP
             PROVIDER AGENT [PROGRAM...]

KERNEL is a meta package of Debian's.  FOLDER keeps kernels and images from one run to the next, and
takes what failing cases leave.  AGENT and the PROGRAMs are put into the guest, and so are KARSTD,
KARST-RUN and the PROVIDER of libibverbs.
"""
import argparse
import importlib
import os
import re
import resource
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, 'guest')]
sys.dont_write_bytecode = True
import guest  # noqa: E402
import image as images  # noqa: E402
import interop_bed  # noqa: E402
from bed import Tap  # noqa: E402

PROVIDER = f'{images.LIBRARIES[1:]}/libibverbs/libkarst-rdmav34.so='

def options(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--file', action='append', metavar='NAME',
                        help='cases of the file cases_NAME.py alone')
    parser.add_argument('--only', default='', metavar='REGEX', help='cases whose name it is in')
    parser.add_argument('--list', action='store_true', help='say what would be run')
    for name in ('kernel', 'folder', 'karstd', 'karst_run', 'karst_dump', 'provider',
                 'agent'):
        parser.add_argument(name)
    parser.add_argument('program', nargs='*')
    return parser.parse_args(argv)


def tables(files):
    """All cases, of the @files in the order of their names; of all files, if none are named."""
    for name in sorted(os.listdir(HERE)):
        found = re.fullmatch(r'cases_(\w+)\.py', name)
        if found and (not files or found.group(1) in files):
            yield from importlib.import_module(name[:-3]).CASES


def chosen(version, files, only):
    for case in tables(files):
        for variant in case.variants(version):
            title = case.title(*variant)
            if re.search(only, title):
                yield case, variant, title


def run_all(tap, bed, cases):
    for case, variant, title in cases:
        began, cpu_s = time.monotonic(), bed.guest.cpu_s()
        tap.point(title, interop_bed.run(bed, case, *variant))
        tap.note(f'{time.monotonic() - began:.1f} s, {bed.guest.cpu_s() - cpu_s:.1f} s of QEMU')


def processors():
    """CPU seconds: of this process, and of its children that have ended."""
    mine, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF,
                                                        resource.RUSAGE_CHILDREN))
    return f'{mine.ru_utime + mine.ru_stime:.1f} s of processors here, ' \
        f'{others.ru_utime + others.ru_stime:.1f} s in other processes, QEMU among them'


def main(argv):
    words = options(argv)
    # if this is terminated because it takes too long, it leaves no guest, karstd or network
    # namespace
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tap = Tap()
    reason = guest.reason_against()
    if reason:
        tap.skip(words.kernel, reason)
        return tap.finish()
    programs = [*words.program, f'usr/bin/karst-run={words.karst_run}',
                f'usr/sbin/karstd={words.karstd}', PROVIDER + words.provider]
    # at this end they are found by name, as in the guest
    os.environ['PATH'] = os.pathsep.join([*(os.path.dirname(os.path.abspath(path))
                                            for path in words.program), os.environ['PATH']])
    began = time.monotonic()
    try:
        image = images.image(words.folder, words.kernel, os.path.abspath(words.agent), programs)
    except images.Failure as e:
        tap.point(f'{words.kernel}: kernel and image', [str(e)])
        return tap.finish()
    version = image[2]
    cases = list(chosen(version, words.file, words.only))
    if words.list:
        print('\n'.join(title for _, _, title in cases))
        return 0
    tap.point(f'{version}: kernel and image', [])
    tap.note(f'{time.monotonic() - began:.1f} s')
    series = '.'.join(version.split('.')[:2])
    bed = interop_bed.Bed((words.karstd, words.karst_run), image,
                          os.path.join(words.folder, f'failed-{series}'),
                          os.path.abspath(words.karst_dump))
    try:
        problems = bed.start()
        tap.point(f'{version}: the guest comes up', problems)
        if not problems:
            tap.note(f'{bed.guest.boot_s:.1f} s, {bed.guest.cpu_s():.1f} s of QEMU')
            run_all(tap, bed, cases)
    finally:
        tap.point(f'{version}: the end', bed.close())
    tap.note(f'{time.monotonic() - began:.0f} s in all, {processors()}')
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
