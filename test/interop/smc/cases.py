# SPDX-License-Identifier: BSD-3-Clause
# What karst and Linux do together over SMC-R: functions of the bed and of karst's role, "client" or
# "server".  Each raises Ended if something is wrong.
"""What karst and Linux do together over SMC-R: functions of the bed and of karst's role, "client" or
"server".  Each raises Ended if something is wrong."""
import re

from smc_bed import EID, FAULTS, Ended
from wire import delay, drop, duplicate

# Soft-RoCE of Linux 6.1 does not report the state of a queue pair, so SMC-R there sends nothing
# over it, not even CONFIRM_LINK (ENOLINK), and then waits for ever for its completions.  With that
# kernel only what is decided before that can be tested.
NEWER, ALL = ('6.12',), ('6.1', '6.12')
CASES = []
OTHER = {'karst': 'linux', 'linux': 'karst'}
NO_DEVICE, MEMORY, NO_CONFIRM = 0x03030000, 0x01010000, 0x02010000
NO_OPTION, PEER_DECLINED = 0x03010000, 0x05000000
# A reader gets an end of the stream even so; SO_ERROR tells that it was abnormal.
RESET, LINK_GONE = ('end after 0', 'error ECONNRESET'), ('end after 0', 'error ECONNABORTED')
LOTS = 3000000 # more than all buffers between two programs


def case(name, roles=('client', 'server'), kernels=NEWER, faults=()):
    """@faults: counters of FAULTS that may increase."""
    def add(function):
        CASES.append((name, roles, kernels, faults, function))
        return function
    return add


def told(before, now):
    return ', '.join(f'{end} {number:#010x} {now[end, number] - before.get((end, number), 0)} times'
                     for end, number in sorted(now)
                     if now[end, number] != before.get((end, number), 0))


def is_smc(bed, pair_of, count=1):
    """Runs @pair_of(), whose connections are SMC-R and no others."""
    before, reasons = bed.counters(), bed.reasons()
    found = pair_of()
    now = bed.counters()
    if now['connected'] - before['connected'] != count or bed.reasons() != reasons:
        raise Ended(f'{now["connected"] - before["connected"]} of {count} are SMC-R; told: ' +
                    told(reasons, bed.reasons()), *found.shown())
    return found


def is_tcp(bed, pair_of, *wanted):
    """Its connections stay on TCP; @wanted: (end, number) of the reported reasons."""
    before, reasons = bed.counters(), bed.reasons()
    found = pair_of()
    now = bed.reasons()
    if bed.counters()['connected'] != before['connected']:
        raise Ended('it is SMC-R', *found.shown())
    if {key for key in now if now[key] != reasons.get(key, 0)} != set(wanted):
        raise Ended('told: ' + told(reasons, now), *found.shown())
    return found


def both(number):
    return ('karst', number), ('linux', number)


def echo(bed, role, n=1000, **kwargs):
    steps = f'both {n} shut drain'
    pair = bed.pair(role, steps, steps, **kwargs).end()
    for end in 'karst', 'linux':
        pair.said(end, 'end after 0')
    return pair


# --- bytes ---

@case('the first connection makes a group, the second is in it')
def first(bed, role):
    before = bed.counters()['first_contact']
    is_smc(bed, lambda: echo(bed, role))
    if bed.counters()['first_contact'] != before + 1:
        raise Ended('the first one is in a group that was there')
    is_smc(bed, lambda: echo(bed, role))
    if bed.counters()['first_contact'] != before + 1:
        raise Ended('the second one has a group of its own')
    ours = [row for row in bed.karst_groups().values() if row['role'] == role]
    theirs = [line for line in bed.linux_groups() if f'role {role}' not in line]
    if len(ours) != 1 or len(theirs) != 1:
        raise Ended(f'groups: {ours}, {theirs}')
    if ours[0]['release'] != 1 or 'release 1' not in theirs[0]:
        raise Ended(f'release: {ours}, {theirs}')


@case('small messages to and fro')
def small(bed, role):
    is_smc(bed, lambda: bed.pair(role, 'send 1 get 7 ' * 20 + 'close',
                                 'get 1 send 7 ' * 20 + 'close').end())


