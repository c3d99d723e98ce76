# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""TAP output, and calls of karst-dump, for the test scripts of this folder and its neighbours."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from points import Tap  # noqa: E402


def skip_all(reason):
    print('1..0 # SKIP %s' % reason)
    sys.exit(0)


def run_tests(functions):
    """Runs all test_*(folder) of @functions, and exits."""
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for name, test in sorted(functions.items()):
            if name.startswith('test_'):
                tap.point(name[5:].replace('_', ' '), test(folder))
    sys.exit(tap.finish())


def run(dump, *args):
    """Run karst-dump.  @return (exit status, standard output, standard error)."""
    p = subprocess.run([dump, *args], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def run_json(dump, *args):
    """Run karst-dump --json.  @return (exit status, objects per frame, the total, standard
    error)."""
    status, out, err = run(dump, '--json', *args)
    objects = [json.loads(line) for line in out.splitlines()]
    return status, objects[:-1], objects[-1], err
