#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""run_captures.py KARST_DUMP: check every capture of real Linux peers against MANIFEST.tsv.

Each frame is parsed, its ICRC is checked, and it is built again bit for bit (W1 to W7).

Another program made the manifest from the same frames when they were captured.  What the wire did
to a frame later (last column) does not show, because a capture has each frame as its sender sent
it.  The only wrong ones are FLUSH as Linux 6.12 sends it (rule L7).
"""
import csv
import os
import sys

from tap import Tap, run_json

HERE = os.path.dirname(os.path.abspath(__file__))

# Names of opcodes in the manifest that differ from karst's.
NAMES = {'RC_READ_REQ': 'RC_READ_REQUEST'}


def expected_counts(text):
    """'RC_ACK:3 NAK(PSN_SEQ):1' as two dictionaries: opcodes, and syndromes of RC_ACK."""
    opcodes, naks = {}, {}
    for item in text.split():
        name, count = item.rsplit(':', 1)
        if 'NAK' in name:
            naks[name] = int(count)
        else:
            opcodes[NAMES.get(name, name)] = int(count)
    return opcodes, naks


def compare(problems, what, got, want):
    if got != want:
        problems.append('%s is %s, expected %s' % (what, got, want))


def check(dump, row):
    problems = []
    path = os.path.join(HERE, row['file'])
    status, frames, total, _ = run_json(dump, '--rebuild', path)
    opcodes, naks = expected_counts(row['opcodes'])
    bad = int(row['roce']) - int(row['icrc_ok'])

    compare(problems, 'exit status', status, 1 if bad else 0)
    compare(problems, 'frames', total['frames'], int(row['frames']))
    compare(problems, 'frames printed', len(frames), int(row['frames']))
    compare(problems, 'roce', total['roce'], int(row['roce']))
    compare(problems, 'icrc_ok', total['icrc_ok'], int(row['icrc_ok']))
    compare(problems, 'icrc_bad', total['icrc_bad'], bad)
    compare(problems, 'rebuilt', total['rebuilt'], int(row['roce']))
    compare(problems, 'rebuild_mismatch', total['rebuild_mismatch'], bad)
    compare(problems, 'malformed', total['malformed'], 0)
    compare(problems, 'by_opcode', total['by_opcode'], opcodes)
    syndromes = {k: v for k, v in total['by_syndrome'].items() if k != 'ACK'}
    compare(problems, 'by_syndrome', syndromes, naks)
    for f in frames:
        if f.get('icrc', {}).get('check') == 'BAD' and f['bth']['name'] != 'RC_FLUSH':
            problems.append('frame %d has a bad ICRC and is no FLUSH' % f['frame'])
    if bad:
        status, _, total, _ = run_json(dump, '--rebuild', '--quirk', 'flush-icrc', path)
        compare(problems, 'exit status with the quirk', status, 0)
        compare(problems, 'icrc_quirk', total['icrc_quirk'], bad)
        compare(problems, 'rebuild_mismatch with the quirk', total['rebuild_mismatch'], 0)
    return problems


def main():
    tap = Tap()
    with open(os.path.join(HERE, 'MANIFEST.tsv'), newline='') as f:
        rows = list(csv.DictReader(f, delimiter='\t', quoting=csv.QUOTE_NONE))
    for row in rows:
        tap.point(row['file'], check(sys.argv[1], row))
    listed = {row['file'] for row in rows}
    present = {n for n in os.listdir(HERE) if n.endswith('.pcap') and not n.startswith('native_')}
    tap.point('manifest and folder agree', sorted(listed ^ present))
    sys.exit(tap.finish())


main()