@case('both directions at once, many times around the buffers')
def bulk(bed, role):
    is_smc(bed, lambda: echo(bed, role, LOTS))


def fill(bed, role, writer):
    """Sends until @writer has no room any more, until the other end starts to read."""
    reader = OTHER[writer]
    bed.stops()
    steps = {writer: 'fill send 1000000 shut drain', reader: f'{bed.waits(reader)} drain close'}
    pair = bed.pair(role, steps['karst'], steps['linux'])
    pair.says(writer, 'full ')
    full = int(getattr(pair, writer).text().split('full ')[1].split()[0])
    bed.goes(reader)
    pair.end().said(reader, f'end after {full + 1000000}')
    return pair


@case('karst has no room until Linux reads')
def karst_blocked(bed, role):
    before = bed.counters()['blocked']
    is_smc(bed, lambda: fill(bed, role, 'karst'))
    if bed.counters()['blocked'] == before:
        raise Ended('karst was not blocked')


@case('Linux has no room until karst reads')
def linux_blocked(bed, role):
    is_smc(bed, lambda: fill(bed, role, 'linux'))


def half(bed, role, first_end):
    steps = {first_end: 'send 1000 shut drain close',
             OTHER[first_end]: 'drain send 300000 close'}
    pair = bed.pair(role, steps['karst'], steps['linux']).end()
    pair.said(first_end, 'end after 300000')
    pair.said(OTHER[first_end], 'end after 1000')
    return pair


@case('karst ends its direction, Linux goes on')
def karst_half(bed, role):
    is_smc(bed, lambda: half(bed, role, 'karst'))


@case('Linux ends its direction, karst goes on')
def linux_half(bed, role):
    is_smc(bed, lambda: half(bed, role, 'linux'))


# --- ends ---

@case('karst closes with unread bytes, Linux hears of it')
def karst_abort(bed, role):
    def run():
        return bed.pair(role, 'get 1 close', 'send 1000 drain error').end()
    is_smc(bed, run).said('linux', *RESET)


@case('Linux closes with unread bytes, karst hears of it')
def linux_abort(bed, role):
    def run():
        return bed.pair(role, 'send 1000 drain', 'get 1 close').end()
    is_smc(bed, run).said('karst', 'ECONNRESET after 0')


@case('karst closes with a time to linger of 0, Linux hears of it')
def karst_reset(bed, role):
    def run():
        return bed.pair(role, 'both 1000 reset', 'both 1000 drain error').end()
    is_smc(bed, run).said('linux', *RESET)


@case('Linux closes with a time to linger of 0')
def linux_reset(bed, role):
    def run():
        return bed.pair(role, 'both 1000 drain', 'both 1000 reset').end()
    is_smc(bed, run).said('karst', 'end after 0')


@case('a program over karst is killed, what it wrote arrives')
def karst_dies(bed, role):
    def run():
        return bed.pair(role, 'send 200000 die', 'drain').end(karst=-9)
    is_smc(bed, run).said('linux', 'end after 200000')


@case('a program of Linux is killed, what it wrote arrives')
def linux_dies(bed, role):
    def run():
        return bed.pair(role, 'drain', 'send 50000 die').end(linux=137)
    is_smc(bed, run).said('karst', 'end after 50000')


@case('a program over karst is killed with unread bytes')
def karst_dies_unread(bed, role):
    def run():
        return bed.pair(role, 'get 1 die', 'send 1000 drain error').end(karst=-9)
    is_smc(bed, run).said('linux', *RESET)


@case('a program of Linux is killed with unread bytes')
def linux_dies_unread(bed, role):
    def run():
        return bed.pair(role, 'send 1000 drain', 'get 1 die').end(linux=137)
    is_smc(bed, run).said('karst', 'ECONNRESET after 0')


@case('who sends to a program that has gone is told')
def gone(bed, role):
    def run(sender):
        steps = {sender: 'fail', OTHER[sender]: 'get 1 close'}
        pair = bed.pair(role, steps['karst'], steps['linux']).end()
        said = getattr(pair, sender).text()
        if 'sending fails: EPIPE' not in said and 'sending fails: ECONNRESET' not in said:
            raise Ended(*pair.shown())
        return pair
    is_smc(bed, lambda: run('karst'))
    is_smc(bed, lambda: run('linux'))


