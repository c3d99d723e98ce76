# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Scripts of interop-peer: what two ends of a connection do to each other.  The same ones are run
between two karsts (test/verbs/peer.py) and between karst and Linux (cases_ops.py).

In steps, {NAME} is a status that depends on who the target is, because Linux' soft-RoCE says some
things otherwise.
"""
from collections import namedtuple

# What only some can: ATOMIC WRITE is in Linux 6.3 and later; soft-RoCE reports mistakes of its own
# program as flushed, its library refuses a misaligned atomic, and it does not hold a window to its
# range, but to its region's.  Behind a fence that of 6.1 may stop for ever (D34).
AWRITE, FENCE, ACTOR_KARST, TARGET_KARST = \
    'atomic write', 'fence', 'karst acts', 'karst is the target'
NEWER = {AWRITE, FENCE} # not with Linux 6.1

Script = namedtuple('Script', 'name options steps needs rules')

TARGET = {
    'karst': {'long': 'REM_INV_REQ_ERR:LOC_LEN_ERR', 'own_key': 'REM_OP_ERR:LOC_PROT_ERR'},
    'linux': {'long': 'REM_OP_ERR:LOC_QP_OP_ERR', 'own_key': 'REM_OP_ERR:LOC_QP_OP_ERR'},
}

RC_ALL = 'send:around write:around read:around send_imm:around write_imm:around'
UC_ALL = 'send:around write:around send_imm:around write_imm:around @send:5'
UD_ALL = 'send:around send_imm:around @send:5'
WRAP = '--psn 0xfffffc,0xfffff8'
# Long enough for a peer on a busy machine, where somebody answers at last: four times 537 ms.
SHORT = '--timeout 17 --retry-cnt 3'
RNR = '--timeout 18 --rnr-retry 2 --min-rnr-timer 10'


def script(rules, name, options, steps, *needs):
    """@rules: those of doc/protocol.rst that it is about."""
    return Script(name, options.split(), steps.split(), needs, rules)


# Every operation, at sizes around every boundary.
SIZES = [script('W5 W6 W7 W10 P1 Q2 Q3 R1 R10', f'RC, MTU {mtu}, all sizes', f'-m {mtu}', RC_ALL)
         for mtu in (256, 512, 1024, 2048, 4096)]
SIZES += [
    script('U1 W10', 'UC, all sizes', '-q uc', UC_ALL + ' mix:1x64'),
    script('U1 W10', 'UC, MTU 4096, all sizes', '-q uc -m 4096', UC_ALL),
    script('U1 W6', 'UD, all sizes, GRH', '-q ud', UD_ALL + ' mix:1x64'),
    script('U1 W6', 'UD, MTU 4096, all sizes, GRH', '-q ud -m 4096', UD_ALL),
]

# What goes well.
OPERATIONS = [
    script('R7', 'atomics', '', 'faa cas:x2 faa:x16 cas:x16 %faa:x16 %cas:x32'),
    script('W4 L6', 'ATOMIC WRITE', '', 'awrite awrite:x16 %awrite:x8', AWRITE),
    script('W5 Q1 Q3 R10 R11', 'bursts of all operations', '', 'mix:1x128 mix:2x128 %mix:3x128'),
    script('Q1 Q3 R11', 'bursts one way and the other', '',
           'write:3000x16 %read:2500x16 @send:700x32 %write_imm:1500x16 @read:5000x8'),
    script('Q1 Q5 R6', 'READs and atomics beyond rd_atomic', '--rd-atomic 1',
           'read:2500x16 faa:x16 mix:4x64 read:10x8'),
    script('Q1', 'fences', '--rd-atomic 2',
           'read:10x8/fence faa:x8/fence read:3000x4/fence write:2500x4/fence mix:22x64/fence '
           '%mix:23x32/fence', FENCE),
    script('Q1 W2', 'inline, unsignalled, solicited, pieces', '',
           'send:30x4/inline write:60/inline send:100x20/unsig send_imm:7/se send:3000/sge4/rsge4 '
           'write:1025/sge3 read:3001/sge4 send:2/sge4/rsge2'),
    script('R14', 'completion events', '--events',
           'send:1025x4 @send_imm:10 read:3000 faa send:100/se %send:5/se write_imm:3/se'),
    script('R8', 'SRQ', '--srq', 'send:around send_imm:3000x8 write_imm:20 mix:5x64 %mix:6x32'),
    script('R8', 'SRQ with events', '--srq --events', 'send:10x16 send_imm:2049/se %send:700x8'),
    script('P1 P2 P3', 'PSNs wrap', WRAP, 'send:3000 read:3000 write:2000 faa send:1 %mix:7x32'),
    script('P1 Q5', 'PSNs wrap within a READ', '--psn 0xfffffe,0xffffff -m 256',
           'read:2000 read:2000 faa '
           '@read:2000 @send:2000'),
    script('P1 U1', 'PSNs wrap, UC', '-q uc ' + WRAP, 'send:3000 write:8000 send_imm:9 %mix:8x32'),
    script('R1', 'windows of type 1', '',
           'bind1:4000 write:3000/mw read:2000/mw faa:x4/mw bind1:600 '
           'write:500/mw'),
    script('R1', 'windows of type 2', '',
           'bind2:4000 write:3000/mw read:2000/mw faa:x4/mw cas:x4/mw '
           'write_imm:30/mw'),
    script('R9 W3 W5', 'SEND with invalidate', '', 'bind2:4000 write:100/mw send_inv:44/mw bind2:4000 '
           'read:100/mw send_inv:3000/mw bind2:300 send_inv:0/mw write:10'),
    script('R12 L5', 'a key is not looked at for nothing', '', 'read:0/badkey write:0/badkey '
           'write_imm:0/badkey'),
]

# What is refused: the statuses at both ends, the states that queue pairs end in, flushed receives;
# and no byte changes.
ACCESS = 'REM_ACCESS_ERR'
REFUSED = [
    script('R1 Q8 R13 L3', 'unknown and dead keys', '',
           f'write:8/badkey={ACCESS} write:3000/badkey={ACCESS} '
           f'read:3000/badkey={ACCESS} faa/badkey={ACCESS} write:9/dead={ACCESS} '
           f'read:9/dead={ACCESS} write_imm:5/badkey={ACCESS} send:8'),
    script('R1 Q8 R13', 'out of bounds', '', f'write:64/end={ACCESS} write:3000/end={ACCESS} '
           f'read:64/end={ACCESS} read:3000/end={ACCESS} faa/end={ACCESS} cas/end={ACCESS} send:8'),
    script('R1 Q8 R13', 'without the right', '', f'write:8/ro={ACCESS} write:3000/ro={ACCESS} '
           f'read:8/wo={ACCESS} write:8/none={ACCESS} read:8/none={ACCESS} faa/ro={ACCESS} '
           f'cas/wo={ACCESS} send:8'),
    script('R1 Q8', 'of another protection domain', '', f'write:9/pd={ACCESS} read:9/pd={ACCESS} '
           f'faa/pd={ACCESS}'),
    script('Q8 R13', 'in the middle of a burst', '', f'write:3000x8/badkey={ACCESS} '
           f'read:100x8/end={ACCESS} send:100x4/rlen99={{long}} send:8'),
    script('R9 Q8 L3', 'SEND longer than the receive', '',
           'send:101/rlen100={long} send:3000/rlen1500={long} '
           'send_imm:1/rlen0={long} send:3000/rlen1024={long} send:8'),
    script('R9 Q8', 'SEND longer than the receive, SRQ', '--srq', 'send:101/rlen100={long} '
           'send:3000/rlen1500={long} send:8'),
    script('R9 Q8', "the receive's own key is wrong", '', 'send:100/badrecv={own_key} '
           'send:3000/badrecv={own_key} send:8'),
    script('R7 L3', 'a misaligned atomic', '',
           'faa/odd=REM_INV_REQ_ERR cas/odd=REM_INV_REQ_ERR send:8',
           ACTOR_KARST),
    script('R7 L3', 'a misaligned ATOMIC WRITE', '', 'awrite/odd=REM_INV_REQ_ERR send:8', AWRITE),
    script('R1 Q8', 'ATOMIC WRITE without the right', '',
           f'awrite/ro={ACCESS} awrite/badkey={ACCESS}',
           AWRITE),
    script('R1 L3', 'windows: rights, and after their end', '', f'bind2:1000/wo write:300/mw '
           f'read:8/mw={ACCESS} bind1:400/ro read:300/mw write:8/mw={ACCESS} bind2:400 '
           f'write:300/mw local_inv write:300/mw={ACCESS} bind2:400 send_inv:9/mw '
           f'read:8/mw={ACCESS}'),
    script('R1', 'windows: out of bounds', '', f'bind2:600 write:300/mw/end={ACCESS} bind1:600 '
           f'read:300/mw/end={ACCESS} bind2:64/end=MW_BIND_ERR bind2:64/none=MW_BIND_ERR',
           TARGET_KARST),
    script('R9 L8', 'SEND that invalidates what it may not', '',
           'send_inv:30=OK:REM_INV_REQ_ERR send:8'),
    script('Q1', "the sender's own key is wrong", '', 'send:9/badlkey=LOC_PROT_ERR '
           'write:3000/badlkey=LOC_PROT_ERR send:8', ACTOR_KARST),
    script('U1', 'UC and what the target refuses', '-q uc',
           'send:9/norecv/lost write:9/badkey/lost '
           'write:3000/end/lost send:10 write:2000/none/lost send_imm:2000 @send:5'),
    script('U1 W9', 'UD: no receive, another Q_Key', '-q ud', 'send:9/norecv/lost '
           'send:9/badqkey/lost/rlen2000 send:300 send_imm:9/badqkey/lost/rlen2000 send:1024 '
           '@send:5'),
]

# Who is not ready, and who never answers.
LATE = [
    script('R8 Q7', 'receives are late', '--min-rnr-timer 14', 'send:100/late60 send:2500/late60 '
           'write_imm:2500/late60 send_imm:9x8/late60 @send:10/late30 mix:9x32/late30'),
    script('R8 Q7', 'receives are late, SRQ', '--srq --min-rnr-timer 14', 'send:100/late60 '
           'write_imm:2500/late60 send:700x16/late30'),
    script('Q7', 'receives never come', RNR, 'send:10/norecv=RNR_RETRY_EXC_ERR '
           'send:3000x4/norecv=RNR_RETRY_EXC_ERR write_imm:9/norecv=RNR_RETRY_EXC_ERR send:8'),
    script('Q6', 'nobody answers', SHORT, 'send:8/deaf=RETRY_EXC_ERR read:3000/deaf=RETRY_EXC_ERR '
           'faa:x4/deaf=RETRY_EXC_ERR write:3000x4/deaf=RETRY_EXC_ERR send:8'),
]

ALL = SIZES + OPERATIONS + REFUSED + LATE


def words(one, target, host, more=()):
    """The arguments of a client whose target is 'karst' or 'linux'."""
    return [*one.options, *more, host, *(step.format(**TARGET[target]) for step in one.steps)]
