#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""SMC-R between programs over karst and sockets of Linux's own (TAP; as root).

  smc_linux.py [--only REGEX] [--list] KERNEL FOLDER BUILD

KERNEL is a meta package of Debian's.  FOLDER keeps kernels and images from one run to the next, and
takes the frames of failing cases.
"""
import argparse
import os
import re
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True
import smc_bed  # noqa: E402
import guest  # noqa: E402
import image as images  # noqa: E402
from bed import Clock, Tap  # noqa: E402
import cases  # noqa: E402

ATTEMPTS, STILL_S = 3, 0.1


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', default='', metavar='REGEX', help='cases whose name it is in')
    parser.add_argument('--list', action='store_true', help='say what would be run')
    parser.add_argument('--keep', metavar='FOLDER', help='for the frames of each case')
    for name in ('kernel', 'folder', 'build'):
        parser.add_argument(name)
    return parser.parse_args(argv)


def run(bed, clock, *args):
    """attempt(); and again if it failed while the machine kept programs waiting for so long that a
    timeout of Linux, which is 2 s on a link, may have expired, or because Linux got stuck with a
    queue pair, as it does now and then when links die.  @return problems"""
    for left in reversed(range(ATTEMPTS)):
        clock.stood_still(0)
        bed.deaf = False
        problems = attempt(bed, *args)
        still_s = clock.stood_still(STILL_S)
        if not problems or not (still_s or bed.deaf) or not left:
            break
        print(f'# the machine stood still for {still_s:.1f} s; once more, after:' if still_s else
              '# Linux is stuck; once more, after:', flush=True)
        for line in '\n'.join(problems).splitlines():
            print(f'# {line}', flush=True)
        end_both(bed)
    return problems


def end_both(bed):
    """The next attempt, or case, gets a karstd and a guest of its own: soft-RoCE may have queue
    pairs that never end, and then its second device never comes back."""
    bed.daemon.kill()
    bed.guest.close()


def attempt(bed, function, role, may, path):
    """@return problems"""
    if not bed.guest.alive():
        bed.guest.close()
        problems = bed.boot()
        if problems:
            return problems
    if bed.daemon.process.poll() is not None:
        problems = bed.serve()
        if problems:
            return problems
    daemon, before = bed.daemon, bed.counters()
    bed.wire.begin(path)
    bed.second.joins(bed.wire)
    try:
        function(bed, role)
        problems = []
    except smc_bed.Ended as e:
        bed.deaf = isinstance(e, smc_bed.Deaf)
        problems = [str(line) for x in (e.__context__, e) if x is not None for line in x.args]
    bed.second.leaves()
    bed.wire.finish()
    if bed.daemon.process.poll() is not None:
        bed.deaf = False # that is not the fault of Linux
        problems = problems or ['karstd has ended']
        return problems + bed.shown()
    if not problems:
        problems = cases.faults(before if bed.daemon is daemon else {}, bed.counters(), may)
    return problems + bed.shown() if problems else []


def run_all(tap, bed, words, failed):
    clock = Clock()
    for title, name, role, may, function in chosen(bed.kernel, words.only):
        began, booted, cpu_s = time.monotonic(), bed.guest, bed.guest.cpu_s()
        path = os.path.join(bed.folder, re.sub(r'[^a-z0-9]+', '-', f'{role} {name}'.lower()) + '.pcap')
        problems = run(bed, clock, function, role, may, path)
        keep = words.keep or (failed if problems else None)
        if keep:
            os.makedirs(keep, exist_ok=True)
            problems += [f'see {shutil.copy(path, keep)}'] if problems else []
            shutil.copy(path, keep)
        os.unlink(path)
        tap.point(title, problems)
        cpu_s = bed.guest.cpu_s() - (cpu_s if bed.guest is booted else 0)
        tap.note(f'{time.monotonic() - began:.1f} s, {cpu_s:.1f} s of QEMU')
        if problems:
            end_both(bed)
    clock.stop()


def chosen(kernel, only):
    for role in ('client', 'server'):
        for name, roles, kernels, may, function in cases.CASES:
            title = f'karst is {role}: {name}'
            if role in roles and kernel in kernels and re.search(only, title):
                yield title, name, role, may, function


def main(argv):
    words = options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tap = Tap()
    reason = guest.reason_against()
    if reason:
        tap.skip(words.kernel, reason)
        return tap.finish()
    here = os.path.join(words.build, 'test', 'interop')
    began = time.monotonic()
    try:
        built = images.image(words.folder, words.kernel, os.path.abspath(f'{here}/agent'),
                             [f'{here}/smc/interop-talk', f'{here}/smc/interop-smcset'],
                             smc_bed.CONTENTS)
    except images.Failure as e:
        tap.point(f'{words.kernel}: kernel and image', [str(e)])
        return tap.finish()
    kernel = '.'.join(built[2].split('.')[:2])
    if words.list:
        print('\n'.join(title for title, *_ in chosen(kernel, words.only)))
        return 0
    failed = os.path.join(words.folder, f'failed-smc-{kernel}')
    shutil.rmtree(failed, ignore_errors=True)
    bed = smc_bed.Bed(words.build, built)
    try:
        problems = bed.start()
        tap.point(f'{built[2]}: guest and karstd come up', problems)
        if not problems:
            tap.note(f'{bed.guest.boot_s:.1f} s, {bed.guest.cpu_s():.1f} s of QEMU')
            run_all(tap, bed, words, failed)
    finally:
        tap.point(f'{built[2]}: the end', bed.close())
    tap.note(f'{time.monotonic() - began:.0f} s in all')
    return tap.finish()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