# --- urgent ---

def urgent(bed, role, sender):
    """Two separate urgent bytes, with more data behind them, and two inline.

    Each of the first two reaches Linux in one piece with the data in front of it: a program that
    has read all of that before the urgent byte arrives, and reads it by MSG_OOB, gets nothing more
    (L15)."""
    apart = 'urge' if sender == 'karst' else 'urgent'
    steps = {sender: f'get 1 {apart} 1000 send 500 get 1 {apart} 2 send 70000 get 1 urgent 1000 '
                     'send 500 urgent 1 shut drain',
             OTHER[sender]: 'send 1 get 999 oob get 500 send 1 get 1 oob get 70000 inline send 1 '
                            'get 1501 close'}
    pair = bed.pair(role, steps['karst'], steps['linux']).end()
    pair.said(sender, 'end after 0')
    return pair


@case('urgent bytes of Linux')
def linux_urgent(bed, role):
    is_smc(bed, lambda: urgent(bed, role, 'linux'))


@case('urgent bytes of karst')
def karst_urgent(bed, role):
    is_smc(bed, lambda: urgent(bed, role, 'karst'))


# --- groups ---

@case('connections of more than one group')
def many(bed, role):
    # 16 is the smallest number on which both may agree; without such a setting it is 255
    limit, count = (16, 20) if role == 'client' else (255, 260)
    bed.guest.must(f'echo {limit} >/proc/sys/net/smc/smcr_max_conns_per_lgr')
    bed.again()
    bed.stops()
    # each step on all of them: they are not accepted in the order in which they connect
    linux = f'send 500 get 500 say talked {bed.waits("linux")} send 100 get 100 close'
    before = bed.counters()['first_contact']
    pair = bed.pair(role, 'send 500 get 500 send 100 get 100 close', linux, count=count)
    pair.says('linux', 'talked')
    have = sorted(row['connections'] for row in bed.karst_groups().values()
                  if row['role'] == role and row['connections'] != 0)
    theirs = sorted(int(line.split()[5]) for line in bed.linux_groups()
                    if f'role {role}' not in line and 'conns 0' not in line)
    bed.goes('linux')
    pair.end()
    bed.guest.must('echo 255 >/proc/sys/net/smc/smcr_max_conns_per_lgr')
    if have != [count - limit, limit] or theirs != have:
        raise Ended(f'connections of groups: {have} at karst, {theirs} at Linux')
    if bed.counters()['first_contact'] > before + 2:
        raise Ended('more groups than two')


@case('karstd ends, and with it the groups at Linux')
def karstd_ends(bed, role):
    is_smc(bed, lambda: echo(bed, role))
    bed.again()
    bed.until(lambda: not bed.linux_groups(), 'without groups at Linux', 0.3)
    is_smc(bed, lambda: echo(bed, role))


@case('a group without connections ends, at both')
def idle(bed, role):
    bed.again('group_idle_s = 1\n')
    is_smc(bed, lambda: echo(bed, role))
    # it may have ended already
    if bed.counters()['first_contact'] != 1:
        raise Ended('there was no group')
    bed.until(lambda: bed.counters()['group_idle'] == 1 and not bed.karst_groups(), 'idle')
    bed.until(lambda: not [line for line in bed.linux_groups() if f'role {role}' not in line],
              'gone at Linux', 0.3)
    is_smc(bed, lambda: echo(bed, role))
    if bed.counters()['first_contact'] != 2:
        raise Ended('the next connection has no new group')


# --- reasons to decline ---

@case('Linux has no EID: TCP', kernels=ALL)
def no_eid(bed, role):
    bed.guest.must('interop-smcset no-eids')
    try:
        is_tcp(bed, lambda: echo(bed, role, 100000), *both(NO_DEVICE))
    finally:
        bed.guest.must(f'interop-smcset eid {EID}')


@case('another EID: TCP', kernels=ALL)
def other_eid(bed, role):
    bed.again('eid = ELSEWHERE\n')
    # Linux does not keep the peer's reason for declining before it has its own
    is_tcp(bed, lambda: echo(bed, role, 100000), ('karst', NO_DEVICE),
           ('linux', NO_DEVICE if role == 'client' else PEER_DECLINED))


