#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""The corpora of the fuzz targets, an archive each.

  corpus.py unpack ARCHIVE FOLDER     the inputs as files in FOLDER, which has nothing else then
  corpus.py add ARCHIVE FILE...       puts inputs into it, named by their SHA-1 as libFuzzer does
  corpus.py list ARCHIVE              names and bytes

An archive is the same bytes for the same inputs: sorted, without times and owners.
"""
import hashlib
import io
import os
import shutil
import sys
import tarfile


def read(archive):
    """{name: bytes}"""
    if not os.path.exists(archive):
        return {}
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}


def write(archive, inputs):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w:xz', format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(inputs):
            member = tarfile.TarInfo(name)
            member.size = len(inputs[name])
            tar.addfile(member, io.BytesIO(inputs[name]))
    with open(archive, 'wb') as f:
        f.write(data.getvalue())


def unpack(archive, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, data in read(archive).items():
        if os.path.basename(name) != name:
            sys.exit(f'corpus.py: {archive}: {name}: not the name of a file')
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(data)


def add(archive, *files):
    inputs = read(archive)
    known = set(inputs.values())
    for path in files:
        with open(path, 'rb') as f:
            data = f.read()
        if data not in known:
            inputs[hashlib.sha1(data).hexdigest()] = data
            known.add(data)
    write(archive, inputs)


def show(archive):
    for name, data in sorted(read(archive).items()):
        print(name, len(data))


def main(argv):
    calls = {'unpack': (unpack, 2, 2), 'add': (add, 2, None), 'list': (show, 1, 1)}
    call, least, most = calls.get(argv[1] if len(argv) > 1 else '', (None, 0, 0))
    words = argv[2:]
    if call is None or len(words) < least or (most is not None and len(words) > most):
        print(__doc__, file=sys.stderr)
        return 2
    call(*words)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
