# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Captures of both ends, Linux's and karst's, with the clock of each: karst-dump --analyse --ends
has to find what the wire in between did to which packets.

Linux's end is captured in the guest, karst's where the wire meets its interface.  With
KARST_ENDS_TO=FOLDER in the environment the captures are kept there.
"""
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from cases_ops import SERVER  # noqa: E402
from cases_wire import (FAST, FETCH_ADD, READ_LAST, READ_MIDDLE, RESPONSES,  # noqa: E402
                        SEND_LAST, SEND_MIDDLE, SEND_ONLY, WRITE_MIDDLE, ACK, Ends)
from interop_bed import Case, HANG_S, judge, meet  # noqa: E402
from pcap import read_pcap  # noqa: E402
from wire import corrupt, drop, duplicate  # noqa: E402

LIMIT_S = 600
STEPS = 'send:3000x6 write:3000x6 read:3000x6 faa:x4 send:10x6'
THERE = '/tmp/ends.pcap'


def injuries(role):
    """Impairments of both directions, of each kind."""
    ends = Ends(role)
    return [drop(source=ends.requests, op=SEND_MIDDLE, nth=(3,)),
            drop(source=ends.requests, op=SEND_LAST, nth=(6,)),
            duplicate(source=ends.requests, op=SEND_ONLY, nth=(2,)),
            corrupt(source=ends.requests, op=WRITE_MIDDLE, nth=(5,)),
            drop(source=ends.requests, op=FETCH_ADD, nth=(2,)),
            drop(source=ends.responses, op=READ_MIDDLE, nth=(4,)),
            corrupt(source=ends.responses, op=READ_LAST, nth=(3,)),
            duplicate(source=ends.responses, op=ACK, nth=(1,)),
            drop(source=ends.responses, op=RESPONSES, every=11, most=4)]


def frames(path):
    return [frame for _, frame in read_pcap(path)[1]]


def compared(report, recorded, did, captures):
    """@report: what is between the ends; @recorded: frames as the wire received them, @did: to
    which of them.  @captures: {end: its frames}.  For packets that are equal to others of about the
    same time the report may say that it cannot decide, if the machine was so busy that the clocks
    do not tell.  @return problems"""
    problems = []
    dropped = {n for n, what, _, _ in did if what == 'drop'} # whatever other rules apply
    did = [one for one in did if one[1] == 'drop' or one[0] not in dropped]
    for source, way in zip(('karst', 'guest'), report['directions']):
        which = [captures[source][n - 1] for n in way['cannot_tell_which_packets']]
        for name, act in (('lost', 'drop'), ('damaged', 'corrupt')):
            want = [recorded[n - 1] for n, what, end, _ in did if (what, end) == (act, source)]
            found = [captures[source][n - 1] for n in way[name + '_packets']]
            open_ = way[f'cannot_tell_which_{name}']
            left = list(want)
            strange = sum(f not in left or left.remove(f) is not None for f in found)
            if strange or len(left) != open_ or any(f not in which for f in left):
                problems.append(f'{name} from {source}: {way[name + "_packets"]} and {open_} of '
                                f'{way["cannot_tell_which_packets"]}, of which {len(found) - strange} are among the '
                                f'{len(want)} that were')
        doubled = sum((what, end) == ('duplicate', source) for _, what, end, _ in did)
        if way['doubled'] != doubled:
            problems.append(f'doubled from {source}: {way["doubled"]}, not {doubled}')
        if way['cannot_tell'] != way['cannot_tell_which'] or way['not_in_senders_capture']:
            problems.append(f'from {source}: not covered {way["cannot_tell"] - way["cannot_tell_which"]}, '
                            f'not in its capture {way["not_in_senders_capture"]}')
    return problems


def captured(bed, paths, kind, role):
    """Runs the programs, while both ends are captured.  @return (problems, what the wire did)"""
    case = Case('', SERVER, f'interop-peer -d {{dev}} --gid {{gid}} -p {{port}} {FAST} {{tcp}} {STEPS}',
                both=['all is well: '], limit_s=LIMIT_S)
    there = bed.guest.program(f'rm -f {THERE}; exec frames {bed.linux.interface[kind]} {THERE}', LIMIT_S)
    bed.guest.must(f'until [ -s {THERE} ]; do usleep 20000; done')
    bed.wire.begin(paths['wire'], injuries(role), paths['karst'])
    problems, programs = meet(bed, case, kind, role, 'ip4')
    problems = problems or judge(bed, case, programs)
    there.kill()
    did = list(bed.wire.injuries)
    if problems:
        return problems + [line for program in programs for line in program.shown()], did
    fetched = bed.guest.program(f'cat {THERE}')
    problems = fetched.wait()
    with open(paths['guest'], 'wb') as f:
        f.write(fetched.output)
    return problems, did


def run(bed, kind, role):
    """@return problems"""
    paths = {end: os.path.join(bed.folder, f'ends-{end}.pcap') for end in ('wire', 'karst', 'guest')}
    problems, did = captured(bed, paths, kind, role)
    bed.wire.finish()
    if problems:
        return problems
    kept = os.environ.get('KARST_ENDS_TO')
    for path in paths.values() if kept else ():
        shutil.copy(path, os.path.join(kept, f'{role}-{os.path.basename(path)}'))
    addresses = ','.join(end.address(kind, 'ip4') for end in (bed.host, bed.linux))
    judged = subprocess.run([bed.dump, '--analyse', '--json', '--ends', addresses, paths['karst'],
                             paths['guest']], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, check=False, timeout=HANG_S)
    lines = judged.stdout.splitlines()
    if judged.stderr or len(lines) != 3:
        return [f'karst-dump: {judged.stderr}, {len(lines)} objects']
    problems = compared(json.loads(lines[2]), frames(paths['wire']), did,
                        {end: frames(paths[end]) for end in ('karst', 'guest')})
    return problems + lines[2:] if problems else []


CASES = [Case('captures of both ends', run=run, kinds=('wire',), rules='Q4 Q6 R3 R4', frames=100, sparse=True)]