@case('IPv6: TCP', kernels=ALL)
def ip6(bed, role):
    is_tcp(bed, lambda: echo(bed, role, 100000, family='ip6'), *both(NO_DEVICE))


@case('Linux has no device: TCP', kernels=ALL)
def no_device(bed, role):
    bed.guest.must('rdma link delete rxe0')
    try:
        is_tcp(bed, lambda: echo(bed, role, 100000), *both(NO_DEVICE))
    finally:
        bed.guest.must('rdma link add rxe0 type rxe netdev eth0')


@case('karst has no room for another connection: TCP')
def no_room(bed, role):
    bed.again('max_connections = 1\n')
    bed.stops()
    first_one = bed.pair(role, f'{bed.waits("karst")} both 1000 close', 'both 1000 close')
    bed.until(lambda: bed.counters()['connected'] == 1, 'connected')
    is_tcp(bed, lambda: echo(bed, role, 100000), ('karst', MEMORY), ('linux', PEER_DECLINED))
    bed.goes('karst')
    first_one.end()


@case('the other program is one of TCP', kernels=ALL)
def plain(bed, role):
    is_tcp(bed, lambda: echo(bed, role, 100000, smc=('linux',)), ('linux', NO_OPTION))
    is_tcp(bed, lambda: echo(bed, role, 100000, smc=('karst',)))


@case('no packet of RoCE arrives: TCP', faults=('llc_timeout', 'link_down'))
def unconfirmed(bed, role):
    bed.again()
    bed.wire.change([drop(every=1)])
    try:
        is_tcp(bed, lambda: echo(bed, role, 100000), *both(NO_CONFIRM))
    finally:
        bed.wire.change([])


# --- the wire ---

@case('packets are lost')
def loss(bed, role):
    bed.wire.change([drop(chance=0.03)])
    is_smc(bed, lambda: echo(bed, role, 300000))
    bed.wire.change([])


@case('packets overtake each other, and come twice')
def disorder(bed, role):
    bed.wire.change([delay(every=7, frames=2), duplicate(every=11)])
    is_smc(bed, lambda: echo(bed, role, 500000))
    bed.wire.change([])


@case('TCP ends before the link has carried what came before')
def late(bed, role):
    bed.again() # so that the link is new, and has to be confirmed
    bed.wire.change([delay(source='guest', every=1, ms=100)])
    is_smc(bed, lambda: bed.pair(role, 'get 1000 drain close', 'send 1000 shut drain').end())
    bed.wire.change([])


# --- two ports ---

def has_links(bed, role, count):
    """Both ends have @count links in the one group."""
    def are_there():
        rows = [row for row in bed.karst_groups().values() if row['role'] == role]
        return [row['links'] for row in rows] == [count]
    bed.until(are_there, f'{count} links at karst')
    bed.linux_has(count)


def links(bed, role, count):
    """The same, and the stream continues."""
    has_links(bed, role, count)
    before = bed.counters()
    bed.until(lambda: all(bed.counters()[name] > before[name] + 20
                          for name in ('writes', 'cdc_rx')), 'going on')


def stream(bed, role, first_links, then):
    """A stream in both directions between two sides with two ports each; Linux has a second device
    if there are to be two links at @first_links.  What one side sends while then() runs, the other
    receives, and each byte is compared on arrival."""
    bed.stops_both()
    bed.again(ports=2)
    if first_links == 2:
        bed.second_device()

    def run():
        pair = bed.pair(role, f'stream {bed.go}', 'stream /tmp/go')
        links(bed, role, first_links)
        return pair
    try:
        pair = is_smc(bed, run)
        then()
        bed.goes('karst')
        bed.goes('linux')
        pair.end()
    finally:
        bed.no_second_device()
    said = [re.search('sent ([0-9]+) got ([0-9]+)', end.text()).groups()
            for end in (pair.karst, pair.linux)]
    if said[0] != said[1][::-1]:
        raise Ended(f'(sent, got): karst {said[0]}, Linux {said[1]}')
    bed.again()


def each_dies(bed, role, down, up):
    """The port of one link goes down and up, and then that of the other."""
    def run():
        for number in 0, 1:
            down(number)
            links(bed, role, 1)
            up(number)
            links(bed, role, 2)
        now = bed.counters()
        if (now['failover'], now['link_down']) != (2, 2):
            raise Ended(f'{now["failover"]} of 2 times it went to the other link')
    stream(bed, role, 2, run)


@case('of two links each dies at Linux, and there is one again', faults=('link_down',))
def linux_port(bed, role):
    each_dies(bed, role, bed.linux_down, bed.linux_up)


# As a server Linux waits for its sends on the link that it is told to delete, and soft-RoCE never
# completes them: it would have no second link again, and close() would not return.
@case('of two links each dies at karst, and there is one again', roles=('server',),
      faults=('link_down',))
def karst_port(bed, role):
    each_dies(bed, role, bed.karst_down, bed.karst_up)


@case('a link over which nothing goes dies at karst, and there is one again', roles=('client',),
      faults=('link_down',))
def karst_idle_port(bed, role):
    bed.looks_often()
    bed.stops_both()
    bed.again(ports=2)
    bed.second_device()
    steps = 'both 1000 say talked wait {} both 100000 shut drain'
    try:
        pair = bed.pair(role, steps.format(bed.go), steps.format('/tmp/go'))
        pair.says('karst', 'talked')
        pair.says('linux', 'talked')
        has_links(bed, role, 2)
        for number in 0, 1:
            bed.karst_down(number)
            has_links(bed, role, 1)
            bed.karst_up(number)
            has_links(bed, role, 2)
        bed.goes('karst')
        bed.goes('linux')
        pair.end()
    finally:
        bed.no_second_device()
    pair.said('karst', 'end after 0')
    pair.said('linux', 'end after 0')
    bed.again()


@case('Linux gets a second device, and the group a second link')
def second_later(bed, role):
    def run():
        bed.second_device()
        links(bed, role, 2)
    bed.looks_often()
    stream(bed, role, 1, run)


# --- failures ---

@case('karstd is killed')
def karstd_killed(bed, role):
    bed.looks_often()
    bed.again()
    pair = bed.pair(role, 'both 1000 drain', 'both 1000 say talked drain error')
    pair.says('linux', 'talked')
    bed.daemon.kill()
    pair.end()
    pair.said('karst', 'ECONNRESET after 0')
    pair.said('linux', *LINK_GONE)
    problems = bed.serve()
    if problems:
        raise Ended(*problems)
    is_smc(bed, lambda: echo(bed, role))


@case('the guest is killed, and another one has its address',
      faults=('link_down', 'group_down', 'llc_timeout'))
def guest_killed(bed, role):
    is_smc(bed, lambda: echo(bed, role))
    # A group that is dead without notice: a client learns from the server's Accept that there is
    # another one, a server receives nothing on its link.
    idle_one = bed.pair(role, 'both 1000 say talked drain', 'both 1000 drain')
    idle_one.says('karst', 'talked')
    bed.guest.close()
    problems = bed.boot()
    if problems:
        raise Ended(*problems)
    before = bed.counters()['first_contact']
    is_smc(bed, lambda: echo(bed, role))
    if bed.counters()['first_contact'] != before + 1:
        raise Ended('the new guest is taken for the old one')
    idle_one.end(linux=None)
    if not re.search(r'^E[A-Z]+ after 0$', idle_one.karst.text(), re.MULTILINE):
        raise Ended(*idle_one.shown())
    bed.again() # the dead guest's link ends now, and not in a later case


@case('who sends to a guest that is gone is told', roles=('server',),
      faults=('link_down', 'group_down', 'llc_timeout'))
def guest_gone(bed, role):
    pair = bed.pair(role, 'both 1000 say talked fail', 'both 1000 drain')
    pair.says('karst', 'talked')
    bed.guest.close()
    pair.end(linux=None)
    if 'sending fails: E' not in pair.karst.text():
        raise Ended(*pair.shown())


def faults(before, now, allowed):
    """@return problems: counters of faults have increased."""
    return [f'{name} went up by {now[name] - before.get(name, 0)}' for name in FAULTS
            if name not in allowed and now[name] > before.get(name, 0)]
